package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"agentcli/llm/llmtest"
	"agentcli/media/processor"
	"agentcli/model/chat"
	"agentcli/model/tokenizer"
	"agentcli/traj"

	"github.com/rogpeppe/go-internal/testscript"
)

// lookOut stands for a server of the model examples/look: it zooms once, and answers.
type lookOut struct {
	tok      *tokenizer.Tokenizer
	renderer chat.Renderer
	images   *processor.Processor
}

func openLookOut() (*lookOut, error) {
	tok, err := tokenizer.Open(lookModel)
	if err != nil {
		return nil, err
	}
	r, err := chat.Choose(tok.ChatTemplate(), "", tok)
	if err != nil {
		return nil, err
	}
	images, err := processor.Open(lookModel)
	return &lookOut{tok, r, images}, err
}

func newLookOut(t *testing.T) *lookOut {
	t.Helper()
	l, err := openLookOut()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// setLookOut gives scripts the model's folder, a server of chats that shows images as it does, and
// one that resizes otherwise.
func setLookOut(e *testscript.Env) error {
	l, err := openLookOut()
	if err != nil {
		return err
	}
	model, err := filepath.Abs(lookModel)
	if err != nil {
		return err
	}
	e.Setenv("LOOK_MODEL", model)
	for name, more := range map[string]int{"LOOK": 0, "LOOK_OTHER": 1} {
		eyes := l.eyes()
		eyes.Tokens = func(w, h int) int { return l.tokens(w, h) + more }
		s := llmtest.StartWith(llmtest.Options{Eyes: eyes}, l.script)
		e.Defer(s.Close)
		e.Setenv(name, s.BaseURL())
	}
	return nil
}

func (l *lookOut) id(name string) int32 { return l.tok.Encode(name, false)[0] }

// tokens are those of an image; 0 where it takes none of that size.
func (l *lookOut) tokens(w, h int) int {
	_, n, _ := l.images.Grid(w, h)
	return n
}

func (l *lookOut) sight() llmtest.Sight {
	return llmtest.Sight{Place: l.id("<|image_pad|>"), Tokens: l.tokens}
}

func (l *lookOut) eyes() *llmtest.Eyes { return &llmtest.Eyes{Sight: l.sight(), Render: l.render} }

// render makes the ids of a chat by the model's template.
func (l *lookOut) render(messages []llmtest.Message) []int32 {
	var talk []traj.Message
	for _, m := range messages {
		out := traj.Message{Role: m.Role, Content: m.Text()}
		parts, _ := m.Content.([]any)
		for _, p := range parts {
			if part := p.(map[string]any); part["type"] == "text" {
				out.Content += part["text"].(string)
			} else {
				out.Content, out.Images = out.Content+traj.ImageMark, append(out.Images, traj.Image{Width: 28, Height: 28})
			}
		}
		talk = append(talk, out)
	}
	_, ids, err := l.renderer.Render(talk, nil, chat.Options{AddGenerationPrompt: true})
	if err != nil {
		return nil
	}
	return ids
}

const lookCall = "<tool_call>\n{\"name\": \"image_zoom_in_tool\", \"arguments\": {\"bbox_2d\": [0, 0, 56, 56]}}\n</tool_call>"

// script answers chats and prompts of ids alike, by the images that they have. It takes no tools.
func (l *lookOut) script(r *llmtest.Request) llmtest.Reply {
	text := lookCall
	if len(r.Images) != 1 {
		text = "100x60"
	}
	ids := append(l.tok.EncodeOrdinary(text), l.id("<|im_end|>"))
	lps := make([]float64, len(ids))
	for i := range lps {
		lps[i] = -float64(i%97+1) / 64
	}
	reply := func(*llmtest.Request) llmtest.Reply { return llmtest.Reply{Content: text, IDs: ids, Logprobs: lps} }
	return llmtest.WithoutToolParser(reply)(r)
}

// sequencesOf are what a row has to be trained on, as JSON.
func sequencesOf(t *testing.T, row *traj.Trajectory) string {
	t.Helper()
	b, err := json.Marshal(map[string]any{"sequences": row.Sequences, "images": traj.WithoutFiles(row.Messages), "steps": len(row.Steps)})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Of one conversation with images a server of chats gives the rows that a server of ids gives.
func TestChatsWithImagesHaveTheRowsOfCompletions(t *testing.T) {
	dir := t.TempDir()
	data, _ := zoomed(t, dir)
	l := newLookOut(t)
	sight := l.sight()
	both := llmtest.NewWith(t, llmtest.Options{Completions: true, Inference: &sight, Eyes: l.eyes(), Window: 4096}, l.script)
	chats := llmtest.NewWith(t, llmtest.Options{Completions: true, Eyes: l.eyes(), Window: 4096}, l.script)
	rollout := func(s *llmtest.Server, args ...string) []*traj.Trajectory {
		file := filepath.Join(t.TempDir(), "t.parquet")
		_, log, code := run(t, append([]string{"rollout", "--base-url", s.BaseURL(), "--model", "mock", "--tokenizer", lookModel, "-d", data,
			"--reward", "exact", "-n", "2", "--ordered", "-o", file}, args...)...)
		if code != 0 {
			t.Fatalf("%v: %d: %s", args, code, log)
		}
		rows, meta := rowsOf(t, file)
		model := meta["model"].(map[string]any)
		if model["image_rule"] == nil || model["tokenizer_hash"] == nil {
			t.Errorf("%v: the file does not say how its images were prepared: %v", args, model)
		}
		return rows
	}
	want := rollout(both, "--token-mode", "completions")
	if len(want) != 4 || len(want[0].Sequences) != 1 || len(want[0].Sequences[0].Images) != 2 {
		t.Fatalf("%d rows, %+v", len(want), want[0].Sequences)
	}
	for name, x := range map[string]struct {
		s    *llmtest.Server
		args []string
	}{
		"chat":                       {both, []string{"--token-mode", "chat"}},
		"chat, streamed":             {both, []string{"--token-mode", "chat", "--stream"}},
		"no images beside ids":       {chats, []string{"--token-mode", "auto"}},
		"no images beside ids, chat": {chats, []string{"--stream"}},
	} {
		got := rollout(x.s, x.args...)
		if len(got) != len(want) {
			t.Fatalf("%s: %d rows, want %d", name, len(got), len(want))
		}
		for i := range want {
			if g, w := sequencesOf(t, got[i]), sequencesOf(t, want[i]); g != w {
				t.Errorf("%s, row %d:\n%s\nwant\n%s", name, i, g, w)
			}
		}
	}
}

// otherLook are servers of chats that show other images than the model here would be.
func (l *lookOut) otherLook() map[string]*llmtest.Eyes {
	all := map[string]*llmtest.Eyes{}
	for _, name := range []string{"another size", "crops of another size", "expanded twice", "images first", "an image less"} {
		all[name] = l.eyes()
	}
	all["another size"].Tokens = func(w, h int) int { return l.tokens(w, h) + 1 }
	all["crops of another size"].Tokens = func(w, h int) int { // than the row's image of 200 × 120 pixels
		if w < 200 {
			return l.tokens(w, h) + 1
		}
		return l.tokens(w, h)
	}
	all["expanded twice"].Twice, all["images first"].First, all["an image less"].Loses = true, true, 1
	return all
}

// Such rows are scored, and have no ids, not of a turn before either.
func TestChatsThatShowOtherImagesAreEvaluatedAndHaveNoIDs(t *testing.T) {
	dir := t.TempDir()
	data, _ := zoomed(t, dir)
	l := newLookOut(t)
	script := func(r *llmtest.Request) llmtest.Reply { // by its messages: not all images are in the prompt
		n := 0
		for _, m := range r.Messages {
			parts, _ := m.Content.([]any)
			for _, p := range parts {
				if p.(map[string]any)["type"] == "image_url" {
					n++
				}
			}
		}
		r.Images = make([]llmtest.Image, n)
		return l.script(r)
	}
	for name, eyes := range l.otherLook() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := llmtest.NewWith(t, llmtest.Options{Eyes: eyes}, script)
			with := func(args ...string) []string {
				return append(args, "--base-url", s.BaseURL(), "--model", "mock", "--tokenizer", lookModel, "-d", data, "--reward", "exact",
					"--prompt", "Look: {question} Well?")
			}
			out, log, code := run(t, with("eval", "--format", "json", "--output", filepath.Join(t.TempDir(), "eval"))...)
			var report struct {
				Metrics map[string]struct{ Value float64 }
			}
			if err := json.Unmarshal([]byte(out), &report); err != nil || code != 0 {
				t.Fatalf("%d, %v: %s", code, err, log)
			}
			if _, scored := report.Metrics["pass@1"]; !scored {
				t.Errorf("%v\n%s", report, log)
			}
			file := filepath.Join(t.TempDir(), "t.parquet")
			if _, log, code := run(t, with("rollout", "-n", "2", "--stream", "-o", file)...); code != 0 {
				t.Fatalf("%d: %s", code, log)
			}
			rows, _ := rowsOf(t, file)
			for _, row := range rows {
				if len(row.Sequences) != 0 || row.Reward == nil || len(row.Steps) != 2 || row.Steps[0].Sequence != -1 || row.Steps[0].End != 0 ||
					len(row.Images) != 2 {
					t.Errorf("%s: %d sequences, reward %v, %+v, %s", row.ID, len(row.Sequences), row.Reward, row.Steps, row.Error)
				}
			}
			if len(rows) != 4 {
				t.Errorf("%d rows", len(rows))
			}
		})
	}
}

// Without the model's folder, or with one of another kind of model, nothing is known of images.
func TestChatsWithImagesNeedTheModelsFolderForIDs(t *testing.T) {
	dir := t.TempDir()
	data, _ := zoomed(t, dir)
	l := newLookOut(t)
	s := llmtest.NewWith(t, llmtest.Options{Eyes: l.eyes()}, l.script)
	with := []string{"rollout", "--base-url", s.BaseURL(), "--model", "mock", "-d", data, "--reward", "exact", "-n", "1"}
	file := filepath.Join(dir, "t.parquet")
	if _, log, code := run(t, append(with, "-o", file)...); code != 0 {
		t.Fatalf("%d: %s", code, log)
	}
	rows, _ := rowsOf(t, file)
	if len(rows) != 2 || len(rows[0].Sequences) != 0 {
		t.Errorf("%d rows", len(rows))
	}
	if _, log, code := run(t, append(with, "--tokenizer", tinyQwen3, "-o", filepath.Join(dir, "x.parquet"))...); code == 0 ||
		!strings.Contains(log, "--tokenizer") {
		t.Errorf("a model of text alone: %d: %s", code, log)
	}
}

// A server that takes fewer images than a conversation has, or no body as long as it, is an
// error of the trajectory.
func TestChatsWithTooManyImagesAreErrorsOfTheServer(t *testing.T) {
	dir := t.TempDir()
	data, _ := zoomed(t, dir)
	l := newLookOut(t)
	few := l.eyes()
	few.Most = 1
	for name, s := range map[string]*llmtest.Server{
		"one image": llmtest.NewWith(t, llmtest.Options{Eyes: few}, l.script),
		"a short body": llmtest.NewWith(t, llmtest.Options{Eyes: l.eyes()}, func(r *llmtest.Request) llmtest.Reply {
			if len(r.Images) > 1 {
				return llmtest.Reply{Status: 413, Error: "too large"}
			}
			return l.script(r)
		}),
	} {
		_, log, code := run(t, "rollout", "--base-url", s.BaseURL(), "--model", "mock", "--tokenizer", lookModel, "-d", data, "--reward", "exact",
			"-n", "1", "--output", filepath.Join(t.TempDir(), "run"))
		if code != exitFailed {
			t.Errorf("%s: %d: %s", name, code, log)
		}
		if len(s.Requests()) > 9 {
			t.Errorf("%s: asked %d times", name, len(s.Requests()))
		}
	}
}
