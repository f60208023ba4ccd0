package trainer

import (
	"errors"
	"fmt"

	"agentcli/policy"
	"agentcli/trainer/algo"
)

// counts are the denominators of one optimiser step, over all its micro-batches:
// one for each component of the loss.
type counts struct {
	rl algo.Counts
	ce int
}

func (s *Session) count(batch []*Episode) counts {
	n := counts{rl: algo.Counts{MaxLength: s.maxLength}}
	for _, e := range batch {
		n.ce += e.observations()
		if a := e.actions(); a > 0 && !e.Filtered {
			n.rl.Tokens += a
			n.rl.Sequences++
		}
	}
	return n
}

// longest is the L of seq-mean-token-sum-norm.
func (s *Session) longest(episodes []*Episode) float64 {
	if s.Config.MaxLength > 0 {
		return s.Config.MaxLength
	}
	most := 0
	for _, e := range episodes {
		most = max(most, e.actions())
	}
	return float64(most)
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
func (s *Session) policyLoss(mb micro, n counts, o policy.Outputs, m *metrics) (policy.Gradients, error) {
	c := s.Config
	loss, _ := algo.LossByName(c.Loss)
	var g policy.Gradients
	err := mb.each(o, func(it item, part policy.Outputs) error {
		x := it.stream()
		dlp, dent := make([]float64, len(x.RL)), make([]float64, len(x.RL))
		if s.diff != nil && x.Roll != nil {
			s.diff.add(part.Logprobs, x.Roll, x.RL)
		}
		if !it.ep.Filtered {
			if err := s.actionLoss(loss, it.ep, x, n, part, dlp, dent, m); err != nil {
				return err
			}
		}
		if c.Echo > 0 {
			for t, w := range x.CE {
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

// actionLoss adds the part of a sequence's actions.
func (s *Session) actionLoss(loss *algo.Loss, e *Episode, x *Stream, n counts, part policy.Outputs, dlp, dent []float64, m *metrics) error {
	c := s.Config
	w, err := c.Aggregation.Weight(e.actions(), n.rl)
	if err != nil {
		return err
	}
	// The losses see actions only, however many observations stand between them.
	var at []int
	var span algo.Span
	for t, rl := range x.RL {
		if rl <= 0 {
			continue
		}
		at = append(at, t)
		span.LP, span.Old, span.Adv = append(span.LP, part.Logprobs[t]), append(span.Old, x.Old[t]), append(span.Adv, x.Adv[t])
		span.Weight = append(span.Weight, w*rl)
		switch {
		case x.Roll != nil:
			span.Roll = append(span.Roll, x.Roll[t])
		case e.untold && loss.Rollout: // what sampled it, as far as can be told
			span.Roll = append(span.Roll, x.Old[t])
		}
		if x.Teacher != nil {
			span.Teacher = append(span.Teacher, x.Teacher[t])
		}
	}
	if len(at) == 0 {
		return nil
	}
	if c.OffPolicy.Kind != algo.NoCorrection {
		for i, f := range c.OffPolicy.Weights(span.Old, span.Roll) {
			span.Weight[i] *= f
			m.corrected(f)
		}
	}
	r, err := loss.At(span, c.loss())
	if err != nil {
		return err
	}
	for i, t := range at {
		wt := w * x.RL[t]
		dlp[t] += r.Grad[i]
		m.token(span.Weight[i]*r.Loss[i], r.Clipped[i], r.Dual[i], span.Old[i]-span.LP[i], part.Entropy[t])
		if c.KLCoef > 0 && c.KLIn == KLInLoss {
			v, d := c.KL.At(span.LP[i], x.Ref[t])
			dlp[t] += wt * c.KLCoef * d
			m.toReference(wt * v)
		}
		dent[t] -= wt * c.EntropyCoef
	}
	return nil
}

// work are the episodes of a minibatch that need a pass of the policy. An
// advantage of 0 gives a gradient of exactly 0 where no other term asks: such an
// episode stays in the denominators and is not computed.
func (c Config) work(batch []*Episode) []*Episode {
	var out []*Episode
	for _, e := range batch {
		needed := e.teaches || (c.KLCoef > 0 && c.KLIn == KLInLoss) || c.EntropyCoef != 0 || c.needsRollout() && c.RolloutKL > 0 && c.Loss != "ppo" || c.Loss == "opd"
		if (needed && !e.Filtered) || (c.Echo > 0 && e.observations() > 0) {
			out = append(out, e)
		}
	}
	return out
}

// klReward takes β·kl(old, ref) from the reward of every action.
func (s *Session) klReward(episodes []*Episode) error {
	c := s.Config
	if c.KLCoef == 0 || c.KLIn != KLInReward {
		return nil
	}
	sum, n := 0.0, 0
	take := func(e *Episode) error {
		e.each(func(_ int, x *Stream, t int) {
			kl, _ := c.KL.At(x.Old[t], x.Ref[t])
			x.Reward[t] -= c.KLCoef * kl
			e.shaped -= c.KLCoef * kl
			sum, n = sum+kl, n+1
		})
		return nil
	}
	err := s.timed("adv", func() error { return s.each(episodes, take, colReward) })
	s.RefKL = sum / float64(max(n, 1))
	return err
}

// stepActor applies the gradients that work left.
func (s *Session) stepActor(work []*Episode, at stepNumbers, m *metrics) error {
	c := s.Config
	lr := c.lr(at.step, at.total)
	if len(work) > 0 || c.PTXCoef > 0 {
		o := c.optimiser(lr, at.update)
		o.EMA = c.EMA
		norm, err := s.Actor.Step(o)
		if err != nil && !errors.Is(err, policy.ErrNotFinite) {
			s.torn = true
		}
		if err != nil {
			return stepError(at, rowsOf(work), err)
		}
		m.set("actor/grad_norm", norm)
	}
	m.set("actor/lr", lr)
	if c.KLCoef > 0 {
		m.set("actor/kl_coef", c.KLCoef)
		if c.KLIn == KLInReward {
			m.set("actor/reward_kl_penalty", s.RefKL)
		}
	}
	return nil
}

func stepError(at stepNumbers, what string, err error) error {
	return fmt.Errorf("step %d, %s: %w", at.step, what, err)
}

// tooFar reports whether the policy has moved further from the old one than
// --target-kl allows: 1½ times it, as is usual.
func (s *Session) tooFar(m *metrics) bool {
	far := s.Config.TargetKL > 0 && m.trained > 0 && m.kl/float64(m.trained) > 1.5*s.Config.TargetKL
	if far {
		m.set("actor/early_stop", 1)
	}
	return far
}

func flatten(groups [][]*Episode) []*Episode {
	var out []*Episode
	for _, g := range groups {
		out = append(out, g...)
	}
	return out
}
