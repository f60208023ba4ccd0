package rewards

import (
	"context"
	"fmt"

	"agentcli/traj"
)

// envReward is the sum of what the environment, or the scheduler, gave for the steps. They
// keep it: what is earned at a step is credited there.
type envReward struct{}

func (envReward) Name() string { return "env" }

func (envReward) Score(_ context.Context, t *traj.Trajectory) (Score, error) {
	if t.Termination.Infrastructure() {
		return Score{}, nil
	}
	total := 0.0
	for i := range t.Steps {
		if r := t.Steps[i].Reward; r != nil {
			total += *r
		}
	}
	if !traj.Finite(total) {
		return Score{}, fmt.Errorf("reward env: the rewards of the steps add up to %v", total)
	}
	correct := total >= 1
	return Score{Value: &total, Correct: &correct, Parts: []traj.Part{{Name: "env", Value: total}}}, nil
}
