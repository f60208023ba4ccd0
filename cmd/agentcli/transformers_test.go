//go:build libtorch

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"agentcli/app/console"
	"agentcli/app/models"
	"agentcli/app/train/traintest"
	"agentcli/policy"
	"agentcli/trainer"
	"agentcli/trainer/rows"
)

// inTransformers runs testdata/open_in_transformers.py on a folder.
func inTransformers(t *testing.T, folder string, request, answer any) {
	t.Helper()
	python := os.Getenv("AGENTCLI_PYTHON")
	if python == "" {
		t.Skip("AGENTCLI_PYTHON names no Python with transformers; make test sets it")
	}
	in, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, "testdata/open_in_transformers.py", folder)
	var errs bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("transformers cannot open the folder: %v\n%s", err, errs.String())
	}
	if err := json.Unmarshal(out, answer); err != nil {
		t.Fatal(err)
	}
}

// TestTrainedFolderOpensInTransformersWithEqualLogits goes the whole way on the
// real model: rollout, train, transformers.
func TestTrainedFolderOpensInTransformersWithEqualLogits(t *testing.T) {
	if testing.Short() {
		t.Skip("rolls out and trains SmolLM2")
	}
	dir := t.TempDir()
	traj, model := filepath.Join(dir, "t.parquet"), filepath.Join(dir, "model")
	run := func(in io.Reader, args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		if code := execute(t.Context(), append([]string{"agentcli"}, args...), console.Streams{In: in, Out: &out, Err: &errs}); code != 0 {
			t.Fatalf("agentcli %s: exit %d\n%s", strings.Join(args, " "), code, errs.String())
		}
		return out.String()
	}
	run(nil, "rollout", "--dataset", "lastword", "--limit", "8", "-n", "8", "--seed", "3", "-o", traj)
	run(nil, "train", traj, "--output", model, "--lr", "3e-5", "--minibatch", "0", "--dtype", "bfloat16")

	const text = "The capital of France is Paris, and 12 * 7 is 84."
	var tok struct {
		IDs []int32 `json:"token_ids"`
	}
	line := func(v any) io.Reader {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return bytes.NewReader(append(b, '\n'))
	}
	read := func(text string, v any) {
		t.Helper()
		if err := json.Unmarshal([]byte(text), v); err != nil {
			t.Fatal(err)
		}
	}
	read(run(line(map[string]any{"text": text}), "model", "tokenize", model), &tok)
	var ours struct{ Logprobs []float64 }
	read(run(line(map[string]any{"token_ids": tok.IDs}), "model", "logprobs", model, "--dtype", "float32"), &ours)
	var rendered struct{ Text string }
	read(run(line(map[string]any{"messages": []map[string]string{{"role": "user", "content": text}}, "add_generation_prompt": true}),
		"model", "render", model), &rendered)

	var theirs struct {
		Logprobs []float64 `json:"logprobs"`
		TokenIDs []int32   `json:"token_ids"`
		Chat     string    `json:"chat"`
		Class    string    `json:"class"`
	}
	inTransformers(t, model, map[string]any{"logprobs": map[string]any{"ids": tok.IDs, "text": text}}, &theirs)
	if fmt.Sprint(theirs.TokenIDs) != fmt.Sprint(tok.IDs) {
		t.Errorf("transformers tokenises to %v, we to %v", theirs.TokenIDs, tok.IDs)
	}
	if theirs.Class != "LlamaForCausalLM" {
		t.Errorf("transformers opens it as %s", theirs.Class)
	}
	if theirs.Chat != rendered.Text {
		t.Errorf("transformers renders %q, we %q", theirs.Chat, rendered.Text)
	}
	worst := 0.0
	for i := range theirs.Logprobs {
		worst = math.Max(worst, math.Abs(theirs.Logprobs[i]-ours.Logprobs[i]))
	}
	t.Logf("%d tokens, log-probs at most %.2g apart", len(theirs.Logprobs), worst)
	if len(ours.Logprobs) != len(theirs.Logprobs) || worst > 1e-3 {
		t.Errorf("%d and %d log-probs, at most %v apart", len(ours.Logprobs), len(theirs.Logprobs), worst)
	}
}

func TestRewardModelsScoreEquallyInTransformers(t *testing.T) {
	folders := []string{traintest.Model}
	if real := models.DefaultPath(); !testing.Short() {
		if _, err := os.Stat(real); !errors.Is(err, os.ErrNotExist) {
			folders = append(folders, real)
		}
	}
	for _, model := range folders {
		var log bytes.Buffer
		dir, code := given(t, t.Context(), &log, pairRows, "--algo", "rm", "--epochs", "3", "--lr", "1e-4", "-m", model)
		if code != 0 {
			t.Fatal(log.String())
		}
		tr, err := policy.OpenTrainable(dir, policy.Config{DType: "float32", Head: policy.HeadScore})
		if err != nil {
			t.Fatal(err)
		}
		defer tr.Close()
		r, err := models.Renderer(dir, tr.Tokenizer(), "")
		if err != nil {
			t.Fatal(err)
		}
		var b policy.Batch
		b.Own = true
		var texts []string
		c := trainer.DefaultConfig()
		c.Algo = trainer.AlgoRM
		d, err := trainer.LoadFor(t.Context(), []string{filepath.Join(filepath.Dir(dir), "rows.jsonl")}, c,
			rows.Sources{Format: func() (*rows.Format, error) {
				return &rows.Format{Renderer: r, Tokenizer: tr.Tokenizer()}, nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range d.Episodes {
			ids := e.Sequences[0].TokenIDs
			b.Sequences, b.Want = append(b.Sequences, ids), append(b.Want, make([]bool, len(ids)))
			b.Want[len(b.Want)-1][len(ids)-1] = true
			texts = append(texts, tr.Tokenizer().Decode(ids, false))
		}
		ours, err := tr.Forward(b)
		if err != nil {
			t.Fatal(err)
		}
		var theirs struct {
			Scores []float64
			Class  string
			IDs    [][]int32
		}
		inTransformers(t, dir, map[string]any{"scores": texts}, &theirs)
		worst, spread := 0.0, 0.0
		for i, s := range theirs.Scores {
			worst = math.Max(worst, math.Abs(s-ours.Values[i]))
			spread = math.Max(spread, math.Abs(s-theirs.Scores[0]))
			if len(theirs.IDs[i]) != len(b.Sequences[i]) {
				t.Fatalf("transformers has other ids for %q", texts[i])
			}
		}
		t.Logf("%s: %s, %d scores up to %.3g apart, ours at most %.2g from theirs", filepath.Base(model),
			theirs.Class, len(theirs.Scores), spread, worst)
		if theirs.Class != "LlamaForSequenceClassification" || len(theirs.Scores) != len(ours.Values) || worst > 1e-3*spread || spread == 0 {
			t.Errorf("%s: %v, ours %v", theirs.Class, theirs.Scores, ours.Values)
		}
	}
}
