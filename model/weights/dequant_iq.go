package weights

import (
	"math"
	"sync"

	"agentcli/internal/iqgrids"
)

// codebook is a grid of the IQ types: an index stands for several values.
type codebook struct {
	values []float32
	each   int
}

// at are the values of an index.
func (c *codebook) at(i int) []float32 { return c.values[i*c.each : (i+1)*c.each] }

func codebookOf(grid func() []int8, each int) func() *codebook {
	return sync.OnceValue(func() *codebook {
		c := &codebook{each: each}
		for _, v := range grid() {
			c.values = append(c.values, float32(v))
		}
		return c
	})
}

var (
	iq2XXS = codebookOf(iqgrids.IQ2XXS, 8)
	iq2XS  = codebookOf(iqgrids.IQ2XS, 8)
	iq2S   = codebookOf(iqgrids.IQ2S, 8)
	iq3XXS = codebookOf(iqgrids.IQ3XXS, 4)
	iq3S   = codebookOf(iqgrids.IQ3S, 4)
	iq1S   = codebookOf(iqgrids.IQ1S, 8)
)

// signed puts grid values times a scale, with signs by bits, at place i on.
func signed(dst []byte, i int, scale float32, grid []float32, signs byte) {
	dst = dst[4*i:]
	for k, v := range grid {
		le.PutUint32(dst[4*k:], math.Float32bits(v*scale)^uint32(signs>>k&1)<<31)
	}
}

func iq2_XXS(dst, src []byte) {
	d, grid, signs := f16(src), iq2XXS(), iqgrids.Signs7()
	for b := range 8 {
		q := src[2+8*b:]
		s := le.Uint32(q[4:])
		scale := float32(d*(0.5+float32(s>>28))) * 0.25
		for k := range 4 {
			signed(dst, 32*b+8*k, scale, grid.at(int(q[k])), signs[s>>(7*k)&127])
		}
	}
}

func iq2_XS(dst, src []byte) {
	d, grid, signs := f16(src), iq2XS(), iqgrids.Signs7()
	for g := range 32 {
		q := le.Uint16(src[2+2*g:])
		scale := float32(d*(0.5+float32(src[66+g/4]>>(g/2%2*4)&15))) * 0.25
		signed(dst, 8*g, scale, grid.at(int(q&511)), signs[q>>9])
	}
}

func iq2_S(dst, src []byte) {
	d, grid := f16(src), iq2S()
	qs, signs, high, scales := src[2:34], src[34:66], src[66:74], src[74:82]
	for g := range 32 {
		scale := float32(d*(0.5+float32(scales[g/4]>>(g/2%2*4)&15))) * 0.25
		signed(dst, 8*g, scale, grid.at(int(qs[g])|int(high[g/4]>>(g%4*2)&3)<<8), signs[g])
	}
}

func iq3_XXS(dst, src []byte) {
	d, grid, signs := f16(src), iq3XXS(), iqgrids.Signs7()
	for b := range 8 {
		s := le.Uint32(src[66+4*b:])
		scale := float32(d*(0.5+float32(s>>28))) * 0.5
		for k := range 8 {
			sign := signs[s>>(k/2*7)&127] >> (k % 2 * 4)
			signed(dst, 32*b+4*k, scale, grid.at(int(src[2+8*b+k])), sign)
		}
	}
}

func iq3_S(dst, src []byte) {
	d, grid := f16(src), iq3S()
	qs, high, signs, scales := src[2:66], src[66:74], src[74:106], src[106:110]
	for g := range 64 {
		scale := d * float32(1+2*(scales[g/16]>>(g/8%2*4)&15))
		signed(dst, 4*g, scale, grid.at(int(qs[g])|int(high[g/8]>>(g%8)&1)<<8), signs[g/2]>>(g%2*4))
	}
}

// iqDelta is what all values of a group of the 1-bit types are moved by.
const iqDelta = 0.125

func shifted(dst []byte, i int, scale float32, grid []float32, down bool) {
	delta := float32(iqDelta)
	if down {
		delta = -delta
	}
	for k, v := range grid {
		put(dst, i+k, scale*float32(v+delta))
	}
}

func iq1_S(dst, src []byte) {
	d, grid := f16(src), iq1S()
	for g := range 32 {
		h := le.Uint16(src[34+g/4*2:])
		scale := d * float32(2*(h>>12&7)+1)
		shifted(dst, 8*g, scale, grid.at(int(src[2+g])|int(h>>(g%4*3)&7)<<8), h&0x8000 != 0)
	}
}

func iq1_M(dst, src []byte) {
	grid := iq1S()
	scales := src[48:56]
	// The float16 scale lies in the upper four bits of each of four numbers.
	var h uint16
	for i := range 4 {
		h |= le.Uint16(scales[2*i:]) >> 12 << (4 * i)
	}
	d := halves[h]
	for g := range 32 {
		s := le.Uint16(scales[g/8*2:]) >> (g / 2 % 4 * 3) & 7
		q := src[32+g/2] >> (g % 2 * 4)
		shifted(dst, 8*g, d*float32(2*s+1), grid.at(int(src[g])|int(q&7)<<8), q&8 != 0)
	}
}

// The values of IQ4_NL and IQ4_XS.
var iq4Values = [16]float32{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

func iq4_NL(dst, src []byte) { nibbles(dst, 0, f16(src), src[2:18], &iq4Values) }

func iq4_XS(dst, src []byte) {
	d, high := f16(src), le.Uint16(src[2:])
	for b := range 8 {
		s := int(src[4+b/2]>>(b%2*4)&15) | int(high>>(2*b)&3)<<4
		nibbles(dst, 32*b, d*float32(s-32), src[8+16*b:24+16*b], &iq4Values)
	}
}

// nibbles puts the values of packed half bytes times a scale at place i on: the
// lower halves first, then the upper ones.
func nibbles(dst []byte, i int, d float32, qs []byte, values *[16]float32) {
	for j, q := range qs {
		put(dst, i+j, d*values[q&15])
		put(dst, i+j+len(qs), d*values[q>>4])
	}
}
