package trainer

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"agentcli/policy"
	"agentcli/trainer/episode"
	"agentcli/traj"
)

// item is one sequence of one episode in a batch.
type item struct {
	ep  *episode.Episode
	seq int
}

// micro is a batch that is small enough to compute at once.
type micro struct {
	items []item
	batch policy.Batch
}

// cutter cuts sequences into batches of at most max packed tokens: a prefix that
// neighbours share counts once. A single longer sequence goes alone.
type cutter struct {
	max      int
	tempered bool // log-probs are those at the episodes' temperatures
	now      micro
	size     int
	prev     []int32
	wanted   int // tokens of now
}

// add takes a sequence; full says that it begins a new batch, and gives the one
// before.
func (c *cutter) add(e *episode.Episode, i int) (before micro, full bool) {
	s, x := &e.Sequences[i], &e.Streams[i]
	if len(x.ActionWeight) == 0 {
		return micro{}, false // nothing of it is asked
	}
	cost := len(s.TokenIDs)
	if some := len(c.now.items) > 0; some {
		if cost -= episode.CommonPrefix(c.prev, s.TokenIDs); c.size+cost > c.max {
			before, full = c.now, true
			c.now, c.size, c.wanted, cost = micro{}, 0, 0, len(s.TokenIDs)
		}
	}
	c.now.items = append(c.now.items, item{e, i})
	c.now.batch.Sequences = append(c.now.batch.Sequences, s.TokenIDs)
	c.now.batch.Want = append(c.now.batch.Want, x.Want)
	c.now.batch.Own = x.ValueIncludesToken
	if c.tempered && e.Layout == episode.LayoutOfAlgorithm {
		c.temper(e.SamplingTemperature(), x)
	}
	c.wanted += len(x.ActionWeight)
	c.size += cost
	c.prev = s.TokenIDs
	return before, full
}

// temper gives the batch the temperatures of a sequence's tokens: an action's is that
// it was sampled at; an observation, which was not sampled, is learned as it stands.
func (c *cutter) temper(t float64, x *episode.TokenStream) {
	b := &c.now.batch
	if b.Temperature == nil {
		if t == 1 {
			return // nil for as long as all are
		}
		b.Temperature = slices.Repeat([]float64{1}, c.wanted)
	}
	for _, action := range x.ActionWeight {
		if action > 0 {
			b.Temperature = append(b.Temperature, t)
		} else {
			b.Temperature = append(b.Temperature, 1)
		}
	}
}

// microBatches cuts episodes that are at hand.
func microBatches(episodes []*episode.Episode, maxTokens int) []micro {
	var out []micro
	cut := cutter{max: maxTokens}
	for _, e := range episodes {
		for i := range e.Sequences {
			if mb, full := cut.add(e, i); full {
				out = append(out, mb)
			}
		}
	}
	if len(cut.now.items) > 0 {
		out = append(out, cut.now)
	}
	return out
}

// minibatches shuffles whole groups and fills batches of at least size
// episodes with them; 0 is one batch of all. A group is never split: its
// members were compared with each other.
func minibatches(groups [][]*episode.Episode, size int, r *rand.Rand) [][]*episode.Episode {
	order := r.Perm(len(groups))
	var out [][]*episode.Episode
	for _, g := range order {
		if len(out) == 0 || (size > 0 && len(out[len(out)-1]) >= size) {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], groups[g]...)
	}
	return out
}

func (it item) stream() *episode.TokenStream { return &it.ep.Streams[it.seq] }

// each cuts what a model said of a micro-batch into its sequences' parts.
func (m micro) each(o policy.Outputs, f func(it item, part policy.Outputs) error) error {
	want := 0
	for _, it := range m.items {
		want += len(it.stream().ActionWeight)
	}
	for _, x := range []struct {
		name string
		n    int
		have bool
	}{{"log-probs", len(o.Logprobs), o.Logprobs != nil}, {"entropies", len(o.Entropy), o.Entropy != nil}, {"values", len(o.Values), o.Values != nil}} {
		if x.have && x.n != want {
			return fmt.Errorf("the model gave %d %s for %d tokens", x.n, x.name, want)
		}
	}
	cut := func(x []float64, n int) ([]float64, []float64) {
		if x == nil {
			return nil, nil
		}
		return x[:n:n], x[n:]
	}
	for _, it := range m.items {
		n := len(it.stream().ActionWeight)
		var part policy.Outputs
		part.Logprobs, o.Logprobs = cut(o.Logprobs, n)
		part.Entropy, o.Entropy = cut(o.Entropy, n)
		part.Values, o.Values = cut(o.Values, n)
		for _, x := range [][]float64{part.Logprobs, part.Values} {
			if i := slices.IndexFunc(x, func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }); i >= 0 {
				return traj.Mark(fmt.Errorf("%s: the model's output for token %d of those that it is trained on is %v", it.ep.ID, i, x[i]), policy.ErrNotFinite)
			}
		}
		if err := f(it, part); err != nil {
			return err
		}
	}
	return nil
}
