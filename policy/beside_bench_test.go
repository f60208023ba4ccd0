//go:build libtorch

package policy

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"agentcli/model/weights"
)

// BenchmarkBesideALongPrompt is the time between two tokens of sequences that decode, one of 256
// tokens behind the other, in its 99th hundredth, and their tokens a second: alone, and while a
// prompt of AGENTCLI_BENCH_LENGTH tokens is computed, whose own tokens a second come with it; and
// the prompt with nobody beside it. The first AGENTCLI_BENCH_CACHED tokens of the prompt are in the
// cache.
func BenchmarkBesideALongPrompt(b *testing.B) {
	long, cached := number(b, "AGENTCLI_BENCH_LENGTH", "8000"), number(b, "AGENTCLI_BENCH_CACHED", "0")
	for _, dtype := range []string{"bfloat16", "float32"} {
		p := open(b, stretched(b, smollm2(b), long+64), Config{DType: dtype, CacheBytes: 4 << 30})
		submit := func(b *testing.B, ids []int32) time.Duration {
			start := time.Now()
			if _, err := p.sched.submit(context.Background(), unstoppable(p, ids, 0, 1)); err != nil {
				b.Error(err)
			}
			return time.Since(start)
		}
		b.Run(dtype+"/prompt-alone", func(b *testing.B) {
			for range b.N {
				prompt := fresh(long)
				if cached > 0 {
					submit(b, prompt[:cached])
				}
				b.ReportMetric(float64(long-cached)/submit(b, prompt).Seconds(), "prompt-tok/s")
			}
		})
		for _, batch := range []int{1, 8, 32} {
			for _, beside := range []bool{false, true} {
				b.Run(fmt.Sprintf("%s/batch=%d/beside=%v", dtype, batch, beside), func(b *testing.B) {
					for range b.N {
						ctx, cancel := context.WithCancel(context.Background())
						prompt := fresh(long)
						if beside && cached > 0 {
							submit(b, prompt[:cached])
						}
						var mu sync.Mutex
						var gaps []time.Duration
						var wg sync.WaitGroup
						counting := false
						for i := range batch {
							var last time.Time
							emit := func(Token) {
								now := time.Now()
								mu.Lock()
								if counting && !last.IsZero() {
									gaps = append(gaps, now.Sub(last))
								}
								mu.Unlock()
								last = now
							}
							wg.Go(func() {
								for ctx.Err() == nil {
									last = time.Time{}
									mu.Lock()
									ids := fresh(16)
									mu.Unlock()
									q := unstoppable(p, ids, int64(i), 256)
									q.ctx, q.emit = ctx, emit
									_, _ = p.sched.submit(ctx, q)
								}
							})
						}
						time.Sleep(2 * time.Second)
						count := func(on bool) { mu.Lock(); counting = on; mu.Unlock() }
						count(true)
						took := 5 * time.Second
						if beside {
							took = submit(b, prompt)
							b.ReportMetric(float64(long-cached)/took.Seconds(), "prompt-tok/s")
						} else {
							time.Sleep(took)
						}
						count(false)
						cancel()
						wg.Wait()
						slices.Sort(gaps)
						b.ReportMetric(1000*gaps[len(gaps)*99/100].Seconds(), "p99-ms")
						b.ReportMetric(1000*gaps[len(gaps)/2].Seconds(), "p50-ms")
						b.ReportMetric(float64(len(gaps))/took.Seconds(), "tok/s")
					}
				})
			}
		}
		p.Close()
	}
}

// stretched is a model whose window is said to be longer than it is: for measurements of time.
func stretched(b *testing.B, path string, window int) string {
	b.Helper()
	dir := b.TempDir()
	tr, err := OpenTrainable(path, Config{DType: "bfloat16"})
	if err == nil {
		err = tr.Save(dir, weights.BF16)
		tr.Close()
	}
	if err != nil {
		b.Fatal(err)
	}
	config := filepath.Join(dir, "config.json")
	text, err := os.ReadFile(config)
	var c map[string]any
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err == nil {
		c["max_position_embeddings"] = window
		text, err = json.Marshal(c)
	}
	if err == nil {
		err = os.WriteFile(config, text, 0o600)
	}
	if err != nil {
		b.Fatal(err)
	}
	return dir
}
