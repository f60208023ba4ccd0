//go:build libtorch

package torch_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/sys/cpu"

	"agentcli/internal/torch"
)

// The tables do the same sums in another order: they agree to a few ulp on
// sizes with and without tails, on all threads.
func TestKernelTablesAgree(t *testing.T) {
	w := worker(t, 2)
	type result struct {
		vals map[string][]float64
		ids  []int32
	}
	compute := func(d torch.DType) (r result) {
		r.vals = map[string][]float64{}
		run(t, w, func(s *torch.Scope) {
			rng := rand.New(rand.NewPCG(3, 4))
			rnd := func(scale float64, shape ...int64) torch.Tensor {
				v := make([]float64, numel(shape))
				for i := range v {
					v[i] = rng.NormFloat64() * scale
				}
				return s.To(s.Float64(v, shape...), d, torch.CPU)
			}
			acc := torch.Float32
			if d == torch.Float64 {
				acc = torch.Float64
			}
			for _, n := range []int64{1, 15, 16, 17, 576} {
				r.vals[fmt.Sprint("rms_norm ", n)] = s.Float64s(s.RMSNorm(rnd(1, 33, n), rnd(1, n), torch.Norm{Eps: 1e-5}))
				_, out := s.AddRMSNorm(rnd(1, 33, n), rnd(1, 33, n), rnd(1, n), torch.Norm{Eps: 1e-5})
				r.vals[fmt.Sprint("add_rms_norm ", n)] = s.Float64s(out)
				r.vals[fmt.Sprint("silu_mul ", n)] = s.Float64s(s.SiluMul(rnd(10, 33, 2*n)))
				ang := rnd(1, 33, n)
				r.vals[fmt.Sprint("rope ", n)] = s.Float64s(s.Rope(rnd(1, 33, 3, 2*n), s.To(ang, acc, torch.CPU), s.To(ang, acc, torch.CPU), false))
				x := s.RequiresGrad(rnd(10, 33, 2*n), true)
				s.WithGrad(func() { s.Backward(s.SiluMul(x), rnd(1, 33, n)) })
				r.vals[fmt.Sprint("silu_mul backward ", n)] = s.Float64s(s.Grad(x))
			}
			for _, dim := range []int64{5, 64} {
				o := s.CachedAttention(rnd(1, 2, 6, dim), rnd(1, 2, 3, dim), rnd(1, 2, 3, dim), rnd(1, 9, 16, 3, dim), rnd(1, 9, 16, 3, dim),
					s.PlanCache([]torch.CachedSegment{{0, 1, 70, 0}, {1, 1, 1, 5}}, []int32{8, 1, 7, 2, 4, 3}), torch.Look{})
				r.vals[fmt.Sprint("paged_decode ", dim)] = s.Float64s(o)
			}
			const vocab = 5003
			z := s.To(rnd(2, 64, vocab), torch.Float32, torch.CPU)
			rows := make([]torch.SampleRow, 64)
			for i := range rows {
				rows[i] = torch.SampleRow{Temperature: float64(i%4) * .5, Uniform: rng.Float64(), TopK: int64(i%3) * 20,
					TopP: float64(i%5) * .2, MinP: float64(i%2) * .01}
			}
			ids, lp := s.Sample(z, rows)
			r.ids = ids
			for _, x := range lp {
				r.vals["sample"] = append(r.vals["sample"], float64(x))
			}
		})
		return r
	}
	for _, d := range []torch.DType{torch.Float64, torch.Float32, torch.BFloat16} {
		if err := torch.UseKernels("base"); err != nil {
			t.Fatal(err)
		}
		want := compute(d)
		for _, name := range []string{"avx2", "avx512"} {
			if err := torch.UseKernels(name); err != nil {
				t.Log(err)
				continue
			}
			got := compute(d)
			// A bfloat16 result may fall to the other neighbour: one ulp, 2⁻⁷.
			tol := map[torch.DType]float64{torch.Float64: 1e-14, torch.Float32: 1e-6, torch.BFloat16: 1.0 / 128}[d]
			for k := range want.vals {
				tk := tol
				if k == "sample" {
					tk = 1e-6
				}
				near(t, fmt.Sprintf("%s %s %v", name, k, d), got.vals[k], want.vals[k], tk)
			}
			if !slices.Equal(got.ids, want.ids) {
				t.Errorf("%s samples %v, base %v", name, got.ids, want.ids)
			}
		}
	}
	torch.UseKernels("")
}

func TestBFloat16RoundsLikePyTorch(t *testing.T) {
	g := data(t)
	w := worker(t, 1)
	eachKernels(t, func(t *testing.T) {
		run(t, w, func(s *torch.Scope) {
			want := make([]byte, 0, 2*len(g.Rounding.Bits))
			for _, b := range g.Rounding.Bits {
				want = binary.LittleEndian.AppendUint16(want, b)
			}
			if got := s.Bytes(s.To(g.Rounding.In.tensor(s, torch.Float32), torch.BFloat16, torch.CPU)); !bytes.Equal(got, want) {
				t.Errorf("To: % x, want % x", got, want)
			}
			// Our kernels' own rounding, seen through the sum of AddRMSNorm.
			rng := rand.New(rand.NewPCG(1, 2))
			v := make([]float32, 4096)
			for i := range v {
				v[i] = float32(rng.NormFloat64()) * float32(math.Exp2(float64(i%20)))
			}
			x := s.To(s.Float32(v, 64, 64), torch.BFloat16, torch.CPU)
			slices.Reverse(v)
			y := s.To(s.Float32(v, 64, 64), torch.BFloat16, torch.CPU)
			sum, _ := s.AddRMSNorm(x, y, s.Full(1, torch.BFloat16, torch.CPU, 64), torch.Norm{Eps: 1e-5})
			if !bytes.Equal(s.Bytes(sum), s.Bytes(s.Add(x, y))) {
				t.Error("a sum in the kernel is not libtorch's sum")
			}
		})
	})
}

// The prompt kernel against libtorch's own attention (float64 takes that path):
// whole prompts, the rest of a cached one, several at once, beside decoding
// rows, with a window, over blocks in any order.
func TestPromptAttentionEqualsLibtorchs(t *testing.T) {
	w := worker(t, 2)
	type shape struct{ hq, hkv, dim int64 }
	cases := []struct {
		shape
		segs   [][2]int32 // new tokens, context
		window int64
	}{
		{shape{3, 1, 64}, [][2]int32{{2, 2}}, 0},
		{shape{9, 3, 64}, [][2]int32{{130, 130}}, 0},
		{shape{9, 3, 64}, [][2]int32{{37, 200}, {1, 70}, {64, 64}, {2, 129}}, 0},
		{shape{4, 4, 128}, [][2]int32{{65, 65}, {20, 100}}, 0},
		{shape{7, 1, 8}, [][2]int32{{90, 150}}, 0},
		{shape{6, 2, 64}, [][2]int32{{150, 150}, {40, 210}}, 37},
		{shape{6, 2, 64}, [][2]int32{{100, 100}}, 1},
		{shape{2, 1, 5}, [][2]int32{{33, 33}}, 0}, // a dimension that the kernel leaves to libtorch
	}
	eachKernels(t, func(t *testing.T) {
		for i, c := range cases {
			compute := func(d torch.DType) (out []float64) {
				run(t, w, func(s *torch.Scope) {
					rng := rand.New(rand.NewPCG(8, uint64(i)))
					rnd := func(shape ...int64) torch.Tensor {
						v := make([]float64, numel(shape))
						for i := range v {
							v[i] = rng.NormFloat64()
						}
						// Rounded to bfloat16 first: all types then get the same numbers.
						return s.To(s.To(s.Float64(v, shape...), torch.BFloat16, torch.CPU), d, torch.CPU)
					}
					var segs []torch.CachedSegment
					var blocks []int32
					rows, n := int32(0), 0
					for _, g := range c.segs {
						n += int(g[1]+15) / 16
					}
					order := rng.Perm(n)
					for _, g := range c.segs {
						segs = append(segs, torch.CachedSegment{rows, g[0], g[1], int32(len(blocks))})
						rows += g[0]
						for range (g[1] + 15) / 16 {
							blocks = append(blocks, int32(order[len(blocks)]))
						}
					}
					pool := []int64{int64(n), 16, c.hkv, c.dim}
					out = s.Float64s(s.CachedAttention(rnd(int64(rows), c.hq, c.dim), rnd(int64(rows), c.hkv, c.dim), rnd(int64(rows), c.hkv, c.dim),
						rnd(pool...), rnd(pool...), s.PlanCache(segs, blocks), torch.Look{Window: c.window}))
				})
				return out
			}
			want := compute(torch.Float64)
			near(t, fmt.Sprintf("case %d float32", i), compute(torch.Float32), want, 2e-6)
			near(t, fmt.Sprintf("case %d bfloat16", i), compute(torch.BFloat16), want, 1.0/128)
		}
	})
}

// The tree kernels against libtorch's own attention and its gradient (float64 takes
// that path): chains, groups of short leaves that share columns, long leaves, deep
// trees, windows, heads in groups or not.
func TestTreeAttentionAndItsGradientEqualLibtorchs(t *testing.T) {
	type shape struct{ hq, hkv, dim int64 }
	cases := []struct {
		shape
		nodes  [][2]int32 // length, parent
		window int64
	}{
		{shape{3, 1, 64}, [][2]int32{{1, -1}}, 0},
		{shape{9, 3, 64}, [][2]int32{{150, -1}}, 0},
		{shape{9, 3, 64}, [][2]int32{{70, -1}, {40, -1}, {64, -1}}, 0},
		{shape{6, 2, 64}, [][2]int32{{90, -1}, {3, 0}, {5, 0}, {1, 0}, {30, 0}, {2, 0}, {7, 0}}, 0},
		{shape{6, 2, 64}, [][2]int32{{70, -1}, {10, 0}, {4, 1}, {66, 1}, {9, 3}, {3, 3}, {8, 0}, {5, 6}, {6, 6}, {12, -1}, {1, 9}, {2, 9}}, 0},
		{shape{4, 4, 128}, [][2]int32{{65, -1}, {20, 0}, {3, 0}, {3, 0}}, 0},
		{shape{2, 1, 72}, [][2]int32{{33, -1}, {40, 0}, {3, 0}}, 0},
		{shape{7, 1, 8}, [][2]int32{{9, -1}, {90, 0}}, 0},
		{shape{6, 2, 64}, [][2]int32{{90, -1}, {3, 0}, {5, 0}, {130, 0}, {2, 0}, {7, 0}}, 37},
		{shape{6, 2, 64}, [][2]int32{{20, -1}, {3, 0}, {9, 0}, {80, 0}}, 4},
		{shape{2, 2, 16}, [][2]int32{{20, -1}, {3, 0}, {9, 0}, {80, 0}}, 1},
		{shape{2, 1, 64}, [][2]int32{{20, -1}, {0, 0}, {9, 0}}, 0},
	}
	eachKernels(t, func(t *testing.T) {
		for i, c := range cases {
			var nodes []torch.TreeNode
			rows := int32(0)
			for _, n := range c.nodes {
				nodes = append(nodes, torch.TreeNode{rows, n[0], n[1]})
				rows += n[0]
			}
			compute := func(d torch.DType, threads int) [][]float64 {
				var out [][]float64
				run(t, worker(t, threads), func(s *torch.Scope) {
					rng := rand.New(rand.NewPCG(8, uint64(i)))
					rnd := func(heads int64) torch.Tensor {
						v := make([]float64, int64(rows)*heads*c.dim)
						for i := range v {
							v[i] = rng.NormFloat64()
						}
						return s.To(s.To(s.Float64(v, int64(rows), heads, c.dim), torch.BFloat16, torch.CPU), d, torch.CPU)
					}
					// Parts of one matrix, as the model has them.
					x := s.RequiresGrad(rnd(c.hq+2*c.hkv), true)
					s.WithGrad(func() {
						p := s.Split(x, 1, c.hq, c.hkv, c.hkv)
						o := s.TreeAttention(p[0], p[1], p[2], s.PlanTree(nodes), torch.Look{Window: c.window})
						out = append(out, s.Float64s(o))
						s.Backward(o, rnd(c.hq))
					})
					out = append(out, s.Float64s(s.Grad(x)))
					// Without recording the same is computed.
					p := s.Split(s.Detach(x), 1, c.hq, c.hkv, c.hkv)
					if got := s.Float64s(s.TreeAttention(p[0], p[1], p[2], s.PlanTree(nodes), torch.Look{Window: c.window})); !slices.Equal(got, out[0]) {
						t.Errorf("case %d %v: without a gradient another result", i, d)
					}
				})
				return out
			}
			want := compute(torch.Float64, 2)
			for _, threads := range []int{1, 2, 5} {
				got := compute(torch.Float32, threads)
				near(t, fmt.Sprintf("case %d float32", i), got[0], want[0], 3e-6)
				near(t, fmt.Sprintf("case %d float32, gradient", i), got[1], want[1], 2e-5)
				if again := compute(torch.Float32, threads); !slices.Equal(got[1], again[1]) {
					t.Errorf("case %d: the same gradient twice differs on %d threads", i, threads)
				}
			}
			got := compute(torch.BFloat16, 2)
			near(t, fmt.Sprintf("case %d bfloat16", i), got[0], want[0], 1.0/128)
			near(t, fmt.Sprintf("case %d bfloat16, gradient", i), got[1], want[1], 3.0/128)
		}
	})
}

func TestPackedLinearEqualsLinear(t *testing.T) {
	w := worker(t, 2)
	rng := rand.New(rand.NewPCG(5, 6))
	rnd := func(s *torch.Scope, d torch.DType, shape ...int64) torch.Tensor {
		v := make([]float32, numel(shape))
		for i := range v {
			v[i] = float32(rng.NormFloat64())
		}
		return s.To(s.Float32(v, shape...), d, torch.CPU)
	}
	eachKernels(t, func(t *testing.T) {
		types := []torch.DType{torch.Float32}
		// oneDNN packs bfloat16 with these alone
		if x := cpu.X86; x.HasAVX512BW && x.HasAVX512VL && x.HasAVX512DQ || torch.OwnPanels(torch.BFloat16) {
			types = append(types, torch.BFloat16)
		}
		for _, d := range types {
			for _, rows := range []int64{0, 1, 2, 3, 4, 5, 6, 32, 65} {
				run(t, w, func(s *torch.Scope) {
					x, wt, b := rnd(s, d, rows, 70), rnd(s, d, 150, 70), rnd(s, d, 150)
					p := s.PackLinear(wt)
					// One rounding of a float32 sum in each: two units of 2⁻⁸ apart at most.
					tol := map[torch.DType]float64{torch.BFloat16: 2.0 / 256, torch.Float32: 1e-6}[d]
					near(t, fmt.Sprintf("%v %d rows", d, rows), s.Float64s(s.LinearPacked(x, p, torch.Tensor{})),
						s.Float64s(s.Linear(x, wt, torch.Tensor{})), tol)
					near(t, fmt.Sprintf("%v %d rows, bias", d, rows), s.Float64s(s.LinearPacked(x, p, b)), s.Float64s(s.Linear(x, wt, b)), tol)
				})
			}
		}
	})
}
