//go:build libtorch

package policy

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"sync"
	"testing"

	"agentcli/internal/torch"
	"agentcli/internal/torch/testdevice"
	"agentcli/traj"
)

// deviceTrial is what is decoded of a model, by its decoder on a device and by operations.
type deviceTrial struct {
	dtype   string
	numbers [][]int // of the sequences that are decoded together
	long    bool
}

// deviceTrials are those of the models of archtest, by title; nil: the model has no such decoder.
func deviceTrials(dev torch.Device) map[string][]deviceTrial {
	one, two, few, five, many := []int{1}, []int{1, 2}, []int{1, 2, 3}, []int{1, 2, 3, 4, 5}, []int{1, 2, 3, 4, 5, 6, 7, 8, 9}
	float32s := func(numbers ...[]int) deviceTrial { return deviceTrial{"float32", numbers, false} }
	longFloat32s := func(numbers ...[]int) deviceTrial { return deviceTrial{"float32", numbers, true} }
	bfloat16s := func(numbers ...[]int) deviceTrial { return deviceTrial{"bfloat16", numbers, false} }
	trials := map[string][]deviceTrial{
		"llama biases":                  {longFloat32s(one, five)},
		"qwen3":                         {bfloat16s(one, two, few)},
		"granite":                       {float32s(two)},
		"gemma3":                        {float32s(one, two)},
		"olmo3":                         {float32s(one, two), bfloat16s(two)},
		"olmo2, wide with biases":       {float32s(two)}, // a block norms rows that are as long
		"olmo2":                         {float32s(two)},
		"ministral3":                    {longFloat32s(one, two)}, // beyond 32 tokens queries grow
		"qwen3_moe":                     {float32s(one, five), bfloat16s(two)},
		"qwen3_moe with dense layers":   {float32s(two)},
		"glm4_moe":                      {longFloat32s(two), bfloat16s(two)}, // with an MLP beside experts
		"gpt_oss":                       {float32s(one, five), bfloat16s(two)},
		"gpt_oss with clamps that bite": {float32s(two)},
		"gemma4":                        {longFloat32s(one, five), bfloat16s(two)},
		"gemma4 with a wide window, biases and a cap":            {float32s(two)},
		"gemma4 with inputs of layers and shared keys":           {float32s(two), bfloat16s(two)},
		"gemma4 with all of it, untied, 16 numbers in an expert": {float32s(one, few), bfloat16s(two)},
		"gemma4 with all of it, untied":                          nil, // experts of 12 numbers are not for our kernels
		"lfm2":                                                   {float32s(one, five), bfloat16s(two)},
		"lfm2 with biases and a longer convolution":              {longFloat32s(two)},
		"lfm2_moe":               {float32s(two)},
		"qwen3_5":                {longFloat32s(one, five), bfloat16s(two)},
		"qwen3_5 of equal heads": {float32s(two)},
		"qwen3_5_moe":            {float32s(two), bfloat16s(two)},
	}
	if dev != torch.TestDevice { // which computes a thread after the other
		all := []deviceTrial{longFloat32s(one, two, few, many), {"bfloat16", [][]int{one, two, few, many}, true}}
		for _, title := range []string{"llama biases", "mistral with a window", "phi3 partial", "smollm3", "seed_oss with other biases",
			"granite", "qwen3", "gemma3", "olmo2", "olmo3", "ministral3", "qwen3_moe", "glm4_moe", "gpt_oss",
			"lfm2", "qwen3_5", "qwen3_5_moe", "gemma4 with inputs of layers and shared keys",
			"gemma4 with all of it, untied, 16 numbers in an expert"} {
			trials[title] = all
		}
	}
	return trials
}

// onKernels plays a test on a device that has our kernels.
func onKernels(t *testing.T) {
	t.Helper()
	onDefault(t, kernelDevice(), "")
	testdevice.Kernels(true)
	t.Cleanup(func() { testdevice.Kernels(false) })
}

// withDecoder opens a model whose steps are recorded, withoutDecoder one whose steps are operations.
func withDecoder(t *testing.T, dir string, cfg Config) *Policy {
	t.Helper()
	p := open(t, dir, cfg)
	if p.sched.device == nil {
		t.Fatal("there is no decoder")
	}
	return p
}

func withoutDecoder(t *testing.T, dir string, cfg Config) *Policy {
	t.Helper()
	p := withDecoder(t, dir, cfg)
	p.sched.device.Close()
	p.sched.device = nil
	return p
}

// Steps of the decoder on a device give what the operations give: the tokens of a seed and their
// log-probs, for one sequence, for few and for many, in short contexts and in long ones.
func TestTheDecoderOnADeviceGivesWhatTheOperationsGive(t *testing.T) {
	if torch.DefaultDevice == torch.TestDevice || os.Getenv("AGENTCLI_TEST_KERNELS") == "none" {
		t.Skip("make test compares them once, where the other tests run on a CPU with our kernels")
	}
	onKernels(t)
	trials := deviceTrials(kernelDevice())
	models := families(t)
	other := func(title, change string, with map[string]any) {
		g := models[slices.IndexFunc(models, func(g familyGolden) bool { return g.Title == title })]
		g.Title, g.Config = title+", "+change, changed(t, g.Config, with)
		models = append(models, g)
	}
	other("olmo2", "wide with biases", map[string]any{"hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 8,
		"attention_bias": true})
	other("gemma4 with all of it, untied", "16 numbers in an expert", map[string]any{"moe_intermediate_size": 16})
	for _, g := range models {
		of, ok := trials[g.Title]
		if !ok {
			continue
		}
		delete(trials, g.Title)
		t.Run(g.Title, func(t *testing.T) {
			dir := g.write(t)
			if of == nil && open(t, dir, Config{DType: "float32", Threads: 1, CacheBytes: 1 << 20}).sched.device != nil {
				t.Error("there is a decoder for layers that it does not know")
			}
			for _, x := range of {
				most := map[string]float64{"float32": 1e-5, "bfloat16": .04}[x.dtype]
				cfg := Config{DType: x.dtype, Threads: 1, CacheBytes: 4 << 20, KeepExperts: true}
				p, other := withDecoder(t, dir, cfg), withoutDecoder(t, dir, cfg)
				if HasExperts(p) && x.dtype == "bfloat16" {
					most = 2 // a rounding decides between two experts now and then
				}
				for _, numbers := range x.numbers {
					got, want := drawSome(t, p, numbers...), drawSome(t, other, numbers...)
					alike(t, "short", x.dtype, most, got, want)
					same := 0
					for i, one := range got {
						if d := meanDifference(one, want[i]); d > .1 {
							t.Errorf("%s, reply %d: the log-probs are %v apart on average", x.dtype, i, d)
						}
						same += equalTokens(one, want[i])
						if HasExperts(p) && x.dtype == "float32" && !slices.Equal(one.Experts.IDs, want[i].Experts.IDs) {
							t.Errorf("reply %d has the experts %v, by operations %v", i, one.Experts.IDs, want[i].Experts.IDs)
						}
					}
					if same < 5*len(got) {
						t.Errorf("%s: %d tokens of %d replies are equal before one differs", x.dtype, same, len(got))
					}
				}
				if x.dtype == "float32" && len(x.numbers) > 1 {
					sameStops(t, p, other)
				}
				if p.sched.slots != nil && x.dtype == "float32" {
					samePrefix(t, p, other)
				}
				if x.long {
					prompt := func(k int) []int32 {
						ids := make([]int32, min(600+50*k, p.cfg.MaxContext/2))
						for i := range ids {
							ids[i] = int32(4 + (i*i+31*k)%89)
						}
						return ids
					}
					alike(t, "long", x.dtype, most, drawAll(t, p, prompt, []int{0, 6}), drawAll(t, other, prompt, []int{0, 6}))
				}
			}
		})
	}
	if len(trials) > 0 {
		t.Errorf("there are no families %v", trials)
	}
}

// equalTokens is how many tokens two replies begin with in common.
func equalTokens(a, b *Output) (n int) {
	for n < min(len(a.IDs), len(b.IDs)) && a.IDs[n] == b.IDs[n] {
		n++
	}
	return n
}

// changed is a model's config.json with other values.
func changed(t *testing.T, config []byte, with map[string]any) []byte {
	t.Helper()
	var c map[string]any
	if err := json.Unmarshal(config, &c); err != nil {
		t.Fatal(err)
	}
	maps.Copy(c, with)
	out, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Mixers of the sizes that models have: several numbers of a key for each thread, and more channels than a block has.
func TestTheDecoderOnADeviceTakesWideMixers(t *testing.T) {
	onKernels(t)
	for _, title := range []string{"lfm2", "qwen3_5"} {
		t.Run(title, func(t *testing.T) {
			cfg := Config{DType: "float32", Threads: 1, CacheBytes: 16 << 20, MaxBatch: 2}
			dir := widened(t, title)
			p, other := withDecoder(t, dir, cfg), withoutDecoder(t, dir, cfg)
			alike(t, title, "float32", 4e-5, drawSome(t, p, 1, 2), drawSome(t, other, 1, 2))
		})
	}
}

// Every family has a step that is recorded, and it may not ask for memory: a graph would keep the address of what is given back
// behind it.
func TestEveryFamilyHasAStepOnADeviceThatAsksForNoMemory(t *testing.T) {
	if kernelDevice() != torch.TestDevice {
		t.Skip("the tests' device counts memory")
	}
	onKernels(t)
	models, n, without := families(t), 0, []string(nil)
	for i := range models {
		if models[i].Title == "gemma4 with all of it, untied" {
			models[i].Config = changed(t, models[i].Config, map[string]any{"moe_intermediate_size": 16, "final_logit_softcapping": nil})
		}
	}
	for _, g := range models {
		p := open(t, g.write(t), Config{DType: "bfloat16", Threads: 1, CacheBytes: 4 << 20, KeepExperts: true})
		c := p.model
		if p.sched.device == nil {
			without = append(without, g.Title)
			continue
		}
		if c.LogitCap > 0 || c.LogitScale != 1 || len(c.Barred) > 0 { // whose logits are changed behind the step
			continue
		}
		n++
		var took []int64
		_, err := EngineOf(p).Ask(t.Context(), &Request{Prompt: Sequence{IDs: []int32{5, 9, 22}}, Seed: 3, IgnoreEnd: true,
			Sampling: traj.Sampling{MaxTokens: 8}, Emit: func(Token) { took = append(took, testdevice.Memory(0)) }})
		if err != nil {
			t.Fatalf("%s: %v", g.Title, err)
		}
		if len(took) != 8 || took[0] == 0 || slices.Max(took[2:]) > 0 {
			t.Errorf("%s: the tokens of a reply take %v bytes", g.Title, took)
		}
	}
	if n < 15 {
		t.Errorf("%d families have a step on a device that draws", n)
	}
	// Its experts have 12 numbers.
	if !slices.Equal(without, []string{"gemma4 with experts and keys that are values"}) {
		t.Errorf("%q have no decoder on a device", without)
	}
}

// samePrefix holds replies to prompts that go on from earlier replies to those that the operations give: recurrent layers begin
// with the states that a step of decoding has left at the end of a block.
func samePrefix(t *testing.T, p, other *Policy) {
	t.Helper()
	first := []int32{5, 9, 22, 31, 7, 12, 40, 3, 8, 15, 25}
	before := ask(t, p, first, 30)
	if same := ask(t, other, first, 30); !slices.Equal(before.IDs, same.IDs) {
		t.Fatalf("the reply is %v, by operations %v", before.IDs, same.IDs)
	}
	prompt := slices.Concat(first, before.IDs, []int32{7, 8})
	got, want := ask(t, p, prompt, 12), ask(t, other, prompt, 12)
	if got.Cached < len(first)+blockSize || want.Cached != got.Cached {
		t.Errorf("%d tokens were in the cache, by operations %d, want some of the reply", got.Cached, want.Cached)
	}
	if !slices.Equal(got.IDs, want.IDs) {
		t.Errorf("behind the reply comes %v, by operations %v", got.IDs, want.IDs)
	}
	for i := range want.Logprobs {
		if d := got.Logprobs[i] - want.Logprobs[i]; math.Abs(float64(d)) > 1e-5 {
			t.Errorf("token %d has log-prob %v, by operations %v", i, got.Logprobs[i], want.Logprobs[i])
		}
	}
}

// sameStops holds replies that end by their text to those that the operations give: the step behind
// the end, which was launched before it was known, leaves nothing.
func sameStops(t *testing.T, p, other *Policy) {
	t.Helper()
	whole := drawSome(t, p, 1, 2, 3)
	stop := p.tok.Decode(whole[1].IDs[4:6], false)
	reply := func(p *Policy) (out []*Output) {
		out = make([]*Output, len(whole))
		var wg sync.WaitGroup
		for i := range out {
			wg.Go(func() {
				var err error
				prompt := []int32{5, 9, 22, 31, 7, 12, 40, 3, 8, int32(11 + i), int32(21 + i)}
				if out[i], err = p.Sample(t.Context(), prompt, traj.Sampling{MaxTokens: 20, Stop: []string{stop}}, int64(1+i)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		return out
	}
	got, want := reply(p), reply(other)
	if got[1].FinishReason != traj.FinishStop || len(got[1].IDs) > 6 {
		t.Fatalf("%v ends at %q with %d tokens", got[1].FinishReason, stop, len(got[1].IDs))
	}
	for i := range got {
		if !slices.Equal(got[i].IDs, want[i].IDs) || got[i].Text != want[i].Text {
			t.Errorf("stopped at %q, reply %d is %v, by operations %v", stop, i, got[i].IDs, want[i].IDs)
		}
		if HasExperts(p) && !slices.Equal(got[i].Experts.IDs, want[i].Experts.IDs) {
			t.Errorf("stopped at %q, reply %d has the experts %v, by operations %v", stop, i, got[i].Experts.IDs, want[i].Experts.IDs)
		}
	}
}

// A graph stays right when longer contexts need more room to work in than there was when it was recorded.
func TestAGraphOfShortContextsIsRightAfterLongOnes(t *testing.T) {
	onKernels(t)
	models := families(t)
	g := models[slices.IndexFunc(models, func(g familyGolden) bool { return g.Title == "qwen3" })]
	g.Config = changed(t, g.Config, map[string]any{"max_position_embeddings": 512})
	dir, cfg := g.write(t), Config{DType: "float32", Threads: 1, CacheBytes: 4 << 20}
	p, other := withDecoder(t, dir, cfg), withoutDecoder(t, dir, cfg)
	for i, n := range []int{100, 300, 100} {
		prompt := func(int) []int32 { return idsOf(i, n) }
		got, want := drawAll(t, p, prompt, []int{1}), drawAll(t, other, prompt, []int{1})
		if t.Failed() {
			t.FailNow()
		}
		alike(t, fmt.Sprint(n, " tokens"), "float32", 1e-5, got, want)
	}
}

// A step whose graph has no memory is done all the same.
func TestAStepWithoutMemoryForItsGraphIsDone(t *testing.T) {
	if kernelDevice() != torch.TestDevice {
		t.Skip("the tests' device fails when it is told to")
	}
	onKernels(t)
	cfg := Config{DType: "float32", Threads: 1, CacheBytes: 1 << 20}
	p, other := withDecoder(t, "testdata/tiny-llama", cfg), withoutDecoder(t, "testdata/tiny-llama", cfg)
	request := func(seed int) *Request {
		return &Request{Prompt: Sequence{IDs: idsOf(seed, 20)}, Seed: 3, IgnoreEnd: true, Sampling: traj.Sampling{MaxTokens: 8}}
	}
	askTogether(t, p, []*Request{request(1), request(2)}) // has the memory that a step of one works in
	fails, n := request(3), 0
	fails.Emit = func(Token) {
		if n++; n == 1 { // the next step is the first of one
			testdevice.Fail("CUDA error: out of memory")
		}
	}
	for _, r := range []*Request{fails, request(4)} { // the second one's prompt would take a failure that is left
		sameOutcomes(t, askTogether(t, p, []*Request{r}), askTogether(t, other, []*Request{{Prompt: r.Prompt, Seed: r.Seed, IgnoreEnd: true,
			Sampling: r.Sampling}}))
	}
}

// textRequests are requests after three texts, whose replies end in the third block of the cache.
func textRequests() (out []*Request) {
	for i := range 3 {
		out = append(out, &Request{Prompt: Sequence{IDs: idsOf(i, 25)}, Seed: int64(i), IgnoreEnd: true, Top: 2,
			Sampling: traj.Sampling{MaxTokens: 20}})
	}
	return out
}

// sameOutcomes holds replies to others with the same tokens, log-probs and experts.
func sameOutcomes(t *testing.T, got, want []*Reply) {
	t.Helper()
	for i := range want {
		if !slices.Equal(got[i].IDs, want[i].IDs) || got[i].Cached != want[i].Cached {
			t.Errorf("reply %d is %v with %d tokens from the cache, want %v with %d",
				i, got[i].IDs, got[i].Cached, want[i].IDs, want[i].Cached)
			continue
		}
		for j, w := range want[i].Logprobs {
			if d := math.Abs(float64(got[i].Logprobs[j] - w)); d > 1e-5 {
				t.Errorf("token %d of reply %d has log-prob %v, want %v", j, i, got[i].Logprobs[j], w)
			}
		}
		if w := want[i].Experts; w != nil && !slices.Equal(got[i].Experts.IDs, w.IDs) {
			t.Errorf("reply %d has the experts %v, want %v", i, got[i].Experts.IDs, w.IDs)
		}
	}
}

// A recorded step that fails has moved the recurrent states of its sequences on: all are computed again, and get what they get
// where nothing fails.
func TestAStepOfRecurrentLayersOnADeviceThatFailsIsComputedAgain(t *testing.T) {
	if kernelDevice() != torch.TestDevice {
		t.Skip("the tests' device fails when it is told to")
	}
	onKernels(t)
	dirs := recurrentModels(t)
	for _, title := range []string{"lfm2", "qwen3_5", "qwen3_5_moe"} {
		t.Run(title, func(t *testing.T) {
			cfg := Config{DType: "float32", Threads: 1, CacheBytes: 4 << 20, MaxBatch: 8, KeepExperts: true}
			p, other := withDecoder(t, dirs[title], cfg), withDecoder(t, dirs[title], cfg)
			want := askTogether(t, other, textRequests())
			requests, n := textRequests(), 0
			requests[0].Emit = func(Token) { // the most probable ids need memory
				if n++; n == 4 || n == 12 {
					testdevice.Fail("CUDA error: out of memory")
				}
			}
			sameOutcomes(t, askTogether(t, p, requests), want)
			if p.sched.most >= cfg.MaxBatch {
				t.Error("no step failed")
			}
		})
	}
}

// Where every slot is a running sequence's own, no snapshot is taken, and nobody's states change.
func TestRecurrentLayersOnADeviceDoWithoutSlotsForSnapshots(t *testing.T) {
	onKernels(t)
	dirs := recurrentModels(t)
	for _, title := range []string{"lfm2", "qwen3_5"} {
		t.Run(title, func(t *testing.T) {
			p := withDecoder(t, dirs[title], Config{DType: "float32", Threads: 1, CacheBytes: 1, MaxBatch: 8})
			other := withoutDecoder(t, dirs[title], Config{DType: "float32", Threads: 1, CacheBytes: 4 << 20, MaxBatch: 8})
			requests, without := textRequests(), 0
			for _, r := range requests {
				r.Emit = func(Token) {
					if slots := p.sched.slots; len(p.sched.running) == slots.all-1 && len(slots.free)+len(slots.snapshots) == 0 {
						without++
					}
				}
			}
			sameOutcomes(t, askTogether(t, p, requests), askTogether(t, other, textRequests()))
			if without < 20 {
				t.Errorf("%d tokens came while there was no slot for a snapshot", without)
			}
		})
	}
}
