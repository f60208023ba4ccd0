//go:build libtorch

package policy

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"agentcli/internal/malformed"
	"agentcli/internal/torch"
	"agentcli/model/arch"
	"agentcli/model/weights"
	"agentcli/traj"
)

// drawnAdapter writes an adapter over a base, of these targets, whose numbers are drawn.
func drawnAdapter(t testing.TB, base, name string, rank int, targets []string) string {
	t.Helper()
	m, err := weights.Open(base)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	model := m.Config()
	shapes := map[string][]int64{}
	for _, i := range model.Tensors() {
		shapes[i.Name] = i.Shape
	}
	c := weights.AdapterConfig{Base: base, Rank: rank, Alpha: float64(2 * rank), Targets: targets}
	var infos []weights.TensorInfo
	add := func(name string, shape ...int64) {
		infos = append(infos, weights.TensorInfo{Name: name, DType: weights.F32, Shape: shape})
	}
	for i := range model.Layers {
		for _, target := range weights.LoRATargets {
			weight := arch.LayerPrefix(i) + target.Module + ".weight"
			if shape, ok := shapes[weight]; ok && slices.Contains(targets, target.Short) {
				a, b := weights.LoRANames(weight)
				add(a, int64(rank), shape[1])
				add(b, shape[0], int64(rank))
			}
		}
	}
	for _, e := range weights.ExpertPairs(model, targets) {
		add(e.A, int64(rank*e.Count), int64(e.In))
		add(e.B, int64(e.Out), int64(rank*e.Count))
	}
	dir := t.TempDir()
	w, err := weights.CreateAdapter(dir, infos)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range infos {
		h := fnv.New64a()
		h.Write([]byte(name + i.Name))
		rnd := rand.New(rand.NewPCG(h.Sum64(), 1))
		raw := make([]byte, 0, 4*i.Shape[0]*i.Shape[1])
		for range i.Shape[0] * i.Shape[1] {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(rnd.NormFloat64()*.15)))
		}
		if err := w.Write(i.Name, raw); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), c.WritePEFT(dir, model)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func loadAdapters(t testing.TB, p *Policy, folders map[string]string) {
	t.Helper()
	for name, folder := range folders {
		if err := EngineOf(p).LoadAdapter(name, folder, 0); err != nil {
			t.Fatal(err)
		}
	}
}

// drawnWith asks for replies to one prompt with each adapter, two seeds each, at once.
func drawnWith(t testing.TB, p *Policy, prompt []int32, tokens int, adapters ...string) map[string][2]*Reply {
	t.Helper()
	var requests []*Request
	for _, name := range adapters {
		for seed := range int64(2) {
			requests = append(requests, &Request{Prompt: Sequence{IDs: prompt}, Seed: seed, IgnoreEnd: true, Adapter: name,
				Sampling: traj.Sampling{MaxTokens: tokens}})
		}
	}
	out := askTogether(t, p, requests)
	replies := map[string][2]*Reply{}
	for i, name := range adapters {
		replies[name] = [2]*Reply(out[2*i:])
	}
	return replies
}

// sameReplies holds replies to those of a model of its own.
func sameReplies(t *testing.T, what string, got [2]*Reply, alone *Policy, prompt []int32, most float64) {
	t.Helper()
	want := drawnWith(t, alone, prompt, len(got[0].IDs), "")[""]
	for seed := range got {
		if !slices.Equal(got[seed].IDs, want[seed].IDs) {
			t.Errorf("%s, seed %d: %v, merged %v", what, seed, got[seed].IDs, want[seed].IDs)
			continue
		}
		for i, x := range got[seed].Tokens {
			if d := math.Abs(float64(x.Logprob - want[seed].Tokens[i].Logprob)); !(d <= most) {
				t.Errorf("%s, seed %d: log-prob %d differs from the merged model's by %.2g", what, seed, i, d)
				break
			}
		}
	}
}

// Replies of the model, of two adapters and of one on fewer matrices, drawn in one batch on one prompt, are those of the
// models with each merged, in every family; so are log-probs of given texts.
func TestRepliesWithAdaptersInOneBatchAreThoseOfMergedModels(t *testing.T) {
	prompt := idsOf(3, 20)
	for _, g := range families(t) {
		t.Run(g.Title, func(t *testing.T) {
			base := g.write(t)
			c, err := weights.ReadConfig(base)
			if err != nil {
				t.Fatal(err)
			}
			all := c.LoRATargets()
			if weights.HasExperts(c) {
				all = slices.Concat(all, weights.ExpertTargets())
			}
			folders := map[string]string{"one": drawnAdapter(t, base, "one", 4, all), "two": drawnAdapter(t, base, "two", 2, all),
				"few": drawnAdapter(t, base, "few", 3, all[:1])}
			p := open(t, base, Config{DType: "float64", Threads: 1, CacheBytes: 1 << 20})
			loadAdapters(t, p, folders)
			got := drawnWith(t, p, prompt, 8, "", "one", "two", "few")
			first := func(name string) float64 { return float64(got[name][0].Logprobs[0]) }
			for name := range folders {
				if math.Abs(first(name)-first("")) < 1e-6 {
					t.Errorf("the adapter %s changes nothing: the test shows nothing", name)
				}
			}
			folders[""] = base
			for name, folder := range folders {
				alone := open(t, folder, Config{DType: "float64", Threads: 1, CacheBytes: 1 << 20})
				sameReplies(t, "adapter "+name, got[name], alone, prompt, 1e-5)
				for _, top := range []int{0, 2} {
					scored, err := EngineOf(p).Score(t.Context(), &Request{Prompt: Sequence{IDs: prompt}, PromptTop: top, Adapter: name})
					if err != nil {
						t.Fatal(err)
					}
					want, err := EngineOf(alone).Score(t.Context(), &Request{Prompt: Sequence{IDs: prompt}, PromptTop: top})
					if err != nil {
						t.Fatal(err)
					}
					for i, x := range want {
						if d := math.Abs(float64(x.Logprob - scored[i].Logprob)); !(d <= 1e-5) || len(scored[i].Top) != len(x.Top) {
							t.Errorf("adapter %s, top %d: scored log-prob %d differs by %.2g", name, top, i, d)
							break
						}
					}
				}
			}
		})
	}
}

// The same with packed weights, and where a decoder draws what has no adapter: those replies are the same to the bit.
func TestAdaptersChangeNoReplyOfTheModelBesideThem(t *testing.T) {
	base := "testdata/tiny-qwen3"
	prompt := idsOf(5, 40)
	for _, dtype := range []string{"float32", "bfloat16"} {
		p := open(t, base, Config{DType: dtype, Device: "cpu"})
		before := drawnWith(t, p, prompt, 12, "")[""]
		all := p.model.LoRATargets()
		one, two := drawnAdapter(t, base, "one", 4, all), drawnAdapter(t, base, "two", 4, all)
		loadAdapters(t, p, map[string]string{"one": one, "two": two})
		got := drawnWith(t, p, prompt, 12, "", "one", "two")
		if dtype == "float32" { // bfloat16 rounds the sum of a merged matrix
			sameReplies(t, "one", got["one"], open(t, one, Config{DType: dtype, Device: "cpu"}), prompt, 1e-4)
			sameReplies(t, "two", got["two"], open(t, two, Config{DType: dtype, Device: "cpu"}), prompt, 1e-4)
		}
		for seed, r := range got[""] {
			if !slices.Equal(r.IDs, before[seed].IDs) {
				t.Errorf("%s: beside adapters the model draws %v, alone %v", dtype, r.IDs, before[seed].IDs)
			}
			if p.sched.decoder != nil && !slices.Equal(r.Logprobs, before[seed].Logprobs) {
				t.Errorf("%s: beside adapters the model's log-probs are %v, alone %v", dtype, r.Logprobs, before[seed].Logprobs)
			}
		}
	}
}

// A decoder computes replies with adapters too: they are those of the operations, the roundings of two programs apart,
// and to the bit the same whoever is beside them.
func TestADecoderDrawsWithAdapters(t *testing.T) {
	prompt := idsOf(5, 40)
	bases := map[string]string{"qwen3": wideModel(t, "qwen3", 0), "recurrent": widened(t, "qwen3_5"), "experts": widened(t, "qwen3_moe")}
	for name, base := range bases {
		for _, dtype := range []string{"float32", "bfloat16"} {
			cfg := Config{DType: dtype, Device: "cpu", CacheBytes: 64 << 20}
			p, other := open(t, base, cfg), open(t, base, cfg)
			needDecoder(t, p)
			other.sched.decoder.Close()
			other.sched.decoder = nil
			all := p.model.LoRATargets()
			folders := map[string]string{"one": drawnAdapter(t, base, "one", 3, all), "two": drawnAdapter(t, base, "two", 40, all[:2])}
			loadAdapters(t, p, folders)
			loadAdapters(t, other, folders)
			got, want := drawnWith(t, p, prompt, 12, "", "one", "two"), drawnWith(t, other, prompt, 12, "", "one", "two")
			for adapter := range got {
				for seed, r := range got[adapter] {
					a, b := &Output{IDs: r.IDs, Logprobs: r.Logprobs}, &Output{IDs: want[adapter][seed].IDs, Logprobs: want[adapter][seed].Logprobs}
					if dtype == "float32" && !slices.Equal(a.IDs, b.IDs) {
						t.Errorf("%s, adapter %q: %v, by operations %v", name, adapter, a.IDs, b.IDs)
					}
					if d := meanDifference(a, b); d > map[string]float64{"float32": 1e-4, "bfloat16": .2}[dtype] {
						t.Errorf("%s in %s, adapter %q: log-probs %v, by operations %v", name, dtype, adapter, a.Logprobs, b.Logprobs)
					}
				}
				if dtype == "bfloat16" && fusedRows(p.net) < 6*len(prompt) { // prompts are computed by operations
					continue
				}
				EngineOf(p).ForgetPrefixes()
				for seed, r := range drawnWith(t, p, prompt, 12, adapter)[adapter] {
					if !slices.Equal(r.IDs, got[adapter][seed].IDs) || !slices.Equal(r.Logprobs, got[adapter][seed].Logprobs) {
						t.Errorf("%s in %s, adapter %q: alone %v, beside others %v", name, dtype, adapter, r.Logprobs, got[adapter][seed].Logprobs)
					}
				}
			}
			first := func(adapter string) traj.Logprob { return got[adapter][0].Logprobs[0] }
			if first("") == first("one") || first("") == first("two") {
				t.Errorf("%s: an adapter changes nothing: the test shows nothing", name)
			}
		}
	}
}

// Keys and values are found by requests of the same adapter, and of the same load of it, alone.
func TestAdaptersKeepPromptsApart(t *testing.T) {
	p := open(t, "testdata/tiny-qwen3", Config{DType: "float32", Device: "cpu"})
	e := EngineOf(p)
	targets := []string{"q", "v"}
	loadAdapters(t, p, map[string]string{"one": drawnAdapter(t, "testdata/tiny-qwen3", "one", 2, targets),
		"two": drawnAdapter(t, "testdata/tiny-qwen3", "two", 2, targets)})
	cached := func(adapter, salt string) int {
		r, err := e.Ask(t.Context(), &Request{Prompt: Sequence{IDs: idsOf(9, 40)}, Sampling: traj.Sampling{MaxTokens: 1}, Adapter: adapter,
			Salt: salt})
		if err != nil {
			t.Fatal(err)
		}
		return r.Cached
	}
	for _, who := range [][2]string{{"", ""}, {"one", ""}, {"two", ""}, {"one", "x"}, {"", "x"}, {"", "adapter 1 "},
		{"", "adapter 1 salt x"}} {
		if n := cached(who[0], who[1]); n != 0 {
			t.Errorf("adapter %q, salt %q: %d tokens of others were found", who[0], who[1], n)
		}
		if n := cached(who[0], who[1]); n == 0 {
			t.Errorf("adapter %q, salt %q: its own tokens were not found", who[0], who[1])
		}
	}
	loadAdapters(t, p, map[string]string{"one": drawnAdapter(t, "testdata/tiny-qwen3", "other", 2, targets)})
	if n := cached("one", ""); n != 0 {
		t.Errorf("%d tokens of the adapter that was exchanged were found", n)
	}
}

// A reply under way ends with the adapter that it began with, whether that is exchanged or dropped meanwhile; later ones
// have the new one, or none. The memory of one that is gone comes back.
func TestAdaptersAreExchangedAndDroppedWhileTheyDraw(t *testing.T) {
	base := "testdata/tiny-qwen3"
	p := open(t, base, Config{DType: "float32", Device: "cpu"})
	e, targets, prompt := EngineOf(p), p.model.LoRATargets(), []int32{5, 6, 7}
	folders := []string{drawnAdapter(t, base, "a", 2, targets), drawnAdapter(t, base, "b", 2, targets)}
	want := map[int]*Reply{}
	for i, folder := range folders {
		want[i] = drawnWith(t, open(t, folder, Config{DType: "float32", Device: "cpu"}), prompt, 30, "")[""][0]
	}
	live := torch.Live()
	for round := range 3 {
		if err := e.LoadAdapter("x", folders[0], 0); err != nil {
			t.Fatal(err)
		}
		begun, goOn := make(chan bool), make(chan bool)
		first := true
		var got *Reply
		var err error
		var wg sync.WaitGroup
		wg.Go(func() {
			got, err = e.Ask(t.Context(), &Request{Prompt: Sequence{IDs: prompt}, IgnoreEnd: true, Adapter: "x",
				Sampling: traj.Sampling{MaxTokens: 30}, Emit: func(Token) {
					if first {
						first = false
						close(begun)
						<-goOn
					}
				}})
		})
		<-begun
		changed := make(chan error, 1)
		go func() { // waits for the step
			if round == 0 {
				changed <- e.DropAdapter("x")
			} else {
				changed <- e.LoadAdapter("x", folders[1], int64(round))
			}
		}()
		if round == 0 { // dropping needs no worker: the rest is drawn without the name
			if err := <-changed; err != nil {
				t.Fatal(err)
			}
			close(goOn)
		} else {
			close(goOn)
			if err := <-changed; err != nil {
				t.Fatal(err)
			}
		}
		wg.Wait()
		if err != nil || !slices.Equal(got.IDs, want[0].IDs) {
			t.Fatalf("round %d: the reply under way is %v, %v; its adapter alone gives %v", round, got, err, want[0].IDs)
		}
		next, err := e.Ask(t.Context(), &Request{Prompt: Sequence{IDs: prompt}, IgnoreEnd: true, Adapter: "x",
			Sampling: traj.Sampling{MaxTokens: 30}})
		if round == 0 {
			if !errors.Is(err, ErrNoAdapter) {
				t.Errorf("a dropped adapter answers %v, %v", next, err)
			}
			continue
		}
		if err != nil || !slices.Equal(next.IDs, want[1].IDs) || next.Tokens[0].Version != int64(round) || got.Tokens[29].Version != 0 {
			t.Errorf("round %d: behind the exchange %v, %v; want %v", round, next, err, want[1].IDs)
		}
	}
	if err := e.DropAdapter("x"); err != nil {
		t.Fatal(err)
	}
	for torch.Live() > live {
		runtime.Gosched()
		if t.Context().Err() != nil {
			t.Fatal("tensors of adapters that are gone are still there")
		}
	}
	if got := e.Adapters(); len(got) > 0 {
		t.Errorf("there are still %v", got)
	}
}

// New weights of the model come beneath its adapters.
func TestAdaptersStayWhenTheWeightsAreExchanged(t *testing.T) {
	base := "testdata/tiny-qwen3"
	p := open(t, base, Config{DType: "float32", Device: "cpu"})
	folder := drawnAdapter(t, base, "a", 2, p.model.LoRATargets())
	loadAdapters(t, p, map[string]string{"a": folder})
	tr := openLoRA(t, base, "float32", func(c *Config) { c.LoRA = LoRA{} })
	step(t, tr, headBatch(), 1)
	moved := t.TempDir()
	if err := tr.Save(moved, weights.F32); err != nil {
		t.Fatal(err)
	}
	if err := EngineOf(p).LoadWeights(moved, 1, ExchangeWait); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(folder, "adapter_config.json"))
	if err != nil {
		t.Fatal(err)
	}
	over := strings.ReplaceAll(string(raw), base, moved)
	if err := os.WriteFile(filepath.Join(folder, "adapter_config.json"), []byte(over), 0o600); err != nil {
		t.Fatal(err)
	}
	prompt := []int32{5, 6, 7}
	alone := open(t, folder, Config{DType: "float32", Device: "cpu"})
	sameReplies(t, "on new weights", drawnWith(t, p, prompt, 8, "a")["a"], alone, prompt, 1e-4)
}

func TestAdaptersThatCannotBeServedAreRefused(t *testing.T) {
	base := "testdata/tiny-qwen3"
	p := open(t, base, Config{DType: "float32", Device: "cpu"})
	e := EngineOf(p)
	if err := e.LoadAdapter("x", drawnAdapter(t, "testdata/tiny-llama", "a", 2, []string{"q"}), 0); err == nil {
		t.Error("an adapter of another base is loaded")
	} else if malformed.Facts(err).Kind != malformed.Mismatch {
		t.Errorf("an adapter of another base: %v", err)
	}
	if err := e.LoadAdapter("x", t.TempDir(), 0); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder without an adapter: %v", err)
	}
	for _, name := range []string{"", "a\nb"} {
		if err := e.LoadAdapter(name, drawnAdapter(t, base, "a", 2, []string{"q"}), 0); err == nil {
			t.Errorf("an adapter has the name %q", name)
		}
	}
	if err := e.DropAdapter("x"); !errors.Is(err, ErrNoAdapter) {
		t.Errorf("dropping none: %v", err)
	}
	for _, ask := range []func(r *Request) error{
		func(r *Request) error { _, err := e.Ask(t.Context(), r); return err },
		func(r *Request) error { _, err := e.Score(t.Context(), r); return err },
	} {
		if err := ask(&Request{Prompt: Sequence{IDs: []int32{1, 2}}, Adapter: "x"}); !errors.Is(err, ErrNoAdapter) {
			t.Errorf("a request of no adapter: %v", err)
		}
	}
}
