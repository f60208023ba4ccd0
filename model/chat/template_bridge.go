package chat

import (
	"slices"
	"strings"

	"agentcli/model/jinja"
	"agentcli/traj"
)

// Bridge renders the conversation with the new turns. Where the template leaves as it
// is what came before, what follows the reply in that text follows the ids too.
func (r *templated) Bridge(prev []int32, msgs []traj.Message, o Options) ([]int32, bool) {
	if len(prev) == 0 || len(msgs) == 0 {
		return nil, false
	}
	reply := r.lastReply(prev)
	before, tools := o.Before, o.Tools
	if len(before) == 0 {
		before, tools = r.recall(prev, reply, msgs), nil
	}
	after, ok := r.continuation(before, reply, msgs, tools, o)
	if !ok {
		return nil, false
	}
	out := slices.Clone(prev)
	last := prev[len(prev)-1]
	switch {
	case after.closed && last == after.closer:
		after.text = after.text.Slice(len(r.specialText(last)), len(after.text.String()))
	case slices.Contains(r.headers, last):
		return nil, false // it begins a turn that did not come
	case after.closed && r.ends(last):
		// Another token ended the reply; the template's own is left out.
		after.text = after.text.Slice(len(r.specialText(after.closer)), len(after.text.String()))
	case after.closed:
		out = append(out, after.closer)
		last = after.closer
		after.text = after.text.Slice(len(r.specialText(last)), len(after.text.String()))
	}
	return append(out, r.encodeBehind(last, after.text)...), true
}

// ends reports whether an id ends a reply, and does not begin the next turn.
func (r *templated) ends(id int32) bool {
	return (slices.Contains(r.stops, id) || slices.Contains(r.closers, id)) && !slices.Contains(r.headers, id)
}

// continuation is what follows a reply.
type continuation struct {
	text   jinja.Str
	closed bool  // it begins with a token that ends the reply, or ends it by beginning a turn:
	closer int32 // this one
}

// continuation finds what follows the reply, the last message of before, in the text
// with the new turns. A text in which only the reply differs has the same end; the
// first token there that ends a reply ends this one. False: the template writes what
// came before in another way, or cannot write it.
func (r *templated) continuation(before []traj.Message, reply string, msgs []traj.Message, tools []traj.ToolSpec, o Options) (
	continuation, bool) {
	none := continuation{}
	n := len(before) - 1
	if n < 1 || before[n].Role != traj.RoleAssistant {
		return none, false
	}
	ask := Options{AddGenerationPrompt: true, EnableThinking: o.EnableThinking, Date: o.Date}
	prompt, err1 := r.text(before[:n], tools, ask)
	ask.AddGenerationPrompt, ask.ContinueFinal = o.AddGenerationPrompt, o.ContinueFinal
	whole, err2 := r.text(slices.Concat(before, msgs), tools, ask)
	other, err3 := r.text(slices.Concat(before[:n], []traj.Message{varied(before[n])}, msgs), tools, ask)
	if err1 != nil || err2 != nil || err3 != nil {
		return none, false
	}
	text, begin := whole.String(), len(prompt.String())
	if !strings.HasPrefix(text, prompt.String()) {
		return none, false
	}
	tail := max(len(text)-commonSuffix(text, other.String()), begin)
	out, end := none, -1
	limit := len(text) // where the next message's own text begins
	for _, d := range whole.Data() {
		if d.From > tail {
			limit = d.From
			break
		}
	}
	for _, c := range r.controls(whole) {
		if c.from >= tail && c.from < limit && (slices.Contains(r.stops, c.id) || slices.Contains(r.closers, c.id)) {
			out, end = continuation{whole.Slice(c.from, len(text)), true, c.id}, c.from
			break
		}
	}
	if end < 0 { // nothing ends it
		ended, err := r.text(before, tools, Options{EnableThinking: o.EnableThinking, Date: o.Date})
		if end = len(ended.String()); err != nil || end < tail || !strings.HasPrefix(text, ended.String()) {
			return none, false
		}
		out = continuation{text: whole.Slice(end, len(text))}
	}
	return out, r.keeps(text[begin:end], reply, before[n])
}

// keeps reports whether a text has a reply's thinking in it: a template that leaves
// it out would rewrite what was sampled.
func (r *templated) keeps(text, reply string, m traj.Message) bool {
	if !r.traits.thinksInText && strings.Contains(reply, closeThink) && !strings.Contains(text, closeThink) {
		return false
	}
	return strings.Contains(text, strings.TrimSpace(m.Reasoning))
}

// varied is a reply with other words at its end.
func varied(m traj.Message) traj.Message {
	const word = "Elsewhither"
	if m.Content != "" || len(m.ToolCalls) == 0 {
		m.Content += word
	}
	if n := len(m.ToolCalls) - 1; n >= 0 {
		m.ToolCalls = slices.Clone(m.ToolCalls)
		m.ToolCalls[n].Arguments = `{"` + word + `": "` + word + `"}`
	}
	return m
}

func commonPrefix(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

func commonSuffix(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[len(a)-1-i] != b[len(b)-1-i] {
			return i
		}
	}
	return n
}

// lastReply is the text of the last reply in ids, without what ends it; all of it
// where the turn's header is not found.
func (r *templated) lastReply(prev []int32) string {
	for len(prev) > 0 && (slices.Contains(r.stops, prev[len(prev)-1]) || slices.Contains(r.closers, prev[len(prev)-1])) {
		prev = prev[:len(prev)-1]
	}
	text := r.tok.Decode(prev, false)
	if at := strings.LastIndex(text, r.traits.header); at >= 0 && r.traits.header != "" {
		return text[at+len(r.traits.header):]
	}
	return text
}

// recall is a conversation that ended as prev does, for a caller that knows the ids
// only: a question, where there is thinking before the last reply a call with
// thinking, and the last reply.
func (r *templated) recall(prev []int32, reply string, next []traj.Message) []traj.Message {
	out := []traj.Message{{Role: traj.RoleUser, Content: "q"}}
	if before, ok := strings.CutSuffix(r.tok.Decode(prev, false), reply); ok && strings.Contains(before, closeThink) {
		out = append(out,
			traj.Message{Role: traj.RoleAssistant, Reasoning: "thought", ToolCalls: []traj.ToolCall{{ID: "call_r", Name: "f", Arguments: "{}"}}},
			traj.Message{Role: traj.RoleTool, Name: "f", ToolCallID: "call_r", Content: "x"})
	}
	m, _ := ParseReply(r.traits.calls, r.opened(reply))
	i := 0
	for _, n := range next {
		if n.Role == traj.RoleTool && i < len(m.ToolCalls) {
			m.ToolCalls[i].ID = n.ToolCallID
			i++
		}
	}
	return append(out, m)
}
