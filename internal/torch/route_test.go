//go:build libtorch

package torch_test

import (
	"math"
	"slices"
	"testing"

	"agentcli/internal/torch"
)

// Given experts are chosen in place of the best, in rows that have no -1, and weighed by the logits.
func TestGivenExpertsAreWeighedByTheLogits(t *testing.T) {
	run(t, worker(t, 1), func(s *torch.Scope) {
		z := []float64{1, 2, 3, 4, 4, 3, 2, 1, 0, 5, 0, 6}
		logits := s.To(s.Reshape(s.Float64(z), 3, 4), torch.Float64, torch.CPU)
		given := s.Int64([]int64{0, 2, -1, -1, 2, 3}, 3, 2)
		for _, how := range []torch.Router{{Active: 2}, {Active: 2, Normalise: true, Scale: 2.5}, {Active: 2, Sigmoid: true, Normalise: true}} {
			ids, weights := s.Route(logits, torch.Tensor{}, given, how)
			if got := s.Float64s(ids); !slices.Equal(got, []float64{0, 2, 0, 1, 2, 3}) {
				t.Errorf("%+v chooses %v", how, got)
			}
			var want []float64
			for row, chosen := range [][]int{{0, 2}, {0, 1}, {2, 3}} {
				all, p := 0., make([]float64, 4)
				for k, x := range z[4*row : 4*row+4] {
					p[k] = math.Exp(x)
					if how.Sigmoid {
						p[k] = 1 / (1 + math.Exp(-x))
					}
					all += p[k]
				}
				if how.Sigmoid {
					all = 1
				}
				sum := 1.
				if how.Normalise {
					sum = (p[chosen[0]] + p[chosen[1]]) / all
				}
				for _, k := range chosen {
					w := p[k] / all / sum
					if how.Scale > 0 {
						w *= how.Scale
					}
					want = append(want, w)
				}
			}
			for i, got := range s.Float64s(weights) {
				if math.Abs(got-want[i]) > 1e-12 {
					t.Errorf("%+v: weight %d is %v, want %v", how, i, got, want[i])
				}
			}
			own, _ := s.Route(logits, torch.Tensor{}, torch.Tensor{}, how)
			if got := s.Float64s(s.NotChosen(own, given)); !slices.Equal(got, []float64{2, 4}) {
				t.Errorf("%v given experts of all were not chosen, want [2 4]", got)
			}
		}
	})
}

// Experts of another shape than the logits are an error.
func TestGivenExpertsOfAnotherShapeAreRefused(t *testing.T) {
	s := torch.NewScope()
	defer s.Close()
	s.Route(s.Reshape(s.Float64(make([]float64, 8)), 2, 4), torch.Tensor{}, s.Int64([]int64{0, 1}, 1, 2), torch.Router{Active: 2})
	if s.Err() == nil {
		t.Error("one row of experts for two of logits is taken")
	}
}
