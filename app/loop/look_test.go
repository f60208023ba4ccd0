//go:build libtorch

package loop

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"agentcli/app/console"
	"agentcli/app/models"
	"agentcli/app/rollout"
	"agentcli/app/train"
	"agentcli/model/weights"
	"agentcli/parquet"
	"agentcli/policy"
	"agentcli/trainer"
)

// A Qwen2.5-VL with random weights learns to read what a zoom shows: the whole way from the
// pixels of an image through the encoder to the loss. Chance is .25; the shown images are others
// than those of the demonstrations.
func TestAModelLearnsToReadWhatAZoomShows(t *testing.T) {
	if testing.Short() {
		t.Skip("half a minute")
	}
	dir := t.TempDir()
	start, file, tuned := filepath.Join(dir, "init"), filepath.Join(dir, "crops.parquet"), filepath.Join(dir, "tuned")
	if err := models.Init("../../examples/look/config.json", 1, start); err != nil {
		t.Fatal(err)
	}
	var out, log bytes.Buffer
	s := console.Streams{In: strings.NewReader(""), Out: &out, Err: &log}
	play := func(model, file string, seed int64, limit int) (right float64) {
		t.Helper()
		o := rollout.DefaultOptions(models.NewBackend(), model, "fineprint")
		o.Split, o.Limit, o.Samples, o.Seed, o.Tools = "crops", limit, 1, seed, []string{}
		o.Model.DType, o.Sampling.MaxTokens = "float32", 8
		if err := rollout.Rollout(t.Context(), rollout.FileOptions{Options: o, File: file}, s); err != nil {
			t.Fatalf("%v\n%s", err, log.String())
		}
		r, err := parquet.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		for row, err := range r.Rows(t.Context(), "id", "reward") {
			if err != nil || row.Reward == nil {
				t.Fatal(row, err)
			}
			right += *row.Reward / float64(limit)
		}
		return right
	}
	play(models.ReplayPrefix+start, file, 1, 640)
	before := play(start, filepath.Join(dir, "before.parquet"), 9, 128)
	c := trainer.DefaultConfig()
	c.Algo, c.Minibatch, c.Epochs, c.LR, c.WarmupSteps, c.Beta2 = trainer.AlgoSFT, 32, 3, 7e-4, 10, .99
	if err := train.Run(t.Context(), train.Options{Backend: models.NewBackend(), Files: []string{file}, Model: start, Output: tuned, Keep: 1,
		Open:   models.TrainableOptions{DType: "float32", Vision: policy.VisionAll},
		Config: c, Save: weights.F32, Settings: map[string]any{}}, s); err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	if after := play(tuned, filepath.Join(dir, "after.parquet"), 9, 128); before > .4 || after < .8 {
		t.Errorf("%.2f of the crops are read before, %.2f after", before, after)
	}
}
