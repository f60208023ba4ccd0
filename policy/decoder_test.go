//go:build libtorch

package policy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentcli/internal/torch"
	"agentcli/model/arch/archtest"
	"agentcli/model/weights"
	"agentcli/traj"

	"golang.org/x/sys/cpu"
)

// drawSome has several prompts of one beginning answered together.
func drawSome(t *testing.T, p *Policy, numbers ...int) []*Output {
	t.Helper()
	return drawAll(t, p, func(k int) []int32 {
		return []int32{5, 9, 22, 31, 7, 12, 40, 3, 8, int32(10 + k), int32(20 + k)}
	}, numbers)
}

// drawAll has the prompts of numbers answered together, each with its number as the seed.
func drawAll(t *testing.T, p *Policy, prompt func(k int) []int32, numbers []int) []*Output {
	t.Helper()
	out := make([]*Output, len(numbers))
	var wg sync.WaitGroup
	for i, k := range numbers {
		wg.Go(func() {
			var err error
			if out[i], err = p.Sample(t.Context(), prompt(k), traj.Sampling{MaxTokens: 20}, int64(k)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	return out
}

// askTogether has requests begin in one step, however busy the machine is. A request that fails ends the test.
func askTogether(t testing.TB, p *Policy, requests []*Request) []*Reply {
	t.Helper()
	e := EngineOf(p)
	if err := e.Pause(ExchangeWait); err != nil {
		t.Fatal(err)
	}
	out := make([]*Reply, len(requests))
	var wg sync.WaitGroup
	for i, r := range requests {
		wg.Go(func() {
			var err error
			if out[i], err = e.Ask(t.Context(), r); err != nil {
				t.Errorf("reply %d: %v", i, err)
			}
		})
	}
	for e.Load().Waiting < len(requests) && !t.Failed() {
		time.Sleep(time.Millisecond)
	}
	e.Resume()
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return out
}

// alike holds replies of the decoder to those that the operations give.
func alike(t *testing.T, what, dtype string, most float64, a, b []*Output) {
	t.Helper()
	for i := range a {
		for j := range min(len(a[i].IDs), len(b[i].IDs)) {
			if a[i].IDs[j] != b[i].IDs[j] { // a draw that a rounding decided: what follows is another text
				if dtype == "float32" {
					t.Errorf("%s, reply %d: token %d is %d, by operations %d", what, i, j, a[i].IDs[j], b[i].IDs[j])
				}
				break
			}
			if d := math.Abs(float64(a[i].Logprobs[j] - b[i].Logprobs[j])); d > most {
				t.Errorf("%s %s, reply %d, token %d: log-prob %v, by operations %v", what, dtype, i, j, a[i].Logprobs[j], b[i].Logprobs[j])
			}
		}
	}
}

// The call that computes a step gives what the operations one by one give: the roundings of two
// programs apart.
func TestTheDecoderGivesWhatTheOperationsGive(t *testing.T) {
	eachKernels(t, func(t *testing.T) {
		for _, family := range []string{"qwen3", "llama"} {
			path := wideModel(t, family, 0)
			for dtype, most := range map[string]float64{"float32": 2e-5, "bfloat16": .12} {
				cfg := Config{DType: dtype, Device: "cpu", MaxBatch: 8}
				one, other := open(t, path, cfg), open(t, path, cfg)
				needDecoder(t, one)
				other.sched.decoder.Close()
				other.sched.decoder = nil
				a, b := drawSome(t, one, 1, 2, 3, 4), drawSome(t, other, 1, 2, 3, 4)
				alike(t, family, dtype, most, a, b)
			}
		}
	})
}

// Recurrent layers, experts, gates and GELU in that call: replies, the experts that they record, and replies that
// begin in the cache.
func TestTheDecoderKnowsThePartsOfOtherFamilies(t *testing.T) {
	eachKernels(t, func(t *testing.T) {
		for _, title := range []string{"gemma3", "qwen3_moe", "qwen3_moe with dense layers", "glm4_moe", "lfm2",
			"lfm2 with biases and a longer convolution", "lfm2_moe", "qwen3_5", "qwen3_5 of equal heads", "qwen3_5_moe"} {
			t.Run(title, func(t *testing.T) {
				path := widened(t, title)
				for dtype, most := range map[string]float64{"float32": 4e-5, "bfloat16": .25} {
					cfg := Config{DType: dtype, Device: "cpu", MaxBatch: 8, CacheBytes: 64 << 20}
					cfg.KeepExperts = strings.Contains(title, "moe")
					if cfg.KeepExperts && dtype == "bfloat16" {
						most = 2 // a rounding decides between two experts now and then
					}
					one, other := open(t, path, cfg), open(t, path, cfg)
					needDecoder(t, one)
					other.sched.decoder.Close()
					other.sched.decoder = nil
					var apart float64
					for _, numbers := range [][]int{{1, 2, 3, 4}, {6, 7, 8}} {
						a, b := drawSome(t, one, numbers...), drawSome(t, other, numbers...)
						alike(t, title, dtype, most, a, b)
						for i := range a {
							apart += meanDifference(a[i], b[i]) / 7
							if dtype == "float32" && cfg.KeepExperts && !slices.Equal(a[i].Experts.IDs, b[i].Experts.IDs) {
								t.Errorf("reply %d: experts %v, by operations %v", i, a[i].Experts.IDs, b[i].Experts.IDs)
							}
						}
					}
					if apart > .1 {
						t.Errorf("%s: the log-probs are %v apart on average", dtype, apart)
					}
				}
			})
		}
	})
}

// meanDifference is how far the log-probs of two replies are apart, up to their first different token.
func meanDifference(a, b *Output) float64 {
	sum, n := 0., 0
	for j := range min(len(a.IDs), len(b.IDs)) {
		if a.IDs[j] != b.IDs[j] {
			break
		}
		sum += math.Abs(float64(a.Logprobs[j] - b.Logprobs[j]))
		n++
	}
	return sum / float64(max(n, 1))
}

// widened is a model of archtest with random weights that are so large that oneDNN has panels for them.
func widened(t *testing.T, title string) string {
	t.Helper()
	with := map[string]any{"vocab_size": 264, "max_position_embeddings": 2048, "hidden_size": 512, "intermediate_size": 512,
		"moe_intermediate_size": 96, "head_dim": 128, "query_pre_attn_scalar": 128, "shared_expert_intermediate_size": 512,
		"linear_key_head_dim": 128, "linear_value_head_dim": 128}
	switch title {
	case "qwen3_5 of equal heads":
		with["linear_value_head_dim"] = 256 // of two heads
	case "gemma3":
		with["tie_word_embeddings"] = false // its embeddings are so large that tied ones repeat a token with certainty
	case "glm4_moe":
		with["moe_intermediate_size"] = 512 // of the dense MLP too
	}
	all := families(t)
	var c map[string]any
	if err := json.Unmarshal(all[slices.IndexFunc(all, func(g familyGolden) bool { return g.Title == title })].Config, &c); err != nil {
		t.Fatal(err)
	}
	for key, v := range with {
		if _, has := c[key]; has {
			c[key] = v
		}
	}
	c["initializer_range"] = .06
	config, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return familyGolden{archtest.Model{Config: config}}.writeRandom(t)
}

// What is drawn for one does not depend on who is computed beside it, to the bit.
func TestNeighboursDoNotChangeALogprob(t *testing.T) {
	eachKernels(t, func(t *testing.T) {
		models := map[string]string{"qwen3": wideModel(t, "qwen3", 0), "experts": widened(t, "qwen3_moe"), "recurrent": widened(t, "qwen3_5")}
		for name, path := range models {
			for _, dtype := range []string{"float32", "bfloat16"} {
				p := open(t, path, Config{DType: dtype, Device: "cpu", MaxBatch: 16, CacheBytes: 64 << 20})
				needDecoder(t, p)
				alone := drawSome(t, p, 3)[0]
				EngineOf(p).ForgetPrefixes()
				many := drawSome(t, p, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13)[2]
				if !slices.Equal(alone.IDs, many.IDs) || !slices.Equal(alone.Logprobs, many.Logprobs) {
					t.Errorf("%s %s: alone %v %v, among others %v %v", name, dtype, alone.IDs, alone.Logprobs, many.IDs, many.Logprobs)
				}
			}
		}
	})
}

// wideModel is a model of random weights like the tiny one of a family, but so large that oneDNN
// has panels for its weights in float32 too, with room for long contexts; a window is that of
// the second layer.
func wideModel(t *testing.T, family string, window int) string {
	t.Helper()
	return modelOfWidth(t, family, window, 512)
}

func modelOfWidth(t *testing.T, family string, window, hidden int) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/tiny-"+family)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "config.json")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var c map[string]any
	if err := json.Unmarshal(b, &c); err != nil {
		t.Fatal(err)
	}
	for key, v := range map[string]any{"hidden_size": hidden, "intermediate_size": 512, "num_attention_heads": 8, "num_key_value_heads": 2,
		"head_dim": 64, "max_position_embeddings": 2048, "initializer_range": .06} {
		c[key] = v
	}
	if window > 0 {
		c["use_sliding_window"], c["sliding_window"], c["layer_types"] = true, window, []string{"full_attention", "sliding_attention"}
	}
	if b, err = json.Marshal(c); err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := weights.ReadConfig(dir)
	if err == nil {
		err = weights.WriteRandom(filepath.Join(dir, "model.safetensors"), cfg, 1, weights.F32)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// eachKernels runs f with the kernels of this processor, and with those of older ones.
func eachKernels(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if os.Getenv("AGENTCLI_TEST_KERNELS") != "" {
		f(t)
		return
	}
	for _, name := range []string{"", "avx512", "avx2"} {
		t.Run(cmp.Or(name, "best"), func(t *testing.T) {
			if err := torch.UseKernels(name); err != nil {
				t.Skip(err)
			}
			t.Cleanup(func() { _ = torch.UseKernels("") })
			f(t)
		})
	}
}

// needDecoder skips a test where the call that computes a step is not for this processor.
func needDecoder(t *testing.T, p *Policy) {
	t.Helper()
	switch {
	case p.sched.decoder != nil:
	case torch.OwnPanels(p.net.dtype), torch.Kernels() == "avx512_bf16" && !cpu.X86.HasAMXBF16:
		t.Fatal("this processor has kernels that read panels, and the model is not in them")
	default:
		t.Skip("this processor has no kernels that read panels")
	}
}

// longPrompt begins as all others do: 400 tokens, more than three chunks of attention. What
// follows is of its own length, within a chunk, at its end and behind it; that of longestPrompt is
// so long that a thread takes several chunks in one go.
func longPrompt(k int) []int32 {
	n := 400 + []int{1, 17, 48, 112, 113, 300, 520}[k%7]
	if k == longestPrompt {
		n = 1800
	}
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(4 + i*i%251)
		if i >= 400 {
			ids[i] = int32(4 + (i*i+31*k)%251)
		}
	}
	return ids
}

const longestPrompt = 100

func drawLong(t *testing.T, p *Policy, numbers ...int) []*Output {
	t.Helper()
	return drawAll(t, p, longPrompt, numbers)
}

// A context of many chunks, shared or not, full or windowed: the call that computes a step gives
// what the operations one by one give.
func TestTheDecoderLooksAtLongContextsAsTheOperationsDo(t *testing.T) {
	eachKernels(t, func(t *testing.T) {
		path := modelOfWidth(t, "qwen3", 150, 528) // no whole pieces of a panel
		for dtype, most := range map[string]float64{"float32": 2e-5, "bfloat16": .12} {
			cfg := Config{DType: dtype, Device: "cpu", MaxBatch: 8}
			one, other := open(t, path, cfg), open(t, path, cfg)
			needDecoder(t, one)
			other.sched.decoder.Close()
			other.sched.decoder = nil
			for _, numbers := range [][]int{{5}, {longestPrompt}, {0, 1, 2, 3, 4, 5, 6, longestPrompt}} {
				a, b := drawLong(t, one, numbers...), drawLong(t, other, numbers...)
				alike(t, fmt.Sprint(numbers), dtype, most, a, b)
			}
		}
	})
}

// What is drawn behind a long context does not depend, to the bit, on who shares it, on how many
// threads divide it, or on how much of it was in the cache.
func TestALongContextGivesTheSameBitsHoweverItIsDivided(t *testing.T) {
	eachKernels(t, func(t *testing.T) {
		path := wideModel(t, "qwen3", 150)
		for _, dtype := range []string{"float32", "bfloat16"} {
			want := map[int]*Output{}
			all := []int{0, 1, 2, 3, 4, 5, 6, longestPrompt}
			for _, threads := range []int{1, 2, 3} {
				p := open(t, path, Config{DType: dtype, Device: "cpu", MaxBatch: 16, Threads: threads})
				needDecoder(t, p)
				check := func(how string, numbers []int, got []*Output) {
					t.Helper()
					for i, k := range numbers {
						if w := want[k]; !slices.Equal(w.IDs, got[i].IDs) || !slices.Equal(w.Logprobs, got[i].Logprobs) {
							t.Errorf("%s, %d threads, %s: reply %d is %v %v, alone %v %v", dtype, threads, how, k, got[i].IDs, got[i].Logprobs,
								w.IDs, w.Logprobs)
						}
					}
				}
				for _, k := range all {
					EngineOf(p).ForgetPrefixes()
					alone := drawLong(t, p, k)
					if threads == 1 {
						want[k] = alone[0]
					}
					check("alone", []int{k}, alone)
				}
				check("with a cached beginning", all, drawLong(t, p, all...))
				EngineOf(p).ForgetPrefixes()
				check("together", all, drawLong(t, p, all...))
			}
		}
	})
}

// onlyEven is a grammar.
type onlyEven struct{ drawn []int32 }

func (g *onlyEven) Fill(mask []uint32) {
	for i := range mask {
		mask[i] = 0x55555555
	}
}

func (g *onlyEven) Accept(id int32) bool { g.drawn = append(g.drawn, id); return id%2 == 0 }

// A grammar decides what is drawn, and not what the model says of it.
func TestAGrammarsTokensHaveTheModelsLogprobs(t *testing.T) {
	p := open(t, "testdata/tiny-qwen3", Config{DType: "float32", Device: "cpu"})
	e, g := EngineOf(p), &onlyEven{}
	prompt := []int32{5, 9, 22, 31}
	r, err := e.Ask(t.Context(), &Request{Prompt: Sequence{IDs: prompt}, Sampling: traj.Sampling{MaxTokens: 20}, Seed: 2,
		IgnoreEnd: true, Grammar: g, Top: 3})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(g.drawn, r.IDs) || len(r.IDs) != 20 {
		t.Errorf("drawn %v, told %v", r.IDs, g.drawn)
	}
	scored, err := e.Score(t.Context(), &Request{Prompt: Sequence{IDs: append(slices.Clone(prompt), r.IDs...)}, PromptTop: 3})
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range r.Tokens {
		s := scored[len(prompt)+i]
		if x.ID%2 != 0 || math.Abs(float64(x.Logprob-s.Logprob)) > 1e-4 {
			t.Errorf("token %d is %d with %v; scored %v", i, x.ID, x.Logprob, s.Logprob)
		}
		for k, top := range x.Top {
			if top.ID != s.Top[k].ID || math.Abs(float64(top.Logprob-s.Top[k].Logprob)) > 1e-4 {
				t.Errorf("token %d: the most probable are %v, scored %v", i, x.Top, s.Top)
			}
		}
	}
}

// The lowest priority number is served first.
func TestWhoWaitsIsServedByPriority(t *testing.T) {
	p := open(t, "testdata/tiny-qwen3", Config{DType: "float32", Device: "cpu", MaxBatch: 1})
	e := EngineOf(p)
	if err := e.Pause(ExchangeKeep); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var order []int
	var wg sync.WaitGroup
	for i, priority := range []int{3, 1, 2} {
		wg.Go(func() {
			_, err := e.Ask(t.Context(), &Request{Prompt: Sequence{IDs: []int32{5, int32(i)}}, Sampling: traj.Sampling{MaxTokens: 2},
				Priority:  priority,
				IgnoreEnd: true, Emit: func(Token) { mu.Lock(); order = append(order, priority); mu.Unlock() }})
			if err != nil {
				t.Error(err)
			}
		})
	}
	for e.Load().Waiting < 3 {
		time.Sleep(time.Millisecond)
	}
	e.Resume()
	wg.Wait()
	if !slices.Equal(order, []int{1, 1, 2, 2, 3, 3}) {
		t.Errorf("served in the order %v", order)
	}
}

// A prompt's keys and values are found by those of its salt alone.
func TestSaltsKeepPromptsApart(t *testing.T) {
	p := open(t, "testdata/tiny-qwen3", Config{DType: "float32", Device: "cpu"})
	e := EngineOf(p)
	prompt := make([]int32, 40)
	for i := range prompt {
		prompt[i] = int32(i % 50)
	}
	cached := func(salt string) int {
		r, err := e.Ask(t.Context(), &Request{Prompt: Sequence{IDs: prompt}, Sampling: traj.Sampling{MaxTokens: 1}, Salt: salt})
		if err != nil {
			t.Fatal(err)
		}
		return r.Cached
	}
	if n := cached("a"); n != 0 {
		t.Errorf("%d tokens were found before there were any", n)
	}
	if n := cached("b"); n != 0 {
		t.Errorf("%d tokens of another salt were found", n)
	}
	if n := cached("a"); n == 0 {
		t.Error("its own tokens were not found")
	}
	e.ForgetPrefixes()
	if n := cached("a"); n != 0 {
		t.Errorf("%d forgotten tokens were found", n)
	}
}
