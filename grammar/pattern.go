package grammar

import (
	"encoding/binary"
	"slices"
	"unicode/utf8"
)

// pattern is a regular expression over bytes.
type pattern struct {
	op   patternOp
	lo   byte // of opBytes
	hi   byte
	subs []*pattern
	min  int // of opRepeat
	max  int // none: no bound
	dfa  *terminal
}

type patternOp uint8

const (
	opSeq    patternOp = iota // no subs: the empty word
	opAlt                     // no subs: no word
	opBytes                   // one byte from lo to hi
	opRepeat                  // subs[0], min to max times
	opDFA                     // a word of dfa
)

func seqOf(subs ...*pattern) *pattern { return &pattern{op: opSeq, subs: subs} }
func altOf(subs ...*pattern) *pattern { return &pattern{op: opAlt, subs: subs} }
func bytesOf(lo, hi byte) *pattern    { return &pattern{op: opBytes, lo: lo, hi: hi} }
func dfaOf(t *terminal) *pattern      { return &pattern{op: opDFA, dfa: t} }
func starOf(p *pattern) *pattern      { return repeatOf(p, 0, -1) }
func optionOf(p *pattern) *pattern    { return repeatOf(p, 0, 1) }

func repeatOf(p *pattern, low, high int) *pattern {
	return &pattern{op: opRepeat, subs: []*pattern{p}, min: low, max: high}
}

func textOf(text string) *pattern {
	out := &pattern{op: opSeq}
	for i := range len(text) {
		out.subs = append(out.subs, bytesOf(text[i], text[i]))
	}
	return out
}

// runesOf are the UTF-8 forms of the characters from lo to hi. Surrogates have none.
func runesOf(lo, hi rune) *pattern {
	out := &pattern{op: opAlt}
	for _, part := range [...][2]rune{{0, 0x7f}, {0x80, 0x7ff}, {0x800, 0xd7ff}, {0xe000, 0xffff}, {0x10000, utf8.MaxRune}} {
		a, b := max(lo, part[0]), min(hi, part[1])
		if a <= b {
			out.subs = append(out.subs, sameLength(a, b))
		}
	}
	return out
}

// sameLength are the UTF-8 forms from lo to hi, which have equal lengths. Ranges are split where
// the last bytes do not run over all their values.
func sameLength(lo, hi rune) *pattern {
	for shift := 6; shift <= 18; shift += 6 {
		low := rune(1)<<shift - 1
		if lo&^low == hi&^low {
			break // only the last bytes differ
		}
		if lo&low != 0 {
			return altOf(sameLength(lo, lo|low), sameLength(lo|low+1, hi))
		}
		if hi&low != low {
			return altOf(sameLength(lo, hi&^low-1), sameLength(hi&^low, hi))
		}
	}
	var a, b [utf8.UTFMax]byte
	n := utf8.EncodeRune(a[:], lo)
	utf8.EncodeRune(b[:], hi)
	out := &pattern{op: opSeq}
	for i := range n {
		out.subs = append(out.subs, bytesOf(a[i], b[i]))
	}
	return out
}

// budget bounds what a schema or pattern may cost: its automata's states, and the work to
// make them. All automata of a grammar share one.
type budget struct {
	states int // that are left
	work   int // steps that are left
}

// spend takes states and work; false: there is not enough left, and there will not be.
func (b *budget) spend(states, work int) bool {
	b.states -= states
	b.work -= work
	return b.states >= 0 && b.work >= 0
}

func (b *budget) exhausted() bool { return b.states < 0 || b.work < 0 }

// nfa is a nondeterministic automaton that a pattern is turned into (Thompson).
type nfa struct {
	states []nfaState
	budget *budget
}

type nfaState struct {
	empty []int32   // reached without a byte
	edges []nfaEdge // reached by one
}

type nfaEdge struct {
	lo, hi byte
	to     int32
}

func (a *nfa) add(s nfaState) int32 {
	a.budget.work -= 4
	a.states = append(a.states, s)
	return int32(len(a.states) - 1)
}

// build adds the states of p before next and returns the first one.
func (a *nfa) build(p *pattern, next int32) int32 {
	if a.budget.exhausted() {
		return next
	}
	switch p.op {
	case opSeq:
		for _, sub := range slices.Backward(p.subs) {
			next = a.build(sub, next)
		}
		return next
	case opAlt:
		var to []int32
		for _, sub := range p.subs {
			to = append(to, a.build(sub, next))
		}
		return a.add(nfaState{empty: to})
	case opBytes:
		return a.add(nfaState{edges: []nfaEdge{{p.lo, p.hi, next}}})
	case opDFA:
		return a.embed(p.dfa, next)
	}
	if p.max < 0 {
		loop := a.add(nfaState{})
		first := a.build(p.subs[0], loop)
		a.states[loop].empty = []int32{first, next}
		next = loop
	}
	for range p.max - p.min {
		if a.budget.exhausted() {
			return next
		}
		next = a.add(nfaState{empty: []int32{a.build(p.subs[0], next), next}})
	}
	for range p.min {
		if a.budget.exhausted() {
			return next
		}
		next = a.build(p.subs[0], next)
	}
	return next
}

// embed copies a deterministic automaton.
func (a *nfa) embed(t *terminal, next int32) int32 {
	if t.begin == none {
		return a.add(nfaState{})
	}
	at := int32(len(a.states))
	for q := range int32(len(t.accept)) {
		var s nfaState
		if t.accept[q] {
			s.empty = []int32{next}
		}
		for c := 0; c < 256; {
			to, lo := t.step(q, byte(c)), c
			for c < 256 && t.step(q, byte(c)) == to {
				c++
			}
			if to != none {
				s.edges = append(s.edges, nfaEdge{byte(lo), byte(c - 1), at + to})
			}
		}
		a.budget.work -= len(s.edges)
		a.add(s)
	}
	return at + t.begin
}

// compile makes a pattern deterministic, minimal and trimmed; a budget that is exhausted gives
// a terminal without words.
func (b *budget) compile(p *pattern) *terminal {
	empty := &terminal{begin: none}
	a := &nfa{budget: b}
	end := a.add(nfaState{})
	begin := a.build(p, end)
	if b.exhausted() {
		return empty
	}
	t := a.determinise(begin, end)
	if b.exhausted() {
		return empty
	}
	t = t.trim()
	if len(t.accept) <= maxMinimised {
		t = t.minimise()
	}
	if !b.spend(len(t.accept), 0) {
		return empty
	}
	return t
}

// maxMinimised is the largest automaton that is minimised: each round of it reads the table.
const maxMinimised = 3000

// determinise is the subset construction.
func (a *nfa) determinise(begin, end int32) *terminal {
	t := &terminal{begin: 0}
	starts := [257]bool{0: true}
	for _, s := range a.states {
		for _, e := range s.edges {
			starts[e.lo], starts[int(e.hi)+1] = true, true
		}
	}
	t.width = 0
	for c := range 256 {
		if starts[c] && c > 0 {
			t.width++
		}
		t.class[c] = uint8(t.width)
	}
	t.width++
	seen := make([]int32, len(a.states)) // the number of the closure that has the state
	round := int32(0)
	closure := func(from []int32) []int32 {
		round++
		var out []int32
		todo := from
		for len(todo) > 0 {
			s := todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			if seen[s] == round {
				continue
			}
			seen[s] = round
			if len(a.states[s].edges) > 0 || s == end {
				out = append(out, s)
			}
			todo = append(todo, a.states[s].empty...)
			a.budget.work -= 1 + len(a.states[s].empty)
		}
		slices.Sort(out)
		return out
	}
	number := map[string]int32{}
	var order [][]int32
	var key []byte
	visit := func(set []int32) int32 {
		if len(set) == 0 {
			return none
		}
		key = key[:0]
		for _, s := range set {
			key = binary.LittleEndian.AppendUint32(key, uint32(s))
		}
		id, ok := number[string(key)]
		if !ok {
			id = int32(len(order))
			number[string(key)] = id
			order = append(order, set)
		}
		return id
	}
	visit(closure([]int32{begin}))
	targets := make([][]int32, t.width)
	for i := 0; i < len(order); i++ {
		if a.budget.work -= int(t.width); a.budget.exhausted() || len(order) > a.budget.states {
			a.budget.states = -1
			return t
		}
		for _, s := range order[i] {
			for _, e := range a.states[s].edges {
				for c := t.class[e.lo]; ; c++ {
					targets[c] = append(targets[c], e.to)
					a.budget.work--
					if c == t.class[e.hi] {
						break
					}
				}
			}
		}
		for c, set := range targets {
			to := none
			if len(set) > 0 {
				to = visit(closure(set))
			}
			t.next = append(t.next, to)
			targets[c] = set[:0]
		}
		t.accept = append(t.accept, slices.Contains(order[i], end))
	}
	if len(order) == 0 {
		t.begin = none
	}
	return t
}
