package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentcli/app/console"
	"agentcli/app/loop"
	"agentcli/app/models"
	"agentcli/app/rundir"
	"agentcli/app/train"
	"agentcli/app/train/traintest"
	"agentcli/internal/exit"
	"agentcli/parquet"
	"agentcli/traj"
)

// fileLoop is loopArgs without tasks of their own for the evaluations.
func fileLoop(t *testing.T, extra ...string) []string {
	args := loopArgs(t)
	at := slices.Index(args, "--eval-dataset")
	return append(slices.Delete(args, at, at+2), extra...)
}

// Without held-out tasks the numbers are called what they are: there is no best model,
// no verdict, and no val/….
func TestALoopWithoutHeldOutTasksGivesNoVerdict(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "run")
	var log bytes.Buffer
	if _, err := runApp(t, t.Context(), &log, fileLoop(t, "--output", out)...); err != nil {
		t.Fatal(err)
	}
	curves := train.ReadCurves(out)
	if curves["training_rows/reward"] == nil || curves["val/reward"] != nil {
		t.Errorf("metrics: %v", curves)
	}
	if rundir.Exists(filepath.Join(out, train.BestFolder)) {
		t.Error("a best model was chosen by the training rows")
	}
	if said := log.String(); !strings.Contains(said, "--holdout .1") ||
		strings.Contains(said, "learned:") || strings.Contains(said, "it learned") || strings.Contains(said, "test split") {
		t.Error(said)
	}
}

// What is held out is measured, and never sampled for training.
func TestALoopNeverTrainsOnWhatItHoldsOut(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "run")
	var log bytes.Buffer
	if _, err := runApp(t, t.Context(), &log, fileLoop(t, "--holdout", "3", "--output", out)...); err != nil {
		t.Fatal(err)
	}
	tasks := map[string]bool{}
	for step := 1; step <= 4; step++ {
		r, err := parquet.Open(filepath.Join(out, loop.RolloutsFolder, "00000"+string(rune('0'+step))+".parquet"))
		if err != nil {
			t.Fatal(err)
		}
		for x, err := range r.Rows(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			tasks[x.Task.ID] = true
		}
		r.Close()
	}
	if len(tasks) != 4 {
		t.Errorf("4 of the 7 tasks are for training; sampled were %v", tasks)
	}
	if curves := train.ReadCurves(out); curves["val/reward"] == nil ||
		!rundir.Exists(filepath.Join(out, train.BestFolder, "model.safetensors")) {
		t.Error("the held-out tasks chose no model")
	}
	if !strings.Contains(log.String(), "(held-out rows of tasks)") {
		t.Error(log.String())
	}
	// Going on, other tasks than those cannot be held out.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	left, cut := 3, filepath.Join(t.TempDir(), "cut")
	var stopped exit.InterruptedError
	if _, err := runApp(t, ctx, traintest.StopAfter{Left: &left, Stop: cancel},
		fileLoop(t, "--holdout", "3", "--output", cut)...); !errors.As(err, &stopped) {
		t.Fatal(err)
	}
	var usage exit.UsageError
	if _, err := runApp(t, t.Context(), &log, "agentcli", "loop", "--resume", cut, "--holdout", "2"); !errors.As(err, &usage) {
		t.Errorf("tasks that were trained on are held out: %v", err)
	}
	if _, err := runApp(t, t.Context(), &log, "agentcli", "loop", "--resume", cut); err != nil {
		t.Error(err)
	}
}

// Rows that are held out choose the best model of a supervised run; without them its
// numbers are of training rows.
func TestASupervisedRunIsMeasuredOnHeldOutRows(t *testing.T) {
	t.Parallel()
	for algo, rows := range map[string]string{"sft": textRows, "dpo": pairRows, "rm": pairRows, "prm": stepRows} {
		eval := filepath.Join(t.TempDir(), "eval.jsonl")
		if err := os.WriteFile(eval, []byte(strings.ReplaceAll(rows, "What is", "How much is")), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, how := range [][]string{{"--holdout", "1"}, {"--eval-dataset", eval}, nil} {
			var log bytes.Buffer
			out, code := given(t, t.Context(), &log, rows, append([]string{"--algo", algo, "--eval-every", "1", "--epochs", "2"}, how...)...)
			if how == nil {
				if code != exitUsage || !strings.Contains(log.String(), "--eval-every ") {
					t.Errorf("%s: exit %d: %s", algo, code, log.String())
				}
				continue
			}
			if code != 0 {
				t.Fatalf("%s %v: exit %d: %s", algo, how, code, log.String())
			}
			loss := train.ReadCurves(out)["val/loss"]
			if loss == nil || len(loss.X) < 2 || loss.X[0] != 0 {
				t.Errorf("%s %v: val/loss is %v", algo, how, loss)
			}
			if !rundir.Exists(filepath.Join(out, train.BestFolder, "config.json")) || strings.Count(log.String(), "held-out rows: ") == 0 {
				t.Errorf("%s %v: %s", algo, how, log.String())
			}
			if on, err := models.ReadTrainedOn(out); err != nil || len(on) != 1 || on[0].Dataset != "rows" {
				t.Errorf("%s %v: trained on %v, %v", algo, how, on, err)
			}
		}
	}
}

// A model says what it was trained on, and so do those that are made of it; an evaluation
// on that data is reported.
func TestAnEvaluationOnWhatWasTrainedOnIsTold(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	first, code := given(t, t.Context(), &log, textRows, "--algo", "sft")
	if code != 0 {
		t.Fatal(log.String())
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "more.jsonl")
	if err := os.WriteFile(file, []byte(textRows), 0o600); err != nil {
		t.Fatal(err)
	}
	second := filepath.Join(dir, "second")
	if code := executeWith(t.Context(), []string{"agentcli", "train", file, "-m", first, "--algo", "sft", "--output",
		second, "--dtype", "float32", "--threads", "1"}, console.Streams{Out: &bytes.Buffer{}, Err: &log}, testBackend); code != 0 {
		t.Fatal(log.String())
	}
	if on, err := models.ReadTrainedOn(second); err != nil || !slices.Equal(on, []models.TrainedOn{{Dataset: "rows"}, {Dataset: "more"}}) {
		t.Errorf("trained on %v, %v", on, err)
	}
	// A loop's model, on its own training tasks and on others.
	args := loopArgs(t, "--steps", "1", "--eval-every", "0", "--output", filepath.Join(dir, "loop"))
	if _, err := runApp(t, t.Context(), &log, args...); err != nil {
		t.Fatal(err)
	}
	at := func(flag string) string { return args[slices.Index(args, flag)+1] }
	for data, told := range map[string]bool{at("-d"): true, at("--eval-dataset"): false} {
		var log bytes.Buffer
		code := executeWith(t.Context(), []string{"agentcli", "eval", "-m", filepath.Join(dir, "loop"),
			"-d", data, "--reward", "exact", "--max-tokens", "4", "--threads", "1", "--dtype", "float32",
			"--output", filepath.Join(t.TempDir(), "eval")}, console.Streams{Out: &bytes.Buffer{}, Err: &log}, testBackend)
		if code != 0 || strings.Contains(log.String(), "was trained on") != told {
			t.Errorf("%s: exit %d: %s", data, code, log.String())
		}
	}
}

// A supervised run that goes on asks nobody for a reward: the rows that it trains on and
// those that it measures have the rewards that were made when it began.
func TestAResumedRunScoresNoHeldOutRowAgain(t *testing.T) {
	dir := t.TempDir()
	eval := traintest.Rewarded(t, func(_ int, x *traj.Trajectory) {
		for i := range x.Sequences[0].TokenIDs {
			x.Sequences[0].TokenIDs[i] += 50 // prompts of their own
		}
	})
	asked, reward := filepath.Join(dir, "asked"), filepath.Join(dir, "reward.sh")
	if err := os.WriteFile(reward, []byte(`#!/bin/sh
while read -r line; do
  echo x >> '`+asked+`'
  id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9][0-9]*\).*/\1/')
  echo "{\"id\":$id,\"reward\":$id}" # all differ, in whatever order they are asked
done
`), 0o700); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	left := 1
	_, err := runApp(t, ctx, traintest.StopAfter{Left: &left, Stop: cancel}, "agentcli", "train",
		traintest.Rollouts(t, dir), "--model", traintest.Model, "--algo", "dpo", "--eval-dataset", eval,
		"--reward", "exec:"+reward, "--minibatch", "4", "--eval-every", "1", "--dtype", "float32", "--threads", "1", "--output", out)
	if exitCode(err) != exitInterrupted {
		t.Fatal(err)
	}
	if n := len(read(t, asked)) / 2; n != 32 {
		t.Errorf("%d rows were scored, want 32", n)
	}
	if err := os.Remove(asked); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	if _, err := runApp(t, t.Context(), &log, "agentcli", "train", "--resume", out); err != nil {
		t.Fatal(err, log.String())
	}
	if rundir.Exists(asked) {
		t.Errorf("%d rows were scored again", len(read(t, asked))/2)
	}
	if loss := train.ReadCurves(out)["val/loss"]; loss == nil || !slices.Equal(loss.X, []float64{0, 1, 2}) {
		t.Errorf("val/loss is %v", loss)
	}
}
