package tokenizer

// merge is what becomes of a pair of symbols: of a text's pairs the one with the
// lowest rank goes first.
type merge struct{ rank, id int32 }

// pairTable finds the merge of two symbols: an open hash table, which is twice
// as fast as a map at this one question.
type pairTable struct {
	keys  []uint64 // pairKey+1; 0: free
	vals  []merge
	shift uint
}

func pairKey(a, b int32) uint64 { return uint64(uint32(a))<<32 | uint64(uint32(b)) }

func newPairTable(n int) *pairTable {
	bits := uint(4)
	for 1<<bits < 2*n {
		bits++
	}
	return &pairTable{keys: make([]uint64, 1<<bits), vals: make([]merge, 1<<bits), shift: 64 - bits}
}

// slot is where a key is, or the free place where it would be.
func (t *pairTable) slot(key uint64) int {
	i := int(key * 0x9e3779b97f4a7c15 >> t.shift)
	for t.keys[i] != 0 && t.keys[i] != key+1 {
		i = (i + 1) & (len(t.keys) - 1)
	}
	return i
}

// put sets a pair's merge; a later one takes the place of an earlier.
func (t *pairTable) put(a, b int32, m merge) {
	i := t.slot(pairKey(a, b))
	t.keys[i], t.vals[i] = pairKey(a, b)+1, m
}

func (t *pairTable) get(a, b int32) (merge, bool) {
	i := t.slot(pairKey(a, b))
	return t.vals[i], t.keys[i] != 0
}

const shortWord = 96 // symbols below which scanning for the best pair beats a heap

// mergeAll merges the symbols of a word in place and returns how many are left.
func (t *pairTable) mergeAll(w []int32) int {
	if len(w) <= shortWord {
		return t.mergeShort(w)
	}
	return t.mergeLong(w)
}

// mergeShort merges in place and returns the new length.
func (t *pairTable) mergeShort(w []int32) int {
	var ranks [shortWord]merge
	look := func(i int) merge {
		if i+1 < len(w) {
			if p, ok := t.get(w[i], w[i+1]); ok {
				return p
			}
		}
		return merge{rank: -1}
	}
	for i := range w {
		ranks[i] = look(i)
	}
	for {
		best := -1
		for i := 0; i+1 < len(w); i++ {
			if r := ranks[i].rank; r >= 0 && (best < 0 || r < ranks[best].rank) {
				best = i
			}
		}
		if best < 0 {
			return len(w)
		}
		w[best] = ranks[best].id
		copy(w[best+1:], w[best+2:])
		copy(ranks[best+1:], ranks[best+2:len(w)])
		w = w[:len(w)-1]
		ranks[best] = look(best)
		if best > 0 {
			ranks[best-1] = look(best - 1)
		}
	}
}

type candidate struct{ rank, pos, left, right, id int32 }

func (c candidate) before(d candidate) bool {
	return c.rank < d.rank || c.rank == d.rank && c.pos < d.pos
}

// candidates is a binary heap, the lowest rank on top and of equal ranks the
// leftmost.
type candidates []candidate

func (h *candidates) push(c candidate) {
	*h = append(*h, c)
	a := *h
	for i := len(a) - 1; i > 0; {
		up := (i - 1) / 2
		if !a[i].before(a[up]) {
			return
		}
		a[i], a[up] = a[up], a[i]
		i = up
	}
}

func (h *candidates) pop() candidate {
	a := *h
	top := a[0]
	a[0] = a[len(a)-1]
	a = a[:len(a)-1]
	*h = a
	for i := 0; ; {
		least := i
		for k := 2*i + 1; k <= 2*i+2 && k < len(a); k++ {
			if a[k].before(a[least]) {
				least = k
			}
		}
		if least == i {
			return top
		}
		a[i], a[least] = a[least], a[i]
		i = least
	}
}

// mergeLong does the same with a heap over a linked list: n log n for a line of
// 100 kB without a space.
func (t *pairTable) mergeLong(w []int32) int {
	next, prev := make([]int32, len(w)), make([]int32, len(w))
	for i := range w {
		next[i], prev[i] = int32(i+1), int32(i-1)
	}
	next[len(w)-1] = -1
	var h candidates
	add := func(i int32) {
		if i < 0 || next[i] < 0 {
			return
		}
		if p, ok := t.get(w[i], w[next[i]]); ok {
			h.push(candidate{p.rank, i, w[i], w[next[i]], p.id})
		}
	}
	for i := range w {
		add(int32(i))
	}
	for len(h) > 0 {
		c := h.pop()
		n := int32(-1)
		if w[c.pos] == c.left {
			n = next[c.pos]
		}
		if n < 0 || w[n] != c.right {
			continue // one of the two was merged meanwhile
		}
		w[c.pos] = c.id
		w[n] = -1
		next[c.pos] = next[n]
		if next[n] >= 0 {
			prev[next[n]] = c.pos
		}
		add(prev[c.pos])
		add(c.pos)
	}
	n := 0
	for _, id := range w {
		if id >= 0 {
			w[n] = id
			n++
		}
	}
	return n
}
