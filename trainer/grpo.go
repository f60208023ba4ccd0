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
	Ref    Scorer // needed if KLCoef > 0
	Config Config
	Data   *Data

	// OnStep is called after each optimiser step, OnProgress while the old and
	// reference log-probs are computed and within a step. Either may be nil.
	OnStep     func(Metrics) error
	OnProgress func(Progress)
	// Checkpoint is called every SaveEvery steps and when the run is
	// interrupted; done is the number of optimiser steps so far. May be nil.
	Checkpoint func(done int) error
	// Done is the number of optimiser steps that an interrupted run had taken.
	Done int
	// Clock is time.Now where it is nil.
	Clock func() time.Time

	counts algo.Counts
	groups [][]*Episode
	ref    map[item][]float64
}

// Progress says how far a phase is, in episodes.
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
	if c.KLCoef > 0 && g.Ref == nil {
		return errors.New("--kl-coef needs a reference model; name one with --ref DIR")
	}
	if g.Clock == nil {
		g.Clock = time.Now
	}

	// groups → advantages: A_i = (s_i − mean s) / std s, for every token of i.
	g.groups = groups(g.Data.Episodes)
	zero, err := g.advantages()
	if err != nil {
		return err
	}
	train := g.groups
	if c.DropZeroStd {
		train = spread(train)
	}
	if len(train) == 0 {
		return fmt.Errorf("all attempts within each of the %d groups have the same reward: there is nothing to compare, hence nothing to learn (sample more attempts with rollout -n, or harder or easier tasks)", len(g.groups))
	}
	var episodes []*Episode
	for _, gr := range train {
		episodes = append(episodes, gr...)
	}

	// old and reference log-probs, before anything changes. A resumed run has
	// them from its checkpoint.
	start := g.Clock()
	diff, err := g.oldLogprobs(ctx, episodes)
	if err != nil {
		return err
	}
	oldSeconds := g.Clock().Sub(start).Seconds()
	if c.KLCoef > 0 {
		if err := g.refLogprobs(ctx, episodes); err != nil {
			return err
		}
	}
	if c.Aggregation == algo.SeqMeanTokenSumNorm && c.MaxLength == 0 {
		for _, e := range episodes {
			g.counts.MaxLength = math.Max(g.counts.MaxLength, float64(e.Sampled))
		}
	} else {
		g.counts.MaxLength = c.MaxLength
	}

	total := c.Epochs * len(minibatches(train, c.Minibatch, rng(c.Seed, 0)))
	step := 0
	for epoch := range c.Epochs {
		for _, batch := range minibatches(train, c.Minibatch, rng(c.Seed, epoch)) {
			if step++; step <= g.Done {
				continue // taken before the interruption
			}
			if ctx.Err() != nil {
				return g.interrupted(step - 1)
			}
			m := newMetrics(step, total, epoch, g.Data, g.groups, zero)
			if step == 1 {
				m.set("timing_s/old_log_prob", oldSeconds)
			}
			diff.into(m)
			if err := g.step(ctx, batch, step, total, m); err != nil {
				if ctx.Err() != nil {
					return g.interrupted(step - 1)
				}
				return err
			}
			if g.OnStep != nil {
				if err := g.OnStep(m.finish()); err != nil {
					return err
				}
			}
			if g.Checkpoint != nil && c.SaveEvery > 0 && step%c.SaveEvery == 0 && step < total {
				if err := g.Checkpoint(step); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (g *GRPO) interrupted(done int) error {
	if g.Checkpoint != nil {
		if err := g.Checkpoint(done); err != nil {
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
			score_G[i] = e.Score
		}
		if algo.ZeroSpread(score_G) {
			zeroSpread++
			if len(group) > 1 {
				continue // zero, not the rounding error of a mean
			}
		}
		adv_G, err := estimate(score_G)
		if err != nil {
			return 0, fmt.Errorf("group of %s: %w", group[0].ID, err)
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

// step is one optimiser step over the episodes of one minibatch.
func (g *GRPO) step(ctx context.Context, batch []*Episode, number, total int, m *metrics) error {
	c := g.Config
	start := g.Clock()
	counts := algo.Counts{MaxLength: g.counts.MaxLength}
	var work []*Episode
	for _, e := range batch {
		counts.Tokens += e.Sampled
		counts.Sequences++
		// Without a KL term an advantage of 0 gives a gradient of exactly 0: such
		// an episode stays in the denominators and needs no forward pass.
		if e.Advantage != 0 || c.KLCoef > 0 {
			work = append(work, e)
		}
		m.episode(e)
	}
	done := 0
	for _, mb := range microBatches(work, c.MicroTokens) {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := g.Actor.Accumulate(mb.batch, func(lp, entropy []float64) []float64 {
			grad := make([]float64, 0, len(lp))
			for _, it := range mb.items {
				// w: what one token of this episode weighs in the step's loss.
				w, err := c.Aggregation.Weight(it.ep.Sampled, counts)
				if err != nil {
					return nil // counts are of this very batch; Accumulate reports the length
				}
				old := it.ep.Old[it.seq]
				ref := g.ref[it]
				for t := range old {
					i := len(grad)
					// L = w · max(−Aρ, −A·clip(ρ, 1−ε_l, 1+ε_h)) + w·β·k3(π, ref)
					l := algo.PPO(lp[i], old[t], it.ep.Advantage, c.Clip)
					loss, d := w*l.Loss, w*l.Grad
					kl := 0.0
					if ref != nil {
						kl = algo.K3(lp[i], ref[t])
						loss += w * c.KLCoef * kl
						d += w * c.KLCoef * algo.K3Grad(lp[i], ref[t])
					}
					grad = append(grad, d)
					m.token(w, loss, l, old[t]-lp[i], entropy[i], kl)
				}
			}
			return grad
		})
		if err != nil {
			return fmt.Errorf("step %d, %s: %w", number, names(mb.items), err)
		}
		done += len(mb.items)
		m.packed(policy.PackedTokens(mb.batch.Sequences))
		g.progress("update", done, len(work))
	}
	lr := c.lr(number, total)
	if len(work) > 0 {
		norm, err := g.Actor.Step(policy.StepConfig{LR: lr, Beta1: c.Beta1, Beta2: c.Beta2, Eps: c.AdamEps,
			WeightDecay: c.WeightDecay, MaxGradNorm: c.MaxGradNorm, Number: number})
		if err != nil {
			return fmt.Errorf("step %d: %w", number, err)
		}
		m.set("actor/grad_norm", norm)
	} else {
		m.set("actor/grad_norm", 0)
	}
	m.set("actor/lr", lr)
	m.set("timing_s/update_actor", g.Clock().Sub(start).Seconds())
	return nil
}

// oldLogprobs fills Episode.Old, and where the file has log-probs too compares
// the two.
func (g *GRPO) oldLogprobs(ctx context.Context, episodes []*Episode) (*rolloutDiff, error) {
	diff := &rolloutDiff{}
	for _, e := range episodes {
		e.Old = make([][]float64, len(e.Sequences))
		if g.Config.OldLogprobs != OldFile {
			continue
		}
		for i := range e.Sequences {
			old, missing := fileLogprobs(e, i)
			if missing {
				return nil, fmt.Errorf("%s: some of its tokens have no log-prob in the file; use --old-logprobs recompute", e.ID)
			}
			e.Old[i] = old
		}
	}
	if g.Config.OldLogprobs == OldFile {
		return diff, nil
	}
	err := g.score(ctx, "old_log_prob", g.Actor, episodes, func(it item, lp []float64) {
		it.ep.Old[it.seq] = lp
		if roll, missing := fileLogprobs(it.ep, it.seq); !missing {
			diff.add(lp, roll)
		}
	})
	return diff, err
}

func (g *GRPO) refLogprobs(ctx context.Context, episodes []*Episode) error {
	g.ref = map[item][]float64{}
	return g.score(ctx, "ref", g.Ref, episodes, func(it item, lp []float64) { g.ref[it] = lp })
}

// score runs the episodes through a model and hands on each sequence's
// log-probs of its sampled tokens.
func (g *GRPO) score(ctx context.Context, phase string, model Scorer, episodes []*Episode, take func(item, []float64)) error {
	done, total := 0, 0
	for _, e := range episodes {
		total += len(e.Sequences)
	}
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
				return fmt.Errorf("%s: the model gave too few log-probs", phase)
			}
			take(it, lp[:n:n])
			lp = lp[n:]
		}
		done += len(mb.items)
		g.progress(phase, done, total)
	}
	return nil
}

func (g *GRPO) progress(phase string, done, total int) {
	if g.OnProgress != nil {
		g.OnProgress(Progress{phase, done, total})
	}
}

// fileLogprobs are the recorded log-probs of a sequence's sampled tokens.
func fileLogprobs(e *Episode, seq int) (lp []float64, missing bool) {
	s := &e.Sequences[seq]
	for t, m := range s.LossMask {
		if m {
			if !s.Logprobs[t].Known() {
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
