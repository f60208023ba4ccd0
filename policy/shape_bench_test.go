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
	p := open(b, path, Config{DType: dtype, MaxContext: 8 * length, MaxBatch: 256, NoDrafts: true})
	for _, field := range strings.Split(environment("AGENTCLI_BENCH_BATCHES", "1,32,128,256"), ",") {
		batch, err := strconv.Atoi(field)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("decode/batch=%d", batch), func(b *testing.B) { decodeShape(b, p, batch, length) })
	}
	for _, n := range []int{length, 4 * length} {
		b.Run(fmt.Sprintf("prefill/length=%d", n), func(b *testing.B) {
			medianRate(b, n, func() {
				if _, err := p.sched.submit(context.Background(), unstoppable(p, fresh(n), 0, 1)); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
	tr, err := OpenTrainable(path, Config{DType: dtype})
	if err != nil {
		b.Fatal(err)
	}
	defer tr.Close()
	rows, groups := trainingRows(length)
	b.Run("train", func(b *testing.B) { trainShape(b, tr, rows) })
	b.Run("train-groups", func(b *testing.B) { trainShape(b, tr, groups) })
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

// trainingRows are eight rows that share nothing, and two groups of eight replies to a prompt that is
// eight times as long as a reply. Each token is trained of the first, each of the replies of the others.
func trainingRows(length int) (rows, groups Batch) {
	for range 8 {
		rows.Sequences, rows.Want = append(rows.Sequences, fresh(length)), append(rows.Want, slices.Repeat([]bool{true}, length))
	}
	reply := length / 4
	for range 2 {
		prompt := fresh(8 * reply)
		for range 8 {
			groups.Sequences = append(groups.Sequences, append(slices.Clone(prompt), fresh(reply)...))
			groups.Want = append(groups.Want, append(make([]bool, len(prompt)), slices.Repeat([]bool{true}, reply)...))
		}
	}
	return rows, groups
}

func trainShape(b *testing.B, tr *Trainable, batch Batch) {
	tokens := 0
	for _, ids := range batch.Sequences {
		tokens += len(ids)
	}
	trainStep(b, tr, batch)
	medianRate(b, tokens, func() { trainStep(b, tr, batch) })
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
	medianRate(b, batch*n, func() {
		var wg sync.WaitGroup
		for i := range batch {
			q := unstoppable(p, fresh(16), int64(i), n)
			wg.Go(func() {
				if _, err := p.sched.submit(context.Background(), q); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
	})
}

// medianRate reports tokens a second of work that has so many tokens: the median of b.N runs.
func medianRate(b *testing.B, tokens int, work func()) {
	rates := make([]float64, b.N)
	for i := range rates {
		start := time.Now()
		work()
		rates[i] = float64(tokens) / time.Since(start).Seconds()
	}
	slices.Sort(rates)
	b.ReportMetric(rates[b.N/2], "tok/s")
}
