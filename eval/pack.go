package eval

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"iter"
	"math"
)

// counts are all of a problem that is counted.
func (p *Problem) counts() [26]*int {
	s, l := &p.sums, &p.looks
	return [...]*int{&p.N, &p.C, &p.Failed, &p.Cancelled, &s.unanswered, &s.unread, &s.undecided, &s.cut, &s.calls,
		&s.callErrors, &s.completion, &s.turns, &s.answered, &s.badTurns, &s.observed, &s.validCalls, &p.rewardN,
		&l.attempts, &l.right, &l.looked, &l.lookedRight, &l.crops, &l.width, &l.height, &l.refused, &l.calls}
}

// write appends a problem, its id first.
func (p *Problem) write(b []byte) []byte {
	text := func(s string) {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	text(p.ID)
	text(p.env)
	for _, n := range p.counts() {
		b = binary.AppendVarint(b, int64(*n))
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
// are its own. Without details texts and attempts are left out.
func (p *Problem) read(b []byte, details bool) {
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
	if p.ID = ""; details {
		p.ID = text()
	} else {
		b = b[uvarint():]
	}
	p.env = text()
	for _, to := range p.counts() {
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
	more := q.counts()
	for i, n := range p.counts() {
		*n += *more[i]
	}
	p.rewardSum += q.rewardSum
	for _, a := range q.Answers {
		p.Answers.add(a.Answer, a.N)
	}
	p.attempts = append(p.attempts, q.attempts...)
}

// Problems are a report's problems, in order. Those of a long evaluation are not in
// memory.
type Problems struct {
	n       int
	records extent
}

// Len is how many there are.
func (l Problems) Len() int { return l.n }

// All goes through them. A problem is valid until the next one. It ends after the
// first error: they cannot be read.
func (l Problems) All() iter.Seq2[*Problem, error] {
	return func(yield func(*Problem, error) bool) {
		err := l.each(true, func(p *Problem) bool { return yield(p, nil) })
		if err != nil {
			yield(nil, err)
		}
	}
}

// each goes through them until do gives false.
func (l Problems) each(details bool, do func(*Problem) bool) error {
	in := bufio.NewReaderSize(l.records.reader(), 64<<10)
	var p Problem
	var b []byte
	for range l.n {
		var err error
		if b, err = readRecord(in, b, 8); err != nil {
			return fmt.Errorf("cannot read the report's problems: %w", err)
		}
		p.maj = math.Float64frombits(binary.LittleEndian.Uint64(b))
		p.read(b[8:], details)
		if !do(&p) {
			return nil
		}
	}
	return nil
}
