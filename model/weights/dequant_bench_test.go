package weights

import (
	"testing"
)

// Of float32 values: bytes made a second, on all cores.
func BenchmarkDequantise(b *testing.B) {
	for kind, d := range decoders {
		b.Run(kind.String(), func(b *testing.B) {
			n := 1 << 22 / d.values
			src := manyBlocks(kind.String(), d.bytes, nil)
			for len(src) < n*d.bytes {
				src = append(src, src...)
			}
			src = src[:n*d.bytes]
			b.SetBytes(int64(4 * n * d.values))
			for b.Loop() {
				dequantise(kind, src)
			}
		})
	}
}
