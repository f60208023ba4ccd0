// Package modelstest has a models.Backend that needs no libtorch. Its models are bigrams in
// float64 with the tokenizer and the chat format of a real folder: they sample, are
// trained, saved and resumed, so that everything around a model can be tested in the pure
// Go build, under the race detector.
package modelstest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"

	"agentcli/agent"
	"agentcli/app/models"
	"agentcli/model/chat"
	"agentcli/policy"
	"agentcli/traj"
)

// Backend opens bigrams.
type Backend struct{}

var _ models.Backend = Backend{}

// Available implements models.Backend.
func (Backend) Available() error { return nil }

// Info implements models.Backend.
func (Backend) Info() (policy.LibtorchInfo, error) {
	return policy.LibtorchInfo{}, policy.ErrNoLibtorch
}

// Memory implements models.Backend.
func (Backend) Memory(string) (policy.Memory, error) {
	return policy.Memory{Free: 8e9, Host: true}, nil
}

// OpenTrainable implements models.Backend. It has no adapters.
func (Backend) OpenTrainable(path string, o models.TrainableOptions) (models.Trainable, error) {
	if o.LoRA.Rank > 0 {
		return nil, errors.New("a bigram has no adapters")
	}
	m, err := open(path, o.Head)
	if err != nil {
		return nil, err // no interface that holds a nil
	}
	if o.DType != "" && o.DType != "auto" {
		m.dtype = o.DType
	}
	return m, nil
}

// OpenPolicy implements models.Backend.
func (Backend) OpenPolicy(_ context.Context, path string, o models.LocalOptions) (agent.Model, models.Source, io.Closer, error) {
	s, err := newSampler(path)
	if err != nil {
		return nil, models.Source{}, nil, err
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		abs = path
	}
	r, err := models.Renderer(path, s.m.tok, o.ChatTemplate)
	if err != nil {
		return nil, models.Source{}, nil, err
	}
	p := &samplingPolicy{sampler: s, path: abs}
	p.exact = chat.Exact{Renderer: r, Tokenizer: s.m.tok, Sampler: s, Policy: abs}
	source := models.Source{Name: abs, Kind: "local", Fingerprint: abs, DType: "float64", TokenizerHash: s.m.TokenizerHash(),
		TemplateHash: models.HashText(s.m.ChatTemplate()), Logprobs: policy.LogprobKind(true, o.Temperature)}
	source.Describe(r)
	return p, source, s, nil
}

// OpenEngine implements models.Backend.
func (Backend) OpenEngine(string, models.LocalOptions) (models.Engine, models.Source, error) {
	return nil, models.Source{}, errors.New("a bigram serves nobody")
}

// OpenSampler implements models.Backend.
func (Backend) OpenSampler(path, _, _ string, _ bool) (models.Sampler, error) {
	s, err := newSampler(path)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Adopt implements models.Backend.
func (Backend) Adopt(to agent.Model, from models.Trainable, version int64) error {
	p, ok := to.(*samplingPolicy)
	m, trains := from.(*model)
	if !ok || !trains {
		return fmt.Errorf("%T takes no weights of %T", to, from)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.m.Logits.X = slices.Clone(m.Logits.X)
	p.exact.Version = version
	return nil
}

// samplingPolicy is a sampler with a chat format, an agent.Model.
type samplingPolicy struct {
	*sampler
	exact chat.Exact
	path  string
}

// Generate implements agent.Model.
func (p *samplingPolicy) Generate(ctx context.Context, req *traj.Request) (*traj.Response, error) {
	p.mu.Lock()
	exact := p.exact
	p.mu.Unlock()
	return exact.Generate(ctx, req)
}

// SplitTokens implements agent.TokenSplitter.
func (p *samplingPolicy) SplitTokens(ids []int32, text string, at int) (tokens, bytes int) {
	return p.exact.SplitTokens(ids, text, at)
}

// CountTokens implements agent.TokenCounter.
func (p *samplingPolicy) CountTokens(text string) int { return p.exact.CountTokens(text) }

// sampler draws from a bigram.
type sampler struct {
	mu sync.Mutex
	m  *model
}

func newSampler(path string) (*sampler, error) {
	m, err := open(path, "")
	if err != nil {
		return nil, err
	}
	return &sampler{m: m}, nil
}

func (s *sampler) row(prev int32, temperature float64) []float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.m.logprobs(prev, temperature)
}

// Sample implements chat.Sampler. The filters top-p, top-k and min-p are not applied.
func (s *sampler) Sample(ctx context.Context, ids []int32, o traj.Sampling, seed int64) (*traj.Completion, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		return nil, errors.New("there is nothing to go on from")
	}
	limit := s.m.Window() - len(ids)
	if limit <= 0 {
		return nil, fmt.Errorf("%w: %d tokens, and the window is %d", traj.ErrPromptTooLong, len(ids), s.m.Window())
	}
	if o.MaxTokens > 0 {
		limit = min(limit, o.MaxTokens)
	}
	renderer, err := s.Renderer()
	if err != nil {
		return nil, err
	}
	stops := slices.Concat(renderer.StopIDs(), o.StopIDs)
	temperature := 1.0
	if o.Temperature != nil {
		temperature = *o.Temperature
	}
	r := rand.New(rand.NewPCG(uint64(seed), 2))
	c, prev := &traj.Completion{FinishReason: "length"}, ids[len(ids)-1]
	for len(c.IDs) < limit {
		row := s.row(prev, max(temperature, 1e-3))
		id, u := len(row)-1, r.Float64()
		for k, x := range row {
			if u -= math.Exp(x); u < 0 {
				id = k
				break
			}
		}
		prev = int32(id)
		c.IDs, c.Logprobs = append(c.IDs, prev), append(c.Logprobs, traj.Logprob(row[id]))
		if slices.Contains(stops, prev) {
			c.FinishReason, c.Ended = "stop", true
			break
		}
	}
	text := c.IDs
	if c.Ended {
		text = text[:len(text)-1]
	}
	c.Text = s.m.tok.Decode(text, false)
	return c, nil
}

// Logprobs implements models.Sampler.
func (s *sampler) Logprobs(_ context.Context, sequences [][]int32) ([][]float32, error) {
	out := make([][]float32, len(sequences))
	for i, ids := range sequences {
		for j := 1; j < len(ids); j++ {
			out[i] = append(out[i], float32(s.row(ids[j-1], 1)[ids[j]]))
		}
	}
	return out, nil
}

// Renderer implements models.Sampler.
func (s *sampler) Renderer() (chat.Renderer, error) { return models.Renderer(s.m.path, s.m.tok, "") }

// Close implements io.Closer.
func (s *sampler) Close() error { return nil }
