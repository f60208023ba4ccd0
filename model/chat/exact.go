package chat

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"

	"agentcli/internal/setting"
	"agentcli/internal/text"
	"agentcli/traj"
)

// Sampler draws one continuation of a prompt of ids: a local model, or a server
// that takes ids and gives ids. It is safe for concurrent use and does not keep
// or change the prompt.
type Sampler interface {
	Sample(ctx context.Context, prompt []int32, s traj.Sampling, seed int64) (*traj.Completion, error)
}

// ImageSampler is a Sampler whose prompts may have images: spans, in order, say which of
// images stands where.
type ImageSampler interface {
	SampleImages(ctx context.Context, prompt []int32, images []traj.Image, spans []traj.ImageSpan, s traj.Sampling, seed int64) (
		*traj.Completion, error)
}

// Exact makes a model of conversations out of a model of tokens. Nothing that was
// sampled is ever made from text again: the next prompt is the ids so far and a
// bridge to the new turn, or the text that goes on with the model's own reply.
// Only where the template rewrites what came before is the whole conversation
// rendered anew. It is safe for concurrent use, and satisfies agent.Model and
// agent.TokenCounter by shape.
type Exact struct {
	Renderer  Renderer
	Tokenizer Tokenizer
	Sampler   Sampler
	// Images expands the places of images; nil: the model takes text alone. Sampler is an
	// ImageSampler then.
	Images *ImagePlaces
	// Parser reads the replies; nil: the renderer does. One that needs the tools
	// shown in the prompt (react, search) shows them. A request's Form takes its place.
	Parser *Parser
	// EnableThinking is what a template is told; nil: its default.
	EnableThinking *bool
	// AsStreamed has replies read by ParseAfter, so that they are what a Stream gives.
	AsStreamed bool

	Policy  string
	Version int64
}

// CountTokens is the number of tokens of a text.
func (e *Exact) CountTokens(s string) int { return len(e.Tokenizer.EncodeOrdinary(s)) }

// Ready waits for a sampler that may be away, as llm.Tokens.
func (e *Exact) Ready(ctx context.Context) error {
	if r, ok := e.Sampler.(interface{ Ready(context.Context) error }); ok {
		return r.Ready(ctx)
	}
	return nil
}

// Generate renders the conversation, has a reply sampled, and reads it.
func (e *Exact) Generate(ctx context.Context, req *traj.Request) (*traj.Response, error) {
	prompt, spans, err := e.Prompt(req)
	if err != nil {
		return nil, err
	}
	if req.MaxPrompt > 0 && len(prompt) > req.MaxPrompt {
		return nil, setting.Errorf("%w: %d tokens, the limit is %d (%s)",
			traj.ErrPromptTooLong, len(prompt), req.MaxPrompt, setting.Name("MaxPromptTokens"))
	}
	c, err := e.sample(ctx, prompt, spans, req)
	if err != nil {
		return nil, err
	}
	if len(c.Logprobs) != 0 && len(c.Logprobs) != len(c.IDs) {
		return nil, fmt.Errorf("the model returned %d log-probs for %d sampled tokens", len(c.Logprobs), len(c.IDs))
	}
	msg, bad, raw := e.read(c, prompt, req)
	resp := &traj.Response{
		Message: msg, CallErrors: bad, Raw: raw, PromptIDs: prompt, Images: spans, SampledIDs: c.IDs, Logprobs: c.Logprobs,
		FinishReason: c.FinishReason, PromptTokens: len(prompt), OutputTokens: len(c.IDs),
		Policy: e.Policy, PolicyVersion: e.Version,
	}
	if len(c.Versions) > 0 {
		resp.PolicyVersion = slices.Min(c.Versions)
	}
	if len(c.Versions) > 1 {
		resp.Versions = c.Versions
	}
	resp.Experts = c.Experts.Head(max(len(prompt)+len(c.IDs)-1, 0)) // ids behind a stop string are gone
	return resp, nil
}

// sample draws the reply.
func (e *Exact) sample(ctx context.Context, prompt []int32, spans []traj.ImageSpan, req *traj.Request) (*traj.Completion, error) {
	how := req.Sampling
	if g := how.Grammar; g != nil && g.Kind == traj.GrammarTools {
		offered := *g
		offered.Tools = req.Tools
		how.Grammar = &offered
	}
	if len(spans) == 0 {
		return e.Sampler.Sample(ctx, prompt, how, req.Seed)
	}
	sampler, ok := e.Sampler.(ImageSampler)
	if !ok {
		return nil, traj.Mark(errNoImages(), traj.ErrFatal)
	}
	return sampler.SampleImages(ctx, prompt, imagesOf(req.Messages), spans, how, req.Seed)
}

// Prompt is the ids of a request's prompt, and which of them stand for the images of its
// messages.
func (e *Exact) Prompt(req *traj.Request) ([]int32, []traj.ImageSpan, error) {
	msgs, tools, known := req.Messages, req.Tools, req.PrefixMessages
	prefix := req.PrefixIDs
	if known > len(msgs) {
		prefix = nil
	}
	if show := e.show(req); show != nil {
		known = len(show(msgs[:min(known, len(msgs))], tools)) // the same messages in other words
		msgs, tools = show(msgs, tools), nil
	}
	opt := Options{AddGenerationPrompt: !req.Continue, ContinueFinal: req.Continue, EnableThinking: e.EnableThinking}
	if len(prefix) > 0 {
		switch {
		case req.Continue && known == len(msgs):
			// A turn that the model has ended is open again, so its end is taken
			// back, and a new sequence begins. A reply that a stop string ended has none.
			open := prefix[:len(prefix):len(prefix)]
			for len(open) > 0 && slices.Contains(e.Renderer.StopIDs(), open[len(open)-1]) {
				open = open[:len(open)-1]
			}
			return append(slices.Clone(open), e.Tokenizer.EncodeOrdinary(req.Inserted)...), req.PrefixImages, nil
		default:
			more := opt
			more.Before, more.Tools = msgs[:known], tools
			if ids, ok := e.Renderer.Bridge(prefix, msgs[known:], more); ok {
				return e.Images.expand(ids, len(prefix), req.PrefixImages, msgs[:known], msgs[known:])
			}
		}
	}
	_, ids, err := e.Renderer.Render(msgs, tools, opt)
	if err != nil {
		return nil, nil, err
	}
	return e.Images.expand(ids, 0, nil, nil, msgs)
}

// Stream reads the reply to a prompt of this request as it comes. The whole is what Generate
// gives with AsStreamed. A form of calls that this package does not know is silent.
func (e *Exact) Stream(prompt []int32, req *traj.Request) *Stream {
	p := e.parser(req)
	if p == nil {
		return silentStream()
	}
	return p.Stream(e.opened(p, prompt, req))
}

// parser reads the replies to a request; nil: it is none of this package.
func (e *Exact) parser(req *traj.Request) *Parser {
	name := ""
	switch form := e.form(req).(type) {
	case *Parser:
		return form
	case nil:
		name = Describe(e.Renderer).Calls
	}
	if p, err := ParserFor(name, nil); err == nil {
		return p
	}
	return nil
}

// tailIDs is how many ids at a prompt's end have a tag of thinking for certain.
const tailIDs = 32

// opened is the tag of the thinking that a prompt leaves open; "": none. A reply that is gone on
// with may have opened it itself.
func (e *Exact) opened(p *Parser, prompt []int32, req *traj.Request) string {
	tail, last := e.tail(prompt), ""
	if n := len(req.Messages); req.Continue && n > 0 && req.Messages[n-1].Role == traj.RoleAssistant {
		last = req.Messages[n-1].Content
	}
	for _, tag := range p.tags() {
		if strings.HasSuffix(tail, tag[0]) || strings.LastIndex(last, tag[0]) > strings.LastIndex(last, tag[1]) {
			return tag[0]
		}
	}
	return ""
}

// tail is the last text of a prompt.
func (e *Exact) tail(prompt []int32) string {
	return strings.TrimSpace(e.Tokenizer.Decode(prompt[max(0, len(prompt)-tailIDs):], false))
}

// form is how calls are written in a conversation; nil: as the renderer does.
func (e *Exact) form(req *traj.Request) traj.Form {
	switch {
	case req.Form != nil:
		return req.Form
	case e.Parser != nil:
		return e.Parser.For(req.Tools)
	case Describe(e.Renderer).ToolsInText != "":
		return (&Parser{format: hermesText}).For(req.Tools)
	}
	return nil
}

func (e *Exact) show(req *traj.Request) func([]traj.Message, []traj.ToolSpec) []traj.Message {
	form := e.form(req)
	if form == nil {
		return nil
	}
	return form.InText()
}

// read makes a message of what was sampled. Tokens behind a stop string, from a
// server that does not look for it or drew several at once, are cut off.
func (e *Exact) read(c *traj.Completion, prompt []int32, req *traj.Request) (traj.Message, []traj.CallError, string) {
	s := &req.Sampling
	visible := c.IDs
	if n := len(visible); c.Ended && n > 0 {
		visible = visible[:n-1]
	}
	for n := len(visible); n > 0 && c.FinishReason == traj.FinishStop && slices.Contains(e.Renderer.StopIDs(), visible[n-1]); n-- {
		visible = visible[:n-1]
	}
	words := e.Tokenizer.Decode(visible, false)
	raw := words
	at, stop := text.FirstOf(words, s.Stop)
	switch {
	case at >= 0:
		if k := e.reach(visible, s.Stop); k < len(c.IDs) {
			c.IDs = c.IDs[:k:k]
			if len(c.Logprobs) > 0 {
				c.Logprobs = c.Logprobs[:k:k]
			}
			words = e.Tokenizer.Decode(c.IDs, false)
			at, stop = text.FirstOf(words, s.Stop)
			raw = words
		}
		c.FinishReason, c.StopString, c.Ended = traj.FinishStop, stop, false
		words = words[:at]
	case c.StopString != "" && c.Text != "": // found where special tokens were left out
		words, raw = c.Text, c.Text+c.StopString
	}
	if e.AsStreamed {
		if p := e.parser(req); p != nil {
			m, bad := p.ParseAfter(e.opened(p, prompt, req), words)
			return m, bad, raw
		}
	}
	// A template that opens the thinking by itself does not where it is told not to think.
	t, ok := e.Renderer.(*templated)
	opened := ok && t.traits.opens != "" && (req.Continue || strings.HasSuffix(e.tail(prompt), t.traits.opens))
	if form := e.form(req); form != nil {
		if opened {
			words = t.opened(words)
		}
		m, bad := form.Parse(words)
		return m, bad, raw
	}
	if c.StopString != "" {
		visible = e.Tokenizer.Encode(words, false)
	}
	if ok && !opened {
		m, bad := ParseReply(t.traits.calls, t.words(visible))
		return m, bad, raw
	}
	m, bad := e.Renderer.Parse(visible)
	return m, bad, raw
}

// reach is how many of the ids it takes until their text has a stop string.
func (e *Exact) reach(ids []int32, stops []string) int {
	return sort.Search(len(ids), func(n int) bool {
		at, _ := text.FirstOf(e.Tokenizer.Decode(ids[:n+1], false), stops)
		return at >= 0
	}) + 1
}

// SplitTokens says how many of a reply's ids have their text wholly within its first at
// bytes, and how many bytes theirs is.
func (e *Exact) SplitTokens(ids []int32, reply string, at int) (tokens, bytes int) {
	return SplitTokens(e.Tokenizer, ids, reply, at)
}

// SplitTokens is that of an Exact with this tokenizer.
func SplitTokens(tok Tokenizer, ids []int32, reply string, at int) (tokens, bytes int) {
	tokens = sort.Search(len(ids), func(n int) bool { return len(tok.Decode(ids[:n+1], false)) > at })
	// An incomplete character is decoded as another one.
	for ; tokens > 0; tokens-- {
		if own := tok.Decode(ids[:tokens], false); len(own) <= at && strings.HasPrefix(reply, own) {
			return tokens, len(own)
		}
	}
	return 0, 0
}
