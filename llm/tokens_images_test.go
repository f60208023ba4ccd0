package llm

import (
	"bytes"
	"errors"
	"image"
	"image/png"
	"net/http"
	"slices"
	"testing"

	"agentcli/llm/llmtest"
	"agentcli/media"
	"agentcli/media/album"
	"agentcli/traj"

	"github.com/google/go-cmp/cmp"
)

const place = 7

func pictureOf(t *testing.T, w, h int) traj.Image {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, w, h))); err != nil {
		t.Fatal(err)
	}
	im, err := album.Open(b.Bytes(), "", media.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return im
}

// squares are the tokens of an image at 28 pixels a side.
func squares(w, h int) int { return w / 28 * (h / 28) }

// withImages is a conversation with two images and a crop of the second, as ids and spans.
func withImages(t *testing.T) (prompt []int32, images []traj.Image, spans []traj.ImageSpan) {
	t.Helper()
	images = []traj.Image{pictureOf(t, 56, 28), pictureOf(t, 224, 224)}
	crop, err := album.Crop(t.Context(), &images[1], [4]int{0, 0, 84, 28})
	if err != nil {
		t.Fatal(err)
	}
	images = append(images, crop)
	prompt = []int32{1}
	for i, im := range images {
		n := squares(im.Width, im.Height)
		spans = append(spans, traj.ImageSpan{Image: i, Start: len(prompt), Tokens: n, Grid: [3]int{1, 2, 2 * n}})
		prompt = append(append(prompt, slices.Repeat([]int32{place}, n)...), int32(10+i))
	}
	return prompt, images, spans
}

func TestImagesBesideIDsAreExpandedOnceByTheServer(t *testing.T) {
	prompt, images, spans := withImages(t)
	script := func(*llmtest.Request) llmtest.Reply {
		return llmtest.Reply{IDs: []int32{5, 9}, Logprobs: []float64{-1, -2}}
	}
	s := llmtest.NewWith(t, llmtest.Options{Inference: &llmtest.Sight{Place: place, Tokens: squares}}, script)
	tok := &Tokens{Client: newRig(t, s.BaseURL(), func(c *Config) { c.Stream = true }).Client, Stops: []int32{9}}
	SetFacts(tok.Client, ModelFacts{Barred: []int32{7}})
	cool := .5
	got, err := tok.SampleImages(t.Context(), prompt, images, spans,
		traj.Sampling{Temperature: &cool, TopK: -1, MaxTokens: 20, Stop: []string{"##"}, Neutral: true}, 11)
	if err != nil {
		t.Fatal(err)
	}
	want := &traj.Completion{IDs: []int32{5, 9}, Logprobs: []traj.Logprob{-1, -2}, FinishReason: "stop", Ended: true}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	q := s.Requests()[0]
	if d := cmp.Diff(prompt, q.Prompt); d != "" {
		t.Errorf("the server used another prompt: %s", d)
	}
	if len(q.Images) != 3 || q.Images[2].Width != 84 || q.Images[2].Tokens != 3 {
		t.Errorf("%+v", q.Images)
	}
	for field, want := range map[string]string{"token_ids": "[1,7,10,7,11,7,12]", "temperature": "0.5", "top_k": "-1", "max_tokens": "20",
		"stop": `["##"]`, "stop_token_ids": "[9]", "seed": "11", "logprobs": "0", "logit_bias": `{"7":-100}`, "skip_special_tokens": "false",
		"return_token_ids": "true"} {
		if string(q.Fields[field]) != want {
			t.Errorf("%s is %s, want %s", field, q.Fields[field], want)
		}
	}
	if q.Has("stream") || q.Header.Get("Authorization") != "Bearer sk-secret" {
		t.Errorf("%v", q.Header)
	}
}

// The ids of images are kept from being drawn beside text and messages too; a server without that field is asked without it.
func TestIDsOfImagesAreNotDrawnByServers(t *testing.T) {
	for _, sglang := range []bool{false, true} {
		refuses := false
		s := llmtest.NewWith(t, llmtest.Options{Completions: true, SGLang: sglang}, func(r *llmtest.Request) llmtest.Reply {
			if refuses && r.Has("logit_bias") {
				return llmtest.Reply{Status: 400, Error: "logit_bias is not supported"}
			}
			return llmtest.Reply{Content: "hi", PromptIDs: []int32{3}, IDs: []int32{5, 9}, Stop: 9}
		})
		for _, refuses = range []bool{false, true} {
			r := newRig(t, s.BaseURL(), nil)
			SetFacts(r.Client, ModelFacts{Barred: []int32{7, 8}})
			from := len(s.Requests())
			if _, err := r.Generate(t.Context(), ask()); err != nil {
				t.Fatal(err)
			}
			tok := &Tokens{Client: r.Client, SGLang: sglang, Stops: []int32{9}}
			if _, err := tok.Sample(t.Context(), []int32{3}, traj.Sampling{MaxTokens: 4}, 1); err != nil {
				t.Fatal(err)
			}
			for _, q := range s.Requests()[from:] {
				if bias := string(q.Fields["logit_bias"]); !refuses && bias != `{"7":-100,"8":-100}` {
					t.Errorf("%s: logit_bias is %s", q.Path, bias)
				}
			}
			if all := s.Requests(); refuses && (all[len(all)-1].Has("logit_bias") || len(r.notices) != 1) {
				t.Errorf("it is asked with the field that it refuses, or %d words about it are said", len(r.notices))
			}
		}
	}
}

// What a server does otherwise ends the run: its replies belong to another prompt.
func TestAServerThatSeesOtherImagesEndsTheRun(t *testing.T) {
	prompt, images, spans := withImages(t)
	reply := llmtest.Reply{IDs: []int32{5, 9}, Logprobs: []float64{-1, -2}}
	silent := `{"choices":[{"index":0,"finish_reason":"stop","token_ids":[5,9]}]}`
	twice := `{"prompt_token_ids":[1,7,7,7,10],"choices":[{"index":0,"finish_reason":"stop","token_ids":[5,9]}]}`
	for name, tc := range map[string]struct {
		sight llmtest.Sight
		reply llmtest.Reply
		want  error
	}{
		"another size":         {llmtest.Sight{Place: place, Tokens: func(w, h int) int { return 2 * squares(w, h) }}, reply, ErrOtherImageSize},
		"the prompt unsaid":    {llmtest.Sight{Place: place, Tokens: squares}, llmtest.Reply{Raw: &silent}, errNoIDs},
		"another prompt":       {llmtest.Sight{Place: place, Tokens: squares}, llmtest.Reply{Raw: &twice}, errOtherPrompt},
		"a limit of one image": {llmtest.Sight{Place: place, Tokens: squares, Most: 1}, reply, nil},
		"another place":        {llmtest.Sight{Place: 8, Tokens: squares}, reply, nil},
		"too large a body": {llmtest.Sight{Place: place, Tokens: squares},
			llmtest.Reply{Status: http.StatusRequestEntityTooLarge, Error: "too large"}, nil},
	} {
		s := llmtest.NewWith(t, llmtest.Options{Inference: &tc.sight}, func(*llmtest.Request) llmtest.Reply { return tc.reply })
		tok := &Tokens{Client: newRig(t, s.BaseURL(), nil).Client}
		_, err := tok.SampleImages(t.Context(), prompt, images, spans, traj.Sampling{MaxTokens: 20}, 1)
		if err == nil || tc.want != nil && (!errors.Is(err, tc.want) || !errors.Is(err, traj.ErrFatal)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := llmtest.New(t, func(*llmtest.Request) llmtest.Reply { return reply }) // no such address
	tok := &Tokens{Client: newRig(t, s.BaseURL(), nil).Client}
	if err := tok.ProbeImages(t.Context(), prompt, images, spans); err == nil {
		t.Error("a server without the address takes images")
	}
}

// The stand-in is as bad as the real thing: ids that are expanded already are expanded again.
func TestTheStandInExpandsTwiceAsVLLMDoes(t *testing.T) {
	_, images, _ := withImages(t)
	s := llmtest.NewWith(t, llmtest.Options{Inference: &llmtest.Sight{Place: place, Tokens: squares}},
		func(*llmtest.Request) llmtest.Reply { return llmtest.Reply{IDs: []int32{9}} })
	tok := &Tokens{Client: newRig(t, s.BaseURL(), nil).Client}
	expanded := slices.Repeat([]int32{place}, 64)
	// Spans that say of one token what are 64: what a client that knows nothing of it sends.
	_, err := tok.SampleImages(t.Context(), expanded, images[1:2], []traj.ImageSpan{{Tokens: 1}}, traj.Sampling{MaxTokens: 20}, 1)
	if !errors.Is(err, ErrOtherImageSize) || len(s.Requests()[0].Prompt) != 127 {
		t.Errorf("%d ids, %v", len(s.Requests()[0].Prompt), err)
	}
}
