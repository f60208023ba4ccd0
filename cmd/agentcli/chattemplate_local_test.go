//go:build libtorch

package main

import (
	"os"
	"path/filepath"
	"testing"

	"agentcli/app/loop"
	"agentcli/model/tokenizer"
)

func TestTheTemplateThatALoopIsGivenMakesItsPromptsAndIsSaved(t *testing.T) {
	dir := t.TempDir()
	file, out := filepath.Join(dir, "t.jinja"), filepath.Join(dir, "run")
	if err := os.WriteFile(file, []byte(toolless), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, log, code := run(t, "loop", "-d", "arith", "--tools", "none", "--shots", "0", "--max-turns", "1", "--model", tinyQwen3,
		"--chat-template", file, "--steps", "1", "--tasks", "2", "-n", "2",
		"--max-tokens", "4", "--dtype", "float32", "--output", out); code != exitDone {
		t.Fatalf("exit %d: %s", code, log)
	}
	all, err := filepath.Glob(filepath.Join(out, loop.RolloutsFolder, "*.parquet"))
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	_, meta := rowsOf(t, all[0])
	if model, _ := meta["model"].(map[string]any); model["chat_format"] != "template" {
		t.Errorf("%v", model)
	}
	trained := filepath.Join(dir, "trained")
	if _, log, code := run(t, "train", all[0], "--chat-template", file, "--minibatch", "0", "--algo", "sft", "--output",
		trained); code != exitDone {
		t.Fatalf("exit %d: %s", code, log)
	}
	for _, folder := range []string{out, trained} {
		if tok, err := tokenizer.Open(folder); err != nil || tok.ChatTemplate() != toolless {
			t.Errorf("%s: %v: the template of the saved model is not the one that it was trained with", folder, err)
		}
	}
}
