package chat_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"agentcli/internal/setting/settingtest"
	"agentcli/model/chat"
	"agentcli/model/chat/chattest"
	"agentcli/traj"

	"github.com/google/go-cmp/cmp"
)

type samplerFunc func(prompt []int32, s traj.Sampling) *traj.Completion

func (f samplerFunc) Sample(_ context.Context, prompt []int32, s traj.Sampling, _ int64) (*traj.Completion, error) {
	return f(prompt, s), nil
}

func exactly(t *testing.T, f samplerFunc) *chat.Exact {
	t.Helper()
	var tok chattest.Tokenizer
	r, err := chat.For("chatml", tok)
	if err != nil {
		t.Fatal(err)
	}
	return &chat.Exact{Renderer: r, Tokenizer: tok, Sampler: f}
}

// bytesOf encodes a text a byte at a time: never as a tokenizer would.
func bytesOf(s string) (ids []int32) {
	for _, b := range []byte(s) {
		ids = append(ids, int32(b))
	}
	return ids
}

func TestExactReadsWhatTheIDsSay(t *testing.T) {
	var tok chattest.Tokenizer
	end, _ := tok.ID("<|im_end|>")
	pair, ok := tok.Pair("> ")
	if !ok {
		t.Fatal("no such token")
	}
	search := append(bytesOf("<search>é</search"), pair)
	for name, tc := range map[string]struct {
		c            traj.Completion
		stop         []string
		content, raw string
		ids          []int32 // nil: those of c
		calls        int
		finish       string
	}{
		"an end of turn": {c: traj.Completion{IDs: append(bytesOf("hi"), end), FinishReason: "stop", Ended: true},
			content: "hi", raw: "hi", finish: "stop"},
		"one that nobody speaks of": {c: traj.Completion{IDs: append(bytesOf("hi"), end), FinishReason: "stop"},
			content: "hi", raw: "hi", finish: "stop"},
		"an id of the user's": {c: traj.Completion{IDs: []int32{'h', 'i', 'x'}, FinishReason: "stop", Ended: true},
			content: "hi", raw: "hi", finish: "stop"},
		"length": {c: traj.Completion{IDs: bytesOf("hi"), FinishReason: "length"}, content: "hi", raw: "hi", finish: "length"},
		// The token that completes the stop string has more in it: the text is cut
		// before, the ids and what is gone on with are not.
		"a stop string within a token": {c: traj.Completion{IDs: search, FinishReason: "stop", StopString: "</search>"},
			stop:    []string{"</search>"},
			content: "<search>é", raw: "<search>é</search> ", finish: "stop"},
		"a server that goes on behind it": {
			c:       traj.Completion{IDs: append(append(slices.Clone(search), bytesOf("made up")...), end), FinishReason: "stop", Ended: true},
			stop:    []string{"zzz", "</search>"},
			content: "<search>é", raw: "<search>é</search> ", ids: search, finish: "stop"},
		"one that goes on to the limit": {c: traj.Completion{IDs: append(slices.Clone(search), bytesOf("made up")...), FinishReason: "length"},
			stop:    []string{"</search>"},
			content: "<search>é", raw: "<search>é</search> ", ids: search, finish: "stop"},
		"an end behind a stop string": {c: traj.Completion{IDs: append(bytesOf("a#"), end), FinishReason: "stop", Ended: true},
			stop:    []string{"#"},
			content: "a", raw: "a#", ids: bytesOf("a#"), finish: "stop"},
		"a call": {c: traj.Completion{IDs: append(bytesOf("<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>"), end),
			FinishReason: "stop", Ended: true},
			raw: "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>", calls: 1, finish: "stop"},
	} {
		t.Run(name, func(t *testing.T) {
			want := tc.ids
			if want == nil {
				want = slices.Clone(tc.c.IDs)
			}
			for range tc.c.IDs {
				tc.c.Logprobs = append(tc.c.Logprobs, traj.Logprob(-len(tc.c.Logprobs)))
			}
			e := exactly(t, func([]int32, traj.Sampling) *traj.Completion { return &tc.c })
			got, err := e.Generate(t.Context(),
				&traj.Request{Messages: []traj.Message{{Role: traj.RoleUser, Content: "q"}}, Sampling: traj.Sampling{Stop: tc.stop}})
			if err != nil {
				t.Fatal(err)
			}
			if got.Message.Content != tc.content || got.Raw != tc.raw || got.FinishReason != tc.finish || len(got.Message.ToolCalls) != tc.calls {
				t.Errorf("%q, raw %q, %s, %d calls", got.Message.Content, got.Raw, got.FinishReason, len(got.Message.ToolCalls))
			}
			if diff := cmp.Diff(want, got.SampledIDs); diff != "" {
				t.Error(diff)
			}
			if n := len(want); len(got.Logprobs) != n || got.OutputTokens != n || got.Logprobs[n-1] != traj.Logprob(1-n) {
				t.Errorf("%d log-probs of %d tokens: %v", len(got.Logprobs), n, got.Logprobs)
			}
		})
	}
}

func TestExactGoesOnWithItsOwnReply(t *testing.T) {
	e, tok := exactly(t, nil), chattest.Tokenizer{}
	end, _ := tok.ID("<|im_end|>")
	msgs := []traj.Message{{Role: traj.RoleUser, Content: "q"}, {Role: traj.RoleAssistant, Content: "<search>x</search> found <|im_end|>"}}
	before, _, err := e.Prompt(&traj.Request{Messages: msgs[:1]})
	if err != nil {
		t.Fatal(err)
	}
	reply := slices.Concat(before, bytesOf("<search>x</search>"))
	for name, prefix := range map[string][]int32{"a reply that was stopped": reply,
		"a turn that was ended": append(slices.Clone(reply), end)} {
		got, _, err := e.Prompt(&traj.Request{Messages: msgs, PrefixIDs: prefix, PrefixMessages: 2, Continue: true,
			Inserted: " found <|im_end|>"})
		if err != nil {
			t.Fatal(err)
		}
		want := slices.Concat(reply, tok.EncodeOrdinary(" found <|im_end|>"))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if slices.Contains(got[len(reply):], end) {
			t.Error("a text forged the end of the turn")
		}
	}
	// Without the ids the text is rendered, and left open.
	got, _, err := e.Prompt(&traj.Request{Messages: msgs, Continue: true})
	if err != nil || !strings.HasSuffix(tok.Decode(got, false), msgs[1].Content) {
		t.Errorf("%q, %v", tok.Decode(got, false), err)
	}
}

func TestExactRefusesALongPrompt(t *testing.T) {
	e := exactly(t, func([]int32, traj.Sampling) *traj.Completion { t.Error("it was asked"); return nil })
	_, err := e.Generate(t.Context(), &traj.Request{Messages: []traj.Message{{Role: traj.RoleUser, Content: "0123456789"}}, MaxPrompt: 5})
	if !errors.Is(err, traj.ErrPromptTooLong) || !settingtest.Names(err, "MaxPromptTokens") {
		t.Error(err)
	}
}

func TestFormatsOfSpecialTokensSaySo(t *testing.T) {
	var got []string
	for _, name := range chat.Parsers() {
		p, err := chat.ParserFor(name, nil)
		if err != nil {
			t.Fatal(err)
		}
		if p.NeedsSpecial() {
			got = append(got, name)
		}
	}
	if diff := cmp.Diff([]string{"deepseek-r1", "deepseek-v3", "mistral", "kimi", "gpt-oss", "gemma4", "lfm2", "granite",
		"minimax", "deepseek-v3.2", "cohere", "seed-oss", "nemotron", "apertus"}, got); diff != "" {
		t.Error(diff)
	}
}

// TestAReplyThatIsGoneOnWithMayBeInItsThinking: the message that goes on has opened it.
func TestAReplyThatIsGoneOnWithMayBeInItsThinking(t *testing.T) {
	for content, want := range map[string]string{"<think>\nLet": "", "<think>hm</think>So": "a</think>b"} {
		e := exactly(t, func([]int32, traj.Sampling) *traj.Completion {
			return &traj.Completion{IDs: bytesOf("a</think>b"), FinishReason: "stop"}
		})
		e.AsStreamed = true
		req := &traj.Request{Messages: []traj.Message{question, {Role: traj.RoleAssistant, Content: content}}, Continue: true}
		got, err := e.Generate(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		reasoning, text := e.Stream(got.PromptIDs, req).Add("a</think>b")
		if want == "" && (reasoning != "a" || text != "b") || want != "" && text != want ||
			got.Message.Content != text || got.Message.Reasoning != reasoning {
			t.Errorf("behind %q: %q and %q, whole %+v", content, reasoning, text, got.Message)
		}
	}
}

// TestThinkingThatThePromptClosesIsNoReasoning: a template that opens the thinking by itself closes
// it where it is told not to think, and the reply is content then.
func TestThinkingThatThePromptClosesIsNoReasoning(t *testing.T) {
	r := templateRenderers(t)["qwen3_5_think"]
	off := false
	for _, tc := range []struct {
		thinking           *bool
		reasoning, content string
	}{{nil, "It is 84.", ""}, {&off, "", "It is 84."}} {
		for _, streamed := range []bool{false, true} {
			e := &chat.Exact{Renderer: r.Renderer, Tokenizer: r.tok, EnableThinking: tc.thinking, AsStreamed: streamed,
				Sampler: samplerFunc(func([]int32, traj.Sampling) *traj.Completion {
					return &traj.Completion{IDs: r.tok.EncodeOrdinary("It is 84."), FinishReason: "stop"}
				})}
			req := &traj.Request{Messages: []traj.Message{question}}
			got, err := e.Generate(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			reasoning, content := e.Stream(got.PromptIDs, req).Add("It is 84.")
			if got.Message.Reasoning != tc.reasoning || got.Message.Content != tc.content ||
				reasoning != tc.reasoning || content != tc.content {
				t.Errorf("thinking %v, streamed %v: %+v; in a stream %q and %q", tc.thinking, streamed, got.Message, reasoning, content)
			}
		}
	}
}
