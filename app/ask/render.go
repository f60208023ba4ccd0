package ask

import (
	"bytes"
	"context"
	"encoding/json"
	"io"

	"agentcli/app/images"
	"agentcli/app/models"
	"agentcli/datasets"
	"agentcli/internal/malformed"
	"agentcli/model/chat"
	"agentcli/policy"
	"agentcli/traj"
)

// conversation is a question with messages, as the OpenAI API and chat templates write them.
type conversation struct {
	Messages   []apiMessage      `json:"messages"`
	Tools      []json.RawMessage `json:"tools"`
	Generation bool              `json:"add_generation_prompt"`
	Thinking   *bool             `json:"enable_thinking"`
}

// apiMessage is a message as the OpenAI API and chat templates write it.
type apiMessage struct {
	Role             string          `json:"role"`
	Content          json.RawMessage `json:"content"`
	Reasoning        string          `json:"reasoning"`
	ReasoningContent string          `json:"reasoning_content"`
	Name             string          `json:"name"`
	ToolCallID       string          `json:"tool_call_id"`
	ToolCalls        []apiCall       `json:"tool_calls"`
}

type apiCall struct {
	ID string `json:"id"`
	apiFunction
	Function *apiFunction `json:"function"`
}

type apiFunction struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// message reads null and a list of parts as content too, and arguments both as an object and
// as JSON text.
func (m apiMessage) message() (traj.Message, error) {
	out := traj.Message{Role: m.Role, Name: m.Name, ToolCallID: m.ToolCallID, Reasoning: m.ReasoningContent}
	if out.Reasoning == "" {
		out.Reasoning = m.Reasoning
	}
	if m.Role == "" {
		return out, malformed.Field("role", malformed.Missing, "there is none")
	}
	if c := bytes.TrimSpace(m.Content); len(c) > 0 && string(c) != "null" && json.Unmarshal(c, &out.Content) != nil {
		var parts []any
		if json.Unmarshal(c, &parts) != nil {
			return out, malformed.Field("content", malformed.Type, "it is neither a string nor a list of parts")
		}
		var err error
		if out.Content, out.Images, err = datasets.ReadParts(parts, images.ReadFile); err != nil {
			return out, malformed.Field("content", "", "%w", err)
		}
	}
	for i, c := range m.ToolCalls {
		f := c.apiFunction
		if c.Function != nil {
			f = *c.Function
		}
		if f.Name == "" {
			return out, malformed.Field("tool_calls", malformed.Missing, "call %d has no name", i)
		}
		call := traj.ToolCall{ID: c.ID, Name: f.Name, Arguments: string(f.Arguments)}
		var text string
		switch {
		case len(f.Arguments) == 0 || string(f.Arguments) == "null":
			call.Arguments = "{}"
		case json.Unmarshal(f.Arguments, &text) == nil:
			call.Arguments = text
		}
		out.ToolCalls = append(out.ToolCalls, call)
	}
	return out, nil
}

// RenderOptions say how conversations are rendered.
type RenderOptions struct {
	ChatTemplate string // a file or the name of a chat format, in place of the model's own
	Positions    bool   // give the positions of the ids: of time, row and column
}

// span says which ids stand for an image.
type span struct {
	Start  int    `json:"start"`
	Tokens int    `json:"tokens"`
	Grid   [3]int `json:"grid"`
}

// Render answers {"messages"} with the conversation in the model's own format: text, ids, and
// where it has images their spans. The text has one mark for an image, the ids all its places.
func Render(ctx context.Context, path string, o RenderOptions, in io.Reader, out io.Writer) error {
	r, err := models.OpenRenderer(path, o.ChatTemplate)
	if err != nil {
		return err
	}
	seen := sight{path: path}
	type answer struct {
		Text      string      `json:"text"`
		TokenIDs  []int32     `json:"token_ids"`
		Images    []span      `json:"images,omitempty"`
		Positions *[3][]int32 `json:"positions,omitempty"`
	}
	return EachLine(ctx, in, out, func(q conversation) (answer, error) {
		x, err := q.render(r, &seen)
		if err != nil {
			return answer{}, err
		}
		a := answer{Text: x.text, TokenIDs: notNil(x.ids)}
		for _, s := range x.spans {
			a.Images = append(a.Images, span{s.Start, s.Tokens, s.Grid})
		}
		if o.Positions {
			p, err := seen.positions(len(x.ids), x.spans)
			if err != nil {
				return answer{}, err
			}
			a.Positions = &p
		}
		return a, nil
	})
}

// rendered is a conversation as a model takes it.
type rendered struct {
	text   string
	ids    []int32
	images []traj.Image
	spans  []traj.ImageSpan
}

// render gives the conversation's text and ids in the model's own format.
func (q conversation) render(r chat.Renderer, seen *sight) (rendered, error) {
	var msgs []traj.Message
	var x rendered
	for i, m := range q.Messages {
		msg, err := m.message()
		if err != nil {
			return x, malformed.Field("messages", "", "message %d: %w", i, err)
		}
		if !chat.Describe(r).Reasons {
			msg.Reasoning = "" // the template passes over it
		}
		msgs = append(msgs, msg)
		x.images = append(x.images, msg.Images...)
	}
	var err error
	x.text, x.ids, err = r.Render(msgs, nil, chat.Options{AddGenerationPrompt: q.Generation, EnableThinking: q.Thinking, RawTools: q.Tools})
	if err != nil || len(x.images) == 0 {
		return x, err
	}
	places, err := seen.places()
	if err != nil {
		return x, err
	}
	x.ids, x.spans, err = places.Expand(x.ids, msgs)
	return x, err
}

// sequence is the conversation as the policy takes it.
func (x rendered) sequence(seen *sight) (policy.Sequence, error) {
	q := policy.Sequence{IDs: x.ids}
	if len(x.images) == 0 {
		return q, nil
	}
	p, _, err := seen.open()
	if err != nil {
		return q, err
	}
	q.Images, err = policy.ImagesOf(p, x.images, x.spans)
	return q, err
}
