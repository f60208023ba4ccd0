package rollout

import (
	"cmp"
	"fmt"
	"strings"
	"sync"
	"time"

	"agentcli/app/console"
	"agentcli/engine"
	"agentcli/internal/text"
	"agentcli/traj"
)

// tracer shows one trajectory on stderr while it is played.
type tracer struct {
	s  console.Streams
	p  console.Painter
	id string // a task's id, task#attempt, or first

	mu    sync.Mutex
	found bool
}

// firstTrace is the id of whichever trajectory is played first.
const firstTrace = "first"

// newTracer is nil where no trajectory is named.
func newTracer(s console.Streams, id string) *tracer {
	if id == "" {
		return nil
	}
	return &tracer{s: s, p: console.Painter(console.UseColor(s.ErrTTY)), id: id}
}

// observe takes the first trajectory that the id names: of a task, its first
// attempt that is played.
func (t *tracer) observe(x *traj.Trajectory) engine.Watcher {
	if t.id != firstTrace && !named(x.ID, t.id) && !named(x.Task.ID, t.id) {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.found {
		return nil
	}
	t.found = true
	w := &traced{tracer: t, id: x.ID, results: map[string]string{}}
	w.head("trace of "+x.ID, "event", "start")
	return w
}

// named reports whether a user means id by name: its dataset may be left out.
func named(id, name string) bool { return id == name || strings.HasSuffix(id, "/"+name) }

func (t *tracer) taken() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.found
}

// traced is the trajectory that is shown.
type traced struct {
	*tracer
	id      string
	seen    int               // images so far
	results map[string]string // what tools gave, by call, as the model would be shown it whole
}

// head writes a separator, or its JSON object.
func (w *traced) head(title string, attrs ...any) {
	if w.s.JSON() {
		w.object(attrs...)
		return
	}
	line := "── " + text.Name(title, 200) + " "
	w.write(w.p.Bold(line + strings.Repeat("─", max(3, 72-len([]rune(line))))))
}

// block writes who speaks and what, indented, or its JSON object.
func (w *traced) block(role, note, body string, attrs ...any) {
	if w.s.JSON() {
		w.object(attrs...)
		return
	}
	var b strings.Builder
	b.WriteString(w.p.Role(role, text.Name(cmp.Or(note, role), 400)))
	for _, l := range strings.Split(strings.TrimRight(text.Harmless(body), "\n"), "\n") {
		if l != "" || body != "" {
			b.WriteString("\n  " + l)
		}
	}
	w.write(b.String())
}

func (w *traced) object(attrs ...any) {
	w.s.Log().Info("trace", append([]any{"trajectory", w.id}, attrs...)...)
}

// write is one piece, so that nothing comes between its lines.
func (w *traced) write(s string) {
	if w.s.Writer != nil {
		_, _ = w.s.Writer.Write([]byte(s + "\n"))
		return
	}
	fmt.Fprintln(w.s.Err, s)
}

// Event implements engine.Watcher.
func (w *traced) Event(_ time.Time, e engine.Event) {
	switch e := e.(type) {
	case engine.TurnStart:
		w.head(fmt.Sprintf("turn %d", e.Turn+1), "event", "turn", "turn", e.Turn+1)
	case engine.Observed:
		for i := range e.Observation.Messages {
			w.message(&e.Observation.Messages[i])
		}
		w.images(e)
		if e.CutAt > 0 {
			w.head(fmt.Sprintf("the reply is cut back to its first %s", text.Plural(e.CutAt, "byte")), "event", "cut", "bytes", e.CutAt)
		}
		if c := e.Observation.Continue; c != "" {
			w.block(traj.RoleUser, "inserted into the reply", c, "event", "inserted", "content", c)
		}
	case engine.ModelStart:
		if n := len(e.Request.Tools); w.s.JSON() {
			w.object("event", "request", "messages", len(e.Request.Messages), "tools", n)
		} else {
			w.write(
				w.p.Dim(fmt.Sprintf("asking the model: %s, %s offered", text.Plural(len(e.Request.Messages), "message"), text.Plural(n, "tool"))))
		}
	case engine.ModelEnd:
		w.reply(e)
	case engine.ToolStart:
		c := e.Call
		w.block(traj.RoleTool, fmt.Sprintf("→ %s (%s)", c.Name, c.ID), c.Arguments, "event", "tool_call",
			"tool", c.Name, "call_id", c.ID, "arguments", c.Arguments)
	case engine.ToolEnd:
		c, result := e.Call, e.Result
		if e.Err != nil {
			result = "error: " + e.Err.Error()
		}
		w.results[c.ID] = result
		w.block(traj.RoleTool, fmt.Sprintf("← %s (%s) %s, %s", c.Name, c.ID, e.Outcome, took(e.Took)), result,
			"event", "tool_result", "tool", c.Name, "call_id", c.ID, "outcome", e.Outcome, "seconds", e.Took.Seconds(), "content", result)
	case engine.TrajectoryEnd:
		w.end(e.Trajectory)
	}
}

// message shows what the model is given. The result of a tool has been shown when
// it came; it is shown again where it was cut.
func (w *traced) message(m *traj.Message) {
	result, shown := w.results[m.ToolCallID]
	note := m.Role
	if m.Name != "" {
		note += " " + m.Name
	}
	switch {
	case m.Role == traj.RoleTool && shown && result == m.Content:
		return
	case m.Role == traj.RoleTool && shown:
		note += ", as the model is shown it"
	}
	w.block(m.Role, note, m.Content, "event", "message", "role", m.Role, "name", m.Name, "call_id", m.ToolCallID, "content", m.Content)
}

// images says what the model sees for the first time.
func (w *traced) images(e engine.Observed) {
	if e.Rewritten {
		return
	}
	tokens := e.ImageTokens
	for i := range e.Observation.Messages {
		for k := range e.Observation.Messages[i].Images {
			im := &e.Observation.Messages[i].Images[k]
			attrs := []any{"event", "image", "image", w.seen, "width", im.Width, "height", im.Height, "hash", im.Hash}
			line := fmt.Sprintf("image %d: %d × %d", w.seen, im.Width, im.Height)
			if c := im.Crop; c != nil {
				attrs = append(attrs, "source", c.Source, "box", c.Box)
				line += fmt.Sprintf(", a crop at %v", c.Box)
			}
			if len(tokens) > 0 {
				attrs, line = append(attrs, "tokens", tokens[0]), line+", "+text.Plural(tokens[0], "token")
				tokens = tokens[1:]
			}
			w.seen++
			if w.s.JSON() {
				w.object(attrs...)
			} else {
				w.write(w.p.Dim(line))
			}
		}
	}
}

func (w *traced) reply(e engine.ModelEnd) {
	if e.Err != nil {
		w.block(traj.RoleAssistant, "no reply after "+took(e.Took), text.Line(e.Err), "event", "error",
			"error", text.Line(e.Err), "seconds", e.Took.Seconds())
		return
	}
	r := e.Response
	note := fmt.Sprintf("assistant: %s, %d → %s, %s", r.FinishReason, r.PromptTokens, text.Plural(r.OutputTokens, "token"), took(e.Took))
	if m := r.Message.Reasoning; m != "" && !w.s.JSON() {
		w.block(traj.RoleAssistant, "thinking", m)
	}
	body := r.Message.Content
	for _, c := range r.CallErrors {
		body += "\n[a call that cannot be read: " + c.Reason + "]"
	}
	w.block(traj.RoleAssistant, note, strings.TrimPrefix(body, "\n"), "event", "reply", "finish_reason",
		r.FinishReason, "prompt_tokens", r.PromptTokens,
		"completion_tokens", r.OutputTokens, "seconds", e.Took.Seconds(), "reasoning", r.Message.Reasoning, "content", r.Message.Content,
		"tool_calls", len(r.Message.ToolCalls), "unreadable_calls", len(r.CallErrors))
}

func (w *traced) end(t *traj.Trajectory) {
	title := fmt.Sprintf("%s ended: %s", t.ID, t.Termination)
	attrs := []any{"event", "end", "termination", string(t.Termination), "turns", t.Turns(), "seconds", float64(t.DurationMS) / 1000}
	if t.Reward != nil {
		title += fmt.Sprintf(", reward %g", *t.Reward)
		attrs = append(attrs, "reward", *t.Reward)
	}
	if t.Error != "" {
		title += ": " + text.Cut(t.Error, 120)
		attrs = append(attrs, "error", t.Error)
	}
	w.head(title, attrs...)
}

// took is a duration with three digits or so.
func took(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d >= 10*time.Millisecond:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(10 * time.Microsecond).String()
}
