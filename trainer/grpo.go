package trainer

import (
	"context"
	"fmt"
	"slices"

	"agentcli/policy"
	"agentcli/traj"
)

// GRPO: group relative policy optimisation (Shao et al. 2024, DeepSeekMath,
// section 4.1) on trajectories of several turns, from files, and its family: the
// advantage (algo.Estimators), the loss (algo.Losses), the aggregation, the
// off-policy correction and the KL are chosen by Config.
//
// Departures from the paper: tokens of observations take no part anywhere
// (Search-R1's mask); the loss is aggregated by one of four modes over the
// global counts of the optimiser step, token-mean by default (DAPO), where the
// paper averages within each sequence first; no reference KL unless asked for;
// the old policy is recomputed in the training precision by default, since the
// log-probs in the file come from the sampler's.
type GRPO struct{ Session }

// Run trains to the end.
func (g *GRPO) Run(ctx context.Context) error {
	c := g.Config
	if err := g.begin(); err != nil {
		return err
	}
	if err := g.rescore(ctx); err != nil {
		return err
	}
	// groups → rewards of tokens → advantages, e.g. A_i = (s_i − mean s)/std s for
	// every token of i. A KL in the reward has to be computed first.
	train, first := g.groups, c.KLCoef == 0 || c.KLIn == KLInLoss
	if !first {
		if err := g.shape(); err != nil {
			return err
		}
	} else {
		var err error
		if train, err = g.compared(); err != nil {
			return err
		}
	}

	// old and reference log-probs, before anything changes.
	start := g.Clock()
	episodes := flatten(train)
	if err := g.before(ctx, episodes, nil); err != nil {
		return err
	}
	prepared := g.Clock().Sub(start).Seconds()
	if !first {
		// r_t ← r_t − β·kl(old, ref)
		if err := g.klReward(episodes); err != nil {
			return err
		}
		if err := g.advantages(); err != nil {
			return err
		}
		if c.DropZeroStd {
			train = g.dropFlat()
		}
	}
	g.maxLength = g.longest(episodes)

	// epochs → minibatches → step
	return g.epochs(ctx, train, g, prepared)
}

// compared gives the groups that are trained on, once their attempts have been
// compared: ErrNothingToLearn where none is better or worse than another.
func (s *Session) compared() ([][]*Episode, error) {
	c := s.Config
	if err := s.shapeAndEstimate(); err != nil {
		return nil, err
	}
	train := s.groups
	if c.DropZeroStd {
		train = s.dropFlat()
	}
	// A KL to a reference that is another model moves the policy by itself.
	if c.Loss != "opd" && (len(train) == 0 || (len(teaching(s.groups)) == 0 && c.KLCoef == 0)) {
		return train, traj.Mark(fmt.Errorf("all attempts within each of the %d groups have the same reward: there is nothing to compare, hence nothing to learn (sample more attempts with rollout -n, or harder or easier tasks)", len(s.groups)), ErrNothingToLearn)
	}
	return train, nil
}

// dropFlat leaves out the groups that can teach nothing, and says how many rows
// those are.
func (s *Session) dropFlat() [][]*Episode {
	train := teaching(s.groups)
	if out := len(flatten(s.groups)) - len(flatten(train)); out > 0 && s.OnDrop != nil {
		s.OnDrop(out)
	}
	return train
}

func (g *GRPO) moves(batch []*Episode) bool {
	return len(g.Config.work(batch)) > 0 || g.Config.PTXCoef > 0
}

// step: loss → gradient → AdamW.
func (g *GRPO) step(ctx context.Context, batch []*Episode, at stepNumbers, m *metrics) (stop bool, err error) {
	c := g.Config
	start := g.Clock()
	n := g.count(batch)
	if err := g.each(batch, func(e *Episode) error { m.episode(e); return nil }); err != nil {
		return false, err
	}
	m.unscored = slices.ContainsFunc(batch, func(e *Episode) bool { return e.unscored })
	work := c.work(batch)
	err = g.updatePolicy(ctx, work, at, m, func(mb micro, o policy.Outputs) (policy.Gradients, error) {
		return g.policyLoss(mb, n, o, m)
	})
	if err != nil {
		return false, err
	}
	if err := g.addPTX(ctx, len(batch), at, m); err != nil {
		return false, err
	}
	if err := g.stepActor(work, at, m); err != nil {
		return false, err
	}
	m.set("timing_s/update_actor", g.Clock().Sub(start).Seconds())
	return g.tooFar(m), nil
}
