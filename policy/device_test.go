//go:build libtorch

package policy

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"agentcli/internal/torch"
	"agentcli/internal/torch/testdevice"
	"agentcli/model/weights"
	"agentcli/traj"
)

// record is what a model did, in order; numbers to the bit.
type record []string

func (r *record) add(what string, v ...any) {
	*r = append(*r, fmt.Sprint(append([]any{what}, v...)...))
}

func bitsOf[F float32 | float64](v []F) (out []uint64) {
	for _, x := range v {
		out = append(out, math.Float64bits(float64(x)))
	}
	return out
}

// sampled draws together: prompts that share their start, one that is computed in parts,
// one that continues another.
func (r *record) sampled(t *testing.T, what string, p *Policy) {
	t.Helper()
	prompts := [][]int32{{5, 6, 7}, {5, 6, 7}, {9}}
	long := make([]int32, 60)
	for i := range long {
		long[i] = int32(3 + i*7%90)
	}
	prompts = append(prompts, long, append(slices.Clone(long[:40]), 8, 8, 8))
	for i, ids := range prompts {
		out, err := p.Sample(context.Background(), ids, traj.Sampling{MaxTokens: 12, TopP: .9}, int64(i))
		if err != nil {
			t.Fatal(err)
		}
		lps := make([]float64, len(out.Logprobs))
		for j, x := range out.Logprobs {
			lps[j] = float64(x)
		}
		r.add(what, " sample ", i, out.IDs, bitsOf(lps))
	}
	// Together the ids are the same whatever a step holds; bits are those of like steps.
	together := make([][]int32, len(prompts))
	var wg sync.WaitGroup
	for i, ids := range prompts {
		wg.Go(func() {
			out, err := p.Sample(context.Background(), ids, traj.Sampling{MaxTokens: 12, TopP: .9}, int64(100+i))
			if err != nil {
				t.Error(err)
				return
			}
			together[i] = out.IDs
		})
	}
	wg.Wait()
	r.add(what, " together ", together)
	lps, err := p.Logprobs(context.Background(), append(prompts, []int32{5, 6, 7, 8, 9, 10}, []int32{5, 6, 7, 8, 20}))
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range lps {
		r.add(what, " log-probs ", i, bitsOf(l))
	}
}

// adapted draws with an adapter beside the weights, and scores.
func (r *record) adapted(t *testing.T, p *Policy, path string) {
	t.Helper()
	loadAdapters(t, p, map[string]string{"a": drawnAdapter(t, path, "a", 3, p.model.LoRATargets())})
	request := &Request{Prompt: Sequence{IDs: idsOf(4, 40)}, Sampling: traj.Sampling{MaxTokens: 12}, Adapter: "a", PromptLogprobs: true}
	out, err := EngineOf(p).Ask(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	var lps []float64
	for _, x := range slices.Concat(out.Prompt, out.Tokens) {
		lps = append(lps, float64(x.Logprob))
	}
	r.add("with an adapter ", out.IDs, bitsOf(lps))
	if err := EngineOf(p).DropAdapter("a"); err != nil {
		t.Fatal(err)
	}
}

// trained takes steps, keeps the average, saves, and gives the state's and the files'
// hashes.
func (r *record) trained(t *testing.T, what string, tr *Trainable, dir string) {
	t.Helper()
	if err := tr.KeepAverage(); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		r.add(what, " step ", i, bitsOf(learn(t, tr, i+1)))
	}
	state := filepath.Join(dir, "state.safetensors")
	if err := tr.SaveState(state); err != nil {
		t.Fatal(err)
	}
	if err := tr.Save(filepath.Join(dir, "model"), weights.F32); err != nil {
		t.Fatal(err)
	}
	if err := tr.SaveAverage(filepath.Join(dir, "average"), weights.F32); err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"state.safetensors", "*/*.safetensors"} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(files) == 0 {
			t.Fatal(err, pattern)
		}
		for _, f := range files {
			data, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			r.add(what, " ", f[len(dir):], " ", fmt.Sprintf("%x", sha256.Sum256(data)))
		}
	}
	r.add(what, " before ", bitsOf(learn(t, tr, 4)))
	if err := tr.LoadState(state); err != nil {
		t.Fatal(err)
	}
	r.add(what, " resumed ", bitsOf(learn(t, tr, 4)))
}

// everything does what a run does with a model, on the default device.
func everything(t *testing.T, path, dtype string) (r record) {
	p := open(t, path, Config{DType: dtype, Threads: 1, CacheBytes: 1 << 20})
	r.sampled(t, "opened", p)
	r.adapted(t, p, path)
	for name, c := range map[string]Config{"whole": {}, "checkpointed": {GradCheckpoint: true},
		"adapters": {LoRA: LoRA{Rank: 3, Seed: 7, Dropout: .25}}, "value head": {Head: HeadBoth}} {
		var part record
		c.DType, c.Threads = dtype, 1
		tr, err := OpenTrainable(path, c)
		if err != nil {
			t.Fatal(err)
		}
		part.trained(t, name, tr, t.TempDir())
		if err := p.Adopt(tr, 3); err != nil {
			t.Fatal(err)
		}
		part.sampled(t, name+" adopted", p)
		tr.Close()
		r = append(r, part...)
	}
	p.Close()
	slices.Sort(r)
	return r
}

// needsTestDevice skips a test that is of the tests' device alone.
func needsTestDevice(t *testing.T) {
	t.Helper()
	if !torch.HasTestDevice() {
		t.Skip("needs the tests' device, which AGENTCLI_TEST_DEVICE=cuda leaves out")
	}
}

// kernelDevice is the device that has our GPU kernels: the tests' device, or a GPU.
func kernelDevice() torch.Device {
	if torch.HasTestDevice() {
		return torch.TestDevice
	}
	return torch.DefaultDevice
}

// onDefault computes on a device as the models of the tests do by default.
func onDefault(t *testing.T, dev torch.Device, kernels string) {
	t.Helper()
	was := torch.DefaultDevice
	torch.DefaultDevice = dev
	if err := torch.UseKernels(kernels); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		torch.DefaultDevice = was
		if err := torch.UseKernels(os.Getenv("AGENTCLI_TEST_KERNELS")); err != nil {
			t.Error(err)
		}
	})
}

// What is computed on a device equals what the CPU computes without our kernels, bit for
// bit: nothing is read from the host by mistake, nothing is left on the wrong device, and
// backward works on autograd's threads.
func TestADeviceComputesWhatTheCPUDoes(t *testing.T) {
	needsTestDevice(t)
	for _, arch := range tinyArchitectures {
		for _, dtype := range []string{"float32", "bfloat16"} {
			t.Run(arch+"/"+dtype, func(t *testing.T) {
				var cpu, device record
				t.Run("cpu", func(t *testing.T) { onDefault(t, torch.CPU, "none"); cpu = everything(t, "testdata/tiny-"+arch, dtype) })
				operations := testdevice.Operations()
				t.Run("device", func(t *testing.T) {
					onDefault(t, torch.TestDevice, "")
					device = everything(t, "testdata/tiny-"+arch, dtype)
				})
				if testdevice.Operations() == operations {
					t.Fatal("nothing ran on the device")
				}
				if len(cpu) != len(device) {
					t.Fatalf("%d results on the device, %d on the CPU", len(device), len(cpu))
				}
				for i := range cpu {
					if cpu[i] != device[i] {
						t.Errorf("the device gives\n%s\nthe CPU\n%s", device[i], cpu[i])
					}
				}
			})
		}
	}
}

// A step calls attention once a layer whatever its sequences, and what it needs from the
// host is there before the first layer.
func TestAStepCallsAttentionOnceALayer(t *testing.T) {
	needsTestDevice(t)
	onDefault(t, torch.TestDevice, "")
	for _, c := range []struct {
		dtype string
		calls func() int
	}{
		{"bfloat16", func() int { flash, _ := testdevice.Calls(); return flash }},
		{"float32", func() int { _, efficient := testdevice.Calls(); return efficient }},
	} {
		p := open(t, "testdata/tiny-llama", Config{DType: c.dtype, Threads: 1, CacheBytes: 1 << 20})
		layers := len(p.model.Layers)
		calls, copies := c.calls(), testdevice.Copies()
		if _, err := p.Sample(context.Background(), []int32{5, 6, 7, 8, 9, 10, 11, 12, 13}, traj.Sampling{MaxTokens: 5}, 1); err != nil {
			t.Fatal(err)
		}
		const steps = 5 // the prompt's, and one for each further token
		if got := c.calls() - calls; got != steps*layers {
			t.Errorf("%s: %d calls in %d steps of %d layers", c.dtype, got, steps, layers)
		}
		// Ids, positions, slots, gathered rows, two lists of lengths, the wanted rows; the
		// logits back.
		if got := testdevice.Copies() - copies; got != steps*8 {
			t.Errorf("%s: %d copies in %d steps", c.dtype, got, steps)
		}
		tr, err := OpenTrainable("testdata/tiny-llama", Config{DType: c.dtype, Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		calls = c.calls()
		b := Batch{Sequences: [][]int32{{5, 6, 7, 8}, {5, 6, 9}, {5, 6, 7, 10, 11}, {4, 3}}}
		for _, q := range b.Sequences {
			b.Want = append(b.Want, slices.Repeat([]bool{true}, len(q)))
		}
		if err := tr.Accumulate(b, func(o Outputs) Gradients { return Gradients{Logprobs: o.Logprobs} }); err != nil {
			t.Fatal(err)
		}
		if got := c.calls() - calls; got != 2*layers {
			t.Errorf("%s: %d calls forward and backward through %d layers", c.dtype, got, layers)
		}
		tr.Close()
	}
}

// With our kernels on the device a seed's tokens are the CPU's, and what is trained is the
// same as far as sums in another order allow.
func TestOurKernelsOnADeviceDrawAndTrainAsTheCPU(t *testing.T) {
	const dtype = "float32"
	dev := kernelDevice()
	for _, arch := range tinyArchitectures {
		t.Run(arch, func(t *testing.T) {
			draw := func(t *testing.T) (ids [][]int32, lps, losses []float64) {
				path := "testdata/tiny-" + arch
				p := open(t, path, Config{DType: dtype, Threads: 1, CacheBytes: 1 << 20})
				defer p.Close()
				var wg sync.WaitGroup
				ids = make([][]int32, 12)
				logprobs := make([][]traj.Logprob, len(ids))
				for i := range ids {
					wg.Go(func() {
						out, err := p.Sample(context.Background(), []int32{5, 6, 7, int32(8 + i%3)}, traj.Sampling{MaxTokens: 10, TopP: .9}, int64(i))
						if err != nil {
							t.Error(err)
							return
						}
						ids[i], logprobs[i] = out.IDs, out.Logprobs
					})
				}
				wg.Wait()
				for _, l := range logprobs {
					for _, x := range l {
						lps = append(lps, float64(x))
					}
				}
				tr, err := OpenTrainable(path, Config{DType: dtype, Threads: 1})
				if err != nil {
					t.Fatal(err)
				}
				defer tr.Close()
				for i := range 3 {
					losses = append(losses, learn(t, tr, i+1)...)
				}
				return ids, lps, losses
			}
			var ids, idsHere [][]int32
			var lps, lpsHere, losses, lossesHere []float64
			t.Run("cpu", func(t *testing.T) { onDefault(t, torch.CPU, ""); ids, lps, losses = draw(t) })
			t.Run("device", func(t *testing.T) {
				onDefault(t, dev, "")
				testdevice.Kernels(true)
				defer testdevice.Kernels(false)
				before := testdevice.Launches()
				idsHere, lpsHere, lossesHere = draw(t)
				if dev == torch.TestDevice && testdevice.Launches() == before {
					t.Error("none of our kernels ran")
				}
			})
			if !slices.EqualFunc(ids, idsHere, slices.Equal) {
				t.Fatalf("the device draws\n%v\nthe CPU\n%v", idsHere, ids)
			}
			for i := range lps {
				if math.Abs(lps[i]-lpsHere[i]) > 1e-5 {
					t.Errorf("log-prob %d is %v, on the CPU %v", i, lpsHere[i], lps[i])
				}
			}
			for i := range losses {
				if math.Abs(losses[i]-lossesHere[i]) > 1e-4 {
					t.Errorf("in training number %d is %v, on the CPU %v", i, lossesHere[i], losses[i])
				}
			}
		})
	}
}

// Decoding with our kernels needs one copy a step from the host, and one to it.
func TestAStepOfOurKernelsCopiesLittle(t *testing.T) {
	needsTestDevice(t)
	onDefault(t, torch.TestDevice, "")
	testdevice.Kernels(true)
	defer testdevice.Kernels(false)
	p := open(t, "testdata/tiny-llama", Config{DType: "bfloat16", Threads: 1, CacheBytes: 1 << 20})
	sample := func(n int) (copies, flash int) {
		c := testdevice.Copies()
		f, _ := testdevice.Calls()
		if _, err := p.Sample(context.Background(), []int32{int32(n), 6, 7, 8, 9}, traj.Sampling{MaxTokens: n}, 1); err != nil {
			t.Fatal(err)
		}
		after, _ := testdevice.Calls()
		return testdevice.Copies() - c, after - f
	}
	few, flash := sample(5)
	many, flashMany := sample(15)
	// All that a step is told; the tokens back.
	if got := many - few; got != 10*2 {
		t.Errorf("%d copies in ten steps", got)
	}
	if layers := len(p.model.Layers); flash != layers || flashMany != layers {
		t.Errorf("%d and %d calls of flash attention, want the prompts' %d", flash, flashMany, layers)
	}
}

// A step that runs out of memory costs time and no sequence: the younger half waits. One
// sequence that does not fit is an error that says what to lower.
func TestOutOfMemoryTheYoungerHalfWaits(t *testing.T) {
	needsTestDevice(t)
	onDefault(t, torch.TestDevice, "")
	p := open(t, "testdata/tiny-llama", Config{DType: "float32", Threads: 1, CacheBytes: 1 << 20, MaxBatch: 8})
	together := func() (ids [][]int32) {
		var requests []*Request
		for i := range 8 {
			prompt := make([]int32, 100)
			for j := range prompt {
				prompt[j] = int32(3 + (i+7*j)%90)
			}
			requests = append(requests, &Request{Prompt: Sequence{IDs: prompt}, Seed: int64(i), Sampling: traj.Sampling{MaxTokens: 6}})
		}
		for _, r := range askTogether(t, p, requests) {
			ids = append(ids, r.IDs)
		}
		return ids
	}
	testdevice.Memory(0)
	want := together()
	all := testdevice.Memory(0)
	if _, err := p.Sample(context.Background(), make([]int32, 100), traj.Sampling{MaxTokens: 6}, 1); err != nil {
		t.Fatal(err)
	}
	one := testdevice.Memory(0)
	defer testdevice.Memory(0)
	if all < 3*one {
		t.Fatalf("together they take %d bytes, one %d", all, one)
	}
	testdevice.Memory((one + all) / 2)
	// An exchange of weights forgets the prompts in the cache: all is computed again.
	if err := askFor(p.sched, &change{make: func(*torch.Scope) error { return nil }}); err != nil {
		t.Fatal(err)
	}
	got := together()
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Error("with less memory other tokens are drawn")
	}
	if p.sched.most >= 8 {
		t.Error("it never ran out of memory")
	}
	testdevice.Memory(0)
	if err := askFor(p.sched, &change{make: func(*torch.Scope) error { return nil }}); err != nil {
		t.Fatal(err)
	}
	if p.sched.most != 8 {
		t.Errorf("%d run together when there is memory again", p.sched.most)
	}
	testdevice.Memory(one / 2)
	if err := askFor(p.sched, &change{make: func(*torch.Scope) error { return nil }}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Sample(context.Background(), make([]int32, 100), traj.Sampling{MaxTokens: 6}, 1); !errors.Is(err, torch.ErrOutOfMemory) {
		t.Errorf("a sequence that does not fit: %v", err)
	}
}

// An error that CUDA's context keeps ends a run; memory that is short for a moment does not, whoever
// says so.
func TestAnErrorOfCUDAIsFatalUnlessItIsMemory(t *testing.T) {
	needsTestDevice(t)
	onDefault(t, torch.TestDevice, "")
	p := open(t, "testdata/tiny-llama", Config{DType: "float32", Threads: 1, CacheBytes: 1 << 20})
	for text, want := range map[string]struct{ fatal, memory bool }{
		"CUDA error: an illegal memory access was encountered":                       {fatal: true},
		"CUDA error: cuGraphInstantiate: out of memory":                              {memory: true},
		"CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`": {memory: true},
		"an error of this sequence alone":                                            {},
	} {
		testdevice.Fail(text)
		_, err := p.Sample(context.Background(), []int32{5, 6, 7}, traj.Sampling{MaxTokens: 4}, 1)
		if err == nil || errors.Is(err, traj.ErrFatal) != want.fatal || errors.Is(err, torch.ErrOutOfMemory) != want.memory ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: fatal %v, memory %v: %v", text, errors.Is(err, traj.ErrFatal), errors.Is(err, torch.ErrOutOfMemory), err)
		}
		if out, err := p.Sample(context.Background(), []int32{5, 6, 7}, traj.Sampling{MaxTokens: 4}, 1); err != nil || len(out.IDs) == 0 {
			t.Errorf("after %s: %v", text, err)
		}
	}
}

// A step waits for none of its layers: it copies as much as a step of the family's plain layers, whose number of copies does
// not depend on how many layers there are.
func TestNoLayerOfAnyFamilyIsWaitedFor(t *testing.T) {
	needsTestDevice(t)
	onDefault(t, torch.TestDevice, "")
	more := map[string]int{ // beside those that TestAStepCallsAttentionOnceALayer counts
		"gemma4": 4, // gathered rows, lengths and rotations of a second kind of attention
		"gemma4 with inputs of layers and shared keys": 5, "gemma4 with all of it, untied": 5, // and the ids of the inputs
		"lfm2":    4, // what a convolution reads and keeps, the slots of the states
		"qwen3_5": 7, // and the chunks of the delta rule
	}
	for _, g := range families(t) {
		dtype := "bfloat16"
		if strings.HasPrefix(g.Title, "gemma4") { // 12 numbers in an expert are no multiple of 16 bytes
			dtype = "float32"
		}
		p := open(t, g.write(t), Config{DType: dtype, Threads: 1, CacheBytes: 1 << 20})
		before := testdevice.Copies()
		r, err := p.Sample(context.Background(), []int32{5, 6, 7}, traj.Sampling{MaxTokens: 8}, 1)
		if err != nil {
			t.Fatal(g.Title, err)
		}
		family, _, _ := strings.Cut(strings.TrimSuffix(g.Title, "_moe"), " ")
		want, ok := more[g.Title]
		if !ok {
			want = more[family]
		}
		if got := testdevice.Copies() - before; got != len(r.IDs)*(8+want) {
			t.Errorf("%s: %d copies in %d steps, want %d in each", g.Title, got, len(r.IDs), 8+want)
		}
		p.Close()
	}
}
