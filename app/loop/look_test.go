//go:build libtorch

package loop

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentcli/app/console"
	"agentcli/app/models"
	"agentcli/app/rollout"
	"agentcli/app/train"
	"agentcli/datasets"
	"agentcli/model/weights"
	"agentcli/parquet"
	"agentcli/policy"
	"agentcli/trainer"
)

// lookModel is a Qwen2.5-VL with random weights, and a folder for what is trained from it.
type lookModel struct {
	t    *testing.T
	dir  string
	init string
}

func newLookModel(t *testing.T) lookModel {
	t.Helper()
	m := lookModel{t, t.TempDir(), ""}
	m.init = m.in("init")
	if err := models.Init("../../examples/look/config.json", 1, m.init); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m lookModel) in(name string) string { return filepath.Join(m.dir, name) }

// play has a model, or the demonstrations themselves, answer rows without a tool, and gives the share of right answers.
func (m lookModel) play(model, dataset, split, file string, seed int64, limit int) (right float64) {
	m.t.Helper()
	var out, log bytes.Buffer
	o := rollout.DefaultOptions(models.NewBackend(), model, dataset)
	prompt := "{question}"
	o.Split, o.Limit, o.Samples, o.Seed, o.Tools, o.Reward, o.Prompt = split, limit, 1, seed, []string{}, "exact", &prompt
	o.Model.DType, o.Sampling.MaxTokens = "float32", 8
	if err := rollout.Rollout(m.t.Context(), rollout.FileOptions{Options: o, File: m.in(file)},
		console.Streams{In: strings.NewReader(""), Out: &out, Err: &log}); err != nil {
		m.t.Fatalf("%v\n%s", err, log.String())
	}
	r, err := parquet.Open(m.in(file))
	if err != nil {
		m.t.Fatal(err)
	}
	defer r.Close()
	for row, err := range r.Rows(m.t.Context(), "id", "reward") {
		if err != nil || row.Reward == nil {
			m.t.Fatal(row, err)
		}
		right += *row.Reward / float64(limit)
	}
	return right
}

// learn trains on a file of demonstrations, encoder and all, and gives the folder.
func (m lookModel) learn(file string) string {
	m.t.Helper()
	c := trainer.DefaultConfig()
	c.Algo, c.Minibatch, c.Epochs, c.LR, c.WarmupSteps, c.Beta2 = trainer.AlgoSFT, 32, 3, 7e-4, 10, .99
	var out, log bytes.Buffer
	o := train.Options{Backend: models.NewBackend(), Files: []string{m.in(file)}, Model: m.init, Output: m.in("tuned"), Keep: 1,
		Open:   models.TrainableOptions{DType: "float32", Vision: policy.VisionAll},
		Config: c, Save: weights.F32, Settings: map[string]any{}}
	if err := train.Run(m.t.Context(), o, console.Streams{Out: &out, Err: &log}); err != nil {
		m.t.Fatalf("%v\n%s", err, log.String())
	}
	return m.in("tuned")
}

// A model with random weights learns to read what a zoom shows: the whole way from the pixels of
// an image through the encoder to the loss. Chance is .25; the shown images are others than those
// of the demonstrations.
func TestAModelLearnsToReadWhatAZoomShows(t *testing.T) {
	if testing.Short() {
		t.Skip("half a minute")
	}
	m := newLookModel(t)
	m.play(models.ReplayPrefix+m.init, "fineprint", "crops", "crops.parquet", 1, 640)
	before := m.play(m.init, "fineprint", "crops", "before.parquet", 9, 128)
	if after := m.play(m.learn("crops.parquet"), "fineprint", "crops", "after.parquet", 9, 128); before > .4 || after < .8 {
		t.Errorf("%.2f of the crops are read before, %.2f after", before, after)
	}
}

// The same training, on the right answers to whole images, finds chance: at the size that they are
// shown at they do not tell the answer. .37 of 256 is more than four standard errors above .25.
func TestAModelLearnsNothingFromTheShownSizeAlone(t *testing.T) {
	if testing.Short() {
		t.Skip("half a minute")
	}
	m := newLookModel(t)
	const n = 640
	d, err := datasets.Open(t.Context(), "fineprint", datasets.Options{Split: "train", Limit: n})
	if err != nil {
		t.Fatal(err)
	}
	var rows []byte
	for task, err := range d.Tasks(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		file := task.Messages[0].Images[0].Bytes
		line, err := json.Marshal(map[string]any{"question": task.Question, "answer": task.Answers[0], "replies": task.Answers,
			"images": []map[string]string{{"bytes": base64.StdEncoding.EncodeToString(file)}}})
		if err != nil {
			t.Fatal(err)
		}
		rows = append(append(rows, line...), '\n')
	}
	if err := os.WriteFile(m.in("rows.jsonl"), rows, 0o600); err != nil {
		t.Fatal(err)
	}
	m.play(models.ReplayPrefix+m.init, m.in("rows.jsonl"), "", "shown.parquet", 1, n)
	if after := m.play(m.learn("shown.parquet"), "fineprint", "test", "after.parquet", 9, 256); after < .13 || after > .37 {
		t.Errorf("%.2f of the answers are right, chance is .25", after)
	}
}
