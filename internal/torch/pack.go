//go:build libtorch

package torch

/*
#include "shim.h"
*/
import "C"

import (
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"agentcli/internal/codes"
	"agentcli/internal/iqgrids"
)

// OwnPanels reports whether PackLinear puts weights of that type into panels of ours: the processor
// has kernels for them, and oneDNN has another layout.
func OwnPanels(d DType) bool { return C.agt_own_panels(C.int(d)) != 0 }

// PackLinear copies a weight [out, in] into oneDNN's blocked layout or into panels of ours (OwnPanels), for
// LinearPacked only: on a CPU a small batch then runs about twice as fast.
func (s *Scope) PackLinear(w Tensor) Tensor {
	return s.op("pack_linear", func(o *C.agt_tensor, m **C.char) C.int { return C.agt_pack_linear(o, w.p, m) }, w)
}

// LinearPacked is Linear with a weight from PackLinear. No backward.
func (s *Scope) LinearPacked(x, packed, bias Tensor) Tensor {
	return s.op("linear", func(o *C.agt_tensor, m **C.char) C.int { return C.agt_linear_packed(o, x.p, packed.p, bias.p, m) }, x, packed)
}

// PackParts is PackLinear of rows in several places, below each other, without a plain copy of them. like is
// a packed weight of the same shape, and InPanels holds of it. d is that of the bytes: that of like, or BFloat16
// for a like of Float32. bytes holds the weight's memory and must live as long.
func (s *Scope) PackParts(like Tensor, parts [][]byte, d DType) (weight, bytes Tensor) {
	return s.packParts(like, parts, d, -1)
}

// PackBlocks is PackParts of rows in blocks of a GGUF.
func (s *Scope) PackBlocks(like Tensor, parts [][]byte, b Blocks) (weight, bytes Tensor) {
	return s.packParts(like, parts, Float32, b)
}

func (s *Scope) packParts(like Tensor, parts [][]byte, d DType, blocks Blocks) (weight, bytes Tensor) {
	var pin runtime.Pinner
	defer pin.Unpin()
	cp, _ := pinnedParts(&pin, parts)
	weight = s.op("pack_parts", func(o *C.agt_tensor, m **C.char) C.int {
		var b C.agt_tensor
		status := C.agt_pack_parts(o, &b, like.p, unsafe.SliceData(cp), C.int(len(cp)), C.int(d), C.int(blocks), m)
		bytes = s.own(b)
		return status
	}, like)
	return weight, bytes
}

// PackCodes is PackParts of matrices of codes. Those that are transposed have rows of whole panels of 64, but for the last: see
// CodesFit.
func (s *Scope) PackCodes(like Tensor, parts []*codes.Matrices) (weight, bytes Tensor) {
	var pin runtime.Pinner
	defer pin.Unpin()
	cp := codesForC(&pin, parts)
	weight = s.op("pack_codes", func(o *C.agt_tensor, m **C.char) C.int {
		var b C.agt_tensor
		status := C.agt_pack_codes(o, &b, like.p, unsafe.SliceData(cp), C.int(len(cp)), m)
		bytes = s.own(b)
		return status
	}, like)
	return weight, bytes
}

// CodesFit reports whether PackCodes takes matrices below each other.
func CodesFit(parts []*codes.Matrices) bool {
	outputs := 0 // of the transposed ones before
	for _, p := range parts {
		if p.Count != 1 || p.Transposed != parts[0].Transposed || p.Transposed && outputs%64 != 0 {
			return false
		}
		outputs += p.Cols
	}
	return true
}

// FromCodes makes a tensor of Float32 or BFloat16 from matrices of codes, one behind the other. The numbers are those of
// package codes, to the bit, rounded to the nearest BFloat16. A device with our kernels computes them itself.
func (s *Scope) FromCodes(parts []*codes.Matrices, d DType, dev Device, shape ...int64) Tensor {
	var pin runtime.Pinner
	defer pin.Unpin()
	cp := codesForC(&pin, parts)
	p, n := dims(shape)
	return s.op("codes", func(out *C.agt_tensor, msg **C.char) C.int {
		return C.agt_from_codes(out, unsafe.SliceData(cp), C.int(len(cp)), p, n, C.int(d), C.int(dev), msg)
	})
}

func codesForC(pin *runtime.Pinner, parts []*codes.Matrices) []C.agt_codes {
	cp := make([]C.agt_codes, len(parts))
	for i, p := range parts {
		c := C.agt_codes{
			data: unsafe.Pointer(pinned(pin, p.Data)), bytes: C.int64_t(len(p.Data)),
			scales: (*C.float)(pinned(pin, p.Scales)), n_scales: C.int64_t(len(p.Scales)),
			zeros: (*C.float)(pinned(pin, p.Zeros)), n_zeros: C.int64_t(len(p.Zeros)),
			groups: (*C.int32_t)(pinned(pin, p.Groups)), n_groups: C.int64_t(len(p.Groups)),
			count: C.int64_t(p.Count), rows: C.int64_t(p.Rows), cols: C.int64_t(p.Cols), stride: C.int64_t(p.Stride),
			across: C.int64_t(p.Across), high: C.int64_t(p.High), wide: C.int64_t(p.Wide),
			bits: C.int32_t(p.Bits), order: C.int32_t(p.Order), meaning: C.int32_t(p.Meaning), rounding: C.int32_t(p.Rounding),
		}
		if p.Transposed {
			c.transposed = 1
		}
		cp[i] = c
	}
	return cp
}

// Blocks is how the numbers of a matrix are written in a GGUF: its number of a type that is computed here.
type Blocks int

// BlocksOf is that of a type's name in GGUFs; false for others. F16 is one of them, with blocks of one number.
func BlocksOf(name string) (Blocks, bool) {
	if b, ok := QuantOf(name); ok {
		return b, true
	}
	b, ok := map[string]Blocks{"F16": 1, "IQ2_XXS": 16, "IQ2_XS": 17, "IQ3_XXS": 18, "IQ1_S": 19, "IQ3_S": 21, "IQ2_S": 22, "IQ1_M": 29,
		"TQ1_0": 34, "TQ2_0": 35, "MXFP4": 39, "NVFP4": 40}[name]
	if ok {
		setCodebooks()
	}
	return b, ok
}

// QuantOf is BlocksOf of the types that PackQuant takes.
func QuantOf(name string) (Blocks, bool) {
	b, ok := map[string]Blocks{"Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q2_K": 10, "Q3_K": 11, "Q4_K": 12, "Q5_K": 13,
		"Q6_K": 14, "IQ4_NL": 20, "IQ4_XS": 23}[name]
	return b, ok
}

// setCodebooks gives the codebooks of the IQ types to C++.
var setCodebooks = sync.OnceFunc(func() {
	all := slices.Concat(iqgrids.IQ2XXS(), iqgrids.IQ2XS(), iqgrids.IQ2S(), iqgrids.IQ3XXS(), iqgrids.IQ3S(), iqgrids.IQ1S())
	var msg *C.char
	if C.agt_set_codebooks((*C.int8_t)(unsafe.SliceData(all)), C.int64_t(len(all)), &msg) != 0 {
		panic(C.GoString(msg)) // they are of another size than codebooks.h says
	}
})

// FromBlocks makes a tensor of Float32 or BFloat16 from rows of blocks in several places, one behind the other.
// The numbers are those of the gguf package, to the bit, rounded to the nearest BFloat16. A device with our kernels computes them itself.
func (s *Scope) FromBlocks(parts [][]byte, b Blocks, d DType, dev Device, shape ...int64) Tensor {
	var pin runtime.Pinner
	defer pin.Unpin()
	cp, _ := pinnedParts(&pin, parts)
	p, n := dims(shape)
	return s.op("blocks", func(out *C.agt_tensor, msg **C.char) C.int {
		return C.agt_from_blocks(out, unsafe.SliceData(cp), C.int(len(cp)), p, n, C.int(b), C.int(d), C.int(dev), msg)
	})
}

// pinnedParts are bytes in several places, for C, and how many there are.
func pinnedParts(pin *runtime.Pinner, parts [][]byte) (cp []C.agt_bytes, bytes int) {
	cp = make([]C.agt_bytes, len(parts))
	for i, b := range parts {
		if bytes += len(b); len(b) > 0 {
			cp[i] = C.agt_bytes{data: unsafe.Pointer(pinned(pin, b)), n: C.int64_t(len(b))}
		}
	}
	return cp, bytes
}
