package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"agentcli/grammar"
	"agentcli/policy"
	"agentcli/traj"
)

// completionRequest is one to /v1/completions.
type completionRequest struct {
	drawing
	Model      string          `json:"model"`
	Prompt     json.RawMessage `json:"prompt"`
	Logprobs   *int            `json:"logprobs"`
	Echo       bool            `json:"echo"`
	AddSpecial *bool           `json:"add_special_tokens"`
}

const maxPrompts = 1024 // of a request

// prompts are the ids of the prompts: a text, ids, or a list of either.
func (s *openAI) prompts(raw json.RawMessage, addSpecial bool) ([][]int32, error) {
	var one string
	var many []string
	var ids []int32
	var lists [][]int32
	encode := func(text string) []int32 { return s.facts.Tokenizer.Encode(text, addSpecial) }
	switch {
	case isNull(raw):
		return nil, bad("prompt", "there is no prompt")
	case json.Unmarshal(raw, &one) == nil:
		return [][]int32{encode(one)}, nil
	case json.Unmarshal(raw, &ids) == nil && len(ids) > 0:
		return [][]int32{ids}, nil
	case json.Unmarshal(raw, &many) == nil:
		if len(many) > maxPrompts {
			break
		}
		for _, text := range many {
			lists = append(lists, encode(text))
		}
	case json.Unmarshal(raw, &lists) != nil:
		return nil, bad("prompt", "the prompt is neither a text nor ids, nor a list of either")
	}
	if n := max(len(many), len(lists)); n == 0 || n > maxPrompts {
		return nil, bad("prompt", "there are %d prompts; a request has 1 to %d", n, maxPrompts)
	}
	return lists, nil
}

// completions answers POST /v1/completions.
func (s *openAI) completions(w http.ResponseWriter, r *http.Request) error {
	var c completionRequest
	if err := read(w, r, &c); err != nil {
		return err
	}
	if err := cmp.Or(checkDrawing(s.server, &c.drawing), named(s.server, c.Model, &c.drawing), checkExperts(s.server, c.Routed)); err != nil {
		return err
	}
	if c.Logprobs != nil && (*c.Logprobs < 0 || *c.Logprobs > maxTop) {
		return bad("logprobs", "logprobs is %d; it is between 0 and %d", *c.Logprobs, maxTop)
	}
	if c.MaxTokens == nil { // OpenAI's and vLLM's default
		n := 16
		c.MaxTokens = &n
	}
	if *c.MaxTokens == 0 && !c.Echo {
		return bad("max_tokens", "max_tokens is 0; nothing is drawn without echo")
	}
	form, err := c.grammarOf()
	if err != nil {
		return err
	}
	prompts, err := s.prompts(c.Prompt, c.AddSpecial == nil || *c.AddSpecial)
	if err != nil {
		return err
	}
	ctx, release := s.entitled(r.Context(), c.RequestID)
	defer release()
	a := &completionAnswer{s: s, c: &c, form: form, id: "cmpl-" + random(), created: time.Now().Unix(),
		choices: make([]map[string]any, len(prompts)*c.choices())}
	if c.Stream {
		a.events = newEvents(w)
	}
	err = inParallel(ctx, len(a.choices), func(ctx context.Context, i int) error {
		return a.draw(ctx, c.truncated(prompts[i/c.choices()], s.facts.MaxContext), i)
	})
	total := usage(a.read, a.drawn, a.cached)
	if n := seen(w); n != nil {
		n.prompt, n.drawn = a.read, a.drawn
	}
	if c.Stream {
		if err == nil && c.StreamOpts != nil && c.StreamOpts.Usage {
			_ = a.events.send(a.body([]map[string]any{}, total))
		}
		return a.events.end(err)
	}
	if err != nil {
		return err
	}
	out := a.body(a.choices, total)
	versions(out, a.tokens, versionOf(s.server, &c.drawing))
	return answer(w, out)
}

type completionAnswer struct {
	s       *openAI
	c       *completionRequest
	id      string
	created int64
	form    *grammar.Grammar
	events  *events // nil: in one piece

	mu                  sync.Mutex
	choices             []map[string]any
	tokens              []policy.Token // of the first choice
	read, drawn, cached int            // tokens; each prompt counts once
}

func (a *completionAnswer) body(choices []map[string]any, usage map[string]any) map[string]any {
	return map[string]any{"id": a.id, "object": "text_completion", "created": a.created, "model": nameOf(a.s.server, &a.c.drawing),
		"choices": choices, "usage": usage}
}

// draw draws choice i.
func (a *completionAnswer) draw(ctx context.Context, prompt []int32, i int) error {
	k, top, echo := i%a.c.choices(), 0, []policy.Token(nil)
	if a.c.Logprobs != nil {
		top = *a.c.Logprobs
	}
	r := a.c.request(policy.Sequence{IDs: prompt}, k, top)
	r.Grammar = a.s.matcher(a.form)
	var err error
	if a.c.Echo {
		if echo, err = a.s.echoed(ctx, prompt, a.c); err != nil {
			return err
		}
	}
	choice := map[string]any{"index": i, "logprobs": nil}
	reply := &policy.Reply{Output: traj.Completion{FinishReason: traj.FinishLength}}
	words, before, told, at := a.s.writing(&a.c.drawing, a.c.skips()), "", false, 0
	if a.c.Echo {
		before = a.s.facts.Tokenizer.Decode(prompt, a.c.skips())
	}
	each := func(tokens []policy.Token) error {
		var added strings.Builder
		for _, t := range tokens {
			added.WriteString(words.add(t.ID))
		}
		piece := a.piece(i, added.String(), tokens, false, &at)
		if a.c.ReturnIDs && !told {
			piece["prompt_token_ids"] = prompt
		}
		told = true
		e := a.body([]map[string]any{piece}, nil)
		versions(e, tokens, tokens[0].Version)
		return a.events.send(e)
	}
	if a.events == nil {
		each = nil
	} else if a.c.Echo {
		piece := a.piece(i, before, echo, true, &at)
		if err := a.events.send(a.body([]map[string]any{piece}, nil)); err != nil {
			return err
		}
	}
	if *a.c.MaxTokens > 0 {
		if reply, err = a.s.ask(ctx, r, each); err != nil {
			return err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if k == 0 {
		a.read += len(prompt)
		a.cached += reply.Cached
	}
	if i == 0 {
		a.tokens = reply.Tokens
	}
	a.drawn += len(reply.IDs)
	choice["finish_reason"], choice["stop_reason"] = reply.FinishReason, stopReason(&reply.Output, &a.c.drawing)
	addExperts(choice, a.c.Routed, reply.Experts)
	if a.events != nil {
		choice["text"] = words.rest()
		return a.events.send(a.body([]map[string]any{choice}, nil))
	}
	choice["text"] = before + a.s.whole(&a.c.drawing, reply.IDs)
	if a.c.Logprobs != nil {
		choice["logprobs"] = a.logprobs(append(echo, reply.Tokens...), len(echo) > 0, &at)
	}
	if a.c.ReturnIDs {
		choice["prompt_token_ids"], choice["token_ids"] = prompt, reply.IDs
	}
	if reply.Prompt != nil {
		choice["prompt_logprobs"] = a.s.promptLogprobs(reply.Prompt)
	}
	a.choices[i] = choice
	return nil
}

// echoed are the prompt's tokens, with log-probs where they are asked for.
func (s *openAI) echoed(ctx context.Context, prompt []int32, c *completionRequest) ([]policy.Token, error) {
	if c.Logprobs == nil {
		return nil, nil
	}
	return s.engine.Score(ctx, &policy.Request{Prompt: policy.Sequence{IDs: prompt}, PromptTop: *c.Logprobs, Adapter: c.adapterName()})
}

func (a *completionAnswer) piece(i int, text string, tokens []policy.Token, fromStart bool, at *int) map[string]any {
	piece := map[string]any{"index": i, "text": text, "logprobs": nil, "finish_reason": nil}
	if a.c.Logprobs != nil {
		piece["logprobs"] = a.logprobs(tokens, fromStart, at)
	}
	if a.c.ReturnIDs {
		piece["token_ids"] = idsOf(tokens)
	}
	return piece
}

// logprobs are those of tokens, in the form of OpenAI's older API; the first of a prompt has
// none. at is how many characters come before.
func (a *completionAnswer) logprobs(tokens []policy.Token, fromStart bool, at *int) map[string]any {
	texts, lps, tops, offsets := []string{}, []any{}, []any{}, []int{}
	for i, t := range tokens {
		texts, offsets = append(texts, a.s.piece(t.ID, a.c.TokensAsIDs)), append(offsets, *at)
		*at += utf8.RuneCountInString(a.s.piece(t.ID, false))
		if i == 0 && fromStart {
			lps, tops = append(lps, nil), append(tops, nil)
			continue
		}
		best := map[string]float64{texts[i]: logprob(t.Logprob)}
		for _, x := range t.Top {
			if name := a.s.piece(x.ID, a.c.TokensAsIDs); x.ID == t.ID || name != texts[i] {
				best[name] = logprob(x.Logprob)
			}
		}
		lps, tops = append(lps, logprob(t.Logprob)), append(tops, best)
	}
	return map[string]any{"tokens": texts, "token_logprobs": lps, "top_logprobs": tops, "text_offset": offsets}
}
