//go:build libtorch

package policy

import (
	"encoding/json"
	"slices"
	"sync"
	"testing"

	"agentcli/internal/torch"
	"agentcli/internal/torch/testdevice"
	"agentcli/traj"
)

// Steps of the decoder on a device give what the operations give: the tokens of a seed and their
// log-probs, for one sequence, for few and for many, in short contexts and in long ones.
func TestTheDecoderOnADeviceGivesWhatTheOperationsGive(t *testing.T) {
	dev := kernelDevice()
	onDefault(t, dev, "")
	testdevice.Kernels(true)
	defer testdevice.Kernels(false)
	type trial struct {
		dtype   string
		numbers [][]int // of the sequences that are decoded together
		long    bool
	}
	few, many := []int{1, 2, 3}, []int{1, 2, 3, 4, 5, 6, 7, 8, 9}
	trials := map[string][]trial{
		"llama biases": {{"float32", [][]int{{1}, {1, 2, 3, 4, 5}}, true}},
		"qwen3":        {{"bfloat16", [][]int{{1}, {1, 2}, few}, false}},
		"granite":      {{"float32", [][]int{{1, 2}}, false}},
		"gemma3":       {{"float32", [][]int{{1}, {1, 2}}, false}},
		"olmo3":        {{"float32", [][]int{{1}, {1, 2}}, false}, {"bfloat16", [][]int{{1, 2}}, false}},
		// A block norms rows that are as long.
		"olmo2, wide with biases": {{"float32", [][]int{{1, 2}}, false}},
		"olmo2":                   {{"float32", [][]int{{1, 2}}, false}},
		"ministral3":              {{"float32", [][]int{{1}, {1, 2}}, true}}, // beyond 32 tokens queries grow
		"gemma4":                  nil,                                       // layers that share keys and values are not in the decoder
	}
	if dev != torch.TestDevice { // which computes a thread after the other
		all := []trial{{"float32", [][]int{{1}, {1, 2}, few, many}, true}, {"bfloat16", [][]int{{1}, {1, 2}, few, many}, true}}
		for _, title := range []string{"llama biases", "mistral with a window", "phi3 partial", "smollm3", "seed_oss with other biases",
			"granite", "qwen3", "gemma3", "olmo2", "olmo3", "ministral3"} {
			trials[title] = all
		}
	}
	models := families(t)
	wide := models[slices.IndexFunc(models, func(g familyGolden) bool { return g.Title == "olmo2" })]
	wide.Title, wide.Config = "olmo2, wide with biases", wider(t, wide.Config)
	for _, g := range append(models, wide) {
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
				p := open(t, dir, Config{DType: x.dtype, Threads: 1, CacheBytes: 4 << 20})
				other := open(t, dir, Config{DType: x.dtype, Threads: 1, CacheBytes: 4 << 20})
				if p.sched.device == nil {
					t.Fatal("there is no decoder")
				}
				other.sched.device.Close()
				other.sched.device = nil
				for _, numbers := range x.numbers {
					alike(t, "short", x.dtype, most, drawSome(t, p, numbers...), drawSome(t, other, numbers...))
				}
				if x.dtype == "float32" && len(x.numbers) > 1 {
					sameStops(t, p, other)
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

// wider is a model's config.json with eight heads of 64 and biases.
func wider(t *testing.T, config []byte) []byte {
	t.Helper()
	var c map[string]any
	if err := json.Unmarshal(config, &c); err != nil {
		t.Fatal(err)
	}
	c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"], c["attention_bias"] = 512, 8, 8, true
	out, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return out
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
	}
}
