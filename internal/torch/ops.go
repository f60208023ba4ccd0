//go:build libtorch

package torch

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"runtime"
	"strings"
	"unsafe"

	"github.com/sugarme/gotch/libtch"
)

// number is what a tensor is filled from or read into.
type number interface {
	~int32 | ~int64 | ~float32 | ~float64 | ~uint16
}

func dims(shape []int64) (*C.int64_t, C.int) {
	if len(shape) == 0 {
		return nil, 0
	}
	return (*C.int64_t)(unsafe.Pointer(&shape[0])), C.int(len(shape))
}

func product(shape []int64) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return n
}

func fromSlice[E number](s *Scope, data []E, d DType, shape []int64) Tensor {
	if len(shape) == 0 {
		shape = []int64{int64(len(data))}
	}
	if !s.ok("tensor") {
		return Tensor{}
	}
	if product(shape) != int64(len(data)) {
		s.Fail(fmt.Errorf("torch: tensor: %d values for shape %v", len(data), shape))
		return Tensor{}
	}
	p, n := dims(shape)
	var out C.agt_tensor
	var msg *C.char
	if !s.check("tensor", C.agt_from_data(&out, unsafe.Pointer(unsafe.SliceData(data)), p, n, C.int(d), &msg), msg) {
		return Tensor{}
	}
	return s.own(out)
}

// Float32 makes a tensor of the given values; without a shape, a vector.
func (s *Scope) Float32(data []float32, shape ...int64) Tensor {
	return fromSlice(s, data, Float32, shape)
}

// Float64 makes a tensor of the given values; without a shape, a vector.
func (s *Scope) Float64(data []float64, shape ...int64) Tensor {
	return fromSlice(s, data, Float64, shape)
}

// Int64 makes a tensor of the given values; without a shape, a vector.
func (s *Scope) Int64(data []int64, shape ...int64) Tensor { return fromSlice(s, data, Int64, shape) }

// IDs makes an int64 vector of token ids.
func (s *Scope) IDs(ids []int32) Tensor {
	wide := make([]int64, len(ids))
	for i, id := range ids {
		wide[i] = int64(id)
	}
	return s.Int64(wide)
}

// FromBytes copies raw little-endian data, e.g. a mapped safetensors tensor.
func (s *Scope) FromBytes(data []byte, d DType, shape ...int64) Tensor {
	return s.FromParts([][]byte{data}, d, CPU, shape...)
}

// FromParts is FromBytes of data in several places, one behind the other, on a device.
func (s *Scope) FromParts(parts [][]byte, d DType, dev Device, shape ...int64) Tensor {
	if !s.ok("tensor") {
		return Tensor{}
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	cp, bytes := pinnedParts(&pin, parts)
	if product(shape)*int64(d.Size()) != int64(bytes) {
		s.Fail(fmt.Errorf("torch: tensor: %d bytes for shape %v of %v", bytes, shape, d))
		return Tensor{}
	}
	p, n := dims(shape)
	return s.op("tensor", func(out *C.agt_tensor, msg **C.char) C.int {
		return C.agt_from_parts(out, unsafe.SliceData(cp), C.int(len(cp)), p, n, C.int(d), C.int(dev), msg)
	})
}

// Full makes a tensor filled with v.
func (s *Scope) Full(v float64, d DType, dev Device, shape ...int64) Tensor {
	p, n := dims(shape)
	return s.op("full", func(out *C.agt_tensor, msg **C.char) C.int {
		return C.agt_full(out, p, n, C.double(v), C.int(d), C.int(dev), msg)
	})
}

// Empty makes a tensor without filling it; its memory is taken when written.
func (s *Scope) Empty(d DType, dev Device, shape ...int64) Tensor {
	p, n := dims(shape)
	return s.op("empty", func(out *C.agt_tensor, msg **C.char) C.int {
		return C.agt_empty(out, p, n, C.int(d), C.int(dev), msg)
	})
}

// EmptyOnHost is Empty in memory of the host that a device reads and writes itself.
func (s *Scope) EmptyOnHost(d DType, of Device, shape ...int64) Tensor {
	p, n := dims(shape)
	return s.op("empty", func(out *C.agt_tensor, msg **C.char) C.int {
		return C.agt_empty_host(out, p, n, C.int(d), C.int(of), msg)
	})
}

// op runs one shim function that makes one tensor.
func (s *Scope) op(name string, f func(out *C.agt_tensor, msg **C.char) C.int, in ...Tensor) Tensor {
	if !s.ok(name, in...) {
		return Tensor{}
	}
	var out C.agt_tensor
	var msg *C.char
	if !s.check(name, f(&out, &msg), msg) {
		return Tensor{}
	}
	return s.own(out)
}

// libtch runs one call of gotch's raw bindings that makes one tensor.
func (s *Scope) libtch(name string, f func(out *libtch.Ctensor), in ...Tensor) Tensor {
	if !s.ok(name, in...) {
		return Tensor{}
	}
	var out libtch.Ctensor
	f(&out)
	if p := libtch.GetAndResetLastErr(); p != nil {
		text := C.GoString((*C.char)(unsafe.Pointer(p)))
		C.free(unsafe.Pointer(p))
		s.Fail(opError(name, firstLine(text)+s.shapes(in)))
		return Tensor{}
	}
	return s.own(C.agt_tensor(out))
}

// shapes lists the inputs' sizes for an error message; libtorch names at best
// the one dimension that does not fit.
func (s *Scope) shapes(in []Tensor) string {
	var b strings.Builder
	for i, x := range in {
		var d [8]C.int64_t
		var n C.int
		var msg *C.char
		if C.agt_shape(x.p, &d[0], &n, &msg) != 0 {
			C.free(unsafe.Pointer(msg))
			continue
		}
		b.WriteString([2]string{" (inputs ", ", "}[min(i, 1)])
		fmt.Fprint(&b, d[:n])
	}
	return b.String() + ")"
}

func firstLine(text string) string {
	for i, c := range text {
		if c == '\n' {
			return text[:i]
		}
	}
	return text
}

func (t Tensor) raw() libtch.Ctensor { return libtch.Ctensor(t.p) }

// Add is a + b with broadcasting.
func (s *Scope) Add(a, b Tensor) Tensor {
	return s.libtch("add", func(o *libtch.Ctensor) { libtch.AtgAdd(o, a.raw(), b.raw()) }, a, b)
}

// Mul is a · b with broadcasting.
func (s *Scope) Mul(a, b Tensor) Tensor {
	return s.libtch("mul", func(o *libtch.Ctensor) { libtch.AtgMul(o, a.raw(), b.raw()) }, a, b)
}

// MatMul is the matrix product.
func (s *Scope) MatMul(a, b Tensor) Tensor {
	return s.libtch("matmul", func(o *libtch.Ctensor) { libtch.AtgMatmul(o, a.raw(), b.raw()) }, a, b)
}

// Transpose swaps two dimensions.
func (s *Scope) Transpose(x Tensor, a, b int64) Tensor {
	return s.libtch("transpose", func(o *libtch.Ctensor) { libtch.AtgTranspose(o, x.raw(), a, b) }, x)
}

// IndexSelect takes the entries of dimension dim that index (int64) names.
func (s *Scope) IndexSelect(x Tensor, dim int64, index Tensor) Tensor {
	return s.libtch("index_select", func(o *libtch.Ctensor) { libtch.AtgIndexSelect(o, x.raw(), dim, index.raw()) }, x, index)
}

// Sum is the sum of all elements, in the given type.
func (s *Scope) Sum(x Tensor, d DType) Tensor {
	return s.libtch("sum", func(o *libtch.Ctensor) { libtch.AtgSum(o, x.raw(), int32(d)) }, x)
}

// To converts; it returns a new handle even where nothing changes.
func (s *Scope) To(x Tensor, d DType, dev Device) Tensor { return s.to(x, d, dev, false) }

// Clone is To into memory of its own, even where nothing changes.
func (s *Scope) Clone(x Tensor, d DType, dev Device) Tensor { return s.to(x, d, dev, true) }

// to is To; fresh copies even where nothing changes.
func (s *Scope) to(x Tensor, d DType, dev Device, fresh bool) Tensor {
	c := C.int(0)
	if fresh {
		c = 1
	}
	return s.op("to", func(o *C.agt_tensor, m **C.char) C.int { return C.agt_to(o, x.p, C.int(d), C.int(dev), c, m) }, x)
}

// Narrow is a view of len entries of dimension dim from start.
func (s *Scope) Narrow(x Tensor, dim int, start, length int64) Tensor {
	return s.op("narrow", func(o *C.agt_tensor, m **C.char) C.int {
		return C.agt_narrow(o, x.p, C.int(dim), C.int64_t(start), C.int64_t(length), m)
	}, x)
}

// Split cuts dimension dim into views of the given sizes; unlike several Narrows
// they have one gradient, which is not summed from parts.
func (s *Scope) Split(x Tensor, dim int, sizes ...int64) []Tensor {
	out := make([]Tensor, len(sizes))
	if !s.ok("split", x) || len(sizes) == 0 {
		return out
	}
	p, n := dims(sizes)
	ptrs := make([]C.agt_tensor, len(sizes))
	var msg *C.char
	if s.check("split", C.agt_split(ptr0(ptrs), x.p, p, n, C.int(dim), &msg), msg) {
		for i := range out {
			out[i] = s.own(ptrs[i])
		}
	}
	return out
}

// Reshape gives x another shape of the same number of elements.
func (s *Scope) Reshape(x Tensor, shape ...int64) Tensor {
	p, n := dims(shape)
	return s.op("reshape", func(o *C.agt_tensor, m **C.char) C.int { return C.agt_view(o, x.p, p, n, m) }, x)
}

// Cat joins tensors along dim.
func (s *Scope) Cat(dim int, xs ...Tensor) Tensor {
	ptrs := pointers(xs)
	return s.op("cat", func(o *C.agt_tensor, m **C.char) C.int {
		return C.agt_cat(o, ptr0(ptrs), C.int(len(ptrs)), C.int(dim), m)
	}, xs...)
}

// Linear is x·wᵀ + bias; w [out, in], bias may be the zero Tensor.
func (s *Scope) Linear(x, w, bias Tensor) Tensor {
	return s.op("linear", func(o *C.agt_tensor, m **C.char) C.int { return C.agt_linear(o, x.p, w.p, bias.p, m) }, x, w)
}

// Detach is x without what backward recorded of it.
func (s *Scope) Detach(x Tensor) Tensor {
	return s.op("detach", func(o *C.agt_tensor, m **C.char) C.int { return C.agt_detach(o, x.p, m) }, x)
}

// Norm is an RMSNorm (Zhang & Sennrich 2019): (Offset + w)·x/√(mean x² + Eps) over the
// last dimension.
type Norm struct{ Eps, Offset float64 }

// RMSNorm norms the last dimension of x.
func (s *Scope) RMSNorm(x, w Tensor, n Norm) Tensor {
	return s.op("rms_norm", func(o *C.agt_tensor, m **C.char) C.int {
		return C.agt_rms_norm(o, x.p, w.p, C.double(n.Eps), C.double(n.Offset), m)
	}, x, w)
}

// AddRMSNorm is sum = x + y and out = RMSNorm(sum).
func (s *Scope) AddRMSNorm(x, y, w Tensor, n Norm) (sum, out Tensor) {
	out = s.op("add_rms_norm", func(o *C.agt_tensor, m **C.char) C.int {
		var p C.agt_tensor
		st := C.agt_add_rms_norm(&p, o, x.p, y.p, w.p, C.double(n.Eps), C.double(n.Offset), m)
		sum = s.own(p)
		return st
	}, x, y, w)
	return sum, out
}

// Embedding takes the rows of weight that ids (int64) name; an id outside the
// vocabulary is an error.
func (s *Scope) Embedding(weight, ids Tensor) Tensor {
	return s.op("embedding", func(o *C.agt_tensor, m **C.char) C.int { return C.agt_embedding(o, weight.p, ids.p, m) }, weight, ids)
}

// Rope rotates the first R dimensions of each head of x [tokens, heads, dim] by cos and
// sin [tokens, R/2], which are float32 (float64 for float64 x). The pairs are (i, i+R/2),
// or neighbours where interleaved is set.
func (s *Scope) Rope(x, cos, sin Tensor, interleaved bool) Tensor {
	pairs := C.int(0)
	if interleaved {
		pairs = 1
	}
	return s.op("rope", func(o *C.agt_tensor, m **C.char) C.int { return C.agt_rope(o, x.p, cos.p, sin.p, pairs, m) }, x, cos, sin)
}

// SiluMul is silu(g)·u of x = [g, u] along the last dimension.
func (s *Scope) SiluMul(x Tensor) Tensor {
	return s.op("silu_mul", func(o *C.agt_tensor, m **C.char) C.int { return C.agt_silu_mul(o, x.p, m) }, x)
}

// GELUMul is gelu(g)·u of x = [g, u] along the last dimension, with the approximation of
// GELU by tanh.
func (s *Scope) GELUMul(x Tensor) Tensor {
	return s.op("gelu_mul", func(o *C.agt_tensor, m **C.char) C.int { return C.agt_gelu_mul(o, x.p, m) }, x)
}

// SoftCap is limit·tanh(x/limit) (Bello et al. 2016); limit is above 0. No backward.
func (s *Scope) SoftCap(x Tensor, limit float64) Tensor {
	return s.op("soft_cap", func(o *C.agt_tensor, m **C.char) C.int { return C.agt_soft_cap(o, x.p, C.double(limit), m) }, x)
}

// Times is x·factor.
func (s *Scope) Times(x Tensor, factor float64) Tensor {
	return s.op("times", func(o *C.agt_tensor, m **C.char) C.int { return C.agt_times(o, x.p, C.double(factor), m) }, x)
}

// HeadLogprobs gives, for hidden [N, H], an output matrix [V, H] and target ids
// [N], the log-prob of each target and the entropy of each row's distribution
// in nats, both [N] in float32 and differentiable. Each row's logits are multiplied
// by its scale [N] first, 1 over a temperature; a zero Tensor is 1 everywhere, to
// the same bits. Logits exist for `chunk` rows at a time only and are computed
// again in backward.
func (s *Scope) HeadLogprobs(hidden, weight, targets, scale Tensor, chunk int64) (logprobs, entropy Tensor) {
	return s.HeadLogprobsOf(hidden, weight, targets, Head{Scale: scale, Chunk: chunk})
}

// Head says what becomes of logits before their softmax, in this order.
type Head struct {
	Cap    float64 // as SoftCap; 0: none
	Barred Tensor  // as Bar; the zero Tensor: none
	Scale  Tensor  // as HeadLogprobs
	Chunk  int64   // rows whose logits exist at once
}

// HeadLogprobsOf is HeadLogprobs of logits that are capped and barred.
func (s *Scope) HeadLogprobsOf(hidden, weight, targets Tensor, h Head) (logprobs, entropy Tensor) {
	logprobs = s.op("head_logprobs", func(o *C.agt_tensor, m **C.char) C.int {
		var e C.agt_tensor
		st := C.agt_head_logprobs(o, &e, hidden.p, weight.p, targets.p, h.Scale.p, h.Barred.p, C.double(h.Cap), C.int64_t(h.Chunk), m)
		entropy = s.own(e)
		return st
	}, hidden, weight, targets)
	return logprobs, entropy
}

// Bar gives logits [N, V] in which these 64-bit ids [K] are so unlikely that they are never
// drawn: the log-probs of the others are those without them.
func (s *Scope) Bar(logits, ids Tensor) Tensor {
	return s.op("bar", func(o *C.agt_tensor, m **C.char) C.int { return C.agt_bar(o, logits.p, ids.p, m) }, logits, ids)
}

// SampleRow says how one row of logits is drawn from. Uniform is in [0, 1); Tempered
// is 1 where the log-prob is to be that of logits/Temperature, 0 for the model's own.
type SampleRow struct {
	Temperature, TopP, MinP, Uniform float64
	TopK, Tempered                   int64
}

// Sample draws one id from each row of logits [N, V] and gives its log-prob, of the
// full vocabulary: under the model, or after the temperature where the row says so.
// A greedy row (Temperature 0) has the model's.
func (s *Scope) Sample(logits Tensor, rows []SampleRow) (ids []int32, logprobs []float32) {
	if !s.ok("sample", logits) || len(rows) == 0 {
		return nil, nil
	}
	ids, logprobs = make([]int32, len(rows)), make([]float32, len(rows))
	var msg *C.char
	s.check("sample", C.agt_sample(logits.p, (*C.agt_sampling)(unsafe.Pointer(&rows[0])), C.int(len(rows)),
		(*C.int32_t)(unsafe.Pointer(&ids[0])), (*C.float)(unsafe.Pointer(&logprobs[0])), &msg), msg)
	return ids, logprobs
}

// Backward adds the gradient of x to every leaf under it; grad is dL/dx, or the
// zero Tensor where x is a scalar. An error leaves partial gradients: clear them.
func (s *Scope) Backward(x, grad Tensor) { s.BackwardAll([]Tensor{x}, []Tensor{grad}) }

// BackwardAll is Backward of several outputs of one computation, which is walked
// through once.
func (s *Scope) BackwardAll(xs, grads []Tensor) {
	if !s.ok("backward", xs...) || len(xs) == 0 {
		return
	}
	if len(xs) != len(grads) {
		s.Fail(fmt.Errorf("torch: backward: %d outputs, %d gradients", len(xs), len(grads)))
		return
	}
	p, g := pointers(xs), pointers(grads)
	var msg *C.char
	s.check("backward", C.agt_backward(ptr0(p), ptr0(g), C.int(len(p)), &msg), msg)
}

// Grad is the gradient that backward left at a leaf.
func (s *Scope) Grad(x Tensor) Tensor {
	return s.op("grad", func(o *C.agt_tensor, m **C.char) C.int { return C.agt_grad(o, x.p, m) }, x)
}

// HasGrad reports whether backward left a gradient at a leaf.
func (s *Scope) HasGrad(x Tensor) bool {
	if !s.ok("has_grad", x) {
		return false
	}
	return C.agt_has_grad(x.p) != 0
}

// ClearGrad drops the gradient of a leaf.
func (s *Scope) ClearGrad(x Tensor) {
	if !s.ok("clear_grad", x) {
		return
	}
	var msg *C.char
	s.check("clear_grad", C.agt_clear_grad(x.p, &msg), msg)
}

// RequiresGrad makes x a leaf that backward gives a gradient.
func (s *Scope) RequiresGrad(x Tensor, on bool) Tensor {
	if !s.ok("requires_grad", x) {
		return x
	}
	v := C.int(0)
	if on {
		v = 1
	}
	var msg *C.char
	s.check("requires_grad", C.agt_requires_grad_(x.p, v, &msg), msg)
	return x
}

// Copy writes src into dst, converting its type.
func (s *Scope) Copy(dst, src Tensor) { s.copy(dst, src, 1) }

// CopyBehind is Copy behind what the device has to do, without waiting for it: neither may be
// touched by the host before the device is done.
func (s *Scope) CopyBehind(dst, src Tensor) { s.copy(dst, src, 0) }

func (s *Scope) copy(dst, src Tensor, waits C.int) {
	if !s.ok("copy", dst, src) {
		return
	}
	var msg *C.char
	if C.agt_copy_(dst.p, src.p, waits, &msg) != 0 {
		text := C.GoString(msg)
		C.free(unsafe.Pointer(msg))
		s.Fail(opError("copy", text+s.shapes([]Tensor{dst, src})))
	}
}

// GlobalNorm is the 2-norm of all elements of all tensors together.
func (s *Scope) GlobalNorm(xs []Tensor) float64 {
	if !s.ok("global_norm", xs...) {
		return 0
	}
	p := pointers(xs)
	var norm C.double
	var msg *C.char
	s.check("global_norm", C.agt_global_norm(ptr0(p), C.int(len(p)), &norm, &msg), msg)
	return float64(norm)
}

// Scale multiplies every tensor in place.
func (s *Scope) Scale(xs []Tensor, factor float64) {
	if !s.ok("scale", xs...) {
		return
	}
	p := pointers(xs)
	var msg *C.char
	s.check("scale", C.agt_scale_(ptr0(p), C.int(len(p)), C.double(factor), &msg), msg)
}

// AdamWConfig are the constants of one AdamW step.
type AdamWConfig struct{ LR, Beta1, Beta2, Eps, WeightDecay float64 }

// AdamW takes step number `step` (from 1) on params in place, with first and
// second moments m and v (Loshchilov & Hutter 2019, algorithm 2).
func (s *Scope) AdamW(params, grads, m, v []Tensor, c AdamWConfig, step int) {
	if !s.ok("adamw", params...) || !s.ok("adamw", grads...) || !s.ok("adamw", m...) || !s.ok("adamw", v...) {
		return
	}
	if len(params) != len(grads) || len(params) != len(m) || len(params) != len(v) {
		s.Fail(fmt.Errorf("torch: adamw: %d params, %d gradients, %d and %d moments", len(params), len(grads), len(m), len(v)))
		return
	}
	p, g, mm, vv := pointers(params), pointers(grads), pointers(m), pointers(v)
	var msg *C.char
	s.check("adamw", C.agt_adamw_(ptr0(p), ptr0(g), ptr0(mm), ptr0(vv), C.int(len(p)), C.double(c.LR), C.double(c.Beta1),
		C.double(c.Beta2), C.double(c.Eps), C.double(c.WeightDecay), C.double(step), &msg), msg)
}

// Shape is the tensor's size in each dimension.
func (s *Scope) Shape(x Tensor) []int64 {
	if !s.ok("shape", x) {
		return nil
	}
	var d [8]int64
	var n C.int
	var msg *C.char
	if !s.check("shape", C.agt_shape(x.p, (*C.int64_t)(unsafe.Pointer(&d[0])), &n, &msg), msg) {
		return nil
	}
	return append([]int64{}, d[:n]...)
}

func (s *Scope) info(x Tensor) (d DType, dev Device, grad bool) {
	if !s.ok("info", x) {
		return Float32, CPU, false
	}
	var a, b, c C.int
	var msg *C.char
	s.check("info", C.agt_info(x.p, &a, &b, &c, &msg), msg)
	return DType(a), Device(b), c != 0
}

// IsRecorded reports whether backward can go through x.
func (s *Scope) IsRecorded(x Tensor) bool { _, _, grad := s.info(x); return grad }

// DType is the tensor's element type.
func (s *Scope) DType(x Tensor) DType { d, _, _ := s.info(x); return d }

// Device is where the tensor lives.
func (s *Scope) Device(x Tensor) Device { _, d, _ := s.info(x); return d }

func read[E number](s *Scope, x Tensor, d DType) []E {
	shape := s.Shape(x)
	if s.err != nil {
		return nil
	}
	out := make([]E, product(shape))
	var msg *C.char
	if !s.check("read", C.agt_copy_out(x.p, unsafe.Pointer(unsafe.SliceData(out)), C.int(d), C.int64_t(len(out)), &msg), msg) {
		return nil
	}
	return out
}

// Float32s copies the tensor's values out, converted, in row-major order.
func (s *Scope) Float32s(x Tensor) []float32 { return read[float32](s, x, Float32) }

// Float64s copies the tensor's values out, converted, in row-major order.
func (s *Scope) Float64s(x Tensor) []float64 { return read[float64](s, x, Float64) }

// Bytes copies the tensor's raw little-endian data out in its own type.
func (s *Scope) Bytes(x Tensor) []byte {
	d := s.DType(x)
	shape := s.Shape(x)
	if s.err != nil {
		return nil
	}
	out := make([]byte, product(shape)*int64(d.Size()))
	var msg *C.char
	if !s.check("read", C.agt_copy_out(x.p, unsafe.Pointer(unsafe.SliceData(out)), C.int(d), C.int64_t(product(shape)), &msg), msg) {
		return nil
	}
	return out
}

func pointers(xs []Tensor) []C.agt_tensor {
	out := make([]C.agt_tensor, len(xs))
	for i, x := range xs {
		out[i] = x.p
	}
	return out
}

func ptr0(p []C.agt_tensor) *C.agt_tensor {
	runtime.KeepAlive(p)
	return unsafe.SliceData(p)
}
