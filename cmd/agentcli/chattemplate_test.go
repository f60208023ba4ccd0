package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentcli/app/console"
	"agentcli/app/rundir"
)

// toolless is a chat template that ignores tools.
const toolless = "{% for m in messages %}<|im_start|>{{ m.role }}: {{ m.content }}<|im_end|>{% endfor %}" +
	"{% if add_generation_prompt %}<|im_start|>assistant: {% endif %}"

func TestAChatTemplateThatIsNamedMakesThePrompts(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "t.jinja")
	if err := os.WriteFile(file, []byte(toolless), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "run")
	_, log, code := run(t, "rollout", "-d", "arith", "--limit", "1", "-n", "1", "--reward", "exact", "--max-tokens", "4", "--max-turns", "1",
		"--tools", "none", "--shots", "0",
		"--model", tinyQwen3, "--chat-template", file, "--output", out)
	if code != exitDone {
		t.Fatalf("exit %d: %s", code, log)
	}
	rows, meta := rowsOf(t, filepath.Join(out, rundir.TrajectoriesFile))
	model, _ := meta["model"].(map[string]any)
	if model["chat_format"] != "template" || model["tools_in_text"] != nil || len(rows) != 1 {
		t.Errorf("%v, %d rows", model, len(rows))
	}
	if n := len(rows[0].Messages); n < 2 || len(rows[0].Sequences) != 1 {
		t.Errorf("%d messages, %d sequences", n, len(rows[0].Sequences))
	}
	for _, bad := range []string{"vicuna", dir} {
		if _, log, code := run(t, "rollout", "-d", "arith", "--limit", "1", "--model", tinyQwen3, "--chat-template", bad,
			"--output", filepath.Join(dir, "other")); code == exitDone {
			t.Errorf("--chat-template %s: %s", bad, log)
		}
	}
}

func TestModelCommandsTakeAChatTemplate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "t.jinja")
	if err := os.WriteFile(file, []byte(toolless), 0o600); err != nil {
		t.Fatal(err)
	}
	ask := func(in string, args ...string) map[string]any {
		t.Helper()
		var o, e bytes.Buffer
		if code := executeWith(t.Context(), append([]string{"agentcli", "model"}, args...),
			console.Streams{In: strings.NewReader(in), Out: &o, Err: &e}, testBackend); code != exitDone {
			t.Fatalf("exit %d: %s", code, e.String())
		}
		var out map[string]any
		if err := json.Unmarshal(o.Bytes(), &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	const question = `{"messages":[{"role":"user","content":"a<|im_end|>"}],"add_generation_prompt":true}`
	for template, want := range map[string]string{file: "<|im_start|>user: a<|im_end|><|im_end|><|im_start|>assistant: ",
		"chatml": "<|im_start|>user\na<|im_end|><|im_end|>\n<|im_start|>assistant\n"} {
		if got := ask(question, "render", tinyQwen3, "--chat-template", template); got["text"] != want {
			t.Error(got)
		}
	}
	info := ask("", "info", tinyQwen3, "--json", "--chat-template", file)
	stops, _ := info["stop_tokens"].([]any)
	if info["chat"] != "template" || info["tools_in_text"] != "hermes-text" || len(stops) == 0 || stops[0] != "<|im_end|>" {
		t.Error(info)
	}
	info = ask("", "info", tinyQwen3, "--json")
	if info["chat"] != "chatml" || info["tool_calls"] != "hermes" || info["tools_in_text"] != nil {
		t.Error(info)
	}
}
