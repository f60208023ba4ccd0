//go:build libtorch

package policy

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"agentcli/internal/goldenfile"
	"agentcli/internal/malformed"
	"agentcli/internal/setting"
	"agentcli/internal/setting/settingtest"
	"agentcli/internal/torch"
	"agentcli/model/arch"
	"agentcli/model/arch/archtest"
	"agentcli/model/weights"
	"agentcli/traj"
)

// visionAdapter is an adapter that PEFT saved, whose tensors are drawn by their names, over a model of
// scripts/golden/vision.py, and what PEFT says of it (scripts/golden/lora_vision.py).
type visionAdapter struct {
	Title           string
	Config          map[string]any // adapter_config.json
	Tensors         map[string][]int64
	Modules, Others []string // those with a pair, and the model's others
	Text            int      // of the model's texts
	Logprobs        []float64
	Gradient        map[string]archtest.Gradient
}

func visionAdapters(t *testing.T) (out []visionAdapter) {
	t.Helper()
	goldenfile.Load(t, "lora-vision.json.gz", &out)
	return out
}

func visionModel(t *testing.T, title string) visionGolden {
	t.Helper()
	for _, g := range visionModels(t) {
		if g.Title == title {
			return g
		}
	}
	t.Fatalf("no model %s", title)
	return visionGolden{}
}

// clone is the adapter with maps of its own.
func (a visionAdapter) clone() visionAdapter {
	a.Config, a.Tensors = maps.Clone(a.Config), maps.Clone(a.Tensors)
	return a
}

// write makes the folders of the base and of the adapter, and gives the latter. Tensors are called what rename says.
func (a visionAdapter) write(t *testing.T, rename func(string) string) string {
	t.Helper()
	g := visionModel(t, a.Title)
	draw := func(name string, shape []int64) []byte { return bytesOf(drawn(name, shape...)) }
	return peftAdapter{a.Config, a.Tensors, draw, rename}.write(t, g.write(t, g.Config))
}

func asSaved(name string) string { return name }

// asOfTransformers4 is what PEFT called a tensor before the classes had a model within.
func asOfTransformers4(name string) string {
	return strings.NewReplacer("model.language_model.", "model.", "model.model.visual.", "model.visual.").Replace(name)
}

func (g visionGolden) batch(v *arch.Vision, texts ...int) (b Batch) {
	for _, k := range texts {
		q := g.sequence(v, k)
		b.Sequences, b.Images = append(b.Sequences, q.IDs), append(b.Images, q.Images)
	}
	b.Want = wanted(b.Sequences...)
	return b
}

// Merged and beside the weights, layers computed again or not, an adapter on an encoder gives the log-probs
// and the gradients that PEFT gives. The names of other versions of the classes are read, too.
func TestAnAdapterOfPEFTOnAnEncoderGivesPEFTsLogprobsAndGradients(t *testing.T) {
	for _, a := range visionAdapters(t) {
		g := visionModel(t, a.Title)
		for name, rename := range map[string]func(string) string{"": asSaved, ", names of transformers 4": asOfTransformers4} {
			dir := a.write(t, rename)
			p := open(t, dir, Config{DType: "float64", Threads: 1, CacheBytes: 1 << 20})
			merged, err := p.LogprobsSequence(context.Background(), g.sequence(p.model.Vision, a.Text))
			if err != nil {
				t.Fatal(err)
			}
			if _, worst := distance(merged, a.Logprobs); len(merged) != len(a.Logprobs) || worst > 1e-4 {
				t.Errorf("%s%s, merged: log-probs differ by %.2g", a.Title, name, worst)
			}
			for _, checkpoint := range []bool{false, true} {
				tr := openTrainableAt(t, dir, Config{DType: "float64", Threads: 1, GradCheckpoint: checkpoint})
				var lps []float64
				err = tr.Accumulate(g.batch(p.model.Vision, a.Text), func(o Outputs) Gradients {
					lps = o.Logprobs
					return Gradients{Logprobs: slices.Repeat([]float64{1 / float64(len(lps))}, len(lps))}
				})
				if err != nil {
					t.Fatal(err)
				}
				if d := largestDifference(lps, a.Logprobs); d > 1e-5 {
					t.Errorf("%s%s, beside, checkpointed %v: log-probs differ by %.2g", a.Title, name, checkpoint, d)
				}
				a.compareGradients(t, tr, checkpoint)
			}
		}
	}
}

func (a visionAdapter) compareGradients(t *testing.T, tr *Trainable, checkpoint bool) {
	t.Helper()
	got, err := tr.Gradients()
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(a.Gradient) || len(got) != len(a.Tensors) {
		t.Errorf("%s, checkpointed %v: gradients of %d tensors, PEFT has %d", a.Title, checkpoint, len(got), len(a.Gradient))
	}
	for name, w := range a.Gradient {
		plain := strings.NewReplacer("model.language_model.", "model.", "model.visual.", "visual.").Replace(strings.TrimPrefix(name, peftPrefix))
		v, norm := got[plain], 0.0
		for _, x := range v {
			norm += x * x
		}
		if norm = math.Sqrt(norm); math.Abs(norm-w.Norm) > 1e-4*w.Norm {
			t.Errorf("%s, checkpointed %v, %s: the gradient's norm is %v, PEFT has %v", a.Title, checkpoint, name, norm, w.Norm)
			continue
		}
		for k, at := range w.At {
			if math.Abs(v[at]-w.Values[k]) > 1e-4*w.Norm {
				t.Errorf("%s, checkpointed %v, %s[%d]: %v, PEFT has %v", a.Title, checkpoint, name, at, v[at], w.Values[k])
			}
		}
	}
}

// What is opened and saved again has PEFT's names, shapes and values; its pattern matches the modules that
// PEFT changed and no other.
func TestAnAdapterOnAnEncoderIsSavedInPEFTsLayout(t *testing.T) {
	for _, a := range visionAdapters(t) {
		dir := a.write(t, asSaved)
		out := t.TempDir()
		if err := openTrainableAt(t, dir, Config{DType: "float32", Threads: 1}).Save(out, weights.F32); err != nil {
			t.Fatal(err)
		}
		f, err := weights.OpenSafetensors(filepath.Join(out, "adapter_model.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		if f.Len() != len(a.Tensors) {
			t.Errorf("%s: %d tensors, PEFT saved %d", a.Title, f.Len(), len(a.Tensors))
		}
		for name, shape := range a.Tensors {
			x, ok := f.Tensor(name)
			if !ok || !slices.Equal(x.Shape, shape) || !slices.Equal(x.Data, bytesOf(drawn(name, shape...))) {
				t.Errorf("%s: %s has shape %v, PEFT's %v, or another value", a.Title, name, x.Shape, shape)
			}
		}
		f.Close()
		raw, err := os.ReadFile(filepath.Join(out, "adapter_config.json"))
		if err != nil {
			t.Fatal(err)
		}
		var saved struct {
			Modules string `json:"target_modules"`
		}
		if err := json.Unmarshal(raw, &saved); err != nil {
			t.Fatal(err)
		}
		whole := regexp.MustCompile("^(?:" + saved.Modules + ")$") // as Python's re.fullmatch
		for _, m := range a.Modules {
			if !whole.MatchString(m) {
				t.Errorf("%s: %s does not match %s", a.Title, saved.Modules, m)
			}
		}
		for _, m := range a.Others {
			if whole.MatchString(m) {
				t.Errorf("%s: %s matches %s, too", a.Title, saved.Modules, m)
			}
		}
	}
}

// visionKinds are new adapters: on both, on the encoder alone, and on some of its matrices.
var visionKinds = []string{"all-linear,vision", "vision", "q,vision_up,vision_merger_out"}

func openVisionLoRA(t *testing.T, dir, dtype, targets string, change func(*Config)) *Trainable {
	t.Helper()
	named, err := ParseTargets(targets)
	if err != nil {
		t.Fatal(err)
	}
	return openLoRA(t, dir, dtype, func(c *Config) {
		c.LoRA.Targets = named
		if change != nil {
			change(c)
		}
	})
}

// learnSeeing takes a step on a batch and gives the log-probs before it.
func learnSeeing(t *testing.T, tr *Trainable, b Batch, number int) (lps []float64) {
	t.Helper()
	err := tr.Accumulate(b, func(o Outputs) Gradients {
		lps = o.Logprobs
		g := make([]float64, len(o.Logprobs))
		for i := range g {
			g[i] = -1 / float64(len(g)) * float64(1+i%3)
		}
		return Gradients{Logprobs: g}
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tr.Step(StepConfig{LR: .01, Beta1: .9, Beta2: .999, Eps: 1e-8, Number: number}); err != nil {
		t.Fatal(err)
	}
	return lps
}

func TestNewAdaptersOnAnEncoderChangeNothingAndTheBaseIsNeverMoved(t *testing.T) {
	for _, g := range visionModels(t) {
		dir := g.write(t, g.Config)
		for _, targets := range visionKinds {
			plain := openTrainableAt(t, dir, Config{DType: "float32", Threads: 1})
			tr := openVisionLoRA(t, dir, "float32", targets, nil)
			b := g.batch(tr.model.Vision, 2, 3)
			want, err := plain.Forward(b)
			if err != nil {
				t.Fatal(err)
			}
			for number := range 3 {
				base, err := tr.Base().Forward(b)
				if err != nil || !slices.Equal(base.Logprobs, want.Logprobs) {
					t.Errorf("%s, %s, after %d steps: the base says something else than the model alone; %v", g.Title, targets, number, err)
				}
				own, err := tr.Forward(b)
				if err != nil || slices.Equal(own.Logprobs, want.Logprobs) != (number == 0) {
					t.Errorf("%s, %s, after %d steps: the adapters say what the base says, or not before the first; %v", g.Title, targets, number, err)
				}
				learnSeeing(t, tr, b, number+1)
			}
		}
	}
}

// In every family a trained adapter, saved, is merged to the base's weights plus the products, computed here
// in plain terms. A sampler that had seen the images before it adopts the adapters says what training says,
// in log-probs and as it samples.
func TestTrainedAdaptersOnAnEncoderAreMergedAndSampledWith(t *testing.T) {
	for _, g := range visionModels(t) {
		base := g.write(t, g.Config)
		for _, targets := range visionKinds {
			tr := openVisionLoRA(t, base, "float64", targets, nil)
			b := g.batch(tr.model.Vision, 2)
			q := Sequence{IDs: b.Sequences[0], Images: b.Images[0]}
			p := open(t, base, Config{DType: "float64", Threads: 1, CacheBytes: 1 << 20})
			before, err := p.LogprobsSequence(context.Background(), q)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				learnSeeing(t, tr, b, i+1)
			}
			want, err := tr.Forward(b)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			if err := tr.Save(dir, weights.F64); err != nil {
				t.Fatal(err)
			}
			compareMerged(t, tr, dir)
			saved := openTrainableAt(t, dir, Config{DType: "float64", Threads: 1})
			if o, err := saved.Forward(b); err != nil || !slices.Equal(o.Logprobs, want.Logprobs) ||
				!slices.Equal(saved.lora.Targets, tr.lora.Targets) {
				t.Errorf("%s, %s: opened again it is another model, or has targets %v; %v", g.Title, targets, saved.lora.Targets, err)
			}
			if err := p.Adopt(tr, 1); err != nil {
				t.Fatal(err)
			}
			if _, d := distance(before, want.Logprobs); d < 1e-3 {
				t.Errorf("%s, %s: training moved log-probs by %.2g only: the test shows nothing", g.Title, targets, d)
			}
			for name, x := range map[string]*Policy{"adopted": p,
				"the saved folder": open(t, dir, Config{DType: "float64", Threads: 1, CacheBytes: 1 << 20})} {
				lps, err := x.LogprobsSequence(context.Background(), q)
				if err != nil {
					t.Fatal(err)
				}
				if _, d := distance(lps, want.Logprobs); d > 1e-5 {
					t.Errorf("%s, %s, %s: log-probs differ by %.2g from the trained ones", g.Title, targets, name, d)
				}
			}
			out, err := p.SampleSequence(context.Background(), q, traj.Sampling{MaxTokens: 9}, 5)
			if err != nil {
				t.Fatal(err)
			}
			whole := append(slices.Clone(q.IDs), out.IDs...)
			again, err := tr.Forward(Batch{Sequences: [][]int32{whole}, Images: [][]Image{q.Images}, Want: wanted(whole)})
			if err != nil {
				t.Fatal(err)
			}
			for k, lp := range out.Logprobs {
				if d := math.Abs(float64(lp) - again.Logprobs[len(q.IDs)+k-1]); d > 1e-4 {
					t.Errorf("%s, %s, token %d: sampled and recomputed log-probs differ by %.2g", g.Title, targets, k, d)
				}
			}
		}
	}
}

// compareMerged holds the tensors of a saved adapter to the base's and the products of the pairs in training.
func compareMerged(t *testing.T, tr *Trainable, dir string) {
	t.Helper()
	m, err := weights.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	low := map[string]*pair{}
	for _, p := range tr.lora.pairs {
		low[p.weight.name] = p
	}
	changed := 0
	for _, name := range m.Names() {
		x, err := m.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		from, err := m.Base().Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		got, want := float64sOf(t, x), float64sOf(t, from)
		if p, ok := low[name]; ok {
			changed++
			a, b := values(t, tr, p.a), values(t, tr, p.b)
			in, rank := int(p.shapes[0][1]), tr.lora.Rank
			for k := range want {
				for r := range rank {
					want[k] += tr.lora.Scale() * b[k/in*rank+r] * a[r*in+k%in]
				}
			}
		}
		if d := largestDifference(got, want); d > 1e-6 {
			t.Errorf("%s: merged, it differs from the base plus the products by %.2g", name, d)
		}
	}
	if changed != len(low) {
		t.Errorf("%d of %d pairs change a tensor", changed, len(low))
	}
}

func TestAdaptersOnAnEncoderGoOnBitForBitFromASavedState(t *testing.T) {
	for _, g := range visionModels(t) {
		dir := g.write(t, g.Config)
		for _, dtype := range []string{"float32", "bfloat16"} {
			drop := func(c *Config) { c.LoRA.Dropout = .3 }
			path := filepath.Join(t.TempDir(), "state.safetensors")
			a := openVisionLoRA(t, dir, dtype, "all-linear,vision", drop)
			batch := g.batch(a.model.Vision, 2)
			first := learnSeeing(t, a, batch, 1)
			learnSeeing(t, a, batch, 2)
			if err := a.SaveState(path); err != nil {
				t.Fatal(err)
			}
			want := learnSeeing(t, a, batch, 3)
			b := openVisionLoRA(t, dir, dtype, "all-linear,vision", drop)
			learnSeeing(t, b, batch, 5)
			if err := b.LoadState(path); err != nil {
				t.Fatal(err)
			}
			if got := learnSeeing(t, b, batch, 3); !slices.Equal(got, want) || slices.Equal(got, first) {
				t.Errorf("%s, %s: after loading the third step gives other log-probs than without the interruption", g.Title, dtype)
			}
			for i, p := range a.opt.trained {
				if x, y := values(t, a, *p.tensor), values(t, b, *b.opt.trained[i].tensor); !slices.Equal(x, y) {
					t.Fatalf("%s, %s: %s differs", g.Title, dtype, p.parts[0].name)
				}
			}
			if err := openVisionLoRA(t, dir, dtype, "all-linear", drop).LoadState(path); !errors.Is(err, ErrOtherModel) {
				t.Errorf("%s: adapters on text alone took the state: %v", dtype, err)
			}
		}
	}
}

// Dropout on the encoder acts in Accumulate alone, alike with layers computed again; two images of one pass
// drop other inputs.
func TestDropoutOnAnEncoderIsOfTheMicroBatchAndTheImage(t *testing.T) {
	for _, g := range visionModels(t) {
		dir := g.write(t, g.Config)
		var lps, grads = [2][]float64{}, [2]map[string][]float64{}
		for i, checkpoint := range []bool{false, true} {
			tr := openVisionLoRA(t, dir, "float64", "vision", func(c *Config) { c.LoRA.Dropout, c.GradCheckpoint = .5, checkpoint })
			b := g.batch(tr.model.Vision, 2)
			learnSeeing(t, tr, b, 1) // B is 0 before
			plain, err := tr.Forward(b)
			if err != nil {
				t.Fatal(err)
			}
			ahead, err := tr.Rehearse(b, 1)
			if err != nil {
				t.Fatal(err)
			}
			var of [2][]float64
			for k := range of {
				err := tr.Accumulate(b, func(o Outputs) Gradients {
					of[k] = o.Logprobs
					return Gradients{Logprobs: slices.Repeat([]float64{1}, len(o.Logprobs))}
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			if slices.Equal(of[0], of[1]) || slices.Equal(of[0], plain.Logprobs) {
				t.Errorf("%s: nothing is dropped, or the same in two micro-batches", g.Title)
			}
			if !slices.Equal(of[1], ahead.Logprobs) {
				t.Errorf("%s: Rehearse drops something else", g.Title)
			}
			if again, err := tr.Forward(b); err != nil || !slices.Equal(plain.Logprobs, again.Logprobs) {
				t.Errorf("%s: Forward drops something; %v", g.Title, err)
			}
			if lps[i] = of[0]; i == 0 {
				sameImagesDropOtherInputs(t, g, tr)
			}
			if grads[i], err = tr.Gradients(); err != nil {
				t.Fatal(err)
			}
		}
		if d := farthest(grads[0], grads[1]); !(d < 1e-11) || !slices.Equal(lps[0], lps[1]) {
			t.Errorf("%s: with layers computed again gradients differ by %.2g of the largest, or the log-probs do", g.Title, d)
		}
	}
}

// sameImagesDropOtherInputs holds the features of one image as the first and the second of a pass to each other.
func sameImagesDropOtherInputs(t *testing.T, g visionGolden, tr *Trainable) {
	t.Helper()
	v := tr.model.Vision
	grid := [3]int{1, 2, 2}
	twice := []Image{pictureOf(v, 0, grid, "same"), pictureOf(v, 1, grid, "same")}
	twice[1].Key = [32]byte{1} // other pixels, as far as the pass knows
	err := tr.worker.Do(func(s *torch.Scope) error {
		n := tr.cast(s, tr.lora.call(0, 0))
		seen, err := tr.see(s, n, &Pack{images: twice}, true)
		if err == nil && slices.Equal(s.Float64s(seen[0].main), s.Float64s(seen[1].main)) {
			t.Errorf("%s: both images of a pass drop the same", g.Title)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A batch of text alone gives adapters on the encoder no gradient: such a step changes nothing, and a run that
// begins with one is refused.
func TestTextAloneLeavesAdaptersOnTheEncoderAsTheyAre(t *testing.T) {
	g := visionModels(t)[0]
	dir := g.write(t, g.Config)
	for _, checkpoint := range []bool{false, true} {
		tr := openVisionLoRA(t, dir, "float32", "vision", func(c *Config) { c.GradCheckpoint = checkpoint })
		text, seeing := g.batch(tr.model.Vision, 0), g.batch(tr.model.Vision, 2)
		loss := func(o Outputs) Gradients { return Gradients{Logprobs: slices.Repeat([]float64{-1}, len(o.Logprobs))} }
		if err := tr.Accumulate(text, loss); err != nil {
			t.Fatal(err)
		}
		how := StepConfig{LR: .01, Beta1: .9, Beta2: .999, Eps: 1e-8, Number: 1}
		if _, err := tr.Step(how); err == nil || !settingtest.Names(err, setting.Name("LoRA.Targets")) {
			t.Errorf("checkpointed %v: a run without images begins: %v", checkpoint, err)
		}
		learnSeeing(t, tr, seeing, 1)
		before, err := tr.Forward(seeing)
		if err != nil {
			t.Fatal(err)
		}
		if err := tr.Accumulate(text, loss); err != nil {
			t.Fatal(err)
		}
		norm, err := tr.Step(how)
		after, err2 := tr.Forward(seeing)
		if err != nil || err2 != nil || norm != 0 || !slices.Equal(before.Logprobs, after.Logprobs) {
			t.Errorf("checkpointed %v: a step of text alone has norm %v, or changes something; %v, %v", checkpoint, norm, err, err2)
		}
	}
}

func TestAdaptersOnAnEncoderThatDoNotFitAreRefusedInOneLine(t *testing.T) {
	a := visionAdapters(t)[0]
	const qkv = peftPrefix + "model.visual.blocks.1.attn.qkv.lora_"
	is := func(kind malformed.Kind) func(error) bool {
		return func(err error) bool {
			return errors.Is(err, kind) && strings.HasPrefix(malformed.Facts(err).Field, "tensor ")
		}
	}
	names := func(n setting.Name) func(error) bool {
		return func(err error) bool { return settingtest.Names(err, n) }
	}
	refused := func(what, dir string, c Config, is func(error) bool) {
		t.Helper()
		c.DType, c.Threads = "float32", 1
		tr, err := OpenTrainable(dir, c)
		if err == nil {
			tr.Close()
		}
		if err == nil || !is(err) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v", what, err)
		}
	}
	for name, tt := range map[string]struct {
		change func(*visionAdapter)
		c      Config
		is     func(error) bool
	}{
		"another shape": {func(x *visionAdapter) { x.Tensors[qkv+"A.weight"] = []int64{2, 5} }, Config{}, is(malformed.Mismatch)},
		"another rank":  {func(x *visionAdapter) { x.Config["r"] = 3 }, Config{}, is(malformed.Mismatch)},
		"no B":          {func(x *visionAdapter) { delete(x.Tensors, qkv+"B.weight") }, Config{}, is(malformed.Missing)},
		"no A":          {func(x *visionAdapter) { delete(x.Tensors, qkv+"A.weight") }, Config{}, is(malformed.Missing)},
		"some blocks": {func(x *visionAdapter) { delete(x.Tensors, qkv+"A.weight"); delete(x.Tensors, qkv+"B.weight") }, Config{},
			func(err error) bool { return err != nil }},
		"the patches' convolution": {func(x *visionAdapter) {
			x.Tensors[peftPrefix+"model.visual.patch_embed.proj.lora_A.weight"] = []int64{2, 3, 2, 4, 4}
		}, Config{}, is(malformed.Mismatch)},
		"one tensor by two names": {func(x *visionAdapter) {
			x.Tensors[asOfTransformers4(qkv+"A.weight")] = x.Tensors[qkv+"A.weight"]
		}, Config{}, is(malformed.Mismatch)},
		"other targets":       {func(*visionAdapter) {}, Config{LoRA: LoRA{Targets: []string{weights.VisionQKV}}}, names("LoRA.Targets")},
		"the encoder trained": {func(*visionAdapter) {}, Config{Vision: VisionAll}, names("Vision")},
	} {
		x := a.clone()
		tt.change(&x)
		dir := x.write(t, asSaved)
		refused(name, dir, tt.c, tt.is)
	}
	seeing := func(targets string, v VisionTraining) Config {
		named, err := ParseTargets(targets)
		if err != nil {
			t.Fatal(err)
		}
		return Config{LoRA: LoRA{Rank: 2, Targets: named}, Vision: v}
	}
	refused("a model without an encoder", "testdata/tiny-llama", seeing("all-linear,vision", ""), names("LoRA.Targets"))
	refused("one matrix of a model without an encoder", "testdata/tiny-llama", seeing("vision_qkv", ""), names("LoRA.Targets"))
	g := visionModel(t, "qwen2_vl")
	dir := g.write(t, g.Config)
	refused("a gate in an MLP without", dir, seeing("vision_gate", ""), names("LoRA.Targets"))
	refused("the merger trained beside adapters", dir, seeing("vision", VisionMerger), names("Vision"))
	refused("the encoder trained beside adapters on text", dir, seeing("all-linear", VisionAll), names("Vision"))
}

func TestVisionIsEveryLinearLayerOfTheEncoder(t *testing.T) {
	for text, want := range map[string][]string{
		"vision":                weights.VisionTargets(),
		"all-linear,vision":     append(weights.AllLoRATargets(), weights.VisionTargets()...),
		"vision_proj, q_proj":   {"q", weights.VisionProj},
		"vision,experts":        append(weights.ExpertTargets(), weights.VisionTargets()...),
		"vision_up,vision,down": append([]string{"down"}, weights.VisionTargets()...),
	} {
		if got, err := ParseTargets(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v; %v", text, got, want, err)
		}
	}
	if got, err := ParseTargets("vision_o"); err == nil {
		t.Errorf("vision_o is %v", got)
	}
	for _, g := range visionModels(t) {
		dir := g.write(t, g.Config)
		tr := openVisionLoRA(t, dir, "float32", "vision", nil)
		linear := map[string]bool{}
		for _, x := range tr.model.Vision.Tensors() {
			if len(x.Shape) == 2 && x.Name != arch.VisionPosition {
				linear[x.Name] = true
			}
		}
		if n := len(tr.lora.pairs); n != len(linear) {
			t.Errorf("%s: %d pairs, the encoder has %d linear layers", g.Title, n, len(linear))
		}
		for _, p := range tr.lora.pairs {
			if !linear[p.weight.name] {
				t.Errorf("%s: a pair on %s", g.Title, p.weight.name)
			}
		}
	}
}

func bytesOf(values []float32) (out []byte) {
	for _, x := range values {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(x))
	}
	return out
}
