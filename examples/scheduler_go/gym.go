package main

import (
	"context"
	"strings"

	"agentcli/scheduler"
)

// polite is an environment in gym's form: it wants to be thanked.
type polite struct{}

func init() { scheduler.RegisterGym("polite", func() scheduler.Gym { return polite{} }) }

// Reset implements scheduler.Gym.
func (polite) Reset(context.Context, scheduler.GymReset) (scheduler.GymStart, error) {
	return scheduler.GymStart{System: "Be polite."}, nil
}

// Step implements scheduler.Gym.
func (polite) Step(_ context.Context, reply string) (scheduler.GymStep, error) {
	if strings.Contains(strings.ToLower(reply), "thank") {
		return scheduler.GymStep{Reward: 1, Done: true}, nil
	}
	return scheduler.GymStep{Observation: "You have forgotten something.", Reward: -.1}, nil
}

// Close implements scheduler.Gym.
func (polite) Close() error { return nil }
