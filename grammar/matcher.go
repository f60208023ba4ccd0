package grammar

import (
	"encoding/binary"
	"maps"
	"slices"
)

// Matcher follows one text through a grammar, token after token. It belongs to one goroutine.
type Matcher struct {
	machine *machine
	vocab   *Vocabulary
	own     *maskCache
	now     position
	ended   bool
	nodes   nodeTable
	spare   []position // of walks: the position after each byte
	stepped [2]position
}

// position is all that the text so far can be: ways to go on, and whether it may end here.
type position struct {
	ways     []way
	complete bool
}

// way is a state of a terminal, what comes after the terminal, and what comes after that.
type way struct {
	term  *terminal
	state int32
	next  int32
	cache bool
	below *stack
}

// stack is a set of stacks of the machine's states, shared by all that have the same ones
// below: frames are the states on top, in order, each with what is below it. empty: the
// empty stack is one of the set.
type stack struct {
	frames []frame
	empty  bool
	id     uint32
}

type frame struct {
	state int32
	below *stack
}

// nodeTable makes stacks that are equal the same, so that equal positions stay small.
type nodeTable struct {
	one   map[frame]*stack
	many  map[string]*stack
	after map[frame]*following
	last  uint32
}

// following is the position behind a terminal, by what follows and the stack.
type following struct {
	position
	first *[4]uint64 // the bytes that may be next; nil: not computed
}

// maxNodes is when a table starts again. Older stacks stay good.
const maxNodes = 20_000

var bottom = &stack{empty: true}

func (n *nodeTable) reset() {
	n.one, n.many, n.after = map[frame]*stack{}, map[string]*stack{}, map[frame]*following{}
}

// Matcher starts a text of the grammar with tokens of a vocabulary.
func (g *Grammar) Matcher(v *Vocabulary) *Matcher {
	m := &Matcher{machine: g.machine, vocab: v, own: g.machine.cacheOf(v)}
	m.nodes.reset()
	start := m.after(g.machine.start, bottom)
	m.now = position{slices.Clone(start.ways), start.complete}
	return m
}

// Clone is a matcher that goes on from the same text on its own.
func (m *Matcher) Clone() *Matcher {
	out := &Matcher{machine: m.machine, vocab: m.vocab, own: m.own, ended: m.ended}
	out.now = position{slices.Clone(m.now.ways), m.now.complete}
	out.nodes = nodeTable{maps.Clone(m.nodes.one), maps.Clone(m.nodes.many), maps.Clone(m.nodes.after), m.nodes.last}
	return out
}

// Complete reports whether the text may end here.
func (m *Matcher) Complete() bool { return m.now.complete && !m.ended }

// Stuck reports whether nothing but an end may come, or an end has come.
func (m *Matcher) Stuck() bool { return m.ended || len(m.now.ways) == 0 }

// Accept takes the next token; false: it is not allowed, and nothing has changed.
func (m *Matcher) Accept(id int32) bool {
	switch {
	case m.ended || id < 0 || int(id) >= len(m.vocab.tokens):
		return false
	case m.vocab.isEnd[id]:
		m.ended = m.now.complete
		return m.ended
	case m.vocab.tokens[id] == nil:
		return false
	}
	return m.AcceptBytes(m.vocab.tokens[id])
}

// AcceptBytes takes text that is not a token's; false: it is not allowed, and nothing has changed.
func (m *Matcher) AcceptBytes(text []byte) bool {
	if m.ended {
		return false
	}
	if len(m.nodes.after) > maxNodes || len(m.nodes.one)+len(m.nodes.many) > maxNodes {
		m.nodes.reset()
	}
	from := &m.now
	for i, c := range text {
		to := &m.stepped[i%2]
		m.step(from, c, to)
		if from = to; len(to.ways) == 0 && (!to.complete || i < len(text)-1) {
			return false
		}
	}
	m.now.ways = append(m.now.ways[:0], from.ways...)
	m.now.complete = from.complete
	return true
}

// Fill sets bit i%32 of word i/32 where token i may be next, and clears all others.
func (m *Matcher) Fill(mask []uint32) {
	clear(mask)
	if m.ended {
		return
	}
	full := mask
	if need := (m.vocab.Size() + 31) / 32; len(mask) < need {
		full = make([]uint32, need)
		defer func() { copy(mask, full) }()
	}
	if m.now.complete {
		for _, id := range m.vocab.ends {
			full[id/32] |= 1 << (id % 32)
		}
	}
	for _, w := range m.now.ways {
		cache := m.vocab.masks
		if w.cache {
			cache = m.own
		}
		after := m.after(w.next, w.below)
		tm := cache.get(m.vocab, w.term, w.state, len(after.ways) > 0)
		tm.set(full)
		if len(after.ways) == 0 {
			continue
		}
		if tm.rest != nil {
			m.walk(tm.rest, 0, after, full)
		}
		for _, i := range tm.exits {
			m.walk(&m.vocab.tokenAt, i, after, full)
		}
	}
}

// walk marks the tokens below a node of a trie that go on from a position.
func (m *Matcher) walk(t *trie, root int32, from *following, mask []uint32) {
	if from.first == nil {
		first := firstBytes(from.position)
		from.first = &first
	}
	if m.spare == nil {
		m.spare = make([]position, m.vocab.longest+1)
	}
	base, end := t.nodes[root].depth, t.nodes[root].end
	for i := root + 1; i < end; {
		n := &t.nodes[i]
		at := &from.position
		switch depth := n.depth - base; {
		case depth > 1:
			at = &m.spare[depth-1]
		case from.first[n.char/64]&(1<<(n.char%64)) == 0:
			i = n.end
			continue
		}
		to := &m.spare[n.depth-base]
		m.step(at, n.char, to)
		if len(to.ways) > 0 || to.complete {
			for _, id := range t.at(i) {
				mask[id/32] |= 1 << (id % 32)
			}
		}
		if i++; len(to.ways) == 0 {
			i = n.end
		}
	}
}

// firstBytes are the bytes that may be next.
func firstBytes(p position) (out [4]uint64) {
	for _, w := range p.ways {
		for c := range 256 {
			if w.term.step(w.state, byte(c)) != none {
				out[c/64] |= 1 << (c % 64)
			}
		}
	}
	return out
}

// step takes a byte.
func (m *Matcher) step(from *position, c byte, to *position) {
	to.ways, to.complete = to.ways[:0], false
	for _, w := range from.ways {
		q := w.term.step(w.state, c)
		if q == none {
			continue
		}
		if w.term.accepts(q) {
			after := m.after(w.next, w.below)
			to.complete = to.complete || after.complete
			m.merge(to, after.ways)
			if w.term.ends(q) {
				continue
			}
		}
		w.state = q
		m.add(to, w)
	}
}

func (m *Matcher) merge(to *position, ways []way) {
	if len(to.ways) == 0 {
		to.ways = append(to.ways, ways...)
		return
	}
	for _, w := range ways {
		m.add(to, w)
	}
}

// add puts a way among the others. Two that differ only in their stacks become one.
func (m *Matcher) add(to *position, w way) {
	for i := range to.ways {
		o := &to.ways[i]
		if o.term == w.term && o.state == w.state && o.next == w.next {
			o.below = m.nodes.union(o.below, w.below)
			return
		}
	}
	to.ways = append(to.ways, w)
}

// after is where the text may go on from a state of the machine.
func (m *Matcher) after(s int32, below *stack) *following {
	key := frame{s, below}
	p := m.nodes.after[key]
	if p == nil {
		p = &following{}
		m.enter(&p.position, s, below, map[frame]bool{})
		m.nodes.after[key] = p
	}
	return p
}

// enter follows a state to the terminals that may be next.
func (m *Matcher) enter(p *position, s int32, below *stack, seen map[frame]bool) {
	key := frame{s, below}
	if seen[key] {
		return
	}
	seen[key] = true
	at := &m.machine.states[s]
	switch at.kind {
	case stateOr:
		for _, to := range at.or {
			m.enter(p, to, below, seen)
		}
	case stateTerm:
		m.add(p, way{at.term, at.term.begin, at.next, at.cache, below})
		if at.term.nullable() {
			m.enter(p, at.next, below, seen)
		}
	case stateCall:
		if at.next != popState { // the last call of a rule returns where the rule does
			below = m.nodes.push(at.next, below)
		}
		m.enter(p, at.rule, below, seen)
	case statePop:
		p.complete = p.complete || below.empty
		for _, f := range below.frames {
			m.enter(p, f.state, f.below, seen)
		}
	}
}

func (n *nodeTable) push(s int32, below *stack) *stack {
	key := frame{s, below}
	out := n.one[key]
	if out == nil {
		n.last++
		out = &stack{frames: []frame{key}, id: n.last}
		n.one[key] = out
	}
	return out
}

// union is the set of stacks that are in a or b.
func (n *nodeTable) union(a, b *stack) *stack {
	if a == b {
		return a
	}
	var frames []frame
	for i, j := 0, 0; i < len(a.frames) || j < len(b.frames); {
		switch {
		case j == len(b.frames) || i < len(a.frames) && a.frames[i].state < b.frames[j].state:
			frames = append(frames, a.frames[i])
			i++
		case i == len(a.frames) || b.frames[j].state < a.frames[i].state:
			frames = append(frames, b.frames[j])
			j++
		default:
			frames = append(frames, frame{a.frames[i].state, n.union(a.frames[i].below, b.frames[j].below)})
			i, j = i+1, j+1
		}
	}
	empty := a.empty || b.empty
	if len(frames) == 1 && !empty {
		return n.push(frames[0].state, frames[0].below)
	}
	key := []byte{0}
	if empty {
		key[0] = 1
	}
	for _, f := range frames {
		key = binary.LittleEndian.AppendUint32(key, uint32(f.state))
		key = binary.LittleEndian.AppendUint32(key, f.below.id)
	}
	out := n.many[string(key)]
	if out == nil {
		n.last++
		out = &stack{frames, empty, n.last}
		n.many[string(key)] = out
	}
	return out
}

// Forced are the bytes that must come next whatever is drawn: the only continuation, up to a
// choice, a possible end, or a special token.
func (m *Matcher) Forced() []byte {
	if m.ended {
		return nil
	}
	var out []byte
	at := m.now
	for len(out) < maxForced && !at.complete {
		c, ok := onlyByte(firstBytes(at))
		if !ok || c == specialByte {
			break
		}
		var to position
		m.step(&at, c, &to)
		out = append(out, c)
		at = to
	}
	return out
}

// maxForced bounds Forced, for grammars whose text has no end.
const maxForced = 1 << 12

func onlyByte(set [4]uint64) (byte, bool) {
	found := -1
	for c := range 256 {
		if set[c/64]&(1<<(c%64)) != 0 {
			if found >= 0 {
				return 0, false
			}
			found = c
		}
	}
	return byte(found), found >= 0
}
