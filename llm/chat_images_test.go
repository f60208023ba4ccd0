package llm

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"agentcli/llm/llmtest"
	"agentcli/media/album"
	"agentcli/traj"

	"github.com/google/go-cmp/cmp"
)

// The ids of a model whose other tokens are bytes.
const (
	imageStart = 300 + iota
	imagePad
	imageEnd
	turnBegin
	turnEnd
)

// written makes ids of a text in which nothing is special.
func written(text string) (ids []int32) {
	for _, b := range []byte(text) {
		ids = append(ids, int32(b))
	}
	return ids
}

// rendered are the ids of a conversation's prompt, with one id for an image. A reply's text stands
// there as the model drew it.
func rendered(messages []llmtest.Message) (ids []int32) {
	for _, m := range messages {
		ids = append(append(ids, turnBegin), written(m.Role+"\n")...)
		parts, ok := m.Content.([]any)
		if !ok {
			parts = []any{map[string]any{"type": "text", "text": m.Text()}}
		}
		for _, p := range parts {
			if part := p.(map[string]any); part["type"] == "text" {
				ids = append(ids, written(part["text"].(string))...)
			} else {
				ids = append(ids, imageStart, imagePad, imageEnd)
			}
		}
		ids = append(ids, turnEnd)
	}
	return append(append(ids, turnBegin), written("assistant\n")...)
}

// byteImages are the places of images in such prompts.
func byteImages() *ImagePlaces {
	return &ImagePlaces{Start: imageStart, Token: imagePad, End: imageEnd, Ordinary: written,
		Grid: func(w, h int) ([3]int, int, error) { return [3]int{1, h / 14, w / 14}, squares(w, h), nil },
		Words: func(ids []int32) (s string) {
			var b []byte
			for _, id := range ids {
				if id < 256 {
					b = append(b, byte(id))
				} else {
					b = fmt.Appendf(b, "<%d>", id)
				}
			}
			return string(b)
		}}
}

// looking is a conversation of two turns: two images and a question, then a crop.
func looking(t *testing.T) (first, then []traj.Message) {
	t.Helper()
	a, b := pictureOf(t, 56, 28), pictureOf(t, 224, 224)
	crop, err := album.Crop(t.Context(), &b, [4]int{0, 0, 84, 28})
	if err != nil {
		t.Fatal(err)
	}
	first = []traj.Message{{Role: traj.RoleSystem, Content: "see"},
		{Role: traj.RoleUser, Content: "Is\n" + traj.ImageMark + " like " + traj.ImageMark + "?", Images: []traj.Image{a, b}}}
	then = []traj.Message{{Role: traj.RoleAssistant, Content: "look"},
		{Role: traj.RoleUser, Content: "here: " + traj.ImageMark, Images: []traj.Image{crop}}}
	return first, then
}

// turn is a request that goes on from a reply.
func turn(messages []traj.Message, before *traj.Response) *traj.Request {
	req := &traj.Request{Messages: messages, Sampling: traj.Sampling{MaxTokens: 9}, Seed: 1}
	if before != nil {
		req.PrefixIDs, req.PrefixImages = slices.Concat(before.PromptIDs, before.SampledIDs), before.Images
	}
	return req
}

func lookServer(t *testing.T, eyes llmtest.Eyes) *llmtest.Server {
	t.Helper()
	if eyes.Tokens == nil {
		eyes.Tokens = squares
	}
	eyes.Place = imagePad
	if eyes.Render == nil {
		eyes.Render = rendered
	}
	return llmtest.NewWith(t, llmtest.Options{Eyes: &eyes}, func(*llmtest.Request) llmtest.Reply {
		return llmtest.Reply{Content: "look", IDs: append(written("look"), turnEnd), Logprobs: []float64{-1, -2, -3, -4, -5}}
	})
}

func TestIDsOfChatRepliesSayWhichStandForImages(t *testing.T) {
	for _, stream := range []bool{false, true} {
		first, then := looking(t)
		r := newRig(t, lookServer(t, llmtest.Eyes{}).BaseURL(), func(c *Config) { c.Stream = stream })
		r.PlaceImages(byteImages())
		one, err := r.Generate(t.Context(), turn(first, nil))
		if err != nil {
			t.Fatal(err)
		}
		two, err := r.Generate(t.Context(), turn(slices.Concat(first, then), one))
		if err != nil {
			t.Fatal(err)
		}
		start := 1 + len("system\n") + 3 + 1 + 1 + len("user\n") + len("Is\n") + 1
		want := []traj.ImageSpan{{Image: 0, Start: start, Tokens: 2, Grid: [3]int{1, 2, 4}},
			{Image: 1, Start: start + 2 + 1 + len(" like ") + 1, Tokens: 64, Grid: [3]int{1, 16, 16}}}
		if d := cmp.Diff(want, one.Images); d != "" {
			t.Errorf("stream %v: %s", stream, d)
		}
		n := len(one.PromptIDs) + len(one.SampledIDs)
		want = append(want, traj.ImageSpan{Image: 2, Start: n + 1 + len("user\n") + len("here: ") + 1, Tokens: 3, Grid: [3]int{1, 2, 6}})
		if d := cmp.Diff(want, two.Images); d != "" {
			t.Errorf("stream %v, the second turn: %s", stream, d)
		}
		for _, resp := range []*traj.Response{one, two} {
			if len(resp.SampledIDs) != 5 || len(resp.Logprobs) != 5 || resp.ImagesDiffer {
				t.Errorf("stream %v: %+v", stream, resp)
			}
		}
		if len(r.notices) > 0 {
			t.Errorf("stream %v: %v", stream, r.notices)
		}
	}
}

// A server that shows other images than are here gives replies without ids: they are evaluated,
// and nothing is trained on.
func TestChatRepliesToOtherImagesHaveNoIDs(t *testing.T) {
	for name, eyes := range map[string]llmtest.Eyes{
		"another size":       {Sight: llmtest.Sight{Tokens: func(w, h int) int { return 2 * squares(w, h) }}},
		"small images alone": {Sight: llmtest.Sight{Tokens: func(w, h int) int { return max(squares(w, h), 4) }}},
		"expanded twice":     {Twice: true},
		"images first":       {First: true},
		"an image less":      {Loses: 1},
		"all of them less":   {Loses: 9},
		"an image of its own": {Render: func(messages []llmtest.Message) []int32 {
			return append([]int32{imageStart, imagePad, imageEnd}, rendered(messages)...)
		}},
		"a place of none": {Render: func(messages []llmtest.Message) []int32 {
			return append(rendered(messages), imagePad)
		}},
	} {
		for _, stream := range []bool{false, true} {
			first, then := looking(t)
			r := newRig(t, lookServer(t, eyes).BaseURL(), func(c *Config) { c.Stream = stream })
			r.PlaceImages(byteImages())
			if err := r.ProbeImage(t.Context()); err != nil || len(r.notices) > 0 {
				t.Errorf("%s: the question before the run: %v, %v", name, err, r.notices)
			}
			for _, messages := range [][]traj.Message{first, slices.Concat(first, then)} {
				resp, err := r.Generate(t.Context(), turn(messages, nil))
				if err != nil {
					t.Fatal(err)
				}
				if !resp.ImagesDiffer || resp.PromptIDs != nil || resp.SampledIDs != nil || resp.Images != nil || resp.Logprobs != nil ||
					resp.Message.Content != "look" || resp.PromptTokens == 0 {
					t.Errorf("%s, stream %v: %+v", name, stream, resp)
				}
			}
			if len(r.notices) != 1 {
				t.Errorf("%s, stream %v: %v", name, stream, r.notices)
			}
		}
	}
}

func TestChatServersThatRefuseImagesAreErrors(t *testing.T) {
	first, _ := looking(t)
	few := lookServer(t, llmtest.Eyes{Sight: llmtest.Sight{Most: 1}})
	large := llmtest.New(t, func(*llmtest.Request) llmtest.Reply {
		return llmtest.Reply{Status: http.StatusRequestEntityTooLarge, Error: "too large"}
	})
	for name, s := range map[string]*llmtest.Server{"a limit of one image": few, "too large a body": large} {
		r := newRig(t, s.BaseURL(), nil)
		r.PlaceImages(byteImages())
		if _, err := r.Generate(t.Context(), turn(first, nil)); err == nil || len(r.slept) > 0 {
			t.Errorf("%s: %v after %d pauses", name, err, len(r.slept))
		}
	}
}

// What a model draws is text, whatever its ids: no image stands there.
func TestSampledIDsOfImagesAreNoImages(t *testing.T) {
	first, then := looking(t)
	drawn := []int32{imageStart, imagePad, imageEnd, imagePad, turnEnd}
	const hidden = -1 // an id of an image in a reply, which this server does not expand
	eyes := &llmtest.Eyes{Sight: llmtest.Sight{Place: imagePad, Tokens: squares}, Render: func(messages []llmtest.Message) []int32 {
		i := slices.IndexFunc(messages, func(m llmtest.Message) bool { return m.Role == traj.RoleAssistant })
		if i < 0 {
			return rendered(messages)
		}
		return slices.Concat(rendered(messages[:i]), []int32{imageStart, hidden, imageEnd, hidden, turnEnd}, rendered(messages[i+1:]))
	}}
	s := llmtest.NewWith(t, llmtest.Options{Eyes: eyes}, func(q *llmtest.Request) llmtest.Reply {
		for i, id := range q.Prompt {
			if id == hidden {
				q.Prompt[i] = imagePad
			}
		}
		return llmtest.Reply{Content: "", IDs: drawn, Logprobs: []float64{-1, -2, -3, -4, -5}}
	})
	r := newRig(t, s.BaseURL(), nil)
	r.PlaceImages(byteImages())
	one, err := r.Generate(t.Context(), turn(first, nil))
	if err != nil {
		t.Fatal(err)
	}
	all := slices.Concat(first, then)
	two, err := r.Generate(t.Context(), turn(all, one))
	if err != nil {
		t.Fatal(err)
	}
	if len(one.Images) != 2 || len(two.Images) != 3 || two.Images[2].Tokens != 3 ||
		two.Images[2].Start < len(one.PromptIDs)+len(drawn) || len(r.notices) > 0 {
		t.Errorf("%+v, %v", two.Images, r.notices)
	}
	// A conversation that does not go on with those ids has places that nobody knows.
	if again, err := r.Generate(t.Context(), turn(all, nil)); err != nil || !again.ImagesDiffer || len(again.SampledIDs) > 0 {
		t.Errorf("%+v, %v", again, err)
	}
}

// Equal ids with another image are another history.
func TestAPromptWithOtherImagesDoesNotContinue(t *testing.T) {
	first, then := looking(t)
	s := lookServer(t, llmtest.Eyes{})
	r := newRig(t, s.BaseURL(), nil)
	r.PlaceImages(byteImages())
	one, err := r.Generate(t.Context(), turn(first, nil))
	if err != nil {
		t.Fatal(err)
	}
	first[1].Images = slices.Clone(first[1].Images)
	first[1].Images[1] = pictureOf(t, 448, 112) // as many tokens
	two, err := r.Generate(t.Context(), turn(slices.Concat(first, then), one))
	if err != nil {
		t.Fatal(err)
	}
	n := len(one.PromptIDs)
	if !slices.Equal(two.PromptIDs[:n], one.PromptIDs) || two.Images[1].Grid != [3]int{1, 8, 32} || len(r.notices) != 1 {
		t.Errorf("%+v, %v", two.Images, r.notices)
	}
}
