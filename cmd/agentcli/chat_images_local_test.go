//go:build libtorch

package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentcli/app/models"
	"agentcli/app/rundir"
	"agentcli/llm/llmtest"
	"agentcli/traj"
)

// spellBytes leaves a tokenizer its bytes and its special tokens: a text has one way to be written,
// so that a server which reads a reply's text makes the ids of it that were drawn.
func spellBytes(t *testing.T, file string) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	all["added_tokens"] = slices.DeleteFunc(all["added_tokens"].([]any), func(x any) bool { return x.(map[string]any)["special"] != true })
	if raw, err = json.Marshal(all); err == nil {
		err = os.WriteFile(file, raw, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// onlyLooks has a model that knows nothing call the tool.
const onlyLooks = `regex:<tool_call>\n\{"name": "image_zoom_in_tool", ` +
	`"arguments": \{"bbox_2d": \[[0-4], [0-4], [5-9][0-9], [5-9][0-9]\]\}\}\n</tool_call>`

// looks is a file of two rows of the environment deepeyes, of one image and of two.
func looks(t *testing.T) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "rows.jsonl")
	var lines []byte
	var photos []any
	for i := range 2 {
		stripes := image.NewGray(image.Rect(0, 0, 112, 84))
		for k := range stripes.Pix {
			stripes.Pix[k] = byte(k % (7 + i) * 30)
		}
		var photo bytes.Buffer
		if err := png.Encode(&photo, stripes); err != nil {
			t.Fatal(err)
		}
		photos = append(photos, map[string]string{"bytes": base64.StdEncoding.EncodeToString(photo.Bytes())})
		row, err := json.Marshal(map[string]any{"env_name": "deepeyes", "images": photos, "answer": "rising",
			"prompt": []map[string]string{{"role": "system", "content": "<tools>\"image_zoom_in_tool\"</tools>"},
				{"role": "user", "content": strings.Repeat("See <image> ", i+1) + "there. Which way?"}}})
		if err != nil {
			t.Fatal(err)
		}
		lines = append(append(lines, row...), '\n')
	}
	if err := os.WriteFile(file, lines, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A conversation with images and crops through a server of chats of our own is that of the model
// here, and is trained on. One whose images the server shows otherwise is not.
func TestChatsWithImagesThroughServeAreThoseOfTheModelHere(t *testing.T) {
	model := filepath.Join(t.TempDir(), "look")
	if err := models.Init("../../examples/look/config.json", 3, model); err != nil {
		t.Fatal(err)
	}
	spellBytes(t, filepath.Join(model, "tokenizer.json"))
	data := looks(t)
	rollout := func(args ...string) (string, []*traj.Trajectory) {
		out := filepath.Join(t.TempDir(), "run")
		_, log, code := run(t, append([]string{"rollout", "-d", data, "--reward", "exact", "-n", "2", "--seed", "5", "--max-tokens", "120",
			"--max-turns", "3", "--ordered", "--output", out, "--grammar", onlyLooks}, args...)...)
		if code != exitDone {
			t.Fatal(log)
		}
		file := filepath.Join(out, rundir.TrajectoriesFile)
		rows, _ := rowsOf(t, file)
		return file, rows
	}
	_, want := rollout("--model", model, "--dtype", "float32", "--device", "cpu")
	url := serveModel(t, "--model", model, "--dtype", "float32")
	file := ""
	for name, args := range map[string][]string{
		"chat":     {"--token-mode", "chat"},
		"streamed": {"--token-mode", "chat", "--stream"},
		"ids":      {"--token-mode", "completions"},
	} {
		path, got := rollout(append(args, "--base-url", url+"/v1", "--tokenizer", model)...)
		if len(got) != len(want) {
			t.Fatalf("%s: %d rows, want %d", name, len(got), len(want))
		}
		for i, w := range want {
			g := got[i]
			if d := apart(g.Sequences, w.Sequences); d > mostApart {
				t.Errorf("%s, row %d: log-probs are up to %v apart", name, i, d)
			}
			if len(w.Sequences) != 1 || len(w.Steps) != 3 || len(w.Sequences[0].Images) != len(w.Images) || len(w.Images) < 2 {
				t.Fatalf("row %d: %d sequences, %d turns, %d images: %s", i, len(w.Sequences), len(w.Steps), len(w.Images), w.Error)
			}
			if len(g.Sequences) != 1 || !slices.Equal(g.Sequences[0].Images, w.Sequences[0].Images) {
				t.Errorf("%s, row %d: %d sequences, want one with the images %+v", name, i, len(g.Sequences), w.Sequences[0].Images)
			}
		}
		if name == "chat" {
			file = path
		}
	}
	train := func(file string) (string, int) {
		_, log, code := run(t, "train", file, "--model", model, "--algo", "sft", "--dtype", "float32", "--device", "cpu", "--force",
			"--output", filepath.Join(t.TempDir(), "out"))
		return log, code
	}
	if log, code := train(file); code != exitDone {
		t.Errorf("rows of chats are not trained on: %d: %s", code, log)
	}
	l := newLookOut(t)
	eyes := l.eyes()
	eyes.Tokens = func(w, h int) int { return l.tokens(w, h) + 1 }
	s := llmtest.NewWith(t, llmtest.Options{Eyes: eyes}, l.script)
	other, rows := rollout("--base-url", s.BaseURL(), "--model", "mock", "--tokenizer", model)
	if log, code := train(other); code != exitFailed || len(rows) != len(want) {
		t.Errorf("%d rows with other images are trained on: %d: %s", len(rows), code, log)
	}
}
