//go:build libtorch

package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"agentcli/app/rundir"
	"agentcli/traj"
)

// TestRepliesOfAGrammarAreTheSameHereAndThroughServe: each is of the grammar, with the same ids
// and log-probs whichever way the model is asked; and the file is trained on only where told.
func TestRepliesOfAGrammarAreTheSameHereAndThroughServe(t *testing.T) {
	url := serveModel(t, "--model", tinyQwen3, "--dtype", "float32")
	data := writeProducts(t, 4)
	rollout := func(args ...string) (rows []*traj.Trajectory, file string) {
		out := filepath.Join(t.TempDir(), "run")
		_, log, code := run(t, append([]string{"rollout", "-d", data, "--reward", "exact", "-n", "2", "--tools", "none", "--seed", "5",
			"--max-tokens", "24", "--ordered", "--grammar", "regex:-?[1-9][0-9]{1,3}", "--output", out}, args...)...)
		if code != exitDone {
			t.Fatal(log)
		}
		file = filepath.Join(out, rundir.TrajectoriesFile)
		rows, meta := rowsOf(t, file)
		if g, _ := meta["sampling"].(map[string]any)["grammar"].(map[string]any); g["kind"] != traj.GrammarRegex {
			t.Errorf("the file says %v", meta["sampling"])
		}
		return rows, file
	}
	want, file := rollout("--model", tinyQwen3, "--dtype", "float32", "--device", "cpu")
	number := regexp.MustCompile(`^-?[1-9][0-9]{1,3}$`)
	others := map[string]bool{}
	for _, r := range want {
		said := r.Messages[len(r.Messages)-1].Content
		others[said] = true
		if !number.MatchString(said) || r.Termination != traj.Answered {
			t.Errorf("%q, %s", said, r.Termination)
		}
	}
	if len(others) < 3 {
		t.Errorf("all replies are the same: %v", others)
	}
	for name, args := range map[string][]string{
		"ids":           {"--token-mode", "completions", "--tokenizer", tinyQwen3},
		"ids, streamed": {"--token-mode", "completions", "--tokenizer", tinyQwen3, "--stream"},
		"chat":          {"--token-mode", "chat"},
	} {
		got, _ := rollout(append(args, "--base-url", url+"/v1")...)
		for i, w := range want {
			if d := apart(got[i].Sequences, w.Sequences); d > mostApart {
				t.Errorf("%s, row %d: log-probs are up to %v apart", name, i, d)
			}
		}
	}
	train := []string{"train", file, "--model", tinyQwen3, "--dtype", "float32", "--output", filepath.Join(t.TempDir(), "out")}
	if _, said, code := run(t, train...); code == exitDone {
		t.Errorf("tokens of a grammar are trained on: %s", said)
	}
	// None of these numbers is right, so there is nothing to learn from them.
	if _, said, _ := run(t, append(train, "--force")...); strings.Count(said, "(--force)") != 1 || !strings.Contains(said, "8 trajectories") {
		t.Errorf("--force: %s", said)
	}
}

// TestAGrammarWithoutEffectIsRefused: before any reply is drawn.
func TestAGrammarWithoutEffectIsRefused(t *testing.T) {
	data := writeProducts(t, 1)
	for name, args := range map[string][]string{
		"of calls without tools":  {"--grammar", "tools", "--tools", "none", "--model", tinyQwen3},
		"of calls on a server":    {"--grammar", "tools", "--tools", "calculator", "--base-url", "http://127.0.0.1:9/v1", "--model", "m"},
		"that nothing can be":     {"--grammar", `regex:\bx`, "--model", tinyQwen3},
		"of a kind that is not":   {"--grammar", "xml", "--model", tinyQwen3},
		"of a file that is not":   {"--grammar", "schema:absent.json", "--model", tinyQwen3},
		"of a format without one": {"--grammar", "tools", "--tools", "calculator", "--parser", "react", "--model", tinyQwen3},
	} {
		file := filepath.Join(t.TempDir(), "x.parquet")
		_, said, code := run(t, append([]string{"rollout", "-d", data, "--reward", "exact", "-n", "1", "-o", file}, args...)...)
		if code != exitUsage {
			t.Errorf("%s: exit %d, %s", name, code, said)
		}
	}
}
