//go:build !amd64

package resize

var vectors = false

func columnAVX2(dst, src *byte, stride, n int, pairs *int32, taps, bits int) { panic("no AVX2") }

func rowAVX2(dst, src *byte, offsets *int32, n int, quads *int16, perPixel, bits int) {
	panic("no AVX2")
}
