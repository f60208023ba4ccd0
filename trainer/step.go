package trainer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"agentcli/internal/setting"
	"agentcli/policy"
	"agentcli/trainer/algo"
	"agentcli/trainer/episode"
	"agentcli/trainer/rows"
	"agentcli/trainer/store"
)

// counts are the denominators of one optimiser step, over all its micro-batches:
// one for each component of the loss. A sequence of algo.Counts is a trajectory,
// however many sequences of tokens the file has of it.
type counts struct {
	rl algo.Counts
	ce int
}

// countTokens counts those of a minibatch. maxLength is the L of seq-mean-token-sum-norm.
func countTokens(batch []*episode.Episode, maxLength float64) counts {
	n := counts{rl: algo.Counts{MaxLength: maxLength}}
	for _, e := range batch {
		n.ce += e.Observations()
		if a := e.Actions(); a > 0 && !e.Filtered {
			n.rl.Tokens += a
			n.rl.Sequences++
		}
	}
	return n
}

// maxLength is the L of seq-mean-token-sum-norm: a constant, the most that could be
// sampled. Where a file does not say it is the longest response of the data.
func maxLength(c Config, d *rows.Data, episodes []*episode.Episode) float64 {
	if c.MaxLength > 0 {
		return c.MaxLength
	}
	most, unknown := 0, len(d.Runs) == 0
	for _, r := range d.Runs {
		most, unknown = max(most, r.MostTokens()), unknown || r.MostTokens() == 0
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

// lossFunc is the derivative of a loss with respect to what a model says of a micro-batch.
type lossFunc func(mb store.MicroBatch, o policy.Outputs) (policy.Gradients, error)

// accumulate runs a step's episodes through a model, micro-batch by micro-batch,
// and adds up the gradients of loss.
func (t *Trainer) accumulate(ctx context.Context, model Actor, phase string, work []*episode.Episode, at stepNumbers, m *metrics,
	loss lossFunc) error {
	done, total := 0, sequences(work)
	for mb, err := range t.loader.MicroBatches(work) {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		var lossErr error
		err = model.Accumulate(t.batchFor(model, mb.Batch), func(o policy.Outputs) policy.Gradients {
			m.routed(o.Routing)
			var g policy.Gradients
			g, lossErr = loss(mb, o)
			return g
		})
		if lossErr != nil {
			err = lossErr
		}
		if err != nil {
			return stepError(at, mb.Rows(), err)
		}
		done += len(mb.Items)
		m.packed(policy.PackedTokens(mb.Batch.Sequences))
		t.progress(phase, done, total)
	}
	return nil
}

// batchFor is a batch as a model takes it: the experts that were chosen while sampling are those of the
// policy, and of no other model.
func (t *Trainer) batchFor(model Scorer, b policy.Batch) policy.Batch {
	if model != Scorer(t.Actor) {
		b.Experts = nil
	}
	b.Replay = t.Config.RouterReplay
	return b
}

// forwardPass is a pass of a model over episodes, without gradients.
type forwardPass struct {
	phase string // as Progress and the metrics name it; "forward" is a part of an update, and timed with it
	model Scorer
	// read is the batch that the model reads in place of a micro-batch's own; nil: that.
	read  func(store.MicroBatch) (policy.Batch, error)
	take  func(store.Item, policy.Outputs) error // is given what the model says of each sequence's tokens
	fills []store.Column                         // that take fills; they are kept
}

// into is a pass that puts what a model says into a column: values into that of values, else
// log-probs.
func into(k store.Column, phase string, model Scorer) forwardPass {
	take := func(it store.Item, o policy.Outputs) error {
		x := it.Stream()
		if *k.Of(x) = o.Logprobs; k == store.Values {
			x.Values = o.Values
		}
		return nil
	}
	return forwardPass{phase: phase, model: model, take: take, fills: []store.Column{k}}
}

// forward runs the episodes through a model, micro-batch by micro-batch.
func (t *Trainer) forward(ctx context.Context, p forwardPass, episodes []*episode.Episode) error {
	run := func() error {
		done, total := 0, sequences(episodes)
		for mb, err := range t.loader.MicroBatches(episodes, p.fills...) {
			if err != nil {
				return err
			}
			if err := ctx.Err(); err != nil {
				return ErrInterrupted
			}
			batch := t.batchFor(p.model, mb.Batch)
			if p.read != nil {
				if batch, err = p.read(mb); err != nil {
					return err
				}
			}
			o, err := p.model.Forward(batch)
			if err == nil {
				err = mb.Each(o, p.take)
			}
			if err != nil {
				return fmt.Errorf("%s: %s: %w", p.phase, mb.Rows(), err)
			}
			done += len(mb.Items)
			t.progress(p.phase, done, total)
		}
		return nil
	}
	if p.phase == "forward" { // within an update, and counted there
		return run()
	}
	return t.timed(p.phase, run)
}

// rehearse runs some of the episodes of an update forward, as the update itself will:
// where that drops something at random, the same is dropped.
func (t *Trainer) rehearse(ctx context.Context, work, some []*episode.Episode, take func(store.Item, policy.Outputs) error) error {
	actor, ok := t.Actor.(Rehearser)
	if !ok {
		return t.forward(ctx, forwardPass{phase: "forward", model: t.Actor, take: take}, some)
	}
	wanted := map[*episode.Episode]bool{}
	for _, e := range some {
		wanted[e] = true
	}
	n, done, total := 0, 0, sequences(work)
	for mb, err := range t.loader.MicroBatches(work) {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return ErrInterrupted
		}
		if slices.ContainsFunc(mb.Items, func(it store.Item) bool { return wanted[it.Episode] }) {
			o, err := actor.Rehearse(t.batchFor(t.Actor, mb.Batch), n)
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
		t.progress("forward", done, total)
	}
	return nil
}

// needsTrajectory reports whether the log-probs of all sequences of a trajectory, as they are
// now, are needed for each of them.
func (p *policyGradient) needsTrajectory() bool {
	return p.loss.SequenceLevel || p.old == oldIsCurrent && p.t.Config.OffPolicy.SequenceLevel()
}

// accumulatePolicy adds up the actor's gradients of a step, micro-batch by micro-batch, and
// stops a run whose policy has moved too far from the one that sampled (TargetKL).
func (p *policyGradient) accumulatePolicy(ctx context.Context, work []*episode.Episode, at stepNumbers, m *metrics, loss lossFunc) error {
	m.policy = true
	if err := p.rehearseSplit(ctx, work); err != nil {
		return err
	}
	if err := p.t.accumulate(ctx, p.t.Actor, "update", work, at, m, loss); err != nil {
		return err
	}
	return klExceeded(p.t.Config.TargetKL, m)
}

// rehearseSplit runs episodes forward before the update where one ratio is the whole
// trajectory's (gspo, gmpo) and its sequences do not fit into one micro-batch, so that no
// split changes the gradient.
func (p *policyGradient) rehearseSplit(ctx context.Context, work []*episode.Episode) error {
	p.splitLogprobs = nil
	split, err := p.split(work)
	if err != nil || len(split) == 0 {
		return err
	}
	p.splitLogprobs = map[store.Item][]float64{}
	return p.t.rehearse(ctx, work, split, func(it store.Item, o policy.Outputs) error { p.splitLogprobs[it] = o.Logprobs; return nil })
}

// split are the episodes of which the loss must know all, and whose sequences are in
// several micro-batches.
func (p *policyGradient) split(work []*episode.Episode) ([]*episode.Episode, error) {
	if !p.needsTrajectory() || !slices.ContainsFunc(work, func(e *episode.Episode) bool { return e.Counts.Sequences > 1 && !e.Filtered }) {
		return nil, nil
	}
	var out []*episode.Episode
	n, in := 0, map[*episode.Episode]int{} // its first micro-batch
	for mb, err := range p.t.loader.MicroBatches(work) {
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

// stepActor applies the gradients that work left: AdamW, with the gradient clipped to
// MaxGradNorm.
func (t *Trainer) stepActor(work []*episode.Episode, at stepNumbers, m *metrics) error {
	c := t.Config
	lr := c.Rate(c.LR, at.step, at.total)
	if len(work) > 0 || c.PTXCoef > 0 {
		o := adamW(c, lr, at.update)
		o.EMA = c.EMA
		norm, err := t.Actor.Step(o)
		if err != nil && !errors.Is(err, policy.ErrNotFinite) {
			t.partialStep = true
		}
		if err != nil {
			return stepError(at, rowsOf(work), err)
		}
		m.set("actor/grad_norm", norm)
	}
	m.set("actor/lr", lr)
	if c.EntropyCoef != 0 {
		m.set("actor/entropy_coef", EntropyCoefAt(c, at.step, at.total))
	}
	if c.KLCoef > 0 {
		m.set("actor/kl_coef", c.KLCoef)
		if c.KLIn == KLInReward {
			m.set("actor/reward_kl_penalty", t.RefKL)
		}
	}
	return nil
}

// StepError is the end of a run within a step.
type StepError struct {
	Step int    // from 1
	What string // the rows or the model that it was at
	err  error
}

func (e *StepError) Error() string { return fmt.Sprintf("step %d, %s: %v", e.Step, e.What, e.err) }

// Unwrap gives what went wrong.
func (e *StepError) Unwrap() error { return e.err }

func stepError(at stepNumbers, what string, err error) error {
	return &StepError{Step: at.step, What: what, err: err}
}

// adamW are the optimiser's settings in its step of this number, from 1.
func adamW(c Config, lr float64, number int) policy.StepConfig {
	return policy.StepConfig{LR: lr, Beta1: c.Beta1, Beta2: c.Beta2, Eps: c.AdamEps, WeightDecay: c.WeightDecay,
		MaxGradNorm: c.MaxGradNorm, Number: number}
}

func flatten(groups [][]*episode.Episode) []*episode.Episode {
	var out []*episode.Episode
	for _, g := range groups {
		out = append(out, g...)
	}
	return out
}

// minibatches shuffles whole groups and fills batches of at least size
// episodes with them; 0 is one batch of all. A group is never split: its
// members were compared with each other.
func minibatches(groups [][]*episode.Episode, size int, r *rand.Rand) [][]*episode.Episode {
	order := r.Perm(len(groups))
	var out [][]*episode.Episode
	for _, g := range order {
		if len(out) == 0 || (size > 0 && len(out[len(out)-1]) >= size) {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], groups[g]...)
	}
	return out
}

// rng is the random source of one epoch's order.
func rng(seed int64, epoch int) *rand.Rand { return rand.New(rand.NewPCG(uint64(seed), uint64(epoch))) }

// rowsOf says which rows episodes are, for an error.
func rowsOf(episodes []*episode.Episode) string {
	if len(episodes) == 0 {
		return "no row of it"
	}
	return store.RowNames(episodes[0], episodes[len(episodes)-1])
}

// errKLExceeded says that a step is not to be taken, and none after it.
var errKLExceeded = setting.Errorf("the policy is further from the old one than %s", setting.Name("TargetKL"))

// klExceeded is errKLExceeded where the policy has moved further from the old one than
// target (--target-kl) allows: 1½ times it, looked at before the step is taken (Spinning Up's PPO).
func klExceeded(target float64, m *metrics) error {
	if target > 0 && m.klWeight > 0 && m.kl/m.klWeight > 1.5*target {
		m.set("actor/early_stop", 1)
		return errKLExceeded
	}
	return nil
}
