package jpeg

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// Any coefficients, also those that no encoder writes, give the bytes of plain Go.
func TestTheKernelEqualsPlainGo(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for round := range 20000 {
		var b [64]int16
		var quant [64]uint16
		most := []int{2, 60, 2000, 1 << 16}[round%4]
		for i := range b {
			if rng.IntN(4) <= round%3 {
				b[i] = int16(rng.IntN(most) - most/2)
			}
			quant[i] = uint16(1 + rng.IntN([]int{1, 255, 1 << 16}[round%3]))
		}
		want, got := make([]byte, 7*11+8), make([]byte, 7*11+8)
		idctGo(&b, &quant, want, 11)
		idct(&b, &quant, got, 11)
		if !bytes.Equal(got, want) {
			t.Fatalf("round %d:\n%v\n%v", round, got, want)
		}
	}
}

// Every pair of chroma values, and rows of all widths, give the bytes of plain Go.
func TestKernelsOfRowsEqualPlainGo(t *testing.T) {
	if !vectors {
		t.Skip("this processor has no kernel")
	}
	t.Cleanup(func() { vectors = true })
	compare := func(name string, n int, f func(out []byte)) {
		vectors = true
		fast := make([]byte, n)
		f(fast)
		vectors = false
		plain := make([]byte, n)
		f(plain)
		if !bytes.Equal(fast, plain) {
			t.Fatalf("%s differs", name)
		}
	}
	var cb, cr [256]byte
	for u := range 256 {
		for v := range 256 {
			cb[v], cr[v] = byte(u), byte(v)
		}
		for _, y := range []byte{0, 1, 17, 128, 200, 254, 255} {
			luma := bytes.Repeat([]byte{y}, 256)
			compare("colour", 3*256, func(out []byte) { fromYCbCr(out, luma, cb[:], cr[:]) })
		}
	}
	rng := rand.New(rand.NewPCG(5, 6))
	for n := 3; n < 200; n++ {
		near, far := make([]byte, n), make([]byte, n)
		for i := range near {
			near[i], far[i] = byte(rng.IntN(256)), byte(rng.IntN(256))
		}
		compare("a row", 2*n, func(out []byte) { twiceBoth(out, near, far) })
		compare("colours of a row", 3*n, func(out []byte) { fromYCbCr(out, near, far, near) })
	}
}

func BenchmarkInverse(b *testing.B) {
	var block [64]int16
	var quant [64]uint16
	for i := range block {
		block[i], quant[i] = int16(i*7%50-25), uint16(i%9+1)
	}
	out := make([]byte, 64)
	b.Run("kernel", func(b *testing.B) {
		for b.Loop() {
			idct(&block, &quant, out, 8)
		}
	})
	b.Run("plain", func(b *testing.B) {
		for b.Loop() {
			idctGo(&block, &quant, out, 8)
		}
	})
}
