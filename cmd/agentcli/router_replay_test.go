//go:build libtorch

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentcli/app/models/modelstest"
	"agentcli/app/rundir"
)

// rolledOut plays a few trajectories and gives their file.
func rolledOut(t *testing.T, model string, args ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "run")
	args = append([]string{"rollout", "-d", "arith", "--limit", "2", "-n", "3", "--max-tokens", "12", "--max-turns", "1", "--tools", "none",
		"--shots", "0", "--model", model, "--output", out}, args...)
	if _, log, code := run(t, args...); code != exitDone {
		t.Fatalf("exit %d: %s", code, log)
	}
	return filepath.Join(out, rundir.TrajectoriesFile)
}

// The experts that were chosen while sampling are in the file, and training chooses them again.
func TestExpertsAreKeptAndReplayed(t *testing.T) {
	model := modelstest.Experts(t, tinyQwen3)
	file := rolledOut(t, model, "--router-replay")
	rows, _ := rowsOf(t, file)
	for _, row := range rows {
		for _, s := range row.Sequences {
			if e := s.Experts; e.Tokens() != len(s.TokenIDs)-1 || e.Layers != 2 || e.Active != 2 {
				t.Errorf("%s: experts of %d of %d tokens", row.ID, e.Tokens(), len(s.TokenIDs))
			}
		}
	}
	filtered := filepath.Join(t.TempDir(), "filtered.parquet")
	if _, log, code := run(t, "filter", file, "--max-per-task", "3", "-o", filtered); code != exitDone {
		t.Fatal(log)
	}
	trained := filepath.Join(t.TempDir(), "trained")
	var log bytes.Buffer
	if _, err := runApp(t, t.Context(), &log, "agentcli", "train", filtered, "--router-replay", "--kl-coef", "0.1", "--minibatch", "3",
		"--output", trained); err != nil {
		t.Fatal(err, log.String())
	}
	metrics, err := os.ReadFile(filepath.Join(trained, "metrics.jsonl"))
	if err != nil || !strings.Contains(string(metrics), `"actor/router_mismatch":`) {
		t.Errorf("%v: %s", err, metrics)
	}
	plain := rolledOut(t, model)
	if _, log, code := run(t, "train", plain, "--router-replay", "--kl-coef", "0.1", "--output",
		filepath.Join(t.TempDir(), "none")); code == exitDone || !strings.Contains(log, "--router-replay") {
		t.Errorf("a file without experts is replayed: exit %d: %s", code, log)
	}
	if _, log, code := run(t, "rollout", "-d", "arith", "--limit", "1", "--model", tinyQwen3, "--router-replay", "--output",
		filepath.Join(t.TempDir(), "none")); code != exitUsage || !strings.Contains(log, "--router-replay") {
		t.Errorf("experts of a model without any are kept: exit %d: %s", code, log)
	}
	if _, log, code := run(t, "loop", "-d", "arith", "--model", model, "--router-replay", "--steps", "1", "--tasks", "2", "-n", "2",
		"--max-tokens", "8", "--max-turns", "1", "--tools", "none", "--shots", "0", "--eval-tasks", "1", "--eval-samples", "1", "--output",
		filepath.Join(t.TempDir(), "loop")); code != exitDone {
		t.Errorf("loop: exit %d: %s", code, log)
	}
}

// A server's experts are those of the model here, in each token mode; one that keeps none ends the run.
func TestExpertsOfAServerAreKept(t *testing.T) {
	model := modelstest.Experts(t, tinyQwen3)
	want, _ := rowsOf(t, rolledOut(t, model, "--router-replay", "--dtype", "float32", "--device", "cpu", "--ordered"))
	url := serveModel(t, "--model", model, "--dtype", "float32", "--router-replay", "--served-model-name", "m")
	for _, mode := range []string{"completions", "auto", "chat"} {
		args := []string{"--router-replay", "--ordered", "--base-url", url + "/v1", "--token-mode", mode}
		if mode != "chat" {
			args = append(args, "--tokenizer", model)
		}
		got, _ := rowsOf(t, rolledOut(t, "", args...)) // a name would leave the seeds at 31 bits
		if len(got) != len(want) {
			t.Fatalf("%s: %d rows, want %d", mode, len(got), len(want))
		}
		for i, row := range got {
			for k, s := range row.Sequences {
				w := want[i].Sequences[k]
				if !slices.Equal(s.TokenIDs, w.TokenIDs) || s.Experts.Tokens() != len(s.TokenIDs)-1 || !slices.Equal(s.Experts.IDs, w.Experts.IDs) {
					t.Errorf("%s, row %d: experts of %d of %d tokens, or others than here", mode, i, s.Experts.Tokens(), len(s.TokenIDs))
				}
			}
		}
	}
	without := serveModel(t, "--model", model, "--dtype", "float32", "--served-model-name", "m")
	if _, log, code := run(t, "rollout", "-d", "arith", "--limit", "1", "--tools", "none", "--model", "m", "--base-url", without+"/v1",
		"--router-replay", "--output", filepath.Join(t.TempDir(), "none")); code == exitDone || !strings.Contains(log, "--router-replay") {
		t.Errorf("a server keeps no experts: exit %d: %s", code, log)
	}
}
