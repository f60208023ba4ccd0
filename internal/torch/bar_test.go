//go:build libtorch

package torch_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"agentcli/internal/torch"
)

// TestBarredIDsAreNotInTheDistribution holds log-probs, entropies and gradients of a vocabulary
// with barred ids to those of a matrix without their rows.
func TestBarredIDsAreNotInTheDistribution(t *testing.T) {
	const n, h, v = 9, 24, 700
	r := rand.New(rand.NewPCG(3, 4))
	draw := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return x
	}
	x, m := draw(n*h), draw(v*h)
	barred := []int32{0, 5, v - 1}
	var kept []float32
	rank := map[int32]int32{} // of an id among those that are kept
	for i := range int32(v) {
		if !slices.Contains(barred, i) {
			rank[i] = int32(len(rank))
			kept = append(kept, m[i*h:(i+1)*h]...)
		}
	}
	targets, other, scales, ones := make([]int32, n), make([]int32, n), make([]float64, n), make([]float64, n)
	for i := range targets {
		targets[i], scales[i], ones[i] = int32(6+r.IntN(v-10)), .5+r.Float64(), 1
		other[i] = rank[targets[i]]
	}
	w := worker(t, 1)
	eachKernels(t, func(t *testing.T) {
		for _, d := range []torch.DType{torch.Float64, torch.Float32} {
			run(t, w, func(s *torch.Scope) {
				compute := func(m []float32, rows int64, y []int32, rule torch.Head) (out [][]float64) {
					hidden := s.RequiresGrad(s.To(s.Float32(x, n, h), d, torch.CPU), true)
					weight := s.RequiresGrad(s.To(s.Float32(m, rows, h), d, torch.CPU), true)
					rule.Scale, rule.Chunk = s.Float64(scales), 4
					var lp, ent torch.Tensor
					s.WithGrad(func() { lp, ent = s.HeadLogprobsOf(hidden, weight, s.IDs(y), rule) })
					out = [][]float64{s.Float64s(lp), s.Float64s(ent)}
					g := s.To(s.Float64(ones), s.DType(lp), torch.CPU)
					s.BackwardAll([]torch.Tensor{lp, ent}, []torch.Tensor{g, g})
					return append(out, s.Float64s(s.Grad(hidden)), s.Float64s(s.Grad(weight)))
				}
				got := compute(m, v, targets, torch.Head{Barred: s.IDs(barred)})
				want := compute(kept, v-int64(len(barred)), other, torch.Head{})
				if s.Err() != nil {
					return
				}
				for _, id := range slices.Backward(barred) {
					for _, g := range got[3][id*h : (id+1)*h] {
						if math.Abs(g) > 1e-20 {
							t.Errorf("%v: the row of barred id %d has the gradient %g", d, id, g)
						}
					}
					got[3] = slices.Delete(got[3], int(id*h), int((id+1)*h))
				}
				tol := map[torch.DType]float64{torch.Float64: 1e-12, torch.Float32: 2e-6}[d]
				for i, what := range []string{"log-probs", "entropies", "gradient of the states", "gradient of the matrix"} {
					near(t, what, got[i], want[i], tol)
				}
			})
		}
		run(t, w, func(s *torch.Scope) {
			logits := s.Bar(s.Float32([]float32{9, 1, 2, 9}, 1, 4), s.IDs([]int32{0, 3}))
			for u := range 100 {
				ids, lp := s.Sample(logits, []torch.SampleRow{{Temperature: 5, Uniform: (float64(u) + .5) / 100, TopP: 1}})
				if s.Err() == nil && (ids[0] == 0 || ids[0] == 3 || math.Abs(float64(lp[0])-math.Log([]float64{0, .26894, .73106, 0}[ids[0]])) > 1e-4) {
					t.Errorf("drew %d with log-prob %v", ids[0], lp[0])
				}
			}
			if ids, _ := s.Sample(logits, []torch.SampleRow{{}}); s.Err() == nil && ids[0] != 2 {
				t.Errorf("the likeliest is %d", ids[0])
			}
		})
	})
}
