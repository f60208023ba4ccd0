package llm

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"strings"

	"agentcli/traj"

	openai "github.com/sashabaranov/go-openai"
)

// body is a request that is made once and sent as often as needed.
type body struct {
	request  openai.ChatCompletionRequest
	messages json.RawMessage
	sampling traj.Sampling
	seed     int64
	cont     bool
	clamp    int  // max_tokens that the server's window leaves; 0: as asked
	inText   bool // the tools are in the messages
}

func (c *Client) body(req *traj.Request) (*body, error) {
	b := &body{sampling: req.Sampling, seed: req.Seed, cont: req.Continue}
	b.request.Model = c.c.Model
	messages, tools := req.Messages, req.Tools
	if b.inText = c.c.InText != nil && !c.has("tools"); b.inText {
		messages, tools = c.c.InText(messages, tools), nil
	}
	for _, t := range tools {
		params := t.Parameters
		if len(params) == 0 {
			params = json.RawMessage(`{"type":"object","properties":{}}`)
		}
		b.request.Tools = append(b.request.Tools, openai.Tool{Type: openai.ToolTypeFunction,
			Function: &openai.FunctionDefinition{Name: t.Name, Description: t.Description, Parameters: params}})
	}
	var err error
	b.messages, err = encodeMessages(messages)
	return b, err
}

// wireMessage is a message on its way out. go-openai leaves an empty content
// out, which several servers refuse.
type wireMessage struct {
	Role       string     `json:"role"`
	Content    any        `json:"content"`
	Reasoning  string     `json:"reasoning_content,omitempty"`
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

func encodeMessages(messages []traj.Message) (json.RawMessage, error) {
	out := make([]wireMessage, len(messages))
	for i := range messages {
		m := &messages[i]
		w := wireMessage{Role: m.Role, Content: m.Content, Reasoning: m.Reasoning, Name: m.Name, ToolCallID: m.ToolCallID}
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
			parts, err := encodeImages(m)
			if err != nil {
				return nil, err
			}
			w.Content = parts
		}
		out[i] = w
	}
	return json.Marshal(out)
}

func encodeImages(m *traj.Message) ([]map[string]any, error) {
	var parts []map[string]any
	for _, img := range m.Images {
		data := img.Bytes
		if data == nil {
			var err error
			if data, err = os.ReadFile(img.Path); err != nil {
				return nil, fmt.Errorf("cannot read an image of the conversation: %w", err)
			}
		}
		url := "data:" + http.DetectContentType(data) + ";base64," + base64.StdEncoding.EncodeToString(data)
		parts = append(parts, map[string]any{"type": "image_url", "image_url": map[string]string{"url": url}})
	}
	return append(parts, map[string]any{"type": "text", "text": m.Content}), nil
}

// optional are the fields that we would like and can do without, and what the
// user loses.
var optional = map[string]string{
	"return_token_ids": "no token ids, so the file cannot be trained on",
	"logprobs":         "no log-probs are recorded",
	"seed":             "its replies cannot be repeated",
}

// neutral reports that a field is of our adding and changes nothing where the
// server has no default of its own; one that does not know it has none.
func (b *body) neutral(field string) bool {
	s := b.sampling
	switch field {
	case "repetition_penalty":
		return s.Neutral
	case "min_p":
		return s.Neutral && s.MinP == 0
	case "top_k":
		return s.TopK < 0
	case "top_p":
		return s.TopP == 1
	case "temperature":
		return s.Temperature != nil && *s.Temperature == 1
	}
	return false
}

// asked are the fields that the user set; a server that refuses one refuses
// the run, and the flag is named.
var asked = map[string]string{
	"top_k": "--top-k", "min_p": "--min-p", "temperature": "--temperature", "top_p": "--top-p", "stop_token_ids": "--stop-ids",
	"stop": "--stop",
}

// fields are the top-level fields that go-openai lacks or leaves out.
func (c *Client) fields(b *body) map[string]json.RawMessage {
	f := map[string]json.RawMessage{"messages": b.messages}
	set := func(name string, v any) {
		raw, err := json.Marshal(v)
		if err == nil {
			f[name] = raw
		}
	}
	s := b.sampling
	if s.Temperature != nil && c.has("temperature") {
		set("temperature", *s.Temperature)
	}
	if s.TopP != 0 && c.has("top_p") {
		set("top_p", s.TopP)
	}
	if s.TopK > 0 || s.TopK < 0 && c.has("top_k") {
		set("top_k", s.TopK)
	}
	if s.MinP > 0 || s.Neutral && c.has("min_p") {
		set("min_p", s.MinP)
	}
	if s.Neutral && c.has("repetition_penalty") {
		set("repetition_penalty", 1)
	}
	if len(s.Stop) > 0 {
		set("stop", s.Stop)
	}
	if len(s.StopIDs) > 0 {
		set("stop_token_ids", s.StopIDs)
	}
	limit := s.MaxTokens
	if b.clamp > 0 && (limit == 0 || b.clamp < limit) {
		limit = b.clamp
	}
	if limit > 0 {
		if c.has("max_tokens") {
			set("max_tokens", limit)
		} else {
			set("max_completion_tokens", limit)
		}
	}
	if c.has("seed") {
		set("seed", (b.seed^b.seed>>32)&math.MaxInt32)
	}
	if c.c.WantIDs {
		if c.has("return_token_ids") {
			set("return_token_ids", true)
		}
		if c.has("logprobs") {
			set("logprobs", true)
		}
	}
	if b.cont {
		set("continue_final_message", true)
		set("add_generation_prompt", false)
	}
	return f
}

// extras is what go-openai does not decode.
type extras struct {
	PromptTokenIDs []int32 `json:"prompt_token_ids"`
	Choices        []struct {
		TokenIDs       []int32 `json:"token_ids"`
		PromptTokenIDs []int32 `json:"prompt_token_ids"`
		Message        struct {
			Reasoning        string `json:"reasoning"`
			ReasoningContent string `json:"reasoning_content"`
		} `json:"message"`
		Logprobs *struct {
			Content []struct {
				Logprob *float64 `json:"logprob"`
			} `json:"content"`
		} `json:"logprobs"`
	} `json:"choices"`
}

func (c *Client) response(req *traj.Request, reply *openai.ChatCompletionResponse, x *exchange) (*traj.Response, *failure) {
	if len(reply.Choices) == 0 {
		return nil, &failure{err: traj.Mark(fmt.Errorf("%s answered without choices: %s", c.c.BaseURL, excerpt(x.body)), errNoReply), retry: true}
	}
	choice := &reply.Choices[0]
	if choice.FinishReason == "abort" || choice.FinishReason == "error" {
		return nil, &failure{err: traj.Mark(fmt.Errorf("%s broke the reply off (finish_reason %s)", c.c.BaseURL, choice.FinishReason), errNoReply), retry: true}
	}
	var ex extras
	if err := json.Unmarshal(x.body, &ex); err != nil {
		return nil, &failure{err: traj.Mark(fmt.Errorf("%s answered with a field of the wrong type: %s", c.c.BaseURL, oneLine(err.Error())), errNoReply)}
	}
	r := &traj.Response{
		Message:      traj.Message{Role: traj.RoleAssistant, Content: choice.Message.Content},
		FinishReason: string(choice.FinishReason),
		PromptTokens: reply.Usage.PromptTokens,
		OutputTokens: reply.Usage.CompletionTokens,
		Policy:       c.c.Model,
	}
	if len(choice.Message.MultiContent) > 0 { // content as a list of parts
		var text strings.Builder
		for _, p := range choice.Message.MultiContent {
			text.WriteString(p.Text)
		}
		r.Message.Content = text.String()
	}
	e := &ex.Choices[0]
	r.Message.Reasoning = e.Message.Reasoning
	if r.Message.Reasoning == "" {
		r.Message.Reasoning = e.Message.ReasoningContent
	}
	switch {
	case len(choice.Message.ToolCalls) > 0:
		for _, call := range choice.Message.ToolCalls {
			r.Message.ToolCalls = append(r.Message.ToolCalls,
				traj.ToolCall{ID: call.ID, Name: call.Function.Name, Arguments: call.Function.Arguments})
		}
	case c.c.Parse != nil:
		m, errs := c.c.Parse(r.Message.Content)
		if r.Message.Reasoning != "" && m.Reasoning == "" {
			m.Reasoning = r.Message.Reasoning
		}
		m.Role = traj.RoleAssistant
		r.Message, r.CallErrors = m, errs
		if len(m.ToolCalls) > 0 && r.FinishReason == traj.FinishStop {
			r.FinishReason = traj.FinishToolCalls
		}
	}
	if r.FinishReason == "function_call" {
		r.FinishReason = traj.FinishToolCalls
	}
	c.tokens(r, &ex)
	return r, nil
}

// tokens takes over ids and log-probs, as far as they fit together.
func (c *Client) tokens(r *traj.Response, ex *extras) {
	e := &ex.Choices[0]
	prompt := ex.PromptTokenIDs
	if len(prompt) == 0 {
		prompt = e.PromptTokenIDs
	}
	if len(prompt) == 0 || len(e.TokenIDs) == 0 {
		return
	}
	r.PromptIDs, r.SampledIDs = prompt, e.TokenIDs
	r.PromptTokens, r.OutputTokens = len(prompt), len(e.TokenIDs)
	if e.Logprobs == nil {
		return
	}
	// Some servers give no number for the end-of-turn token.
	n := len(e.Logprobs.Content)
	if n != len(r.SampledIDs) && n != len(r.SampledIDs)-1 {
		if n > 0 {
			c.drop("aligned logprobs", fmt.Sprintf("it sent %d numbers for %d tokens; they are left out", n, len(r.SampledIDs)))
		}
		return
	}
	r.Logprobs = make([]traj.Logprob, len(r.SampledIDs))
	for i := range r.Logprobs {
		r.Logprobs[i] = traj.NoLogprob()
		if i < n && e.Logprobs.Content[i].Logprob != nil {
			r.Logprobs[i] = traj.Logprob(*e.Logprobs.Content[i].Logprob)
		}
	}
}
