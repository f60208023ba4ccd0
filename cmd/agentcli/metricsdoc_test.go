package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"agentcli/app/train"
	"agentcli/app/train/traintest"
	"agentcli/model/tokenizer"
	"agentcli/traj"
)

// documented are the keys of metrics.jsonl that docs/format.md names.
func documented(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile("../../docs/format.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "### metrics.jsonl")
	keys, braces := map[string]bool{}, regexp.MustCompile(`\{([^}]*)\}`)
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			continue
		}
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
			choice := braces.FindStringSubmatch(m[1])
			if choice == nil {
				keys[m[1]] = true
				continue
			}
			if choice[1] == "…" {
				choice[1] = "mean,min,max"
			}
			for _, c := range strings.Split(choice[1], ",") {
				keys[braces.ReplaceAllLiteralString(m[1], c)] = true
			}
		}
	}
	return keys
}

// Every key that a run writes stands in docs/format.md, and every key there is written
// by some run.
func TestTheMetricsAreThoseThatAreDocumented(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tok, err := tokenizer.Open(traintest.Model)
	if err != nil {
		t.Fatal(err)
	}
	calls := traintest.Rewarded(t, func(i int, x *traj.Trajectory) {
		no := 0
		x.Steps = []traj.Step{{Sequence: 0, Start: 3, End: 4, ToolCalls: 1, ToolMalformed: &no}}
		said := tok.Decode(x.Sequences[0].TokenIDs[4:5], false)
		x.Messages = []traj.Message{{Role: traj.RoleUser, Content: "?"}, {Role: traj.RoleAssistant}, {Role: traj.RoleTool, Content: said}}
		x.Sequences[0].LossMask[4] = i%3 > 0 // an observation here and there
		if !x.Sequences[0].LossMask[4] {
			x.Sequences[0].Logprobs[4] = traj.NoLogprob()
		}
	})
	steps, text := filepath.Join(dir, "steps.jsonl"), filepath.Join(dir, "text.jsonl")
	for path, rows := range map[string]string{steps: stepRows, text: `{"prompt":"What is 1+1?","completion":"It is 2."}` + "\n"} {
		if err := os.WriteFile(path, []byte(rows), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	written := map[string]string{}
	n := 0
	run := func(args ...string) string {
		out := filepath.Join(dir, string(rune('a'+n)))
		n++
		var log bytes.Buffer
		args = append(append([]string{"agentcli"}, args...), "--output", out)
		if _, err := runApp(t, t.Context(), &log, args...); err != nil {
			t.Fatalf("%q: %v\n%s", args, err, log.String())
		}
		for key := range train.ReadCurves(out) {
			if written[key] == "" {
				written[key] = strings.Join(args[1:3], " ")
			}
		}
		return out
	}
	trainOn := func(file string, args ...string) string {
		return run(append([]string{"train", file, "--model", traintest.Model, "--dtype", "float32", "--threads", "1",
			"--minibatch", "4", "--lr", "1e-3"}, args...)...)
	}
	trainOn(calls, "--kl-coef", ".1", "--off-policy", "tis", "--echo", ".1", "--entropy-coef", ".01", "--ptx", text, "--save-every", "1",
		"--epochs", "2", "--peak-tflops", ".5")
	trainOn(calls, "--algo", "ppo", "--kl-coef", ".1", "--kl-in", "reward", "--ref", traintest.Model)
	trainOn(calls, "--target-kl", "1e-9", "--epochs", "3")
	trainOn(calls, "--loss", "opd", "--teacher", traintest.Model)
	trainOn(calls, "--algo", "sft", "--holdout", ".3", "--eval-every", "1")
	trainOn(calls, "--algo", "dpo", "--holdout", ".3")
	judge := trainOn(calls, "--algo", "rm")
	trainOn(calls, "--reward-model", judge)
	trainOn(steps, "--algo", "prm", "--prm-tokens", "a,b")
	run(loopArgs(t)[1:]...)
	run(fileLoop(t)[1:]...)
	known, met := documented(t), map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(written)) {
		family, _, _ := strings.Cut(key, "/")
		if !known[key] && !known[family+"/*"] {
			t.Errorf("%s of %s: docs/format.md does not name it", key, written[key])
		}
		met[key], met[family+"/*"] = true, true
	}
	met["actor/router_mismatch"] = true // of a model with experts: router_replay_test.go
	for _, of := range []string{"allocated", "reserved"} {
		met["perf/max_memory_"+of+"_gb"] = true // of a GPU: app/train has the test
	}
	met["actor/skipped_step"] = true // of a gradient that is not finite: trainer has the test
	for _, key := range slices.Sorted(maps.Keys(known)) {
		if met[key] {
			continue
		}
		t.Errorf("docs/format.md names %s, which none of these runs writes", key)
	}
}
