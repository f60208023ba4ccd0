package hashset

import (
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"testing"

	"agentcli/internal/splitmix"
)

// TestEveryNumberIsNewOnce: whatever the numbers are like, the set says what a map
// says.
func TestEveryNumberIsNewOnce(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for name, draw := range map[string]func(i int) uint64{
		"random":        func(int) uint64 { return rng.Uint64() },
		"counted":       func(i int) uint64 { return uint64(i) },
		"high bits":     func(i int) uint64 { return uint64(i) << 48 },
		"often again":   func(int) uint64 { return rng.Uint64N(500) },
		"in one part":   func(i int) uint64 { return unmix(uint64(i)*parts + 7) },
		"in one slot":   func(i int) uint64 { return unmix(1<<63 | uint64(i)*parts) },
		"at the border": func(i int) uint64 { return unmix(^(uint64(i) * parts)) },
	} {
		var s Set
		have := map[uint64]bool{}
		for i := range 4_000 {
			h := draw(i)
			if s.Add(h) != have[h] {
				t.Fatalf("%s: number %d, %#x: the set does not say %v", name, i, h, have[h])
			}
			have[h] = true
		}
	}
}

// unmix is the number that splitmix.Mix makes h of.
func unmix(h uint64) uint64 {
	inverse := func(a uint64) uint64 { // modulo 2⁶⁴, by Newton's method
		x := a
		for range 6 {
			x *= 2 - a*x
		}
		return x
	}
	h ^= h>>31 ^ h>>62
	h *= inverse(0x94d049bb133111eb)
	h ^= h>>27 ^ h>>54
	h *= inverse(0xbf58476d1ce4e5b9)
	return h ^ h>>30 ^ h>>60
}

func TestUnmix(t *testing.T) {
	for _, h := range []uint64{0, 1, 7, 1 << 63, ^uint64(0), 0x123456789abcdef} {
		if got := splitmix.Mix(unmix(h)); got != h {
			t.Fatalf("%#x, want %#x", got, h)
		}
	}
}

// TestANumberTakesTwelveBytes holds the set to what it is there for.
func TestANumberTakesTwelveBytes(t *testing.T) {
	for _, n := range []int{20_000, 200_000, 1_000_000} {
		var before, after runtime.MemStats
		settle(&before)
		s := new(Set)
		for i := range n {
			s.Add(uint64(i))
		}
		settle(&after)
		if each := float64(int64(after.HeapAlloc)-int64(before.HeapAlloc)) / float64(n); each > 12 || each < 8 {
			t.Errorf("of %d numbers each takes %.1f bytes", n, each)
		}
		runtime.KeepAlive(s)
	}
}

// settle reads the memory that is in use. What pools hold is let go of at the second collection.
func settle(m *runtime.MemStats) {
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(m)
}

func FuzzSetEqualsMap(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s Set
		have := map[uint64]bool{}
		for len(b) > 0 {
			var next [8]byte
			b = b[copy(next[:], b):]
			h := binary.LittleEndian.Uint64(next[:])
			if s.Add(h) != have[h] {
				t.Fatalf("%#x: the set does not say %v", h, have[h])
			}
			have[h] = true
		}
	})
}

func BenchmarkAdd(b *testing.B) {
	for b.Loop() {
		var s Set
		for i := range uint64(200_000) {
			s.Add(i)
		}
	}
}
