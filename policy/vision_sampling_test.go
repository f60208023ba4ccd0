//go:build libtorch

package policy

import (
	"context"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"agentcli/traj"
)

// A later turn's prompt is found in the cache up to the newest image.
func TestSampledLogprobsAreRecomputedOverTurnsWithImages(t *testing.T) {
	for _, g := range visionModels(t) {
		p := open(t, g.write(t, g.Config), Config{DType: "float32", Threads: 1, CacheBytes: 1 << 20})
		v := p.model.Vision
		q := g.sequence(v, 2)
		for turn := range 3 {
			out, err := p.SampleSequence(context.Background(), q, traj.Sampling{MaxTokens: 9}, int64(turn))
			if err != nil {
				t.Fatal(err)
			}
			from := len(q.IDs)
			q.IDs = append(slices.Clone(q.IDs), out.IDs...)
			lps, err := p.LogprobsSequence(context.Background(), q)
			if err != nil {
				t.Fatal(err)
			}
			for k, lp := range out.Logprobs {
				if d := math.Abs(float64(lp) - float64(lps[from+k-1])); d > 1e-4 {
					t.Errorf("%s, turn %d, token %d: sampled %v, recomputed %v", g.Title, turn, k, lp, lps[from+k-1])
				}
			}
			crop := pictureOf(v, len(q.IDs)+2, [3]int{1, 4, 2 * (turn + 1)}, "crop "+itoa(turn))
			q.Images = append(slices.Clone(q.Images), crop)
			q.IDs = append(append(q.IDs, 5, 6), slices.Repeat([]int32{v.ImageToken}, crop.Tokens)...)
			q.IDs = append(q.IDs, 7, 8)
		}
	}
}

// A step that begins or ends within an image computes its part of it, beside others, and what follows
// is as from one step.
func TestPromptsInPartsThatCutImagesDrawTheSame(t *testing.T) {
	for _, g := range visionModels(t) {
		dir := g.write(t, g.Config)
		whole := open(t, dir, Config{DType: "float32", Threads: 1, CacheBytes: 1 << 20})
		parts := open(t, dir, Config{DType: "float32", Threads: 1, CacheBytes: 1 << 20})
		parts.sched.stepTokens = 5
		parts.sched.pace = pace{}
		both := [2]Sequence{g.sequence(whole.model.Vision, 2), g.sequence(whole.model.Vision, 3)}
		var want, got [2]*Output
		var errs [2]error
		for i, q := range both {
			if want[i], errs[0] = whole.SampleSequence(context.Background(), q, traj.Sampling{MaxTokens: 9}, int64(i)); errs[0] != nil {
				t.Fatal(errs[0])
			}
		}
		if err := EngineOf(parts).Pause(ExchangeWait); err != nil {
			t.Fatal(err)
		}
		var done sync.WaitGroup
		for i, q := range both {
			done.Go(func() {
				got[i], errs[i] = parts.SampleSequence(context.Background(), q, traj.Sampling{MaxTokens: 9}, int64(i))
			})
		}
		for EngineOf(parts).Load().Waiting < 2 { // they share the steps
			time.Sleep(time.Millisecond)
		}
		EngineOf(parts).Resume()
		done.Wait()
		for i := range both {
			if errs[i] != nil {
				t.Fatal(errs[i])
			}
			if !slices.Equal(got[i].IDs, want[i].IDs) {
				t.Errorf("%s: text %d: in parts %v, at once %v", g.Title, i, got[i].IDs, want[i].IDs)
				continue
			}
			for k, lp := range got[i].Logprobs {
				if math.Abs(float64(lp-want[i].Logprobs[k])) > 1e-4 {
					t.Errorf("%s: text %d, token %d: %v in parts, %v at once", g.Title, i, k, lp, want[i].Logprobs[k])
				}
			}
		}
	}
}

// An image is encoded once, whoever shares it, and again once it was unused for longest and its
// place was needed.
func TestFeaturesAreKeptUntilTheirPlaceIsNeeded(t *testing.T) {
	g := visionModels(t)[0]
	p := open(t, g.write(t, g.Config), Config{DType: "float32", Threads: 1, CacheBytes: 1 << 20})
	q := g.sequence(p.model.Vision, 2)
	encoded := make([]int, len(q.Images))
	for i := range q.Images {
		patches := q.Images[i].Patches
		q.Images[i].Patches = func() ([]float32, error) { encoded[i]++; return patches() }
	}
	sample := func(seed int64) {
		if _, err := p.SampleSequence(context.Background(), q, traj.Sampling{MaxTokens: 2}, seed); err != nil {
			t.Fatal(err)
		}
		EngineOf(p).ForgetPrefixes() // so that the next one computes its prompt
	}
	sample(1)
	sample(2)
	if slices.Max(encoded) != 1 || slices.Min(encoded) != 1 {
		t.Errorf("two replies to one prompt: its images were encoded %v times", encoded)
	}
	p.features.limit = p.features.bytes - 1
	sample(3)
	if n := encoded[0] + encoded[1] + encoded[2]; n <= len(encoded) || n > 2*len(encoded) {
		t.Errorf("with room for all but one: encoded %v times", encoded)
	}
	p.features.limit = 0
	sample(4)
	if p.features.trim(); p.features.bytes != 0 || len(p.features.entries) != 0 {
		t.Errorf("%d bytes of %d images are kept without room", p.features.bytes, len(p.features.entries))
	}
}

func TestEqualIdsWithAnotherImageAreAnotherPrefix(t *testing.T) {
	g := visionModels(t)[0]
	dir := g.write(t, g.Config)
	used := open(t, dir, Config{DType: "float32", Threads: 1, CacheBytes: 1 << 20})
	q := g.sequence(used.model.Vision, 3)
	other := Sequence{IDs: q.IDs, Images: slices.Clone(q.Images)}
	first := q.Images[0]
	other.Images[0] = pictureOf(used.model.Vision, first.Start, first.Grid, "other pixels")
	zero := 0.0
	how := traj.Sampling{Temperature: &zero, MaxTokens: 6}
	sample := func(p *Policy, q Sequence) *Output {
		out, err := p.SampleSequence(context.Background(), q, how, 1)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	one := sample(used, q)
	got := sample(used, other)
	fresh := open(t, dir, Config{DType: "float32", Threads: 1, CacheBytes: 1 << 20})
	want := sample(fresh, other)
	if !slices.Equal(got.IDs, want.IDs) || math.Abs(float64(got.Logprobs[0]-want.Logprobs[0])) > 1e-5 {
		t.Errorf("after another image of the same size: %v %v, alone: %v %v", got.IDs, got.Logprobs, want.IDs, want.Logprobs)
	}
	if math.Abs(float64(one.Logprobs[0]-want.Logprobs[0])) < 1e-4 {
		t.Error("the two images say the same: the test shows nothing")
	}
	if n := len(used.features.entries); n != 3 {
		t.Errorf("features of %d images are kept, there were 3", n)
	}
}
