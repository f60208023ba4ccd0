//go:build unix

package mathgrade

import (
	"strings"
	"syscall"
	"testing"
)

// BenchmarkHostile times the worst answers: bench/math_grader.sh prints the slowest. cpu-ms/op
// is the processors' time, collection of memory included, which other programs change little.
func BenchmarkHostile(b *testing.B) {
	for name, p := range hostile() {
		b.Run(strings.ReplaceAll(name, " ", "-"), func(b *testing.B) {
			timed(b, func() { Equal(p[0], p[1], Options{}) })
		})
	}
	for name, r := range replies() {
		b.Run("reply-"+strings.ReplaceAll(name, " ", "-"), func(b *testing.B) {
			timed(b, func() {
				if a, _, ok := Extract(r); ok {
					Equal("1", a, Options{})
				}
			})
		})
	}
}

func timed(b *testing.B, f func()) {
	b.ReportAllocs()
	before := cpuMilliseconds(b)
	for b.Loop() {
		f()
	}
	b.ReportMetric((cpuMilliseconds(b)-before)/float64(b.N), "cpu-ms/op")
}

func cpuMilliseconds(b *testing.B) float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e6
}
