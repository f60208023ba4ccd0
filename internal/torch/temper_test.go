//go:build libtorch

package torch_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"agentcli/internal/torch"
)

// plainHead is what HeadLogprobs computes, in float64 Go: of each row of
// hidden·Wᵀ/T the target's log-prob and the entropy, and the derivatives of
// Σ a_i·lp_i + b_i·H_i with respect to hidden and W.
func plainHead(h, w []float64, y []int64, temperature, a, b []float64, size int) (lp, ent, dh, dw []float64) {
	n, v := len(y), len(w)/size
	dh, dw = make([]float64, len(h)), make([]float64, len(w))
	for i := range n {
		z, lse := make([]float64, v), 0.0
		for k := range v {
			for j := range size {
				z[k] += h[i*size+j] * w[k*size+j] / temperature[i]
			}
		}
		top := slices.Max(z)
		for _, x := range z {
			lse += math.Exp(x - top)
		}
		lse = top + math.Log(lse)
		e := 0.0
		for _, x := range z {
			e -= math.Exp(x-lse) * (x - lse)
		}
		lp, ent = append(lp, z[y[i]]-lse), append(ent, e)
		for k, x := range z {
			p := math.Exp(x - lse)
			d := -a[i]*p - b[i]*p*(x-lse+e)
			if int64(k) == y[i] {
				d += a[i]
			}
			for j := range size {
				dh[i*size+j] += d / temperature[i] * w[k*size+j]
				dw[k*size+j] += d / temperature[i] * h[i*size+j]
			}
		}
	}
	return lp, ent, dh, dw
}

// Rows of several temperatures in one call, whatever the chunks and the kernels.
func TestTemperedHeadIsThatOfDividedLogits(t *testing.T) {
	const n, size, v = 9, 10, 133
	rng := rand.New(rand.NewPCG(3, 4))
	random := func(n int, scale float64) []float64 {
		x := make([]float64, n)
		for i := range x {
			x[i] = float64(float32(rng.NormFloat64() * scale))
		}
		return x
	}
	h, w, a, b := random(n*size, 1), random(v*size, 1), random(n, 1), random(n, 1)
	y, mixed := make([]int64, n), make([]float64, n)
	for i := range y {
		y[i], mixed[i] = int64(rng.IntN(v)), []float64{.6, 1, 1.3}[i%3]
	}
	eachKernels(t, func(t *testing.T) {
		for _, temperatures := range [][]float64{slices.Repeat([]float64{.6}, n), slices.Repeat([]float64{1.3}, n), mixed} {
			lp, ent, dh, dw := plainHead(h, w, y, temperatures, a, b, size)
			for d, tol := range map[torch.DType]float64{torch.Float64: 1e-14, torch.Float32: 3e-6, torch.BFloat16: 3.0 / 128} {
				for _, chunk := range []int64{1, 4, 100} {
					run(t, worker(t, 2), func(s *torch.Scope) {
						in := func(x []float64, shape ...int64) torch.Tensor {
							return s.RequiresGrad(s.To(s.Float64(x, shape...), d, torch.CPU), true)
						}
						th, tw := in(h, n, size), in(w, v, size)
						scale := make([]float64, n)
						for i, x := range temperatures {
							scale[i] = 1 / x
						}
						s.WithGrad(func() {
							l, e := s.HeadLogprobs(th, tw, s.Int64(y), s.Float64(scale), chunk)
							near(t, d.String()+" log-probs", s.Float64s(l), lp, tol)
							near(t, d.String()+" entropy", s.Float64s(e), ent, tol)
							s.BackwardAll([]torch.Tensor{l, e},
								[]torch.Tensor{s.To(s.Float64(a), s.DType(l), torch.CPU), s.To(s.Float64(b), s.DType(e), torch.CPU)})
						})
						near(t, d.String()+" gradient of hidden", s.Float64s(s.Grad(th)), dh, 10*tol)
						near(t, d.String()+" gradient of the weight", s.Float64s(s.Grad(tw)), dw, 10*tol)
					})
				}
			}
		}
	})
}

// Rows at temperature 1 beside others are what they are without any temperature,
// to the bit.
func TestAScaleOfOneChangesNoBit(t *testing.T) {
	const n, size, v = 6, 17, 301
	eachKernels(t, func(t *testing.T) {
		for _, d := range []torch.DType{torch.Float64, torch.Float32, torch.BFloat16} {
			compute := func(scale []float64) (out [][]float64) {
				run(t, worker(t, 1), func(s *torch.Scope) {
					rng := rand.New(rand.NewPCG(8, 9))
					random := func(shape ...int64) torch.Tensor {
						x := make([]float64, numel(shape))
						for i := range x {
							x[i] = rng.NormFloat64()
						}
						return s.RequiresGrad(s.To(s.Float64(x, shape...), d, torch.CPU), true)
					}
					h, w := random(n, size), random(v, size)
					s.WithGrad(func() {
						var by torch.Tensor
						if scale != nil {
							by = s.Float64(scale)
						}
						l, e := s.HeadLogprobs(h, w, s.Int64([]int64{0, 3, 300, 7, 9, 11}), by, 4)
						out = append(out, s.Float64s(l), s.Float64s(e))
						g := s.Full(.7, s.DType(l), torch.CPU, n)
						s.BackwardAll([]torch.Tensor{l, e}, []torch.Tensor{g, g})
					})
					out = append(out, s.Float64s(s.Grad(h)), s.Float64s(s.Grad(w)))
				})
				return out
			}
			plain, ones := compute(nil), compute([]float64{1, 1, 1, 1, 1, 1})
			for i := range plain {
				if !slices.Equal(plain[i], ones[i]) {
					t.Errorf("%v, output %d: a scale of 1 changes bits", d, i)
				}
			}
			beside := compute([]float64{1, 2, 1, 1, .5, 1})
			for _, r := range []int{0, 2, 3, 5} {
				if beside[0][r] != plain[0][r] || beside[1][r] != plain[1][r] ||
					!slices.Equal(beside[2][r*size:(r+1)*size], plain[2][r*size:(r+1)*size]) {
					t.Errorf("%v, row %d: another row's scale changes it", d, r)
				}
			}
			if beside[0][1] == plain[0][1] || beside[0][4] == plain[0][4] {
				t.Errorf("%v: a scale changes nothing", d)
			}
		}
	})
}
