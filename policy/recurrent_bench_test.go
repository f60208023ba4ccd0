//go:build libtorch

package policy

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"agentcli/model/arch/archtest"
)

// qwen35Layers is four layers of Qwen3.5-0.8B with a small vocabulary.
const qwen35Layers = `{"model_type": "qwen3_5_text", "hidden_size": 1024, "intermediate_size": 3584, "num_hidden_layers": 4,
	"layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
	"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256, "attention_bias": false, "hidden_act": "silu",
	"linear_num_key_heads": 16, "linear_num_value_heads": 16, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
	"linear_conv_kernel_dim": 4, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "vocab_size": 96,
	"rope_parameters": {"mrope_interleaved": true, "mrope_section": [11, 11, 10], "partial_rotary_factor": 0.25,
		"rope_theta": 10000000.0, "rope_type": "default"},
	"tie_word_embeddings": true, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}`

// BenchmarkRecurrent is tokens a second of a processor's time of qwen35Layers with random weights on
// one thread: decoding, a prompt of 512 tokens, and
// forward and backward of eight rows of 256. bench/recurrent.sh runs it.
func BenchmarkRecurrent(b *testing.B) {
	const vocabulary = 96
	random := func(n int) []int32 { // no prefix is in the cache
		prompts++
		ids := make([]int32, n)
		for j := range ids {
			ids[j] = int32(3 + (prompts*prompts*7919+j*j*31+prompts*j)%(vocabulary-6))
		}
		return ids
	}
	dir := familyGolden{archtest.Model{Config: []byte(qwen35Layers)}}.write(b)
	for _, dtype := range []string{"bfloat16", "float32"} {
		b.Run(dtype, func(b *testing.B) { // each alone: sampling in bfloat16 needs AVX-512
			p := open(b, dir, Config{DType: dtype, Threads: 1, MaxBatch: 32, CacheBytes: 1 << 30})
			for _, batch := range []int{1, 8, 32} {
				b.Run(fmt.Sprintf("decode=%d", batch), func(b *testing.B) {
					const n = 65
					report(b, batch*n, func() {
						done := make(chan error)
						for i := range batch {
							q := unstoppable(p, random(4), int64(i), n)
							go func() {
								_, err := p.sched.submit(context.Background(), q)
								done <- err
							}()
						}
						for range batch {
							if err := <-done; err != nil {
								b.Error(err)
							}
						}
					})
				})
			}
			b.Run("prefill", func(b *testing.B) {
				report(b, 512, func() {
					if _, err := p.sched.submit(context.Background(), unstoppable(p, random(512), 0, 1)); err != nil {
						b.Fatal(err)
					}
				})
			})
			p.Close()
			b.Run("train", func(b *testing.B) {
				tr, err := OpenTrainable(dir, Config{DType: dtype, Threads: 1})
				if err != nil {
					b.Fatal(err)
				}
				defer tr.Close()
				var batch Batch
				for range 8 {
					batch.Sequences, batch.Want = append(batch.Sequences, random(256)), append(batch.Want, slices.Repeat([]bool{true}, 256))
				}
				report(b, 8*256, func() { trainStep(b, tr, batch) })
				b.ReportMetric(peakMB(b), "peak-MB")
			})
		})
	}
}

// report runs once, which computes so many tokens, and reports them by processor time.
func report(b *testing.B, tokens int, once func()) {
	from := cpuTime(b)
	for range b.N {
		once()
	}
	b.ReportMetric(float64(tokens*b.N)/(cpuTime(b)-from).Seconds(), "tok/cpu-s")
}

// cpuTime is how long processors have worked for this process: other programs change it less than the clock's time.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
