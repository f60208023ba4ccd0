//go:build libtorch

package torch_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"agentcli/internal/torch"
)

func TestDataGoesInAndOutUnchanged(t *testing.T) {
	w := worker(t, 1)
	run(t, w, func(s *torch.Scope) {
		raw := []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
		for _, d := range []torch.DType{torch.Int32, torch.Int64, torch.Float16, torch.Float32, torch.Float64, torch.BFloat16} {
			x := s.FromBytes(raw, d, int64(16/d.Size()))
			if got := s.Bytes(x); !bytes.Equal(got, raw) || s.DType(x) != d || s.Device(x) != torch.CPU {
				t.Errorf("%v: % x on %v as %v", d, got, s.Device(x), s.DType(x))
			}
		}
		if got := s.Bytes(s.FromBytes([]byte{1, 0, 1}, torch.Bool, 3)); !bytes.Equal(got, []byte{1, 0, 1}) {
			t.Errorf("bool: %v", got)
		}
		if got := s.Float32s(s.To(s.Float64([]float64{1.5, -2.25}), torch.Float16, torch.CPU)); !slices.Equal(got, []float32{1.5, -2.25}) {
			t.Errorf("through float16: %v", got)
		}
		if got := s.Float64s(s.IDs([]int32{-1, 7, math.MaxInt32})); !slices.Equal(got, []float64{-1, 7, math.MaxInt32}) {
			t.Errorf("ids: %v", got)
		}
		// A view is read in its own order.
		x := s.Float32([]float32{1, 2, 3, 4, 5, 6}, 2, 3)
		if got := s.Float32s(s.Narrow(x, 1, 1, 2)); !slices.Equal(got, []float32{2, 3, 5, 6}) {
			t.Errorf("narrow: %v", got)
		}
		if got := s.Bytes(s.Narrow(x, 1, 2, 1)); !bytes.Equal(got, s.Bytes(s.Float32([]float32{3, 6}))) {
			t.Errorf("bytes of a view: % x", got)
		}
	})
}

func TestCopyWritesThroughViewsAndConverts(t *testing.T) {
	w := worker(t, 1)
	run(t, w, func(s *torch.Scope) {
		x := s.RequiresGrad(s.Float32([]float32{1, 2, 3, 4, 5, 6}, 2, 3), true)
		s.Copy(s.Narrow(x, 1, 1, 1), s.Float64([]float64{-1, -2}, 2, 1))
		c := clone(s, x)
		if got := s.Float32s(x); !slices.Equal(got, []float32{1, -1, 3, 4, -2, 6}) {
			t.Errorf("copy: %v", got)
		}
		s.Copy(x, s.Full(9, torch.BFloat16, torch.CPU, 2, 3))
		if got := s.Float32s(c); got[0] != 1 {
			t.Error("the clone shares memory")
		}
		if got := s.Float32s(s.To(x, torch.Float32, torch.CPU)); got[5] != 9 {
			t.Errorf("To: %v", got)
		}
	})
}

func TestKernelsTakeNonContiguousInputs(t *testing.T) {
	w := worker(t, 1)
	run(t, w, func(s *torch.Scope) {
		rng := rand.New(rand.NewPCG(9, 9))
		rnd := func(shape ...int64) (view, plain torch.Tensor) { // every second half of the last dimension
			wide := slices.Clone(shape)
			last := len(shape) - 1
			wide[last] *= 2
			v := make([]float32, numel(wide))
			for i := range v {
				v[i] = float32(rng.NormFloat64())
			}
			view = s.Narrow(s.Float32(v, wide...), last, shape[last], shape[last])
			return view, s.Float32(s.Float32s(view), shape...)
		}
		for _, grad := range []bool{false, true} {
			f := func(f func()) { f() }
			if grad {
				f = s.WithGrad
			}
			f(func() {
				x, xc := rnd(3, 8)
				y, yc := rnd(3, 8)
				n, nc := rnd(8)
				cos, cosc := rnd(3, 4)
				r, rc := rnd(3, 2, 8)
				near(t, "rms_norm", s.Float64s(s.RMSNorm(x, n, torch.Norm{Eps: 1e-5})), s.Float64s(s.RMSNorm(xc, nc, torch.Norm{Eps: 1e-5})), 1e-7)
				_, a := s.AddRMSNorm(x, y, n, torch.Norm{Eps: 1e-5})
				_, b := s.AddRMSNorm(xc, yc, nc, torch.Norm{Eps: 1e-5})
				near(t, "add_rms_norm", s.Float64s(a), s.Float64s(b), 1e-7)
				near(t, "silu_mul", s.Float64s(s.SiluMul(x)), s.Float64s(s.SiluMul(xc)), 1e-7)
				near(t, "rope", s.Float64s(s.Rope(r, cos, cos, false)), s.Float64s(s.Rope(rc, cosc, cosc, false)), 1e-7)
			})
		}
	})
}

func TestEmptyShapesWorkInEveryOp(t *testing.T) {
	w := worker(t, 1)
	for _, d := range []torch.DType{torch.Float32, torch.BFloat16, torch.Float64} {
		for _, grad := range []bool{false, true} {
			run(t, w, func(s *torch.Scope) {
				e := func(shape ...int64) torch.Tensor { return s.RequiresGrad(s.Full(1, d, torch.CPU, shape...), grad) }
				acc := torch.Float32
				if d == torch.Float64 {
					acc = d
				}
				f := func(f func()) { f() }
				if grad {
					f = s.WithGrad
				}
				f(func() {
					failed := false // the scope keeps its first error
					want := func(what string, x torch.Tensor, shape ...int64) {
						if failed {
							return
						}
						if got := s.Shape(x); s.Err() == nil && !slices.Equal(got, shape) {
							t.Errorf("%s: %v, want %v", what, got, shape)
						}
						if s.Err() == nil && len(s.Float32s(x)) != int(numel(shape)) {
							t.Errorf("%s: values of an empty tensor", what)
						}
						if grad && s.Err() == nil {
							s.Backward(s.Sum(x, acc), torch.Tensor{})
						}
						if s.Err() != nil {
							t.Errorf("%s (%v, grad %v): %v", what, d, grad, s.Err())
							failed = true
						}
					}
					want("add", s.Add(e(0, 3), e(3)), 0, 3)
					want("matmul", s.MatMul(e(0, 3), e(3, 4)), 0, 4)
					want("linear", s.Linear(e(0, 3), e(4, 3), e(4)), 0, 4)
					want("rms_norm", s.RMSNorm(e(0, 3), e(3), torch.Norm{Eps: 1e-5}), 0, 3)
					sum, out := s.AddRMSNorm(e(0, 3), e(0, 3), e(3), torch.Norm{Eps: 1e-5})
					want("add_rms_norm", s.Add(sum, out), 0, 3)
					want("embedding", s.Embedding(e(5, 3), s.Int64(nil)), 0, 3)
					want("rope", s.Rope(e(0, 2, 4), s.Full(1, acc, torch.CPU, 0, 2), s.Full(1, acc, torch.CPU, 0, 2), false), 0, 2, 4)
					want("silu_mul", s.SiluMul(e(0, 6)), 0, 3)
					want("tree_attention of nothing", s.TreeAttention(e(0, 2, 4), e(0, 1, 4), e(0, 1, 4), s.PlanTree(nil), torch.Look{}), 0, 2, 4)
					want("tree_attention with an empty node",
						s.TreeAttention(e(3, 2, 4), e(3, 1, 4), e(3, 1, 4), s.PlanTree([]torch.TreeNode{{0, 2, -1}, {2, 0, 0}, {2, 1, 1}}),
							torch.Look{}), 3, 2, 4)
					want("tree_attention with an empty root",
						s.TreeAttention(e(2, 2, 4), e(2, 1, 4), e(2, 1, 4), s.PlanTree([]torch.TreeNode{{0, 0, -1}, {0, 2, 0}}),
							torch.Look{Window: 1}), 2, 2, 4)
					lp, _ := s.HeadLogprobs(e(0, 3), e(5, 3), s.Int64(nil), torch.Tensor{}, 4)
					want("head_logprobs", lp, 0)
					want("cat", s.Cat(0, e(0, 3), e(2, 3), e(0, 3)), 2, 3)
					want("narrow", s.Narrow(e(4, 3), 0, 4, 0), 0, 3)
					want("reshape", s.Reshape(e(0, 6), 0, 2, 3), 0, 2, 3)
					want("index_select", s.IndexSelect(e(4, 3), 0, s.Int64(nil)), 0, 3)
				})
				if grad {
					return
				}
				o := s.CachedAttention(e(0, 2, 4), e(0, 1, 4), e(0, 1, 4), e(3, 2, 1, 4), e(3, 2, 1, 4), s.PlanCache(nil, nil), torch.Look{})
				if got := s.Shape(o); s.Err() == nil && got[0] != 0 {
					t.Errorf("cached_attention: %v", got)
				}
				if got := s.Float64s(s.Sum(e(0, 3), torch.Float64)); len(got) != 1 || got[0] != 0 {
					t.Errorf("the sum of nothing is %v", got)
				}
				s.Copy(e(0, 3), e(0, 3))
				s.FromBytes(nil, d, 0)
				if ids, lp := s.Sample(e(0, 3), nil); ids != nil || lp != nil {
					t.Errorf("a sample of nothing: %v %v", ids, lp)
				}
				s.Scale(nil, 2)
				s.AdamW(nil, nil, nil, nil, torch.AdamWConfig{}, 1)
			})
		}
	}
}
