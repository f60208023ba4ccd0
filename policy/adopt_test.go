//go:build libtorch

package policy

import (
	"context"
	"math"
	"runtime"
	"slices"
	"sync"
	"testing"

	"agentcli/internal/torch"
	"agentcli/model/weights"
	"agentcli/traj"
)

// A policy that adopts a trained model samples what one opened from its saved
// folder does: nothing of the old weights stays, in matrices or in the cache.
func TestAdoptedWeightsAreThoseOfTheTrainedModel(t *testing.T) {
	before := torch.Live()
	for _, arch := range []string{"llama", "qwen2", "qwen3"} {
		for _, dtype := range []string{"float32", "bfloat16"} {
			tr, err := OpenTrainable("testdata/tiny-"+arch, Config{DType: "float32", Threads: 1})
			if err != nil {
				t.Fatal(err)
			}
			p := open(t, "testdata/tiny-"+arch, Config{DType: dtype, Threads: 1, CacheBytes: 1 << 20})
			prompt := []int32{5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22}
			sample := func(p *Policy) *Output {
				out, err := p.Sample(context.Background(), prompt, traj.Sampling{MaxTokens: 12}, 3)
				if err != nil {
					t.Fatal(err)
				}
				return out
			}
			old := sample(p) // its prompt is in the cache now
			for i := range 3 {
				learn(t, tr, i+1)
			}
			dir := t.TempDir()
			if err := tr.Save(dir, weights.F32); err != nil {
				t.Fatal(err)
			}
			if err := p.Adopt(tr, 7); err != nil {
				t.Fatal(err)
			}
			want := open(t, dir, Config{DType: dtype, Threads: 1, CacheBytes: 1 << 20})
			a, b := sample(p), sample(want)
			if !slices.Equal(a.IDs, b.IDs) || !slices.Equal(a.Logprobs, b.Logprobs) {
				t.Errorf("%s, %s: adopted weights sample %v, the saved model %v", arch, dtype, a.IDs, b.IDs)
			}
			if slices.Equal(a.Logprobs, old.Logprobs) {
				t.Errorf("%s: three steps changed nothing", arch)
			}
			// The trained model goes on by itself.
			learn(t, tr, 4)
			// The cached prompt is not computed again: libtorch's own products of fewer
			// rows round otherwise.
			for i, c := range sample(p).Logprobs {
				if math.Abs(float64(c-a.Logprobs[i])) > 1e-5 {
					t.Errorf("%s, %s: training moved the policy that adopted its weights", arch, dtype)
					break
				}
			}
			want.Close()
			p.Close()
			tr.Close()
		}
	}
	if n := torch.Live() - before; n != 0 {
		t.Errorf("%d tensors are still alive", n)
	}
}

func TestAdoptingWhileRequestsComeInLosesNone(t *testing.T) {
	tr, err := OpenTrainable("testdata/tiny-llama", Config{DType: "float32", Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	p := open(t, "testdata/tiny-llama", Config{DType: "float32", Threads: 1, CacheBytes: 1 << 20})
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			out, err := p.Sample(context.Background(), []int32{5, 6, int32(7 + i%9)}, traj.Sampling{MaxTokens: 8}, int64(i))
			if err != nil || len(out.IDs) == 0 {
				t.Errorf("request %d: %v", i, err)
			}
		})
	}
	for v := range 5 {
		if err := p.Adopt(tr, int64(v)); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	other, err := OpenTrainable("testdata/tiny-qwen2", Config{DType: "float32", Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := p.Adopt(other, 9); err == nil {
		t.Error("the weights of another architecture were taken")
	}
}

// A request that came in while an exchange of weights was waited for has an answer when
// the policy is closed.
func TestClosingWhileWeightsAreExchangedAnswersAll(t *testing.T) {
	tr, err := OpenTrainable("testdata/tiny-llama", Config{DType: "float32", Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	p, err := Open("testdata/tiny-llama", Config{DType: "float32", Threads: 1, CacheBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	until := func(done func() bool) {
		for {
			p.sched.mu.Lock()
			ok := done()
			p.sched.mu.Unlock()
			if ok {
				return
			}
			runtime.Gosched()
		}
	}
	var wg sync.WaitGroup
	ask := func() {
		_, _ = p.Sample(context.Background(), []int32{5, 6, 7}, traj.Sampling{MaxTokens: 240, StopIDs: nil}, 1)
	}
	wg.Go(ask)
	wg.Go(func() { _ = p.Adopt(tr, 1) })
	until(func() bool { return p.sched.change != nil || p.version.Load() == 1 })
	wg.Go(ask)
	wg.Go(ask)
	p.Close()
	wg.Wait()
}
