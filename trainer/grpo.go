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

// GRPO is group relative policy optimisation (Shao et al. 2024, DeepSeekMath,
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
type GRPO struct{ policyGradient }

func (g *GRPO) run(ctx context.Context) error {
	t := g.t
	if err := scoreByModel(ctx, t); err != nil { // with a reward model; else the file's scores stay
		return err
	}
	x, err := newEstimation(t)
	if err != nil {
		return err
	}
	// Rewards: a trajectory's score, clipped, less its length penalties (reward_shaping.go).
	// Advantages: A_i = (s_i − mean s)/(std s + 1e-6) for every token of i (advantage.go).
	// A KL in the reward has to be computed first.
	klInReward := t.Config.klInReward()
	if klInReward {
		err = x.shapeAndDrop()
	} else {
		err = x.shapeEstimateAndDrop()
	}
	if err != nil {
		return err
	}

	// log π_old and log π_ref, before anything changes (precompute.go).
	if err := g.precompute(ctx, nil); err != nil {
		return err
	}
	if klInReward {
		// r_t ← r_t − β·kl(old, ref)
		if err := subtractKL(t); err != nil {
			return err
		}
		if err := x.estimate(); err != nil {
			return err
		}
	}

	// epochs → minibatches of whole groups → step (trainer.go)
	return t.epochs(ctx, t.groups, g)
}

func (g *GRPO) step(ctx context.Context, batch []*episode.Episode, at stepNumbers, m *metrics) error {
	t, start := g.t, g.t.Clock()
	n, err := g.beginStep(batch, at, m)
	if err != nil {
		return err
	}

	// ∂L/∂θ, micro-batch by micro-batch (step.go)
	work := g.episodesToCompute(batch)
	err = g.accumulatePolicy(ctx, work, at, m, func(mb store.MicroBatch, o policy.Outputs) (policy.Gradients, error) {
		return g.policyLoss(mb, n, o, m)
	})
	if err != nil {
		return err
	}
	if err := addPTX(ctx, t, len(batch), at, m); err != nil {
		return err
	}

	// AdamW
	if err := t.stepActor(work, at, m); err != nil {
		return err
	}
	m.set("timing_s/update_actor", t.Clock().Sub(start).Seconds())
	return nil
}

// policyGradient is what GRPO, PPO and OPD share: the policy loss and what it reads beside a
// micro-batch.
type policyGradient struct {
	t    *Trainer
	loss *algo.Loss
	precomputed
	entropyCoef   float64                  // η in this step
	maxLength     float64                  // L of seq-mean-token-sum-norm
	splitLogprobs map[store.Item][]float64 // log-probs by the policy, in this step, of the episodes of rehearseSplit
}

// changesModel reports whether a step on the batch has a gradient at all.
func (p *policyGradient) changesModel(batch []*episode.Episode) bool {
	return len(p.episodesToCompute(batch)) > 0 || p.t.Config.PTXCoef > 0
}

// beginStep counts a minibatch, in the loss's denominators and in the metrics.
func (p *policyGradient) beginStep(batch []*episode.Episode, at stepNumbers, m *metrics) (counts, error) {
	p.entropyCoef = EntropyCoefAt(p.t.Config, at.step, at.total)
	// Without a forward pass of the policy before the first update, the pass of
	// that update is the only one by the starting policy: it measures the difference.
	if at.first && p.old != oldRecomputed {
		m.diff = &RolloutDiff{}
	}
	err := p.t.loader.Each(batch, func(e *episode.Episode) error { m.episode(e); return nil })
	return countTokens(batch, p.maxLength), err
}

// episodesToCompute are the episodes of a minibatch that need a pass of the policy. An
// advantage of 0 gives a gradient of exactly 0 where no other term asks: such an
// episode stays in the denominators and is not computed.
func (p *policyGradient) episodesToCompute(batch []*episode.Episode) []*episode.Episode {
	c := p.t.Config
	always := c.klInLoss() || c.EntropyCoef != 0 || p.loss.Reads&algo.TrustRegion != 0 && c.RolloutKL > 0 || !p.loss.ReadsAdvantage()
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
func (p *policyGradient) policyLoss(mb store.MicroBatch, n counts, o policy.Outputs, m *metrics) (policy.Gradients, error) {
	c := p.t.Config
	var g policy.Gradients
	now := map[store.Item][]float64{} // log-probs of the sequences of this micro-batch
	if p.needsTrajectory() {
		if err := mb.Each(o, func(it store.Item, part policy.Outputs) error { now[it] = part.Logprobs; return nil }); err != nil {
			return g, err
		}
		maps.Copy(now, p.splitLogprobs)
	}
	err := mb.Each(o, func(it store.Item, part policy.Outputs) error {
		x := it.Stream()
		dlp, dent := make([]float64, len(x.ActionWeight)), make([]float64, len(x.ActionWeight))
		if m.diff != nil && x.RolloutLogprobs != nil {
			m.diff.add(part.Logprobs, x.RolloutLogprobs, x.ActionWeight)
		}
		if !it.Episode.Filtered {
			if err := p.actionLoss(it, n, part, now, dlp, dent, m); err != nil {
				return err
			}
		}
		if c.Echo > 0 { // ε·Σ −lp/N_ce
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
func (p *policyGradient) actionLoss(it store.Item, n counts, part policy.Outputs, now map[store.Item][]float64,
	dlp, dent []float64, m *metrics) error {
	c, x := p.t.Config, it.Stream()
	w, err := c.Aggregation.Weight(it.Episode.Actions(), n.rl) // token-mean: 1/N
	if err != nil {
		return err
	}
	span, lo, hi := p.span(it, w, part.Logprobs, now)
	if lo == hi {
		return nil
	}
	if c.OffPolicy.Kind != algo.NoCorrection { // c of the formula
		for i, f := range c.OffPolicy.Weights(span.Old, span.RolloutLogprobs) {
			span.Weight[i] *= f
			if lo <= i && i < hi { // the others are counted in their own sequence
				m.corrected(f)
			}
		}
	}
	if !p.loss.SequenceLevel {
		span, lo = span.Cut(lo, hi), 0
	}
	r, err := p.loss.At(span, c.loss()) // ppo: max(−A·ρ, −A·clip(ρ, 1−ε_l, 1+ε_h)), ρ = exp(lp − old)
	if err != nil {
		return err
	}
	i := lo
	for t, rl := range x.ActionWeight {
		if rl <= 0 {
			continue
		}
		wt := w * rl
		dlp[t] += r.Grad[i] // w·c·∂l/∂lp
		m.token(span.Weight[i]*r.Loss[i], r.Clipped[i], r.Dual[i], span.Old[i]-span.LP[i], part.Entropy[t], rl)
		if c.klInLoss() { // β·w·∂kl/∂lp
			ref := part.Logprobs[t] // where it is the policy in its only update
			if !p.refIsCurrent {
				ref = x.RefLogprobs[t]
			}
			v, d := c.KL.At(part.Logprobs[t], ref)
			dlp[t] += wt * c.KLCoef * d
			m.toReference(wt * v)
		}
		dent[t] -= wt * p.entropyCoef // −η·w
		i++
	}
	return nil
}

// span is what a loss sees of a sequence: its actions, however many observations
// stand between them, w what each weighs. Where a number of the loss or of the
// correction is one of the whole trajectory, it is all actions of the trajectory;
// those of the sequence are lo to hi.
func (p *policyGradient) span(it store.Item, w float64, lp []float64, now map[store.Item][]float64) (span algo.Span, lo, hi int) {
	whole := p.loss.SequenceLevel || p.t.Config.OffPolicy.SequenceLevel()
	for k := range it.Episode.Streams {
		if k != it.Sequence && !whole {
			continue
		}
		x, at := &it.Episode.Streams[k], lp
		switch {
		case p.needsTrajectory():
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
		case p.old == oldIsCurrent:
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
			span.Weight, span.ActionWeight = append(span.Weight, w*rl), append(span.ActionWeight, rl)
			switch {
			case x.RolloutLogprobs != nil:
				span.RolloutLogprobs = append(span.RolloutLogprobs, x.RolloutLogprobs[t])
			case it.Episode.LogprobsUntempered && p.loss.NeedsRollout(): // what sampled it, as far as can be told
				span.RolloutLogprobs = append(span.RolloutLogprobs, old[t])
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
