package trainer

import (
	"math/rand/v2"

	"agentcli/policy"
)

// item is one sequence of one episode in a batch.
type item struct {
	ep  *Episode
	seq int
}

// micro is a batch that is small enough to compute at once.
type micro struct {
	items []item
	batch policy.Batch
}

// microBatches cuts episodes into batches of at most maxTokens packed tokens: a
// prefix that neighbours share counts once. A single longer sequence goes alone.
func microBatches(episodes []*Episode, maxTokens int) []micro {
	var out []micro
	size := 0
	var prev []int32
	for _, e := range episodes {
		for i := range e.Sequences {
			s := &e.Sequences[i]
			cost := len(s.TokenIDs)
			if len(out) > 0 {
				cost -= commonPrefix(prev, s.TokenIDs)
			}
			if len(out) == 0 || size+cost > maxTokens {
				out = append(out, micro{})
				size, cost = 0, len(s.TokenIDs)
			}
			m := &out[len(out)-1]
			m.items = append(m.items, item{e, i})
			m.batch.Sequences = append(m.batch.Sequences, s.TokenIDs)
			m.batch.Want = append(m.batch.Want, s.LossMask)
			size += cost
			prev = s.TokenIDs
		}
	}
	return out
}

func commonPrefix(a, b []int32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// minibatches shuffles whole groups and fills batches of at least size
// episodes with them; 0 is one batch of all. A group is never split: its
// members were compared with each other.
func minibatches(groups [][]*Episode, size int, r *rand.Rand) [][]*Episode {
	order := r.Perm(len(groups))
	var out [][]*Episode
	for _, g := range order {
		if len(out) == 0 || (size > 0 && len(out[len(out)-1]) >= size) {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], groups[g]...)
	}
	return out
}
