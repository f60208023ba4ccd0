//go:build libtorch

package policy

import (
	"context"
	"reflect"
	"slices"
	"testing"

	"agentcli/internal/torch"
	"agentcli/internal/torch/testdevice"
	"agentcli/traj"
)

// Conversations that take turns in a cache with room for one: with memory of the host each finds what
// it had, and replies are the same. So are the experts that were chosen for it.
func TestConversationsComeBackFromTheHost(t *testing.T) {
	for name, path := range map[string]string{"dense": "testdata/tiny-llama", "experts": familyModel(t, "qwen3_moe")} {
		for _, kernels := range []bool{false, true} {
			if kernels && name == "experts" { // which go by operations
				continue
			}
			t.Run(name+map[bool]string{false: "", true: " with our kernels"}[kernels], func(t *testing.T) {
				dev := kernelDevice()
				onDefault(t, dev, "")
				if dev == torch.TestDevice {
					testdevice.Kernels(kernels)
					defer testdevice.Kernels(false)
				}
				play := func(c Config) (replies []*Reply, load Load) {
					c.DType, c.Threads, c.KeepExperts = "float32", 1, name == "experts"
					p := open(t, path, c)
					defer p.Close()
					talks := [3][]int32{}
					for i := range talks {
						for k := range 40 {
							talks[i] = append(talks[i], int32(3+(i+k*(i+2))%60))
						}
					}
					for turn := range 4 {
						for i := range talks {
							r, err := EngineOf(p).Ask(context.Background(), &Request{Prompt: Sequence{IDs: talks[i]}, Seed: int64(turn),
								Sampling: traj.Sampling{MaxTokens: 9}, IgnoreEnd: true})
							if err != nil {
								t.Fatal(err)
							}
							talks[i] = append(append(talks[i], r.IDs...), int32(5+turn))
							replies = append(replies, r)
						}
					}
					return replies, EngineOf(p).Load()
				}
				const longest = 128
				alone, _ := play(Config{CacheBytes: 4 << 20})
				small := Config{CacheBytes: 1, MaxContext: longest} // one conversation of the longest kind
				without, _ := play(small)
				small.HostCache = CacheSize{Bytes: 4 << 20}
				with, load := play(small)
				fresh, found := 0, 0
				for i := range with {
					if !reflect.DeepEqual(with[i].IDs, alone[i].IDs) || !reflect.DeepEqual(with[i].Logprobs, alone[i].Logprobs) ||
						!reflect.DeepEqual(with[i].Experts, alone[i].Experts) {
						t.Fatalf("reply %d is %v, without the host %v", i, with[i].IDs, alone[i].IDs)
					}
					if with[i].Cached != alone[i].Cached {
						t.Errorf("reply %d found %d tokens, in a large cache %d", i, with[i].Cached, alone[i].Cached)
					}
					fresh += alone[i].Cached - without[i].Cached
					found += with[i].Cached
				}
				if fresh == 0 || load.HostTokens == 0 || load.HostTokens > int64(found) {
					t.Errorf("%d tokens would be lost, %d came back of %d that were found", fresh, load.HostTokens, found)
				}
			})
		}
	}
}

// New weights make what the host has useless; a pause does not.
func TestWhatTheHostHasGoesWithTheWeights(t *testing.T) {
	onDefault(t, kernelDevice(), "")
	p := open(t, "testdata/tiny-llama", Config{DType: "float32", Threads: 1, CacheBytes: 1, MaxContext: 64,
		HostCache: CacheSize{Bytes: 1 << 20}})
	ask := func(first int32) int {
		ids := []int32{first}
		for k := range 40 {
			ids = append(ids, int32(3+k))
		}
		r, err := EngineOf(p).Ask(context.Background(), &Request{Prompt: Sequence{IDs: ids}, Sampling: traj.Sampling{MaxTokens: 3}})
		if err != nil {
			t.Fatal(err)
		}
		return r.Cached
	}
	ask(1)
	ask(2)
	if n := ask(1); n != 40 {
		t.Errorf("%d tokens are found again, want 40", n)
	}
	for name, forget := range map[string]func(){
		"weights": func() {
			if err := askFor(p.sched, &change{make: func(*torch.Scope) error { return nil }}); err != nil {
				t.Fatal(err)
			}
		},
		"forgotten": EngineOf(p).ForgetPrefixes,
	} {
		ask(2)
		if n := ask(1); n != 40 {
			t.Errorf("%s: %d tokens are found again, want 40", name, n)
		}
		forget()
		if n := ask(1) + ask(2); n != 0 {
			t.Errorf("%s: %d tokens are found that are of before", name, n)
		}
	}
}

// A block that could not be copied is nobody's: those who run end with the error, and later ones compute all anew.
func TestAFailedMoveLeavesNothingBehind(t *testing.T) {
	needsTestDevice(t)
	onDefault(t, torch.TestDevice, "")
	p := open(t, "testdata/tiny-llama", Config{DType: "float32", Threads: 1, CacheBytes: 1, MaxContext: 64,
		HostCache: CacheSize{Bytes: 1 << 20}})
	pause := func(is bool) { // the scheduler's own loop, which would take up what stands in its lists
		p.sched.mu.Lock()
		p.sched.paused = is
		p.sched.mu.Unlock()
	}
	pause(true)
	defer pause(false)
	err := p.worker.Do(func(s *torch.Scope) error {
		sc := p.sched
		sc.table.host.moves = append(sc.table.host.moves, blockMove{device: 1 << 20, host: sc.table.host.alloc(), back: true})
		q := &sequence{blocks: []int32{sc.table.alloc()}, done: make(chan struct{})}
		sc.running = append(sc.running, q)
		moveBlocks(sc, s)
		if q.err == nil || len(sc.running) != 0 || len(sc.table.byHash) != 0 || sc.table.available() != len(sc.table.blocks) {
			t.Errorf("%v, %d run, %d blocks are found", q.err, len(sc.running), len(sc.table.byHash))
		}
		return s.Err()
	})
	if err == nil {
		t.Error("a block that is not there was moved")
	}
}

// What cannot be kept is refused when the model is opened.
func TestAHostCacheWithoutAUseIsRefused(t *testing.T) {
	onDefault(t, torch.CPU, "")
	if _, err := Open("testdata/tiny-llama", Config{HostCache: CacheSize{Bytes: 1 << 20}}); err == nil {
		t.Error("on a CPU: it opened")
	}
	onDefault(t, kernelDevice(), "")
	for name, bytes := range map[string]int64{"no block": 5, "all memory": 1 << 50} {
		if _, err := Open("testdata/tiny-llama", Config{HostCache: CacheSize{Bytes: bytes}}); err == nil {
			t.Errorf("%s: it opened", name)
		}
	}
	if _, err := Open(familyModel(t, "qwen3_5"), Config{HostCache: CacheSize{Bytes: 1 << 20}}); err == nil {
		t.Error("states: it opened")
	}
}

// familyModel is the small model of a family with weights of its own.
func familyModel(t *testing.T, title string) string {
	t.Helper()
	all := families(t)
	return all[slices.IndexFunc(all, func(g familyGolden) bool { return g.Title == title })].write(t)
}
