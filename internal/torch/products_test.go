//go:build libtorch

package torch_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"agentcli/internal/torch"
)

// Products of bfloat16 and their gradients are those of float64, rounded, whether they are computed in bfloat16 or widened.
func TestProductsOfBFloat16AreThoseOfFloat64Rounded(t *testing.T) {
	w := worker(t, 2)
	eachKernels(t, func(t *testing.T) {
		for _, rows := range []int64{1, 127, 128, 300} {
			for _, biased := range []bool{false, true} {
				compute := func(d torch.DType) (out [][]float64) {
					run(t, w, func(s *torch.Scope) {
						rng := rand.New(rand.NewPCG(7, uint64(rows)))
						rnd := func(shape ...int64) torch.Tensor {
							v := make([]float32, numel(shape))
							for i := range v {
								v[i] = float32(rng.NormFloat64())
							}
							return s.To(s.To(s.Float32(v, shape...), torch.BFloat16, torch.CPU), d, torch.CPU)
						}
						leaves := []torch.Tensor{s.RequiresGrad(rnd(rows, 130), true), s.RequiresGrad(rnd(140, 130), true)}
						var bias torch.Tensor
						if biased {
							bias = s.RequiresGrad(rnd(140), true)
							leaves = append(leaves, bias)
						}
						s.WithGrad(func() {
							y := s.Linear(leaves[0], leaves[1], bias)
							out = append(out, s.Float64s(y))
							s.Backward(y, rnd(rows, 140))
						})
						for _, x := range leaves {
							out = append(out, s.Float64s(s.Grad(x)))
						}
						out = append(out, s.Float64s(s.Linear(s.Detach(leaves[0]), s.Detach(leaves[1]), bias)))
					})
					return out
				}
				want, got := compute(torch.Float64), compute(torch.BFloat16)
				for i := range want {
					near(t, fmt.Sprintf("%d rows, bias %v, %d", rows, biased, i), got[i], want[i], 1.0/256)
				}
			}
		}
	})
}

// The log-probs of a head and their gradients do not depend on how many rows are computed at a time.
func TestChunksOfTheHeadInBFloat16AreNearFloat64(t *testing.T) {
	w := worker(t, 2)
	eachKernels(t, func(t *testing.T) {
		compute := func(d torch.DType, chunk int64) (out [][]float64) {
			run(t, w, func(s *torch.Scope) {
				rng := rand.New(rand.NewPCG(9, 9))
				rnd := func(scale float64, shape ...int64) torch.Tensor {
					v := make([]float32, numel(shape))
					for i := range v {
						v[i] = float32(scale * rng.NormFloat64())
					}
					return s.To(s.To(s.Float32(v, shape...), torch.BFloat16, torch.CPU), d, torch.CPU)
				}
				h, weight := s.RequiresGrad(rnd(1, 300, 128), true), s.RequiresGrad(rnd(.1, 200, 128), true)
				ids := make([]int32, 300)
				for i := range ids {
					ids[i] = int32(rng.IntN(200))
				}
				s.WithGrad(func() {
					lp, _ := s.HeadLogprobs(h, weight, s.IDs(ids), torch.Tensor{}, chunk)
					out = append(out, s.Float64s(lp))
					s.Backward(lp, s.Full(1, s.DType(lp), torch.CPU, 300))
				})
				out = append(out, s.Float64s(s.Grad(h)), s.Float64s(s.Grad(weight)))
			})
			return out
		}
		want := compute(torch.Float64, 300)
		for _, chunk := range []int64{64, 130, 256, 300} {
			for i, got := range compute(torch.BFloat16, chunk) {
				near(t, fmt.Sprintf("%d rows at a time, %d", chunk, i), got, want[i], 1.0/64)
			}
		}
	})
}
