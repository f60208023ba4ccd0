package trainer

import (
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
