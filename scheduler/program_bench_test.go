package scheduler

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"agentcli/agent"
	"agentcli/engine"
	"agentcli/env"
	"agentcli/traj"
)

// BenchmarkProgramTurn reports what a turn costs with a scheduler in Python, with 64
// trajectories at once whose model takes 20 to 60 ms: the median and the 99th percentile
// of what the program takes, from asking to its answer.
func BenchmarkProgramTurn(b *testing.B) {
	s, err := Open(b.Context(), python(b, "scheduler_python/tip.py"), Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	const turns = 3
	n := max(b.N/turns, 64)
	var took []float64
	e, err := engine.New(engine.Config{Parallel: 64, MaxTurns: turns + 1, NewScheduler: s.New,
		NewAgent: func(traj.Task) (agent.Agent, error) { return agent.New(nil), nil },
		NewEnv:   func(traj.Task) (env.Environment, error) { return env.New(env.Config{}) },
		Model:    waiting{}})
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	if _, err := e.Run(b.Context(), func(yield func(traj.Task, error) bool) {
		for i := range n {
			if !yield(traj.Task{ID: fmt.Sprint(i), Messages: []traj.Message{{Role: traj.RoleUser, Content: "q"}}}, nil) {
				return
			}
		}
	}, func(t *traj.Trajectory) error {
		for _, step := range t.Steps {
			took = append(took, step.EnvMS)
		}
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2], "p50-ms/turn")
	b.ReportMetric(took[len(took)*99/100], "p99-ms/turn")
}

// waiting is a model that takes its time.
type waiting struct{}

func (waiting) Generate(context.Context, *traj.Request) (*traj.Response, error) {
	time.Sleep(time.Duration(20+rand.IntN(40)) * time.Millisecond)
	ids := make([]int32, 200)
	return &traj.Response{Message: traj.Message{Content: "It is 4, as I have said before."}, PromptIDs: []int32{1}, SampledIDs: ids,
		OutputTokens: 200, FinishReason: traj.FinishStop}, nil
}

// BenchmarkOneSlowTrajectory reports by how much one trajectory in 64 that is twenty times
// slower moves the moment at which 90 % of the others have ended.
func BenchmarkOneSlowTrajectory(b *testing.B) {
	mark := func(slow time.Duration) float64 {
		start := time.Now()
		var ends []float64
		e, err := engine.New(engine.Config{Parallel: 64, MaxTurns: 5, Model: paced(slow),
			NewScheduler: func(traj.Task) (engine.Scheduler, error) { return more{}, nil },
			NewAgent:     func(traj.Task) (agent.Agent, error) { return agent.New(nil), nil },
			NewEnv:       func(traj.Task) (env.Environment, error) { return env.New(env.Config{}) }})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := e.Run(b.Context(), func(yield func(traj.Task, error) bool) {
			for i := range 64 {
				if !yield(traj.Task{ID: fmt.Sprint(i), Messages: []traj.Message{{Role: traj.RoleUser, Content: "q"}}}, nil) {
					return
				}
			}
		}, func(t *traj.Trajectory) error {
			if t.Task.ID != "0" {
				ends = append(ends, time.Since(start).Seconds())
			}
			return nil
		}); err != nil {
			b.Fatal(err)
		}
		slices.Sort(ends)
		return ends[len(ends)*9/10]
	}
	var with, without float64
	for range b.N {
		without += mark(20 * time.Millisecond)
		with += mark(400 * time.Millisecond)
	}
	b.ReportMetric(100*(with/without-1), "%-later")
}

// paced is a model that takes 20 ms, and longer for the first task.
type paced time.Duration

func (p paced) Generate(ctx context.Context, _ *traj.Request) (*traj.Response, error) {
	d := 20 * time.Millisecond
	if traj.IDOf(ctx) == "0#0" {
		d = time.Duration(p)
	}
	time.Sleep(d)
	return &traj.Response{Message: traj.Message{Content: "x"}, FinishReason: traj.FinishStop}, nil
}

// more asks for more.
type more struct{}

func (more) Next(context.Context, engine.Turn) (engine.Next, error) {
	return engine.Next{Messages: []traj.Message{{Role: traj.RoleUser, Content: "more"}}}, nil
}
