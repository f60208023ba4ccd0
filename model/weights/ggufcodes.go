package weights

import (
	"math"
	"slices"

	"agentcli/internal/codes"
	"agentcli/model/gguf"
)

// floatBlocks are the types of GGUFs whose codes are floats of four bits: a block has some scales of a byte each, and then
// the codes of each scale, the first half of them in the lower halves of bytes, the others in the upper ones.
var floatBlocks = map[gguf.TensorType]struct {
	scales, bytes int // of a block; bytes are those of a scale's codes
	scale         func(byte) float32
}{
	gguf.MXFP4: {1, 16, e8m0},
	gguf.NVFP4: {4, 8, func(b byte) float32 { return 2 * halfUE4M3(b) }},
}

// floatCodes lays the codes of matrices out in the order of the numbers. The rows of several sources take turns. It is nil
// where the type is another, and where a scale is beyond float32, though the file's numbers are not.
func floatCodes(kind gguf.TensorType, count, rows, cols int, stored ...[]byte) *codes.Matrices {
	block, ok := floatBlocks[kind]
	if !ok {
		return nil
	}
	blocks := cols / (2 * block.bytes * block.scales) // of a row
	groups, size := blocks*block.scales, block.scales*(1+block.bytes)
	c := &codes.Matrices{Data: make([]byte, count*rows*cols/2), Count: count, Rows: rows, Cols: cols, Stride: cols / 2, Bits: 4,
		Meaning: codes.E2M1, Scales: make([]float32, count*rows*groups), Across: groups, High: 1, Wide: 2 * block.bytes}
	parallel(count*rows, 1+(1<<12)/groups, func(from, to int) {
		for row := from; row < to; row++ {
			source := stored[row%len(stored)][row/len(stored)*blocks*size:]
			data, scales := c.Data[row*c.Stride:][:c.Stride], c.Scales[row*groups:][:groups]
			for g := range groups {
				of, k := source[g/block.scales*size:], g%block.scales
				scales[g] = block.scale(of[k])
				halvesInOrder(data[g*block.bytes:][:block.bytes], of[block.scales+k*block.bytes:][:block.bytes])
			}
		}
	})
	if slices.Contains(c.Scales, float32(math.Inf(1))) {
		return nil
	}
	return c
}

// halvesInOrder puts the lower halves of the bytes first and then the upper ones, two a byte.
func halvesInOrder(to, from []byte) {
	low, high := to[:len(to)/2], to[len(to)/2:]
	for ; len(from) >= 8; from, low, high = from[8:], low[4:], high[4:] {
		x := le.Uint64(from)
		le.PutUint32(low, lowHalves(x))
		le.PutUint32(high, lowHalves(x>>4))
	}
}

// lowHalves are the lower halves of eight bytes.
func lowHalves(x uint64) uint32 {
	x &= 0x0f0f0f0f0f0f0f0f
	x = (x | x>>4) & 0x00ff00ff00ff00ff
	x = (x | x>>8) & 0x0000ffff0000ffff
	return uint32(x | x>>16)
}
