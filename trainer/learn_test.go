//go:build libtorch

package trainer_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"agentcli/agent"
	"agentcli/datasets"
	"agentcli/engine"
	"agentcli/env"
	"agentcli/model/weights"
	"agentcli/policy"
	"agentcli/rewards"
	"agentcli/trainer"
	"agentcli/trainer/episode"
	"agentcli/trainer/rows"
	"agentcli/traj"
)

// The recipe of the learning test: one file of rollouts, one epoch.
const (
	trainProblems, trainAttempts = 128, 8
	testProblems, testAttempts   = 128, 2
	wantAccuracy, wantRise       = .75, .2 // chance: one standard error of 256 attempts is .03
)

// TestSmolLM2LearnsTheLastWord runs the whole chain on the real model: roll
// out, compare within groups, update, and answer problems never seen before.
func TestSmolLM2LearnsTheLastWord(t *testing.T) {
	if testing.Short() {
		t.Skip("about a minute")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	model := filepath.Join(cache, "agentcli", "models", "SmolLM2-135M-Instruct.Q4_1.gguf")
	if _, err := os.Stat(model); err != nil {
		t.Fatalf("%v; run make setup", err)
	}

	start := time.Now()
	p := openPolicy(t, model)
	before, _ := play(t, p, "test", testProblems, testAttempts, 1)
	_, rolled := play(t, p, "train", trainProblems, trainAttempts, 2)
	p.Close()
	t.Logf("before: %.3f; %d rollouts; %.0f s", before, len(rolled), time.Since(start).Seconds())

	held := map[string]bool{}
	data := &rows.Data{}
	for _, x := range rolled {
		held[x.Task.ID] = true
		e := &episode.Episode{ID: x.ID, Group: x.GroupID, Score: *x.Reward,
			Body: &episode.Body{Termination: x.Termination, Turns: x.Turns(), Sequences: x.Sequences}}
		for i := range x.Sequences {
			e.Sampled += x.Sequences[i].Sampled()
		}
		data.Episodes = append(data.Episodes, e)
	}

	start = time.Now()
	actor, err := policy.OpenTrainable(model, policy.Config{}) // in the faster type, as p
	if err != nil {
		t.Fatal(err)
	}
	c := trainer.DefaultConfig()
	c.LR, c.Minibatch, c.Beta1, c.Beta2, c.DropZeroStd = 3e-5, 128, .9, .999, true
	run := &trainer.Trainer{Models: trainer.Models{Actor: actor}, Config: c, Data: data,
		Hooks: trainer.Hooks{OnStep: func(m trainer.Metrics) error {
			v := m.Values
			t.Logf("step %d of %d: reward %.3f, KL %.3f, clipped %.2f, gradient norm %.1f", m.Step, m.Total,
				v["critic/score/mean"], v["actor/ppo_kl"], v["actor/pg_clipfrac"], v["actor/grad_norm"])
			return nil
		}}}
	if err := run.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	trained := t.TempDir()
	if err := actor.Save(trained, weights.BF16); err != nil {
		t.Fatal(err)
	}
	actor.Close()
	t.Logf("training: %.0f s", time.Since(start).Seconds())

	start = time.Now()
	p = openPolicy(t, trained)
	defer p.Close()
	after, answered := play(t, p, "test", testProblems, testAttempts, 1)
	t.Logf("after: %.3f; %.0f s", after, time.Since(start).Seconds())
	for _, x := range answered {
		if held[x.Task.ID] {
			t.Fatalf("problem %s was trained on", x.Task.ID)
		}
	}
	if after < wantAccuracy || after < before+wantRise {
		t.Errorf("accuracy on held-out problems went from %.3f to %.3f; want at least %.2f and a rise of %.2f",
			before, after, wantAccuracy, wantRise)
	}
}

func openPolicy(t *testing.T, path string) *policy.Policy {
	t.Helper()
	p, err := policy.Open(path, policy.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// play lets the policy try problems of lastword.
func play(t *testing.T, p *policy.Policy, split string, problems, attempts int, seed int64) (accuracy float64, out []*traj.Trajectory) {
	t.Helper()
	ctx := context.Background()
	d, err := datasets.Open(ctx, "lastword", datasets.Options{Split: split, Limit: problems, Seed: seed, Offline: true})
	if err != nil {
		t.Fatal(err)
	}
	exact, err := rewards.New(d.Reward, rewards.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(engine.Config{
		Model:    p,
		NewAgent: func(traj.Task) (agent.Agent, error) { return agent.New(nil), nil },
		NewEnv:   func(traj.Task) (env.Environment, error) { return env.New(env.Config{}) },
		Reward: func(ctx context.Context, x *traj.Trajectory) error {
			s, err := exact.Score(ctx, x)
			x.Reward, x.Correct, x.Extracted = s.Value, s.Correct, s.Extracted
			return err
		},
		Run: split, Samples: attempts, Parallel: policy.DefaultMaxBatch, Seed: seed,
		Sampling: traj.Sampling{MaxTokens: d.MaxTokens}, MaxTurns: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.Run(ctx, d.Tasks(ctx), func(x *traj.Trajectory) error {
		if x.Reward == nil {
			t.Errorf("%s has no reward: %s %s", x.ID, x.Termination, x.Error)
			return nil
		}
		out = append(out, x)
		accuracy += *x.Reward
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) != problems*attempts {
		t.Fatalf("%d of %d trajectories", len(out), problems*attempts)
	}
	return accuracy / float64(len(out)), out
}
