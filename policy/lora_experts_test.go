//go:build libtorch

package policy

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentcli/internal/goldenfile"
	"agentcli/internal/malformed"
	"agentcli/internal/setting"
	"agentcli/internal/setting/settingtest"
	"agentcli/internal/torch/testdevice"
	"agentcli/model/arch"
	"agentcli/model/arch/archtest"
	"agentcli/model/weights"
	"agentcli/traj"
)

const peftPrefix = "base_model.model."

// expertsAdapter is an adapter that PEFT saved, whose tensors are drawn by their names, over a model of
// archtest, and what PEFT says of it (scripts/golden/lora_experts.py).
type expertsAdapter struct {
	Title    string
	Config   map[string]any // adapter_config.json
	Tensors  map[string][]int64
	IDs      []int32
	Logprobs []float64
	Gradient map[string]archtest.Gradient
}

func expertsAdapters(t *testing.T) (out []expertsAdapter) {
	t.Helper()
	goldenfile.Load(t, "lora-experts.json.gz", &out)
	return out
}

func familyNamed(t *testing.T, title string) familyGolden {
	t.Helper()
	for _, g := range families(t) {
		if g.Title == title {
			return g
		}
	}
	t.Fatalf("no model %s", title)
	return familyGolden{}
}

// write makes the folders of the base and of the adapter, and gives the latter.
func (a expertsAdapter) write(t *testing.T) string {
	t.Helper()
	return peftAdapter{a.Config, a.Tensors, archtest.Draw, asSaved}.write(t, familyNamed(t, a.Title).write(t))
}

func wantRest(ids []int32) Batch {
	return Batch{Sequences: [][]int32{ids}, Want: wantAll([][]int32{ids})}
}

// Merged and beside the weights, layers computed again or not, an adapter on experts gives the log-probs
// and the gradients that PEFT gives.
func TestAnAdapterOfPEFTOnExpertsGivesPEFTsLogprobsAndGradients(t *testing.T) {
	for _, a := range expertsAdapters(t) {
		t.Run(a.Title, func(t *testing.T) {
			dir := a.write(t)
			p := open(t, dir, Config{DType: "float64", Threads: 1, CacheBytes: 1 << 20})
			merged, err := p.Logprobs(context.Background(), [][]int32{a.IDs})
			if err != nil {
				t.Fatal(err)
			}
			if _, worst := distance(merged[0], a.Logprobs); len(merged[0]) != len(a.Logprobs) || worst > 1e-4 {
				t.Errorf("merged: log-probs differ by %.2g", worst)
			}
			for _, checkpoint := range []bool{false, true} {
				tr := openTrainableAt(t, dir, Config{DType: "float64", Threads: 1, GradCheckpoint: checkpoint})
				var lps []float64
				err = tr.Accumulate(wantRest(a.IDs), func(o Outputs) Gradients {
					lps = o.Logprobs
					return Gradients{Logprobs: slices.Repeat([]float64{1 / float64(len(lps))}, len(lps))}
				})
				if err != nil {
					t.Fatal(err)
				}
				if d := largestDifference(lps, a.Logprobs); d > 1e-5 {
					t.Errorf("beside, checkpointed %v: log-probs differ by %.2g", checkpoint, d)
				}
				got, err := tr.Gradients()
				if err != nil {
					t.Fatal(err)
				}
				if len(got) != len(a.Gradient) || len(got) != len(a.Tensors) {
					t.Errorf("checkpointed %v: gradients of %d tensors, PEFT has %d", checkpoint, len(got), len(a.Gradient))
				}
				for name, w := range a.Gradient {
					v := got[strings.TrimPrefix(name, peftPrefix)]
					norm := 0.0
					for _, x := range v {
						norm += x * x
					}
					if norm = math.Sqrt(norm); math.Abs(norm-w.Norm) > 1e-4*w.Norm {
						t.Errorf("checkpointed %v, %s: the gradient's norm is %v, PEFT has %v", checkpoint, name, norm, w.Norm)
						continue
					}
					for k, at := range w.At {
						if math.Abs(v[at]-w.Values[k]) > 1e-4*w.Norm {
							t.Errorf("checkpointed %v, %s[%d]: %v, PEFT has %v", checkpoint, name, at, v[at], w.Values[k])
						}
					}
				}
			}
		})
	}
}

// What is opened and saved again has PEFT's names, shapes, values and configuration.
func TestAnAdapterOnExpertsIsSavedInPEFTsLayout(t *testing.T) {
	for _, a := range expertsAdapters(t) {
		dir := a.write(t)
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
			if !ok || !slices.Equal(x.Shape, shape) || !slices.Equal(x.Data, archtest.Draw(name, shape)) {
				t.Errorf("%s: %s has shape %v, PEFT's %v, or another value", a.Title, name, x.Shape, shape)
			}
		}
		f.Close()
		raw, err := os.ReadFile(filepath.Join(out, "adapter_config.json"))
		if err != nil {
			t.Fatal(err)
		}
		var saved struct {
			Modules    []string `json:"target_modules"`
			Parameters []string `json:"target_parameters"`
		}
		if err := json.Unmarshal(raw, &saved); err != nil {
			t.Fatal(err)
		}
		// PEFT takes the end of a parameter's name, ours is its name in the layer.
		same := len(saved.Parameters) == len(a.Config["target_parameters"].([]any)) && saved.Modules != nil &&
			len(saved.Modules) == len(a.Config["target_modules"].([]any))
		for _, p := range a.Config["target_parameters"].([]any) {
			end := "." + p.(string)
			same = same && slices.ContainsFunc(saved.Parameters, func(s string) bool { return strings.HasSuffix("."+s, end) })
		}
		for _, m := range a.Config["target_modules"].([]any) {
			same = same && slices.Contains(saved.Modules, m.(string))
		}
		if !same {
			t.Errorf("%s: saved with %+v, PEFT with %v and %v", a.Title, saved, a.Config["target_modules"], a.Config["target_parameters"])
		}
	}
}

func openExperts(t *testing.T, dir, dtype string, change func(*Config)) *Trainable {
	t.Helper()
	targets, err := ParseTargets("all-linear,experts")
	if err != nil {
		t.Fatal(err)
	}
	return openLoRA(t, dir, dtype, func(c *Config) {
		c.LoRA.Targets = targets
		if change != nil {
			change(c)
		}
	})
}

// In every family with experts a trained adapter, saved, is merged to the base's weights plus the products,
// computed here in plain terms; a sampler that adopts it in memory says what the folder does.
func TestTrainedAdaptersOnExpertsAreMergedToBasePlusProducts(t *testing.T) {
	withExperts(t, func(t *testing.T, g familyGolden, base string) {
		tr := openExperts(t, base, "float64", nil)
		for i := range 3 {
			learn(t, tr, i+1)
		}
		want, err := tr.Forward(headBatch())
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if err := tr.Save(dir, weights.F64); err != nil {
			t.Fatal(err)
		}
		m, err := weights.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		c, _ := m.Adapter()
		if !slices.Equal(c.Targets, tr.lora.Targets) || !slices.Contains(c.Targets, weights.ExpertsDown) {
			t.Errorf("trained %v, read %v", tr.lora.Targets, c.Targets)
		}
		changed := 0
		for _, p := range weights.ExpertPairs(m.Config(), c.Targets) {
			a, okA := m.Low(p.A)
			b, okB := m.Low(p.B)
			if !okA || !okB {
				t.Fatalf("no %s", p.A)
			}
			av, bv := float64sOf(t, a), float64sOf(t, b)
			product := func(e, o, i int) (sum float64) {
				for r := range c.Rank {
					sum += bv[o*c.Rank*p.Count+r*p.Count+e] * av[(e*c.Rank+r)*p.In+i]
				}
				return c.Scale() * sum
			}
			compare := func(name string, at func(k int) float64) {
				w, err := m.Base().Tensor(name)
				if err != nil {
					t.Fatal(err)
				}
				x, err := m.Tensor(name)
				if err != nil {
					t.Fatal(err)
				}
				got, before := float64sOf(t, x), float64sOf(t, w)
				for k := range got {
					if math.Abs(got[k]-before[k]-at(k)) > 1e-6 {
						t.Fatalf("%s[%d] is %v, want %v + %v", name, k, got[k], before[k], at(k))
					}
					if at(k) != 0 {
						changed++
					}
				}
			}
			prefix, e := arch.LayerPrefix(p.Layer), m.Config().Layers[p.Layer].Experts
			switch {
			case e.Clamped != nil:
				compare(prefix+p.Module+"."+p.Parameter, func(k int) float64 { return product(k/p.In/p.Out, k%p.Out, k/p.Out%p.In) })
			case e.Beside != nil:
				compare(prefix+p.Module+"."+p.Parameter, func(k int) float64 { return product(k/p.In/p.Out, k/p.In%p.Out, k%p.In) })
			default:
				for n := range p.Count {
					if p.Target == weights.ExpertsDown {
						compare(prefix+e.Expert(n).Down()+".weight", func(k int) float64 { return product(n, k/p.In, k%p.In) })
						continue
					}
					compare(prefix+e.Expert(n).Gate()+".weight", func(k int) float64 { return product(n, k/p.In, k%p.In) })
					compare(prefix+e.Expert(n).Up()+".weight", func(k int) float64 { return product(n, e.Size+k/p.In, k%p.In) })
				}
			}
		}
		if changed == 0 {
			t.Error("no expert was changed")
		}
		saved := openTrainableAt(t, dir, Config{DType: "float64", Threads: 1})
		if o, err := saved.Forward(headBatch()); err != nil || !slices.Equal(o.Logprobs, want.Logprobs) {
			t.Errorf("opened again: %v, trained %v; %v", o.Logprobs, want.Logprobs, err)
		}
		p := open(t, base, Config{DType: "float64", Threads: 1, CacheBytes: 1 << 20})
		if err := p.Adopt(tr, 1); err != nil {
			t.Fatal(err)
		}
		merged := open(t, dir, Config{DType: "float64", Threads: 1, CacheBytes: 1 << 20})
		plain := open(t, base, Config{DType: "float64", Threads: 1, CacheBytes: 1 << 20})
		ids := g.Logprobs[1].IDs
		beside, err := tr.Forward(wantRest(ids))
		if err != nil {
			t.Fatal(err)
		}
		for name, x := range map[string]*Policy{"adopted": p, "the saved folder": merged, "the base": plain} {
			lps, err := x.Logprobs(context.Background(), [][]int32{ids})
			if err != nil {
				t.Fatal(err)
			}
			if _, d := distance(lps[0], beside.Logprobs); (d > 1e-5) != (x == plain) {
				t.Errorf("%s: log-probs differ by %.2g from the trained ones", name, d)
			}
		}
	})
}

func float64sOf(t *testing.T, x weights.Tensor) (out []float64) {
	t.Helper()
	x, err := x.As(weights.F32)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(x.Data); i += 4 {
		out = append(out, float64(math.Float32frombits(binary.LittleEndian.Uint32(x.Data[i:]))))
	}
	return out
}

// Packed as a tree, with other experts replayed or not, layers computed again or not, the gradients are
// those of the sequences one by one.
func TestAdaptersOnExpertsInATreeAreThoseOfItsSequences(t *testing.T) {
	testdevice.SameBits(t)
	seqs := [][]int32{{5, 6, 7, 8, 9, 10, 11, 12}, {5, 6, 7, 8, 20, 21, 22}, {5, 6, 7, 8, 9, 10, 30}}
	withExperts(t, func(t *testing.T, _ familyGolden, dir string) {
		p := open(t, dir, Config{DType: "float64", Threads: 1, CacheBytes: 1 << 20, KeepExperts: true})
		with, active := expertLayers(p.model.Layers)
		other := make([]*traj.Experts, len(seqs))
		for i, q := range seqs {
			other[i] = ask(t, p, q, 1).Experts.Head(len(q) - 1)
			for at := range other[i].IDs { // of each token the next experts, the same in shared tokens
				n := p.model.Layers[with[at/active%len(with)]].Experts.Count
				other[i].IDs[at] = (other[i].IDs[at] + 1) % uint16(n)
			}
		}
		compute := func(checkpoint, replay bool, groups ...[]int) (lps []float64, grads map[string][]float64) {
			tr := openExperts(t, dir, "float64", func(c *Config) { c.GradCheckpoint = checkpoint })
			step(t, tr, headBatch(), 1)
			for _, g := range groups {
				b := Batch{Replay: replay}
				for _, i := range g {
					b.Sequences, b.Experts = append(b.Sequences, seqs[i]), append(b.Experts, other[i])
				}
				b.Want = wantAll(b.Sequences)
				err := tr.Accumulate(b, func(o Outputs) Gradients {
					lps = append(lps, o.Logprobs...)
					return Gradients{Logprobs: slices.Repeat([]float64{1}, len(o.Logprobs))}
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			grads, err := tr.Gradients()
			if err != nil {
				t.Fatal(err)
			}
			return lps, grads
		}
		own, _ := compute(false, false, []int{0}, []int{1}, []int{2})
		for _, replay := range []bool{false, true} {
			want, wantGrads := compute(false, replay, []int{0}, []int{1}, []int{2})
			if slices.Equal(want, own) != !replay {
				t.Errorf("replay %v: the experts that are given change nothing, or are taken unasked", replay)
			}
			for _, checkpoint := range []bool{false, true} {
				lps, grads := compute(checkpoint, replay, []int{0, 1, 2})
				if d := largestDifference(lps, want); d > 1e-11 {
					t.Errorf("replay %v, checkpointed %v: log-probs differ by %v", replay, checkpoint, d)
				}
				if d := farthest(wantGrads, grads); !(d < 1e-10) || len(grads) != len(wantGrads) {
					t.Errorf("replay %v, checkpointed %v: gradients differ by %v of the largest", replay, checkpoint, d)
				}
			}
		}
	})
}

// With adapters on experts alone the first layer may have none; checkpoints then end before it.
func TestAdaptersOnExpertsAloneAreTrainedWithCheckpoints(t *testing.T) {
	withExperts(t, func(t *testing.T, _ familyGolden, dir string) {
		var grads [2]map[string][]float64
		for i, checkpoint := range []bool{false, true} {
			tr := openLoRA(t, dir, "float64", func(c *Config) { c.LoRA.Targets, c.GradCheckpoint = weights.ExpertTargets(), checkpoint })
			step(t, tr, headBatch(), 1)
			grads[i] = gradientOf(t, tr, headBatch())
		}
		if d := farthest(grads[0], grads[1]); !(d < 1e-11) || len(grads[0]) != len(grads[1]) {
			t.Errorf("gradients differ by %v of the largest", d)
		}
	})
}

// In the types that are trained in, adapters on experts learn, and go on bit for bit from a saved state.
func TestAdaptersOnExpertsGoOnBitForBitFromASavedState(t *testing.T) {
	testdevice.SameBits(t)
	withExperts(t, func(t *testing.T, _ familyGolden, dir string) {
		for _, dtype := range []string{"float32", "bfloat16"} {
			path := filepath.Join(t.TempDir(), "state.safetensors")
			a := openExperts(t, dir, dtype, nil)
			first := learn(t, a, 1)
			learn(t, a, 2)
			if err := a.SaveState(path); err != nil {
				t.Fatal(err)
			}
			want := learn(t, a, 3)
			b := openExperts(t, dir, dtype, nil)
			learn(t, b, 5)
			if err := b.LoadState(path); err != nil {
				t.Fatal(err)
			}
			if got := learn(t, b, 3); !slices.Equal(got, want) || slices.Equal(got, first) {
				t.Errorf("%s: after loading the third step gives %v, without the interruption %v, the first gave %v", dtype, got, want, first)
			}
			if err := openLoRA(t, dir, dtype, nil).LoadState(path); !errors.Is(err, ErrOtherModel) {
				t.Errorf("%s: adapters without experts took the state: %v", dtype, err)
			}
		}
	})
}

func TestAdaptersOnExpertsThatDoNotFitAreRefusedInOneLine(t *testing.T) {
	var a expertsAdapter
	for _, x := range expertsAdapters(t) {
		if len(a.Tensors) < len(x.Tensors) && x.Title == "qwen3_moe" {
			a = x
		}
	}
	const gateUp = peftPrefix + "model.layers.1.mlp.experts.base_layer.lora_"
	is := func(kind malformed.Kind, field string) func(error) bool {
		return func(err error) bool {
			return errors.Is(err, kind) && strings.HasPrefix(malformed.Facts(err).Field, field)
		}
	}
	names := func(n setting.Name) func(error) bool {
		return func(err error) bool { return settingtest.Names(err, n) }
	}
	for name, tt := range map[string]struct {
		change func(*expertsAdapter)
		lora   LoRA
		is     func(error) bool
	}{
		"another number of experts": {func(x *expertsAdapter) { x.Tensors[gateUp+"A.weight"][0]++ }, LoRA{}, is(malformed.Mismatch, "tensor ")},
		"another rank":              {func(x *expertsAdapter) { x.Config["r"] = 3 }, LoRA{}, is(malformed.Mismatch, "tensor ")},
		"the layout of PEFT before 0.19": {func(x *expertsAdapter) { // A beside the outputs
			x.Tensors[gateUp+"A.weight"][1], x.Tensors[gateUp+"B.weight"][0] = x.Tensors[gateUp+"B.weight"][0], x.Tensors[gateUp+"A.weight"][1]
		}, LoRA{}, is(malformed.Mismatch, "tensor ")},
		"no B":         {func(x *expertsAdapter) { delete(x.Tensors, gateUp+"B.weight") }, LoRA{}, is(malformed.Missing, "tensor ")},
		"no outermost": {func(x *expertsAdapter) { drop(x, ".experts.lora_") }, LoRA{}, is(malformed.Missing, "tensor ")},
		"some layers":  {func(x *expertsAdapter) { drop(x, "layers.1.mlp.experts.") }, LoRA{}, func(err error) bool { return err != nil }},
		"dropout in the file": {func(x *expertsAdapter) { x.Config["lora_dropout"] = .1 }, LoRA{},
			is(malformed.Unsupported, "lora_dropout")},
		"dropout asked for": {func(*expertsAdapter) {}, LoRA{Dropout: .1}, names(setting.Name("LoRA.Dropout"))},
		"other targets":     {func(*expertsAdapter) {}, LoRA{Targets: []string{"q", weights.ExpertsDown}}, names(setting.Name("LoRA.Targets"))},
	} {
		x := a
		x.Config, x.Tensors = map[string]any{}, map[string][]int64{}
		for k, v := range a.Config {
			x.Config[k] = v
		}
		for k, v := range a.Tensors {
			x.Tensors[k] = slices.Clone(v)
		}
		tt.change(&x)
		dir := x.write(t)
		tr, err := OpenTrainable(dir, Config{DType: "float32", Threads: 1, LoRA: tt.lora})
		if err == nil {
			tr.Close()
		}
		if err == nil || !tt.is(err) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v", name, err)
		}
	}
	for name, l := range map[string]LoRA{
		"a model without experts": {Rank: 2, Targets: []string{weights.ExpertsDown}},
		"new ones with dropout":   {Rank: 2, Targets: weights.ExpertTargets(), Dropout: .1},
	} {
		want := setting.Name("LoRA.Targets")
		dir := "testdata/tiny-llama"
		if l.Dropout > 0 {
			want, dir = setting.Name("LoRA.Dropout"), familyNamed(t, "qwen3_moe").write(t)
		}
		tr, err := OpenTrainable(dir, Config{DType: "float32", Threads: 1, LoRA: l})
		if err == nil {
			tr.Close()
		}
		if err == nil || !settingtest.Names(err, want) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// drop leaves out the tensors whose names have a part.
func drop(a *expertsAdapter, part string) {
	for name := range a.Tensors {
		if strings.Contains(name, part) {
			delete(a.Tensors, name)
		}
	}
}
