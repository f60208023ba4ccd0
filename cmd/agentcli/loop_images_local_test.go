//go:build libtorch

package main

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentcli/app/loop"
	"agentcli/app/models"
	"agentcli/model/tokenizer"
	"agentcli/model/weights"
)

// A loop that is given the parser deepeyes samples and trains on results in DeepEyes' words.
func TestALoopWritesResultsInDeepEyesWords(t *testing.T) {
	model := filepath.Join(t.TempDir(), "look")
	if err := models.Init("../../examples/look/config.json", 3, model); err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Open(model)
	if err != nil {
		t.Fatal(err)
	}
	data := looks(t)
	for parser, begins := range map[string]string{"auto": "<tool_response>\n<|vision_start|>", "deepeyes": "<tool_response><|vision_start|>"} {
		out := filepath.Join(t.TempDir(), "run")
		if _, log, code := run(t, "loop", "-d", data, "--model", model, "--reward", "exact", "--steps", "1", "--tasks", "2", "-n", "2",
			"--max-tokens", "120", "--max-turns", "2", "--dtype", "float32", "--grammar", onlyLooks, "--force", "--parser", parser,
			"--output", out); code != exitDone {
			t.Fatalf("%s: exit %d: %s", parser, code, log)
		}
		rows, meta := rowsOf(t, filepath.Join(out, loop.RolloutsFolder, "000001.parquet"))
		if len(rows) != 4 || meta["parser"] != parser && parser != "auto" {
			t.Errorf("%s: %d rows, the file's parser is %v", parser, len(rows), meta["parser"])
		}
		for _, row := range rows {
			if len(row.Sequences) != 1 {
				t.Fatalf("%s: %d sequences: %s", parser, len(row.Sequences), row.Error)
			}
			if text := tok.Decode(row.Sequences[0].TokenIDs, false); !strings.Contains(text, begins) {
				t.Errorf("%s: no result begins with %q: %q", parser, begins, text)
			}
		}
	}
	// As in rollout: a model here is read as its chat format writes calls.
	if _, log, code := run(t, "loop", "-d", data, "--model", model, "--steps", "1", "--parser", "mistral",
		"--output", filepath.Join(t.TempDir(), "run")); code != exitUsage || !strings.Contains(log, "--parser") {
		t.Errorf("mistral: exit %d: %s", code, log)
	}
}

// A loop with adapters on the encoder samples with them: the trainer finds the log-probs that were sampled,
// after updates too. What it saves is an adapter on both.
func TestALoopSamplesWithTheAdaptersOnTheEncoder(t *testing.T) {
	model, out := filepath.Join(t.TempDir(), "look"), filepath.Join(t.TempDir(), "run")
	if err := models.Init("../../examples/look/config.json", 3, model); err != nil {
		t.Fatal(err)
	}
	reward := filepath.Join(t.TempDir(), "reward.sh") // of a group's replies others are right
	if err := os.WriteFile(reward, []byte(`n=0
while read -r line; do
  id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9][0-9]*\).*/\1/')
  n=$((n + 1))
  echo "{\"id\":$id,\"reward\":$((n % 2))}"
done
`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, log, code := run(t, "loop", "-d", "fineprint", "--split", "train", "--tools", "none", "--reward", "exec:sh "+reward,
		"--model", model, "--steps", "3", "--tasks", "2", "-n", "3", "--max-tokens", "12", "--dtype", "float32", "--lora-rank", "4",
		"--lora-targets", "all-linear,vision", "--lr", "0.01", "--old-logprobs", "recompute", "--eval-tasks", "2", "--eval-samples", "1",
		"--output", out); code != exitDone {
		t.Fatalf("exit %d: %s", code, log)
	}
	f, err := os.Open(filepath.Join(out, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	steps := 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var m map[string]any
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			t.Fatal(err)
		}
		if norm, ok := m["actor/grad_norm"].(float64); ok {
			if steps++; !(norm > 0) {
				t.Errorf("step %d: the gradient's norm is %v", steps, norm)
			}
			if d, ok := m["rollout_logprobs_diff_max"].(float64); !ok || d > 1e-3 {
				t.Errorf("step %d: sampled and recomputed log-probs differ by %v", steps, m["rollout_logprobs_diff_max"])
			}
		}
	}
	m, err := weights.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if c, ok := m.Adapter(); steps != 3 || !ok || len(c.Targets) < 2 || !weights.IsVisionTarget(c.Targets[len(c.Targets)-1]) {
		t.Errorf("%d steps, an adapter on %v", steps, c.Targets)
	}
}
