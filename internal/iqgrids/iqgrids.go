// Package iqgrids has the codebooks of the IQ types of GGUFs: an index stands for several numbers. Each is made once, when it is
// first asked for, and must not be changed.
package iqgrids

import (
	"encoding/base64"
	"sync"
)

// Numbers of eight an index.
var (
	IQ2XXS = unpack(gridIQ2XXS, 2, 0x08, 0x19, 0x2b, 0) // 256 indices
	IQ2XS  = unpack(gridIQ2XS, 2, 0x08, 0x19, 0x2b, 0)  // 512
	IQ2S   = unpack(gridIQ2S, 2, 0x08, 0x19, 0x2b, 0)   // 1,024
	IQ1S   = unpack(gridIQ1S, 2, -1, 0, 1, 0)           // 2,048
)

// Numbers of four an index.
var (
	IQ3XXS = unpack(gridIQ3XXS, 4, 0x04, 0x0c, 0x14, 0x1c, 0x24, 0x2c, 0x34, 0x3e, 0, 0, 0, 0, 0, 0, 0, 0) // 256 indices
	IQ3S   = unpack(gridIQ3S, 4, 0x01, 0x03, 0x05, 0x07, 0x09, 0x0b, 0x0d, 0x0f, 0, 0, 0, 0, 0, 0, 0, 0)   // 512
)

// Signs7 are eight signs by seven bits, one a bit: the last makes their number even.
var Signs7 = sync.OnceValue(func() []byte { return unbase64(signsIQ2XXS) })

// unpack reads a grid whose numbers have so many bits.
func unpack(packed string, bits int, values ...int8) func() []int8 {
	return sync.OnceValue(func() (out []int8) {
		for _, b := range unbase64(packed) {
			for shift := 0; shift < 8; shift += bits {
				out = append(out, values[int(b>>shift)&(1<<bits-1)])
			}
		}
		return out
	})
}

func unbase64(s string) []byte {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		panic(err) // a constant string
	}
	return b
}
