//go:build libtorch

package torch_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"agentcli/internal/torch"
	"agentcli/internal/torch/testdevice"
)

// Sinks give the same on every path: the reference in float64, our CPU kernels, the
// kernels of a GPU on the tests' device, prompts, decoding and trees with their gradient.
func TestSinksAreTheSameOnEveryPath(t *testing.T) {
	const heads, kv, dim, block = 6, 2, 16, 4
	nodes := []torch.TreeNode{{Start: 0, Len: 9, Parent: -1}, {Start: 9, Len: 5, Parent: 0}, {Start: 14, Len: 7, Parent: 0},
		{Start: 21, Len: 3, Parent: 2}}
	const rows = 24
	r := rand.New(rand.NewPCG(9, 10))
	q, k, v, g, sinks := normal(r, rows*heads*dim), normal(r, rows*kv*dim), normal(r, rows*kv*dim), normal(r, rows*heads*dim), normal(r, heads)
	for i := range sinks {
		sinks[i] *= 3
	}
	segs := []torch.CachedSegment{{Start: 0, Len: 9, Context: 9, FirstBlock: 0}, {Start: 9, Len: 1, Context: 14, FirstBlock: 3},
		{Start: 10, Len: 1, Context: 1, FirstBlock: 7}, {Start: 11, Len: 13, Context: 13, FirstBlock: 8}}
	table := []int32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
	pool := [2][]float32{normal(r, 12*block*kv*dim), normal(r, 12*block*kv*dim)}
	compute := func(s *torch.Scope, dev torch.Device, d torch.DType, window int64) (out [][]float64) {
		at := func(data []float32, shape ...int64) torch.Tensor { return s.To(s.Float32(data, shape...), d, dev) }
		leaf := func(x torch.Tensor) torch.Tensor { return s.RequiresGrad(x, true) }
		a, b, c, e := leaf(at(q, rows, heads, dim)), leaf(at(k, rows, kv, dim)), leaf(at(v, rows, kv, dim)), leaf(at(sinks, heads))
		var y torch.Tensor
		s.WithGrad(func() {
			y = s.TreeAttention(a, b, c, s.PlanTree(nodes), torch.Look{Window: window, Sinks: e})
		})
		s.Backward(y, at(g, rows, heads, dim))
		cached := s.CachedAttention(at(q, rows, heads, dim), at(k, rows, kv, dim), at(v, rows, kv, dim), at(pool[0], 12, block, kv, dim),
			at(pool[1], 12, block, kv, dim), s.PlanCache(segs, table), torch.Look{Window: window, Sinks: at(sinks, heads)})
		for _, x := range []torch.Tensor{y, s.Grad(a), s.Grad(b), s.Grad(c), s.Grad(e), cached} {
			out = append(out, s.Float64s(x))
		}
		return out
	}
	what := []string{"a tree", "the gradient of queries", "of keys", "of values", "of sinks", "the cache"}
	for _, window := range []int64{0, 4} {
		var want, plain [][]float64
		onWorker(t, func(s *torch.Scope) { want = compute(s, torch.CPU, torch.Float64, window) })
		was := sinks
		sinks = make([]float32, heads)
		for i := range sinks {
			sinks[i] = -1e4
		}
		onWorker(t, func(s *torch.Scope) { plain = compute(s, torch.CPU, torch.Float64, window) })
		sinks = was
		if apart(want[0], plain[0]) < .1 || apart(want[5], plain[5]) < .1 {
			t.Fatal("the sinks change nothing")
		}
		for _, c := range []struct {
			name    string
			dev     torch.Device
			d       torch.DType
			kernels bool
			tol     float64
		}{{"float32", torch.CPU, torch.Float32, false, 2e-5}, {"bfloat16", torch.CPU, torch.BFloat16, false, .05},
			{"device float32", kernelDevice, torch.Float32, false, 2e-5}, {"device bfloat16", kernelDevice, torch.BFloat16, false, .05},
			{"our kernels float32", kernelDevice, torch.Float32, true, 2e-5},
			{"our kernels bfloat16", kernelDevice, torch.BFloat16, true, .05}} {
			var got [][]float64
			testdevice.Kernels(c.kernels)
			onWorker(t, func(s *torch.Scope) { got = compute(s, c.dev, c.d, window) })
			testdevice.Kernels(false)
			for i := range want {
				top := 0.0
				for _, x := range want[i] {
					top = max(top, math.Abs(x))
				}
				if a := apart(got[i], want[i]); a > c.tol*top {
					t.Errorf("%s, window %d: %s is %g apart of %g", c.name, window, what[i], a, top)
				}
			}
		}
	}
}
