package eval

import (
	"encoding/binary"
	"iter"
	"math"
	"slices"
)

// packed holds problems of which no further attempt is expected, one after the
// other, in some fifty bytes each: structs with strings and slices of their own take
// six times that, and the collector goes through them again and again.
type packed struct{ chunks [][]byte }

// chunkSize is how much is set aside at a time: nothing is ever copied to grow.
const chunkSize = 256 << 10

// add keeps a problem. A record is its length, then what write made.
func (k *packed) add(p *Problem, scratch []byte) []byte {
	scratch = p.write(scratch[:0])
	need := len(scratch) + binary.MaxVarintLen64
	last := len(k.chunks) - 1
	if last < 0 || cap(k.chunks[last])-len(k.chunks[last]) < need {
		k.chunks = append(k.chunks, make([]byte, 0, max(chunkSize, need)))
		last++
	}
	c := binary.AppendUvarint(k.chunks[last], uint64(len(scratch)))
	k.chunks[last] = append(c, scratch...)
	return scratch
}

// records gives each record as it was written, in the order of add.
func (k *packed) records() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for _, c := range k.chunks {
			for len(c) > 0 {
				n, w := binary.Uvarint(c)
				if !yield(c[w : w+int(n)]) {
					return
				}
				c = c[w+int(n):]
			}
		}
	}
}

// write appends a problem, its id first.
func (p *Problem) write(b []byte) []byte {
	text := func(s string) {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	text(p.ID)
	s := &p.sums
	for _, n := range [...]int{p.N, p.C, p.Failed, p.Cancelled, s.unanswered, s.cut, s.calls, s.callErrors, s.completion, s.turns, p.rewardN} {
		b = binary.AppendVarint(b, int64(n))
	}
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(p.rewardSum))
	b = binary.AppendUvarint(b, uint64(len(p.Answers)))
	for _, a := range p.Answers {
		text(a.Answer)
		b = binary.AppendVarint(b, int64(a.N))
	}
	b = binary.AppendUvarint(b, uint64(len(p.attempts)))
	for _, g := range p.attempts {
		b = binary.AppendVarint(b, int64(g.attempt))
		b = append(b, bit(g.none)|bit(g.correct)<<1)
		text(g.answer)
	}
	return b
}

func bit(v bool) byte {
	if v {
		return 1
	}
	return 0
}

// recordID is the id of a problem as write has it.
func recordID(b []byte) []byte {
	n, w := binary.Uvarint(b)
	return b[w : w+int(n)]
}

// read is what write wrote. Its slices are used again by the next read; its strings
// are its own. Without details answers and attempts are left out.
func (p *Problem) read(b []byte, id string, details bool) {
	uvarint := func() int {
		n, w := binary.Uvarint(b)
		b = b[w:]
		return int(n)
	}
	varint := func() int {
		n, w := binary.Varint(b)
		b = b[w:]
		return int(n)
	}
	text := func() string {
		n := uvarint()
		s := string(b[:n])
		b = b[n:]
		return s
	}
	n := uvarint()
	b = b[n:]
	p.ID = id
	s := &p.sums
	for _, to := range [...]*int{&p.N, &p.C, &p.Failed, &p.Cancelled, &s.unanswered, &s.cut, &s.calls, &s.callErrors, &s.completion, &s.turns, &p.rewardN} {
		*to = varint()
	}
	p.rewardSum = math.Float64frombits(binary.LittleEndian.Uint64(b))
	b = b[8:]
	p.Answers, p.attempts = p.Answers[:0], p.attempts[:0]
	if !details {
		return
	}
	for range uvarint() {
		p.Answers = append(p.Answers, answer{text(), varint()})
	}
	for range uvarint() {
		g := graded{attempt: varint()}
		g.none, g.correct = b[0]&1 != 0, b[0]&2 != 0
		b = b[1:]
		g.answer = text()
		p.attempts = append(p.attempts, g)
	}
}

// merge takes in what came of the same problem later: of a run that is resumed with
// fewer samples than it had there are more attempts than are expected.
func (p *Problem) merge(q *Problem) {
	p.N, p.C, p.Failed, p.Cancelled = p.N+q.N, p.C+q.C, p.Failed+q.Failed, p.Cancelled+q.Cancelled
	p.sums = sums{p.sums.unanswered + q.sums.unanswered, p.sums.cut + q.sums.cut, p.sums.calls + q.sums.calls,
		p.sums.callErrors + q.sums.callErrors, p.sums.completion + q.sums.completion, p.sums.turns + q.sums.turns}
	p.rewardSum, p.rewardN = p.rewardSum+q.rewardSum, p.rewardN+q.rewardN
	for _, a := range q.Answers {
		p.Answers.add(a.Answer, a.N)
	}
	p.attempts = append(p.attempts, q.attempts...)
}

// Problems are a report's problems, in order.
type Problems struct{ list []listed }

// listed is one of them: its id, and where it is packed.
type listed struct {
	id     string
	record []byte
}

// Len is how many there are.
func (l Problems) Len() int { return len(l.list) }

// All goes through them. A problem is valid until the next one.
func (l Problems) All() iter.Seq[*Problem] { return l.each(true) }

func (l Problems) each(details bool) iter.Seq[*Problem] {
	return func(yield func(*Problem) bool) {
		var p Problem
		for _, x := range l.list {
			p.read(x.record, x.id, details)
			if !yield(&p) {
				return
			}
		}
	}
}

// problems are the packed ones and those that attempts are still expected of.
func (y *Tally) problems() Problems {
	var open packed
	var scratch []byte
	for _, p := range y.open {
		scratch = open.add(p, scratch)
	}
	list := make([]listed, 0, y.closed+len(y.open))
	for _, k := range []*packed{&y.done, &open} {
		for b := range k.records() {
			list = append(list, listed{string(recordID(b)), b})
		}
	}
	// Of the same problem what came first is first.
	slices.SortStableFunc(list, func(a, b listed) int {
		switch {
		case naturalLess(a.id, b.id):
			return -1
		case naturalLess(b.id, a.id):
			return 1
		}
		return 0
	})
	out := list[:0]
	for i := 0; i < len(list); {
		j := i + 1
		for j < len(list) && list[j].id == list[i].id {
			j++
		}
		x := list[i]
		if j > i+1 {
			var p, q Problem
			p.read(x.record, x.id, true)
			for _, more := range list[i+1 : j] {
				q.read(more.record, more.id, true)
				p.merge(&q)
			}
			x.record = p.write(nil)
		}
		out = append(out, x)
		i = j
	}
	return Problems{out}
}
