package main

import (
	"bytes"
	"fmt"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentcli/llm/llmtest"
	"agentcli/media/album"
	"agentcli/media/processor"
	"agentcli/model/tokenizer"
	"agentcli/parquet"
)

// camera is a program with a tool that gives a photo of 90 × 50 pixels, and a row of text that
// asks for its size.
func camera(t *testing.T) (command, rows, photo string) {
	t.Helper()
	dir := t.TempDir()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, 90, 50))); err != nil {
		t.Fatal(err)
	}
	photo, rows = filepath.Join(dir, "photo.png"), filepath.Join(dir, "rows.jsonl")
	script := filepath.Join(dir, "camera.sh")
	for path, content := range map[string]string{
		photo: b.String(),
		rows:  `{"prompt": "How large?", "answer": "90x50"}` + "\n",
		script: `while read -r line; do
	id=$(echo "$line" | sed 's/.*"id":\([0-9][0-9]*\).*/\1/')
	case $line in
	*describe*) echo "{\"id\":$id,\"tools\":[{\"name\":\"camera\",\"description\":\"a photo\",\"images\":true}]}" ;;
	*) echo "{\"id\":$id,\"images\":[{\"path\":\"` + photo + `\"}]}" ;;
	esac
done
`} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return "exec:sh " + script, rows, photo
}

// caller calls a tool once, and answers the size of what it is shown, or the tool's text.
func caller(tool, args string) func(*llmtest.Request) llmtest.Reply {
	return func(r *llmtest.Request) llmtest.Reply {
		last := r.Messages[len(r.Messages)-1]
		if last.Role != "tool" {
			if r.Fields["tools"] == nil {
				return llmtest.Reply{Content: "a colour"} // the probe
			}
			return llmtest.Reply{Calls: []llmtest.Call{llmtest.NewCall("c", tool, args)}}
		}
		parts, shown := last.Content.([]any)
		if !shown {
			return llmtest.Reply{Content: fmt.Sprint(last.Content)}
		}
		r.Messages = append(r.Messages[:0:0], llmtest.Message{Content: append([]any{map[string]any{"type": "text", "text": "a "}},
			append(parts, map[string]any{"type": "text", "text": " b"})...)})
		return eyes(r)
	}
}

func TestAModelIsShownTheImageOfAProgramsTool(t *testing.T) {
	command, rows, photo := camera(t)
	want, err := os.ReadFile(photo)
	if err != nil {
		t.Fatal(err)
	}
	s := llmtest.New(t, caller("camera", "{}"))
	dir := filepath.Join(t.TempDir(), "run")
	args := []string{"rollout", "--base-url", s.BaseURL(), "--model", "m", "-d", rows, "--reward", "exact", "--tools", "none",
		"--tool", command, "-n", "2"}
	if _, log, code := run(t, append(args, "--output", dir)...); code != 0 {
		t.Fatalf("%d: %s", code, log)
	}
	file := filepath.Join(dir, "traj.parquet")
	r, err := parquet.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	n := 0
	for row, err := range r.Rows(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		if row.Reward == nil || *row.Reward != 1 || len(row.Images) != 1 || row.Images[0].Hash != album.Hash(want) ||
			!bytes.Equal(row.Messages[2].Images[0].Bytes, want) {
			t.Errorf("%s: reward %v, %d images, %+v", row.ID, row.Reward, len(row.Images), row.Messages)
		}
	}
	if n != 2 {
		t.Errorf("%d rows", n)
	}
	if out, _, _ := run(t, "inspect", file, "rows/0#0"); !strings.Contains(out, "[image 0: photo.png, file ") {
		t.Errorf("inspect does not name the image:\n%s", out)
	}
	// 90 × 50 pixels take 3 × 2 tokens.
	out := filepath.Join(t.TempDir(), "few.parquet")
	if _, log, code := run(t, append(args, "-o", out, "--max-image-tokens", "5")...); code != 0 {
		t.Fatalf("%d: %s", code, log)
	}
	shown, _, _ := run(t, "inspect", out, "rows/0#0")
	if !strings.Contains(shown, "takes 6 tokens, more than 5") || strings.Contains(shown, "[image") {
		t.Errorf("the bound on tokens does not hold:\n%s", shown)
	}
}

// A conversation that begins in text is asked for in ids alone, and beside an image from the
// turn on in which a tool has given one.
func TestImagesOfAToolGoBesideIDs(t *testing.T) {
	command, rows, _ := camera(t)
	folder := "../../examples/look"
	tok, err := tokenizer.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	images, err := processor.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	id := func(name string) int32 { return tok.Encode(name, false)[0] }
	sight := &llmtest.Sight{Place: id("<|image_pad|>"), Tokens: func(w, h int) int {
		_, n, _ := images.Grid(w, h)
		return n
	}}
	s := llmtest.NewWith(t, llmtest.Options{Completions: true, Inference: sight, Window: 4096}, func(r *llmtest.Request) llmtest.Reply {
		text := "<tool_call>\n{\"name\": \"camera\", \"arguments\": {}}\n</tool_call>"
		if r.Path == llmtest.Inference {
			text = "90x50"
		}
		ids := append(tok.EncodeOrdinary(text), id("<|im_end|>"))
		return llmtest.Reply{Content: text, IDs: ids, Logprobs: make([]float64, len(ids))}
	})
	file := filepath.Join(t.TempDir(), "t.parquet")
	if _, log, code := run(t, "rollout", "--base-url", s.BaseURL(), "--model", "mock", "--tokenizer", folder, "-d", rows, "--reward", "exact",
		"--token-mode", "completions", "--tools", "none", "--tool", command, "-n", "2", "-o", file); code != 0 {
		t.Fatalf("%d: %s", code, log)
	}
	r, err := parquet.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	n := 0
	for row, err := range r.Rows(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		if row.Reward == nil || *row.Reward != 1 || len(row.Sequences) != 1 || len(row.Sequences[0].Images) != 1 ||
			row.Sequences[0].Images[0].Tokens != sight.Tokens(90, 50) {
			t.Errorf("%s: reward %v, %+v, %s", row.ID, row.Reward, row.Sequences, row.Error)
		}
	}
	if n != 2 {
		t.Errorf("%d rows", n)
	}
}

func TestAResumedRunHasTheImagesOfToolsOfWhatItFinished(t *testing.T) {
	command, rows, photo := camera(t)
	calls := caller("camera", "{}")
	broken := true
	s := llmtest.New(t, func(r *llmtest.Request) llmtest.Reply {
		if broken && r.N > 8 {
			return llmtest.Reply{Status: 400, Error: "bad day"}
		}
		return calls(r)
	})
	dir := filepath.Join(t.TempDir(), "run")
	_, log, code := run(t, "rollout", "--base-url", s.BaseURL(), "--model", "m", "-d", rows, "--reward", "exact", "--tools", "none",
		"--tool", command, "-n", "6", "--parallel", "1", "--output", dir)
	if code != 3 {
		t.Fatalf("%d: %s", code, log)
	}
	broken = false
	if err := os.Remove(photo); err != nil {
		t.Fatal(err)
	}
	if _, log, code := run(t, "rollout", "--resume", dir); code != 0 {
		t.Fatalf("%d: %s", code, log)
	}
	r, err := parquet.Open(filepath.Join(dir, "traj.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var before, after int // trajectories with the photo, and those that came too late for it
	for row, err := range r.Rows(t.Context()) {
		switch {
		case err != nil:
			t.Fatal(err)
		case len(row.Images) == 1 && row.Messages[2].Images[0].Bytes != nil:
			before++
		case strings.HasPrefix(row.Messages[2].Content, "error: "):
			after++
		}
	}
	if before < 2 || after < 2 || before+after != 6 {
		t.Errorf("%d trajectories have the photo, %d have an error", before, after)
	}
}

func TestAModelWithoutEyesIsGivenAWordForTheImageOfATool(t *testing.T) {
	command, rows, _ := camera(t)
	s := llmtest.New(t, func(r *llmtest.Request) llmtest.Reply {
		for _, m := range r.Messages {
			if _, isText := m.Content.(string); m.Content != nil && !isText {
				return llmtest.Reply{Status: 400, Error: "m is not a multimodal model"}
			}
		}
		return caller("camera", "{}")(r)
	})
	out := filepath.Join(t.TempDir(), "a.parquet")
	_, log, code := run(t, "rollout", "--base-url", s.BaseURL(), "--model", "m", "-d", rows, "--reward", "exact", "--tools", "none",
		"--tool", command, "-n", "2", "-o", out)
	if code != 0 || strings.Count(log, "descriptions of images") != 1 {
		t.Errorf("%d: %s", code, log)
	}
	shown, _, _ := run(t, "inspect", out, "rows/0#1")
	if !strings.Contains(shown, "[an image, photo.png]") || !strings.Contains(shown, "ended: answered") {
		t.Errorf("no description:\n%s", shown)
	}
}

func TestAnAgentTurnsAnImageOfItsRow(t *testing.T) {
	dir := t.TempDir()
	rows, _ := zoomed(t, dir) // 200 × 120 pixels
	s := llmtest.New(t, caller("image_rotate_tool", `{"angle": 90}`))
	out := filepath.Join(dir, "run")
	args := []string{"rollout", "--base-url", s.BaseURL(), "--model", "m", "-d", rows, "--reward", "exact", "--env", "tool",
		"--tools", "image_rotate_tool,image_zoom_in_tool", "-n", "1"}
	if _, log, code := run(t, append(args, "--output", out)...); code != 0 {
		t.Fatalf("%d: %s", code, log)
	}
	r, err := parquet.Open(filepath.Join(out, "traj.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for row, err := range r.Rows(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if len(row.Images) != 2 || row.Images[1].Width != 120 || row.Images[1].Height != 200 || row.Images[1].Crop != nil {
			t.Fatalf("%s: %d images, %+v", row.ID, len(row.Images), row.Messages)
		}
		turned := row.Messages[2].Images[0]
		if pixels, err := album.Pixels(&turned); err != nil || pixels.Width != 120 || album.Hash(turned.Bytes) != turned.Hash {
			t.Errorf("the turned image is not in the file: %v", err)
		}
		if last := row.Messages[len(row.Messages)-1]; last.Content != "120x200" {
			t.Errorf("the model was shown %q", last.Content)
		}
	}
	page, log, code := run(t, "inspect", filepath.Join(out, "traj.parquet"), "--html")
	if code != 0 || strings.Count(page, "data:image/png") < 2 {
		t.Errorf("%d: %s, the page has not both files", code, log)
	}
	if _, log, code := run(t, append(args, "-o", filepath.Join(dir, "b.parquet"), "--tool-cache", filepath.Join(dir, "cache"),
		"--tool-cache-also", "image_rotate_tool")...); code != 2 {
		t.Errorf("results that depend on the conversation are cached: %d: %s", code, log)
	}
}
