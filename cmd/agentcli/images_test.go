package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentcli/llm/llmtest"
	"agentcli/media"
	"agentcli/media/album"
	"agentcli/media/processor"
	"agentcli/model/tokenizer"
	"agentcli/parquet"
	"agentcli/traj"
)

// pictured is a folder with rows whose answers are the sizes of their images, in order.
func pictured(t *testing.T, rows int) (file string) {
	t.Helper()
	dir := t.TempDir()
	var lines bytes.Buffer
	for i := range rows {
		var names, sizes []string
		for k := range 1 + i%2 {
			w, h := 30+10*i, 40+k
			name := fmt.Sprintf("%d-%d.png", i, k)
			var b bytes.Buffer
			if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, w, h))); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			names, sizes = append(names, name), append(sizes, fmt.Sprintf("%dx%d", w, h))
		}
		row, err := json.Marshal(map[string]any{"prompt": "a" + strings.Repeat(" <image>", len(names)) + " b", "images": names,
			"answer": strings.Join(sizes, " ")})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&lines, "%s\n", row)
	}
	file = filepath.Join(dir, "rows.jsonl")
	if err := os.WriteFile(file, lines.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// eyes answers with the sizes of the images of a message whose text stands around them.
func eyes(r *llmtest.Request) llmtest.Reply {
	parts, _ := r.Messages[len(r.Messages)-1].Content.([]any)
	var sizes []string
	order := ""
	for _, p := range parts {
		part := p.(map[string]any)
		if part["type"] == "text" {
			order += part["text"].(string)
			continue
		}
		order += "[]"
		uri := part["image_url"].(map[string]any)["url"].(string)
		file, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(uri, "data:image/png;base64,"))
		m, derr := media.Decode(file, media.Limits{})
		if err != nil || derr != nil {
			return llmtest.Reply{Status: 400, Error: "no image"}
		}
		sizes = append(sizes, fmt.Sprintf("%dx%d", m.Width, m.Height))
	}
	if !strings.HasPrefix(order, "[]Name any") && order != "a"+strings.Repeat(" []", len(sizes))+" b" {
		return llmtest.Reply{Content: "another order: " + order}
	}
	return llmtest.Reply{Content: strings.Join(sizes, " ")}
}

// blind refuses images, as a server does whose model reads text alone.
func blind(r *llmtest.Request) llmtest.Reply {
	if _, isText := r.Messages[len(r.Messages)-1].Content.(string); !isText {
		return llmtest.Reply{Status: 400, Error: "m is not a multimodal model"}
	}
	return llmtest.Reply{Content: "seen nothing"}
}

func TestAModelBehindAServerSeesTheImagesOfRows(t *testing.T) {
	rows := pictured(t, 6)
	s := llmtest.New(t, eyes)
	with := func(args ...string) []string {
		return append(args, "--base-url", s.BaseURL(), "--model", "m", "-d", rows, "--reward", "exact", "--tools", "none")
	}
	out, log, code := run(t, with("eval", "--pass-k", "1", "--format", "json", "--output", filepath.Join(t.TempDir(), "eval"))...)
	var report struct {
		Metrics map[string]struct{ Value float64 }
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 0 || report.Metrics["pass@1"].Value != 1 {
		t.Fatalf("%d, %v\n%s\n%s", code, err, out, log)
	}

	dir := filepath.Join(t.TempDir(), "run")
	if _, log, code := run(t, with("rollout", "-n", "4", "--output", dir)...); code != 0 {
		t.Fatalf("%d: %s", code, log)
	}
	file := filepath.Join(dir, "traj.parquet")
	seen := imagesOf(t, file)
	if len(seen) != 24 {
		t.Errorf("%d rows", len(seen))
	}
	kept := filepath.Join(t.TempDir(), "kept.parquet")
	if _, log, code := run(t, "filter", file, "--min-reward", "1", "-o", kept); code != 0 {
		t.Fatalf("%d: %s", code, log)
	}
	if after := imagesOf(t, kept); fmt.Sprint(after) != fmt.Sprint(seen) {
		t.Errorf("filter changed the images: %v, were %v", after, seen)
	}
	if out, _, code := run(t, "datasets", "show", rows); code != 0 || strings.Contains(out, "bytes") || !strings.Contains(out, "1-0.png") {
		t.Errorf("datasets show shows files, or no images: %d, %.300s", code, out)
	}
	out, _, _ = run(t, "inspect", kept, "rows/1#0")
	if !strings.Contains(out, "1-0.png") || !strings.Contains(out, "40 × 41 pixels") {
		t.Errorf("inspect does not name the images:\n%s", out)
	}
}

// imagesOf are the hashes of the images of each row, which must have their bytes and places.
func imagesOf(t *testing.T, path string) map[string][]string {
	t.Helper()
	r, err := parquet.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	all := map[string][]string{}
	for row, err := range r.Rows(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if row.Reward == nil || *row.Reward != 1 {
			t.Errorf("%s: reward %v (%s)", row.ID, row.Reward, row.Error)
		}
		m := row.Messages[0]
		if m.Content != "a"+strings.Repeat(" "+traj.ImageMark, len(m.Images))+" b" {
			t.Errorf("%s: %q", row.ID, m.Content)
		}
		for _, im := range m.Images {
			if im.Bytes == nil || im.Width < 30 {
				t.Errorf("%s: %d bytes, %d pixels wide", row.ID, len(im.Bytes), im.Width)
			}
			all[row.ID] = append(all[row.ID], im.Hash)
		}
	}
	return all
}

func TestAResumedRunHasTheImagesOfWhatItFinished(t *testing.T) {
	rows := pictured(t, 6)
	broken := true
	s := llmtest.New(t, func(r *llmtest.Request) llmtest.Reply {
		if broken && r.N > 6 {
			return llmtest.Reply{Status: 400, Error: "bad day"}
		}
		return eyes(r)
	})
	dir := filepath.Join(t.TempDir(), "run")
	_, log, code := run(t, "rollout", "--base-url", s.BaseURL(), "--model", "m", "-d", rows, "--reward", "exact", "--tools", "none",
		"-n", "2", "--parallel", "1", "--output", dir)
	if code != 3 {
		t.Fatalf("%d: %s", code, log)
	}
	broken = false
	if _, log, code := run(t, "rollout", "--resume", dir); code != 0 {
		t.Fatalf("%d: %s", code, log)
	}
	if seen := imagesOf(t, filepath.Join(dir, "traj.parquet")); len(seen) != 12 {
		t.Errorf("%d rows", len(seen))
	}
}

func TestAModelWithoutEyesIsToldBeforeTheRun(t *testing.T) {
	rows := pictured(t, 2)
	s := llmtest.New(t, blind)
	args := []string{"rollout", "--base-url", s.BaseURL(), "--model", "m", "-d", rows, "--reward", "exact", "--tools", "none", "-n", "1",
		"-o", filepath.Join(t.TempDir(), "a.parquet")}
	if _, log, code := run(t, args...); code != 2 || !strings.Contains(log, "--field images=") || len(s.Requests()) > 2 {
		t.Errorf("%d after %d requests: %s", code, len(s.Requests()), log)
	}
	if _, log, code := run(t, append(args, "--field", "images=")...); code != 0 {
		t.Errorf("without images: %d: %s", code, log)
	}
	_, log, code := run(t, "rollout", "--model", "nowhere", "-d", rows, "-o", filepath.Join(t.TempDir(), "b.parquet"))
	if code == 0 {
		t.Errorf("a local model sees images: %s", log)
	}
}

// detective zooms into a quarter of the first image, and says how large what it was shown is.
func detective(r *llmtest.Request) llmtest.Reply {
	last := r.Messages[len(r.Messages)-1]
	if last.Role != "tool" {
		if parts, _ := last.Content.([]any); len(parts) == 2 && r.Fields["tools"] == nil {
			return llmtest.Reply{Content: "a colour"} // the probe
		}
		return llmtest.Reply{Calls: []llmtest.Call{llmtest.NewCall("c", "image_zoom_in_tool", `{"bbox_2d": [500, 500, 1000, 1000]}`)}}
	}
	r.Messages = append(r.Messages[:0:0], llmtest.Message{Content: append([]any{map[string]any{"type": "text", "text": "a "}},
		append(last.Content.([]any), map[string]any{"type": "text", "text": " b"})...)})
	return eyes(r)
}

// zoomed are two rows whose images are zoomed into in other environments.
func zoomed(t *testing.T, dir string) (file, row string) {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, 200, 120))); err != nil {
		t.Fatal(err)
	}
	row = `{"prompt": "<image>?", "image": {"bytes": "` + base64.StdEncoding.EncodeToString(b.Bytes()) + `"}, "answer": "100x60", ` +
		`"env_name": "visual_toolbox_v2"}`
	file = filepath.Join(dir, "rows.jsonl")
	if err := os.WriteFile(file, []byte(row+"\n"+strings.Replace(row, "visual_toolbox_v2", "deepeyes", 1)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, row
}

func TestImagesInAFolderGoOnToFilterScoreAndInspect(t *testing.T) {
	dir := t.TempDir()
	rows, _ := zoomed(t, dir)
	s := llmtest.New(t, detective)
	file, kept := filepath.Join(dir, "t.parquet"), filepath.Join(dir, "kept", "k.parquet")
	with := []string{"rollout", "--base-url", s.BaseURL(), "--model", "m", "-d", rows, "--reward", "exact", "--bbox-space", "1000", "-n", "3",
		"--images", "folder"}
	if _, log, code := run(t, append(with, "-o", file)...); code != 0 {
		t.Fatalf("%d: %s", code, log)
	}
	names, err := os.ReadDir(filepath.Join(dir, "t.images"))
	if err != nil || len(names) != 1 || filepath.Ext(names[0].Name()) != ".png" {
		t.Errorf("%v, %v", names, err)
	}
	if err := os.Mkdir(filepath.Dir(kept), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, log, code := run(t, "filter", file, "--min-reward", "1", "-o", kept); code != 0 {
		t.Fatalf("%d: %s", code, log)
	}
	page, _, _ := run(t, "inspect", file, "--html")
	if err := os.RemoveAll(filepath.Join(dir, "t.images")); err != nil {
		t.Fatal(err)
	}
	if _, log, code := run(t, "inspect", file, "rows/0#0"); code == 0 || !strings.Contains(log, "t.images/") {
		t.Errorf("a folder that is gone: %d, %s", code, log)
	}
	r, err := parquet.Open(kept)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	n := 0
	for row, err := range r.Rows(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if m, err := album.Pixels(&row.Messages[len(row.Messages)-2].Images[0]); err != nil || m.Width != 100 {
			t.Errorf("the crop of %s: %v", row.ID, err)
		}
		n++
	}
	if !strings.Contains(page, "data:image/png;base64,") || n != 6 {
		t.Errorf("%d rows, the page has no image", n)
	}
	if _, log, code := run(t, with...); code != 2 {
		t.Errorf("on stdout: %d, %s", code, log)
	}
}

// A server that takes ids and images makes rows with exact ids: the crop's tokens are in the
// second prompt, behind the first reply.
func TestImagesBesideIDsAreKeptToTheToken(t *testing.T) {
	dir := t.TempDir()
	rows, _ := zoomed(t, dir)
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
	end, pad := id("<|im_end|>"), id("<|image_pad|>")
	size := func(w, h int) int {
		_, n, err := images.Grid(w, h)
		if err != nil {
			t.Error(err)
		}
		return n
	}
	call := "<tool_call>\n{\"name\": \"image_zoom_in_tool\", \"arguments\": {\"bbox_2d\": [0, 0, 56, 56]}}\n</tool_call>"
	sight := &llmtest.Sight{Place: pad, Tokens: size}
	s := llmtest.NewWith(t, llmtest.Options{Completions: true, Inference: sight, Window: 4096}, func(r *llmtest.Request) llmtest.Reply {
		text := call
		if r.Path != llmtest.Inference || len(r.Images) == 2 {
			text = "rising"
		}
		ids := append(tok.EncodeOrdinary(text), end)
		return llmtest.Reply{Content: text, IDs: ids, Logprobs: make([]float64, len(ids))}
	})
	file := filepath.Join(dir, "t.parquet")
	with := []string{"rollout", "--base-url", s.BaseURL(), "--model", "mock", "--tokenizer", folder, "-d", rows, "--reward", "exact",
		"--token-mode", "completions", "-n", "2"}
	if _, log, code := run(t, append(with, "-o", file)...); code != 0 {
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
		if len(row.Sequences) != 1 || len(row.Images) != 2 || len(row.Steps) != 2 {
			t.Fatalf("%s: %d sequences, %d images, %d steps, %s", row.ID, len(row.Sequences), len(row.Images), len(row.Steps), row.Error)
		}
		seq := &row.Sequences[0]
		if len(seq.Images) != 2 || seq.Validate() != nil {
			t.Fatalf("%+v", seq.Images)
		}
		for k, span := range seq.Images {
			im := &row.Images[span.Image]
			if span.Image != k || span.Tokens != size(im.Width, im.Height) || seq.TokenIDs[span.Start] != pad || seq.LossMask[span.Start] {
				t.Errorf("image %d: %+v", k, span)
			}
		}
	}
	if n != 4 || !strings.Contains(string(r.Metadata().Run), "\"image_rule\"") ||
		!strings.Contains(string(r.Metadata().Run), "\"barred_ids\"") {
		t.Errorf("%d rows of %s", n, r.Metadata().Run)
	}

	sight.Tokens = func(w, h int) int { return size(w, h) + 1 } // another rule of resizing
	other := append(with, "-o", filepath.Join(dir, "other.parquet"))
	if _, log, code := run(t, other...); code == 0 || !strings.Contains(log, "--min-pixels") {
		t.Errorf("%d: %s", code, log)
	}
}

// What a reward is told of images is what it was told when they were shown.
func TestScoreReadsTrajectoriesWithImages(t *testing.T) {
	dir := t.TempDir()
	rows, _ := zoomed(t, dir)
	s := llmtest.New(t, func(r *llmtest.Request) llmtest.Reply {
		reply := detective(r)
		if reply.Content != "" {
			reply.Content = "<think>Small.</think><answer>" + reply.Content + "</answer>"
		}
		return reply
	})
	file := filepath.Join(dir, "t.parquet")
	with := []string{"rollout", "--base-url", s.BaseURL(), "--model", "m", "-d", rows, "--bbox-space", "1000", "-n", "1"}
	if _, log, code := run(t, append(with, "--reward", "deepeyes", "-o", file)...); code != 0 {
		t.Fatalf("%d: %s", code, log)
	}
	r, err := parquet.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	before := map[string]float64{}
	for row, err := range r.Rows(t.Context()) {
		if err != nil || row.Reward == nil {
			t.Fatal(err, row)
		}
		before[row.ID] = *row.Reward
	}
	scores := func(path string) map[string]float64 {
		out, log, code := run(t, "score", path, "--reward", "deepeyes")
		if code != 0 {
			t.Fatalf("%d: %s", code, log)
		}
		if err := os.WriteFile(filepath.Join(dir, "scored.jsonl"), []byte(out), 0o600); err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for line := range strings.Lines(out) {
			var row struct {
				ID     string
				Reward float64
			}
			if err := json.Unmarshal([]byte(line), &row); err != nil {
				t.Fatal(err)
			}
			got[row.ID] = row.Reward
		}
		return got
	}
	if got := scores(file); fmt.Sprint(got) != fmt.Sprint(before) || len(got) != 2 || got["rows/0#0"] < 1 {
		t.Errorf("scored again: %v, were %v", got, before)
	}
	if got := scores(filepath.Join(dir, "scored.jsonl")); fmt.Sprint(got) != fmt.Sprint(before) {
		t.Errorf("JSON rows scored again: %v, were %v", got, before)
	}
}

func TestLooksAreCountedInTheReportTheTraceAndTheProgress(t *testing.T) {
	dir := t.TempDir()
	rows, _ := zoomed(t, dir)
	s := llmtest.New(t, detective)
	out, log, code := run(t, "eval", "--base-url", s.BaseURL(), "--model", "m", "-d", rows, "--reward", "exact", "--bbox-space", "1000",
		"-n", "1", "--format", "json", "--trace", "rows/0#0", "--log-format", "json", "--output", filepath.Join(dir, "eval"))
	var report struct {
		Looks map[string]struct{ Value float64 } `json:"looks"`
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 0 {
		t.Fatalf("%d, %v\n%s\n%s", code, err, out, log)
	}
	for name, want := range map[string]float64{"share": 1, "per_trajectory": 1, "width": 100, "height": 60, "refused_calls": 0,
		"accuracy_with": 1} {
		if got, there := report.Looks[name]; !there || got.Value != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if !strings.Contains(log, `"event":"image","image":0,"width":200,"height":120,`) ||
		!strings.Contains(log, `"event":"image","image":1,"width":100,"height":60,`) || !strings.Contains(log, `"box":[100,60,200,120]`) {
		t.Errorf("the trace does not name the images:\n%s", log)
	}
	if !strings.Contains(log, `"images":4,"image_tokens":`) {
		t.Errorf("the progress does not count images:\n%s", log)
	}
}

func TestAnAgentZoomsIntoAnImageOfItsRow(t *testing.T) {
	dir := t.TempDir()
	rows, row := zoomed(t, dir)
	s := llmtest.New(t, detective)
	file := filepath.Join(dir, "run", "traj.parquet")
	if _, log, code := run(t, "rollout", "--base-url", s.BaseURL(), "--model", "m", "-d", rows, "--reward", "exact", "--bbox-space", "1000",
		"-n", "3", "--output", filepath.Dir(file)); code != 0 {
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
		if row.Reward == nil || *row.Reward != 1 || len(row.Images) != 2 || len(row.Messages) != 5 {
			t.Fatalf("%s: reward %v, %d images, %+v", row.ID, row.Reward, len(row.Images), row.Messages)
		}
		crop := &row.Messages[len(row.Messages)-2].Images[0]
		if crop.Crop == nil || crop.Crop.Box != [4]int{100, 60, 200, 120} || crop.Crop.Source != row.Images[0].Hash {
			t.Errorf("%+v", crop.Crop)
		}
		if m, err := album.Pixels(crop); err != nil || m.Width != 100 || m.Height != 60 {
			t.Errorf("the crop is not there any more: %v", err)
		}
	}
	if n != 6 {
		t.Errorf("%d rows", n)
	}
	out, _, _ := run(t, "inspect", file, "rows/0#0")
	if !strings.Contains(out, "crop [100 60 200 120] of image 0, 100 × 60 pixels") {
		t.Errorf("inspect does not name the crop:\n%s", out)
	}
	plain := filepath.Join(dir, "plain.jsonl") // whose rows name no environment
	if err := os.WriteFile(plain, []byte(strings.Replace(row, `, "env_name": "visual_toolbox_v2"`, "", 1)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	looked := filepath.Join(dir, "looked.parquet")
	if _, log, code := run(t, "rollout", "--base-url", s.BaseURL(), "--model", "m", "-d", plain, "--reward", "exact", "--bbox-space", "1000",
		"--scheduler", "deepeyes", "-n", "1", "-o", looked); code != 0 {
		t.Fatalf("%d: %s", code, log)
	}
	if out, _, _ := run(t, "inspect", looked, "plain/0#0"); !strings.Contains(out, "crop [100 60 200 120] of image 0") {
		t.Errorf("the scheduler deepeyes does not look:\n%s", out)
	}
	if out, _, _ := run(t, "inspect", looked, "plain/0#0", "--draw", "kitty"); strings.Count(out, "\x1b_Ga=T") != 2 {
		t.Errorf("kitty is not given the image and the crop:\n%q", out)
	}
	if out, _, _ := run(t, "inspect", looked, "plain/0#0"); strings.Contains(out, "\x1b") {
		t.Errorf("what is no terminal is given images:\n%q", out)
	}
	if _, _, code := run(t, "inspect", looked, "plain/0#0", "--draw", "crayon"); code != 2 {
		t.Errorf("%d", code)
	}
	if page, log, code := run(t, "inspect", looked, "--html"); code != 0 || !strings.Contains(page, `x="100" y="60" width="100" height="60"`) {
		t.Errorf("%d: %s, the page has no box", code, log)
	}
	if _, log, code := run(t, "rollout", "--base-url", s.BaseURL(), "--model", "m", "-d", rows, "--reward", "exact", "--bbox-space", "feet",
		"-n", "1", "-o", filepath.Join(dir, "x.parquet")); code != 2 {
		t.Errorf("%d: %s", code, log)
	}
}
