package grammar

import (
	"math/bits"
	"sync"
)

// termMask says which tokens may follow in one state of a terminal, without what is around
// the terminal: tokens that stay within it are known once and for all. Those that leave it
// in their middle depend on what comes after it.
type termMask struct {
	dense []uint32 // the tokens that stay within, as a mask
	few   []int32  // or as a list, where they are few
	// exits are the nodes of the vocabulary's trie where the terminal may end in the middle of
	// tokens. Where there are many, rest has what the tokens have left there instead.
	exits []int32
	rest  *trie
	left  bool // exits and rest are known
}

// bytes is about what a mask takes.
func (m *termMask) bytes() int {
	n := 4*(len(m.dense)+len(m.few)+len(m.exits)) + 64
	if m.rest != nil {
		n += 16*len(m.rest.nodes) + 4*len(m.rest.ids)
	}
	return n
}

// maskCache keeps masks of terminals' states for one vocabulary.
type maskCache struct {
	lock       sync.RWMutex
	masks      map[maskKey]*termMask
	signatures map[*terminal][]uint64
	size       int // bytes of the masks
}

type maskKey struct {
	terminal *terminal
	state    uint64
}

func newMaskCache() *maskCache {
	return &maskCache{masks: map[maskKey]*termMask{}, signatures: map[*terminal][]uint64{}}
}

const (
	maxCache      = 64 << 20 // bytes; a cache that has more starts again
	maxSignatures = 50 << 20 // of transitions × rounds; an automaton beyond has a mask for each state
	manyExits     = 64
	maxRest       = 100_000
)

// get is the mask of state q; leave: with the tokens that leave the terminal.
func (c *maskCache) get(v *Vocabulary, t *terminal, q int32, leave bool) *termMask {
	c.lock.RLock()
	key := maskKey{t, uint64(q)}
	known := true
	if t.counted != nil { // of all strings with the same characters
		key = maskKey{t.counted.unit, t.counted.key(q, v.longest)}
	} else {
		var sig []uint64
		if sig, known = c.signatures[t]; sig != nil {
			key.state = sig[q]
		}
	}
	m := c.masks[key]
	c.lock.RUnlock()
	if m != nil && known && (m.left || !leave) {
		return m
	}
	if !known {
		var sig []uint64
		if len(t.next)*v.longest <= maxSignatures {
			sig = t.signatures(v.longest)
			key.state = sig[q]
		}
		c.lock.Lock()
		c.signatures[t] = sig
		m = c.masks[key]
		c.lock.Unlock()
		if m != nil && (m.left || !leave) {
			return m
		}
	}
	m = newTermMask(v, t, q, leave)
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.size += m.bytes(); c.size > maxCache {
		clear(c.masks)
		c.size = m.bytes()
	}
	c.masks[key] = m
	return m
}

// newTermMask walks the vocabulary's trie from state q.
func newTermMask(v *Vocabulary, t *terminal, q int32, leave bool) *termMask {
	m := &termMask{left: leave, dense: make([]uint32, (v.Size()+31)/32)}
	if t.counted != nil {
		t, q = t.counted.uncounted(q, v.longest)
	}
	all := &v.tokenAt
	states := make([]int32, v.longest+1)
	states[0] = q
	left, count := 0, 0
	for i := int32(1); i < int32(len(all.nodes)); {
		n := &all.nodes[i]
		var to int32
		if from := states[n.depth-1]; t.counted == nil { // terminal.step, written here for speed
			to = t.next[from*t.width+int32(t.class[n.char])]
		} else {
			to = t.counted.step(from, n.char)
		}
		if to == none {
			i = n.end
			continue
		}
		states[n.depth] = to
		for _, id := range all.at(i) {
			m.dense[id/32] |= 1 << (id % 32)
			count++
		}
		if leave && n.end > i+1 && t.accepts(to) {
			m.exits = append(m.exits, i)
			left += len(all.below(i))
			if t.ends(to) {
				i = n.end
				continue
			}
		}
		i++
	}
	if count < v.Size()/32 {
		m.few = make([]int32, 0, count)
		for i, w := range m.dense {
			for ; w != 0; w &= w - 1 {
				m.few = append(m.few, int32(32*i+bits.TrailingZeros32(w)))
			}
		}
		m.dense = nil
	}
	if len(m.exits) > manyExits && left <= maxRest {
		entries := make([]entry, 0, left)
		for _, i := range m.exits {
			for _, id := range all.below(i) {
				entries = append(entries, entry{v.tokens[id][all.nodes[i].depth:], id})
			}
		}
		rest := newTrie(entries)
		m.rest, m.exits = &rest, nil
	}
	return m
}

// set marks the tokens that stay within the terminal.
func (m *termMask) set(mask []uint32) {
	for i, w := range m.dense {
		mask[i] |= w
	}
	for _, id := range m.few {
		mask[id/32] |= 1 << (id % 32)
	}
}
