package trainer

import (
	"context"
	"fmt"

	"agentcli/policy"
	"agentcli/trainer/episode"
	"agentcli/trainer/store"
)

// layPTX lays out the rows of the second dataset.
func (s *Session) layPTX() error {
	if s.Config.PTXCoef == 0 {
		return nil
	}
	if len(s.PTX) == 0 {
		return fmt.Errorf("--ptx-coef %g needs a dataset; name its file with --ptx FILE", s.Config.PTXCoef)
	}
	for _, e := range s.PTX {
		e.Layout = episode.LayoutOfReply
	}
	return s.loader.Count(s.PTX)
}

// addPTX adds C·Σ −lp/N over rows of the second dataset to a step's gradient
// (Ouyang et al. 2022, equation 2), N the tokens of those rows: as many as the step
// has trajectories, drawn anew for each step.
func (s *Session) addPTX(ctx context.Context, rows int, at stepNumbers, m *metrics) error {
	c := s.Config
	if c.PTXCoef == 0 {
		return nil
	}
	var work []*episode.Episode
	n := 0
	for _, i := range rng(c.Seed, -at.step).Perm(len(s.PTX))[:min(rows, len(s.PTX))] {
		work = append(work, s.PTX[i])
		n += s.PTX[i].Actions()
	}
	return s.accumulate(ctx, s.Actor, "ptx", work, at, m, func(mb store.MicroBatch, o policy.Outputs) (g policy.Gradients, err error) {
		err = mb.Each(o, func(it store.Item, part policy.Outputs) error {
			for t, w := range it.Stream().ActionWeight {
				g.Logprobs = append(g.Logprobs, -c.PTXCoef*w/float64(n))
				m.add("actor/ptx_loss", -w*part.Logprobs[t])
			}
			return nil
		})
		return g, err
	})
}
