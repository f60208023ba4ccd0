//go:build libtorch

package policy

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// BenchmarkShape measures the model in AGENTCLI_BENCH_MODEL on the tests' default device:
// bench/gpu.sh calls it beside bench/gpu_peers.py, which does the same work with
// transformers. AGENTCLI_BENCH_BATCHES are the batches of decoding, AGENTCLI_BENCH_LENGTH
// is the length of prompts and of rows in training.
func BenchmarkShape(b *testing.B) {
	path := os.Getenv("AGENTCLI_BENCH_MODEL")
	if path == "" {
		b.Skip("AGENTCLI_BENCH_MODEL is not set")
	}
	const dtype = "bfloat16"
	length := number(b, "AGENTCLI_BENCH_LENGTH", "1024")
	b.Run("open", func(b *testing.B) {
		for range b.N {
			start := time.Now()
			p := open(b, path, Config{DType: dtype})
			b.ReportMetric(time.Since(start).Seconds(), "s")
			p.Close()
		}
	})
	p := open(b, path, Config{DType: dtype, MaxContext: 2 * length, MaxBatch: 256})
	for _, field := range strings.Split(environment("AGENTCLI_BENCH_BATCHES", "1,32,128,256"), ",") {
		batch, err := strconv.Atoi(field)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("decode/batch=%d", batch), func(b *testing.B) { decodeShape(b, p, batch, length) })
	}
	b.Run("prefill", func(b *testing.B) {
		for range b.N {
			start := time.Now()
			if _, err := p.sched.submit(context.Background(), unstoppable(p, fresh(length), 0, 1)); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(length)/time.Since(start).Seconds(), "tok/s")
		}
	})
	tr, err := OpenTrainable(path, Config{DType: dtype})
	if err != nil {
		b.Fatal(err)
	}
	defer tr.Close()
	b.Run("train", func(b *testing.B) {
		var batch Batch
		for range 8 {
			batch.Sequences, batch.Want = append(batch.Sequences, fresh(length)), append(batch.Want, slices.Repeat([]bool{true}, length))
		}
		start := time.Now()
		for range b.N {
			trainStep(b, tr, batch)
		}
		b.ReportMetric(float64(8*length*b.N)/time.Since(start).Seconds(), "tok/s")
	})
	b.Run("adopt", func(b *testing.B) {
		for i := range b.N {
			start := time.Now()
			if err := p.Adopt(tr, int64(i+1)); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(time.Since(start).Seconds(), "s")
		}
	})
}

func environment(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

func number(b *testing.B, name, otherwise string) int {
	n, err := strconv.Atoi(environment(name, otherwise))
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// fresh is a prompt whose start is in no cache.
func fresh(n int) []int32 {
	prompts++
	ids := make([]int32, n)
	for j := range ids {
		ids[j] = int32(1000 + (prompts*7919+j*104729)%40000)
	}
	return ids
}

// decodeShape is tokens a second of sampling together, prompts of 16 tokens included.
func decodeShape(b *testing.B, p *Policy, batch, length int) {
	n := min(128, length)
	for range b.N {
		var wg sync.WaitGroup
		start := time.Now()
		for i := range batch {
			q := unstoppable(p, fresh(16), int64(i), n)
			wg.Go(func() {
				if _, err := p.sched.submit(context.Background(), q); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
		b.ReportMetric(float64(batch*n)/time.Since(start).Seconds(), "tok/s")
	}
}
