//go:build libtorch

package policy

import (
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"agentcli/internal/torch"
	"agentcli/traj"
)

// Requests whose texts repeat themselves and their prompts, a few at a time: tokens, log-probs, the most
// probable others and why a reply ends are those without drafts, to the bit.
func TestDraftsChangeNoReply(t *testing.T) {
	path := wideModel(t, "qwen3", 150)
	const requests = 200
	for _, dtype := range []string{"float32", "bfloat16"} {
		drafted := open(t, path, Config{DType: dtype, Device: "cpu", MaxBatch: 3})
		needDecoder(t, drafted)
		plain := open(t, path, Config{DType: dtype, Device: "cpu", MaxBatch: 16, NoDrafts: true})
		adapter := map[string]string{"adapter": drawnAdapter(t, path, "adapter", 4, drafted.model.LoRATargets())}
		loadAdapters(t, drafted, adapter)
		loadAdapters(t, plain, adapter)
		want, got := make([]*Reply, requests), make([]*Reply, requests)
		for p, out := range map[*Policy][]*Reply{plain: want, drafted: got} {
			var wg sync.WaitGroup
			for i := range out {
				wg.Go(func() { out[i] = askRepeating(t, p, i) })
			}
			wg.Wait()
		}
		for i := range want {
			if !reflect.DeepEqual(want[i], got[i]) {
				t.Errorf("%s, request %d: %+v, with drafts %+v", dtype, i, want[i], got[i])
			}
		}
		l, none := EngineOf(drafted).Load(), EngineOf(plain).Load()
		if l.DraftTokens < requests || l.AcceptedTokens < l.DraftTokens/4 || l.AcceptedTokens == l.DraftTokens {
			t.Errorf("%s: of %d tokens that were guessed %d were drawn", dtype, l.DraftTokens, l.AcceptedTokens)
		}
		if none.DraftTokens != 0 {
			t.Errorf("%s: %d guessed without drafts", dtype, none.DraftTokens)
		}
	}
}

// askRepeating has a prompt continued that says the same things again and again, in one of many ways.
func askRepeating(t *testing.T, p *Policy, i int) *Reply {
	t.Helper()
	phrase := make([]int32, 5+i%9)
	for k := range phrase {
		phrase[k] = int32(10 + (i*37+k*k*11)%200)
	}
	ids := slices.Concat(phrase, []int32{int32(4 + i%5)}, phrase, phrase, phrase[:3])
	r := &Request{Prompt: Sequence{IDs: ids}, Seed: int64(i), IgnoreEnd: i%4 > 0, Top: []int{0, 0, 2}[i%3],
		Sampling: traj.Sampling{MaxTokens: 1 + (i*7)%40}}
	r.Sampling.Temperature = []*float64{new(float64), nil, new(.3), new(.05)}[i%4]
	if i%5 == 4 {
		r.Adapter = "adapter"
	}
	switch i % 6 {
	case 1:
		r.Sampling.Stop = []string{"e", p.tok.Decode(phrase[1:3], true)}
	case 2:
		r.Sampling.StopIDs = []int32{phrase[2]}
		r.IgnoreEnd = false
	case 3:
		r.Grammar = &onlyEven{}
	case 4:
		r.Sampling.TopP, r.Sampling.TopK = .9, 20
	}
	out, err := EngineOf(p).Ask(t.Context(), r)
	if err != nil {
		t.Error(err)
		return &Reply{}
	}
	out.Cached = 0 // what others have left
	return out
}

// Sequences that decode take part in every step, whoever came before them: a short reply ends while a
// long prompt of an older request is computed.
func TestAShortReplyDoesNotWaitForALongPrompt(t *testing.T) {
	p := open(t, "testdata/tiny-llama", Config{DType: "float32", Device: "cpu", Threads: 1})
	if err := askFor(p.sched, &change{make: func(*torch.Scope) error { p.sched.stepTokens = 8; return nil }}); err != nil {
		t.Fatal(err)
	}
	e := EngineOf(p)
	if err := e.Pause(ExchangeWait); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var order []string
	ask := func(wg *sync.WaitGroup, name string, prompt, reply int) {
		before := e.Load().Waiting
		wg.Go(func() {
			q := unstoppable(p, idsOf(3, prompt), 1, reply)
			if _, err := p.sched.submit(t.Context(), q); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			mu.Lock()
			order = append(order, name)
			mu.Unlock()
		})
		for e.Load().Waiting == before {
			time.Sleep(time.Millisecond)
		}
	}
	var wg sync.WaitGroup
	ask(&wg, "long", p.cfg.MaxContext-8, 1)
	ask(&wg, "short", 9, 6)
	e.Resume()
	wg.Wait()
	if fmt.Sprint(order) != "[short long]" {
		t.Errorf("they end in the order %v", order)
	}
}
