//go:build libtorch

package torch

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// Run is a run of tokens of one sequence, for recurrent layers: Len rows from Start, which
// continue the end of run Parent, an earlier one; with Parent -1, the state in slot From of
// the layer's pool, or nothing where there are no pools.
type Run struct{ Start, Len, Parent, From int32 }

// SavedState says that the state after a run goes to a slot of the layers' pools.
type SavedState struct{ Run, Slot int32 }

// RunPlan are the runs of a pass, for all recurrent layers. What they need of it is made at
// the first call and kept until the scope of the plan closes.
type RunPlan struct {
	s      *Scope
	runs   []Run
	saves  []SavedState
	rows   int64
	from   Tensor          // int64: the slots of the runs without a parent
	into   Tensor          // int64: the slots of saves
	window map[int64]reach // of convolutions, by the tokens before that they see
	chunks chunkPlan
}

// reach are the rows that a convolution sees: of its tokens, and of the last ones of the runs
// that are saved.
type reach struct{ index, last Tensor }

// chunkPlan are the runs in chunks (agt::Chunks), for libtorch's operations.
type chunkPlan struct {
	size, count          int64
	levels               []int64
	place, parents, last Tensor
}

// maxChunk is the most tokens of a chunk of the gated delta rule.
const maxChunk = 64

// PlanRuns lays out recurrent layers over runs, which tile the tokens in order.
func (s *Scope) PlanRuns(runs []Run, saves []SavedState) *RunPlan {
	p := &RunPlan{s: s, runs: runs, saves: saves, window: map[int64]reach{}}
	for i, r := range runs {
		if int64(r.Start) != p.rows || r.Len < 1 || r.Parent < -1 || int(r.Parent) >= i {
			s.Fail(fmt.Errorf("torch: run %d (start %d, %d tokens, parent %d) does not follow the one before", i, r.Start, r.Len, r.Parent))
			return p
		}
		p.rows += int64(r.Len)
	}
	return p
}

// kept is what the plan says of a pool; nothing without one.
func (p *RunPlan) kept(pool, last Tensor, dev Device) C.agt_kept {
	if !pool.Defined() {
		return C.agt_kept{}
	}
	if !p.from.Defined() {
		var from, into []int64
		for _, r := range p.runs {
			if r.Parent < 0 {
				from = append(from, int64(r.From))
			}
		}
		for _, x := range p.saves {
			into = append(into, int64(x.Slot))
		}
		p.from, p.into = p.s.To(p.s.Int64(from, int64(len(from))), Int64, dev), p.s.To(p.s.Int64(into, int64(len(into))), Int64, dev)
	}
	return C.agt_kept{pool: pool.p, from: p.from.p, into: p.into.p, last: last.p}
}

// before finds for each token the rows of the tokens 1 to n before it.
func (p *RunPlan) before(n int64, pools bool, dev Device) reach {
	if w, ok := p.window[n]; ok {
		return w
	}
	index, last := make([]int64, n*p.rows), make([]int64, 0, n*int64(len(p.saves)))
	tails, root := make([][]int64, len(p.runs)), int64(0) // of each run the rows of its last n tokens
	for i, r := range p.runs {
		line := make([]int64, n, n+int64(r.Len)) // rows, from n tokens before the run
		switch {
		case r.Parent >= 0:
			copy(line, tails[r.Parent])
		case pools:
			for j := range n {
				line[j] = p.rows + root*n + j
			}
			root++
		default:
			for j := range n {
				line[j] = p.rows // the row of zeros
			}
		}
		for t := range int64(r.Len) {
			for j := range n {
				index[j*p.rows+int64(r.Start)+t] = line[t+j]
			}
			line = append(line, int64(r.Start)+t)
		}
		tails[i] = line[len(line)-int(n):]
	}
	for _, x := range p.saves {
		last = append(last, tails[x.Run]...)
	}
	w := reach{index: p.s.To(p.s.Int64(index), Int64, dev), last: p.s.To(p.s.Int64(last, int64(len(last))), Int64, dev)}
	p.window[n] = w
	return w
}

// cut makes the chunks.
func (p *RunPlan) cut(dev Device) *chunkPlan {
	c := &p.chunks
	if c.count > 0 {
		return c
	}
	longest := int64(1)
	for _, r := range p.runs {
		longest = max(longest, int64(r.Len))
	}
	for c.size = 1; c.size < min(longest, maxChunk); c.size *= 2 {
	}
	type chunk struct{ level, at int64 } // at: its number within the level
	ends := make([]chunk, len(p.runs))   // the last of each run
	var parents [][]int64                // of each level
	firsts := make([][]chunk, len(p.runs))
	for i, r := range p.runs {
		level, parent := int64(0), int64(0)
		if r.Parent >= 0 {
			level, parent = ends[r.Parent].level+1, ends[r.Parent].at
		}
		for t := int64(0); t < int64(r.Len); t += c.size {
			if level == int64(len(parents)) {
				parents = append(parents, nil)
			}
			ends[i] = chunk{level, int64(len(parents[level]))}
			firsts[i] = append(firsts[i], ends[i])
			parents[level] = append(parents[level], parent)
			level, parent = level+1, ends[i].at
		}
	}
	var all []int64
	for _, of := range parents {
		c.levels = append(c.levels, int64(len(all)))
		all = append(all, of...)
	}
	c.count = int64(len(all))
	c.levels = append(c.levels, c.count)
	place, last := make([]int64, 0, p.rows), make([]int64, 0, len(p.saves))
	for i, r := range p.runs {
		for t := range int64(r.Len) {
			at := firsts[i][t/c.size]
			place = append(place, (c.levels[at.level]+at.at)*c.size+t%c.size)
		}
	}
	for _, x := range p.saves {
		last = append(last, c.levels[ends[x.Run].level]+ends[x.Run].at)
	}
	c.place, c.parents = p.s.To(p.s.Int64(place), Int64, dev), p.s.To(p.s.Int64(all), Int64, dev)
	c.last = p.s.To(p.s.Int64(last, int64(len(last))), Int64, dev)
	return c
}

// CausalConv is a convolution of each channel of x [T, C] with weight [C, 1, K] over a token
// and the K−1 before it in its sequence, plus bias [C], which may be the zero Tensor; then
// SiLU where silu is set. pool [slots, K−1, C] has the last tokens of the sequences; the zero
// Tensor: all begin here. Records for backward without a pool.
func (s *Scope) CausalConv(x, weight, bias Tensor, silu bool, plan *RunPlan, pool Tensor) Tensor {
	shape := s.Shape(weight)
	if !s.ok("causal_conv", x, weight) || len(shape) != 3 || shape[2] < 2 {
		s.Fail(fmt.Errorf("torch: causal_conv: the weight is %v, want [C, 1, K]", shape))
		return Tensor{}
	}
	w, act := plan.before(shape[2]-1, pool.Defined(), s.Device(x)), C.int(0)
	if silu {
		act = 1
	}
	kept := plan.kept(pool, w.last, s.Device(x))
	return s.op("causal_conv", func(o *C.agt_tensor, m **C.char) C.int {
		return C.agt_causal_conv(o, x.p, weight.p, bias.p, act, w.index.p, kept, m)
	}, x, weight, w.index)
}

// DeltaHeads are the sizes of the gated delta rule.
type DeltaHeads struct{ KeyHeads, ValueHeads, KeyDim, ValueDim int }

func (h DeltaHeads) c() C.agt_delta_heads {
	return C.agt_delta_heads{key_heads: C.int64_t(h.KeyHeads), value_heads: C.int64_t(h.ValueHeads), key_dim: C.int64_t(h.KeyDim),
		value_dim: C.int64_t(h.ValueDim)}
}

// GatedDelta is the gated delta rule (Yang et al. 2024): qkv [T, 2·KeyHeads·KeyDim +
// ValueHeads·ValueDim], the logits b of the strengths and a of the decays [T, ValueHeads],
// aLog and dtBias [ValueHeads] → [T, ValueHeads·ValueDim]. pool [slots, ValueHeads, KeyDim,
// ValueDim] has the states of the sequences; the zero Tensor: all begin here. Records for
// backward without a pool.
func (s *Scope) GatedDelta(qkv, b, a, aLog, dtBias Tensor, h DeltaHeads, plan *RunPlan, pool Tensor) Tensor {
	if !s.ok("gated_delta", qkv) {
		return Tensor{}
	}
	var chunks C.agt_chunks
	var last Tensor
	if C.agt_fused_delta(qkv.p) == 0 {
		c := plan.cut(s.Device(qkv))
		chunks, last = C.agt_chunks{size: C.int64_t(c.size), count: C.int64_t(c.count), n_levels: C.int64_t(len(c.levels)),
			levels: (*C.int64_t)(unsafe.Pointer(unsafe.SliceData(c.levels))), place: c.place.p, parents: c.parents.p}, c.last
	}
	kept := plan.kept(pool, last, s.Device(qkv))
	runs := C.agt_runs{runs: (*C.int32_t)(unsafe.Pointer(unsafe.SliceData(plan.runs))), n: C.int64_t(len(plan.runs)),
		saves: (*C.int32_t)(unsafe.Pointer(unsafe.SliceData(plan.saves))), n_saves: C.int64_t(len(plan.saves))}
	return s.op("gated_delta", func(o *C.agt_tensor, m **C.char) C.int {
		return C.agt_gated_delta(o, qkv.p, b.p, a.p, aLog.p, dtBias.p, h.c(), runs, chunks, kept, m)
	}, qkv, b, a, aLog, dtBias)
}

// GatedRMSNorm is RMSNorm of the last dimension of x, times silu(gate).
func (s *Scope) GatedRMSNorm(x, w, gate Tensor, eps float64) Tensor {
	return s.op("gated_rms_norm", func(o *C.agt_tensor, m **C.char) C.int {
		return C.agt_gated_rms_norm(o, x.p, w.p, gate.p, C.double(eps), m)
	}, x, w, gate)
}

// SigmoidMul is x·sigmoid(gate), with broadcasting.
func (s *Scope) SigmoidMul(x, gate Tensor) Tensor {
	return s.op("sigmoid_mul", func(o *C.agt_tensor, m **C.char) C.int { return C.agt_sigmoid_mul(o, x.p, gate.p, m) }, x, gate)
}
