//go:build libtorch

package torch

/*
#include "shim.h"
*/
import "C"

// Router says how a token's experts are chosen (arch.Router).
type Router struct {
	Active             int64
	Sigmoid, Normalise bool
	Groups, TopGroups  int64   // Groups 0 or 1: none
	Scale              float64 // 0 is 1
	Epsilon            float64 // added to the sum that Normalise divides by; 0 is 1e-20 with Sigmoid
}

func (r Router) c() C.agt_router {
	c := C.agt_router{active: C.int64_t(r.Active), sigmoid: flag(r.Sigmoid), normalise: flag(r.Normalise), groups: C.int64_t(r.Groups),
		top_groups: C.int64_t(r.TopGroups), scale: C.double(r.Scale), epsilon: C.double(r.Epsilon)}
	if r.Scale == 0 {
		c.scale = 1
	}
	return c
}

// Route gives for each row of logits [T, experts] the ids of its experts [T, Active] and
// their weights. bias [experts], or the zero Tensor, is added for the choice alone. given [T,
// Active] of Int64, or the zero Tensor, are ids to choose in place of the best, in the rows
// that have no -1; their weights are those of the logits.
func (s *Scope) Route(logits, bias, given Tensor, r Router) (ids, weights Tensor) {
	c := r.c()
	ids = s.op("route", func(o *C.agt_tensor, m **C.char) C.int {
		var w C.agt_tensor
		st := C.agt_route(o, &w, logits.p, bias.p, given.p, &c, m)
		weights = s.own(w)
		return st
	}, logits)
	return ids, weights
}

// NotChosen counts the ids of given, in its rows without a -1, that are not in the same row of ids,
// and all ids of these rows: [2], Float64. Both are [T, Active].
func (s *Scope) NotChosen(ids, given Tensor) Tensor {
	return s.op("not_chosen", func(o *C.agt_tensor, m **C.char) C.int { return C.agt_not_chosen(o, ids.p, given.p, m) }, ids, given)
}

// ExpertPairs are low-rank pairs beside the matrices of a layer's experts, in the layout of PEFT's
// ParamWrapper: A [experts·rank, in], whose rows are those of one expert below those of the other, and
// B [out, rank·experts], whose columns are one of every expert for each of rank. An expert's matrix
// gives W·x + Scale·B·(A·x). A matrix whose A is the zero Tensor has no pair.
type ExpertPairs struct {
	GateUpA, GateUpB, DownA, DownB Tensor
	Scale                          float64
}

func (p ExpertPairs) c() *C.agt_expert_pairs {
	return &C.agt_expert_pairs{gate_up_a: p.GateUpA.p, gate_up_b: p.GateUpB.p, down_a: p.DownA.p, down_b: p.DownB.p, scale: C.double(p.Scale)}
}

// given are the tensors of the pairs that there are, behind others.
func (p ExpertPairs) given(others ...Tensor) []Tensor {
	for _, t := range []Tensor{p.GateUpA, p.GateUpB, p.DownA, p.DownB} {
		if t.Defined() {
			others = append(others, t)
		}
	}
	return others
}

// PlainExperts are experts of gate, up and down: GateUp [Count·2f, h] and Down [Count·h, f], an
// expert below the other.
type PlainExperts struct {
	GateUp, Down Tensor
	Count        int
	GELU         bool // by its approximation with tanh, in place of SiLU
	Pairs        ExpertPairs
}

// Experts is Σ weight·down(act(gate(x))·up(x)) over each token's experts: x [T, h].
func (s *Scope) Experts(x, ids, weights Tensor, e PlainExperts) Tensor {
	act := C.int(0)
	if e.GELU {
		act = 1
	}
	return s.op("experts", func(o *C.agt_tensor, m **C.char) C.int {
		return C.agt_experts(o, x.p, ids.p, weights.p, e.GateUp.p, e.Down.p, C.int64_t(e.Count), act, e.Pairs.c(), m)
	}, e.Pairs.given(x, ids, weights, e.GateUp, e.Down)...)
}

// ClampedExperts are experts with biases and a clamped SwiGLU (arch.Clamp): GateUp [experts,
// h, 2f], whose columns are gate, up, gate, …, GateUpBias [experts, 2f], Down [experts, f, h]
// and DownBias [experts, h].
type ClampedExperts struct {
	GateUp, GateUpBias, Down, DownBias Tensor
	Alpha, Limit                       float64
	Pairs                              ExpertPairs
}

// ClampedExperts is Σ weight·(down(…) + bias) over each token's experts: x [T, h].
func (s *Scope) ClampedExperts(x, ids, weights Tensor, e ClampedExperts) Tensor {
	return s.op("experts", func(o *C.agt_tensor, m **C.char) C.int {
		return C.agt_clamped_experts(o, x.p, ids.p, weights.p, e.GateUp.p, e.GateUpBias.p, e.Down.p, e.DownBias.p,
			C.double(e.Alpha), C.double(e.Limit), e.Pairs.c(), m)
	}, e.Pairs.given(x, ids, weights, e.GateUp, e.GateUpBias, e.Down, e.DownBias)...)
}
