package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentcli/internal/goldenfile"
	"agentcli/llm/llmtest"
	"agentcli/media/processor"
	"agentcli/model/tokenizer"
	"agentcli/parquet"
	"agentcli/policy"
	"agentcli/traj"
)

const lookModel = "../../examples/look"

// deepEyesPlay is a conversation that DeepEyes' own functions played (scripts/golden/deepeyes.py).
type deepEyesPlay struct {
	Name      string
	Row       json.RawMessage
	Replies   []string
	IDs       []int32
	Mask      []int
	Positions [3][]int32
	Grids     [][3]int
}

func deepEyesPlays(t *testing.T) (plays []deepEyesPlay, maxTokens int) {
	t.Helper()
	var golden struct {
		MaxTokens     int `json:"max_tokens"`
		Conversations []deepEyesPlay
	}
	goldenfile.Load(t, "deepeyes.json.gz", &golden)
	return golden.Conversations, golden.MaxTokens
}

// play plays a conversation's row against a server that says its replies, in these coordinates.
func (p *deepEyesPlay) play(t *testing.T, tok *tokenizer.Tokenizer, maxTokens int, space string, more ...string) *traj.Trajectory {
	t.Helper()
	images, err := processor.Open(lookModel)
	if err != nil {
		t.Fatal(err)
	}
	id := func(s string) int32 { return tok.Encode(s, false)[0] }
	asks, end := id("assistant\n"), id("<|im_end|>")
	sight := &llmtest.Sight{Place: id("<|image_pad|>"), Tokens: func(w, h int) int {
		_, n, err := images.Grid(w, h)
		if err != nil {
			t.Error(err)
		}
		return n
	}}
	s := llmtest.NewWith(t, llmtest.Options{Completions: true, Inference: sight, Window: 8192}, func(r *llmtest.Request) llmtest.Reply {
		turn := 0
		for _, x := range r.Prompt {
			if x == asks {
				turn++
			}
		}
		text, finish := p.Replies[max(turn, 1)-1], "stop"
		ids := append(tok.Encode(text, false), end)
		if len(ids) > maxTokens {
			ids, finish = ids[:maxTokens], "length"
		}
		return llmtest.Reply{Content: text, IDs: ids, Logprobs: make([]float64, len(ids)), Finish: finish}
	})
	dir := t.TempDir()
	rows, file := filepath.Join(dir, "rows.jsonl"), filepath.Join(dir, "t.parquet")
	if err := os.WriteFile(rows, append(p.Row, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, log, code := run(t, append([]string{"rollout", "--base-url", s.BaseURL(), "--model", "mock", "--tokenizer", lookModel, "-d", rows,
		"--reward", "exact", "--token-mode", "completions", "-n", "1", "--bbox-space", space,
		"--max-tokens", fmt.Sprint(maxTokens), "-o", file}, more...)...); code != 0 {
		t.Fatalf("%d: %s", code, log)
	}
	r, err := parquet.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for row, err := range r.Rows(t.Context()) {
		if err != nil || len(row.Sequences) != 1 {
			t.Fatalf("%v, %d sequences, %s", err, len(row.Sequences), row.Error)
		}
		return row
	}
	t.Fatal("no trajectory")
	return nil
}

// placedToken is one of a sequence. move is how far its positions are from those of the token before
// it: 1 for each axis within a text, whatever is in front of it.
type placedToken struct {
	id      int32
	trained bool
	move    [3]int32
}

func tokensOf(ids []int32, trained func(int) bool, positions [3][]int32) []placedToken {
	out := make([]placedToken, len(ids))
	for i, id := range ids {
		out[i] = placedToken{id: id, trained: trained(i)}
		for axis, p := range positions {
			if out[i].move[axis] = p[i]; i > 0 {
				out[i].move[axis] -= p[i-1]
			}
		}
	}
	return out
}

// turnsOf cuts a sequence where it goes over to what is trained on, or back: the prompt, a
// reply, a result, a reply and so on.
func turnsOf(all []placedToken) (turns [][]placedToken) {
	for len(all) > 0 {
		n := slices.IndexFunc(all, func(x placedToken) bool { return x.trained != all[0].trained })
		if n < 0 {
			n = len(all)
		}
		turns, all = append(turns, all[:n]), all[n:]
	}
	return turns
}

// DeepEyes' own functions say what a row's ids, its mask and its positions are. With --parser
// deepeyes the results of calls are in its words. These are all other differences:
//   - a call that fails is answered by our reason;
//   - of a box below 28 pixels the model is shown the surroundings, not refused;
//   - each call of a reply is answered, not only the last;
//   - a call is answered though there is an answer beside it: it was asked for.
func TestDeepEyesRowsHaveItsOwnIDsMaskAndPositions(t *testing.T) {
	const pad, advice = "<|image_pad|>", "\nThink first, call **image_zoom_in_tool** if needed, then answer. Format strictly as:  " +
		"<think>...</think>  <tool_call>...</tool_call> (if tools needed)  <answer>...</answer> "
	image := func(tokens int) string { return "<|vision_start|>" + strings.Repeat(pad, tokens) + "<|vision_end|>" }
	result := func(s string) string { return "\n<|im_start|>user\n" + s + "<|im_end|>\n<|im_start|>assistant\n" }
	plays, maxTokens := deepEyesPlays(t)
	tok, err := tokenizer.Open(lookModel)
	if err != nil {
		t.Fatal(err)
	}
	for words, x := range map[string]struct {
		args   []string
		crop   func(tokens int) string
		failed func(reason string) string
	}{
		"our words": {nil, func(tokens int) string { return "<tool_response>\n" + image(tokens) + "\n</tool_response>" },
			func(reason string) string { return "<tool_response>\nerror: " + reason + "\n</tool_response>" }},
		"its words": {[]string{"--parser", "deepeyes"},
			func(tokens int) string { return "<tool_response>" + image(tokens) + advice + "</tool_response>" },
			func(reason string) string { return "Error: " + reason }},
	} {
		ours := map[string]string{ // results that are not DeepEyes' in other words
			"no JSON": result(x.failed("the tool call could not be read: the JSON is incomplete; " +
				`it ends with "\n{\"name\": \"image_zoom_in_tool\","`)),
			"unknown tool":          result(x.failed(`there is no tool "telescope"; the tools are: image_zoom_in_tool`)),
			"small box":             result(x.crop(4)),
			"two calls":             result(x.crop(4) + "\n" + x.crop(6)),
			"call beside an answer": result(x.crop(4)),
		}
		// inOurWords is a result as we write it without --parser: DeepEyes has no line breaks around an
		// image, and repeats its format behind it.
		inOurWords := func(theirs []placedToken) []placedToken {
			begin, end := tok.Encode("<|vision_start|>", false)[0], tok.Encode("<|vision_end|>", false)[0]
			from := slices.IndexFunc(theirs, func(x placedToken) bool { return x.id == begin })
			to := slices.IndexFunc(theirs, func(x placedToken) bool { return x.id == end }) + 1
			if from < 0 {
				t.Fatal("DeepEyes' result has no image")
			}
			text := func(s string) (out []placedToken) {
				for _, id := range tok.Encode(s, false) {
					out = append(out, placedToken{id, false, [3]int32{1, 1, 1}})
				}
				return out
			}
			before, after, _ := strings.Cut(result(x.crop(0)), image(0))
			return slices.Concat(text(before), theirs[from:to], text(after))
		}
		for _, p := range plays {
			t.Run(words+"/"+p.Name, func(t *testing.T) {
				row := p.play(t, tok, maxTokens, "original", x.args...)
				seq := &row.Sequences[0]
				if seq.Validate() != nil {
					t.Error(seq.Validate())
				}
				got := turnsOf(tokensOf(seq.TokenIDs, func(i int) bool { return seq.LossMask[i] },
					policy.Positions(len(seq.TokenIDs), seq.Images, 2)))
				want := turnsOf(tokensOf(p.IDs, func(i int) bool { return p.Mask[i] == 1 }, p.Positions))
				otherwise, differs := ours[p.Name]
				if p.Name == "call beside an answer" { // DeepEyes ends here
					if len(want) != 2 || len(got) != 4 {
						t.Fatalf("%d turns, DeepEyes has %d", len(got), len(want))
					}
					got, want = got[:3], append(want, nil)
				}
				if len(got) != len(want) {
					t.Fatalf("%d turns, DeepEyes has %d", len(got), len(want))
				}
				for i := range want {
					switch isResult := i > 0 && i%2 == 0; {
					case isResult && differs:
						var ids []int32
						for _, x := range got[i] {
							ids = append(ids, x.id)
						}
						if text := tok.Decode(ids, false); text != otherwise {
							t.Errorf("turn %d is %q, want %q", i, text, otherwise)
						}
						continue
					case isResult && x.args == nil:
						want[i] = inOurWords(want[i])
					}
					if !slices.Equal(got[i], want[i]) {
						t.Errorf("turn %d:\n%v, want\n%v", i, got[i], want[i])
					}
				}
				if differs {
					return
				}
				if x.args != nil && !slices.Equal(seq.TokenIDs, p.IDs) {
					t.Error("the row has other ids than DeepEyes'")
				}
				for i, grid := range p.Grids {
					if len(seq.Images) != len(p.Grids) || seq.Images[i].Grid != grid {
						t.Errorf("images %+v, want the grids %v", seq.Images, p.Grids)
					}
				}
			})
		}
	}
}

// DeepEyes takes coordinates for those of the original, though the model was shown an image of
// 112 × 84 pixels.
func TestABoxOfAShrunkImageIsNotWhereDeepEyesCutsIt(t *testing.T) {
	plays, maxTokens := deepEyesPlays(t)
	tok, err := tokenizer.Open(lookModel)
	if err != nil {
		t.Fatal(err)
	}
	p := &plays[slices.IndexFunc(plays, func(p deepEyesPlay) bool { return p.Name == "shrunk image" })]
	for space, want := range map[string][4]int{"original": {0, 28, 100, 84}, "seen": {0, 93, 300, 280}} {
		row := p.play(t, tok, maxTokens, space)
		if len(row.Images) != 2 || row.Images[1].Crop == nil || row.Images[1].Crop.Box != want {
			t.Errorf("%s: %+v, want %v", space, row.Images, want)
		}
	}
}

// A crop that the budget has no room for is not shown: the sequence ends with the model's tokens,
// where the reward is, and no image is cut. With room for it the same conversation goes on.
func TestACropBeyondTheBudgetIsNotShown(t *testing.T) {
	plays, maxTokens := deepEyesPlays(t)
	tok, err := tokenizer.Open(lookModel)
	if err != nil {
		t.Fatal(err)
	}
	p := &plays[slices.IndexFunc(plays, func(p deepEyesPlay) bool { return p.Name == "shrunk image" })]
	reply := len(tok.Encode(p.Replies[0], false)) + 1
	for budget, images := range map[int]int{reply + 8: 1, reply + 400: 2} {
		row := p.play(t, tok, maxTokens, "original", "--max-response-tokens", fmt.Sprint(budget))
		seq := &row.Sequences[0]
		ids, last := len(seq.TokenIDs), seq.TokenIDs[len(seq.TokenIDs)-1]
		if len(row.Images) != images || len(seq.Images) != images || (row.Termination == traj.MaxTokens) != (images == 1) {
			t.Errorf("budget %d: %d images, %d spans, %s; want %d images", budget, len(row.Images), len(seq.Images), row.Termination, images)
		}
		if seq.Validate() != nil || !seq.LossMask[ids-1] || row.Messages[len(row.Messages)-1].Role != traj.RoleAssistant {
			t.Errorf("budget %d: %v, the last token %d is not the model's", budget, seq.Validate(), last)
		}
	}
}
