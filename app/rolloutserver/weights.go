package rolloutserver

import (
	"context"
	"io"
	"sync"

	"agentcli/agent"
	"agentcli/media/processor"
	"agentcli/media/qwen"
	"agentcli/traj"
)

// weights are the policy in its versions. A trajectory is played to its end by the one that
// was the newest when it began; an older one is closed with its last trajectory. The versions
// of a server to which weights are pushed are one model.
type weights struct {
	updating sync.Mutex // one update at a time

	mu     sync.Mutex
	newest *version
	of     map[string]*version // by trajectory
}

// version is a policy with some weights.
type version struct {
	model  agent.Model
	closer io.Closer
	number int64
	in     int // trajectories that it plays
}

// adopt makes a policy the newest.
func (w *weights) adopt(m agent.Model, c io.Closer) int64 {
	w.mu.Lock()
	old, number := w.newest, w.newest.number+1
	w.newest = &version{model: m, closer: c, number: number}
	idle := old.in == 0
	w.mu.Unlock()
	if idle {
		old.close()
	}
	return number
}

// again makes the newest policy a new version: its server has other weights now.
func (w *weights) again() int64 { return w.adopt(w.latest(), nil) }

// Close closes the newest version, after the last trajectory.
func (w *weights) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.newest.close()
	return nil
}

func (v *version) close() {
	if v.closer != nil { // the first one is closed with the run
		_ = v.closer.Close()
	}
}

// current is the version that plays a trajectory.
func (w *weights) current(ctx context.Context) *version {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := traj.IDOf(ctx)
	v := w.of[id]
	if v == nil {
		v = w.newest
		if id != "" {
			v.in++
			w.of[id] = v
		}
	}
	return v
}

// ended lets a trajectory's version go.
func (w *weights) ended(id string) {
	w.mu.Lock()
	v := w.of[id]
	delete(w.of, id)
	idle := false
	if v != nil {
		v.in--
		idle = v.in == 0 && v != w.newest
	}
	w.mu.Unlock()
	if idle {
		v.close()
	}
}

// Generate implements agent.Model.
func (w *weights) Generate(ctx context.Context, r *traj.Request) (*traj.Response, error) {
	v := w.current(ctx)
	resp, err := v.model.Generate(ctx, r)
	if resp != nil {
		resp.PolicyVersion = v.number
	}
	return resp, err
}

// ImageGrid implements agent.ImageProcessor: all versions prepare images alike.
func (w *weights) ImageGrid(width, height int) (grid [3]int, tokens int, err error) {
	if p, ok := w.latest().(agent.ImageProcessor); ok {
		return p.ImageGrid(width, height)
	}
	return processor.New(qwen.DefaultConfig()).Grid(width, height)
}

// Ready implements agent.Readier.
func (w *weights) Ready(ctx context.Context) error { return agent.Ready(ctx, w.latest()) }

func (w *weights) latest() agent.Model {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.newest.model
}

// exactWeights are weights whose tokenizer is known: all versions have one.
type exactWeights struct{ *weights }

// CountTokens implements agent.TokenCounter.
func (w exactWeights) CountTokens(text string) int {
	if c, ok := w.latest().(agent.TokenCounter); ok {
		return c.CountTokens(text)
	}
	return len(text)/4 + 1
}

// SplitTokens implements agent.TokenSplitter.
func (w exactWeights) SplitTokens(ids []int32, text string, at int) (tokens, bytes int) {
	if c, ok := w.latest().(agent.TokenSplitter); ok {
		return c.SplitTokens(ids, text, at)
	}
	return 0, 0
}
