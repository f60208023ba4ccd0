package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentcli/app/train"
	"agentcli/app/train/traintest"
	"agentcli/internal/exit"
)

// interruptedOnce runs a loop into dir with an interruption behind its second step.
func interruptedOnce(t *testing.T, dir string, args []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	left := 2
	_, err := runApp(t, ctx, traintest.StopAfter{Left: &left, Stop: cancel}, append(args, "--output", dir)...)
	var i exit.InterruptedError
	if !errors.As(err, &i) {
		t.Fatal(err)
	}
	if _, err := runApp(t, t.Context(), &bytes.Buffer{}, "agentcli", "loop", "--resume", dir); err != nil {
		t.Fatal(err)
	}
}

// The tokens of an asynchronous step come from the policy of two updates before, which
// no checkpoint has: they must be there when it is written.
func TestAnInterruptedAsynchronousLoopSamplesWithTheSamePolicies(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	whole, parts := filepath.Join(dir, "whole"), filepath.Join(dir, "parts")
	args := loopArgs(t, "--async", "1", "--eval-every", "0")
	if _, err := runApp(t, t.Context(), &bytes.Buffer{}, append(args, "--output", whole)...); err != nil {
		t.Fatal(err)
	}
	interruptedOnce(t, parts, args)
	for step := range 4 {
		a, versions := sampled(t, whole, step+1)
		b, again := sampled(t, parts, step+1)
		if !slices.Equal(a, b) || fmt.Sprint(versions) != fmt.Sprint(again) {
			t.Errorf("step %d: by versions %v without an interruption, by %v with one; the same tokens: %v",
				step+1, versions, again, slices.Equal(a, b))
		}
	}
}

// rewardScript is a reward that sh makes of a response's checksum $n.
func rewardScript(t *testing.T, expression string) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "reward.sh")
	text := `#!/bin/sh
while read -r line; do
  id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9][0-9]*\).*/\1/')
  n=$(printf '%s' "$line" | sed 's/.*"response":"\(.*\)","task_id.*/\1/' | cksum | cut -d' ' -f1)
  echo "{\"id\":$id,\"reward\":` + expression + `}"
done
`
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return []string{"--reward", "exec:" + path}
}

// A reward that was down for a whole rollout must not leave a run that cannot be gone
// on with.
func TestAStepWithoutRewardsIsRolledOutAgainOnResume(t *testing.T) {
	t.Parallel()
	up, out := filepath.Join(t.TempDir(), "up"), filepath.Join(t.TempDir(), "run")
	args := loopArgs(t, append(rewardScript(t, `$([ -e `+up+` ] && echo $((n % 2)) || echo null)`),
		"--steps", "2", "--eval-every", "0", "--output", out)...)
	_, err := runApp(t, t.Context(), &bytes.Buffer{}, args...)
	for _, word := range []string{"step 1", " 12 ", "000001.unusable.parquet", "loop --resume " + out} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Fatalf("%q is not in %v", word, err)
		}
	}
	if err := os.WriteFile(up, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := runApp(t, t.Context(), &bytes.Buffer{}, "agentcli", "loop", "--resume", out); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(out, "model.safetensors")); err != nil {
		t.Error(err)
	}
}

// A row whose siblings have no reward has nothing to be compared with; rloo cannot
// even divide by their number.
func TestALoopLeavesOutRowsThatAreLeftAloneInTheirGroup(t *testing.T) {
	t.Parallel()
	for _, advantage := range []string{"rloo", "grpo"} {
		out := filepath.Join(t.TempDir(), "run")
		var log bytes.Buffer
		args := loopArgs(t, append(rewardScript(t, `$([ $((n % 3)) = 0 ] && echo $((n % 2)) || echo null)`),
			"--advantage", advantage, "--steps", "3", "--eval-every", "0",
			"--kl-target", "0", "--kl-in", "loss", "--output", out)...)
		if _, err := runApp(t, t.Context(), &log, args...); err != nil {
			t.Fatalf("%s: %v", advantage, err)
		}
		if !strings.Contains(log.String(), " alone ") {
			t.Errorf("%s: it is not said which rows take no part:\n%s", advantage, log.String())
		}
	}
}

func TestALoopOfNegativeRewardsKeepsItsBestModel(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "run")
	var log bytes.Buffer
	if _, err := runApp(t, t.Context(), &log, loopArgs(t, append(rewardScript(t, `$((n % 2 - 5))`), "--output", out)...)...); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(out, train.BestFolder, "model.safetensors")); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "(held): -") {
		t.Errorf("the best is not told:\n%s", log.String())
	}
}

// What a role is compared with goes on from step to step, and over an interruption.
func TestALoopKeepsWhatRaeComparesARoleWith(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	whole, parts := filepath.Join(dir, "whole"), filepath.Join(dir, "parts")
	args := loopArgs(t, append(rewardScript(t, `$((n % 2 + 10))`), "--advantage", "rae", "--kl-target",
		"0", "--kl-in", "loss", "--eval-every", "0")...)
	if _, err := runApp(t, t.Context(), &bytes.Buffer{}, append(args, "--output", whole)...); err != nil {
		t.Fatal(err)
	}
	adv := train.ReadCurves(whole)["critic/advantages/mean"]
	if adv == nil || len(adv.Y) != 4 || adv.Y[1] > .7*adv.Y[0] || adv.Y[3] > .7*adv.Y[2] {
		t.Fatalf("12 rows of 10 or 11 a step bring the average up by .46 of the rest: advantages %v", adv)
	}
	interruptedOnce(t, parts, args)
	if again := train.ReadCurves(parts)["critic/advantages/mean"]; !slices.Equal(again.Y, adv.Y) {
		t.Errorf("advantages %v, interrupted %v", adv.Y, again.Y)
	}
}
