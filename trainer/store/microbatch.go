package store

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"agentcli/policy"
	"agentcli/trainer/episode"
	"agentcli/traj"
)

// ErrOutputs is in the error of a model that gave another number of outputs than tokens were wanted of.
var ErrOutputs = errors.New("another number of outputs than of tokens")

// Item is one sequence of one episode in a micro-batch.
type Item struct {
	Episode  *episode.Episode
	Sequence int
}

// MicroBatch is a batch that is small enough to compute at once: Batch has the token ids
// and wanted tokens of the Items, in their order.
type MicroBatch struct {
	Items []Item
	Batch policy.Batch
}

// cutter cuts sequences into batches of at most max packed tokens: a prefix that
// neighbours share counts once. A single longer sequence goes alone.
type cutter struct {
	max      int
	tempered bool // log-probs are those at the episodes' temperatures
	now      MicroBatch
	size     int
	prev     []int32
	wanted   int // tokens of now
}

// add takes a sequence; full says that it begins a new batch, and gives the one
// before.
func (c *cutter) add(e *episode.Episode, i int) (before MicroBatch, full bool) {
	s, x := &e.Sequences[i], &e.Streams[i]
	if len(x.ActionWeight) == 0 {
		return MicroBatch{}, false // nothing of it is asked
	}
	cost := len(s.TokenIDs)
	if some := len(c.now.Items) > 0; some {
		if cost -= episode.CommonPrefix(c.prev, s.TokenIDs); c.size+cost > c.max {
			before, full = c.now, true
			c.now, c.size, c.wanted, cost = MicroBatch{}, 0, 0, len(s.TokenIDs)
		}
	}
	c.now.Items = append(c.now.Items, Item{e, i})
	c.now.Batch.Sequences = append(c.now.Batch.Sequences, s.TokenIDs)
	c.now.Batch.Want = append(c.now.Batch.Want, x.Want)
	n, images := len(c.now.Batch.Sequences), e.PolicyImages(i)
	c.now.Batch.Images = withLast(c.now.Batch.Images, n, images, images != nil)
	c.now.Batch.Experts = withLast(c.now.Batch.Experts, n, s.Experts, s.Experts != nil)
	c.now.Batch.Own = x.ValueIncludesToken
	if c.tempered && e.Layout == episode.LayoutOfAlgorithm {
		c.temper(e.SamplingTemperature(), x)
	}
	c.wanted += len(x.ActionWeight)
	c.size += cost
	c.prev = s.TokenIDs
	return before, full
}

// withLast is a list with one entry for each of n sequences, of which x is the last one's; nil for as
// long as no sequence has one.
func withLast[T any](list []T, n int, x T, has bool) []T {
	if list == nil && !has {
		return nil
	}
	return append(append(list, make([]T, n-1-len(list))...), x)
}

// temper gives the batch the temperatures of a sequence's tokens: an action's is that
// it was sampled at; an observation, which was not sampled, is learned as it stands.
func (c *cutter) temper(t float64, x *episode.TokenStream) {
	b := &c.now.Batch
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

// CountMicroBatches is how many micro-batches of maxTokens packed tokens episodes in
// memory are cut into.
func CountMicroBatches(episodes []*episode.Episode, maxTokens int) int {
	n, cut := 0, cutter{max: maxTokens}
	for _, e := range episodes {
		for i := range e.Sequences {
			if _, full := cut.add(e, i); full {
				n++
			}
		}
	}
	if len(cut.now.Items) > 0 {
		n++
	}
	return n
}

// Rows says which rows the micro-batch holds, for an error.
func (m MicroBatch) Rows() string {
	return RowNames(m.Items[0].Episode, m.Items[len(m.Items)-1].Episode)
}

// RowNames names the rows from first to last, for an error.
func RowNames(first, last *episode.Episode) string {
	if first == last {
		return first.ID
	}
	return fmt.Sprintf("rows %s to %s", first.ID, last.ID)
}

// Stream is the token stream of the sequence.
func (it Item) Stream() *episode.TokenStream { return &it.Episode.Streams[it.Sequence] }

// Each cuts what a model said of a micro-batch into its sequences' parts.
func (m MicroBatch) Each(o policy.Outputs, f func(it Item, part policy.Outputs) error) error {
	want := 0
	for _, it := range m.Items {
		want += len(it.Stream().ActionWeight)
	}
	for _, x := range []struct {
		name string
		n    int
		have bool
	}{{"log-probs", len(o.Logprobs), o.Logprobs != nil}, {"entropies", len(o.Entropy), o.Entropy != nil},
		{"values", len(o.Values), o.Values != nil}} {
		if x.have && x.n != want {
			return traj.Mark(fmt.Errorf("the model gave %d %s for %d tokens", x.n, x.name, want), ErrOutputs)
		}
	}
	cut := func(x []float64, n int) ([]float64, []float64) {
		if x == nil {
			return nil, nil
		}
		return x[:n:n], x[n:]
	}
	for _, it := range m.Items {
		n := len(it.Stream().ActionWeight)
		var part policy.Outputs
		part.Logprobs, o.Logprobs = cut(o.Logprobs, n)
		part.Entropy, o.Entropy = cut(o.Entropy, n)
		part.Values, o.Values = cut(o.Values, n)
		for _, x := range [][]float64{part.Logprobs, part.Values} {
			if i := slices.IndexFunc(x, func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }); i >= 0 {
				return traj.Mark(fmt.Errorf("%s: the model's output for token %d of those that it is trained on is %v", it.Episode.ID, i, x[i]),
					policy.ErrNotFinite)
			}
		}
		if err := f(it, part); err != nil {
			return err
		}
	}
	return nil
}
