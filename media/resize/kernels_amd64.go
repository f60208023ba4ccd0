package resize

import "golang.org/x/sys/cpu"

var vectors = cpu.X86.HasAVX2 && cpu.X86.HasBMI2

// columnAVX2 writes n bytes, at least 16, each the rounded sum of taps source bytes that are
// stride apart, times weights: pairs has two of 16 bits in each number.
//
//go:noescape
func columnAVX2(dst, src *byte, stride, n int, pairs *int32, taps, bits int)

// rowAVX2 writes n pixels and one byte more. Pixel i is the rounded sum of 4·perPixel source
// pixels from the byte offsets[i] on, times as many weights from quads; the four bytes behind
// the last of them are read, too.
//
//go:noescape
func rowAVX2(dst, src *byte, offsets *int32, n int, quads *int16, perPixel, bits int)
