//go:build libtorch

package train

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentcli/app/console"
	"agentcli/app/models"
	"agentcli/model/weights"
	"agentcli/policy"
	"agentcli/trainer"
)

// lookGolden is testdata/look/golden.json (scripts/golden/vision_train.py).
type lookGolden struct {
	LR    float64
	Steps int
	Cases []struct {
		Algo, Vision string
		Losses       []float64
		Updates      lookUpdates
		Critic       lookUpdates // of PPO
	}
}

// lookUpdates are what training did to each tensor.
type lookUpdates map[string]struct {
	Norm   float64
	At     []int
	Values []float64
}

// compare holds a saved folder against them; what is not in before began as zeros.
func (all lookUpdates) compare(t *testing.T, what string, before, after map[string][]float64, most float64) {
	t.Helper()
	for name, u := range all {
		got, was := after[name], before[name]
		if was == nil {
			was = make([]float64, len(got))
		}
		if got == nil || len(got) != len(was) {
			t.Fatalf("%s: %s is not in the saved folder", what, name)
		}
		norm := 0.0
		for k := range got {
			norm += (got[k] - was[k]) * (got[k] - was[k])
		}
		norm = math.Sqrt(norm)
		// float32 files round the weights
		rounding := 1e-8 * math.Sqrt(float64(len(got)))
		if math.Abs(norm-u.Norm) > 1e-4*u.Norm+rounding {
			t.Errorf("%s: the update of %s is %g, want %g", what, name, norm, u.Norm)
		}
		for i, k := range u.At {
			// Adam's first steps are of the size of the learning rate, however small the
			// gradient: what float32 cosines there change is seen.
			if math.Abs(got[k]-was[k]-u.Values[i]) > 1e-3*most {
				t.Errorf("%s: the update of %s[%d] is %g, want %g", what, name, k, got[k]-was[k], u.Values[i])
			}
		}
	}
}

func lookModel(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "init")
	if err := models.Init("../../examples/look/config.json", 5, dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

func lookOptions(model, file, output string, vision policy.VisionTraining) Options {
	c := trainer.DefaultConfig()
	c.Minibatch, c.Epochs, c.LR = 0, 2, 1e-3
	return Options{Backend: backend, Files: []string{file}, Model: model,
		Open:   models.TrainableOptions{DType: "float64", Threads: 1, Vision: vision},
		Config: c, Output: output, Keep: 1, Save: weights.F32, Settings: map[string]any{}}
}

// tensors are those of a folder, as float64.
func tensors(t *testing.T, folder string) map[string][]float64 {
	t.Helper()
	m, err := weights.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	out := map[string][]float64{}
	for _, i := range m.Config().Tensors() {
		x, err := m.Tensor(i.Name)
		if err != nil { // a tied head
			continue
		}
		if x, err = x.As(weights.F32); err != nil {
			t.Fatal(err)
		}
		v := make([]float64, len(x.Data)/4)
		for k := range v {
			v[k] = float64(math.Float32frombits(binary.LittleEndian.Uint32(x.Data[4*k:])))
		}
		out[i.Name] = v
	}
	return out
}

func TestStepsOnImagesAreThoseOfPyTorch(t *testing.T) {
	var g lookGolden
	raw, err := os.ReadFile("testdata/look/golden.json")
	if err == nil {
		err = json.Unmarshal(raw, &g)
	}
	if err != nil {
		t.Fatal(err)
	}
	model := lookModel(t)
	before := tensors(t, model)
	for _, want := range g.Cases {
		vision := policy.VisionTraining(strings.TrimPrefix(want.Vision, "none"))
		file := want.Algo
		if want.Critic != nil {
			file = "grpo"
		}
		o := lookOptions(model, "testdata/look/"+file+".parquet", filepath.Join(t.TempDir(), "out"), vision)
		o.Config.Algo, o.Config.LR, o.Config.Epochs = want.Algo, g.LR, g.Steps
		if o.Config.CriticLR = g.LR; want.Critic != nil {
			o.Config.Advantage = "gae"
		}
		// Images are shared, or beside others, or alone.
		for _, o.Config.MicroTokens = range []int{4096, 60} {
			o.Output = filepath.Join(t.TempDir(), "out")
			var out, log bytes.Buffer
			if err := Run(t.Context(), o, console.Streams{Out: &out, Err: &log}); err != nil {
				t.Fatalf("%s, vision %s: %v\n%s", want.Algo, want.Vision, err, log.String())
			}
			what := fmt.Sprintf("%s, vision %s, micro-batches of %d", want.Algo, want.Vision, o.Config.MicroTokens)
			want.Updates.compare(t, what, before, tensors(t, o.Output), g.LR*float64(g.Steps))
			if want.Critic != nil {
				want.Critic.compare(t, what+": critic", before, tensors(t, filepath.Join(o.Output, "critic")), g.LR*float64(g.Steps))
			}
		}
	}
}

func TestImagesOfAnotherProcessorAreNotTrainedOn(t *testing.T) {
	model := lookModel(t)
	file := filepath.Join(model, "preprocessor_config.json")
	settings, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what, remedy string, o Options) {
		t.Helper()
		var out, log bytes.Buffer
		err := Run(t.Context(), o, console.Streams{Out: &out, Err: &log})
		if err == nil || !strings.Contains(err.Error(), remedy) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", what, err)
		}
	}
	var s map[string]any
	if err := json.Unmarshal(settings, &s); err != nil {
		t.Fatal(err)
	}
	s["image_mean"] = []float64{.1, .2, .3}
	other, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, other, 0o600); err != nil {
		t.Fatal(err)
	}
	o := lookOptions(model, "testdata/look/grpo.parquet", filepath.Join(t.TempDir(), "out"), "")
	refused("pixels that were normalised in another way", "image_rule", o)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	refused("a model without an image processor", "preprocessor_config.json", o)
	o.Model = "../../policy/testdata/tiny-qwen2"
	o.Force = true
	refused("a model of text", "text alone", o)
	if _, err := os.Stat(o.Output); err == nil {
		t.Error("a refused run has left a folder")
	}
}

func TestAChangedPixelIsOtherTraining(t *testing.T) {
	model := lookModel(t)
	file, err := os.ReadFile("testdata/look/grpo.parquet")
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(file, []byte("IDAT"))
	if at < 0 {
		t.Fatal("no image in the file")
	}
	changed := slices.Clone(file)
	changed[at+20] ^= 1
	path := filepath.Join(t.TempDir(), "changed.parquet")
	if err := os.WriteFile(path, changed, 0o600); err != nil {
		t.Fatal(err)
	}
	var out, log bytes.Buffer
	err = Run(t.Context(), lookOptions(model, path, filepath.Join(t.TempDir(), "out"), ""), console.Streams{Out: &out, Err: &log})
	if err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("an image that was changed is trained on: %v", err)
	}
}

// The model's own limits are for what it samples from now on: rows are trained on with the pixels that they
// were sampled with.
func TestRowsAreTrainedOnWithinTheLimitsTheyWereSampledWithin(t *testing.T) {
	model := lookModel(t)
	trained := func() map[string][]float64 {
		t.Helper()
		o := lookOptions(model, "testdata/look/grpo.parquet", filepath.Join(t.TempDir(), "out"), policy.VisionAll)
		o.Config.Epochs = 1
		var out, log bytes.Buffer
		if err := Run(t.Context(), o, console.Streams{Out: &out, Err: &log}); err != nil {
			t.Fatalf("%v\n%s", err, log.String())
		}
		return tensors(t, o.Output)
	}
	want := trained()
	file := filepath.Join(model, "preprocessor_config.json")
	settings, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var s map[string]any
	if err := json.Unmarshal(settings, &s); err != nil {
		t.Fatal(err)
	}
	if s["max_pixels"] == any(3136.) {
		t.Fatal("the limit is not another")
	}
	s["min_pixels"], s["max_pixels"] = 784, 3136
	if settings, err = json.Marshal(s); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, settings, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, got := range trained() {
		if !slices.Equal(got, want[name]) {
			t.Errorf("%s is trained otherwise within other limits", name)
		}
	}
}
