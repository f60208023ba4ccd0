package engine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"agentcli/agent"
	"agentcli/env"
	"agentcli/internal/filesys"
	"agentcli/journal"
	"agentcli/traj"
)

// driver is a scheduler that plays by itself.
type driver struct{ run func(d *Drive) error }

func (driver) Next(context.Context, Turn) (Next, error) { panic("not asked") }

func (r driver) Run(_ context.Context, d *Drive) error { return r.run(d) }

// drive plays two tasks, and gives the rows by id.
func drive(t *testing.T, run func(d *Drive) error, change func(*Config)) (rows map[string]*traj.Trajectory, order []string) {
	t.Helper()
	c := Config{MaxTurns: 3, Parallel: 1, NewScheduler: func(traj.Task) (Scheduler, error) { return driver{run}, nil },
		NewAgent: func(traj.Task) (agent.Agent, error) { return agent.New(nil), nil },
		NewEnv:   func(traj.Task) (env.Environment, error) { return env.New(env.Config{}) },
		Model: modelFunc(func(_ context.Context, r *traj.Request) (*traj.Response, error) {
			prompt := []int32{int32(len(r.Messages))}
			if len(r.PrefixIDs) > 0 {
				prompt = append(slices.Clone(r.PrefixIDs), 7)
			}
			return &traj.Response{Message: traj.Message{Content: "to " + r.Messages[len(r.Messages)-1].Content}, PromptIDs: prompt,
				SampledIDs: []int32{int32(r.Seed & 0xffff), 30}, FinishReason: traj.FinishStop, PromptTokens: len(prompt), OutputTokens: 2}, nil
		}),
		Reward: func(_ context.Context, x *traj.Trajectory) error {
			value := float64(len(x.Steps))
			x.Reward = &value
			return nil
		}}
	if change != nil {
		change(&c)
	}
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	rows = map[string]*traj.Trajectory{}
	if _, err := e.Run(t.Context(), func(yield func(traj.Task, error) bool) {
		_ = yield(traj.Task{ID: "a", Messages: user("q")}, nil) && yield(traj.Task{ID: "b", Messages: user("q")}, nil)
	}, func(x *traj.Trajectory) error {
		rows[x.ID], order = x, append(order, x.ID)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return rows, order
}

// tree plays the opening once, and then two trajectories that begin with what came of it.
func tree(d *Drive) error {
	root, err := d.Begin(nil)
	if err != nil {
		return err
	}
	turn, err := root.Reply(Next{})
	if err != nil {
		return err
	}
	for i := range 2 {
		b, err := d.Begin([]traj.Message{{Role: traj.RoleUser, Content: fmt.Sprintf("%s, draft %d", turn.Text, i)}})
		if err != nil {
			return err
		}
		if _, err := b.Reply(Next{}); err != nil {
			return err
		}
		reward := float64(i)
		if err := b.Note(Next{Reward: &reward, Weights: []float64{.5}, Info: traj.Info(`{"draft":true}`)}); err != nil {
			return err
		}
		if err := b.Say(user("more")...); err != nil {
			return err
		}
		if _, err := b.Reply(Next{}); err != nil {
			return err
		}
	}
	return nil
}

// TestARunnerGivesSeveralTrajectories: rows of one group, each scored, with its own ids,
// also from the journal, and in order.
func TestARunnerGivesSeveralTrajectories(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "journal")
		j, err := journal.Create(filesys.OS, path, journal.Header{Config: "c"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		with := func(c *Config) { c.Journal, c.Ordered = j, ordered }
		rows, order := drive(t, tree, with)
		want := []string{"a#0", "a#0.1", "a#0.2", "b#0", "b#0.1", "b#0.2"}
		if !slices.Equal(order, want) {
			t.Fatalf("rows %q", order)
		}
		for _, id := range want {
			x := rows[id]
			steps := 2
			if id == "a#0" || id == "b#0" {
				steps = 1
			}
			if x.GroupID != id[:1] || x.Termination != traj.Answered || len(x.Steps) != steps || *x.Reward != float64(steps) ||
				x.Sequences[0].Sampled() != 2*steps || (steps == 2) != x.Weighed() {
				t.Errorf("%s: %+v", id, x)
			}
		}
		if a, b := rows["a#0.1"], rows["a#0.2"]; a.Seed == b.Seed || *a.Steps[0].Reward != 0 || *b.Steps[0].Reward != 1 ||
			a.Sequences[0].Weights[a.Steps[0].Start] != .5 || string(a.Infos[0]) != `{"draft":true}` {
			t.Errorf("%+v\n%+v", a, b)
		}
		_ = j.Close()
		if j, err = journal.Open(filesys.OS, path, journal.Header{Config: "c"}, nil); err != nil {
			t.Fatal(err)
		}
		if _, order := drive(t, func(*Drive) error { panic("played again") }, with); !slices.Equal(order, want) {
			t.Errorf("from the journal: %q", order)
		}
		_ = j.Close()
	}
}

// TestARunnerIsHeldToTheLimits, and what it does wrong costs its attempt.
func TestARunnerIsHeldToTheLimits(t *testing.T) {
	var ends []error
	rows, _ := drive(t, func(d *Drive) error {
		b, err := d.Begin(nil)
		for err == nil {
			if _, err = b.Reply(Next{}); err == nil {
				err = b.Say(user("more")...)
			}
		}
		ends = append(ends, err)
		return nil
	}, nil)
	if x := rows["a#0"]; x.Termination != traj.MaxTurns || len(x.Steps) != 3 || !errors.Is(ends[0], ErrEnded) {
		t.Errorf("%s after %d turns: %v", x.Termination, len(x.Steps), ends)
	}
	boom := errors.New("boom")
	for name, run := range map[string]func(d *Drive) error{
		"an error":    func(d *Drive) error { _, _ = d.Begin(nil); return boom },
		"a panic":     func(*Drive) error { panic("boom") },
		"nothing":     func(*Drive) error { return nil },
		"no messages": func(d *Drive) error { _, err := d.Begin([]traj.Message{}); return err },
		"too many": func(d *Drive) (err error) {
			for err == nil {
				_, err = d.Begin(nil)
			}
			return err
		},
		"a note of no step": func(d *Drive) error { b, _ := d.Begin(nil); return b.Note(Next{}) },
		"a bad note": func(d *Drive) error {
			b, _ := d.Begin(nil)
			_, _ = b.Reply(Next{})
			return b.Note(Next{Weights: []float64{-1}})
		},
	} {
		rows, _ := drive(t, run, nil)
		if x := rows["a#0"]; len(rows) != 2 || x.Termination != traj.EnvFailed || x.Reward != nil {
			t.Errorf("%s: %d rows, %s %q", name, len(rows), x.Termination, x.Error)
		}
	}
}
