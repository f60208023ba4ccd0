//go:build libtorch

package policy

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"agentcli/model/weights"
	"agentcli/traj"
)

// besideAReply asks for a long prompt while a reply is drawn. Between is called by the scheduler's loop
// whenever a step has left a chunk of the prompt between two layers.
func besideAReply(t *testing.T, ctx context.Context, p *Policy, adapter string, between func(l *layeredChunk)) (*Reply, error) {
	t.Helper()
	EngineOf(p).ForgetPrefixes()
	drawing, end := context.WithCancel(t.Context())
	started, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		q := unstoppable(p, []int32{5, 9, 22}, 1, 1800)
		q.ctx, q.emit = drawing, func(Token) {
			p.sched.pace.size = firstChunk // a layer a step, however long steps take
			if l := p.sched.layered; l != nil && l.layer > 0 {
				between(l)
			}
			select {
			case started <- struct{}{}:
			default:
			}
		}
		_, _ = p.sched.submit(drawing, q)
	}()
	<-started
	out, err := askLong(ctx, p, adapter)
	end()
	<-ended
	return out, err
}

func askLong(ctx context.Context, p *Policy, adapter string) (*Reply, error) {
	return EngineOf(p).Ask(ctx, &Request{Prompt: Sequence{IDs: longPrompt(5)}, Sampling: traj.Sampling{MaxTokens: 20}, Seed: 5,
		IgnoreEnd: true, Adapter: adapter})
}

// A long prompt goes through the layers in parts beside a reply, and gives what it gives alone, to the bit. One that is
// cancelled on its way leaves nothing behind; one that makes room for others begins again.
func TestAPromptInLayersGivesTheSameBits(t *testing.T) {
	eachKernels(t, func(t *testing.T) {
		path := wideModel(t, "qwen3", 150)
		for _, dtype := range []string{"float32", "bfloat16"} {
			p := open(t, path, Config{DType: dtype, Device: "cpu", MaxBatch: 4})
			needDecoder(t, p)
			p.sched.pace.depth = 40
			loadAdapters(t, p, map[string]string{"a": drawnAdapter(t, path, "a", 2, p.model.LoRATargets())})
			for _, adapter := range []string{"", "a"} {
				want, err := askLong(t.Context(), p, adapter)
				if err != nil {
					t.Fatal(err)
				}
				same := func(how string, got *Reply, err error) {
					t.Helper()
					if err != nil {
						t.Fatalf("%s, adapter %q, %s: %v", dtype, adapter, how, err)
					}
					if !slices.Equal(want.IDs, got.IDs) || !slices.Equal(want.Logprobs, got.Logprobs) {
						t.Errorf("%s, adapter %q, %s: %v %v, alone %v %v", dtype, adapter, how, got.IDs, got.Logprobs, want.IDs, want.Logprobs)
					}
				}

				parts := 0
				got, err := besideAReply(t, t.Context(), p, adapter, func(*layeredChunk) { parts++ })
				if same("in layers", got, err); parts == 0 {
					t.Errorf("%s: no step left a chunk between two layers", dtype)
				}

				ctx, cancel := context.WithCancel(t.Context())
				if got, err := besideAReply(t, ctx, p, adapter, func(*layeredChunk) { cancel() }); !errors.Is(err, context.Canceled) {
					t.Errorf("%s: a cancelled prompt: %v, %v", dtype, got, err)
				}
				cancel()
				got, err = besideAReply(t, t.Context(), p, adapter, func(*layeredChunk) {})
				same("behind a cancelled one", got, err)

				rounds := 0
				got, err = besideAReply(t, t.Context(), p, adapter, func(l *layeredChunk) {
					if rounds++; rounds == 3 || rounds == 4 {
						p.sched.preempt(l.seq)
						if p.sched.layered != nil {
							t.Errorf("%s: the chunk of a prompt that has made room for others stays", dtype)
						}
					}
				})
				if same("preempted", got, err); rounds < 5 {
					t.Errorf("%s: %d steps left a chunk between two layers, want more", dtype, rounds)
				}
			}
		}
	})
}

// A prompt whose weights are exchanged between two layers of a chunk is computed with the new ones from its start.
func TestWeightsExchangedWithinAChunkAreThoseOfTheWholePrompt(t *testing.T) {
	path := wideModel(t, "qwen3", 150)
	moved := t.TempDir()
	cfg, err := weights.ReadConfig(path)
	if err == nil {
		err = os.CopyFS(moved, os.DirFS(path))
	}
	if err == nil {
		err = os.Remove(filepath.Join(moved, "model.safetensors"))
	}
	if err == nil {
		err = weights.WriteRandom(filepath.Join(moved, "model.safetensors"), cfg, 2, weights.F32)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, dtype := range []string{"float32", "bfloat16"} {
		p := open(t, path, Config{DType: dtype, Device: "cpu", MaxBatch: 4})
		needDecoder(t, p)
		p.sched.pace.depth = 40
		var loaded chan error
		got, err := besideAReply(t, t.Context(), p, "", func(*layeredChunk) {
			if loaded != nil {
				return
			}
			loaded = make(chan error, 1)
			go func() { loaded <- EngineOf(p).LoadWeights(moved, 7, ExchangeKeep) }()
			for asked := false; !asked && len(loaded) == 0; runtime.Gosched() {
				p.sched.mu.Lock()
				asked = p.sched.change != nil
				p.sched.mu.Unlock()
			}
		})
		if err != nil || loaded == nil {
			t.Fatalf("%s: %v; exchanged: %v", dtype, err, loaded != nil)
		}
		if err := <-loaded; err != nil {
			t.Fatal(err)
		}
		want, err := askLong(t.Context(), open(t, moved, Config{DType: dtype, Device: "cpu", MaxBatch: 4}), "")
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(want.IDs, got.IDs) || !slices.Equal(want.Logprobs, got.Logprobs) || got.Tokens[0].Version != 7 {
			t.Errorf("%s: version %d draws %v %v; the new weights alone %v %v", dtype, got.Tokens[0].Version, got.IDs, got.Logprobs,
				want.IDs, want.Logprobs)
		}
	}
}
