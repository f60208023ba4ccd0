//go:build libtorch

package torch

/*
#include "shim.h"
*/
import "C"

import "unsafe"

// LowRank is one adapter beside a weight [out, in]: A [rank, in] and B [rows, rank]
// change the outputs from Row on. Seed is of its dropout.
type LowRank struct {
	A, B Tensor
	Row  int64
	Seed uint64
}

// LoRALinear is Linear with scale·(drop(x)·Aᵀ)·Bᵀ of each adapter added to its
// outputs; drop sets the share `dropout` of x to 0 and scales the rest up. x is
// [tokens, in]. w and bias get no gradient.
func (s *Scope) LoRALinear(x, w, bias Tensor, parts []LowRank, scale, dropout float64) Tensor {
	ab, rows, seeds := make([]Tensor, 0, 2*len(parts)), make([]int64, len(parts)), make([]uint64, len(parts))
	for i, p := range parts {
		ab, rows[i], seeds[i] = append(ab, p.A, p.B), p.Row, p.Seed
	}
	ptrs := pointers(ab)
	return s.op("lora_linear", func(o *C.agt_tensor, m **C.char) C.int {
		return C.agt_lora_linear(o, x.p, w.p, bias.p, ptr0(ptrs), (*C.int64_t)(unsafe.Pointer(unsafe.SliceData(rows))),
			(*C.uint64_t)(unsafe.Pointer(unsafe.SliceData(seeds))), C.int(len(parts)), C.double(scale), C.double(dropout), m)
	}, append(ab, x, w)...)
}

// RowsPair is a low-rank pair for some rows of a product x·Wᵀ: A [rank, in] and B [out, rank].
type RowsPair struct {
	A, B        Tensor
	From, Count int64
}

// AddLowRank adds (x·Aᵀ)·Bᵀ of each pair to its rows of y [tokens, out], in place. No backward.
func (s *Scope) AddLowRank(y, x Tensor, pairs []RowsPair) {
	ab, from, count := make([]Tensor, 0, 2*len(pairs)), make([]int64, len(pairs)), make([]int64, len(pairs))
	for i, p := range pairs {
		ab, from[i], count[i] = append(ab, p.A, p.B), p.From, p.Count
	}
	if !s.ok("add_low_rank", append(ab, y, x)...) {
		return
	}
	ptrs := pointers(ab)
	var msg *C.char
	s.check("add_low_rank", C.agt_add_low_rank_(y.p, x.p, ptr0(ptrs), (*C.int64_t)(unsafe.Pointer(unsafe.SliceData(from))),
		(*C.int64_t)(unsafe.Pointer(unsafe.SliceData(count))), C.int(len(pairs)), &msg), msg)
}
