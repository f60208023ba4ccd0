package serve

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"agentcli/datasets"
	"agentcli/grammar"
	"agentcli/internal/safego"
	"agentcli/model/chat"
	"agentcli/policy"
	"agentcli/traj"
)

// openAI answers the requests of OpenAI's API.
type openAI struct{ *server }

// chatRequest is one to /v1/chat/completions.
type chatRequest struct {
	drawing
	Model      string          `json:"model"`
	Messages   []wireMessage   `json:"messages"`
	Tools      []wireTool      `json:"tools"`
	ToolChoice json.RawMessage `json:"tool_choice"`
	Parallel   *bool           `json:"parallel_tool_calls"`
	Logprobs   bool            `json:"logprobs"`
	Top        *int            `json:"top_logprobs"`
	MaxNew     *int            `json:"max_completion_tokens"`
	Continue   bool            `json:"continue_final_message"`
	Generation *bool           `json:"add_generation_prompt"`
	Kwargs     struct {
		Thinking *bool `json:"enable_thinking"`
	} `json:"chat_template_kwargs"`

	mustCall bool   // tool_choice asks for calls
	onlyCall string // of one tool
}

// wireMessage is a message of OpenAI's API, with reasoning as vLLM and others have it.
type wireMessage struct {
	Role             string          `json:"role"`
	Content          json.RawMessage `json:"content"`
	Name             string          `json:"name"`
	ToolCallID       string          `json:"tool_call_id"`
	Reasoning        string          `json:"reasoning"`
	ReasoningContent string          `json:"reasoning_content"`
	ToolCalls        []wireCall      `json:"tool_calls"`
}

type wireCall struct {
	Index    *int         `json:"index,omitempty"`
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function wireFunction `json:"function"`
}

type wireFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type wireTool struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"function"`
}

var errFiles = errors.New("a request's images come in it, as data URIs; this server opens no file and no address")

// message reads one of a request.
func (m *wireMessage) message() (out traj.Message, err error) {
	if m.Role == "" {
		return out, errors.New("it has no role")
	}
	out = traj.Message{Role: m.Role, Name: m.Name, ToolCallID: m.ToolCallID, Reasoning: m.Reasoning}
	if m.Role == "developer" {
		out.Role = traj.RoleSystem
	}
	if out.Reasoning == "" {
		out.Reasoning = m.ReasoningContent
	}
	for _, c := range m.ToolCalls {
		out.ToolCalls = append(out.ToolCalls, traj.ToolCall{ID: c.ID, Name: c.Function.Name, Arguments: c.Function.Arguments})
	}
	var parts []any
	switch {
	case isNull(m.Content):
	case json.Unmarshal(m.Content, &out.Content) == nil:
		if strings.Contains(out.Content, traj.ImageMark) { // it would stand for an image
			out.Content = strings.ReplaceAll(out.Content, traj.ImageMark, "\uFFFD")
		}
	case json.Unmarshal(m.Content, &parts) == nil:
		out.Content, out.Images, err = datasets.ReadParts(parts, func(string) ([]byte, error) { return nil, errFiles })
	default:
		err = bad("messages", "a message's content is neither a text nor a list of parts")
	}
	return out, err
}

// conversation makes the engine's request of a chat request.
func (c *chatRequest) conversation() (*traj.Request, error) {
	if len(c.Messages) == 0 {
		return nil, bad("messages", "there are no messages")
	}
	r := &traj.Request{Continue: c.Continue, Sampling: c.sampling()}
	if c.Generation != nil && *c.Generation == c.Continue {
		return nil, bad("add_generation_prompt", "either the last message is continued, or a new one is begun")
	}
	for i := range c.Messages {
		m, err := c.Messages[i].message()
		if err != nil {
			return nil, bad("messages", "message %d: %v", i+1, err)
		}
		r.Messages = append(r.Messages, m)
	}
	var choice string
	switch {
	case isNull(c.ToolChoice), json.Unmarshal(c.ToolChoice, &choice) == nil && choice == "auto":
	case choice == "none":
		return r, nil
	case choice == "required":
		if len(c.Tools) == 0 {
			return nil, bad("tool_choice", "tool_choice is required, and there are no tools")
		}
		c.mustCall = true
	default:
		var named struct {
			Type     string `json:"type"`
			Function struct {
				Name string `json:"name"`
			} `json:"function"`
		}
		if json.Unmarshal(c.ToolChoice, &named) != nil || named.Type != "function" || named.Function.Name == "" {
			return nil, bad("tool_choice", "tool_choice is %s; it is none, auto, required, or a function with its name", c.ToolChoice)
		}
		c.mustCall, c.onlyCall = true, named.Function.Name
	}
	for i, t := range c.Tools {
		if t.Type != "function" || t.Function.Name == "" {
			return nil, bad("tools", "tool %d is no function with a name", i+1)
		}
		r.Tools = append(r.Tools, traj.ToolSpec{Name: t.Function.Name, Description: t.Function.Description, Parameters: t.Function.Parameters})
	}
	return r, nil
}

// chat answers POST /v1/chat/completions.
func (s *openAI) chat(w http.ResponseWriter, r *http.Request) error {
	var c chatRequest
	if err := read(w, r, &c); err != nil {
		return err
	}
	if s.noChat != nil {
		return refuse(http.StatusBadRequest, "", "%v; POST /v1/completions takes ids and texts", s.noChat)
	}
	if c.MaxNew != nil {
		c.MaxTokens = c.MaxNew
	}
	top := 0
	if c.Top != nil {
		if top = *c.Top; !c.Logprobs || top < 0 || top > maxTop {
			return bad("top_logprobs", "top_logprobs is %d; it is between 0 and %d, beside logprobs: true", top, maxTop)
		}
	}
	if err := cmp.Or(checkDrawing(s.server, &c.drawing), named(s.server, c.Model, &c.drawing), checkExperts(s.server, c.Routed)); err != nil {
		return err
	}
	req, err := c.conversation()
	if err != nil {
		return err
	}
	if c.MaxTokens != nil && *c.MaxTokens == 0 {
		return bad("max_tokens", "max_tokens is 0; there would be no reply")
	}
	if c.Truncate != nil {
		return bad("truncate_prompt_tokens", "a conversation cannot be cut anywhere; leave truncate_prompt_tokens out")
	}
	form, err := s.form(&c, req.Tools)
	if err != nil {
		return err
	}
	ctx, release := s.entitled(r.Context(), c.RequestID)
	defer release()
	a := &chatAnswer{s: s, c: &c, form: form, id: "chatcmpl-" + random(), created: time.Now().Unix(), top: top,
		choices: make([]map[string]any, c.choices()), seen: seen(w)}
	if c.Stream {
		a.events = newEvents(w)
	}
	err = inParallel(ctx, c.choices(), func(ctx context.Context, k int) error { return a.draw(ctx, req, k) })
	used := a.usage()
	if c.Stream {
		if err == nil && c.StreamOpts != nil && c.StreamOpts.Usage {
			_ = a.events.send(a.body("chat.completion.chunk", []map[string]any{}, used))
		}
		return a.events.end(err)
	}
	if err != nil {
		return err
	}
	out := a.body("chat.completion", a.choices, used)
	if c.ReturnIDs {
		out["prompt_token_ids"] = a.promptIDs
	}
	if a.prompt != nil {
		out["prompt_logprobs"] = s.promptLogprobs(a.prompt)
	}
	versions(out, a.tokens, versionOf(s.server, &c.drawing))
	return answer(w, out)
}

// inParallel calls f for each of n choices, and gives the first error.
func inParallel(ctx context.Context, n int, f func(ctx context.Context, k int) error) error {
	if n == 1 {
		return f(ctx, 0)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	errs := make([]error, n)
	for k := range n {
		wg.Go(func() {
			defer safego.Into(&errs[k])
			if errs[k] = f(ctx, k); errs[k] != nil {
				cancel(errs[k])
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(errs...)
}

// random are 24 hexadecimal digits.
func random() string {
	b := make([]byte, 12)
	_, _ = crand.Read(b) // never fails
	return hex.EncodeToString(b)
}

func seen(w http.ResponseWriter) *counted {
	c, _ := w.(*counted)
	return c
}

// chatAnswer is the answer to one request, whose choices are drawn beside each other.
type chatAnswer struct {
	s       *openAI
	c       *chatRequest
	id      string
	created int64
	top     int
	form    *grammar.Grammar
	events  *events // nil: in one piece
	seen    *counted

	mu        sync.Mutex
	choices   []map[string]any
	promptIDs []int32
	prompt    []policy.Token
	tokens    []policy.Token // of the first choice
	cached    int
	drawn     int
}

func (a *chatAnswer) body(object string, choices any, usage map[string]any) map[string]any {
	return map[string]any{"id": a.id, "object": object, "created": a.created, "model": nameOf(a.s.server, &a.c.drawing), "choices": choices,
		"usage": usage}
}

func (a *chatAnswer) usage() map[string]any {
	if a.seen != nil {
		a.seen.prompt, a.seen.drawn = len(a.promptIDs), a.drawn
	}
	return usage(len(a.promptIDs), a.drawn, a.cached)
}

func usage(prompt, drawn, cached int) map[string]any {
	return map[string]any{"prompt_tokens": prompt, "completion_tokens": drawn, "total_tokens": prompt + drawn,
		"prompt_tokens_details": map[string]int{"cached_tokens": cached}}
}

// draw draws choice k. The conversation becomes ids, and the reply a message, as in a run of
// the engine's own.
func (a *chatAnswer) draw(ctx context.Context, req *traj.Request, k int) error {
	e, own := a.s.exact, *req
	one := &sampler{a: a, k: k, exact: &e, req: &own}
	e.Sampler, e.EnableThinking, e.AsStreamed = one, a.c.Kwargs.Thinking, true
	resp, err := e.Generate(ctx, &own)
	if err != nil {
		return err
	}
	var reasoning, content string
	if a.events != nil || len(resp.CallErrors) > 0 {
		reasoning, content = one.end()
	}
	if len(resp.CallErrors) > 0 {
		resp.Raw = one.stream.Text() // with all calls, and without the reasoning before them
	}
	message, finish := messageOf(resp, a.c.mustCall)
	choice := map[string]any{"index": k, "finish_reason": finish, "stop_reason": stopReason(&one.reply.Output, &a.c.drawing)}
	addExperts(choice, a.c.Routed, one.reply.Experts)
	if a.events != nil {
		return one.last(choice, message, reasoning, content)
	}
	choice["message"], choice["logprobs"] = message, a.logprobs(one.reply.Tokens)
	if a.c.ReturnIDs {
		choice["token_ids"] = one.reply.IDs
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.choices[k] = choice
	return nil
}

// messageOf is a reply as OpenAI's API has it. Calls that cannot be read stay text; of a reply
// that must be calls and was cut off, those that are whole are calls, and the rest is left out.
func messageOf(r *traj.Response, mustCall bool) (message map[string]any, finish string) {
	m, finish := r.Message, r.FinishReason
	message = map[string]any{"role": "assistant", "content": m.Content}
	if m.Reasoning != "" {
		message["reasoning"], message["reasoning_content"] = m.Reasoning, m.Reasoning
	}
	cut := mustCall && finish == traj.FinishLength && len(m.ToolCalls) > 0
	switch {
	case cut:
		message["content"] = ""
	case len(r.CallErrors) > 0:
		message["content"] = r.Raw
		return message, finish
	}
	var calls []wireCall
	for _, c := range m.ToolCalls {
		calls = append(calls, wireCall{ID: "call_" + random(), Type: "function", Function: wireFunction{c.Name, c.Arguments}})
	}
	if calls != nil {
		message["tool_calls"] = calls
		if finish == traj.FinishStop {
			finish = traj.FinishToolCalls
		}
	}
	return message, finish
}

// logprobs are those of tokens, in OpenAI's form; nil: they were not asked for.
func (a *chatAnswer) logprobs(tokens []policy.Token) any {
	if !a.c.Logprobs {
		return nil
	}
	entry := func(id int32, lp traj.Logprob) map[string]any {
		return map[string]any{"token": a.s.piece(id, a.c.TokensAsIDs), "logprob": logprob(lp),
			"bytes": bytesOf(string(a.s.facts.Tokenizer.Bytes(id)))}
	}
	content := make([]any, len(tokens))
	for i, t := range tokens {
		e, best := entry(t.ID, t.Logprob), make([]any, len(t.Top))
		for k, x := range t.Top {
			best[k] = entry(x.ID, x.Logprob)
		}
		e["top_logprobs"] = best
		content[i] = e
	}
	return map[string]any{"content": content}
}

// sampler draws one choice for chat.Exact.
type sampler struct {
	a      *chatAnswer
	k      int
	exact  *chat.Exact
	req    *traj.Request
	prompt []int32
	reply  *policy.Reply
	text   *writing
	stream *chat.Stream
}

// Sample implements chat.Sampler.
func (x *sampler) Sample(ctx context.Context, prompt []int32, _ traj.Sampling, _ int64) (*traj.Completion, error) {
	return x.SampleImages(ctx, prompt, nil, nil, traj.Sampling{}, 0)
}

// SampleImages implements chat.ImageSampler. How it is drawn the request says.
func (x *sampler) SampleImages(ctx context.Context, prompt []int32, images []traj.Image, spans []traj.ImageSpan, _ traj.Sampling, _ int64) (
	*traj.Completion, error) {
	a := x.a
	placed, release, err := a.s.engine.Place(prompt, images, spans)
	if err != nil {
		return nil, err
	}
	defer release()
	r := a.c.request(placed, x.k, a.top)
	r.Grammar = a.s.matcher(a.form)
	x.prompt = prompt
	a.mu.Lock()
	a.promptIDs = prompt
	a.mu.Unlock()
	var each func([]policy.Token) error
	x.begin(prompt)
	if a.events != nil {
		if err := x.first(); err != nil {
			return nil, err
		}
		each = x.piece
	}
	if x.reply, err = a.s.ask(ctx, r, each); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drawn += len(x.reply.IDs)
	if x.k == 0 {
		a.prompt, a.cached, a.tokens = x.reply.Prompt, x.reply.Cached, x.reply.Tokens
	}
	return &x.reply.Output, nil
}

var _ chat.ImageSampler = (*sampler)(nil)

// begin makes what reads the reply's text.
func (x *sampler) begin(prompt []int32) {
	d := x.a.c.drawing
	d.IncludeStop = false // a message has no stop string
	// The message of a whole reply has its special tokens: families write calls and reasoning with them.
	x.text, x.stream = x.a.s.writing(&d, false), x.exact.Stream(prompt, x.req)
}

// end has the stream read all of the reply, and gives what it had not given.
func (x *sampler) end() (reasoning, content string) {
	if x.a.events == nil { // nothing was read as it came
		for _, id := range x.reply.IDs {
			x.stream.Add(x.text.add(id))
		}
	}
	return x.stream.Add(x.text.rest())
}

func (x *sampler) event(delta map[string]any) (map[string]any, map[string]any) {
	choice := map[string]any{"index": x.k, "delta": delta, "finish_reason": nil}
	return x.a.body("chat.completion.chunk", []map[string]any{choice}, nil), choice
}

func (x *sampler) first() error {
	e, _ := x.event(map[string]any{"role": "assistant", "content": ""})
	if x.a.c.ReturnIDs {
		e["prompt_token_ids"] = x.prompt
	}
	return x.a.events.send(e)
}

// piece sends what some tokens add.
func (x *sampler) piece(tokens []policy.Token) error {
	var added strings.Builder
	for _, t := range tokens {
		added.WriteString(x.text.add(t.ID))
	}
	delta := map[string]any{}
	reasoning, content := x.stream.Add(added.String())
	put(delta, reasoning, content)
	e, choice := x.event(delta)
	if x.a.c.ReturnIDs {
		choice["token_ids"] = idsOf(tokens)
	}
	choice["logprobs"] = x.a.logprobs(tokens)
	versions(e, tokens, tokens[0].Version)
	if len(delta) == 0 && !x.a.c.ReturnIDs && !x.a.c.Logprobs {
		return nil
	}
	return x.a.events.send(e)
}

// put adds text to a delta.
func put(delta map[string]any, reasoning, content string) {
	if reasoning != "" {
		delta["reasoning"], delta["reasoning_content"] = reasoning, reasoning
	}
	if content != "" {
		delta["content"] = content
	}
}

// last sends what was held back, and how the reply ended.
func (x *sampler) last(choice, message map[string]any, reasoning, content string) error {
	delta := map[string]any{}
	var whole traj.Message
	whole.Reasoning, _ = message["reasoning"].(string)
	whole.Content, _ = message["content"].(string)
	r, c := x.stream.Rest(&whole)
	put(delta, reasoning+r, content+c)
	if calls, ok := message["tool_calls"].([]wireCall); ok {
		for i := range calls {
			calls[i].Index = &i
		}
		delta["tool_calls"] = calls
	}
	choice["delta"] = delta
	e := x.a.body("chat.completion.chunk", []map[string]any{choice}, nil)
	return x.a.events.send(e)
}
