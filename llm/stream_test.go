package llm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"agentcli/llm/llmtest"
	"agentcli/model/chat"
	"agentcli/traj"

	"github.com/google/go-cmp/cmp"
)

var nanEqual = cmp.Comparer(func(a, b traj.Logprob) bool { return a == b || !a.Known() && !b.Known() })

// upTo are the borders behind each of the first n bytes.
func upTo(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i + 1
	}
	return out
}

func streaming(c *Config) { c.Stream = true }

func TestAStreamIsTheReplyThatComesInOnePiece(t *testing.T) {
	ids := llmtest.Reply{PromptIDs: []int32{1, 2, 3}, IDs: []int32{4, 5, 6, 7}, Logprobs: []float64{-0.5, -1, -2, -9999},
		PromptTokens: 3, OutputTokens: 4}
	with := func(mend func(*llmtest.Reply)) llmtest.Reply {
		r := ids
		mend(&r)
		return r
	}
	for name, reply := range map[string]llmtest.Reply{
		"text":      with(func(r *llmtest.Reply) { r.Content = "Grüße, 世界 👋\n\ndata: [DONE]\r\n" }),
		"length":    with(func(r *llmtest.Reply) { r.Content, r.Finish = "cut o", "length" }),
		"reasoning": with(func(r *llmtest.Reply) { r.Content, r.Reasoning = "84", "twelve times seven" }),
		"calls": with(func(r *llmtest.Reply) {
			r.Content = "let me see"
			r.Calls = []llmtest.Call{llmtest.NewCall("a", "calculator", `{"expression":"12*7"}`),
				llmtest.NewCall("b", "python", `{"code":"print(\"é\")"}`)}
		}),
		"calls in the text": with(func(r *llmtest.Reply) { r.Content = "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>" }),
		"empty":             with(func(r *llmtest.Reply) { r.Content = "" }),
		"stop string":       with(func(r *llmtest.Reply) { r.Content, r.Stop = "Answer: 5", "\n" }),
		"without ids":       {Content: "plain", PromptTokens: 9, OutputTokens: 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := reply
			r.Borders = upTo(6000) // a border behind every byte
			s := llmtest.New(t, func(*llmtest.Request) llmtest.Reply { return r })
			q := ask()
			q.Sampling.Stop = []string{"\n"}
			if name == "text" {
				q.Sampling.Stop = nil
			}
			parse := func(c *Config) {
				c.Parse = func(x string, _ []traj.ToolSpec) (traj.Message, []traj.CallError) {
					return chat.ParseReply("hermes", x)
				}
			}
			want, err := newRig(t, s.BaseURL(), parse).Generate(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			got, err := newRig(t, s.BaseURL(), func(c *Config) { parse(c); streaming(c) }).Generate(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, nanEqual); diff != "" {
				t.Error(diff)
			}
			last := s.Requests()[1]
			if string(last.Fields["stream"]) != "true" || string(last.Fields["stream_options"]) != `{"include_usage":true}` {
				t.Errorf("asked with %s", last.Fields)
			}
		})
	}
}

func TestAStopStringIsCutWhereverThePiecesBreak(t *testing.T) {
	const content, stop, want = "one </sear</search> two three", "</search>", "one </sear"
	asked := 0
	for i := range len(content) {
		for _, j := range []int{i, (i + 4) % len(content), len(content)} {
			if j < i {
				continue
			}
			pieces := []string{content[:i], content[i:j], content[j:]}
			s := llmtest.New(t, func(*llmtest.Request) llmtest.Reply {
				return llmtest.Reply{Content: content, Pieces: pieces, PromptTokens: 1, OutputTokens: 9}
			})
			q := ask()
			q.Sampling.Stop = []string{"never", stop}
			got, err := newRig(t, s.BaseURL(), streaming).Generate(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			if got.Message.Content != want || got.FinishReason != traj.FinishStop || got.Raw != want+stop {
				t.Fatalf("pieces %q: %q, raw %q, %s", pieces, got.Message.Content, got.Raw, got.FinishReason)
			}
			asked++
			s.Close()
		}
	}
	if asked < len(content) {
		t.Fatal("nothing was tried")
	}
}

func TestAStopStringThatAServerLeavesInIsCutInOnePieceToo(t *testing.T) {
	s := llmtest.New(t, func(*llmtest.Request) llmtest.Reply {
		return llmtest.Reply{Content: "a#b", PromptIDs: []int32{1}, IDs: []int32{2, 3, 4}, Logprobs: []float64{-1, -1, -1}}
	})
	q := ask()
	q.Sampling.Stop = []string{"#"}
	r := newRig(t, s.BaseURL(), nil)
	got, err := r.Generate(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	// The ids go on behind the cut: text that is not in the conversation is not trained on.
	if got.Message.Content != "a" || got.SampledIDs != nil || got.Raw != "a#" || len(r.notices) != 1 {
		t.Errorf("%+v, notices %q", got, r.notices)
	}
}

// The first stream is cut behind each of its bytes in turn: nothing of it is
// kept, and it is asked for again.
func TestABrokenStreamIsDiscardedAndAskedForAgain(t *testing.T) {
	for _, path := range []string{llmtest.Chat, llmtest.Completions, llmtest.Generate} {
		t.Run(path, func(t *testing.T) {
			cut, broken := 0, true
			whole := llmtest.Reply{Content: "whole", PromptIDs: []int32{1}, IDs: []int32{5, 6},
				Logprobs: []float64{-1, -2}, PromptTokens: 1, OutputTokens: 2}
			s := llmtest.NewWith(t, llmtest.Options{Completions: true, SGLang: true}, func(*llmtest.Request) llmtest.Reply {
				if broken {
					broken = false
					return llmtest.Reply{Content: "part", PromptIDs: []int32{1}, IDs: []int32{7, 8, 9}, Logprobs: []float64{-3, -4, -5}, Cut: cut}
				}
				return whole
			})
			r := newRig(t, s.BaseURL(), streaming)
			tokens := &Tokens{Client: r.Client, SGLang: path == llmtest.Generate}
			for cut = 1; ; cut++ {
				broken = true
				before := len(s.Requests())
				var ids []int32
				if path == llmtest.Chat {
					got, err := r.Generate(t.Context(), ask())
					if err != nil {
						t.Fatalf("cut at %d: %v", cut, err)
					}
					ids = got.SampledIDs
				} else {
					got, err := tokens.Sample(t.Context(), []int32{1}, traj.Sampling{MaxTokens: 8}, 1)
					if err != nil {
						t.Fatalf("cut at %d: %v", cut, err)
					}
					ids = got.IDs
				}
				asked := len(s.Requests()) - before
				if asked == 1 && slices.Equal(ids, []int32{7, 8, 9}) { // the cut is behind the end
					if cut < 300 {
						t.Fatalf("a stream that was cut at %d was kept", cut)
					}
					return
				}
				if asked != 2 || !slices.Equal(ids, []int32{5, 6}) {
					t.Fatalf("cut at %d: %d requests, ids %v", cut, asked, ids)
				}
			}
		})
	}
}

func TestAStreamThatEndsEarlyOrSaysAnErrorIsNoReply(t *testing.T) {
	event := func(lines ...string) llmtest.Reply {
		raw := strings.Join(lines, "\n\n") + "\n\n"
		return llmtest.Reply{Raw: &raw, Header: map[string][]string{"Content-Type": {"text/event-stream"}}}
	}
	const piece = `data: {"choices":[{"index":0,"delta":{"content":"half"},"finish_reason":null}]}`
	for name, tc := range map[string]struct {
		reply llmtest.Reply
		is    []error // nil: it is asked for again
	}{
		"end without a finish":    {reply: event(piece)},
		"done without a finish":   {reply: event(piece, "data: [DONE]")},
		"not JSON":                {reply: event(piece, "data: {]")},
		"an error of the server":  {reply: event(piece, `data: {"error":{"message":"engine died","code":500}}`)},
		"an error without a code": {reply: event(piece, `data: {"error":{"message":"engine died"}}`)},
		"aborted":                 {reply: event(`data: {"choices":[{"index":0,"delta":{},"finish_reason":"abort"}]}`, "data: [DONE]")},
		"too long": {
			reply: event(
				`data: {"error":{"message":"This model's maximum context length is 4096 tokens. However,` +
					` you requested 5000 tokens in the messages","code":400}}`),
			is: []error{traj.ErrPromptTooLong}},
		"wrong key": {reply: event(`data: {"object":"error","message":"no","error":null,"code":401}`),
			is: []error{traj.ErrFatal, ErrKey}},
	} {
		t.Run(name, func(t *testing.T) {
			s := llmtest.New(t, llmtest.Sequence(tc.reply, llmtest.Text("whole")))
			got, err := newRig(t, s.BaseURL(), streaming).Generate(t.Context(), ask())
			if tc.is == nil {
				if err != nil || got.Message.Content != "whole" || len(s.Requests()) != 2 {
					t.Errorf("%+v, %v, %d requests", got, err, len(s.Requests()))
				}
			} else if slices.ContainsFunc(tc.is, func(kind error) bool { return !errors.Is(err, kind) }) || len(s.Requests()) != 1 {
				t.Errorf("%v, %d requests", err, len(s.Requests()))
			}
		})
	}
}

func TestAServerThatTakesNoStreamIsAskedWithout(t *testing.T) {
	s := llmtest.New(t, func(r *llmtest.Request) llmtest.Reply {
		for _, f := range []string{"stream_options", "stream"} {
			if v := string(r.Fields[f]); v != "" && v != "false" {
				return llmtest.Reply{Status: 400, Error: "Unrecognized request argument supplied: " + f}
			}
		}
		return llmtest.Text("whole")
	})
	got, err := newRig(t, s.BaseURL(), streaming).Generate(t.Context(), ask())
	if err != nil || got.Message.Content != "whole" {
		t.Errorf("%+v, %v", got, err)
	}
}

// SGLang gives ids with whole chat replies only; the ids are worth more.
func TestIDsAreWorthMoreThanAStream(t *testing.T) {
	s := llmtest.New(t, func(r *llmtest.Request) llmtest.Reply {
		if string(r.Fields["stream"]) == "true" && r.Has("return_token_ids") {
			return llmtest.Reply{Status: 400, Error: "return_token_ids is not supported with stream=true"}
		}
		return llmtest.Reply{Content: "x", PromptIDs: []int32{1}, IDs: []int32{2}}
	})
	r := newRig(t, s.BaseURL(), streaming)
	got, err := r.Generate(t.Context(), ask())
	if err != nil || len(got.SampledIDs) != 1 || len(r.notices) != 1 {
		t.Errorf("%+v, %v, %q", got, err, r.notices)
	}
}

func TestAStreamWithIDsMissingHasNone(t *testing.T) {
	s := llmtest.New(t,
		llmtest.Sequence(llmtest.Reply{Content: "abc", PromptIDs: []int32{1}, IDs: []int32{2, 3}, PromptTokens: 1, OutputTokens: 3}))
	r := newRig(t, s.BaseURL(), streaming)
	got, err := r.Generate(t.Context(), ask())
	if err != nil || got.SampledIDs != nil || got.OutputTokens != 3 || len(r.notices) != 1 ||
		!strings.Contains(r.notices[0], "2 ids of 3 tokens") {
		t.Errorf("%+v, %v, %q", got, err, r.notices)
	}
}

func TestSpecialTokensAreAskedForWhereCallsAreMadeOfThem(t *testing.T) {
	s := llmtest.New(t, llmtest.Sequence(llmtest.Text("x")))
	for _, keep := range []bool{false, true} {
		if _, err := newRig(t, s.BaseURL(), func(c *Config) { c.KeepSpecial = keep }).Generate(t.Context(), ask()); err != nil {
			t.Fatal(err)
		}
	}
	if q := s.Requests(); q[0].Has("skip_special_tokens") || string(q[1].Fields["skip_special_tokens"]) != "false" {
		t.Errorf("%s, then %s", q[0].Fields, q[1].Fields)
	}
}

func TestEventsAreTheSameHoweverTheyAreRead(t *testing.T) {
	const stream = ": ping\r\n\r\nevent: x\ndata: one\ndata:two\n\nid: 3\n\ndata: \n\r\ndata: three\r\n\r\ndata: [DONE]\n\ndata: never\n\n"
	want := []string{"one\ntwo", "", "three"}
	for _, r := range []io.Reader{strings.NewReader(stream), iotest.OneByteReader(strings.NewReader(stream)),
		iotest.HalfReader(strings.NewReader(stream))} {
		var got []string
		if err := events(r, func(data []byte) error { got = append(got, string(data)); return nil }); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte("data: {}\n\ndata: [DONE]\n\n"), 3)
	f.Add([]byte(": ping\r\ndata: a\r\ndata: b\r\n\r\n"), 1)
	f.Add([]byte("data: "+strings.Repeat("x", 40000)+"\n\n"), 20000)
	f.Fuzz(func(t *testing.T, stream []byte, at int) {
		at = min(max(at, 0), len(stream))
		read := func(r io.Reader) string {
			var b strings.Builder
			err := events(r, func(data []byte) error { fmt.Fprintf(&b, "%q ", data); return nil })
			return fmt.Sprint(b.String(), err)
		}
		whole := read(bytes.NewReader(stream))
		split := read(io.MultiReader(bytes.NewReader(stream[:at]), bytes.NewReader(stream[at:])))
		if whole != split {
			t.Errorf("in one %s, in two %s", whole, split)
		}
	})
}

func FuzzPiecesOfAReply(f *testing.F) {
	f.Add([]byte(`{"choices":[{"delta":{"content":"x"},"token_ids":[1]}],"prompt_token_ids":[2]}`), "x")
	f.Add([]byte(`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":7,"function":{"arguments":"{"}}]}}]}`), "")
	f.Add(
		[]byte(
			`{"text":"a","output_ids":[1],"meta_info":{"completion_tokens":1,"output_token_logprobs":[[-1,1,null]],`+
				`"finish_reason":{"type":"stop","matched":2}}}`), "a")
	f.Fuzz(func(t *testing.T, data []byte, stop string) {
		s := chatPieces{stops: []string{stop}}
		_ = s.add(data)
		_ = s.add(data)
		_ = s.whole()
		for _, p := range []pieces{&completionPieces{}, &sglangPieces{}} {
			_ = p.add(data)
			_ = p.add(data)
			_ = p.take()
		}
	})
}
