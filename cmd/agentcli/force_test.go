package main

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"agentcli/app/train/traintest"
	"agentcli/internal/exit"
	"agentcli/traj"
)

func TestForceOfALoopSaysWhatItOverrides(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	if _, err := runApp(t, t.Context(), &log, loopArgs(t, "--steps", "1", "--eval-every", "9", "--top-p",
		".9", "--ref", traintest.OtherTokenizer(t), "--force", "--output", filepath.Join(t.TempDir(), "x"))...); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"--top-p, --top-k, --min-p or --grammar cut", "has another tokenizer than"} {
		if strings.Count(log.String(), want) != 1 || strings.Count(log.String(), "(--force)") != 2 {
			t.Errorf("%q is not said once: %s", want, log.String())
		}
	}
}

// Nor do rows without log-probs allow what asks for them.
func TestRowsWithoutLogprobsAreWrongUsageOfWhatNeedsThem(t *testing.T) {
	bare := traintest.Rewarded(t, func(_ int, x *traj.Trajectory) {
		for i := range x.Sequences[0].Logprobs {
			x.Sequences[0].Logprobs[i] = traj.NoLogprob()
		}
	})
	for _, args := range [][]string{{"--old-logprobs", "file"}, {"--off-policy", "tis"}, {"--loss", "dppo"}} {
		_, said, code := run(
			t, append([]string{"train", bare, "--model", traintest.Model, "--output", filepath.Join(t.TempDir(), "out")}, args...)...)
		if code != exitUsage || !strings.Contains(said, "g0#0") || !strings.Contains(said, args[0]) {
			t.Errorf("%v: exit %d: %s", args, code, said)
		}
	}
}

// A flag that a file's rows do not allow is wrong usage, as in a loop.
func TestAFlagThatTheRowsDoNotAllowIsWrongUsage(t *testing.T) {
	hot := traintest.RolloutsOf(t, filepath.Join(t.TempDir(), "hot.parquet"), traintest.SampledAt("0.7", traj.LogprobsOfModel))
	for want, args := range map[string][]string{
		"--old-logprobs recompute":       {"--old-logprobs", "file"},
		"--off-policy tis":               {"--off-policy", "tis"},
		"--ref http://localhost:1":       {"--ref", "http://localhost:1", "--kl-coef", ".1"},
		"--teacher http://localhost:1/v": {"--teacher", "http://localhost:1/v1", "--loss", "opd"},
	} {
		_, said, code := run(
			t, append([]string{"train", hot, "--model", traintest.Model, "--output", filepath.Join(t.TempDir(), "out")}, args...)...)
		if code != exitUsage || strings.Count(said, "\n") != 1 || !strings.Contains(said, want) {
			t.Errorf("%v: exit %d: %s", args, code, said)
		}
		if args[0] != "--ref" && args[0] != "--teacher" { // what a loop records itself is right
			continue
		}
		_, err := runApp(t, t.Context(), &bytes.Buffer{},
			loopArgs(t, append(args, "--temperature", ".7", "--output", filepath.Join(t.TempDir(), "x"))...)...)
		if usage := (exit.UsageError{}); !errors.As(err, &usage) {
			t.Errorf("loop %v: %v", args, err)
		}
	}
}
