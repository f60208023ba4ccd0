//go:build libtorch

package policy

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"agentcli/internal/torch"
	"agentcli/model/weights"
)

func openHead(t *testing.T, path string, head Head) *Trainable {
	t.Helper()
	tr, err := OpenTrainable(path, Config{DType: "float64", Threads: 1, Head: head})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.Close)
	return tr
}

// step moves the model, so that a value head is not all 0.
func step(t *testing.T, tr *Trainable, b Batch, number int) {
	t.Helper()
	err := tr.Accumulate(b, func(o Outputs) Gradients {
		var g Gradients
		for i := range max(len(o.Values), len(o.Logprobs)) {
			if o.Values != nil {
				g.Values = append(g.Values, o.Values[i]-float64(i%3)-.5)
			}
			if o.Logprobs != nil {
				g.Logprobs = append(g.Logprobs, -1)
			}
		}
		return g
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tr.Step(StepConfig{LR: .02, Beta1: .9, Beta2: .95, Eps: 1e-8, MaxGradNorm: 1, Number: number, EMA: .75}); err != nil {
		t.Fatal(err)
	}
}

func headBatch() Batch {
	return Batch{Sequences: [][]int32{{5, 6, 7, 8, 9}, {5, 6, 20, 21}},
		Want: [][]bool{{false, false, true, false, true}, {false, true, true, true}}}
}

// L = Σ a_i·lp_i + b_i·H_i + c_i·V_i² is differentiated by the model and by hand.
func TestGradientsOfEveryHeadEqualFiniteDifferences(t *testing.T) {
	for _, arch := range []string{"llama", "qwen2", "qwen3"} {
		for _, head := range []Head{HeadLM, HeadScore, HeadBoth} {
			path := "testdata/tiny-" + arch
			tr := openHead(t, path, head)
			step(t, tr, headBatch(), 1)
			equalsFiniteDifferences(t, fmt.Sprintf("%s, head %q", arch, head), tr, headBatch())
		}
	}
}

// equalsFiniteDifferences looks at three numbers of every trained parameter.
func equalsFiniteDifferences(t *testing.T, name string, tr *Trainable, b Batch) {
	t.Helper()
	weight := func(i, kind int) float64 { return math.Sin(float64(3*i + kind + 1)) }
	loss := func(o Outputs) (l float64, g Gradients) {
		for i, x := range o.Logprobs {
			l += weight(i, 0)*x + weight(i, 1)*o.Entropy[i]
			g.Logprobs, g.Entropy = append(g.Logprobs, weight(i, 0)), append(g.Entropy, weight(i, 1))
		}
		for i, v := range o.Values {
			l += weight(i, 2) * v * v
			g.Values = append(g.Values, 2*weight(i, 2)*v)
		}
		return l, g
	}
	if err := tr.Accumulate(b, func(o Outputs) Gradients { _, g := loss(o); return g }); err != nil {
		t.Fatal(err)
	}
	grads, err := tr.Gradients()
	if err != nil {
		t.Fatal(err)
	}
	at := func(p param, i int, d float64) float64 {
		err := tr.worker.Do(func(s *torch.Scope) error {
			flat := s.Reshape(*p.tensor, elements(p.shape()))
			s.Copy(s.Narrow(flat, 0, int64(i), 1), s.Add(s.Narrow(flat, 0, int64(i), 1), s.Full(d, torch.Float64, s.Device(flat), 1)))
			return s.Err()
		})
		if err != nil {
			t.Fatal(err)
		}
		o, err := tr.Forward(b)
		if err != nil {
			t.Fatal(err)
		}
		l, _ := loss(o)
		return l
	}
	const h = 1e-6
	for _, p := range tr.opt.trained {
		g := grads[p.parts[0].name]
		for _, i := range []int{0, len(g) / 2, len(g) - 1} {
			up := at(p, i, h)
			down := at(p, i, -2*h)
			at(p, i, h)
			if want := (up - down) / (2 * h); math.Abs(want-g[i]) > 1e-6*(1+math.Abs(want)) {
				t.Errorf("%s: dL/d%s[%d] is %v, by finite differences %v", name, p.parts[0].name, i, g[i], want)
			}
		}
	}
}

func TestValueHeadIsZeroAtFirstAndSurvivesSaving(t *testing.T) {
	b := headBatch()
	own := Batch{Sequences: b.Sequences, Want: [][]bool{{false, false, false, false, true}, {true, false, false, true}}, Own: true}
	tr := openHead(t, "testdata/tiny-llama", HeadScore)
	o, err := tr.Forward(b)
	if err != nil {
		t.Fatal(err)
	}
	if o.Logprobs != nil || o.Entropy != nil || !slices.Equal(o.Values, make([]float64, 5)) {
		t.Fatalf("before any step: %+v", o)
	}
	for i := range 3 {
		step(t, tr, b, i+1)
	}
	want, err := tr.Forward(own)
	if err != nil {
		t.Fatal(err)
	}
	// A value stands at its own token with Own, before it without.
	shifted, err := tr.Forward(Batch{Sequences: [][]int32{{5, 6, 7, 8, 9, 1}}, Want: [][]bool{{false, false, false, false, false, true}}})
	if err != nil || math.Abs(shifted.Values[0]-want.Values[0]) > 1e-12 || len(want.Values) != 3 {
		t.Errorf("value of the whole text: %v of its own, %v before the next token; %v", want.Values, shifted.Values, err)
	}
	dir := t.TempDir()
	if err := tr.Save(dir, weights.F64); err != nil {
		t.Fatal(err)
	}
	for _, head := range []Head{HeadScore, HeadLM} {
		again, err := OpenTrainable(dir, Config{DType: "float64", Threads: 1, Head: head})
		if head == HeadLM {
			if err == nil {
				t.Error("a reward model was opened as a language model")
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer again.Close()
		got, err := again.Forward(own)
		if err != nil || !slices.Equal(got.Values, want.Values) {
			t.Errorf("saved and read again: %v, before %v; %v", got.Values, want.Values, err)
		}
	}
	if _, err := Open(dir, Config{}); err == nil {
		t.Error("a reward model was opened for sampling")
	}
}

func TestSharedHeadIsKeptOutOfTheModelFile(t *testing.T) {
	tr := openHead(t, "testdata/tiny-llama", HeadBoth)
	step(t, tr, headBatch(), 1)
	dir := t.TempDir()
	if err := tr.Save(dir, weights.F32); err != nil {
		t.Fatal(err)
	}
	m, err := weights.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.Has(scoreName) || m.Config().Score {
		t.Error("the model's own file has the critic's head")
	}
	if _, err := os.Stat(filepath.Join(dir, valueHeadName)); err != nil {
		t.Error(err)
	}
}

func TestAverageFollowsTheParameters(t *testing.T) {
	b := headBatch()
	tr := openHead(t, "testdata/tiny-llama", HeadLM)
	if err := tr.SaveAverage(t.TempDir(), weights.F64); err == nil {
		t.Error("an average was saved that nobody kept")
	}
	if err := tr.KeepAverage(); err != nil {
		t.Fatal(err)
	}
	norm := func() float64 { // one parameter of the masters
		var x float64
		if err := tr.worker.Do(func(s *torch.Scope) error { x = s.Float64s(tr.net.norm)[3]; return s.Err() }); err != nil {
			t.Fatal(err)
		}
		return x
	}
	want := norm()
	for i := range 4 {
		step(t, tr, b, i+1)
		want = .75*want + .25*norm()
	}
	state := filepath.Join(t.TempDir(), "state")
	if err := tr.SaveState(state); err != nil {
		t.Fatal(err)
	}
	resumed := openHead(t, "testdata/tiny-llama", HeadLM)
	if err := resumed.KeepAverage(); err != nil {
		t.Fatal(err)
	}
	if err := resumed.LoadState(state); err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]*Trainable{"running": tr, "resumed": resumed} {
		dir := t.TempDir()
		if err := x.SaveAverage(dir, weights.F64); err != nil {
			t.Fatal(err)
		}
		saved := openHead(t, dir, HeadLM)
		var got float64
		if err := saved.worker.Do(func(s *torch.Scope) error { got = s.Float64s(saved.net.norm)[3]; return s.Err() }); err != nil {
			t.Fatal(err)
		}
		if math.Abs(got-want) > 1e-12 || want == norm() {
			t.Errorf("%s: the average is %v, want %v; the parameter %v", name, got, want, norm())
		}
	}
}

// A shared critic goes on with the head that its last run left beside the policy.
func TestASharedCriticGoesOnWithItsHead(t *testing.T) {
	for name, low := range map[string]LoRA{"whole": {}, "adapters": {Rank: 2, Alpha: 4}} {
		open := func(path string, low LoRA) *Trainable {
			t.Helper()
			tr, err := OpenTrainable(path, Config{DType: "float64", Threads: 1, Head: HeadBoth, LoRA: low})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(tr.Close)
			return tr
		}
		base, err := filepath.Abs("testdata/tiny-llama")
		if err != nil {
			t.Fatal(err)
		}
		tr, dir := open(base, low), t.TempDir()
		for i := range 3 {
			step(t, tr, headBatch(), i+1)
		}
		if err := tr.Save(dir, weights.F64); err != nil {
			t.Fatal(err)
		}
		want, err := tr.Forward(headBatch())
		if err != nil {
			t.Fatal(err)
		}
		got, err := open(dir, LoRA{}).Forward(headBatch())
		if err != nil {
			t.Fatal(err)
		}
		for i := range want.Values {
			if want.Values[i] == 0 || math.Abs(got.Values[i]-want.Values[i]) > 1e-12 {
				t.Errorf("%s: value %d is %v, and was %v", name, i, got.Values[i], want.Values[i])
			}
		}
		if err := os.WriteFile(filepath.Join(dir, valueHeadName), []byte("no head"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenTrainable(dir, Config{DType: "float64", Threads: 1, Head: HeadBoth}); err == nil {
			t.Errorf("%s: a damaged head is taken for none", name)
		}
	}
}
