//go:build libtorch

package policy

import (
	"fmt"
	"math"

	"agentcli/internal/parallel"
	"agentcli/internal/torch"
)

// rotation is the table of one rotary embedding: [positions, rotated dims/2], float32
// (float64 in a float64 network).
type rotation struct {
	cos, sin torch.Tensor
	queries  *rotation // where theirs differ from the keys'
}

// rotary makes the tables of the rotary embeddings in float64.
func (n *network) rotary(s, keep *torch.Scope, positions int) {
	acc := torch.Float32
	if n.dtype == torch.Float64 {
		acc = torch.Float64
	}
	n.ropes = make([]rotation, len(n.cfg.Ropes))
	for k, r := range n.cfg.Ropes {
		inv, amplitude := r.InverseFrequencies(positions), r.Amplitude()
		table := func(scale func(position int) float64) rotation {
			half := len(inv)
			cos, sin := make([]float64, positions*half), make([]float64, positions*half)
			const chunk = 4096
			err := parallel.For((positions+chunk-1)/chunk, func(c int) error {
				for p := c * chunk; p < min((c+1)*chunk, positions); p++ {
					a := amplitude * scale(p)
					for i, f := range inv {
						cos[p*half+i], sin[p*half+i] = a*math.Cos(float64(p)*f), a*math.Sin(float64(p)*f)
					}
				}
				return nil
			})
			if err != nil {
				s.Fail(err)
				return rotation{}
			}
			shape := []int64{int64(positions), int64(half)}
			return rotation{cos: s.Keep(s.To(s.Float64(cos, shape...), acc, n.device), keep),
				sin: s.Keep(s.To(s.Float64(sin, shape...), acc, n.device), keep)}
		}
		n.ropes[k] = table(func(int) float64 { return 1 })
		if r.QueryBeta != 0 {
			q := table(r.QueryScale)
			n.ropes[k].queries = &q
		}
	}
	n.maxSeen = positions
}

// angles are the rows of the rotary tables for these positions.
func (n *network) angles(s *torch.Scope, at positions) []rotation {
	for _, p := range at[0] {
		if int(p) >= n.maxSeen {
			s.Fail(fmt.Errorf("a sequence of %d tokens exceeds the model's window of %d", p+1, n.maxSeen))
			return nil
		}
	}
	pos := s.To(s.IDs(at[0]), torch.Int64, n.device)
	out := make([]rotation, len(n.ropes))
	for i, r := range n.ropes {
		if at[1] != nil {
			out[i] = n.turned(s, i, at)
			continue
		}
		out[i] = rotation{cos: s.IndexSelect(r.cos, 0, pos), sin: s.IndexSelect(r.sin, 0, pos)}
		if q := r.queries; q != nil {
			out[i].queries = &rotation{cos: s.IndexSelect(q.cos, 0, pos), sin: s.IndexSelect(q.sin, 0, pos)}
		}
	}
	return out
}

// turned are the rows of a table whose pairs are turned by different positions.
func (n *network) turned(s *torch.Scope, rope int, at positions) rotation {
	r, table := n.cfg.Ropes[rope], n.ropes[rope]
	half := r.Dim / 2
	index := make([]int64, 0, len(at[0])*half)
	for t := range at[0] {
		for pair := range half {
			index = append(index, int64(at[r.Axis(pair)][t])*int64(half)+int64(pair))
		}
	}
	idx := s.To(s.Int64(index, int64(len(index))), torch.Int64, n.device)
	of := func(x torch.Tensor) torch.Tensor {
		flat := s.Reshape(x, int64(n.maxSeen*half))
		return s.Reshape(s.IndexSelect(flat, 0, idx), int64(len(at[0])), int64(half))
	}
	return rotation{cos: of(table.cos), sin: of(table.sin)}
}
