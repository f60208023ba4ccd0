package trainer

import (
	"errors"
	"strings"
	"testing"

	"agentcli/traj"
)

// A minibatch whose rows are all filtered gives neither model a gradient: there is no
// step, Adam does not count one, and its metrics are absent.
func TestAMinibatchOfFilteredRowsMovesNeitherModel(t *testing.T) {
	for name, shared := range map[string]bool{"own critic": false, "shared critic": true} {
		c := ppoConfig()
		c.OverlongFilter, c.Minibatch, c.Epochs, c.SharedCritic = true, 1, 1, shared
		episodes := corpus()
		cut := 0
		for _, e := range episodes {
			if e.Group == "two" {
				e.Termination = traj.TurnLength
				cut++
			}
		}
		actor, critic := newBigram(vocab, 1), newCritic(4)
		if shared {
			actor.values, actor.valueGrad, critic = critic.values, critic.valueGrad, nil
		}
		steps := trainPPO(t, actor, critic, c, episodes)
		if len(steps) != 4 || cut == 0 {
			t.Fatalf("%s: %d steps, %d rows cut off", name, len(steps), cut)
		}
		idle := 0
		for _, m := range steps {
			_, moved := m.Values["actor/grad_norm"]
			_, valued := m.Values["critic/grad_norm"]
			if !moved {
				idle++
			}
			if _, loss := m.Values["critic/vf_loss"]; !moved && (valued || loss) {
				t.Errorf("%s: the filtered step has metrics of a critic: %v", name, m.Values)
			}
		}
		if idle != 1 {
			t.Errorf("%s: %d steps moved nothing, want 1", name, idle)
		}
		for i, s := range actor.taken {
			if s.Number != i+1 {
				t.Errorf("%s: step %d of the policy is Adam's number %d", name, i, s.Number)
			}
		}
		if critic != nil && len(critic.taken) != 3 {
			t.Errorf("%s: the critic took %d steps, want 3", name, len(critic.taken))
		}
	}
}

// A run whose rows all leave the loss says so, and trains nothing.
func TestARunOfFilteredRowsAloneHasNothingToLearn(t *testing.T) {
	for _, shared := range []bool{false, true} {
		c := ppoConfig()
		c.OverlongFilter, c.SharedCritic = true, shared
		episodes := corpus()
		for _, e := range episodes {
			e.Termination = traj.MaxTokens
		}
		actor, critic := newBigram(vocab, 1), newCritic(4)
		p := &PPO{Session: Session{Actor: actor, Config: c, Data: &Data{Episodes: episodes}, Clock: still}}
		if shared {
			actor.values, actor.valueGrad = critic.values, critic.valueGrad
		} else {
			p.Critic = critic
		}
		if err := p.Run(t.Context()); !errors.Is(err, ErrNothingToLearn) {
			t.Errorf("shared %v: %v", shared, err)
		}
	}
}

// Where the filter is what leaves nothing to learn, the rewards are not blamed.
func TestNothingToLearnSaysWhatLeftItOut(t *testing.T) {
	run := func(change func(e *Episode)) string {
		c := config()
		c.OverlongFilter = true
		episodes := []*Episode{attempt("g", 1, "abCD"), attempt("g", 0, "abEE"), attempt("flat", 1, "abC"), attempt("flat", 1, "abD")}
		for _, e := range episodes {
			change(e)
		}
		err := (&GRPO{Session{Actor: newBigram(vocab, 1), Config: c, Data: &Data{Episodes: episodes}, Clock: still}}).Run(t.Context())
		if !errors.Is(err, ErrNothingToLearn) {
			t.Errorf("%v", err)
		}
		return err.Error()
	}
	if said := run(func(e *Episode) { e.Termination = traj.TurnLength }); !strings.Contains(said, "1 of the 2 groups") || !strings.Contains(said, "--overlong-filter") {
		t.Error(said)
	}
	if said := run(func(e *Episode) { e.Score = 1 }); strings.Contains(said, "--overlong-filter") {
		t.Error(said)
	}
}
