//go:build libtorch

package policy

import (
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"agentcli/model/weights"
)

// forget has the page cache drop a file.
func forget(b *testing.B, path string) {
	b.Helper()
	f, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkOpenFile reads the weights of the model that AGENTCLI_BENCH_FILE names and then opens
// it, with its files in the page cache and without. AGENTCLI_BENCH_STORED=1 keeps its matrices as stored.
func BenchmarkOpenFile(b *testing.B) {
	path := os.Getenv("AGENTCLI_BENCH_FILE")
	if path == "" {
		b.Skip("AGENTCLI_BENCH_FILE names no file")
	}
	m, err := weights.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	files := m.Files()
	m.Close()
	for _, cached := range []bool{false, true} {
		prepare := func() {
			for _, f := range files {
				if !cached {
					forget(b, f)
				}
			}
		}
		read := func() {
			for _, f := range files {
				r, err := os.Open(f)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{r}, make([]byte, 1<<20)); err != nil {
					b.Fatal(err)
				}
				r.Close()
			}
		}
		b.Run(map[bool]string{false: "disk", true: "cache"}[cached], func(b *testing.B) {
			var reading, opening time.Duration
			for range b.N {
				prepare()
				start := time.Now()
				read()
				reading += time.Since(start)
				prepare()
				start = time.Now()
				p, err := Open(path, Config{DType: os.Getenv("AGENTCLI_BENCH_DTYPE"), MaxContext: 1024,
					AsStored: os.Getenv("AGENTCLI_BENCH_STORED") != ""})
				if err != nil {
					b.Fatal(err)
				}
				opening += time.Since(start)
				p.Close()
			}
			b.ReportMetric(reading.Seconds()/float64(b.N), "read-s")
			b.ReportMetric(opening.Seconds()/float64(b.N), "open-s")
			b.ReportMetric(opening.Seconds()/reading.Seconds(), "open÷read")
		})
	}
}
