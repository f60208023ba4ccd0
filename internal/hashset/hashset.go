// Package hashset is a set of 64-bit hashes that holds hundreds of thousands of
// them in some ten bytes each: a Go map takes 18 to 37, and both the old and the
// new table while it grows. It is in layer 0.
package hashset

import (
	"math/bits"
	"slices"

	"agentcli/internal/splitmix"
)

// Set is a set of 64-bit numbers. The zero value is empty. It is not safe for
// concurrent use.
//
// It is cut into parts, each a table with linear probing that is at most seven
// eighths full and grows by a quarter, on its own: no growing needs room for two
// sets.
type Set struct {
	parts [parts]part
	zero  bool // 0 marks an empty slot
}

const (
	parts     = 256
	firstSize = 8
)

type part struct {
	slots []uint64
	n     int
}

// Add puts a number into the set, and reports whether it was there already.
func (s *Set) Add(h uint64) (had bool) {
	h = splitmix.Mix(h) // one to one; whose hash is poor in its high bits needs it
	if h == 0 {
		had, s.zero = s.zero, true
		return had
	}
	p := &s.parts[h%parts]
	if 8*(p.n+1) > 7*len(p.slots) {
		p.grow()
	}
	at := &p.slots[p.find(h)]
	if *at == h {
		return true
	}
	*at = h
	p.n++
	return false
}

// find is the slot that has h, or the empty one where it belongs.
func (p *part) find(h uint64) int {
	hi, _ := bits.Mul64(h, uint64(len(p.slots))) // scales the high bits to the length
	i := int(hi)
	for p.slots[i] != 0 && p.slots[i] != h {
		if i++; i == len(p.slots) {
			i = 0
		}
	}
	return i
}

func (p *part) grow() {
	old := p.slots
	p.slots = slices.Grow([]uint64(nil), max(firstSize, len(old)+len(old)/4))
	p.slots = p.slots[:cap(p.slots)] // all that the allocator sets aside for so many
	for _, h := range old {
		if h != 0 {
			p.slots[p.find(h)] = h
		}
	}
}
