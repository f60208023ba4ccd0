//go:build libtorch

package torch_test

import (
	"fmt"
	"testing"

	"agentcli/internal/torch"
)

func TestAdamWStepsEqualPyTorch(t *testing.T) {
	g := data(t).AdamW
	w := worker(t, 1)
	for _, d := range []torch.DType{torch.Float32, torch.Float64} {
		run(t, w, func(s *torch.Scope) {
			var p, m, v []torch.Tensor
			for _, a := range g.Start {
				p = append(p, s.RequiresGrad(a.tensor(s, d), true))
				m = append(m, s.Full(0, d, torch.CPU, a.Shape...))
				v = append(v, s.Full(0, d, torch.CPU, a.Shape...))
			}
			want, tol := g.F32, 1e-6
			if d == torch.Float64 {
				want, tol = g.F64, 1e-13
			}
			for step := range 5 {
				var gr []torch.Tensor
				for _, a := range g.Grads[step] {
					gr = append(gr, a.tensor(s, d))
				}
				s.AdamW(p, gr, m, v, torch.AdamWConfig{LR: g.LR, Beta1: g.Beta1, Beta2: g.Beta2, Eps: g.Eps, WeightDecay: g.WeightDecay}, step+1)
				for i := range p {
					near(t, fmt.Sprintf("%v step %d parameter %d", d, step+1, i), s.Float64s(p[i]), want[step][i].floats(), tol)
				}
			}
		})
	}
}

func TestClippingEqualsClipGradNorm(t *testing.T) {
	w := worker(t, 1)
	for _, c := range data(t).Clip {
		run(t, w, func(s *torch.Scope) {
			var gs []torch.Tensor
			for _, a := range c.In {
				gs = append(gs, a.tensor(s, torch.Float32))
			}
			norm := s.GlobalNorm(gs)
			near(t, "norm", []float64{norm}, []float64{c.Norm}, 1e-6)
			s.Scale(gs, min(1, c.Limit/(norm+1e-6)))
			for i := range gs {
				near(t, "clipped", s.Float64s(gs[i]), c.Out[i].floats(), 1e-6)
			}
			if n := s.GlobalNorm(nil); n != 0 {
				t.Errorf("the norm of nothing is %v", n)
			}
		})
	}
}
