//go:build libtorch

package policy

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentcli/model/arch"
	"agentcli/model/arch/archtest"
	"agentcli/model/weights"
	"agentcli/traj"
)

// familyGolden is a model of archtest that can be written into a folder.
type familyGolden struct{ archtest.Model }

func families(t *testing.T) (out []familyGolden) {
	t.Helper()
	for _, m := range archtest.Models(t) {
		out = append(out, familyGolden{m})
	}
	return out
}

// write makes the model's folder, with the tokenizer of another.
func (g familyGolden) write(t testing.TB) string {
	t.Helper()
	return g.writeAs(t, func(name string) string { return name })
}

// writeAs is write with other names of the tensors.
func (g familyGolden) writeAs(t testing.TB, stored func(name string) string) string {
	t.Helper()
	dir, c := g.describe(t)
	infos := slices.DeleteFunc(c.Tensors(), func(i weights.TensorInfo) bool { return c.Tied && i.Name == arch.Head })
	named := slices.Clone(infos)
	for k := range named {
		named[k].Name = stored(named[k].Name)
	}
	eye := weights.TensorInfo{Name: "vision_tower.patch.weight", DType: weights.F32, Shape: []int64{3}}
	if c.Multimodal != "" {
		named = append(named, eye)
	}
	w, err := weights.CreateSafetensors(filepath.Join(dir, "model.safetensors"), named, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.Multimodal != "" {
		if err := w.Write(eye.Name, make([]byte, 12)); err != nil {
			t.Fatal(err)
		}
	}
	for _, i := range infos {
		if err := w.Write(stored(i.Name), archtest.Draw(i.Name, i.Shape)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// describe makes the model's folder but for its weights.
func (g familyGolden) describe(t testing.TB) (dir string, c weights.Config) {
	t.Helper()
	dir = t.TempDir()
	files := map[string][]byte{"config.json": g.Config}
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		data, err := os.ReadFile(filepath.Join("testdata/tiny-llama", name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = data
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := weights.ReadConfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir, c
}

// writeRandom makes the model's folder with the random weights of model init.
func (g familyGolden) writeRandom(t testing.TB) string {
	t.Helper()
	dir, c := g.describe(t)
	if err := weights.WriteRandom(filepath.Join(dir, "model.safetensors"), c, 1, weights.F32); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Log-probs, greedy replies through the cache, and gradients of every family, against
// transformers.
func TestEveryFamilyComputesWhatTransformersDoes(t *testing.T) {
	seen := map[string]bool{}
	for _, g := range families(t) {
		t.Run(g.Title, func(t *testing.T) {
			dir := g.write(t)
			for _, dtype := range []string{"float32", "float64"} {
				p := open(t, dir, Config{DType: dtype, Threads: 1, CacheBytes: 1 << 20})
				seen[p.model.Architecture] = true
				for _, w := range g.Logprobs {
					if w.DType == dtype {
						sameLogprobs(t, dir, p, w)
					}
				}
				zero := 0.0
				out, err := EngineOf(p).Ask(context.Background(), &Request{Prompt: Sequence{IDs: g.Prompt}, Seed: 1, IgnoreEnd: true,
					Sampling: traj.Sampling{Temperature: &zero, MaxTokens: len(g.Greedy)}})
				if err != nil {
					t.Fatal(err)
				}
				want := g.Greedy[:min(64, p.cfg.MaxContext-len(g.Prompt))] // transformers goes on behind the window
				if !slices.Equal(out.IDs, want) {
					t.Errorf("%s: greedy ids %v, transformers gives %v", dtype, out.IDs, want)
				}
			}
			g.sameGradient(t, dir)
		})
	}
	for _, name := range arch.Names() {
		if !seen[name] && !arch.TakesImages(name) { // those are in vision_test.go
			t.Errorf("no model of the family %s was compared", name)
		}
	}
}

// Rounding to bfloat16 moves no family's log-probs further than it moves transformers'. The median
// shows what the mean hides where one expert that is chosen otherwise outweighs all rounding.
func TestBFloat16IsAsNearToFloat32AsTransformersIs(t *testing.T) {
	all := archtest.InBFloat16(t)
	models := map[string]familyGolden{}
	for _, g := range families(t) {
		models[g.Title] = g
	}
	for _, want := range all.Models {
		g, ok := models[want.Title]
		if !ok {
			t.Errorf("there is no model %q", want.Title)
			continue
		}
		dir := g.write(t)
		of := func(dtype string) (out []float64) {
			p := open(t, dir, Config{DType: dtype, Threads: 1, CacheBytes: 1 << 20})
			lps, err := p.Logprobs(context.Background(), all.IDs)
			if err != nil {
				t.Fatal(err)
			}
			for _, lp := range lps {
				for _, x := range lp {
					out = append(out, float64(x))
				}
			}
			return out
		}
		wide, narrow := of("float32"), of("bfloat16")
		off, mean := make([]float64, len(wide)), 0.0
		for i := range wide {
			off[i] = math.Abs(narrow[i] - wide[i])
			mean += off[i] / float64(len(wide))
		}
		slices.Sort(off)
		median := off[len(off)/2]
		t.Logf("%-50s mean %.2f, median %.2f of transformers'", want.Title, mean/want.Mean, median/want.Median)
		if median > 1.5*want.Median || mean > 1.5*want.Mean {
			t.Errorf("%s: log-probs in bfloat16 are %.2g from float32 on average (median %.2g), transformers' %.2g (%.2g)",
				want.Title, mean, median, want.Mean, want.Median)
		}
	}
	if len(all.Models) != len(models) {
		t.Errorf("%d models were compared, there are %d", len(all.Models), len(models))
	}
}

func sameLogprobs(t *testing.T, dir string, p *Policy, w archtest.Logprobs) {
	t.Helper()
	if len(w.IDs) > p.cfg.MaxContext { // beyond what its rotary embedding was trained on: a table of its own
		p = open(t, dir, Config{DType: w.DType, Threads: 1, CacheBytes: 1 << 20, MaxContext: len(w.IDs)})
	}
	got, err := p.Logprobs(context.Background(), [][]int32{w.IDs})
	if err != nil {
		t.Fatal(err)
	}
	// transformers rotates in float32 whatever the model's type.
	if mean, worst := distance(got[0], w.Logprobs); mean > 2e-6 || worst > 5e-5 {
		t.Errorf("%s, %d tokens: log-probs differ by %.2g on average, %.2g at most", w.DType, len(w.IDs), mean, worst)
	}
}

func (g familyGolden) sameGradient(t *testing.T, dir string) {
	t.Helper()
	ids := g.Logprobs[1].IDs
	want := append([]bool{false}, slices.Repeat([]bool{true}, len(ids)-1)...)
	for _, checkpoint := range []bool{false, true} {
		tr, err := OpenTrainable(dir, Config{DType: "float64", Threads: 1, GradCheckpoint: checkpoint})
		if err != nil {
			t.Fatal(err)
		}
		defer tr.Close()
		err = tr.Accumulate(Batch{Sequences: [][]int32{ids}, Want: [][]bool{want}}, func(o Outputs) Gradients {
			return Gradients{Logprobs: slices.Repeat([]float64{1 / float64(len(ids)-1)}, len(o.Logprobs))}
		})
		if err != nil {
			t.Fatal(err)
		}
		whole, err := tr.Gradients()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string][]float64{} // q, k and v are one parameter here
		for _, q := range tr.opt.trained {
			rest, ok := whole[q.parts[0].name]
			if !ok { // a router's correction is not trained by gradients
				continue
			}
			for _, x := range q.parts {
				got[x.name], rest = rest[:elements(x.shape)], rest[elements(x.shape):]
			}
		}
		if len(got) != len(g.Gradient) {
			t.Errorf("gradients of %d tensors, transformers has %d", len(got), len(g.Gradient))
		}
		for name, w := range g.Gradient {
			v, norm := got[name], 0.0
			for _, x := range v {
				norm += x * x
			}
			if norm = math.Sqrt(norm); math.Abs(norm-w.Norm) > 1e-4*w.Norm {
				t.Errorf("checkpointed %v, %s: the gradient's norm is %v, transformers has %v", checkpoint, name, norm, w.Norm)
				continue
			}
			for k, at := range w.At {
				if math.Abs(v[at]-w.Values[k]) > 1e-4*w.Norm {
					t.Errorf("checkpointed %v, %s[%d]: %v, transformers has %v", checkpoint, name, at, v[at], w.Values[k])
				}
			}
		}
	}
}

// Adapters are trained beside the matrices that a family has, saved in PEFT's layout, and
// merged when the folder is opened.
func TestEveryFamilyTrainsAdapters(t *testing.T) {
	seen := map[string]bool{}
	for _, g := range families(t) {
		dir := g.write(t)
		c, err := weights.ReadConfig(dir)
		if err != nil {
			t.Fatal(err)
		}
		if seen[c.Architecture] {
			continue
		}
		seen[c.Architecture] = true
		tr := openLoRA(t, dir, "float64", nil)
		want := learn(t, tr, 1)
		out := t.TempDir()
		if err := tr.Save(out, weights.F32); err != nil {
			t.Fatal(err)
		}
		p := open(t, out, Config{DType: "float64", Threads: 1, CacheBytes: 1 << 20})
		lps, err := p.Logprobs(context.Background(), [][]int32{{5, 6, 7, 8, 9}, {5, 6, 20, 21}})
		if err != nil {
			t.Fatal(err)
		}
		got := append(lps[0][1:], lps[1][1:]...)
		if _, worst := distance(got, want); len(got) != len(want) || worst > 1e-5 {
			t.Errorf("%s: the saved adapter's log-probs are %v, the trained one's %v", g.Title, got, want)
		}
		if n := len(tr.lora.Targets); n != len(c.LoRATargets()) || n < 4 {
			t.Errorf("%s: the adapter changes %v only", g.Title, tr.lora.Targets)
		}
	}
}

// The language model of a multimodal checkpoint is that of the same numbers alone, under
// all names that transformers has given its tensors, and is saved as a model of text.
func TestAMultimodalModelOpensAsItsLanguageModel(t *testing.T) {
	for _, g := range families(t) {
		if !slices.Contains([]string{"gemma3", "gemma4 with all of it, untied", "mistral", "qwen3", "qwen3_5"}, g.Title) {
			continue
		}
		var text map[string]json.RawMessage
		if err := json.Unmarshal(g.Config, &text); err != nil {
			t.Fatal(err)
		}
		whole := map[string]any{"model_type": "seeing", "architectures": []string{"SeeingForConditionalGeneration"}, "text_config": text,
			"vision_config": map[string]any{"hidden_size": 3}, "image_token_index": 7, "eos_token_id": text["eos_token_id"]}
		delete(text, "eos_token_id")
		config, err := json.Marshal(whole)
		if err != nil {
			t.Fatal(err)
		}
		g.Config = config
		for _, stored := range []func(string) string{
			func(name string) string { // gemma3 since transformers 4.52
				if name == arch.Head {
					return name
				}
				return "model.language_model." + strings.TrimPrefix(name, "model.")
			},
			func(name string) string { return "language_model." + name },
		} {
			dir := g.writeAs(t, stored)
			p := open(t, dir, Config{DType: "float32", Threads: 1, CacheBytes: 1 << 20})
			if p.Multimodal() != "seeing" || !slices.Equal(p.model.EOS, []int32{2}) {
				t.Errorf("%s: multimodal %q, ends with %v", g.Title, p.Multimodal(), p.model.EOS)
			}
			sameLogprobs(t, dir, p, g.Logprobs[1])
			tr, err := OpenTrainable(dir, Config{DType: "float32", Threads: 1})
			if err != nil {
				t.Fatal(err)
			}
			out := t.TempDir()
			if err := tr.Save(out, weights.F32); err != nil {
				t.Fatal(err)
			}
			tr.Close()
			saved := open(t, out, Config{DType: "float32", Threads: 1, CacheBytes: 1 << 20})
			if saved.Multimodal() != "" {
				t.Errorf("%s: saved as %q", g.Title, saved.Multimodal())
			}
			sameLogprobs(t, out, saved, g.Logprobs[1])
		}
	}
}

// all-linear is every matrix that the model has; a name that it lacks, and another choice
// than an adapter's own, are refused.
func TestTargetsOfAdaptersAreThoseOfTheModel(t *testing.T) {
	all, err := ParseTargets("all-linear")
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range families(t) {
		if g.Title != "phi3" {
			continue
		}
		dir := g.write(t)
		tr := openLoRA(t, dir, "float32", func(c *Config) { c.LoRA.Targets = all })
		if want := []string{"qkv", "o", "gate_up", "down"}; !slices.Equal(tr.lora.Targets, want) {
			t.Errorf("all-linear is %v, want %v", tr.lora.Targets, want)
		}
		if _, err := OpenTrainable(dir, Config{DType: "float32", Threads: 1, LoRA: LoRA{Rank: 2, Targets: []string{"q"}}}); err == nil {
			t.Error("an adapter on a matrix that is not there")
		}
		few := openLoRA(t, dir, "float32", func(c *Config) { c.LoRA.Targets = []string{"o"} })
		out := t.TempDir()
		if err := few.Save(out, weights.F32); err != nil {
			t.Fatal(err)
		}
		var merge *weights.MergeFirstError
		if _, err := OpenTrainable(out, Config{DType: "float32", Threads: 1, LoRA: LoRA{Rank: 3, Targets: all}}); !errors.As(err, &merge) {
			t.Errorf("an adapter on o goes on with all-linear: %v", err)
		}
	}
}

// A packed tree gives the log-probs and gradients of its sequences computed one by one, in every
// family, whether layers are computed again in backward or not.
func TestATreeOfEveryFamilyIsItsSequences(t *testing.T) {
	seqs := [][]int32{{5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
		{5, 6, 7, 8, 20, 21, 22, 23, 24, 25, 26, 27, 28}, {5, 6, 7, 8, 9, 10, 30, 31}, {40, 41}}
	for _, g := range families(t) {
		t.Run(g.Title, func(t *testing.T) {
			dir := g.write(t)
			compute := func(checkpoint bool, batches ...[][]int32) (lps []float64, grads map[string][]float64) {
				tr, err := OpenTrainable(dir, Config{DType: "float64", Threads: 1, GradCheckpoint: checkpoint})
				if err != nil {
					t.Fatal(err)
				}
				defer tr.Close()
				for _, seqs := range batches {
					b := Batch{Sequences: seqs}
					for _, q := range seqs {
						b.Want = append(b.Want, append([]bool{false}, slices.Repeat([]bool{true}, len(q)-1)...))
					}
					if err := tr.Accumulate(b, func(o Outputs) Gradients {
						lps = append(lps, o.Logprobs...)
						return Gradients{Logprobs: slices.Repeat([]float64{1}, len(o.Logprobs))}
					}); err != nil {
						t.Fatal(err)
					}
				}
				if grads, err = tr.Gradients(); err != nil {
					t.Fatal(err)
				}
				return lps, grads
			}
			want, wantGrads := compute(false, seqs[:1], seqs[1:2], seqs[2:3], seqs[3:])
			for _, checkpoint := range []bool{false, true} {
				got, grads := compute(checkpoint, seqs)
				if worst := largestDifference(got, want); worst > 1e-12 {
					t.Errorf("checkpointed %v: log-probs differ by %v", checkpoint, worst)
				}
				if len(grads) != len(wantGrads) {
					t.Errorf("checkpointed %v: %d gradients, want %d", checkpoint, len(grads), len(wantGrads))
				}
				for name, w := range wantGrads {
					norm := 0.0
					for _, x := range w {
						norm += x * x
					}
					if worst := largestDifference(grads[name], w); worst > 1e-12*max(1, math.Sqrt(norm)) {
						t.Errorf("checkpointed %v: the gradient of %s differs by %v of %v", checkpoint, name, worst, math.Sqrt(norm))
					}
				}
			}
		})
	}
}

// largestDifference is the largest difference of two lists; infinite where their lengths differ.
func largestDifference(got, want []float64) (worst float64) {
	if len(got) != len(want) {
		return math.Inf(1)
	}
	for i := range want {
		worst = max(worst, math.Abs(got[i]-want[i]))
	}
	return worst
}
