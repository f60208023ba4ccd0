//go:build libtorch

package torch

/*
#include "shim.h"
*/
import "C"

import "unsafe"

// Activation is a function of each number.
type Activation int

// The activations, as PyTorch names them: GELU by the error function (Hendrycks & Gimpel
// 2016), its approximation by tanh, and x·sigmoid(1.702·x).
const (
	GELU Activation = iota
	GELUTanh
	QuickGELU
)

// Activate is f(x), number by number.
func (s *Scope) Activate(x Tensor, f Activation) Tensor {
	return s.op("activate", func(o *C.agt_tensor, m **C.char) C.int { return C.agt_activate(o, x.p, C.int(f), m) }, x)
}

// LayerNorm is w·(x − mean)/√(variance + eps) + bias over the last dimension (Ba et al. 2016).
func (s *Scope) LayerNorm(x, w, bias Tensor, eps float64) Tensor {
	return s.op("layer_norm", func(o *C.agt_tensor, m **C.char) C.int {
		return C.agt_layer_norm(o, x.p, w.p, bias.p, C.double(eps), m)
	}, x, w, bias)
}

// BlockAttention is attention without a mask: of q, k and v [T, H, D] each row sees the rows
// of its block. The blocks tile the rows in order. Records for backward.
func (s *Scope) BlockAttention(q, k, v Tensor, lengths []int64) Tensor {
	return s.op("block_attention", func(o *C.agt_tensor, m **C.char) C.int {
		return C.agt_block_attention(o, q.p, k.p, v.p, (*C.int64_t)(unsafe.Pointer(unsafe.SliceData(lengths))), C.int(len(lengths)), m)
	}, q, k, v)
}
