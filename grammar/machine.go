package grammar

import "sync"

// expr is a part of a grammar: a *terminal, a *rule, or one of the types below.
type expr interface {
	// build adds the states of the part before state next, and returns the first one.
	build(b *builder, next int32) int32
}

// rule is a part that may contain itself.
type rule struct{ body expr }

type (
	sequence    []expr // one after the other; none: the empty text
	alternative []expr // one of them; none: no text at all
)

// machine is a push-down automaton. Its states are positions between terminals; the stack has
// the states that come after the rules under way.
type machine struct {
	states []state
	start  int32
	caches sync.Map // *Vocabulary → *maskCache
}

type state struct {
	kind  stateKind
	term  *terminal
	rule  int32   // first state of the rule that is called
	next  int32   // after the terminal or the rule
	or    []int32 // of stateOr
	cache bool    // the terminal's masks are the machine's, not the vocabulary's
}

type stateKind uint8

const (
	stateOr   stateKind = iota // goes on as any of its states
	stateTerm                  // a terminal, then next
	stateCall                  // a rule, then next
	statePop                   // the end of a rule, or of the whole text
)

type builder struct {
	states []state
	rules  map[*rule]int32
	todo   []*rule
	budget *budget
}

// popState is the number of the one state that ends a rule.
const popState int32 = 0

// newMachine compiles a grammar.
func newMachine(root expr, b *budget) (*machine, error) {
	build := &builder{states: []state{{kind: statePop}}, rules: map[*rule]int32{}, budget: b}
	start := root.build(build, popState)
	for len(build.todo) > 0 && !b.exhausted() {
		r := build.todo[0]
		build.todo = build.todo[1:]
		first := r.body.build(build, popState)
		build.states[build.rules[r]].or = []int32{first}
	}
	if b.exhausted() {
		return nil, errTooLarge
	}
	m := &machine{states: build.states, start: start}
	switch {
	case !m.prune():
		return nil, errNoText
	case m.recursesLeft():
		return nil, errLeft
	}
	return m, nil
}

func (b *builder) add(s state) int32 {
	b.budget.spend(1, 1+len(s.or))
	b.states = append(b.states, s)
	return int32(len(b.states) - 1)
}

func (t *terminal) build(b *builder, next int32) int32 {
	if t.begin == none {
		return b.add(state{kind: stateOr})
	}
	return b.add(state{kind: stateTerm, term: t, next: next, cache: !t.shared})
}

func (r *rule) build(b *builder, next int32) int32 {
	first, ok := b.rules[r]
	if !ok {
		first = b.add(state{kind: stateOr})
		b.rules[r] = first
		b.todo = append(b.todo, r)
	}
	return b.add(state{kind: stateCall, rule: first, next: next})
}

func (s sequence) build(b *builder, next int32) int32 {
	for i := len(s) - 1; i >= 0 && !b.budget.exhausted(); i-- {
		next = s[i].build(b, next)
	}
	return next
}

func (a alternative) build(b *builder, next int32) int32 {
	or := make([]int32, 0, len(a))
	for _, e := range a {
		if b.budget.exhausted() {
			break
		}
		or = append(or, e.build(b, next))
	}
	return b.add(state{kind: stateOr, or: or})
}

// prune removes the ways on which no text ends; false: there is no other.
func (m *machine) prune() bool {
	users := make([][]int32, len(m.states)) // the states that wait for one
	for i, s := range m.states {
		switch s.kind {
		case stateOr:
			for _, to := range s.or {
				users[to] = append(users[to], int32(i))
			}
		case stateTerm:
			users[s.next] = append(users[s.next], int32(i))
		case stateCall:
			users[s.next] = append(users[s.next], int32(i))
			users[s.rule] = append(users[s.rule], int32(i))
		}
	}
	good := make([]bool, len(m.states))
	todo := []int32{popState}
	good[popState] = true
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, i := range users[at] {
			s := &m.states[i]
			if !good[i] && (s.kind != stateCall || good[s.next] && good[s.rule]) {
				good[i] = true
				todo = append(todo, i)
			}
		}
	}
	for i := range m.states {
		s := &m.states[i]
		var or []int32
		for _, to := range s.or {
			if good[to] {
				or = append(or, to)
			}
		}
		s.or = or
	}
	return good[m.start]
}

// recursesLeft reports whether a rule comes back to itself before a byte is written. Rules
// write at least one byte, so only the first state of a call matters.
func (m *machine) recursesLeft() bool {
	const open, done = 1, 2
	mark := make([]uint8, len(m.states))
	type step struct {
		state int32
		leave bool
	}
	todo := make([]step, 0, len(m.states))
	for i := range m.states {
		todo = append(todo, step{state: int32(i)})
		for len(todo) > 0 {
			at := todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			s := &m.states[at.state]
			switch {
			case at.leave:
				mark[at.state] = done
				continue
			case mark[at.state] == open:
				return true
			case mark[at.state] == done:
				continue
			}
			mark[at.state] = open
			todo = append(todo, step{at.state, true})
			for _, to := range s.or {
				todo = append(todo, step{state: to})
			}
			switch {
			case s.kind == stateCall:
				todo = append(todo, step{state: s.rule})
			case s.kind == stateTerm && s.term.nullable():
				todo = append(todo, step{state: s.next})
			}
		}
	}
	return false
}

func (m *machine) cacheOf(v *Vocabulary) *maskCache {
	if c, ok := m.caches.Load(v); ok {
		return c.(*maskCache)
	}
	c, _ := m.caches.LoadOrStore(v, newMaskCache())
	return c.(*maskCache)
}
