//go:build libtorch

package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"agentcli/internal/torch"
	"agentcli/model/arch/archtest"
	"agentcli/model/chat"
	"agentcli/model/weights"
	"agentcli/traj"
)

// smollm2 is the model that `make setup` fetches.
func smollm2(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("a whole model is left out")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(cache, "agentcli", "models", "SmolLM2-135M-Instruct.Q4_1.gguf")
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v; run make setup", err)
	}
	return path
}

func open(t testing.TB, path string, c Config) *Policy {
	t.Helper()
	p, err := Open(path, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

type goldenLogprobs = archtest.Logprobs

func golden(t testing.TB, path string, v any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatal(err)
	}
}

func distance(got []float32, want []float64) (mean, worst float64) {
	for i := range want {
		d := math.Abs(float64(got[i]) - want[i])
		mean += d / float64(len(want))
		worst = math.Max(worst, d)
	}
	return mean, worst
}

func TestLogprobsEqualTransformersOnEveryArchitecture(t *testing.T) {
	for _, arch := range []string{"llama", "qwen2", "qwen3"} {
		dir := filepath.Join("testdata", "tiny-"+arch)
		var want []goldenLogprobs
		golden(t, filepath.Join(dir, "golden.json"), &want)
		for _, dtype := range []string{"float32", "float64"} {
			p := open(t, dir, Config{DType: dtype, Threads: 1, CacheBytes: 1 << 20})
			for _, w := range want {
				if w.DType != dtype {
					continue
				}
				got, err := p.Logprobs(context.Background(), [][]int32{w.IDs})
				if err != nil {
					t.Fatal(err)
				}
				mean, worst := distance(got[0], w.Logprobs)
				if worst > 2e-5 {
					t.Errorf("%s %s, %d tokens: log-probs differ from transformers by %.2g on average, %.2g at most", arch, dtype, len(w.IDs), mean, worst)
				}
			}
		}
	}
}

func TestSmolLM2EqualsTransformersInFloat32(t *testing.T) {
	var want struct {
		Logprobs []goldenLogprobs
		Greedy   []struct {
			IDs  []int32
			New  []int32
			Text string
		}
	}
	golden(t, "testdata/smollm2.json", &want)
	p := open(t, smollm2(t), Config{DType: "float32"})
	ctx := context.Background()
	for i, w := range want.Logprobs {
		got, err := p.Logprobs(ctx, [][]int32{w.IDs})
		if err != nil {
			t.Fatal(err)
		}
		mean, worst := distance(got[0], w.Logprobs)
		t.Logf("sequence %d: mean %.2g, max %.2g", i, mean, worst)
		if mean > 1e-4 || worst > 1e-3 {
			t.Errorf("sequence %d: log-probs differ by %.2g on average, %.2g at most", i, mean, worst)
		}
	}
	zero := 0.0
	var wg sync.WaitGroup
	for i, g := range want.Greedy {
		wg.Add(1)
		go func() { // together: batching must not change what is drawn
			defer wg.Done()
			out, err := p.Sample(ctx, g.IDs, traj.Sampling{Temperature: &zero, MaxTokens: 64}, 1)
			if err != nil {
				t.Error(err)
				return
			}
			if !slices.Equal(out.IDs, g.New) {
				t.Errorf("prompt %d: greedy ids %v, transformers gives %v (%q)", i, out.IDs, g.New, g.Text)
			}
			// What was recorded while sampling is what a fresh forward pass gives.
			all := append(slices.Clone(g.IDs), out.IDs...)
			lps, err := p.Logprobs(ctx, [][]int32{all})
			if err != nil {
				t.Error(err)
				return
			}
			for j, lp := range out.Logprobs {
				if d := math.Abs(float64(lp) - float64(lps[0][len(g.IDs)-1+j])); d > 1e-3 {
					t.Errorf("prompt %d token %d: recorded log-prob %v, forward %v", i, j, lp, lps[0][len(g.IDs)-1+j])
				}
			}
		}()
	}
	wg.Wait()
}

func TestPackedPrefixesGiveTheLogprobsOfSeparateSequences(t *testing.T) {
	p := open(t, "testdata/tiny-llama", Config{DType: "float64", Threads: 1, CacheBytes: 1 << 20})
	seqs := [][]int32{
		{5, 6, 7, 8, 9, 10, 11}, {5, 6, 7, 8, 20, 21}, {5, 6, 7, 8, 20, 22, 23}, {5, 6, 7, 8}, {30, 31}, {40}, {},
		{5, 6, 7, 8, 9, 10, 11},
	}
	got, err := p.Logprobs(context.Background(), seqs)
	if err != nil {
		t.Fatal(err)
	}
	for i, q := range seqs {
		if len(q) < 2 {
			if len(got[i]) != 0 {
				t.Errorf("sequence %d: %v, want none", i, got[i])
			}
			continue
		}
		alone, err := p.Logprobs(context.Background(), [][]int32{q})
		if err != nil {
			t.Fatal(err)
		}
		for j := range alone[0] {
			if math.Abs(float64(alone[0][j]-got[i][j])) > 1e-6 {
				t.Errorf("sequence %d token %d: packed %v, alone %v", i, j, got[i][j], alone[0][j])
			}
		}
	}
}

func TestSamplingDoesNotDependOnWhatIsDecodedBeside(t *testing.T) {
	// A cache of a few blocks only: sequences wait, are preempted, share and
	// recompute prefixes, and must draw the same tokens all the same.
	draw := func(c Config, together bool) [][]int32 {
		p := open(t, "testdata/tiny-llama", c)
		out := make([][]int32, 24)
		var wg sync.WaitGroup
		for i := range out {
			ids := []int32{1, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, int32(10 + i/8)}
			f := func() {
				defer wg.Done()
				r, err := p.Sample(context.Background(), ids, traj.Sampling{MaxTokens: 40}, int64(i))
				if err != nil {
					t.Error(err)
					return
				}
				out[i] = r.IDs
			}
			wg.Add(1)
			if together {
				go f()
			} else {
				f()
			}
		}
		wg.Wait()
		return out
	}
	base := Config{DType: "float64", Threads: 1, CacheBytes: 1 << 24}
	want := draw(base, false)
	small := base
	small.CacheBytes = 1 // the least: one longest sequence
	for name, got := range map[string][][]int32{"together": draw(base, true), "in a small cache": draw(small, true)} {
		for i := range want {
			if !slices.Equal(got[i], want[i]) {
				t.Errorf("%s, request %d drew %v; alone it draws %v", name, i, got[i], want[i])
			}
		}
	}
	if slices.Equal(want[0], want[1]) {
		t.Error("two seeds drew the same tokens")
	}
}

func TestTopKTopPMinPCutTheTail(t *testing.T) {
	p := open(t, "testdata/tiny-llama", Config{DType: "float32", Threads: 1, CacheBytes: 1 << 24})
	ids := []int32{1, 50, 51, 52}
	zero := 0.0
	greedy, err := p.Sample(context.Background(), ids, traj.Sampling{Temperature: &zero, MaxTokens: 1}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]traj.Sampling{"top_k 1": {TopK: 1}, "top_p tiny": {TopP: 1e-9}, "min_p 1": {MinP: 1}} {
		s.MaxTokens = 1
		for seed := range int64(20) {
			got, err := p.Sample(context.Background(), ids, s, seed)
			if err != nil {
				t.Fatal(err)
			}
			if got.IDs[0] != greedy.IDs[0] {
				t.Errorf("%s drew %d, the likeliest token is %d", name, got.IDs[0], greedy.IDs[0])
			}
			if got.Logprobs[0] != greedy.Logprobs[0] {
				t.Errorf("%s: the log-prob is %v, the model's is %v", name, got.Logprobs[0], greedy.Logprobs[0])
			}
		}
	}
}

func TestDrawsFollowTheModelsDistribution(t *testing.T) {
	p := open(t, "testdata/tiny-llama", Config{DType: "float32", Threads: 1, CacheBytes: 1 << 24})
	ids := []int32{1, 50, 51, 52}
	const n = 4000
	count, prob := map[int32]int{}, map[int32]float64{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range n / 8 {
				out, err := p.Sample(context.Background(), ids, traj.Sampling{MaxTokens: 1}, int64(w*n+i))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				count[out.IDs[0]]++
				prob[out.IDs[0]] = math.Exp(float64(out.Logprobs[0]))
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	for id, c := range count {
		want := prob[id] * n
		if want > 20 && math.Abs(float64(c)-want) > 5*math.Sqrt(want) {
			t.Errorf("token %d was drawn %d times of %d, its probability says %.0f", id, c, n, want)
		}
	}
}

func TestStopStringsEndTheReplyAndAreCutFromItsText(t *testing.T) {
	p := open(t, smollm2(t), Config{DType: "float32"})
	r, err := p.Renderer()
	if err != nil {
		t.Fatal(err)
	}
	_, ids, err := r.Render([]traj.Message{{Role: traj.RoleUser, Content: "Count from 1 to 9, separated by commas."}}, nil, renderOptions)
	if err != nil {
		t.Fatal(err)
	}
	zero := 0.0
	plain, err := p.Sample(context.Background(), ids, traj.Sampling{Temperature: &zero, MaxTokens: 40}, 0)
	if err != nil {
		t.Fatal(err)
	}
	runes := []rune(plain.Text)
	if len(runes) < 8 {
		t.Fatalf("the reply %q is too short to cut", plain.Text)
	}
	stop := string(runes[4:7])
	cut, err := p.Sample(context.Background(), ids, traj.Sampling{Temperature: &zero, MaxTokens: 40, Stop: []string{stop}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := plain.Text[:len(string(runes[:4]))]
	if cut.FinishReason != traj.FinishStop || len(cut.Text) > len(want) || len(cut.IDs) >= len(plain.IDs) {
		t.Errorf("stop %q: finish %q, text %q of %q, %d of %d ids", stop, cut.FinishReason, cut.Text, plain.Text, len(cut.IDs), len(plain.IDs))
	}
}

func TestAStopIDEndsTheReplyAndIsNoPartOfItsMessage(t *testing.T) {
	p := open(t, smollm2(t), Config{DType: "float32"})
	zero := 0.0
	req := &traj.Request{Messages: []traj.Message{{Role: traj.RoleUser, Content: "Count from 1 to 9, separated by commas."}},
		Sampling: traj.Sampling{Temperature: &zero, MaxTokens: 40}}
	plain, err := p.Generate(context.Background(), req)
	if err != nil {
		t.Fatal(err)
	}
	at := 4
	for slices.Contains(plain.SampledIDs[:at], plain.SampledIDs[at]) {
		at++
	}
	req.Sampling.StopIDs = []int32{plain.SampledIDs[at]}
	cut, err := p.Generate(context.Background(), req)
	if err != nil {
		t.Fatal(err)
	}
	tok := p.tok
	if !slices.Equal(cut.SampledIDs, plain.SampledIDs[:at+1]) || cut.FinishReason != traj.FinishStop {
		t.Errorf("sampled %v (%s) of %v, want it to end with %d", cut.SampledIDs, cut.FinishReason, plain.SampledIDs, req.Sampling.StopIDs)
	}
	if want := tok.Decode(plain.SampledIDs[:at], false); cut.Message.Content != want {
		t.Errorf("the message is %q, want %q", cut.Message.Content, want)
	}
}

func TestOpenNamesWhatIsWrong(t *testing.T) {
	for _, c := range []struct{ name, path, dtype, device string }{
		{"missing file", "testdata/none.gguf", "", ""},
		{"unknown dtype", "testdata/tiny-llama", "float8", ""},
		{"unknown device", "testdata/tiny-llama", "", "tpu"},
	} {
		if _, err := Open(c.path, Config{DType: c.dtype, Device: c.device}); err == nil {
			t.Errorf("%s: no error", c.name)
		} else {
			t.Log(err)
		}
	}
}

func TestSampleRefusesBadPrompts(t *testing.T) {
	p := open(t, "testdata/tiny-llama", Config{DType: "float32", Threads: 1, CacheBytes: 1 << 24})
	for _, ids := range [][]int32{nil, {-1}, {1 << 20}, make([]int32, 4000)} {
		if _, err := p.Sample(context.Background(), ids, traj.Sampling{}, 0); err == nil {
			t.Errorf("a prompt of %d ids was taken", len(ids))
		}
	}
}

func TestNoTensorOutlivesThePolicy(t *testing.T) {
	before := torch.Live()
	p, err := Open("testdata/tiny-llama", Config{DType: "bfloat16", Threads: 1, CacheBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if _, err := p.Sample(context.Background(), []int32{1, 5, int32(i + 6)}, traj.Sampling{MaxTokens: 20}, int64(i)); err != nil {
				t.Error(err)
			}
		}()
	}
	wg.Wait()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := p.Sample(ctx, []int32{1}, traj.Sampling{}, 0); err == nil {
		t.Error("a cancelled request gave a reply")
	}
	p.Close()
	if n := torch.Live() - before; n != 0 {
		t.Errorf("%d tensors are still alive after Close", n)
	}
}

func TestGradientDoesNotDependOnHowTheBatchIsSplit(t *testing.T) {
	seqs := [][]int32{{5, 6, 7, 8, 9, 10}, {5, 6, 7, 8, 20}, {5, 6, 30, 31, 32}, {40, 41, 42}}
	want := make([][]bool, len(seqs))
	for i, q := range seqs {
		want[i] = make([]bool, len(q))
		for j := 2; j < len(q); j++ {
			want[i][j] = j%2 == 0 || i == 1
		}
	}
	for _, arch := range []string{"llama", "qwen2", "qwen3"} {
		run := func(splits [][]int) map[string][]float64 {
			tr, err := OpenTrainable("testdata/tiny-"+arch, Config{DType: "float64", Threads: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer tr.Close()
			for _, s := range splits {
				var b Batch
				for _, i := range s {
					b.Sequences, b.Want = append(b.Sequences, seqs[i]), append(b.Want, want[i])
				}
				err := tr.Accumulate(b, func(o Outputs) Gradients {
					g := make([]float64, len(o.Logprobs))
					for i := range g {
						g[i] = 2 * o.Logprobs[i] // of Σ lp²
					}
					return Gradients{Logprobs: g}
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			g, err := tr.Gradients()
			if err != nil {
				t.Fatal(err)
			}
			return g
		}
		whole := run([][]int{{0, 1, 2, 3}})
		for name, splits := range map[string][][]int{"one by one": {{0}, {1}, {2}, {3}}, "reversed": {{3, 2}, {1, 0}}} {
			for p, g := range run(splits) {
				for i := range g {
					if d := math.Abs(g[i] - whole[p][i]); d > 1e-12 {
						t.Fatalf("%s, %s: gradient of %s[%d] is %v, in one batch %v", arch, name, p, i, g[i], whole[p][i])
					}
				}
			}
		}
	}
}

func TestSavedModelGivesTheSameLogprobs(t *testing.T) {
	seq := []int32{5, 6, 7, 8, 9, 10}
	for _, arch := range []string{"llama", "qwen2", "qwen3"} {
		tr, err := OpenTrainable("testdata/tiny-"+arch, Config{DType: "float32", Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		all := []bool{false, true, true, true, true, true}
		b := Batch{Sequences: [][]int32{seq}, Want: [][]bool{all}}
		for step := 1; step <= 3; step++ {
			if err := tr.Accumulate(b, func(Outputs) Gradients { return Gradients{Logprobs: []float64{-1, -1, -1, -1, -1}} }); err != nil {
				t.Fatal(err)
			}
			if _, err := tr.Step(StepConfig{LR: 1e-2, Beta1: .9, Beta2: .999, Eps: 1e-8, MaxGradNorm: 1, Number: step}); err != nil {
				t.Fatal(err)
			}
		}
		said, err := tr.Forward(b)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if err := tr.Save(dir, weights.F32); err != nil {
			t.Fatal(err)
		}
		tr.Close()
		p := open(t, dir, Config{DType: "float32", Threads: 1, CacheBytes: 1 << 20})
		got, err := p.Logprobs(context.Background(), [][]int32{seq})
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(len(got[0])) != "5" {
			t.Fatal(got)
		}
		if _, worst := distance(got[0], said.Logprobs); worst > 1e-6 {
			t.Errorf("%s: the saved model's log-probs differ by %v", arch, worst)
		}
	}
}

var renderOptions = chat.Options{AddGenerationPrompt: true}

// A cache that is too small for the model's context bounds a text; what fits is sampled.
func TestASizeOfTheCacheBoundsTheContext(t *testing.T) {
	p := open(t, "testdata/tiny-llama", Config{DType: "float32", Threads: 1, Cache: CacheSize{Bytes: 6 * blockSize * 2 * 2 * 16 * 4}})
	if p.cfg.MaxContext != 5*blockSize {
		t.Fatalf("a context of %d tokens", p.cfg.MaxContext)
	}
	out, err := p.Sample(context.Background(), []int32{5, 6, 7}, traj.Sampling{MaxTokens: 200}, 1)
	if err != nil || len(out.IDs)+3 > 5*blockSize {
		t.Errorf("%v, %v", out, err)
	}
	if _, err := p.Sample(context.Background(), make([]int32, 5*blockSize+1), traj.Sampling{}, 1); !errors.Is(err, traj.ErrPromptTooLong) {
		t.Error(err)
	}
}
