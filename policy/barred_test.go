//go:build libtorch

package policy

import (
	"errors"
	"math"
	"slices"
	"testing"

	"agentcli/internal/malformed"
	"agentcli/traj"
)

func TestTokensOfImagesAreNeverDrawnAndInNoDistribution(t *testing.T) {
	for _, g := range visionModels(t) {
		dir := g.write(t, g.Config)
		p := open(t, dir, Config{DType: "float32", Threads: 1, CacheBytes: 1 << 20, BarImageTokens: true, SampledLogprobs: true})
		all := open(t, dir, Config{DType: "float32", Threads: 1, CacheBytes: 1 << 20})
		v := p.model.Vision
		barred := v.TokenIDs(p.model.VocabSize)
		if len(barred) != 4 {
			t.Fatalf("%s: the ids of images are %v", g.Title, barred)
		}
		q := g.sequence(v, 1)
		hot := 5.0 // each id is about as likely as any other
		var ids []int32
		var lps []traj.Logprob
		drawn := 0
		for seed := range int64(6) {
			out, err := p.SampleSequence(t.Context(), q, traj.Sampling{Temperature: &hot, MaxTokens: 60}, seed)
			if err != nil {
				t.Fatal(err)
			}
			if slices.ContainsFunc(out.IDs, func(id int32) bool { return slices.Contains(barred, id) }) {
				t.Errorf("%s: %v has one of %v", g.Title, out.IDs, barred)
			}
			free, err := all.SampleSequence(t.Context(), q, traj.Sampling{Temperature: &hot, MaxTokens: 60}, seed)
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range free.IDs {
				if slices.Contains(barred, id) {
					drawn++
				}
			}
			ids, lps = out.IDs, out.Logprobs
		}
		if drawn == 0 {
			t.Errorf("%s: they are not drawn anyway: the test shows nothing", g.Title)
		}
		// Training sees the same distribution.
		tr, err := OpenTrainable(dir, Config{DType: "float32", Threads: 1, BarImageTokens: true})
		if err != nil {
			t.Fatal(err)
		}
		defer tr.Close()
		whole := append(slices.Clone(q.IDs), ids...)
		want := slices.Repeat([]bool{false}, len(whole))
		for k := range ids {
			want[len(q.IDs)+k] = true
		}
		b := Batch{Sequences: [][]int32{whole}, Want: [][]bool{want}, Images: [][]Image{q.Images},
			Temperature: slices.Repeat([]float64{hot}, len(ids))}
		var got []float64
		if err := tr.Accumulate(b, func(o Outputs) Gradients {
			got = slices.Clone(o.Logprobs)
			return Gradients{Logprobs: slices.Repeat([]float64{1}, len(got))}
		}); err != nil {
			t.Fatal(err)
		}
		for k, lp := range lps {
			if math.Abs(float64(lp)-got[k]) > 1e-4 {
				t.Errorf("%s, token %d: sampled with %v, trained with %v", g.Title, k, lp, got[k])
			}
		}
		b.Sequences[0][len(q.IDs)] = v.ImageToken
		var bad *malformed.Error
		if err := tr.Accumulate(b, func(o Outputs) Gradients { return Gradients{Logprobs: o.Logprobs} }); !errors.As(err, &bad) {
			t.Errorf("%s: an id of an image is trained on: %v", g.Title, err)
		}
	}
}
