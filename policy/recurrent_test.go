//go:build libtorch

package policy

import (
	"context"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"agentcli/internal/torch"
	"agentcli/internal/torch/testdevice"
	"agentcli/model/arch/archtest"
	"agentcli/model/weights"
	"agentcli/traj"
)

// recurrentModels are the folders of the golden models with recurrent layers, by title.
func recurrentModels(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, g := range families(t) {
		dir := g.write(t)
		c, err := weights.ReadConfig(dir)
		if err != nil {
			t.Fatal(err)
		}
		if c.Recurrent() {
			out[g.Title] = dir
		}
	}
	if len(out) == 0 {
		t.Fatal("no model has recurrent layers")
	}
	return out
}

// idsOf is n ids that are different for each seed.
func idsOf(seed, n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(3 + (i*7+seed*13+i*i%11)%90)
	}
	return out
}

// A node of a training tree begins with its parent's states: log-probs and gradients are
// those of the sequences one by one, with nodes shorter than the convolution and longer than
// a chunk, and texts that end inside of others.
func TestRecurrentStatesOfATreeAreThoseOfSeparateSequences(t *testing.T) {
	long := idsOf(1, 150)
	seqs := [][]int32{idsOf(2, 5), idsOf(2, 2), long, slices.Concat(long[:130], idsOf(3, 1), idsOf(4, 9)),
		slices.Concat(long[:130], idsOf(3, 1), idsOf(5, 70)),
		slices.Concat(long[:131], idsOf(6, 3)), slices.Concat(long[:64], idsOf(7, 65)), slices.Concat(long[:2], idsOf(8, 1), idsOf(9, 2)),
		long[:40]}
	for title, dir := range recurrentModels(t) {
		run := func(checkpoint bool, batches ...[][]int32) (lps []float64, grads map[string][]float64) {
			tr, err := OpenTrainable(dir, Config{DType: "float64", Threads: 2, GradCheckpoint: checkpoint})
			if err != nil {
				t.Fatal(err)
			}
			defer tr.Close()
			for _, b := range batches {
				batch := Batch{Sequences: b}
				for _, q := range b {
					batch.Want = append(batch.Want, slices.Repeat([]bool{true}, len(q)))
				}
				if err := tr.Accumulate(batch, func(o Outputs) Gradients {
					lps = append(lps, o.Logprobs...)
					return Gradients{Logprobs: slices.Repeat([]float64{.01}, len(o.Logprobs))}
				}); err != nil {
					t.Fatal(err)
				}
			}
			if grads, err = tr.Gradients(); err != nil {
				t.Fatal(err)
			}
			return lps, grads
		}
		var alone [][][]int32
		for _, q := range seqs {
			alone = append(alone, [][]int32{q})
		}
		want, wantGrads := run(false, alone...)
		for _, checkpoint := range []bool{false, true} {
			got, grads := run(checkpoint, seqs)
			for i := range want {
				if math.Abs(got[i]-want[i]) > 1e-12*max(1, math.Abs(want[i])) {
					t.Fatalf("%s: log-prob %d is %v in the tree, %v alone", title, i, got[i], want[i])
				}
			}
			for name, w := range wantGrads {
				norm, off := 0.0, 0.0
				for i, x := range w {
					norm, off = norm+x*x, off+(grads[name][i]-x)*(grads[name][i]-x)
				}
				if math.Sqrt(off) > 1e-10*math.Sqrt(norm) {
					t.Errorf("%s, checkpointed %v: the gradient of %s differs by %.2g of %.2g", title, checkpoint, name, math.Sqrt(off), math.Sqrt(norm))
				}
			}
		}
	}
}

// replies samples greedily after each prompt, one by one or together.
func replies(t *testing.T, p *Policy, prompts [][]int32, together bool) (ids [][]int32, lps [][]traj.Logprob) {
	t.Helper()
	ids, lps = make([][]int32, len(prompts)), make([][]traj.Logprob, len(prompts))
	one := func(i int) {
		out, err := p.Sample(context.Background(), prompts[i], traj.Sampling{MaxTokens: 20, TopP: .9}, int64(i))
		if err != nil {
			t.Error(err)
			return
		}
		ids[i], lps[i] = out.IDs, out.Logprobs
	}
	var wg sync.WaitGroup
	for i := range prompts {
		if together {
			wg.Go(func() { one(i) })
		} else {
			one(i)
		}
	}
	wg.Wait()
	return ids, lps
}

// Prompts that are computed in parts, that begin at a snapshot of another's states, that
// continue a reply, that run together, wait for slots, or are computed again after the cache
// was full get the tokens and log-probs that each gets alone.
func TestRecurrentStatesOfTheCacheGiveTheTokensOfAnEmptyOne(t *testing.T) {
	shared := idsOf(1, 61)
	prompts := [][]int32{idsOf(2, 1), idsOf(2, 2), shared, shared, slices.Concat(shared[:45], idsOf(3, 9)),
		slices.Concat(shared[:45], idsOf(4, 70)),
		slices.Concat(shared[:45], idsOf(5, 3)), shared[:48], shared[:49], idsOf(6, 130)}
	orders, native := []bool{false, true, true}, torch.Native(torch.DefaultDevice)
	if !native { // a step takes many times as long
		prompts, orders = prompts[:6], orders[:2]
	}
	for title, dir := range recurrentModels(t) {
		c := Config{DType: "float64", Threads: 1, CacheBytes: 1 << 20}
		fresh := func(prompt []int32, seed int) ([]int32, []traj.Logprob) {
			p := open(t, dir, c)
			defer p.Close()
			out, err := p.Sample(context.Background(), prompt, traj.Sampling{MaxTokens: 20, TopP: .9}, int64(seed))
			if err != nil {
				t.Fatal(err)
			}
			return out.IDs, out.Logprobs
		}
		want, wantLps := make([][]int32, len(prompts)), make([][]traj.Logprob, len(prompts))
		for i, ids := range prompts {
			want[i], wantLps[i] = fresh(ids, i)
		}
		compare := func(what string, prompts, ids, want [][]int32, lps, wantLps [][]traj.Logprob) {
			t.Helper()
			for i := range prompts {
				if !slices.Equal(ids[i], want[i]) {
					t.Fatalf("%s, %s: reply %d is %v, alone %v", title, what, i, ids[i], want[i])
				}
				for j := range lps[i] {
					if math.Abs(float64(lps[i][j]-wantLps[i][j])) > 1e-6 {
						t.Fatalf("%s, %s: log-prob %d of reply %d is %v, alone %v", title, what, j, i, lps[i][j], wantLps[i][j])
					}
				}
			}
		}
		settings := map[string]struct{ cache, step int64 }{
			"whole prompts": {1 << 20, 2048}, "prompts in parts": {1 << 20, 7},
			"a full cache": {1 << 10, 2048}, "a full cache and parts": {1 << 10, 50},
		}
		if !native {
			delete(settings, "whole prompts")
			delete(settings, "a full cache")
		}
		for what, x := range settings {
			small := c
			small.CacheBytes = x.cache
			p := open(t, dir, small)
			if err := askFor(p.sched, &change{make: func(*torch.Scope) error { p.sched.stepTokens = int(x.step); return nil }}); err != nil {
				t.Fatal(err)
			}
			for _, together := range orders {
				ids, lps := replies(t, p, prompts, together)
				compare(what, prompts, ids, want, lps, wantLps)
			}
			if n := len(p.sched.slots.snapshots); (n == 0 && x.cache > 1<<10) || n >= p.sched.slots.all {
				t.Errorf("%s, %s: %d snapshots in %d slots", title, what, n, p.sched.slots.all)
			}
			// A second turn.
			var next, nextWant [][]int32
			var nextLps [][]traj.Logprob
			for i := range prompts[:4] {
				next = append(next, slices.Concat(prompts[i], want[i], idsOf(20+i, 4)))
				a, b := fresh(next[i], i)
				nextWant, nextLps = append(nextWant, a), append(nextLps, b)
			}
			ids, lps := replies(t, p, next, false)
			compare(what+", second turn", next, ids, nextWant, lps, nextLps)
			p.Close()
		}
	}
}

// What a prompt shares with another is computed once: from the second on it begins behind
// the last block of the prompt, of the text that two share, and of a reply.
func TestSharedPrefixesBeginAtSnapshots(t *testing.T) {
	for title, dir := range recurrentModels(t) {
		p := open(t, dir, Config{DType: "float32", Threads: 1, CacheBytes: 1 << 20})
		begins := func(ids []int32) int {
			var blocks []int32
			hash := uint64(0)
			for n := 0; n+blockSize < len(ids); n += blockSize {
				i, h, ok := p.sched.table.lookup(hash, ids[n:n+blockSize], "")
				if !ok {
					break
				}
				blocks, hash = append(blocks, i), h
			}
			return p.sched.slots.usable(blocks) * blockSize
		}
		prompt := idsOf(1, 50)
		if n := begins(prompt); n != 0 {
			t.Errorf("%s: an empty cache has %d tokens", title, n)
		}
		ids, _ := replies(t, p, [][]int32{prompt}, false)
		if n := begins(prompt); n != 48 {
			t.Errorf("%s: the same prompt begins behind %d tokens, want 48", title, n)
		}
		whole := slices.Concat(prompt, ids[0], idsOf(9, 5))
		if n, want := begins(whole), (len(prompt)+len(ids[0])-1)/blockSize*blockSize; n != want {
			t.Errorf("%s: the next turn begins behind %d tokens, want %d", title, n, want)
		}
		other, third := slices.Concat(prompt[:33], idsOf(2, 20)), slices.Concat(prompt[:33], idsOf(3, 20))
		if n := begins(other); n != 0 {
			t.Errorf("%s: a first branch begins behind %d tokens, want 0", title, n)
		}
		replies(t, p, [][]int32{other}, false)
		if n := begins(third); n != 32 {
			t.Errorf("%s: a second branch begins behind %d tokens, want 32", title, n)
		}
		if n := begins(prompt); n != 48 {
			t.Errorf("%s: the first prompt begins behind %d tokens, want 48", title, n)
		}
	}
}

// Recurrent layers on a device equal those of the CPU without our kernels, bit for bit.
func TestADeviceComputesRecurrentLayersAsTheCPUDoes(t *testing.T) {
	needsTestDevice(t)
	dirs := recurrentModels(t)
	for _, title := range []string{"lfm2", "qwen3_5_moe"} {
		for _, dtype := range []string{"float32", "bfloat16"} {
			t.Run(title+"/"+dtype, func(t *testing.T) {
				var cpu, device record
				t.Run("cpu", func(t *testing.T) { onDefault(t, torch.CPU, "none"); cpu = everything(t, dirs[title], dtype) })
				operations := testdevice.Operations()
				t.Run("device", func(t *testing.T) { onDefault(t, torch.TestDevice, ""); device = everything(t, dirs[title], dtype) })
				if testdevice.Operations() == operations {
					t.Fatal("nothing ran on the device")
				}
				if !slices.Equal(cpu, device) {
					for i := range cpu {
						if i >= len(device) || cpu[i] != device[i] {
							t.Errorf("the device gives other bits than\n%s", cpu[i])
						}
					}
				}
			})
		}
	}
}

// Experts that are stacked in one tensor, as Qwen3.5 is published, are those of a file that has
// them one by one.
func TestStackedExpertsAreReadOneByOne(t *testing.T) {
	for _, g := range families(t) {
		if g.Title != "qwen3_5_moe" {
			continue
		}
		dir := g.write(t)
		c, err := weights.ReadConfig(dir)
		if err != nil {
			t.Fatal(err)
		}
		data, shapes := map[string][]byte{}, map[string][]int64{}
		var names []string
		for _, i := range c.Tensors() {
			name, shape := i.Name, i.Shape
			if before, after, ok := strings.Cut(name, ".experts."); ok {
				e := c.Layers[0].Experts
				name, shape = before+".experts.down_proj", []int64{int64(e.Count), int64(c.HiddenSize), int64(e.Size)}
				if !strings.HasSuffix(after, "down_proj.weight") {
					name, shape = before+".experts.gate_up_proj", []int64{int64(e.Count), int64(2 * e.Size), int64(c.HiddenSize)}
				}
			}
			if data[name] == nil {
				names = append(names, name)
			}
			data[name], shapes[name] = append(data[name], archtest.Draw(i.Name, i.Shape)...), shape
		}
		var infos []weights.TensorInfo
		for _, name := range names {
			infos = append(infos, weights.TensorInfo{Name: name, DType: weights.F32, Shape: shapes[name]})
		}
		w, err := weights.CreateSafetensors(filepath.Join(dir, "model.safetensors"), infos, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if err := w.Write(name, data[name]); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		sameLogprobs(t, dir, open(t, dir, Config{DType: "float32", Threads: 1, CacheBytes: 1 << 20}), g.Logprobs[1])
	}
}

// A step that runs out of memory may have changed some states: all its sequences are computed
// again, and get the same tokens.
func TestOutOfMemoryRecurrentStatesAreComputedAgain(t *testing.T) {
	needsTestDevice(t)
	onDefault(t, torch.TestDevice, "")
	p := open(t, recurrentModels(t)["qwen3_5"], Config{DType: "float32", Threads: 1, CacheBytes: 1 << 20, MaxBatch: 8})
	together := func() (ids [][]int32) {
		var requests []*Request
		for i := range 8 {
			requests = append(requests, &Request{Prompt: Sequence{IDs: idsOf(i, 100)}, Seed: int64(i),
				Sampling: traj.Sampling{MaxTokens: 20, TopP: .9}})
		}
		for _, r := range askTogether(t, p, requests) {
			ids = append(ids, r.IDs)
		}
		return ids
	}
	testdevice.Memory(0)
	want := together()
	all := testdevice.Memory(0)
	replies(t, p, [][]int32{idsOf(30, 100)}, false)
	one := testdevice.Memory(0)
	defer testdevice.Memory(0)
	testdevice.Memory((one + all) / 2)
	if err := askFor(p.sched, &change{make: func(*torch.Scope) error { return nil }}); err != nil {
		t.Fatal(err)
	}
	got := together()
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("with less memory other tokens are drawn:\n%v\n%v", got, want)
	}
	if p.sched.most >= 8 {
		t.Error("it never ran out of memory")
	}
}
