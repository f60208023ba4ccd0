package trainer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"agentcli/policy"
	"agentcli/trainer/algo"
	"agentcli/trainer/episode"
	"agentcli/trainer/store"
)

// counts are the denominators of one optimiser step, over all its micro-batches:
// one for each component of the loss. A sequence of algo.Counts is a trajectory,
// however many sequences of tokens the file has of it.
type counts struct {
	rl algo.Counts
	ce int
}

func (s *Session) count(batch []*episode.Episode) counts {
	n := counts{rl: algo.Counts{MaxLength: s.maxLength}}
	for _, e := range batch {
		n.ce += e.Observations()
		if a := e.Actions(); a > 0 && !e.Filtered {
			n.rl.Tokens += a
			n.rl.Sequences++
		}
	}
	return n
}

// longest is the L of seq-mean-token-sum-norm: a constant, the most that could be
// sampled. Where a file does not say it is the longest response of the data.
func (s *Session) longest(episodes []*episode.Episode) float64 {
	if s.Config.MaxLength > 0 {
		return s.Config.MaxLength
	}
	most, unknown := 0, len(s.Data.Runs) == 0
	for _, r := range s.Data.Runs {
		most, unknown = max(most, r.most()), unknown || r.most() == 0
	}
	if !unknown {
		return float64(most)
	}
	most = 0
	for _, e := range episodes {
		most = max(most, e.Actions())
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
func (s *Session) policyLoss(mb store.MicroBatch, n counts, o policy.Outputs, m *metrics) (policy.Gradients, error) {
	c := s.Config
	loss, _ := algo.LossByName(c.Loss)
	var g policy.Gradients
	now := map[store.Item][]float64{} // log-probs of the sequences of this micro-batch
	if s.needsTrajectory(loss) {
		if err := mb.Each(o, func(it store.Item, part policy.Outputs) error { now[it] = part.Logprobs; return nil }); err != nil {
			return g, err
		}
		maps.Copy(now, s.asked)
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

// updatePolicy runs a step's episodes through the policy and adds up the gradients
// of loss. Where one ratio is the whole trajectory's, and its sequences do not fit
// into one micro-batch, it is run forward once more beforehand, so that no split
// changes the gradient.
func (s *Session) updatePolicy(ctx context.Context, work []*episode.Episode, at stepNumbers, m *metrics, loss func(mb store.MicroBatch, o policy.Outputs) (policy.Gradients, error)) error {
	m.policy = true
	split, err := s.split(work)
	if err != nil {
		return err
	}
	if len(split) > 0 {
		s.asked = map[store.Item][]float64{}
		defer func() { s.asked = nil }()
		err := s.rehearse(ctx, work, split, func(it store.Item, o policy.Outputs) error { s.asked[it] = o.Logprobs; return nil })
		if err != nil {
			return err
		}
	}
	return s.accumulate(ctx, s.Actor, "update", work, at, m, loss)
}

// rehearse runs some of the episodes of an update forward, as the update itself will:
// where that drops something at random, the same is dropped.
func (s *Session) rehearse(ctx context.Context, work, some []*episode.Episode, take func(store.Item, policy.Outputs) error) error {
	actor, ok := s.Actor.(Rehearser)
	if !ok {
		return s.score(ctx, "forward", s.Actor, some, take)
	}
	wanted := map[*episode.Episode]bool{}
	for _, e := range some {
		wanted[e] = true
	}
	n, done, total := 0, 0, sequences(work)
	for mb, err := range s.loader.MicroBatches(work) {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return ErrInterrupted
		}
		if slices.ContainsFunc(mb.Items, func(it store.Item) bool { return wanted[it.Episode] }) {
			o, err := actor.Rehearse(mb.Batch, n)
			if err == nil {
				err = mb.Each(o, func(it store.Item, o policy.Outputs) error {
					if !wanted[it.Episode] {
						return nil
					}
					return take(it, o)
				})
			}
			if err != nil {
				return fmt.Errorf("forward: %s: %w", mb.Rows(), err)
			}
		}
		n++
		done += len(mb.Items)
		s.progress("forward", done, total)
	}
	return nil
}

// split are the episodes of which the loss must know all, and whose sequences are in
// several micro-batches.
func (s *Session) split(work []*episode.Episode) ([]*episode.Episode, error) {
	loss, _ := algo.LossByName(s.Config.Loss)
	if !s.needsTrajectory(loss) || !slices.ContainsFunc(work, func(e *episode.Episode) bool { return e.Counts.Sequences > 1 && !e.Filtered }) {
		return nil, nil
	}
	var out []*episode.Episode
	n, in := 0, map[*episode.Episode]int{} // its first micro-batch
	for mb, err := range s.loader.MicroBatches(work) {
		if err != nil {
			return nil, err
		}
		for _, it := range mb.Items {
			first, seen := in[it.Episode]
			switch {
			case !seen:
				in[it.Episode] = n
			case first != n && !it.Episode.Filtered && (len(out) == 0 || out[len(out)-1] != it.Episode):
				out = append(out, it.Episode)
			}
		}
		n++
	}
	return out, nil
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

// klReward takes β·kl(old, ref) from the reward of every action.
func (s *Session) klReward(episodes []*episode.Episode) error {
	c := s.Config
	if c.KLCoef == 0 || c.KLIn != KLInReward {
		return nil
	}
	sum, n := 0.0, 0
	take := func(e *episode.Episode) error {
		e.EachAction(func(_ int, x *episode.TokenStream, t int) {
			kl, _ := c.KL.At(x.OldLogprobs[t], x.RefLogprobs[t])
			x.Rewards[t] -= c.KLCoef * kl
			e.ShapedReward -= c.KLCoef * kl
			sum, n = sum+kl, n+1
		})
		return nil
	}
	err := s.timed("adv", func() error { return s.loader.Each(episodes, take, store.Rewards) })
	s.RefKL, s.RefKLRows = sum/float64(max(n, 1)), len(episodes)
	return err
}

// stepActor applies the gradients that work left.
func (s *Session) stepActor(work []*episode.Episode, at stepNumbers, m *metrics) error {
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

// errKLExceeded says that a step is not to be taken, and none after it.
var errKLExceeded = errors.New("the policy is further from the old one than --target-kl")

// klExceeded is errKLExceeded where the policy has moved further from the old one than
// --target-kl allows: 1½ times it, looked at before the step is taken (Spinning Up's PPO).
func (s *Session) klExceeded(m *metrics) error {
	if s.Config.TargetKL > 0 && m.klTokens > 0 && m.kl/float64(m.klTokens) > 1.5*s.Config.TargetKL {
		m.set("actor/early_stop", 1)
		return errKLExceeded
	}
	return nil
}

func flatten(groups [][]*episode.Episode) []*episode.Episode {
	var out []*episode.Episode
	for _, g := range groups {
		out = append(out, g...)
	}
	return out
}
