//go:build libtorch

package trainer

import (
	"context"
	"maps"
	"math"
	"slices"
	"testing"

	"agentcli/internal/torch/testdevice"
	"agentcli/policy"
	"agentcli/trainer/episode"
	"agentcli/trainer/rows"
)

// kept keeps the gradient of a step that it does not take.
type kept struct {
	*policy.Trainable
	gradient map[string][]float64
}

func (k *kept) Step(policy.StepConfig) (float64, error) {
	var err error
	if k.gradient, err = k.Gradients(); err != nil {
		return 0, err
	}
	return 1, k.Drop()
}

// On the tiny model, from rows of several temperatures: at ratio 1 the gradient is
// Σ −A/N·∇log softmax(logits/T)(y), however the rows are packed.
func TestAtRatioOneTheTinyModelsGradientIsREINFORCEsOfTheTemperedPolicy(t *testing.T) {
	testdevice.SameBits(t)
	open := func() *policy.Trainable {
		m, err := policy.OpenTrainable("../policy/testdata/tiny-llama", policy.Config{DType: "float64", Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Close)
		return m
	}
	gradient := func(micro int, temperatures ...float64) (map[string][]float64, []*episode.Episode) {
		episodes := heated(temperatures...)
		c := config()
		c.MicroTokens = micro
		k := &kept{Trainable: open()}
		g := &Trainer{Models: Models{Actor: k}, Config: c, Data: &rows.Data{Episodes: episodes}, Clock: still}
		if err := g.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		return k.gradient, episodes
	}
	got, episodes := gradient(1<<20, .6, 1, 1.3)
	m, n := open(), 0
	for _, e := range episodes {
		n += e.Sampled
	}
	for _, e := range episodes { // one by one, each at its own temperature
		for _, s := range e.Sequences {
			err := m.Accumulate(policy.Batch{Sequences: [][]int32{s.TokenIDs}, Want: [][]bool{s.LossMask},
				Temperature: slices.Repeat([]float64{e.Temperature}, s.Sampled())},
				func(o policy.Outputs) policy.Gradients {
					d := make([]float64, len(o.Logprobs))
					for i := range d {
						d[i] = -adv(e) / float64(n)
					}
					return policy.Gradients{Logprobs: d}
				})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	want, err := m.Gradients()
	if err != nil {
		t.Fatal(err)
	}
	far := func(a, b map[string][]float64) float64 {
		worst, top := 0.0, 0.0
		for name := range b {
			worst = math.Max(worst, gap(a[name], b[name]))
			for _, x := range b[name] {
				top = math.Max(top, math.Abs(x))
			}
		}
		return worst / top
	}
	if d := far(got, want); d > 1e-12 {
		t.Errorf("the gradient is %.2g of the largest off", d)
	}
	split, _ := gradient(9, .6, 1, 1.3)
	if d := far(split, want); d > 1e-12 {
		t.Errorf("in small micro-batches the gradient is %.2g of the largest off", d)
	}
	one, _ := gradient(1<<20, 1)
	plain, _ := gradient(1<<20, 0)
	if !maps.EqualFunc(one, plain, slices.Equal) {
		t.Error("temperature 1 changes a bit")
	}
	if far(one, want) < 1e-3 {
		t.Error("the temperatures change nothing")
	}
}
