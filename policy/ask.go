//go:build libtorch

package policy

import (
	"context"
	"errors"
	"fmt"
	"math"

	"agentcli/internal/torch"
	"agentcli/model/chat"
	"agentcli/traj"
)

// Engine is a policy that serves many requests at once. It is safe for concurrent use.
type Engine struct{ p *Policy }

// EngineOf gives a policy's.
func EngineOf(p *Policy) *Engine { return &Engine{p} }

// Close ends the policy; requests that wait get an error.
func (e *Engine) Close() error { return e.p.Close() }

// Facts says what the model is.
func (e *Engine) Facts() Facts {
	return Facts{Tokenizer: e.p.tok, EndIDs: endIDs(e.p), VocabSize: e.p.model.VocabSize, MaxContext: e.p.cfg.MaxContext,
		Barred: e.p.model.Barred}
}

// endIDs are the ids that end a reply unless a request ignores them.
func endIDs(p *Policy) []int32 {
	out := p.model.EOS
	if p.renderer != nil {
		out = append(out[:len(out):len(out)], p.renderer.StopIDs()...)
	}
	return out
}

// Version is that of the weights.
func (e *Engine) Version() int64 { return e.p.version.Load() }

// Ask draws a continuation. Requests are computed together; what is drawn for one does not
// depend on the others.
func (e *Engine) Ask(ctx context.Context, r *Request) (*Reply, error) {
	room, err := room(e.p, r.Prompt)
	if err != nil {
		return nil, err
	}
	var prompt []Token
	if r.PromptLogprobs {
		if prompt, err = e.promptTokens(ctx, r); err != nil {
			return nil, err
		}
	}
	out, err := e.p.sched.submit(ctx, newSequence(ctx, e.p, r, room))
	if err != nil {
		return nil, err
	}
	out.Prompt = prompt
	return out, nil
}

// room is how many tokens may follow a prompt, or why none can.
func room(p *Policy, prompt Sequence) (int, error) {
	ids := prompt.IDs
	if len(ids) == 0 {
		return 0, errors.New("the prompt is empty: there is nothing to continue")
	}
	room := p.cfg.MaxContext - len(ids)
	if room < 1 {
		return 0, fmt.Errorf("%w: %d tokens, the model's window is %d", traj.ErrPromptTooLong, len(ids), p.cfg.MaxContext)
	}
	return room, checkIDs(p, prompt)
}

// checkIDs holds a prompt's ids and images to the model.
func checkIDs(p *Policy, prompt Sequence) error {
	for _, id := range prompt.IDs {
		if id < 0 || int(id) >= p.model.VocabSize {
			return fmt.Errorf("token id %d is outside the vocabulary of %d", id, p.model.VocabSize)
		}
	}
	return checkImages(prompt.IDs, prompt.Images, p.model.Vision)
}

// Score is the log-prob of each id of a request's prompt but the first at temperature 1, with the PromptTop most
// probable ones in its place. Of the request it reads Prompt, PromptTop and Adapter.
func (e *Engine) Score(ctx context.Context, r *Request) ([]Token, error) {
	if err := checkIDs(e.p, r.Prompt); err != nil {
		return nil, err
	}
	if n := len(r.Prompt.IDs); n > e.p.cfg.MaxContext {
		return nil, fmt.Errorf("%w: %d tokens, the model's window is %d", traj.ErrPromptTooLong, n, e.p.cfg.MaxContext)
	}
	return e.promptTokens(ctx, r)
}

func (e *Engine) promptTokens(ctx context.Context, r *Request) ([]Token, error) {
	p, prompt, ids, top, version := e.p, r.Prompt, r.Prompt.IDs, r.PromptTop, e.p.version.Load()
	out := make([]Token, len(ids))
	for i, id := range ids {
		out[i] = Token{ID: id, Version: version}
	}
	if len(ids) < 2 {
		return out, nil
	}
	if top == 0 && r.Adapter == "" {
		lps, err := p.LogprobsSequence(ctx, prompt)
		for i := range lps {
			out[i+1].Logprob = traj.Logprob(lps[i])
		}
		return out, err
	}
	return out, p.worker.Do(func(s *torch.Scope) error {
		pack := newPack([][]int32{ids}, [][]Image{prompt.Images}, p.model.Vision.MergeSide())
		f, err := p.features.all(s, p.net, pack.images)
		if err != nil {
			return err
		}
		p.sched.mu.Lock()
		a, err := findAdapter(p.sched, r.Adapter) // no adapter is freed while the worker is busy here
		p.sched.mu.Unlock()
		if err != nil {
			return err
		}
		n := p.net
		if a != nil {
			n = withAdapters(n, []rowSpan{{a, 0, int64(len(pack.IDs))}}, []rowSpan{{a, 0, int64(len(ids) - 1)}})
			for i := range out {
				out[i].Version = a.Version
			}
		}
		h := n.hidden(s, inputOf(pack, f), n.tree(s, pack), pack.Rows(0, 0, len(ids)-1))
		const chunk = 512 // rows whose logits are here at once
		for from := 0; from < len(ids)-1; from += chunk {
			if err := ctx.Err(); err != nil {
				return err
			}
			count := min(chunk, len(ids)-1-from)
			c := s.Child()
			rows := c.Float32s(c.To(n.logits(c, c.Narrow(h, 0, int64(from), int64(count))), torch.Float32, torch.CPU))
			c.Close()
			if err := s.Err(); err != nil || len(rows) == 0 {
				return err
			}
			vocab := len(rows) / count
			for k := range count {
				row, t := rows[k*vocab:(k+1)*vocab], &out[from+k+1]
				norm := logSum(row, 1)
				t.Logprob, t.Top = traj.Logprob(float64(row[t.ID])-norm), topOf(row, top, 1, norm)
				if math.IsNaN(norm) {
					return fmt.Errorf("the model's logits at token %d are not finite", from+k)
				}
			}
		}
		return nil
	})
}

// Place is a prompt with its images as the encoder takes them; release lets them go.
func (e *Engine) Place(prompt []int32, images []traj.Image, spans []traj.ImageSpan) (Sequence, func(), error) {
	p := e.p
	if len(spans) == 0 {
		return Sequence{IDs: prompt}, func() {}, nil
	}
	if p.images == nil {
		return Sequence{}, nil, p.noImages
	}
	placed, err := ImagesOf(p.images, images, spans)
	if err != nil {
		return Sequence{}, nil, err
	}
	placed, release := p.patches.hold(placed, func(k imageKey) bool { _, ok := p.features.known.Load(k); return ok })
	return Sequence{IDs: prompt, Images: placed}, release, nil
}

// Exact makes ids of conversations and messages of ids, and says why where the model has no
// chat format. Its sampler is the policy.
func (e *Engine) Exact() (chat.Exact, error) {
	_, err := e.p.Renderer()
	return e.p.exact, err
}
