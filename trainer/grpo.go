package trainer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"agentcli/policy"
	"agentcli/trainer/algo"
)

// GRPO: group relative policy optimisation (Shao et al. 2024, DeepSeekMath,
// section 4.1) on trajectories of several turns, from files.
//
// Departures from the paper: tokens of observations take no part anywhere
// (Search-R1's mask); the loss is aggregated by one of four modes over the
// global counts of the optimiser step, token-mean by default (DAPO), where the
// paper averages within each sequence first; no reference KL unless asked for;
// the old policy is recomputed in the training precision by default, since the
// log-probs in the file come from the sampler's.
type GRPO struct {
	Actor  Actor
	Ref    Scorer // needed if KLCoef > 0, unless the run is resumed: its log-probs are in Frozen
	Config Config
	Data   *Data

	// OnStep is called after each optimiser step, OnProgress while the old and
	// reference log-probs are computed and within a step. Either may be nil.
	OnStep     func(Metrics) error
	OnProgress func(Progress)
	// Checkpoint is called every SaveEvery steps and when the run is
	// interrupted; done is the number of optimiser steps so far. May be nil.
	Checkpoint func(done int, f *Frozen) error
	// Done is the number of optimiser steps that an interrupted run had taken,
	// Frozen what its checkpoint was given; needed if Done > 0.
	Done   int
	Frozen *Frozen
	// Clock is time.Now where it is nil.
	Clock func() time.Time

	maxLength float64      // L of seq-mean-token-sum-norm
	diff      *RolloutDiff // being measured in this step; nil: not in this one
	groups    [][]*Episode
}

// Progress says how far a phase is, in sequences.
type Progress struct {
	Phase       string // old_log_prob, ref or update
	Done, Total int
}

// ErrInterrupted is returned by Run when its context ended between two
// optimiser steps; what was done is in the checkpoint.
var ErrInterrupted = errors.New("interrupted")

// Run trains to the end.
func (g *GRPO) Run(ctx context.Context) error {
	c := g.Config
	if err := c.Validate(); err != nil {
		return err
	}
	if c.KLCoef > 0 && g.Ref == nil && g.Done == 0 {
		return errors.New("--kl-coef needs a reference model; name one with --ref DIR")
	}
	if g.Done > 0 && g.Frozen == nil {
		return errors.New("a resumed run needs the log-probs of its checkpoint: the model has moved on since they were computed")
	}
	if g.Clock == nil {
		g.Clock = time.Now
	}

	// groups → advantages: A_i = (s_i − mean s) / std s, for every token of i.
	if _, err := g.Data.CheckGroups(); err != nil {
		return err
	}
	g.groups = groups(g.Data.Episodes)
	zero, err := g.advantages()
	if err != nil {
		return err
	}
	train := g.groups
	teaching := spread(train)
	if c.DropZeroStd {
		train = teaching
	}
	// A KL to a reference that is another model moves the policy by itself.
	if len(train) == 0 || (len(teaching) == 0 && c.KLCoef == 0) {
		return fmt.Errorf("all attempts within each of the %d groups have the same reward: there is nothing to compare, hence nothing to learn (sample more attempts with rollout -n, or harder or easier tasks)", len(g.groups))
	}
	var episodes []*Episode
	for _, gr := range train {
		episodes = append(episodes, gr...)
	}

	// old and reference log-probs, before anything changes. A resumed run has
	// them from its checkpoint.
	start := g.Clock()
	if g.Done > 0 {
		if err := g.Frozen.restore(episodes, c); err != nil {
			return err
		}
	} else {
		if err := g.oldLogprobs(ctx, episodes); err != nil {
			return err
		}
		if c.KLCoef > 0 {
			if err := g.refLogprobs(ctx, episodes); err != nil {
				return err
			}
		}
		g.Frozen = freeze(episodes, c)
		if c.OldLogprobs == OldRecompute {
			g.Frozen.Diff.compare(episodes)
		}
	}
	oldSeconds := g.Clock().Sub(start).Seconds()
	g.maxLength = c.MaxLength
	if g.maxLength == 0 {
		for _, e := range episodes {
			g.maxLength = math.Max(g.maxLength, float64(e.Sampled))
		}
	}

	// Groups of unequal sizes fill another number of batches in each epoch's order.
	total := 0
	for epoch := range c.Epochs {
		total += len(minibatches(train, c.Minibatch, rng(c.Seed, epoch)))
	}
	if g.Done > total {
		return fmt.Errorf("the checkpoint stands after step %d, but this run has %d steps: its files or settings have changed", g.Done, total)
	}
	step, updates := 0, 0 // updates: steps that moved the model, as Adam counts them
	for epoch := range c.Epochs {
		for _, batch := range minibatches(train, c.Minibatch, rng(c.Seed, epoch)) {
			if len(c.work(batch)) > 0 {
				updates++
			}
			if step++; step <= g.Done {
				continue // taken before the interruption
			}
			if ctx.Err() != nil {
				return g.interrupted(step - 1)
			}
			m := newMetrics(step, total, epoch, g.Data, g.groups, zero)
			if step == 1 && c.OldLogprobs == OldRecompute {
				m.set("timing_s/old_log_prob", oldSeconds)
			}
			// With the file's log-probs as the old ones, the forward pass of the first
			// update is the only one by the starting policy: it measures the difference.
			g.diff = nil
			if updates == 1 && len(c.work(batch)) > 0 && c.OldLogprobs == OldFile {
				g.diff = &RolloutDiff{}
			}
			if err := g.step(ctx, batch, stepNumbers{step, total, updates}, m); err != nil {
				if ctx.Err() != nil {
					return g.interrupted(step - 1)
				}
				// The step is lost, not those before it: its gradients were dropped.
				return errors.Join(err, g.keep(step-1))
			}
			if g.diff != nil {
				g.Frozen.Diff = *g.diff
			}
			g.Frozen.Diff.into(m)
			if g.OnStep != nil {
				if err := g.OnStep(m.finish()); err != nil {
					return err
				}
			}
			if g.Checkpoint != nil && c.SaveEvery > 0 && step%c.SaveEvery == 0 && step < total {
				if err := g.Checkpoint(step, g.Frozen); err != nil {
					return err
				}
			}
		}
	}
	// Until the model itself is written, this is all there is of the run.
	return g.keep(step)
}

// keep saves the state after `done` steps, if there is anything to save.
func (g *GRPO) keep(done int) error {
	if g.Checkpoint == nil || done <= g.Done {
		return nil
	}
	return g.Checkpoint(done, g.Frozen)
}

func (g *GRPO) interrupted(done int) error {
	if g.Checkpoint != nil {
		if err := g.Checkpoint(done, g.Frozen); err != nil {
			return err
		}
	}
	return ErrInterrupted
}

// advantages fills in every episode's advantage and counts the groups without
// spread.
func (g *GRPO) advantages() (zeroSpread int, err error) {
	estimate := algo.Estimators[g.Config.Advantage]
	for _, group := range g.groups {
		score_G := make([]float64, len(group))
		for i, e := range group {
			score_G[i], e.Advantage = e.Score, 0
		}
		if len(group) > 1 && algo.ZeroSpread(score_G) {
			zeroSpread++
			continue // zero, not the rounding error of a mean
		}
		adv_G, err := estimate(score_G)
		if err != nil {
			return 0, fmt.Errorf("group of %s: %w (roll out with -n 2 or more, or take another --advantage)", group[0].ID, err)
		}
		for i, e := range group {
			e.Advantage = adv_G[i]
		}
	}
	return zeroSpread, nil
}

func spread(groups [][]*Episode) [][]*Episode {
	var out [][]*Episode
	for _, g := range groups {
		for _, e := range g {
			if e.Advantage != 0 {
				out = append(out, g)
				break
			}
		}
	}
	return out
}

// work are the episodes of a minibatch that need a forward pass. Without a KL
// term an advantage of 0 gives a gradient of exactly 0: such an episode stays in
// the denominators and is not computed.
func (c Config) work(batch []*Episode) []*Episode {
	var out []*Episode
	for _, e := range batch {
		if e.Advantage != 0 || c.KLCoef > 0 {
			out = append(out, e)
		}
	}
	return out
}

// stepNumbers are where a step stands, each from 1.
type stepNumbers struct{ step, total, update int }

// step is one optimiser step over the episodes of one minibatch.
func (g *GRPO) step(ctx context.Context, batch []*Episode, at stepNumbers, m *metrics) error {
	c := g.Config
	start := g.Clock()
	counts := algo.Counts{MaxLength: g.maxLength}
	for _, e := range batch {
		counts.Tokens += e.Sampled
		counts.Sequences++
		m.episode(e)
	}
	work := c.work(batch)
	done, total := 0, sequences(work)
	for _, mb := range microBatches(work, c.MicroTokens) {
		if err := ctx.Err(); err != nil {
			return err
		}
		var lossErr error
		err := g.Actor.Accumulate(mb.batch, func(lp, entropy []float64) []float64 {
			var grad []float64
			grad, lossErr = g.loss(mb, counts, lp, entropy, m)
			return grad
		})
		if lossErr != nil {
			err = lossErr
		}
		if err != nil {
			return fmt.Errorf("step %d, %s: %w", at.step, names(mb.items), err)
		}
		done += len(mb.items)
		m.packed(policy.PackedTokens(mb.batch.Sequences))
		g.progress("update", done, total)
	}
	lr := c.lr(at.step, at.total)
	norm := 0.0
	if len(work) > 0 {
		var err error
		norm, err = g.Actor.Step(policy.StepConfig{LR: lr, Beta1: c.Beta1, Beta2: c.Beta2, Eps: c.AdamEps,
			WeightDecay: c.WeightDecay, MaxGradNorm: c.MaxGradNorm, Number: at.update})
		if err != nil {
			return fmt.Errorf("step %d: %w", at.step, err)
		}
	}
	m.set("actor/grad_norm", norm)
	m.set("actor/lr", lr)
	if c.KLCoef > 0 {
		m.set("actor/kl_coef", c.KLCoef)
	}
	m.set("timing_s/update_actor", g.Clock().Sub(start).Seconds())
	return nil
}

// loss is the derivative of the step's loss with respect to each log-prob of a
// micro-batch:
//
//	L = Σ w·max(−Aρ, −A·clip(ρ, 1−ε_l, 1+ε_h)) + β·Σ w·k3(π, ref), ρ = exp(lp − old)
//
// w is what one token weighs under the aggregation; counts are of the whole
// step, so that no split into micro-batches changes it.
func (g *GRPO) loss(mb micro, counts algo.Counts, lp, entropy []float64, m *metrics) ([]float64, error) {
	c := g.Config
	want := 0
	for _, it := range mb.items {
		want += len(it.ep.Old[it.seq])
	}
	if len(lp) != want || len(entropy) != want {
		return nil, fmt.Errorf("the model gave %d log-probs and %d entropies for %d sampled tokens", len(lp), len(entropy), want)
	}
	grad := make([]float64, 0, len(lp))
	for _, it := range mb.items {
		w, err := c.Aggregation.Weight(it.ep.Sampled, counts)
		if err != nil {
			return nil, err
		}
		if n := len(it.ep.Old[it.seq]); g.diff != nil {
			g.diff.add(lp[len(grad):len(grad)+n], it.ep.Old[it.seq])
		}
		for t, old := range it.ep.Old[it.seq] {
			i := len(grad)
			l := algo.PPO(lp[i], old, it.ep.Advantage, c.Clip)
			d := w * l.Grad
			m.token(w, l, old-lp[i], entropy[i])
			if c.KLCoef > 0 {
				ref := it.ep.Ref[it.seq][t]
				d += w * c.KLCoef * algo.K3Grad(lp[i], ref)
				m.toReference(w * algo.K3(lp[i], ref))
			}
			grad = append(grad, d)
		}
	}
	return grad, nil
}

// oldLogprobs fills Episode.Old.
func (g *GRPO) oldLogprobs(ctx context.Context, episodes []*Episode) error {
	for _, e := range episodes {
		e.Old = make([][]float64, len(e.Sequences))
		if g.Config.OldLogprobs != OldFile {
			continue
		}
		for i := range e.Sequences {
			old, missing := fileLogprobs(e, i)
			if missing {
				return fmt.Errorf("%s: some of its tokens have no log-prob in the file; use --old-logprobs recompute", e.ID)
			}
			e.Old[i] = old
		}
	}
	if g.Config.OldLogprobs == OldFile {
		return nil
	}
	return g.score(ctx, "old_log_prob", g.Actor, episodes, func(it item, lp []float64) { it.ep.Old[it.seq] = lp })
}

// refLogprobs fills Episode.Ref.
func (g *GRPO) refLogprobs(ctx context.Context, episodes []*Episode) error {
	for _, e := range episodes {
		e.Ref = make([][]float64, len(e.Sequences))
	}
	return g.score(ctx, "ref", g.Ref, episodes, func(it item, lp []float64) { it.ep.Ref[it.seq] = lp })
}

// score runs the episodes through a model and hands on each sequence's
// log-probs of its sampled tokens.
func (g *GRPO) score(ctx context.Context, phase string, model Scorer, episodes []*Episode, take func(item, []float64)) error {
	done, total := 0, sequences(episodes)
	for _, mb := range microBatches(episodes, g.Config.MicroTokens) {
		if err := ctx.Err(); err != nil {
			return ErrInterrupted
		}
		lp, _, err := model.Logprobs(mb.batch)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", phase, names(mb.items), err)
		}
		for _, it := range mb.items {
			n := it.ep.Sequences[it.seq].Sampled()
			if n > len(lp) {
				return fmt.Errorf("%s: %s: the model gave too few log-probs", phase, names(mb.items))
			}
			take(it, lp[:n:n])
			lp = lp[n:]
		}
		if len(lp) > 0 {
			return fmt.Errorf("%s: %s: the model gave %d log-probs too many", phase, names(mb.items), len(lp))
		}
		done += len(mb.items)
		g.progress(phase, done, total)
	}
	return nil
}

func sequences(episodes []*Episode) int {
	n := 0
	for _, e := range episodes {
		n += len(e.Sequences)
	}
	return n
}

func (g *GRPO) progress(phase string, done, total int) {
	if g.OnProgress != nil {
		g.OnProgress(Progress{phase, done, total})
	}
}

// fileLogprobs are the recorded log-probs of a sequence's sampled tokens. No
// token that was sampled had a log-prob of −∞.
func fileLogprobs(e *Episode, seq int) (lp []float64, missing bool) {
	s := &e.Sequences[seq]
	for t, m := range s.LossMask {
		if m {
			if !s.Logprobs[t].Known() || math.IsInf(float64(s.Logprobs[t]), 0) {
				return nil, true
			}
			lp = append(lp, float64(s.Logprobs[t]))
		}
	}
	return lp, false
}

// names says which rows a batch holds, for an error.
func names(items []item) string {
	if len(items) == 1 {
		return items[0].ep.ID
	}
	return fmt.Sprintf("rows %s to %s", items[0].ep.ID, items[len(items)-1].ep.ID)
}

// rng is the random source of one epoch's order.
func rng(seed int64, epoch int) *rand.Rand { return rand.New(rand.NewPCG(uint64(seed), uint64(epoch))) }
