package trainer

import (
	"context"
	"fmt"
	"slices"

	"agentcli/policy"
	"agentcli/trainer/algo"
	"agentcli/trainer/episode"
	"agentcli/trainer/store"
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
	first := c.KLCoef == 0 || c.KLIn == KLInLoss
	prepare := g.shapeAndDrop
	if first {
		prepare = g.compared
	}
	if err := prepare(); err != nil {
		return err
	}

	// old and reference log-probs, before anything changes.
	episodes := flatten(g.groups)
	if err := g.before(ctx, episodes, nil); err != nil {
		return err
	}
	if !first {
		// r_t ← r_t − β·kl(old, ref)
		if err := g.klReward(episodes); err != nil {
			return err
		}
		if err := g.advantages(); err != nil {
			return err
		}
	}
	g.maxLength = g.longest(episodes)

	// epochs → minibatches → step
	return g.epochs(ctx, g.groups, g)
}

// shapeAndDrop gives every token its reward and then, where asked, leaves out the
// groups without spread: ErrNothingToLearn where no other is left.
func (s *Session) shapeAndDrop() error {
	if err := s.shape(); err != nil || !s.Config.DropZeroStd {
		return err
	}
	return s.leaveOut(spread(s.groups))
}

// compared compares the attempts of each group: ErrNothingToLearn where none is
// better or worse than another, and nothing else moves the policy.
func (s *Session) compared() error {
	c := s.Config
	est, ok := algo.EstimatorByName(c.Advantage)
	// What a batch says together is of what is left; rae's averages go on from batch to
	// batch, and are of all.
	if ok && est.Batch && c.DropZeroStd && c.Advantage != "rae" {
		if err := s.shapeAndDrop(); err != nil {
			return err
		}
		return s.advantages()
	}
	if err := s.shapeAndEstimate(); err != nil {
		return err
	}
	lessons := teaching(s.groups)
	switch {
	case c.DropZeroStd:
		return s.leaveOut(spread(lessons))
	case len(lessons) == 0 && !c.movesAnyway(s.groups):
		return s.nothing()
	}
	return nil
}

// movesAnyway reports whether something moves the policy where all advantages are 0:
// a teacher, a KL to a reference, which may be another model, an entropy bonus, or a
// cross-entropy.
func (c Config) movesAnyway(groups [][]*episode.Episode) bool {
	observed := func(e *episode.Episode) bool { return e.Observations() > 0 }
	return c.Loss == "opd" || c.KLCoef > 0 || c.EntropyCoef != 0 || c.PTXCoef > 0 ||
		(c.Echo > 0 && slices.ContainsFunc(flatten(groups), observed))
}

// nothing says why nothing is left to learn from.
func (s *Session) nothing() error {
	cut := 0 // groups whose rows with an advantage all leave the loss
	for _, g := range s.groups {
		if !g[0].ZeroStd && slices.ContainsFunc(g, func(e *episode.Episode) bool { return e.HasAdvantage && e.Filtered }) {
			cut++
		}
	}
	if cut > 0 {
		return traj.Mark(fmt.Errorf("the attempts of %d of the %d groups have different rewards, but those that would teach were cut off at their length limit, and --overlong-filter leaves them out: there is nothing to learn (leave the flag out, or raise --max-tokens in rollout)", cut, len(s.groups)), ErrNothingToLearn)
	}
	return traj.Mark(fmt.Errorf("all attempts within each of the %d groups have the same reward: there is nothing to compare, hence nothing to learn (sample more attempts with rollout -n, or harder or easier tasks)", len(s.groups)), ErrNothingToLearn)
}

// leaveOut goes on with the groups that are kept, and says how many rows the others
// are.
func (s *Session) leaveOut(kept [][]*episode.Episode) error {
	c := s.Config
	if len(kept) == 0 && (c.Algo == AlgoPPO || c.movesAnyway(s.groups)) { // the flag alone is in the way
		return traj.Mark(fmt.Errorf("all attempts within each of the %d groups have the same reward, and --drop-zero-std leaves such groups out: nothing is left to learn from (leave the flag out, or sample more attempts with rollout -n, or harder or easier tasks)", len(s.groups)), ErrNothingToLearn)
	}
	if len(kept) == 0 {
		return s.nothing()
	}
	if out := len(flatten(s.groups)) - len(flatten(kept)); out > 0 && s.OnDrop != nil {
		s.OnDrop(out)
	}
	s.judged, s.groups = s.groups, kept
	return nil
}

func (g *GRPO) moves(batch []*episode.Episode) bool {
	return len(g.Config.work(batch)) > 0 || g.Config.PTXCoef > 0
}

// step: loss → gradient → AdamW.
func (g *GRPO) step(ctx context.Context, batch []*episode.Episode, at stepNumbers, m *metrics) (stop bool, err error) {
	c := g.Config
	start := g.Clock()
	n := g.count(batch)
	if err := g.loader.Each(batch, func(e *episode.Episode) error { m.episode(e); return nil }); err != nil {
		return false, err
	}
	m.unscored = slices.ContainsFunc(batch, func(e *episode.Episode) bool { return e.Unscored })
	work := c.work(batch)
	err = g.updatePolicy(ctx, work, at, m, func(mb store.MicroBatch, o policy.Outputs) (policy.Gradients, error) {
		return g.policyLoss(mb, n, o, m)
	})
	if err != nil {
		return false, err
	}
	if err := g.klExceeded(m); err != nil {
		return false, err
	}
	if err := g.addPTX(ctx, len(batch), at, m); err != nil {
		return false, err
	}
	if err := g.stepActor(work, at, m); err != nil {
		return false, err
	}
	m.set("timing_s/update_actor", g.Clock().Sub(start).Seconds())
	return false, nil
}
