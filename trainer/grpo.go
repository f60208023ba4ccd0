package trainer

import (
	"context"
	"maps"
	"math"
	"slices"

	"agentcli/policy"
	"agentcli/trainer/algo"
	"agentcli/trainer/episode"
	"agentcli/trainer/store"
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
	// groups → rewards of tokens → advantages, e.g. A_i = (s_i − mean s)/std s for every
	// token of i (advantage.go). A KL in the reward has to be computed first.
	klInReward := c.klInReward()
	var err error
	if klInReward {
		err = g.shapeAndDrop()
	} else {
		err = g.estimateAndFilter()
	}
	if err != nil {
		return err
	}

	// log π_old and log π_ref, before anything changes (precompute.go).
	episodes := flatten(g.groups)
	if err := g.precompute(ctx, episodes, nil); err != nil {
		return err
	}
	if klInReward {
		// r_t ← r_t − β·kl(old, ref)
		if err := g.klReward(episodes); err != nil {
			return err
		}
		if err := g.advantages(); err != nil {
			return err
		}
	}
	g.maxLength = g.maxActions(episodes)

	// epochs → minibatches → step
	return g.epochs(ctx, g.groups, g)
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

// work are the episodes of a minibatch that need a pass of the policy. An
// advantage of 0 gives a gradient of exactly 0 where no other term asks: such an
// episode stays in the denominators and is not computed.
func (c Config) work(batch []*episode.Episode) []*episode.Episode {
	loss, _ := algo.LossByName(c.Loss)
	always := c.klInLoss() || c.EntropyCoef != 0 || loss.Reads&algo.TrustRegion != 0 && c.RolloutKL > 0 || !loss.ReadsAdvantage()
	var out []*episode.Episode
	for _, e := range batch {
		needed := e.HasAdvantage || always
		if (needed && !e.Filtered) || (c.Echo > 0 && e.Observations() > 0) {
			out = append(out, e)
		}
	}
	return out
}

// policyLoss is the derivative of the step's loss with respect to each log-prob
// and entropy of a micro-batch:
//
//	L = Σ w·c·l(lp, old, A) + β·Σ w·kl(lp, ref) − η·Σ w·H + ε·Σ −lp/N_ce
//
// l is the policy loss (algo.Losses), w what one token weighs under the
// aggregation, c the off-policy correction, the last term the cross-entropy of
// observations. All denominators are of the whole step, so that no split into
// micro-batches changes the gradient.
func (s *Session) policyLoss(mb store.MicroBatch, n counts, o policy.Outputs, m *metrics) (policy.Gradients, error) {
	c := s.Config
	loss, _ := algo.LossByName(c.Loss)
	var g policy.Gradients
	now := map[store.Item][]float64{} // log-probs of the sequences of this micro-batch
	if s.needsTrajectory(loss) {
		if err := mb.Each(o, func(it store.Item, part policy.Outputs) error { now[it] = part.Logprobs; return nil }); err != nil {
			return g, err
		}
		maps.Copy(now, s.splitLogprobs)
	}
	err := mb.Each(o, func(it store.Item, part policy.Outputs) error {
		x := it.Stream()
		dlp, dent := make([]float64, len(x.ActionWeight)), make([]float64, len(x.ActionWeight))
		if s.diff != nil && x.RolloutLogprobs != nil {
			s.diff.add(part.Logprobs, x.RolloutLogprobs, x.ActionWeight)
		}
		if !it.Episode.Filtered {
			if err := s.actionLoss(loss, it, n, part, now, dlp, dent, m); err != nil {
				return err
			}
		}
		if c.Echo > 0 {
			for t, w := range x.EchoWeight {
				if w > 0 {
					dlp[t] -= c.Echo * w / float64(n.ce)
					m.crossEntropy(-part.Logprobs[t] * w / float64(n.ce))
				}
			}
		}
		g.Logprobs, g.Entropy = append(g.Logprobs, dlp...), append(g.Entropy, dent...)
		return nil
	})
	if c.EntropyCoef == 0 {
		g.Entropy = nil // backward need not look at it
	}
	return g, err
}

// actionLoss adds the part of a sequence's actions. now has the log-probs of the
// trajectory's other sequences, where the loss asks for them.
func (s *Session) actionLoss(loss *algo.Loss, it store.Item, n counts, part policy.Outputs, now map[store.Item][]float64, dlp, dent []float64, m *metrics) error {
	c, x := s.Config, it.Stream()
	w, err := c.Aggregation.Weight(it.Episode.Actions(), n.rl)
	if err != nil {
		return err
	}
	span, lo, hi := s.span(loss, it, w, part.Logprobs, now)
	if lo == hi {
		return nil
	}
	if c.OffPolicy.Kind != algo.NoCorrection {
		for i, f := range c.OffPolicy.Weights(span.Old, span.Roll) {
			span.Weight[i] *= f
			if lo <= i && i < hi { // the others are counted where they stand
				m.corrected(f)
			}
		}
	}
	if !loss.Whole {
		span, lo = span.Cut(lo, hi), 0
	}
	r, err := loss.At(span, c.loss())
	if err != nil {
		return err
	}
	i := lo
	for t, rl := range x.ActionWeight {
		if rl <= 0 {
			continue
		}
		wt := w * rl
		dlp[t] += r.Grad[i]
		m.token(span.Weight[i]*r.Loss[i], r.Clipped[i], r.Dual[i], span.Old[i]-span.LP[i], part.Entropy[t])
		if c.KLCoef > 0 && c.KLIn == KLInLoss {
			ref := part.Logprobs[t] // where it is the policy in its only update
			if !s.refIsCurrent() {
				ref = x.RefLogprobs[t]
			}
			v, d := c.KL.At(part.Logprobs[t], ref)
			dlp[t] += wt * c.KLCoef * d
			m.toReference(wt * v)
		}
		dent[t] -= wt * c.EntropyCoef
		i++
	}
	return nil
}

// span is what a loss sees of a sequence: its actions, however many observations
// stand between them, w what each weighs. Where a number of the loss or of the
// correction is one of the whole trajectory, it is all actions of the trajectory;
// those of the sequence are lo to hi.
func (s *Session) span(loss *algo.Loss, it store.Item, w float64, lp []float64, now map[store.Item][]float64) (span algo.Span, lo, hi int) {
	whole := loss.Whole || s.Config.OffPolicy.Whole()
	for k := range it.Episode.Streams {
		if k != it.Sequence && !whole {
			continue
		}
		x, at := &it.Episode.Streams[k], lp
		switch {
		case s.needsTrajectory(loss):
			at = now[store.Item{Episode: it.Episode, Sequence: k}]
		case k != it.Sequence:
			at = x.OldLogprobs // of a correction only: it looks at no other
		}
		if k == it.Sequence {
			lo = len(span.LP)
		}
		old := x.OldLogprobs
		switch {
		case old != nil:
		case s.old == oldIsCurrent:
			old = at
		case x.RolloutLogprobs != nil: // in the metrics only
			old = x.RolloutLogprobs
		default:
			old = slices.Repeat([]float64{math.NaN()}, len(x.ActionWeight))
		}
		for t, rl := range x.ActionWeight {
			if rl <= 0 {
				continue
			}
			span.LP, span.Old, span.Adv = append(span.LP, at[t]), append(span.Old, old[t]), append(span.Adv, x.Advantages[t])
			span.Weight = append(span.Weight, w*rl)
			switch {
			case x.RolloutLogprobs != nil:
				span.Roll = append(span.Roll, x.RolloutLogprobs[t])
			case it.Episode.LogprobsUntempered && loss.NeedsRollout(): // what sampled it, as far as can be told
				span.Roll = append(span.Roll, old[t])
			}
			if x.TeacherLogprobs != nil {
				span.Teacher = append(span.Teacher, x.TeacherLogprobs[t])
			}
		}
		if k == it.Sequence {
			hi = len(span.LP)
		}
	}
	return span, lo, hi
}

// needsTrajectory reports whether the log-probs of all sequences of a trajectory, as they are
// now, are needed for each of them.
func (s *Session) needsTrajectory(loss *algo.Loss) bool {
	return loss.Whole || s.old == oldIsCurrent && s.Config.OffPolicy.Whole()
}
