//go:build libtorch

package torch

/*
#include "shim.h"
*/
import "C"

import (
	"runtime"
	"unsafe"
)

// Quant is some rows of a weight as a GGUF has them: Cols numbers each, in whole blocks, one row behind the other.
type Quant struct {
	Rows, Cols int
	Blocks     Blocks
	Data       []byte
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
		cp[i] = C.agt_quant_part{data: unsafe.Pointer(pinned(&pin, p.Data)), rows: C.int64_t(p.Rows), cols: C.int64_t(p.Cols),
			bytes: C.int64_t(len(p.Data)), blocks: C.int(p.Blocks)}
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
