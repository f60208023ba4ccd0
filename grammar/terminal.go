package grammar

import "slices"

// terminal is a deterministic automaton over bytes: the words that may be in one place of a
// grammar. A state is a number from 0 on; none is none. From every state an accepting one can
// be reached. A terminal never changes.
type terminal struct {
	class  [256]uint8 // bytes that no state tells apart have one class
	width  int32      // number of classes
	next   []int32    // [states, width]
	accept []bool     // [states]
	begin  int32      // none: no word at all
	shared bool       // of the package: its masks are kept with the vocabulary

	counted *counted // in place of the table: a JSON string whose characters are counted
}

const none int32 = -1

func (t *terminal) step(q int32, b byte) int32 {
	if t.counted != nil {
		return t.counted.step(q, b)
	}
	return t.next[q*t.width+int32(t.class[b])]
}

func (t *terminal) accepts(q int32) bool {
	if t.counted != nil {
		return q == countedEnd
	}
	return t.accept[q]
}

// nullable reports whether the empty word is one of the terminal's.
func (t *terminal) nullable() bool { return t.begin != none && t.accepts(t.begin) }

// ends reports whether nothing can follow in state q.
func (t *terminal) ends(q int32) bool {
	if t.counted != nil {
		return q == countedEnd
	}
	for _, to := range t.next[q*t.width : (q+1)*t.width] {
		if to != none {
			return false
		}
	}
	return true
}

// trim removes the states from which no word ends, and those that are never reached.
func (t *terminal) trim() *terminal {
	n := len(t.accept)
	from := make([][]int32, n)
	for q := range n {
		for _, to := range t.row(int32(q)) {
			if to != none {
				from[to] = append(from[to], int32(q))
			}
		}
	}
	alive := slices.Clone(t.accept)
	var todo []int32
	for q, yes := range alive {
		if yes {
			todo = append(todo, int32(q))
		}
	}
	for len(todo) > 0 {
		q := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, p := range from[q] {
			if !alive[p] {
				alive[p] = true
				todo = append(todo, p)
			}
		}
	}
	return t.renumber(func(q int32) int32 {
		if !alive[q] {
			return none
		}
		return q
	})
}

func (t *terminal) row(q int32) []int32 { return t.next[q*t.width : (q+1)*t.width] }

// renumber keeps what can be reached when each state is replaced by its representative.
func (t *terminal) renumber(of func(int32) int32) *terminal {
	out := &terminal{class: t.class, width: t.width, begin: none}
	if t.begin == none || of(t.begin) == none {
		return out
	}
	number := map[int32]int32{}
	var order []int32
	visit := func(q int32) int32 {
		if q == none {
			return none
		}
		if q = of(q); q == none {
			return none
		}
		id, ok := number[q]
		if !ok {
			id = int32(len(order))
			number[q] = id
			order = append(order, q)
		}
		return id
	}
	out.begin = visit(t.begin)
	for i := 0; i < len(order); i++ {
		for _, to := range t.row(order[i]) {
			out.next = append(out.next, visit(to))
		}
		out.accept = append(out.accept, t.accept[order[i]])
	}
	return out
}

// signatures are numbers of states that are equal where no word of at most `rounds` bytes
// tells the states apart, up to a collision of 64-bit hashes. It stops early when a round
// tells no more states apart than the one before.
func (t *terminal) signatures(rounds int) []uint64 {
	n := len(t.accept)
	now, then := make([]uint64, n), make([]uint64, n)
	for q := range now {
		now[q] = 1
		if t.accept[q] {
			now[q] = 2
		}
	}
	kinds := countKinds(now)
	for r := 1; r <= rounds; r++ {
		for q := range n {
			h := mix(now[q] + 0x9e3779b97f4a7c15)
			for _, to := range t.row(int32(q)) {
				x := uint64(0)
				if to != none {
					x = now[to]
				}
				h = mix(h ^ x)
			}
			then[q] = h
		}
		now, then = then, now
		more := countKinds(now)
		if more == kinds {
			break
		}
		kinds = more
	}
	return now
}

func countKinds(of []uint64) int {
	seen := make(map[uint64]struct{}, 64)
	for _, h := range of {
		seen[h] = struct{}{}
	}
	return len(seen)
}

// mix is the finaliser of splitmix64, times an odd constant first.
func mix(x uint64) uint64 {
	x *= 0xff51afd7ed558ccd
	x ^= x >> 32
	x *= 0xc4ceb9fe1a85ec53
	x ^= x >> 29
	return x
}

// minimise joins states that no word tells apart (Moore).
func (t *terminal) minimise() *terminal {
	if t.begin == none {
		return t
	}
	sig := t.signatures(len(t.accept))
	first := map[uint64]int32{}
	for q, h := range sig {
		if _, ok := first[h]; !ok {
			first[h] = int32(q)
		}
	}
	return t.renumber(func(q int32) int32 { return first[sig[q]] })
}

// product walks two terminals at once: both accept, or a accepts and b does not.
func (b *budget) product(x, y *terminal, without bool) *terminal {
	out := &terminal{begin: none}
	if x.begin == none {
		return out
	}
	pairs := map[[2]uint8]uint8{}
	var sample []byte
	for c := range 256 {
		key := [2]uint8{x.classes()[c], y.classes()[c]}
		id, ok := pairs[key]
		if !ok {
			id = uint8(len(sample))
			pairs[key] = id
			sample = append(sample, byte(c))
		}
		out.class[c] = id
	}
	out.width = int32(len(sample))
	number := map[[2]int32]int32{}
	var order [][2]int32
	visit := func(p, q int32) int32 {
		if p == none || q == none && !without {
			return none
		}
		key := [2]int32{p, q}
		id, ok := number[key]
		if !ok {
			id = int32(len(order))
			number[key] = id
			order = append(order, key)
		}
		return id
	}
	out.begin = visit(x.begin, y.begin)
	for i := 0; i < len(order); i++ {
		p, q := order[i][0], order[i][1]
		if !b.spend(1, len(sample)) {
			return &terminal{begin: none}
		}
		yes := q != none && y.accepts(q)
		out.accept = append(out.accept, x.accepts(p) && yes != without)
		for _, c := range sample {
			to := none
			if q != none {
				to = y.step(q, c)
			}
			out.next = append(out.next, visit(x.step(p, c), to))
		}
	}
	if out.begin == none {
		return out
	}
	return out.trim()
}

func (t *terminal) classes() *[256]uint8 {
	if t.counted != nil {
		return &t.counted.unit.class
	}
	return &t.class
}

// counted is a JSON string of min to max characters, its quotes included. Its states are
// computed, so that the bounds cost nothing: 0 is before the first quote, countedEnd behind
// the last, and countedBody + c·2^shift + u is in state u of the character after c whole ones.
type counted struct {
	unit     *terminal // one character as it may be written
	shift    uint8     // 2^shift is more than the states of unit
	min, max int32     // max none: no bound
	plain    *terminal // the same without bounds, as a table with the same states
}

// newCounted is the strings of any number of characters.
func newCounted(unit *terminal) *terminal {
	s := &counted{unit: unit, max: none}
	for 1<<s.shift <= len(unit.accept) {
		s.shift++
	}
	t := &terminal{class: unit.class, width: unit.width, shared: true}
	states := int(countedBody) + len(unit.accept)
	t.next, t.accept = make([]int32, states*int(t.width)), make([]bool, states)
	for q := range states {
		for c := range 256 {
			t.next[q*int(t.width)+int(t.class[c])] = s.step(int32(q), byte(c))
		}
	}
	t.accept[countedEnd] = true
	s.plain = t
	return &terminal{counted: s, shared: true}
}

// bounded is the same strings with low to high characters (high none: no bound).
func (s *counted) bounded(low, high int32) *terminal {
	return &terminal{counted: &counted{s.unit, s.shift, low, high, s.plain}, shared: true}
}

// uncounted is a terminal, and a state of it, that no word of at most longest bytes tells from
// state q: a table where q is far from the bounds.
func (s *counted) uncounted(q int32, longest int) (*terminal, int32) {
	if q >= countedBody {
		if c, u := s.at(q); c >= s.min && (s.max == none || int(s.max-c) > longest) {
			return s.plain, countedBody + u
		}
	}
	return &terminal{counted: s}, q
}

// at are the whole characters of state q, and the state of the next one.
func (s *counted) at(q int32) (c, u int32) {
	q -= countedBody
	return q >> s.shift, q & (1<<s.shift - 1)
}

const (
	countedEnd  int32 = 1
	countedBody int32 = 2
	maxCounted        = 10_000_000 // keeps states within 31 bits
)

func (s *counted) step(q int32, b byte) int32 {
	switch {
	case q == 0 && b == '"':
		return countedBody + s.unit.begin
	case q < countedBody:
		return none
	}
	c, u := s.at(q)
	if u == s.unit.begin {
		if b == '"' {
			if c < s.min {
				return none
			}
			return countedEnd
		}
		if c == s.max {
			return none
		}
	}
	u = s.unit.step(u, b)
	if u == none {
		return none
	}
	if s.unit.accept[u] {
		u = s.unit.begin
		if c++; s.max == none {
			c = min(c, s.min)
		}
	}
	return countedBody + c<<s.shift + u
}

// key is equal for states of strings with one unit that no word of at most longest bytes tells
// apart.
func (s *counted) key(q int32, longest int) uint64 {
	c, u := int32(0), int32(len(s.unit.accept)) // before the first quote
	switch {
	case q == countedEnd:
		return 0
	case q >= countedBody:
		c, u = s.at(q)
	}
	l := int32(longest) + 1
	missing, left := min(max(s.min-c, 0), l), l
	if s.max != none {
		left = min(s.max-c, l)
	}
	return uint64(countedBody) + (uint64(missing)*uint64(l+1)+uint64(left))<<s.shift + uint64(u)
}
