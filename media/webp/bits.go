package webp

import (
	"encoding/binary"

	"agentcli/internal/malformed"
	"agentcli/media/raster"
)

// bitReader reads numbers from the lowest bit on. Behind the data it gives zeros and counts
// them.
type bitReader struct {
	data []byte
	acc  uint64
	n    int // bits in acc
	fake int // bits of them, or taken before, that were made up

	lengths [256 + 24 + 1<<11]uint8 // of the code that is being read
}

// fill makes at least 32 bits available.
func (r *bitReader) fill() {
	if len(r.data) >= 8 {
		r.acc |= binary.LittleEndian.Uint64(r.data) << r.n
		taken := (63 - r.n) / 8
		r.data = r.data[taken:]
		r.n += 8 * taken
		r.acc &= 1<<r.n - 1
		return
	}
	for r.n <= 55 {
		if len(r.data) > 0 {
			r.acc |= uint64(r.data[0]) << r.n
			r.data = r.data[1:]
		} else {
			r.fake += 8
		}
		r.n += 8
	}
}

// bits takes up to 24 bits.
func (r *bitReader) bits(n int) int {
	if r.n < 32 {
		r.fill()
	}
	v := int(r.acc & (1<<n - 1))
	r.acc >>= n
	r.n -= n
	return v
}

// cut tells whether bits were taken that the data does not have.
func (r *bitReader) cut() bool { return r.fake > r.n }

// rootBits is how many bits of a code the table decides at once, at most.
const rootBits = 9

// longest is the most bits of a code.
const longest = 15

// code is a Huffman code.
type code struct {
	root  []uint16 // symbol<<4 | length, by the next bits; length 0: longer
	bits  int      // log2 of its size
	short uint16   // the symbol of a code of one symbol, which takes no bits
	// Of each length: how many codes, and where their symbols begin in sorted.
	count, first [longest + 1]uint16
	sorted       []uint16
}

// newCode makes a canonical code from the length of each symbol. A code that leaves bits
// without a symbol is refused, unless it has one symbol alone.
func newCode(lengths []uint8) (*code, error) {
	c := &code{}
	symbols, maximum := 0, 0
	for _, n := range lengths {
		if n > 0 {
			c.count[n]++
			symbols++
			maximum = max(maximum, int(n))
		}
	}
	c.sorted = make([]uint16, symbols)
	left, place := 1, uint16(0)
	var next, codes [longest + 1]uint16
	start := uint16(0)
	for n := 1; n <= longest; n++ {
		left = left<<1 - int(c.count[n])
		c.first[n], next[n], codes[n] = place, place, start
		place += c.count[n]
		start = (start + c.count[n]) << 1
		if left < 0 {
			return nil, malformed.Errorf(malformed.Syntax, "a code has too many symbols")
		}
	}
	for s, n := range lengths {
		if n > 0 {
			c.sorted[next[n]] = uint16(s)
			next[n]++
		}
	}
	switch {
	case symbols == 0:
		return nil, malformed.Errorf(malformed.Syntax, "a code has no symbols")
	case symbols == 1:
		c.short = c.sorted[0]
		return c, nil
	case left != 0:
		return nil, malformed.Errorf(malformed.Syntax, "a code is incomplete")
	}
	c.bits = min(maximum, rootBits)
	c.root = make([]uint16, 1<<c.bits)
	for n := 1; n <= c.bits; n++ {
		for i := range c.count[n] {
			entry := c.sorted[c.first[n]+i]<<4 | uint16(n)
			for at := reversed(codes[n]+i, n); at < len(c.root); at += 1 << n {
				c.root[at] = entry
			}
		}
	}
	return c, nil
}

// reversed has the n bits of v in the other order.
func reversed(v uint16, n int) (out int) {
	for range n {
		out = out<<1 | int(v&1)
		v >>= 1
	}
	return out
}

// next takes a symbol.
func (c *code) next(r *bitReader) int {
	if c.root == nil {
		return int(c.short)
	}
	if r.n < 32 {
		r.fill()
	}
	if e := c.root[r.acc&(1<<c.bits-1)]; e != 0 {
		r.acc >>= e & 15
		r.n -= int(e & 15)
		return int(e >> 4)
	}
	// Bit by bit: start is the first code of a length.
	value, start := 0, 0
	for n := 1; n <= longest; n++ {
		value = value<<1 | int(r.acc>>(n-1)&1)
		if i := value - start; i < int(c.count[n]) {
			r.acc >>= n
			r.n -= n
			return int(c.sorted[int(c.first[n])+i])
		}
		start = (start + int(c.count[n])) << 1
	}
	return 0 // a complete code has ended before
}

// codeLengthOrder is the order of the lengths of the code of lengths in a file.
var codeLengthOrder = [19]uint8{17, 18, 0, 1, 2, 3, 4, 5, 16, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}

// readCode reads a code of an alphabet.
func (r *bitReader) readCode(alphabet int) (*code, error) {
	lengths := r.lengths[:alphabet]
	clear(lengths)
	if r.bits(1) == 1 { // one or two symbols
		two := r.bits(1) == 1
		first := r.bits(1 + 7*r.bits(1))
		if first >= alphabet {
			return nil, malformed.Errorf(malformed.Range, "symbol %d of a code of %d", first, alphabet)
		}
		lengths[first] = 1
		if two {
			second := r.bits(8)
			if second >= alphabet {
				return nil, malformed.Errorf(malformed.Range, "symbol %d of a code of %d", second, alphabet)
			}
			lengths[second] = 1
		}
		return newCode(lengths)
	}
	var ofLengths [19]uint8
	for _, s := range codeLengthOrder[:4+r.bits(4)] {
		ofLengths[s] = uint8(r.bits(3))
	}
	c, err := newCode(ofLengths[:])
	if err != nil {
		return nil, err
	}
	tokens := alphabet
	if r.bits(1) == 1 {
		if tokens = 2 + r.bits(2+2*r.bits(3)); tokens > alphabet {
			return nil, malformed.Errorf(malformed.Range, "%d lengths of a code of %d", tokens, alphabet)
		}
	}
	before := uint8(8)
	for s := 0; s < alphabet && tokens > 0; tokens-- {
		n := c.next(r)
		if n < 16 {
			lengths[s] = uint8(n)
			if s++; n > 0 {
				before = uint8(n)
			}
			continue
		}
		repeat, value := 3, uint8(0)
		switch n {
		case 16:
			repeat, value = repeat+r.bits(2), before
		case 17:
			repeat += r.bits(3)
		default:
			repeat = 11 + r.bits(7)
		}
		if s+repeat > alphabet {
			return nil, malformed.Errorf(malformed.Range, "%d lengths of a code of %d", s+repeat, alphabet)
		}
		for range repeat {
			lengths[s] = value
			s++
		}
	}
	if r.cut() {
		return nil, raster.Truncated()
	}
	return newCode(lengths)
}
