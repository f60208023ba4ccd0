// Command scheduler_go plays questions with a scheduler in Go. -by sure: a reply that says
// that it is sure is believed, another one is asked to think again at another temperature.
// -by drafts: the scheduler drives the model itself (drafts.go). -by polite: an environment
// in gym's form answers (gym.go).
//
//	go run ./examples/scheduler_go -base-url http://localhost:8000/v1 -model NAME < questions.txt
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"

	"agentcli/agent"
	"agentcli/engine"
	"agentcli/env"
	"agentcli/llm"
	"agentcli/scheduler"
	"agentcli/traj"
)

// sure is the scheduler of one trajectory.
type sure struct{ asked int }

// Next implements engine.Scheduler.
func (s *sure) Next(ctx context.Context, t engine.Turn) (engine.Next, error) {
	switch {
	case !t.Action.Final: // calls of tools: the environment has answered them
		return engine.ToolLoop{}.Next(ctx, t)
	case strings.Contains(t.Text, "sure") || s.asked == 2:
		return engine.Next{Stop: traj.Answered, Info: traj.Info(fmt.Sprintf(`{"asked": %d}`, s.asked))}, nil
	}
	s.asked++
	cooler := t.Sampling
	half := 0.5
	cooler.Temperature = &half
	return engine.Next{Messages: []traj.Message{{Role: traj.RoleUser, Content: "Are you sure? Think again, and say so when you are."}},
		Sampling: &cooler}, nil
}

// schedulers makes one for each trajectory.
func schedulers(ctx context.Context, by string) (func(traj.Task) (engine.Scheduler, error), error) {
	switch by {
	case "sure":
		return func(traj.Task) (engine.Scheduler, error) { return &sure{}, nil }, nil
	case "drafts":
		return func(traj.Task) (engine.Scheduler, error) { return drafts{n: 3}, nil }, nil
	}
	set, err := scheduler.Open(ctx, scheduler.GymName, scheduler.Options{Gym: by})
	return set.New, err
}

// play gives each question's conversation to sink.
func play(ctx context.Context, m agent.Model, by string, questions []string, sink func(*traj.Trajectory) error) error {
	mk, err := schedulers(ctx, by)
	if err != nil {
		return err
	}
	e, err := engine.New(engine.Config{Model: m,
		NewAgent:     func(traj.Task) (agent.Agent, error) { return agent.New(nil), nil },
		NewEnv:       func(traj.Task) (env.Environment, error) { return env.New(env.Config{}) },
		NewScheduler: mk})
	if err != nil {
		return err
	}
	_, err = e.Run(ctx, func(yield func(traj.Task, error) bool) {
		for i, q := range questions {
			if !yield(traj.Task{ID: fmt.Sprint(i), Messages: []traj.Message{{Role: traj.RoleUser, Content: q}}}, nil) {
				return
			}
		}
	}, sink)
	return err
}

func main() {
	url, name := flag.String("base-url", "http://localhost:8000/v1", "address of the server"), flag.String("model", "", "its model")
	by := flag.String("by", "sure", "scheduler: sure, drafts or polite")
	flag.Parse()
	var questions []string
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		questions = append(questions, in.Text())
	}
	m, err := llm.New(llm.Config{BaseURL: *url, Model: *name})
	if err == nil {
		out := json.NewEncoder(os.Stdout)
		err = play(context.Background(), m, *by, questions, func(t *traj.Trajectory) error { return out.Encode(t.Messages) })
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
