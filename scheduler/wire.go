package scheduler

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"agentcli/datasets"
	"agentcli/engine"
	"agentcli/internal/text"
	"agentcli/internal/wire"
	"agentcli/traj"
)

// wireTask is a task as programs get it: without its messages, which are a field of their own.
type wireTask struct {
	ID       string          `json:"id"`
	Dataset  string          `json:"dataset"`
	Split    string          `json:"split,omitempty"`
	Question string          `json:"question"`
	Answers  []string        `json:"answers"`
	Meta     json.RawMessage `json:"meta"`
}

func taskOf(t *traj.Task) wireTask {
	w := wireTask{t.ID, t.Dataset, t.Split, t.Question, t.Answers, t.Meta}
	if w.Answers == nil {
		w.Answers = []string{}
	}
	if len(w.Meta) == 0 {
		w.Meta = json.RawMessage("{}")
	}
	return w
}

// wireMessages are messages, never null. Their images are named by their hash.
func wireMessages(ms []traj.Message) []traj.Message {
	if ms == nil {
		return []traj.Message{}
	}
	return traj.WithoutFiles(ms)
}

// wireReply is a reply as programs get it.
type wireReply struct {
	Content      string           `json:"content"`
	Reasoning    string           `json:"reasoning,omitempty"`
	Text         string           `json:"text"` // as the model wrote it; what cut counts
	FinishReason string           `json:"finish_reason"`
	ToolCalls    []traj.ToolCall  `json:"tool_calls"`
	CallErrors   []traj.CallError `json:"call_errors,omitempty"`
	TokenIDs     []int32          `json:"token_ids"`
}

// wireObservation is what the environment said.
type wireObservation struct {
	Messages   []traj.Message `json:"messages"`
	Continue   string         `json:"continue,omitempty"`
	Reward     *float64       `json:"reward,omitempty"`
	Done       bool           `json:"done"`
	ToolErrors int            `json:"tool_errors"`
}

// turnOf is a turn as programs get it: what is new, so that a conversation costs what
// it is long, however many turns it has.
func turnOf(t *engine.Turn) map[string]any {
	m := t.Reply.Message
	reply := wireReply{Content: m.Content, Reasoning: m.Reasoning, Text: t.Text, FinishReason: t.Reply.FinishReason,
		ToolCalls: m.ToolCalls, CallErrors: t.Reply.CallErrors, TokenIDs: t.Reply.SampledIDs}
	if reply.ToolCalls == nil {
		reply.ToolCalls = []traj.ToolCall{}
	}
	if reply.TokenIDs == nil {
		reply.TokenIDs = []int32{}
	}
	out := map[string]any{"turn": t.Number, "last": t.Last, "final": t.Action.Final, "reply": reply, "observation": nil}
	if r := t.Env; r != nil {
		out["observation"] = wireObservation{wireMessages(r.Observation.Messages), r.Observation.Continue, r.Reward, r.Done, r.ToolErrors}
	}
	return out
}

// ErrAnswer is in the error of an answer that says what cannot be said.
var ErrAnswer = errors.New("its answer")

// readObject reads an answer whose keys are those of into. {"error": …} is its error.
func readObject(b []byte, into map[string]any) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(b, &fields); err != nil {
		return fmt.Errorf("%w is no JSON object: %s", ErrAnswer, wire.Shown(b))
	}
	if raw, ok := fields["error"]; ok && string(raw) != "null" {
		var said string
		if json.Unmarshal(raw, &said) != nil {
			said = string(raw)
		}
		return fmt.Errorf("%w is an error: %s", ErrAnswer, text.Cut(text.OneLine(said), 300))
	}
	delete(fields, "id")
	delete(fields, "error")
	if err := wire.Fields(fields, into); err != nil {
		return fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	return nil
}

// messageList reads messages in OpenAI's shape.
type messageList []traj.Message

// UnmarshalJSON implements json.Unmarshaler.
func (l *messageList) UnmarshalJSON(b []byte) error {
	var list any
	if err := json.Unmarshal(b, &list); err != nil {
		return err
	}
	*l = messageList{}
	if all, ok := list.([]any); list == nil || ok && len(all) == 0 {
		return nil
	}
	got, err := datasets.ReadMessages(list)
	*l = got
	return err
}

// numbers reads one number for all, or a list with one for each.
type numbers struct {
	values []float64
	each   bool
}

var errNumbers = errors.New("want a finite number, or a list of them")

// UnmarshalJSON implements json.Unmarshaler.
func (n *numbers) UnmarshalJSON(b []byte) error {
	var one float64
	switch {
	case string(b) == "null":
		return nil
	case json.Unmarshal(b, &one) == nil:
		n.values = []float64{one}
	case json.Unmarshal(b, &n.values) == nil:
		n.each = true
	default:
		return errNumbers
	}
	return nil
}

// readStart reads the answer to start.
func readStart(b []byte, o *engine.Opening) error {
	var messages *messageList
	if err := readObject(b, map[string]any{"messages": &messages, "infos": &o.Info}); err != nil {
		return err
	}
	if messages != nil {
		o.Messages = *messages
	}
	return nil
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// readNext reads the answer to next.
func readNext(b []byte, t *engine.Turn) (n engine.Next, err error) {
	var (
		done, tools       *bool
		reason, more      *string
		messages, history *messageList
		weights           numbers
		sampling          json.RawMessage
	)
	if err := readObject(b, map[string]any{"done": &done, "reason": &reason, "messages": &messages, "continue": &more, "cut": &n.Cut,
		"history": &history, "reward": &n.Reward, "weights": &weights, "infos": &n.Info, "tools": &tools, "sampling": &sampling}); err != nil {
		return n, err
	}
	if messages != nil {
		n.Messages = *messages
	}
	if more != nil {
		n.Continue = *more
	}
	if history != nil {
		n.History = *history
	}
	if want := len(t.Reply.SampledIDs); weights.each && len(weights.values) != want {
		return n, fmt.Errorf("%w has a list of %d weights for %d tokens; give one number for all, or one for each", ErrAnswer,
			len(weights.values), want)
	}
	n.Weights = weights.values
	n.NoTools = tools != nil && !*tools
	ends := done != nil && *done
	switch {
	case reason != nil && !ends:
		return n, fmt.Errorf(`%w has a reason, and no "done": true`, ErrAnswer)
	case ends:
		n.Stop = endOf(reason, t.Action.Final)
		if reason != nil && string(n.Stop) != *reason {
			n.Info = withReason(n.Info, *reason)
		}
	case more != nil && *more == "" && n.Cut == nil:
		return n, fmt.Errorf("%w continues the reply with no text", ErrAnswer)
	}
	over, err := wire.Sampling(sampling)
	if err != nil {
		return n, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	if over != nil {
		own := over(t.Sampling)
		n.Sampling = &own
	}
	return n, nil
}

// endOf is how a trajectory ends for a reason in a program's own words.
func endOf(reason *string, final bool) traj.Termination {
	if reason != nil {
		if end := traj.Termination(*reason); slices.Contains(traj.Terminations, end) && !end.Infrastructure() {
			return end
		}
	} else if final {
		return traj.Answered
	}
	return traj.EnvDone
}

// withReason keeps a program's own words for an end in the info.
func withReason(info traj.Info, reason string) traj.Info {
	all := map[string]json.RawMessage{}
	if len(info) > 0 && json.Unmarshal(info, &all) != nil {
		return info // it is said elsewhere what is wrong with it
	}
	if _, has := all["reason"]; !has {
		all["reason"], _ = json.Marshal(reason)
	}
	b, err := json.Marshal(all)
	if err != nil {
		return info
	}
	return b
}
