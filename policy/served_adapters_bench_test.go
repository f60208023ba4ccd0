//go:build libtorch

package policy

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"agentcli/traj"
)

// BenchmarkAdapters is the tokens a second of replies to prompts of their own, drawn by as many adapters of rank 16 on all
// matrices, in turn.
func BenchmarkAdapters(b *testing.B) {
	path := smollm2(b)
	p := open(b, path, Config{NoDrafts: true, CacheBytes: 1 << 30})
	const most, tokens = 32, 64
	for k := range most {
		loadAdapters(b, p, map[string]string{fmt.Sprint(k): drawnAdapter(b, path, fmt.Sprint(k), 16, p.model.LoRATargets())})
	}
	for _, batch := range []int{1, 8, 32} {
		for _, adapters := range []int{0, 1, 8, 32} {
			if adapters > batch {
				continue
			}
			b.Run(fmt.Sprintf("%s/batch=%d/adapters=%d", p.DType(), batch, adapters), func(b *testing.B) {
				for range b.N {
					start := time.Now()
					var wg sync.WaitGroup
					for i := range batch {
						r := &Request{Prompt: Sequence{IDs: idsOf(1000*b.N+i, 8)}, Seed: int64(i), IgnoreEnd: true,
							Sampling: traj.Sampling{MaxTokens: tokens}}
						if adapters > 0 {
							r.Adapter = fmt.Sprint(i % adapters)
						}
						wg.Go(func() {
							if _, err := EngineOf(p).Ask(context.Background(), r); err != nil {
								b.Error(err)
							}
						})
					}
					wg.Wait()
					b.ReportMetric(float64(batch*tokens)/time.Since(start).Seconds(), "tok/s")
				}
			})
		}
	}
}
