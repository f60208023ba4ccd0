//go:build libtorch

package policy

import (
	"context"
	"slices"
	"testing"

	"agentcli/traj"
)

// A long prompt goes through the layers in parts beside a reply, and gives what it gives alone, to the bit; one that is
// cancelled on its way leaves nothing behind.
func TestAPromptInLayersGivesTheSameBits(t *testing.T) {
	eachKernels(t, func(t *testing.T) {
		path := wideModel(t, "qwen3", 150)
		for _, dtype := range []string{"float32", "bfloat16"} {
			p := open(t, path, Config{DType: dtype, Device: "cpu", MaxBatch: 4})
			needDecoder(t, p)
			p.sched.pace.depth = 40
			want := drawLong(t, p, 5)[0]

			parts := 0
			var cancelled context.CancelFunc
			beside := func(Token) { // by the scheduler's loop
				p.sched.pace.size = firstChunk // a layer a step, however long steps take
				if l := p.sched.layered; l != nil && l.layer > 0 {
					parts++
					if cancelled != nil {
						cancelled()
					}
				}
			}
			long := func(ctx context.Context) (*Output, error) {
				t.Helper()
				EngineOf(p).ForgetPrefixes()
				parts = 0
				deciding, end := context.WithCancel(t.Context())
				started, ended := make(chan struct{}, 1), make(chan struct{})
				go func() {
					defer close(ended)
					q := unstoppable(p, []int32{5, 9, 22}, 1, 1800)
					q.ctx, q.emit = deciding, func(x Token) {
						beside(x)
						select {
						case started <- struct{}{}:
						default:
						}
					}
					_, _ = p.sched.submit(deciding, q)
				}()
				<-started
				out, err := p.Sample(ctx, longPrompt(5), traj.Sampling{MaxTokens: 20}, 5)
				end()
				<-ended
				return out, err
			}

			got, err := long(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(want.IDs, got.IDs) || !slices.Equal(want.Logprobs, got.Logprobs) {
				t.Errorf("%s: alone %v %v, in layers %v %v", dtype, want.IDs, want.Logprobs, got.IDs, got.Logprobs)
			}
			if parts == 0 {
				t.Errorf("%s: no step left a chunk between two layers", dtype)
			}

			ctx, cancel := context.WithCancel(t.Context())
			cancelled = cancel
			if out, err := long(ctx); err == nil {
				t.Errorf("%s: a cancelled prompt was answered: %v", dtype, out.IDs)
			}
			cancelled = nil
			if got, err = long(t.Context()); err != nil || !slices.Equal(want.Logprobs, got.Logprobs) {
				t.Errorf("%s: behind a cancelled prompt %v, %v; alone %v", dtype, got, err, want.Logprobs)
			}
			cancel()
		}
	})
}
