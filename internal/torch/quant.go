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
// Scale[i, j/Group]·Q[i, j] + Least[i, j/Group]. With 4 Bits all of Q is 0 to 15, with 8 −128 to
// 127. Group is 16 or 32, and Cols a multiple of 32. Least may be nil.
type Quant struct {
	Rows, Cols, Group int
	Bits              int
	Q                 []int8
	Scale, Least      []float32
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
		groups := p.Rows * (p.Cols / max(p.Group, 1))
		if p.Rows < 1 || p.Cols < 1 || len(p.Q) != p.Rows*p.Cols || len(p.Scale) != groups || p.Least != nil && len(p.Least) != groups {
			s.Fail(fmt.Errorf("torch: quant: %d numbers and %d scales for %d rows of %d", len(p.Q), len(p.Scale), p.Rows, p.Cols))
			return Tensor{}
		}
		pin.Pin(&p.Q[0])
		pin.Pin(&p.Scale[0])
		cp[i] = C.agt_quant_part{q: (*C.int8_t)(&p.Q[0]), scale: (*C.float)(&p.Scale[0]), rows: C.int64_t(p.Rows), cols: C.int64_t(p.Cols),
			group: C.int64_t(p.Group), bits: C.int64_t(p.Bits)}
		if p.Least != nil {
			pin.Pin(&p.Least[0])
			cp[i].least = (*C.float)(&p.Least[0])
		}
	}
	return s.op("quant", func(o *C.agt_tensor, m **C.char) C.int { return C.agt_quant_pack(o, &cp[0], C.int(len(cp)), m) })
}

// QuantDense is a weight of PackQuant in bfloat16.
func (s *Scope) QuantDense(packed Tensor) Tensor {
	return s.op("quant_dense", func(o *C.agt_tensor, m **C.char) C.int { return C.agt_quant_dense(o, packed.p, m) }, packed)
}
