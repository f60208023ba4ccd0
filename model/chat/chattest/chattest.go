// Package chattest holds any chat.Renderer to the interface's contract. Only
// tests import it. What it cannot know, how a family writes a turn, is held
// against transformers in the family's own golden tests.
package chattest

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"

	"agentcli/model/chat"
	"agentcli/traj"
)

// Run tests a renderer that was made with tok.
func Run(t *testing.T, r chat.Renderer, tok chat.Tokenizer) {
	s := suite{r, tok}
	t.Run("text is what the ids say", s.textIsIDs)
	t.Run("generation prompt", s.generationPrompt)
	t.Run("prefix stability", s.prefixStability)
	t.Run("continue final", s.continueFinal)
	t.Run("stop ids", s.stopIDs)
	t.Run("parse", s.parse)
	t.Run("bridge", s.bridge)
	t.Run("no forgery", s.noForgery)
	t.Run("concurrent", s.concurrent)
}

// Basics tests what holds of a chat template too that rewrites earlier turns.
func Basics(t *testing.T, r chat.Renderer, tok chat.Tokenizer) {
	s := suite{r, tok}
	t.Run("stop ids", s.stopIDs)
	t.Run("no forgery", s.noForgery)
	t.Run("concurrent", s.concurrent)
}

type suite struct {
	r   chat.Renderer
	tok chat.Tokenizer
}

var (
	opening = []traj.Message{{Role: traj.RoleSystem, Content: "Be brief."}, {Role: traj.RoleUser, Content: "What is 12 * 7?"}}
	answer  = traj.Message{Role: traj.RoleAssistant, Content: "It is 84."}
	calling = traj.Message{Role: traj.RoleAssistant, ToolCalls: []traj.ToolCall{
		{ID: "call_0", Name: "calculator", Arguments: `{"expression": "12*7"}`},
		{ID: "call_1", Name: "calculator", Arguments: `{"expression": "12*8"}`}}}
	question = traj.Message{Role: traj.RoleUser, Content: "And 12 * 8?"}
	results  = []traj.Message{{Role: traj.RoleTool, Name: "calculator", ToolCallID: "call_0", Content: "84"},
		{Role: traj.RoleTool, Name: "calculator", ToolCallID: "call_1", Content: "96"}}
	tools = []traj.ToolSpec{{Name: "calculator", Description: "works it out",
		Parameters: json.RawMessage(`{"type": "object", "properties": {"expression": {"type": "string"}}}`)}}
	ask = chat.Options{AddGenerationPrompt: true}
)

func with(msgs []traj.Message, more ...traj.Message) []traj.Message {
	return append(slices.Clone(msgs), more...)
}

func (s suite) render(t *testing.T, msgs []traj.Message, o chat.Options) (string, []int32) {
	t.Helper()
	text, ids, err := s.r.Render(msgs, tools, o)
	if err != nil {
		t.Fatal(err)
	}
	return text, ids
}

func (s suite) starts(t *testing.T, what string, ids, prefix []int32) {
	t.Helper()
	if len(ids) <= len(prefix) || !slices.Equal(ids[:len(prefix)], prefix) {
		t.Fatalf("%s: %q does not go on from %q", what, s.tok.Decode(ids, false), s.tok.Decode(prefix, false))
	}
}

// begins is starts for what may add nothing.
func (s suite) begins(t *testing.T, what string, ids, prefix []int32) {
	t.Helper()
	if !slices.Equal(ids, prefix) {
		s.starts(t, what, ids, prefix)
	}
}

// sampled is a reply as a model would have sampled it after the opening, the id
// that ends it last: what the template writes for it once the talk has gone on. A
// template may write it in another way then: rewrites.
func (s suite) sampled(t *testing.T, reply traj.Message) (prompt, sampled []int32, rewrites bool) {
	t.Helper()
	ends := func(id int32) bool { return slices.Contains(s.r.StopIDs(), id) }
	_, prompt = s.render(t, opening, ask)
	_, all := s.render(t, with(opening, reply, question), chat.Options{})
	if len(all) <= len(prompt) || !slices.Equal(all[:len(prompt)], prompt) || !slices.ContainsFunc(all[len(prompt):], ends) {
		rewrites = true
		_, all = s.render(t, with(opening, reply), chat.Options{})
	}
	s.starts(t, "the reply in the history", all, prompt)
	sampled = all[len(prompt):]
	end := slices.IndexFunc(sampled, ends)
	if end < 0 {
		t.Fatalf("no stop id ends the reply in %q", s.tok.Decode(sampled, false))
	}
	return prompt, sampled[:end+1], rewrites
}

func (s suite) textIsIDs(t *testing.T) {
	for _, msgs := range [][]traj.Message{opening, with(opening, answer, question),
		with(opening, append([]traj.Message{calling}, results...)...)} {
		if text, ids := s.render(t, msgs, ask); s.tok.Decode(ids, false) != text {
			t.Errorf("text %q\n ids %q", text, s.tok.Decode(ids, false))
		}
	}
	if _, _, err := s.r.Render(nil, nil, chat.Options{}); err == nil {
		t.Error("an empty conversation was rendered")
	}
	if s.r.Family() == "" {
		t.Error("the family has no name")
	}
}

func (s suite) generationPrompt(t *testing.T) {
	for _, msgs := range [][]traj.Message{opening, with(opening, append([]traj.Message{calling}, results...)...)} {
		_, closed := s.render(t, msgs, chat.Options{})
		_, open := s.render(t, msgs, ask)
		s.begins(t, "the generation prompt", open, closed)
	}
}

// prefixStability: a new question leaves alone what stands before it, and so
// does a reply without thinking.
func (s suite) prefixStability(t *testing.T) {
	_, before := s.render(t, opening, chat.Options{})
	for _, reply := range []traj.Message{answer, calling} {
		_, after := s.render(t, with(opening, reply), chat.Options{})
		s.starts(t, "a reply", after, before)
	}
	_, before = s.render(t, with(opening, answer, question), chat.Options{})
	_, after := s.render(t, with(opening, answer, question, answer), chat.Options{})
	s.starts(t, "a second reply", after, before)
}

func (s suite) continueFinal(t *testing.T) {
	_, open := s.render(t, with(opening, answer), chat.Options{ContinueFinal: true})
	_, closed := s.render(t, with(opening, answer), chat.Options{})
	s.begins(t, "the closed reply", closed, open)
	if _, _, err := s.r.Render(opening, nil, chat.Options{ContinueFinal: true}); err == nil {
		t.Error("the user's own message was continued")
	}
}

func (s suite) stopIDs(t *testing.T) {
	ids := s.r.StopIDs()
	if len(ids) == 0 {
		t.Fatal("nothing ends a reply")
	}
	want := slices.Clone(ids)
	ids[0] = -1 // the caller's own
	if !slices.Equal(s.r.StopIDs(), want) {
		t.Error("a caller that changes the list changes the renderer")
	}
}

func (s suite) parse(t *testing.T) {
	for _, want := range []traj.Message{answer, calling} {
		_, ids, _ := s.sampled(t, want)
		for _, end := range []int{len(ids), len(ids) - 1} { // the final id included or not
			m, errs := s.r.Parse(ids[:end])
			if len(errs) > 0 || m.Role != traj.RoleAssistant || m.Content != want.Content || len(m.ToolCalls) != len(want.ToolCalls) {
				t.Fatalf("Parse(%q) = %+v, %v", s.tok.Decode(ids[:end], false), m, errs)
			}
			for i, c := range m.ToolCalls {
				w := want.ToolCalls[i]
				if c.Name != w.Name || !sameJSON(c.Arguments, w.Arguments) {
					t.Errorf("call %d is %+v, want %+v", i, c, w)
				}
			}
		}
	}
	if m, errs := s.r.Parse(nil); len(errs) > 0 || m.Content != "" || m.Role != traj.RoleAssistant {
		t.Errorf("Parse of nothing: %+v, %v", m, errs)
	}
}

func sameJSON(a, b string) bool {
	var x, y bytes.Buffer
	return json.Compact(&x, []byte(a)) == nil && json.Compact(&y, []byte(b)) == nil && x.String() == y.String()
}

// bridge: what was sampled stays, to the id, and the whole reads as if it had
// been rendered at once, whether or not the reply was cut before its end.
func (s suite) bridge(t *testing.T) {
	for _, c := range []struct {
		reply traj.Message
		next  []traj.Message
	}{{answer, []traj.Message{question}}, {calling, results}} {
		prompt, reply, rewrites := s.sampled(t, c.reply)
		whole, _ := s.render(t, with(with(opening, c.reply), c.next...), ask)
		for _, sampled := range [][]int32{reply, reply[:len(reply)-1]} {
			room := append(slices.Concat(prompt, sampled), 0)
			prev := room[:len(room)-1] // a caller's slice with room behind it
			got, ok := s.r.Bridge(prev, c.next, ask)
			if rewrites && !ok {
				continue
			}
			if !ok {
				t.Errorf("no bridge to %s: what was sampled would be rendered anew", c.next[0].Role)
				continue
			}
			s.starts(t, "the bridge", got, slices.Concat(prompt, sampled))
			// Where the template ends a reply in another way, what follows is the same.
			if text := s.tok.Decode(got, false); text != whole && !(rewrites && strings.HasSuffix(whole, s.tok.Decode(got[len(prev):], false))) {
				t.Errorf("bridged  %q\nrendered %q", text, whole)
			}
			if room[len(room)-1] != 0 {
				t.Error("the bridge wrote behind the caller's ids")
			}
		}
	}
	if _, ok := s.r.Bridge(nil, []traj.Message{question}, ask); ok {
		t.Error("a bridge from nowhere")
	}
}

// noForgery: a message that spells what ends a turn does not end one.
func (s suite) noForgery(t *testing.T) {
	count := func(content string) (n int) {
		_, ids := s.render(t, with(opening, traj.Message{Role: traj.RoleAssistant, Content: content},
			traj.Message{Role: traj.RoleUser, Content: content}), chat.Options{})
		for _, id := range ids {
			if slices.Contains(s.r.StopIDs(), id) {
				n++
			}
		}
		return n
	}
	honest := count("x")
	for _, id := range s.r.StopIDs() {
		if n := count("x" + s.tok.Decode([]int32{id}, false) + "y"); n != honest {
			t.Errorf("%q in a message: %d ids that end a turn, want %d", s.tok.Decode([]int32{id}, false), n, honest)
		}
	}
}

func (s suite) concurrent(t *testing.T) {
	_, want := s.render(t, opening, ask)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, ids, err := s.r.Render(opening, tools, ask); err != nil || !slices.Equal(ids, want) {
				t.Errorf("%v, %v", ids, err)
			}
			s.r.Bridge(want, []traj.Message{question}, ask)
			s.r.Parse(want)
		})
	}
	wg.Wait()
}
