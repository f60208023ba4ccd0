//go:build libtorch

package torch

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"runtime"
)

// Quant is some rows of a weight as a GGUF has them: number j of row i is
//
//	Scale[i, j/Block]·Factor[i, j/Group]·Q[i, j] + Least[i, j/Block]·LeastFactor[i, j/Group]
//
// Scale and Least are float16. With 4 Bits all of Q is 0 to 15, with 8 −128 to 127. Group is 16 or
// 32, Block 32 or 256, and Cols a multiple of both. Least may be nil, and the factors where they are 1.
type Quant struct {
	Rows, Cols, Group, Block int
	Bits                     int
	Q                        []int8
	Scale, Least             []uint16
	Factor, LeastFactor      []int8
}

// fits reports whether all slices have the lengths that Rows and Cols ask for.
func (q Quant) fits() bool {
	if q.Rows < 1 || q.Cols < 1 || q.Group < 1 || q.Block < 1 {
		return false
	}
	blocks, groups := q.Rows*(q.Cols/q.Block), q.Rows*(q.Cols/q.Group)
	return len(q.Q) == q.Rows*q.Cols && len(q.Scale) == blocks && (q.Least == nil || len(q.Least) == blocks) &&
		(q.Factor == nil || len(q.Factor) == groups) && (q.LeastFactor == nil || len(q.LeastFactor) == groups)
}

// QuantKernels reports whether this processor has products with such weights.
func QuantKernels() bool { return C.agt_quant_kernels() != 0 }

// PackQuant puts the rows of all parts below each other, for a Decoder and for QuantDense.
func (s *Scope) PackQuant(parts ...Quant) Tensor {
	if !s.ok("quant") || len(parts) == 0 {
		return Tensor{}
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	cp := make([]C.agt_quant_part, len(parts))
	for i, p := range parts {
		if !p.fits() {
			s.Fail(fmt.Errorf("torch: quant: %d numbers and %d scales for %d rows of %d", len(p.Q), len(p.Scale), p.Rows, p.Cols))
			return Tensor{}
		}
		cp[i] = C.agt_quant_part{rows: C.int64_t(p.Rows), cols: C.int64_t(p.Cols), group: C.int64_t(p.Group),
			block: C.int64_t(p.Block), bits: C.int64_t(p.Bits),
			q: (*C.int8_t)(pinned(&pin, p.Q)), factor: (*C.int8_t)(pinned(&pin, p.Factor)),
			least_factor: (*C.int8_t)(pinned(&pin, p.LeastFactor)),
			scale:        (*C.uint16_t)(pinned(&pin, p.Scale)), least: (*C.uint16_t)(pinned(&pin, p.Least))}
	}
	return s.op("quant", func(o *C.agt_tensor, m **C.char) C.int { return C.agt_quant_pack(o, &cp[0], C.int(len(cp)), m) })
}

// pinned is where a slice begins, for C; nil for an empty one.
func pinned[T any](pin *runtime.Pinner, x []T) *T {
	if len(x) == 0 {
		return nil
	}
	pin.Pin(&x[0])
	return &x[0]
}

// QuantDense is a weight of PackQuant in bfloat16.
func (s *Scope) QuantDense(packed Tensor) Tensor {
	return s.op("quant_dense", func(o *C.agt_tensor, m **C.char) C.int { return C.agt_quant_dense(o, packed.p, m) }, packed)
}
