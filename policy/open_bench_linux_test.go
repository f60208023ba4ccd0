//go:build libtorch

package policy

import (
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"agentcli/internal/parallel"
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

// touch has the system clear n bytes for us, in large pages and on all threads.
func touch(b *testing.B, n int64) {
	b.Helper()
	memory, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = unix.Munmap(memory) }()
	if err := unix.Madvise(memory, unix.MADV_HUGEPAGE); err != nil {
		b.Fatal(err)
	}
	const part = 16 << 20
	_ = parallel.For(int((n+part-1)/part), func(i int) error {
		for at := int64(i) * part; at < min(n, int64(i+1)*part); at += 4096 {
			memory[at] = 1
		}
		return nil
	})
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
	files, wanted := m.Files(), 2*m.Parameters()
	m.Close()
	dtype := os.Getenv("AGENTCLI_BENCH_DTYPE")
	if dtype == "float32" {
		wanted *= 2
	}
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
			var reading, touching, opening time.Duration
			for range b.N {
				prepare()
				start := time.Now()
				read()
				reading += time.Since(start)
				start = time.Now()
				touch(b, wanted)
				touching += time.Since(start)
				prepare()
				start = time.Now()
				p, err := Open(path, Config{DType: dtype, MaxContext: 1024, AsStored: os.Getenv("AGENTCLI_BENCH_STORED") != ""})
				if err != nil {
					b.Fatal(err)
				}
				opening += time.Since(start)
				p.Close()
			}
			b.ReportMetric(reading.Seconds()/float64(b.N), "read-s")
			b.ReportMetric(touching.Seconds()/float64(b.N), "touch-s")
			b.ReportMetric(opening.Seconds()/float64(b.N), "open-s")
			b.ReportMetric(opening.Seconds()/reading.Seconds(), "open÷read")
		})
	}
}
