// Package codes describes matrices whose numbers are codes of a few bits with scales, as quantised checkpoints have them, and
// computes their numbers. internal/torch computes the same ones in C++.
package codes

import (
	"encoding/binary"
	"math"
)

// Matrices are matrices whose numbers are
//
//	(value of the code − zero)·scale
//
// rounded as Rounding says, with a scale, and perhaps a zero, for each block of a matrix as it is stored.
type Matrices struct {
	Data       []byte
	Count      int  // of matrices, which lie one behind another
	Rows, Cols int  // of each, as it is stored
	Transposed bool // the tensor has [Cols, Rows]
	Stride     int  // bytes of a stored row; with Down of 32/Bits of them
	Bits       int  // of a code: 2, 4 or 8
	Order      Order
	Meaning    Meaning
	Rounding   Rounding

	Scales, Zeros []float32 // of each block: [blocks down all matrices, Across]; Zeros is nil where all are zero
	Across        int       // blocks side by side
	High, Wide    int       // stored rows and columns of a block
	Groups        []int32   // which block each input (column of the tensor) is in; nil: blocks are runs of inputs
}

// Order is where the codes are in words of 32 bits.
type Order int32

// Orders.
const (
	Along       Order = iota // of a row, the first in the lowest bits
	Down                     // of a column, the first in the lowest bits: GPTQ
	Interleaved              // of a row, at the places of Interleave: AWQ
)

// Interleave is where AWQ's gemm layout has the eight codes of a word.
var Interleave = [8]uint{0, 4, 1, 5, 2, 6, 3, 7}

// Meaning is what numbers the codes stand for.
type Meaning int32

// Meanings.
const (
	Unsigned Meaning = iota
	Signed           // int8
	E4M3             // float8_e4m3fn: four bits of exponent with bias 7, three of mantissa, no infinities
	E2M1             // the float of four bits of MX formats
)

// Rounding is to which type numbers are rounded.
type Rounding int32

// Roundings.
const (
	ToFloat32 Rounding = iota // as they are computed
	ToFloat16
	ToBFloat16
)

// numbers are those of all codes of each meaning.
var numbers = func() (t [4][256]float32) {
	for i := range 256 {
		t[Unsigned][i], t[Signed][i], t[E4M3][i] = float32(i), float32(int8(i)), E4M3Number(byte(i))
	}
	for i := range 16 { // two bits of exponent with bias 1, one of mantissa
		x := []float32{0, .5, 1, 1.5, 2, 3, 4, 6}[i%8]
		if i >= 8 {
			x = float32(math.Copysign(float64(x), -1)) // also of zero, as transformers has it
		}
		t[E2M1][i] = x
	}
	return t
}()

// E4M3Number is the number of a float8_e4m3fn.
func E4M3Number(b byte) float32 {
	exp, man := int(b>>3&15), float64(b&7)
	x := math.Ldexp(1+man/8, exp-7)
	switch {
	case b&0x7f == 0x7f:
		x = math.NaN()
	case exp == 0:
		x = math.Ldexp(man/8, -6)
	}
	if b >= 128 {
		x = -x
	}
	return float32(x)
}

// Row computes a stored row, not rounded, into to [Cols].
func (c *Matrices) Row(row int, to []float32) {
	number, mask := &numbers[c.Meaning], uint32(1)<<c.Bits-1
	each := 32 / c.Bits // codes of a word
	switch {
	case c.Order == Down:
		words, shift := c.Data[row/each*c.Stride:], uint(row%each*c.Bits)
		for i := range to {
			to[i] = number[binary.LittleEndian.Uint32(words[4*i:])>>shift&mask]
		}
	case c.Bits == 8:
		for i, b := range c.Data[row*c.Stride:][:len(to)] {
			to[i] = number[b]
		}
	default:
		words := c.Data[row*c.Stride:]
		for i := 0; i < len(to); i, words = i+each, words[4:] {
			word := binary.LittleEndian.Uint32(words)
			for k := range min(each, len(to)-i) {
				at := uint(k)
				if c.Order == Interleaved {
					at = Interleave[k]
				}
				to[i+k] = number[word>>(at*uint(c.Bits))&mask]
			}
		}
	}
	down, run := row/c.High, c.Wide
	if c.Groups != nil && c.Transposed {
		down = int(c.Groups[row])
	} else if c.Groups != nil {
		run = 1
	}
	for first := 0; first < len(to); first += run {
		x := down*c.Across + first/c.Wide
		if c.Groups != nil && !c.Transposed {
			x = down*c.Across + int(c.Groups[first])
		}
		zero, scale := float32(0), c.Scales[x]
		if c.Zeros != nil {
			zero = c.Zeros[x]
		}
		for i, v := range to[first:min(first+run, len(to))] {
			to[first+i] = (v - zero) * scale
		}
	}
}
