package llm

import (
	"encoding/json"
	"fmt"

	"agentcli/traj"
)

// thoughts are the fields that past reasoning is sent in. vLLM reads reasoning alone,
// SGLang and llama.cpp reasoning_content: both are sent, to every server that takes
// them.
type thoughts struct{ reasoning, reasoningContent bool }

// wireMessage is a message on its way out. go-openai leaves an empty content
// out, which several servers refuse.
type wireMessage struct {
	Role       string     `json:"role"`
	Content    any        `json:"content"`
	Reasoning  string     `json:"reasoning,omitempty"`
	Thinking   string     `json:"reasoning_content,omitempty"`
	Name       string     `json:"name,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
	ToolCalls  []wireCall `json:"tool_calls,omitempty"`
}

type wireCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function wireFunction `json:"function"`
}

type wireFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// encoded is what a conversation's memo holds: its first n messages. raw only
// ever grows at its end: a request that is still being sent shares it.
type encoded struct {
	n        int
	raw      []byte
	thoughts thoughts
}

// encodeMessages encodes the messages that memo does not hold yet, so that the
// work of a long conversation grows with its length and not with its square.
func encodeMessages(messages []traj.Message, memo *traj.Memo, in thoughts) ([]byte, error) {
	if memo == nil {
		memo = &traj.Memo{}
	}
	e, ok := memo.Value.(*encoded)
	if !ok || e.n > len(messages) || e.thoughts != in {
		e = &encoded{raw: []byte{'['}, thoughts: in}
	}
	for i := e.n; i < len(messages); i++ {
		w, err := wire(&messages[i], i, in)
		if err != nil {
			return nil, err
		}
		raw, err := json.Marshal(w)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			e.raw = append(e.raw, ',')
		}
		e.raw = append(e.raw, raw...)
		e.n = i + 1
	}
	memo.Value = e
	return e.raw, nil
}

func wire(m *traj.Message, i int, in thoughts) (*wireMessage, error) {
	w := &wireMessage{Role: m.Role, Content: m.Content, Name: m.Name, ToolCallID: m.ToolCallID}
	if in.reasoning {
		w.Reasoning = m.Reasoning
	}
	if in.reasoningContent {
		w.Thinking = m.Reasoning
	}
	if m.Role == traj.RoleTool && w.ToolCallID == "" {
		w.ToolCallID = fmt.Sprintf("unread_%d", i) // the answer to a call that had no id to read
	}
	for _, call := range m.ToolCalls {
		args := call.Arguments
		if !json.Valid([]byte(args)) {
			// Servers decode the arguments to render them; a JSON string
			// shows the model what it wrote and breaks nothing.
			quoted, err := json.Marshal(args)
			if err != nil {
				return nil, err
			}
			args = string(quoted)
		}
		w.ToolCalls = append(w.ToolCalls, wireCall{ID: call.ID, Type: "function", Function: wireFunction{call.Name, args}})
	}
	if len(m.Images) > 0 {
		parts, err := encodeParts(m)
		if err != nil {
			return nil, err
		}
		w.Content = parts
	}
	return w, nil
}

// encodeParts are a message's texts and images in order, an image as a data URI.
func encodeParts(m *traj.Message) ([]map[string]any, error) {
	all, err := m.Parts()
	if err != nil {
		return nil, err
	}
	var parts []map[string]any
	for _, p := range all {
		if p.Image == nil {
			parts = append(parts, map[string]any{"type": "text", "text": p.Text})
			continue
		}
		url, err := dataURI(p.Image)
		if err != nil {
			return nil, err
		}
		parts = append(parts, imagePart(url))
	}
	return parts, nil
}
