package trainer

import (
	"context"
	"errors"
	"slices"
	"testing"

	"agentcli/internal/setting/settingtest"
	"agentcli/policy"
	"agentcli/trainer/episode"
	"agentcli/trainer/rows"
	"agentcli/traj"
)

// routed is a bigram that keeps which batches had experts, and of each says that one of four was not
// chosen.
type routed struct {
	*bigram
	batches []policy.Batch
}

func (r *routed) Forward(b policy.Batch) (policy.Outputs, error) {
	r.batches = append(r.batches, b)
	o, err := r.bigram.Forward(b)
	o.Routing = policy.Routing{Known: 4, Missed: 1}
	return o, err
}

func (r *routed) Accumulate(b policy.Batch, loss func(policy.Outputs) policy.Gradients) error {
	r.batches = append(r.batches, b)
	return r.bigram.Accumulate(b, func(o policy.Outputs) policy.Gradients {
		o.Routing = policy.Routing{Known: 4, Missed: 1}
		return loss(o)
	})
}

// recordExperts gives the episodes' tokens experts.
func recordExperts(episodes []*episode.Episode) []*episode.Episode {
	for _, e := range episodes {
		for i := range e.Sequences {
			s := &e.Sequences[i]
			s.Experts = &traj.Experts{Layers: 1, Active: 1, IDs: make(traj.ExpertIDs, len(s.TokenIDs)-1)}
		}
	}
	return episodes
}

// The experts that were recorded are given to the policy, in each of its passes, and to no other model.
func TestRecordedExpertsAreThoseOfThePolicyAlone(t *testing.T) {
	for _, replay := range []bool{false, true} {
		c := ppoConfig()
		c.RouterReplay, c.KLCoef, c.Epochs = replay, .1, 2
		actor, critic, ref := &routed{bigram: newBigram(vocab, 1)}, &routed{bigram: newCritic(2)}, &routed{bigram: newBigram(vocab, 3)}
		var steps []Metrics
		p := &Trainer{Models: Models{Actor: actor, Critic: critic, Ref: ref}, Config: c, Data: &rows.Data{Episodes: recordExperts(corpus())},
			Clock: still, Hooks: Hooks{OnStep: func(m Metrics) error { steps = append(steps, m); return nil }}}
		if err := p.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		if len(actor.batches) < 3 || len(critic.batches) < 3 || len(ref.batches) == 0 {
			t.Fatalf("%d, %d and %d batches", len(actor.batches), len(critic.batches), len(ref.batches))
		}
		for _, b := range actor.batches {
			if len(b.Experts) != len(b.Sequences) || slices.Contains(b.Experts, nil) || b.Replay != replay {
				t.Errorf("replay %v: a batch of the policy has experts of %d of %d sequences, replayed: %v", replay, len(b.Experts), len(b.Sequences),
					b.Replay)
			}
		}
		for _, b := range slices.Concat(critic.batches, ref.batches) {
			if b.Experts != nil {
				t.Error("the critic or the reference is given the policy's experts")
			}
		}
		for _, m := range steps {
			if m.Values["actor/router_mismatch"] != .25 || m.Over["actor/router_mismatch"] == 0 {
				t.Errorf("actor/router_mismatch is %v over %v", m.Values["actor/router_mismatch"], m.Over["actor/router_mismatch"])
			}
		}
	}
}

// A row whose experts are not known is not replayed without a word.
func TestARowWithoutExpertsIsNotReplayed(t *testing.T) {
	episodes := recordExperts(corpus())
	s := &episodes[2].Sequences[0]
	s.Experts = s.Experts.Head(s.Experts.Tokens() - 1)
	c := config()
	c.RouterReplay = true
	g := &Trainer{Models: Models{Actor: newBigram(vocab, 1)}, Config: c, Data: &rows.Data{Episodes: episodes}, Clock: still}
	if err := g.Run(context.Background()); !errors.Is(err, ErrUnfit) || !settingtest.Names(err, "RouterReplay") {
		t.Errorf("%v", err)
	}
	c.RouterReplay = false
	if m := train(t, newBigram(vocab, 1), c, episodes); m[0].Values["actor/router_mismatch"] != 0 {
		t.Error("experts of a model without any are counted")
	}
}
