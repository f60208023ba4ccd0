//go:build libtorch

package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentcli/app/models"
	"agentcli/policy"
	"agentcli/traj"
)

const (
	streams      = 1000
	streamTokens = 24
	streamsURL   = "AGENTCLI_BENCH_STREAMS" // tells a process that it is the client
)

func streamPrompt(i int) []int32 { return []int32{1, 4093, 198, int32(1000 + i), 1724, 314, 216} }

// BenchmarkStreams is 1,000 streams at once, asked for by another process, beside the same requests within this one,
// in turn: how much longer they take, and what memory a stream takes here while all are open.
func BenchmarkStreams(b *testing.B) {
	if url := os.Getenv(streamsURL); url != "" {
		b.Skip("this process is the client")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		b.Fatal(err)
	}
	o := func(o *Options) {
		o.Path, o.Model.DType = filepath.Join(cache, "agentcli", "models", "SmolLM2-135M-Instruct.Q4_1.gguf"), "bfloat16"
	}
	x := start(b, o)
	within(b, x.engine) // the weights' pages
	var ratios, kilobytes []float64
	for range b.N {
		alone := within(b, x.engine)
		served, each := served(b, x.url)
		ratios, kilobytes = append(ratios, served.Seconds()/alone.Seconds()), append(kilobytes, each/1024)
		b.Logf("%d streams: %.1f s within the process, %.1f s served, %.1f KB each", streams, alone.Seconds(), served.Seconds(), each/1024)
	}
	slices.Sort(ratios)
	slices.Sort(kilobytes)
	b.ReportMetric(ratios[b.N/2], "times-as-long")
	b.ReportMetric(kilobytes[b.N/2], "KB/stream")
}

func within(b *testing.B, e models.Engine) time.Duration {
	begun := time.Now()
	var wg sync.WaitGroup
	for i := range streams {
		wg.Go(func() {
			_, err := e.Ask(context.Background(), &policy.Request{Prompt: policy.Sequence{IDs: streamPrompt(i)}, Seed: int64(i), IgnoreEnd: true,
				Sampling: traj.Sampling{MaxTokens: streamTokens}, Emit: func(policy.Token) {}})
			if err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
	return time.Since(begun)
}

// served is how long another process waits for the streams, and the bytes that this one holds for each when all are open.
func served(b *testing.B, url string) (time.Duration, float64) {
	before := inUse()
	c := exec.Command(os.Args[0], "-test.run=^TestStreamsClient$", "-test.v")
	c.Env = append(os.Environ(), streamsURL+"="+url)
	out := &bytes.Buffer{}
	c.Stdout, c.Stderr = out, out
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	time.Sleep(2 * time.Second)
	each := float64(inUse()-before) / streams
	if err := c.Wait(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	var seconds float64
	if _, line, ok := strings.Cut(out.String(), "took "); !ok {
		b.Fatalf("the client said %s", out)
	} else if _, err := fmt.Sscan(line, &seconds); err != nil {
		b.Fatal(err)
	}
	return time.Duration(seconds * float64(time.Second)), each
}

func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// TestStreamsClient is the client of BenchmarkStreams.
func TestStreamsClient(t *testing.T) {
	url := os.Getenv(streamsURL)
	if url == "" {
		t.Skip("only for BenchmarkStreams")
	}
	begun := time.Now()
	var wg sync.WaitGroup
	for i := range streams {
		wg.Go(func() {
			body, err := json.Marshal(map[string]any{"prompt": streamPrompt(i), "seed": i, "stream": true, "max_tokens": streamTokens,
				"ignore_eos": true})
			if err != nil {
				t.Error(err)
				return
			}
			resp, err := http.Post(url+"/v1/completions", "application/json", bytes.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			all, err := io.ReadAll(resp.Body)
			if err != nil || !bytes.Contains(all, []byte("[DONE]")) {
				t.Errorf("%v: %.200s", err, all)
			}
		})
	}
	wg.Wait()
	t.Logf("took %f s", time.Since(begun).Seconds())
}
