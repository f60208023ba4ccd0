//go:build libtorch

package policy

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentcli/traj"
)

// BenchmarkDecode is tokens a second of sampling, whole vocabulary, after a
// short prompt; compare with bench/peers.py in the same session.
func BenchmarkDecode(b *testing.B) {
	for _, dtype := range []string{"bfloat16", "float32"} {
		p := open(b, smollm2(b), Config{DType: dtype, MaxBatch: 128})
		for _, batch := range []int{1, 8, 32, 128} {
			b.Run(fmt.Sprintf("%s/batch=%d", dtype, batch), func(b *testing.B) {
				const n = 64
				tokens := 0
				start := time.Now()
				for range b.N {
					var wg sync.WaitGroup
					var mu sync.Mutex
					for i := range batch {
						wg.Add(1)
						go func() {
							defer wg.Done()
							ids := []int32{1, 4093, 198, int32(1000 + i), 1724, 314, 216}
							out, err := p.sched.submit(context.Background(), unstoppable(p, ids, int64(i), n))
							if err != nil {
								b.Error(err)
								return
							}
							mu.Lock()
							tokens += len(out.IDs)
							mu.Unlock()
						}()
					}
					wg.Wait()
				}
				b.ReportMetric(float64(tokens)/time.Since(start).Seconds(), "tok/s")
			})
		}
	}
}

// unstoppable samples exactly n tokens.
func unstoppable(p *Policy, ids []int32, seed int64, n int) *sequence {
	return newSequence(context.Background(), p,
		&Request{Prompt: Sequence{IDs: ids}, Sampling: traj.Sampling{MaxTokens: n}, Seed: seed, IgnoreEnd: true}, n)
}

var prompts int // over all runs: the cache outlives one

// BenchmarkPrefill is tokens a second of a prompt's forward pass.
func BenchmarkPrefill(b *testing.B) {
	for _, dtype := range []string{"bfloat16", "float32"} {
		p := open(b, smollm2(b), Config{DType: dtype})
		for _, length := range []int{512, 4096} {
			b.Run(fmt.Sprintf("%s/length=%d", dtype, length), func(b *testing.B) {
				start := time.Now()
				for range b.N {
					prompts++
					ids := make([]int32, length)
					for j := range ids {
						ids[j] = int32(1000 + (prompts*7919+j*104729)%40000) // never a prefix that is in the cache
					}
					if _, err := p.sched.submit(context.Background(), unstoppable(p, ids, 0, 1)); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(length*b.N)/time.Since(start).Seconds(), "tok/s")
			})
		}
	}
}

// BenchmarkContext is tokens a second of sampling behind a long text: one sequence alone behind
// 8,000 tokens, and 32 behind one prompt of 4,096.
func BenchmarkContext(b *testing.B) {
	const n = 33
	for _, dtype := range []string{"bfloat16", "float32"} {
		p := open(b, smollm2(b), Config{DType: dtype, MaxContext: 8192, CacheBytes: 2 << 30})
		for _, k := range []struct{ batch, context int }{{1, 8000}, {32, 4096}} {
			b.Run(fmt.Sprintf("%s/batch=%d/context=%d", dtype, k.batch, k.context), func(b *testing.B) {
				prompt, rate := fresh(k.context), 0.0
				draw := func(i, n int, emit func(Token)) {
					q := unstoppable(p, append(slices.Clone(prompt), int32(1000+i)), int64(i), n)
					q.emit = emit
					if _, err := p.sched.submit(context.Background(), q); err != nil {
						b.Error(err)
					}
				}
				draw(0, 1, nil) // the prompt is in the cache
				for range b.N {
					var wg sync.WaitGroup
					var mu sync.Mutex
					var first, last time.Time
					for i := range k.batch {
						wg.Go(func() {
							tokens := 0
							draw(1+i, n, func(Token) {
								mu.Lock()
								defer mu.Unlock()
								if tokens++; tokens == 1 {
									first = time.Now() // of the last sequence to begin
								}
								last = time.Now()
							})
						})
					}
					wg.Wait()
					rate += float64(k.batch*(n-1)) / last.Sub(first).Seconds()
				}
				b.ReportMetric(rate/float64(b.N), "tok/s")
			})
		}
	}
}

// BenchmarkTrainStep is tokens a second of forward and backward over 8
// sequences of 256 tokens that share nothing.
func BenchmarkTrainStep(b *testing.B) {
	for _, dtype := range []string{"bfloat16", "float32"} {
		tr, err := OpenTrainable(smollm2(b), Config{DType: dtype})
		if err != nil {
			b.Fatal(err)
		}
		batch := unshared(8)
		b.Run(dtype, func(b *testing.B) {
			start := time.Now()
			for range b.N {
				trainStep(b, tr, batch)
			}
			b.ReportMetric(8*256*float64(b.N)/time.Since(start).Seconds(), "tok/s")
		})
		tr.Close()
	}
}

// BenchmarkTrainMemory is one optimiser step over 4,096 tokens at once, that share
// nothing, with what saves memory and without: the time, and the largest resident
// size of the process so far. Run each alone:
//
//	go test -tags libtorch -run '^$' -bench 'TrainMemory/lora$' -benchtime 1x ./policy
func BenchmarkTrainMemory(b *testing.B) {
	for name, c := range map[string]Config{
		"whole":            {},
		"whole-checkpoint": {GradCheckpoint: true},
		"lora":             {LoRA: LoRA{Rank: 16}},
		"lora-checkpoint":  {LoRA: LoRA{Rank: 16}, GradCheckpoint: true},
	} {
		b.Run(name, func(b *testing.B) {
			c.DType = "bfloat16"
			tr, err := OpenTrainable(smollm2(b), c)
			if err != nil {
				b.Fatal(err)
			}
			defer tr.Close()
			batch := unshared(16)
			number := 0
			start := time.Now()
			for range b.N {
				trainStep(b, tr, batch)
				number++
				if _, err := tr.Step(StepConfig{LR: 1e-6, Beta1: .9, Beta2: .95, Eps: 1e-8, MaxGradNorm: 1, Number: number}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(batch.Sequences)*256*b.N)/time.Since(start).Seconds(), "tok/s")
			b.ReportMetric(peakMB(b), "peak-MB")
		})
	}
}

// peakMB is the largest resident size that the process has had.
func peakMB(b *testing.B) float64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	var kb float64
	if _, err := fmt.Sscan(after, &kb); err != nil {
		b.Fatal(err)
	}
	return kb / 1024
}

// unshared are sequences of 256 tokens without a common prefix, of which the
// second half is wanted.
func unshared(n int) (batch Batch) {
	for i := range n {
		ids, want := make([]int32, 256), make([]bool, 256)
		for j := range ids {
			ids[j], want[j] = int32(1000+(i*7919+j*104729)%40000), j > 128
		}
		batch.Sequences, batch.Want = append(batch.Sequences, ids), append(batch.Want, want)
	}
	return batch
}

func trainStep(b *testing.B, tr *Trainable, batch Batch) {
	err := tr.Accumulate(batch, func(o Outputs) Gradients { return Gradients{Logprobs: slices.Repeat([]float64{-1}, len(o.Logprobs))} })
	if err != nil {
		b.Fatal(err)
	}
}

// BenchmarkDrafts is sampling with drafts beside sampling without, in turn, one to eight at once: tokens
// a second of both, and the middle ratio. Calls: a text that repeats a call with its arguments, which a
// greedy draw goes on with. Prose: draws at temperature 1, which repeat little.
func BenchmarkDrafts(b *testing.B) {
	const n = 128
	call := `<tool_call>
{"name": "search", "arguments": {"query": "population of Lisbon in 1950 and 2020", "source": "https://example.org/lisbon", "limit": 5}}
</tool_call>
`
	for _, dtype := range []string{"bfloat16", "float32"} {
		plain, drafted := open(b, smollm2(b), Config{DType: dtype, NoDrafts: true}), open(b, smollm2(b), Config{DType: dtype})
		calls := plain.tok.Encode("The same call again and again:\n"+strings.Repeat(call, 3), true)
		prose := plain.tok.Encode("Once upon a time there was a town by the sea, where", true)
		for name, x := range map[string]struct {
			ids         []int32
			temperature float64
		}{"calls": {calls, 0}, "prose": {prose, 1}} {
			for _, batch := range []int{1, 2, 4, 8} {
				b.Run(fmt.Sprintf("%s/%s/batch=%d", dtype, name, batch), func(b *testing.B) {
					inTurn(b, plain, drafted, x.ids, traj.Sampling{MaxTokens: n, Temperature: &x.temperature}, batch)
				})
			}
		}
		plain.Close()
		drafted.Close()
	}
}

// BenchmarkStoredWeights is sampling with the weights as the file has them (Q4_1, some Q8_0) beside sampling
// with bfloat16 made of them, in turn: one to 32 replies at once, and prompts of 512 tokens.
func BenchmarkStoredWeights(b *testing.B) {
	plain := open(b, smollm2(b), Config{DType: "bfloat16", NoDrafts: true})
	stored := open(b, smollm2(b), Config{DType: "bfloat16", NoDrafts: true, AsStored: true})
	for _, batch := range []int{1, 2, 4, 8, 32} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			inTurn(b, plain, stored, []int32{1, 4093, 198, 1724, 314, 216}, traj.Sampling{MaxTokens: 64}, batch)
		})
	}
	b.Run("prefill", func(b *testing.B) {
		var of [2]time.Duration
		for range b.N {
			for i, p := range []*Policy{plain, stored} {
				start := time.Now()
				if _, err := p.sched.submit(context.Background(), unstoppable(p, fresh(512), 0, 1)); err != nil {
					b.Fatal(err)
				}
				of[i] += time.Since(start)
			}
		}
		b.ReportMetric(512*float64(b.N)/of[0].Seconds(), "plain-tok/s")
		b.ReportMetric(512*float64(b.N)/of[1].Seconds(), "tok/s")
		b.ReportMetric(of[0].Seconds()/of[1].Seconds(), "ratio")
	})
}

// BenchmarkFile is tokens a second of the model file that AGENTCLI_BENCH_FILE names, with its
// weights as they are stored: bench/llama_cpp.sh runs it beside llama.cpp's own benchmark.
func BenchmarkFile(b *testing.B) {
	path := os.Getenv("AGENTCLI_BENCH_FILE")
	if path == "" {
		b.Skip("AGENTCLI_BENCH_FILE names no file")
	}
	p := open(b, path, Config{DType: "bfloat16", NoDrafts: true, AsStored: os.Getenv("AGENTCLI_BENCH_STORED") != ""})
	for _, batch := range []int{1, 8, 32} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			var rates []float64
			for i := range b.N {
				rates = append(rates, decodeRate(b, p, []int32{1, 4093, 198, 1724, 314, 216}, traj.Sampling{MaxTokens: 64}, int64(i), batch))
			}
			slices.Sort(rates)
			b.ReportMetric(rates[b.N/2], "tok/s")
		})
	}
	b.Run("prefill", func(b *testing.B) {
		start := time.Now()
		for range b.N {
			if _, err := p.sched.submit(context.Background(), unstoppable(p, fresh(512), 0, 1)); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(512*float64(b.N)/time.Since(start).Seconds(), "tok/s")
	})
}

// inTurn reports the tokens a second of two policies that answer in turn, and the quartiles of their ratio.
func inTurn(b *testing.B, plain, other *Policy, ids []int32, how traj.Sampling, batch int) {
	b.Helper()
	var slow, fast, ratios []float64
	for i := range b.N {
		slow = append(slow, decodeRate(b, plain, ids, how, int64(i), batch))
		fast = append(fast, decodeRate(b, other, ids, how, int64(i), batch))
		ratios = append(ratios, fast[i]/slow[i])
	}
	slices.Sort(ratios)
	slices.Sort(slow)
	slices.Sort(fast)
	b.ReportMetric(slow[b.N/2], "plain-tok/s")
	b.ReportMetric(fast[b.N/2], "tok/s")
	b.ReportMetric(ratios[b.N/2], "ratio")
	b.ReportMetric(ratios[b.N/4], "ratio-25%")
	b.ReportMetric(ratios[b.N*3/4], "ratio-75%")
}

// decodeRate is tokens a second of replies to one prompt, from the first token to the last.
func decodeRate(b *testing.B, p *Policy, ids []int32, how traj.Sampling, seed int64, batch int) float64 {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var first, last time.Time
	for i := range batch {
		q := newSequence(context.Background(), p, &Request{Prompt: Sequence{IDs: ids}, Seed: seed*100 + int64(i), IgnoreEnd: true, Sampling: how},
			how.MaxTokens)
		tokens := 0
		q.emit = func(Token) {
			mu.Lock()
			defer mu.Unlock()
			if tokens++; tokens == 1 {
				first = time.Now()
			}
			last = time.Now()
		}
		wg.Go(func() {
			if _, err := p.sched.submit(context.Background(), q); err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
	return float64(batch*(how.MaxTokens-1)) / last.Sub(first).Seconds()
}
