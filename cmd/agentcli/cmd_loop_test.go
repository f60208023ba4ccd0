package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentcli/app/console"
	"agentcli/app/loop"
	"agentcli/app/train"
	"agentcli/app/train/traintest"
	"agentcli/internal/exit"
	"agentcli/parquet"
)

// loopArgs is a loop of the tiny model, which babbles; the reward is the parity of
// what it says, so that groups have spread.
func loopArgs(t *testing.T, extra ...string) []string {
	t.Helper()
	dir := t.TempDir()
	data := filepath.Join(dir, "tasks.jsonl")
	var b strings.Builder
	for i := range 7 {
		fmt.Fprintf(&b, `{"id":"q%d","question":"%d?","answer":"x"}`+"\n", i, i*11)
	}
	if err := os.WriteFile(data, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	held := filepath.Join(dir, "held.jsonl")
	if err := os.WriteFile(held, []byte(strings.ReplaceAll(b.String(), "?", " then?")), 0o600); err != nil {
		t.Fatal(err)
	}
	reward := filepath.Join(dir, "reward.sh")
	if err := os.WriteFile(reward, []byte(`#!/bin/sh
while read -r line; do
  id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9][0-9]*\).*/\1/')
  n=$(printf '%s' "$line" | sed 's/.*"response":"\(.*\)","task_id.*/\1/' | cksum | cut -d' ' -f1)
  echo "{\"id\":$id,\"reward\":$((n % 2))}"
done
`), 0o700); err != nil {
		t.Fatal(err)
	}
	return append([]string{"agentcli", "loop", "--model", traintest.Model, "-d", data, "--eval-dataset",
		held, "--reward", "exec:" + reward, "--steps", "4", "--tasks", "3", "-n", "4", "--max-tokens", "6",
		"--lr", "1e-3", "--minibatch", "6", "--dtype", "float32", "--threads", "1", "--parallel", "4",
		"--eval-every", "2", "--eval-tasks", "3", "--eval-samples", "1",
		"--schedule", "linear", "--kl-coef", ".1", "--kl-in", "reward", "--kl-target", ".05", "--kl-horizon", "40"}, extra...)
}

// runApp runs a command in this process; stop, if any, is a stderr that ends it.
func runApp(t *testing.T, ctx context.Context, errs interface{ Write([]byte) (int, error) }, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	app := newApp(console.Streams{Out: &out, Err: errs}, testBackend)
	err := app.RunContext(ctx, interspersed(args, commands()))
	return out.String(), err
}

// sampled are the ids of a step's rollouts, by trajectory.
func sampled(t *testing.T, dir string, step int) (ids []string, versions map[int64]bool) {
	t.Helper()
	r, err := parquet.Open(filepath.Join(dir, loop.RolloutsFolder, fmt.Sprintf("%06d.parquet", step)))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	versions = map[int64]bool{}
	for x, err := range r.Rows(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		versions[x.PolicyVersion] = true
		ids = append(ids, fmt.Sprint(x.ID, x.Sequences[0].TokenIDs, *x.Reward))
	}
	slices.Sort(ids)
	return ids, versions
}

func TestAnInterruptedLoopEndsAsAnUninterruptedOne(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	whole, parts := filepath.Join(dir, "whole"), filepath.Join(dir, "parts")
	args := loopArgs(t, "--entropy-coef", ".04", "--entropy-schedule", "linear")
	var log bytes.Buffer
	out, err := runApp(t, t.Context(), &log, append(args, "--output", whole)...)
	if err != nil || out != whole+"\n" {
		t.Fatalf("%v, stdout %q: %s", err, out, log.String())
	}
	stops := 0
	for now := append(args, "--output", parts); ; now = []string{"agentcli", "loop", "--resume", parts} {
		ctx, cancel := context.WithCancel(t.Context())
		left := 1
		_, err := runApp(t, ctx, traintest.StopAfter{Left: &left, Stop: cancel}, now...)
		cancel()
		if err == nil {
			break
		}
		var i exit.InterruptedError
		if !errors.As(err, &i) || !strings.Contains(err.Error(), "loop --resume "+parts) {
			t.Fatal(err)
		}
		if stops++; stops > 5 {
			t.Fatal("it never ends")
		}
	}
	if stops < 3 {
		t.Fatalf("interrupted %d times", stops)
	}
	for step := 1; step <= 4; step++ {
		a, versions := sampled(t, whole, step)
		b, _ := sampled(t, parts, step)
		if !slices.Equal(a, b) {
			t.Errorf("step %d sampled other tokens after an interruption", step)
		}
		if len(a) != 12 || len(versions) != 1 || !versions[int64(step-1)] {
			t.Errorf("step %d: %d trajectories of the policy versions %v", step, len(a), versions)
		}
	}
	for _, name := range []string{"model.safetensors", "best/model.safetensors"} {
		if !bytes.Equal(read(t, filepath.Join(whole, name)), read(t, filepath.Join(parts, name))) {
			t.Errorf("%s differs", name)
		}
	}
	if t.Failed() {
		t.Logf("whole:\n%s\nparts:\n%s", read(t, filepath.Join(whole, "metrics.jsonl")), read(t, filepath.Join(parts, "metrics.jsonl")))
	}
	lines := strings.Split(strings.TrimSpace(string(read(t, filepath.Join(parts, "metrics.jsonl")))), "\n")
	if len(lines) != 5 || !strings.HasPrefix(lines[0], `{"step": 0, "val/reward": `) ||
		!strings.Contains(lines[0], `"val/stderr"`) || !strings.Contains(lines[4], `"val/reward"`) ||
		!strings.Contains(lines[1], `"actor/kl_coef": 0.1`) || strings.Contains(lines[4], `"actor/kl_coef": 0.1,`) {
		t.Errorf("metrics: %s", strings.Join(lines, "\n"))
	}
	if n := strings.Count(log.String(), "before the first step it was"); n != 1 {
		t.Errorf("the end tells %d times how the model was at first: %s", n, log.String())
	}
	a, b := train.ReadCurves(whole)["val/reward"], train.ReadCurves(parts)["val/reward"]
	if a == nil || b == nil || !slices.Equal(a.X, []float64{0, 2, 4}) || !slices.Equal(b.X, a.X) || !slices.Equal(b.Y, a.Y) {
		t.Errorf("evaluations of the whole run: %+v, of the interrupted one: %+v", a, b)
	}
	if c := train.ReadCurves(parts)["actor/entropy_coef"]; c == nil || !slices.Equal(c.Y, []float64{.04, .03, .02, .01}) {
		t.Errorf("the weight of the entropy bonus over the steps: %+v", c)
	}
	if left, _ := filepath.Glob(filepath.Join(parts, train.CheckpointPrefix+"*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// stopAt is a stderr that interrupts the run once it says something.
type stopAt struct {
	text string
	stop func()
}

func (w stopAt) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(w.text)) {
		w.stop()
	}
	return len(b), nil
}

// Interrupted before its first step, a loop still has the first evaluation once.
func TestTheFirstEvaluationIsRecordedOnce(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "run")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var interrupted exit.InterruptedError
	if _, err := runApp(t, ctx, stopAt{"before the first step: held ", cancel},
		loopArgs(t, "--steps", "2", "--output", out)...); !errors.As(err, &interrupted) {
		t.Fatal(err)
	}
	begun := train.ReadCurves(out)["val/reward"]
	if begun == nil || !slices.Equal(begun.X, []float64{0}) {
		t.Fatalf("before the first step: %+v", begun)
	}
	if _, err := runApp(t, t.Context(), &bytes.Buffer{}, "agentcli", "loop", "--resume", out); err != nil {
		t.Fatal(err)
	}
	if test := train.ReadCurves(out)["val/reward"]; !slices.Equal(test.X, []float64{0, 2}) || test.Y[0] != begun.Y[0] {
		t.Errorf("evaluated at %v: %v, at first %v", test.X, test.Y, begun.Y)
	}
}

func TestAnAsynchronousLoopSamplesWithThePolicyBefore(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "run")
	var log bytes.Buffer
	if _, err := runApp(t, t.Context(), &log,
		loopArgs(t, "--async", "1", "--algo", "ppo", "--advantage", "gae", "--critic-lr", "1e-3", "--output", out)...); err != nil {
		t.Fatalf("%v: %s", err, log.String())
	}
	for step, want := range []int64{0, 0, 1, 2} {
		if _, versions := sampled(t, out, step+1); len(versions) != 1 || !versions[want] {
			t.Errorf("step %d was sampled by the versions %v, want %d", step+1, versions, want)
		}
	}
	if !strings.Contains(string(read(t, filepath.Join(out, "metrics.jsonl"))), "rollout_corr/weight") {
		t.Error("the stale tokens' weights were not corrected")
	}
	for _, name := range []string{"critic/config.json", "config.json"} {
		if _, err := os.Stat(filepath.Join(out, name)); err != nil {
			t.Error(err)
		}
	}
}

func TestLoopRefusesWhatItCannotDo(t *testing.T) {
	t.Parallel()
	for want, extra := range map[string][]string{
		"--token-mode chat":   {"--base-url", "http://localhost:1/v1", "--token-mode", "chat"},
		"--token-mode has":    {"--token-mode", "auto"},
		"--weights-through h": {"--weights-through", "wire"},
		"--weights-through ":  {"--base-url", "http://localhost:1/v1", "--weights-through", "nccl"},
		"--kv-cache":          {"--base-url", "http://localhost:1/v1", "--kv-cache", "1GB"},
		"--kv-host":           {"--base-url", "http://localhost:1/v1", "--kv-host", "1GB"},
		"--tokenizer":         {"--base-url", "http://localhost:1/v1", "--tokenizer", "x"},
		"--steps":             {"--steps", "0"},
		"--async":             {"--async", "2"},
		"--kl-target":         {"--kl-in", "loss"},
		"--advantage":         {"--advantage", "remax", "--kl-target", "0"},
		"--eval-every":        {"--eval-every", "-1"},
		"--temperature 0: ":   {"--temperature", "0"},
		"--temperature 0.005": {"--temperature", ".005"},
		"--top-p, ":           {"--top-p", ".9"},
		"--lora-alpha":        {"--lora-alpha", "3"},
		"--samples 1: ":       {"-n", "1"},
		"--ref ":              {"--temperature", ".7", "--ref", "http://localhost:1/v1", "--kl-coef", ".1"},
	} {
		_, err := runApp(t, t.Context(), &bytes.Buffer{}, loopArgs(t, append(extra, "--output", filepath.Join(t.TempDir(), "x"))...)...)
		var usage exit.UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", extra, err)
		}
	}
}

// β follows the KL to the reference, before a step's first update, of as many
// trajectories as the step has.
func TestTheCoefficientOfTheKLFollowsByTheTrajectoriesOfAStep(t *testing.T) {
	t.Parallel()
	const beta, target, horizon, trajectories = .1, .05, 40., 12. // 3 tasks, 4 attempts
	out := filepath.Join(t.TempDir(), "run")
	var log bytes.Buffer
	if _, err := runApp(t, t.Context(), &log,
		loopArgs(t, "--steps", "3", "--eval-every", "0", "--lr", ".01", "--output", out)...); err != nil {
		t.Fatalf("%v: %s", err, log.String())
	}
	var steps []map[string]float64
	for line := range strings.Lines(string(read(t, filepath.Join(out, "metrics.jsonl")))) {
		m := map[string]any{}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		v := map[string]float64{}
		for k, x := range m {
			if f, ok := x.(float64); ok {
				v[k] = f
			}
		}
		steps = append(steps, v)
	}
	want := beta
	for i, v := range steps {
		got, told := v["actor/kl_coef"]
		kl, measured := v["actor/reward_kl_penalty"]
		if !told || !measured || math.Abs(got-want) > 1e-9 {
			t.Fatalf("step %d: β is %v, want %v; the KL is known: %v", i+1, got, want, measured)
		}
		want *= 1 + math.Max(-.2, math.Min(.2, kl/target-1))*trajectories/horizon
	}
	if len(steps) != 3 || math.Abs(steps[1]["actor/kl_coef"]-beta*(1-.2*trajectories/horizon)) > 1e-9 {
		t.Errorf("%d steps; β after the first, whose KL to the policy itself is 0, is %v", len(steps), steps[1]["actor/kl_coef"])
	}
}
