package trainer

import (
	"context"
	"errors"
	"fmt"

	"agentcli/policy"
	"agentcli/trainer/algo"
	"agentcli/trainer/episode"
	"agentcli/trainer/store"
	"agentcli/traj"
)

// PPO: proximal policy optimisation with a learned critic (Schulman et al. 2017,
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
type PPO struct {
	Session
	Critic Actor // nil: the policy has a value head (Config.SharedCritic)
}

// Run trains to the end.
func (p *PPO) Run(ctx context.Context) error {
	c := p.Config
	if err := p.begin(); err != nil {
		return err
	}
	if (p.Critic == nil) != c.SharedCritic {
		return errors.New("--algo ppo needs a critic: a model of its own, or --shared-critic")
	}
	critic := p.critic()
	p.drop = func() error { return errors.Join(p.Actor.Drop(), critic.Drop()) }
	if err := p.rescore(ctx); err != nil {
		return err
	}

	// rewards: r_t = step rewards, the rest of the score on the last token.
	if err := p.shapeAndDrop(); err != nil {
		return err
	}

	if all := flatten(p.groups); p.count(all).rl.Tokens == 0 && c.PTXCoef == 0 && c.Echo == 0 {
		return traj.Mark(fmt.Errorf("all %d trajectories were cut off at their length limit, and --overlong-filter leaves them out: there is nothing to learn (leave the flag out, or raise --max-tokens in rollout)", len(all)), ErrNothingToLearn)
	}

	// old and reference log-probs, and values, before anything changes.
	episodes := flatten(p.groups)
	if err := p.precompute(ctx, episodes, critic); err != nil {
		return err
	}

	// r_t ← r_t − β·kl(old, ref)
	if err := p.klReward(episodes); err != nil {
		return err
	}

	// advantages: δ_t = r_t + γV_{t+1} − V_t, A_t = Σ (γλ)^k δ_{t+k}, whitened.
	if err := p.advantages(); err != nil {
		return err
	}
	p.maxLength = p.maxActions(episodes)

	// epochs → minibatches → step
	err := p.epochs(ctx, p.groups, p)
	p.Unvalued += p.Frozen.Unvalued
	return err
}

func (p *PPO) critic() Actor {
	if p.Critic != nil {
		return p.Critic
	}
	return p.Actor
}

// moves: the critic learns from every episode that is not filtered, whatever its advantage.
func (p *PPO) moves(batch []*episode.Episode) bool {
	n := p.count(batch)
	return n.rl.Tokens > 0 || p.Config.PTXCoef > 0 || p.Config.Echo > 0 && n.ce > 0
}

// step: policy loss → actor's AdamW; value loss → critic's AdamW.
func (p *PPO) step(ctx context.Context, batch []*episode.Episode, at stepNumbers, m *metrics) (stop bool, err error) {
	c := p.Config
	start := p.Clock()
	n := p.count(batch)
	if err := p.loader.Each(batch, func(e *episode.Episode) error { m.episode(e); return nil }); err != nil {
		return false, err
	}
	warm := at.update > c.CriticWarmup // until then only the critic learns
	var work []*episode.Episode        // of the critic; of both models where they are one
	for _, e := range batch {
		if !e.Filtered || p.Critic == nil && c.Echo > 0 && e.Observations() > 0 {
			work = append(work, e)
		}
	}
	valued := n.rl.Tokens > 0 // the critic has something to learn from
	if p.Critic != nil {
		err = p.accumulate(ctx, p.Critic, "critic", work, at, m, func(mb store.MicroBatch, o policy.Outputs) (policy.Gradients, error) {
			return p.valueLoss(mb, n, o, 1, m)
		})
		if err != nil {
			return false, err
		}
	}
	criticDone := p.Clock()
	if warm || p.Critic == nil {
		if p.Critic != nil {
			work = c.work(batch)
		}
		err = p.updatePolicy(ctx, work, at, m, func(mb store.MicroBatch, o policy.Outputs) (g policy.Gradients, err error) {
			if warm {
				if g, err = p.policyLoss(mb, n, o, m); err != nil {
					return g, err
				}
			}
			if p.Critic == nil {
				v, err := p.valueLoss(mb, n, o, c.ValueCoef, m)
				if err != nil {
					return g, err
				}
				g.Values = v.Values
			}
			return g, nil
		})
		if err != nil {
			return false, err
		}
		if err := p.klExceeded(m); err != nil {
			return false, err
		}
		if warm {
			if err := p.addPTX(ctx, len(batch), at, m); err != nil {
				return false, err
			}
		}
	}
	inCritic, inActor := criticDone.Sub(start), p.Clock().Sub(criticDone)

	// Neither model moves before both gradients are known to be good: an interruption
	// or a bad row leaves the state before the step.
	if p.Critic != nil {
		if warm && (len(work) > 0 || c.PTXCoef > 0) {
			if err := p.Actor.Finite(); err != nil {
				return false, stepError(at, rowsOf(work), err)
			}
		}
		start = p.Clock()
		if valued {
			if err := p.stepCritic(at, m); err != nil {
				return false, err
			}
		}
		m.set("timing_s/update_critic", (inCritic + p.Clock().Sub(start)).Seconds())
	}
	start = p.Clock()
	if warm || p.Critic == nil {
		if p.Critic != nil { // the policy's count and schedule are of its own steps
			before := max(0, c.CriticWarmup-p.Updates) // steps of this run that were the critic's alone
			at.update, at.step, at.total = at.update-c.CriticWarmup, at.step-before, at.total-before
		}
		if err := p.stepActor(work, at, m); err != nil {
			return false, err
		}
	}
	p.partialStep = false
	if !valued && p.moves(batch) {
		p.Frozen.Unvalued++
	}
	m.set("timing_s/update_actor", (inActor + p.Clock().Sub(start)).Seconds())
	return false, nil
}

func (p *PPO) stepCritic(at stepNumbers, m *metrics) error {
	c := p.Config
	lr := c.Rate(c.CriticLR, at.step, at.total)
	norm, err := p.Critic.Step(c.optimiser(lr, at.update-p.Unvalued-p.Frozen.Unvalued))
	p.partialStep = err == nil || !errors.Is(err, policy.ErrNotFinite)
	if err != nil {
		return stepError(at, "critic", err)
	}
	m.set("critic/grad_norm", norm)
	m.set("critic/lr", lr)
	return nil
}

// valueLoss is the derivative of coef·Σ w·½·max((V−R)², (clip(V, V_old±ε)−R)²).
func (p *PPO) valueLoss(mb store.MicroBatch, n counts, o policy.Outputs, coef float64, m *metrics) (policy.Gradients, error) {
	c := p.Config
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
					dv[t] = coef * w * d
					m.value(w*l, part.Values[t], x.Returns[t], clipped)
				}
			}
		}
		g.Values = append(g.Values, dv...)
		return nil
	})
	return g, err
}
