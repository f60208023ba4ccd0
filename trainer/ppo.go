package trainer

import (
	"context"
	"errors"

	"agentcli/internal/setting"
	"agentcli/policy"
	"agentcli/trainer/algo"
	"agentcli/trainer/episode"
	"agentcli/trainer/store"
	"agentcli/traj"
)

// PPO is proximal policy optimisation with a learned critic (Schulman et al. 2017,
// algorithm 1) on trajectories of several turns, from files, as RLHF does it
// (Ouyang et al. 2022): the reward of a trajectory, less β·KL to the reference a
// token where --kl-in reward asks, becomes advantages by GAE (Schulman et al.
// 2016, equation 16).
//
// Departures from the papers: everything runs on the sequence of sampled tokens;
// an observation is no action, so it has no value, and neither the discount nor λ
// runs across it. The critic is a backbone of its own, or a head on the policy's
// (SharedCritic); its head starts at 0. Returns are the advantages before
// whitening plus the old values. Old log-probs, values and returns are computed
// once for the whole file, as they are for one batch of rollouts.
type PPO struct{ policyGradient }

func (p *PPO) run(ctx context.Context) error {
	t, c := p.t, p.t.Config
	if (t.Critic == nil) != c.SharedCritic {
		return setting.Errorf("%s ppo needs a critic: a model of its own, or %s", setting.Name("Algo"), setting.Name("SharedCritic"))
	}
	if err := scoreByModel(ctx, t); err != nil { // with a reward model; else the file's scores stay
		return err
	}

	// rewards: r_t = step rewards, the rest of the score on the last token (reward_shaping.go).
	x, err := newEstimation(t)
	if err != nil {
		return err
	}
	if err := x.shapeAndDrop(); err != nil {
		return err
	}

	if all := flatten(t.groups); countTokens(all, 0).rl.Tokens == 0 && c.PTXCoef == 0 && c.Echo == 0 {
		return traj.Mark(
			setting.Errorf("all %d trajectories were cut off at their length limit, and %s leaves them out: "+
				"there is nothing to learn (leave the flag out, or raise %s where they are sampled)", len(all),
				setting.Name("OverlongFilter"), setting.Name("MaxTokens")), ErrNothingToLearn)
	}

	// log π_old, log π_ref and V_old, before anything changes (precompute.go).
	var critic Scorer = t.Critic
	if c.SharedCritic {
		critic = t.Actor
	}
	if err := p.precompute(ctx, critic); err != nil {
		return err
	}

	// r_t ← r_t − β·kl(old, ref)
	if err := subtractKL(t); err != nil {
		return err
	}

	// advantages: δ_t = r_t + γV_{t+1} − V_t, A_t = Σ (γλ)^k δ_{t+k}, whitened (advantage.go);
	// returns: R_t = A_t + V_t before whitening.
	if err := x.estimate(); err != nil {
		return err
	}

	// epochs → minibatches → step (trainer.go)
	err = t.epochs(ctx, t.groups, p)
	t.Unvalued += t.Frozen.Unvalued
	return err
}

// changesModel: the critic learns from every episode that is not filtered, whatever its advantage.
func (p *PPO) changesModel(batch []*episode.Episode) bool {
	c, n := p.t.Config, countTokens(batch, 0)
	return n.rl.Tokens > 0 || c.PTXCoef > 0 || c.Echo > 0 && n.ce > 0
}

// step: value loss and policy loss → gradients; then AdamW of the critic and of the actor.
func (p *PPO) step(ctx context.Context, batch []*episode.Episode, at stepNumbers, m *metrics) error {
	t, c := p.t, p.t.Config
	start := t.Clock()
	n, err := p.beginStep(batch, at, m)
	if err != nil {
		return err
	}
	warm := at.update > c.CriticWarmup // until then only the critic learns
	var work []*episode.Episode        // of the critic; of both models where they are one
	for _, e := range batch {
		if !e.Filtered || t.Critic == nil && c.Echo > 0 && e.Observations() > 0 {
			work = append(work, e)
		}
	}
	valued := n.rl.Tokens > 0 // the critic has something to learn from
	if t.Critic != nil {
		err := t.accumulate(ctx, t.Critic, "critic", work, at, m, func(mb store.MicroBatch, o policy.Outputs) (policy.Gradients, error) {
			return p.valueLoss(mb, n, o, 1, m)
		})
		if err != nil {
			return err
		}
	}
	criticDone := t.Clock()
	if warm || t.Critic == nil {
		if t.Critic != nil {
			work = p.episodesToCompute(batch)
		}
		err := p.accumulatePolicy(ctx, work, at, m, func(mb store.MicroBatch, o policy.Outputs) (policy.Gradients, error) {
			return p.actorLoss(mb, n, o, warm, m)
		})
		if err != nil {
			return err
		}
		if warm {
			if err := addPTX(ctx, t, len(batch), at, m); err != nil {
				return err
			}
		}
	}
	inCritic, inActor := criticDone.Sub(start), t.Clock().Sub(criticDone)

	// Neither model moves before both gradients are known to be good: an interruption
	// or a bad row leaves the state before the step.
	if t.Critic != nil {
		if warm && (len(work) > 0 || c.PTXCoef > 0) {
			if err := t.Actor.Finite(); err != nil {
				return stepError(at, rowsOf(work), err)
			}
		}
		start = t.Clock()
		if valued {
			if err := p.stepCritic(at, m); err != nil {
				return err
			}
		}
		m.set("timing_s/update_critic", (inCritic + t.Clock().Sub(start)).Seconds())
	}
	start = t.Clock()
	if warm || t.Critic == nil {
		if t.Critic != nil { // the policy's count and schedule are of its own steps
			before := max(0, c.CriticWarmup-t.Updates) // steps of this run that were the critic's alone
			at.update, at.step, at.total = at.update-c.CriticWarmup, at.step-before, at.total-before
		}
		if err := t.stepActor(work, at, m); err != nil {
			return err
		}
	}
	t.partialStep = false
	if !valued && p.changesModel(batch) {
		t.Frozen.Unvalued++
	}
	m.set("timing_s/update_actor", (inActor + t.Clock().Sub(start)).Seconds())
	return nil
}

// actorLoss is the gradient of the actor: of the policy loss once the critic is warm, and of
// the value loss where the critic is its value head.
func (p *PPO) actorLoss(mb store.MicroBatch, n counts, o policy.Outputs, warm bool, m *metrics) (g policy.Gradients, err error) {
	if warm {
		if g, err = p.policyLoss(mb, n, o, m); err != nil { // grpo.go: max(−A·ρ, −A·clip(ρ, 1−ε_l, 1+ε_h))
			return g, err
		}
	}
	if p.t.Critic == nil {
		v, err := p.valueLoss(mb, n, o, p.t.Config.ValueCoef, m)
		if err != nil {
			return g, err
		}
		g.Values = v.Values
	}
	return g, nil
}

func (p *PPO) stepCritic(at stepNumbers, m *metrics) error {
	t, c := p.t, p.t.Config
	lr := c.Rate(c.CriticLR, at.step, at.total)
	norm, err := t.Critic.Step(adamW(c, lr, at.update-t.Unvalued-t.Frozen.Unvalued))
	t.partialStep = err == nil || !errors.Is(err, policy.ErrNotFinite)
	if err != nil {
		return stepError(at, "critic", err)
	}
	m.set("critic/grad_norm", norm)
	m.set("critic/lr", lr)
	return nil
}

// valueLoss is the derivative of coef·Σ w·a·½·max((V−R)², (clip(V, V_old±ε)−R)²), w the
// aggregation's weight and a the action's own.
func (p *PPO) valueLoss(mb store.MicroBatch, n counts, o policy.Outputs, coef float64, m *metrics) (policy.Gradients, error) {
	c := p.t.Config
	var g policy.Gradients
	if o.Values == nil {
		return g, errors.New("the critic has no value head")
	}
	err := mb.Each(o, func(it store.Item, part policy.Outputs) error {
		x, dv := it.Stream(), make([]float64, len(it.Stream().ActionWeight))
		if !it.Episode.Filtered {
			w, err := c.Aggregation.Weight(it.Episode.Actions(), n.rl)
			if err != nil {
				return err
			}
			for t, rl := range x.ActionWeight {
				if rl > 0 {
					l, d, clipped := algo.Value(part.Values[t], x.Values[t], x.Returns[t], c.ValueClip)
					wt := w * rl
					dv[t] = coef * wt * d
					m.value(wt*l, part.Values[t], x.Returns[t], clipped)
				}
			}
		}
		g.Values = append(g.Values, dv...)
		return nil
	})
	return g, err
}
