package store

import (
	"encoding/binary"
	"math"

	"agentcli/trainer/episode"
	"agentcli/traj"
)

// How a body is written in a Spill: whole numbers as uvarints, reals as they are
// in memory, little endian; texts by their number in the Spill's list; ids in 2
// bytes where they all fit, else in 4; the mask as the lengths of its runs, and
// log-probs where there can be any. Nothing is lost, down to the bits.

// Which tokens of a sequence have a log-prob written down.
const (
	logprobsNone    = iota // all are NaN
	logprobsSampled        // the others are NaN
	logprobsAll
)

func appendBody(b []byte, e *episode.Body, number func(string) int) []byte {
	b = appendInts(b, number(e.Role), number(string(e.Termination)), e.Turns, e.ToolCalls, e.ToolErrors,
		e.Malformed+1, e.Prompt, e.Sampled, e.LastRound+1, len(e.Parts))
	for _, p := range e.Parts {
		b = appendReals(appendInts(b, number(p.Name)), p.Value)
	}
	b = appendInts(b, len(e.StepRewards))
	for _, r := range e.StepRewards {
		b = appendReals(appendInts(b, r.Sequence, r.Token), r.Reward)
	}
	b = appendInts(b, number(e.Question), number(e.Demonstration))
	b = appendInts(b, len(e.Sequences))
	for i := range e.Sequences {
		b = appendSequence(b, &e.Sequences[i])
	}
	for i := range e.Sequences { // of a sequence without weights there are none
		b = appendRuns(b, e.Sequences[i].Weights)
		b = appendExperts(b, e.Sequences[i].Experts)
	}
	b = appendInts(b, map[bool]int{true: 1}[e.OwnLoss])
	b = appendInts(b, len(e.Content))
	for _, c := range e.Content {
		b = appendMask(appendInts(b, len(c)), c)
	}
	b = appendInts(b, len(e.Marks))
	for _, y := range e.Marks {
		b = appendReals(appendInts(b, len(y)), y...)
	}
	return appendImages(b, e, number)
}

func appendExperts(b []byte, e *traj.Experts) []byte {
	if e.Tokens() == 0 {
		return appendInts(b, 0)
	}
	b = appendInts(b, e.Tokens(), e.Layers, e.Active)
	return append(b, e.IDs.Bytes()...)
}

// appendImages writes all of images and their spans but the files.
func appendImages(b []byte, e *episode.Body, number func(string) int) []byte {
	b = appendInts(b, len(e.Images))
	for i := range e.Images {
		im := &e.Images[i]
		b = appendInts(b, number(im.Hash), number(im.Path), im.Width, im.Height)
		if im.Crop == nil {
			b = appendInts(b, 0)
			continue
		}
		b = appendInts(appendInts(b, 1, number(im.Crop.Source)), im.Crop.Box[:]...)
	}
	if len(e.Images) == 0 {
		return b
	}
	for i := range e.Sequences {
		b = appendInts(b, len(e.Sequences[i].Images))
		for _, s := range e.Sequences[i].Images {
			b = appendInts(b, s.Image, s.Start, s.Tokens, s.Grid[0], s.Grid[1], s.Grid[2])
		}
	}
	return b
}

func appendInts(b []byte, values ...int) []byte {
	for _, v := range values {
		b = binary.AppendUvarint(b, uint64(v))
	}
	return b
}

func appendReals(b []byte, values ...float64) []byte {
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
	}
	return b
}

// appendRuns writes numbers of which neighbours are mostly equal.
func appendRuns(b []byte, x []float64) []byte {
	b = appendInts(b, len(x))
	for i := 0; i < len(x); {
		j := i + 1
		for j < len(x) && math.Float64bits(x[j]) == math.Float64bits(x[i]) {
			j++
		}
		b = appendReals(appendInts(b, j-i), x[i])
		i = j
	}
	return b
}

// appendMask writes the lengths of a mask's runs, the first one of false.
func appendMask(b []byte, mask []bool) []byte {
	for t, is := 0, false; t < len(mask); is = !is {
		end := t
		for end < len(mask) && mask[end] == is {
			end++
		}
		b = appendInts(b, end-t)
		t = end
	}
	return b
}

func appendSequence(b []byte, s *traj.Sequence) []byte {
	n, wide, kind := len(s.TokenIDs), 0, logprobsNone
	for t, id := range s.TokenIDs {
		if uint32(id) > math.MaxUint16 {
			wide = 1
		}
		if lp := s.Logprobs[t]; lp == lp { // it is no NaN
			if s.LossMask[t] {
				kind = max(kind, logprobsSampled)
			} else {
				kind = logprobsAll
			}
		}
	}
	b = appendInts(b, n, wide, kind)
	b = appendMask(b, s.LossMask)
	for _, id := range s.TokenIDs {
		if wide == 1 {
			b = binary.LittleEndian.AppendUint32(b, uint32(id))
		} else {
			b = binary.LittleEndian.AppendUint16(b, uint16(id))
		}
	}
	for t, lp := range s.Logprobs {
		if kind == logprobsAll || (kind == logprobsSampled && s.LossMask[t]) {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(lp)))
		}
	}
	return b
}

// decoder reads what appendBody wrote.
type decoder []byte

func (p *decoder) int() int {
	v, n := binary.Uvarint(*p)
	*p = (*p)[n:]
	return int(v)
}

func (p *decoder) real() float64 {
	v := math.Float64frombits(binary.LittleEndian.Uint64(*p))
	*p = (*p)[8:]
	return v
}

func readBody(p decoder, names []string) *episode.Body {
	e := &episode.Body{Role: names[p.int()], Termination: traj.Termination(names[p.int()]), Turns: p.int(),
		ToolCalls: p.int(), ToolErrors: p.int(), Malformed: p.int() - 1,
		Prompt: p.int(), Sampled: p.int(), LastRound: p.int() - 1}
	for range p.int() {
		e.Parts = append(e.Parts, traj.Part{Name: names[p.int()], Value: p.real()})
	}
	for range p.int() {
		e.StepRewards = append(e.StepRewards, episode.StepReward{Sequence: p.int(), Token: p.int(), Reward: p.real()})
	}
	e.Question, e.Demonstration = names[p.int()], names[p.int()]
	e.Sequences = make([]traj.Sequence, p.int())
	for i := range e.Sequences {
		e.Sequences[i] = p.sequence()
	}
	for i := range e.Sequences {
		e.Sequences[i].Weights = p.runs()
		e.Sequences[i].Experts = p.experts()
	}
	e.OwnLoss = p.int() == 1
	for range p.int() {
		e.Content = append(e.Content, p.mask(p.int()))
	}
	for range p.int() {
		y := make([]float64, p.int())
		for i := range y {
			y[i] = p.real()
		}
		e.Marks = append(e.Marks, y)
	}
	p.images(e, names)
	return e
}

func (p *decoder) experts() *traj.Experts {
	tokens := p.int()
	if tokens == 0 {
		return nil
	}
	e := &traj.Experts{Layers: p.int(), Active: p.int()}
	n := 2 * tokens * e.Layers * e.Active
	e.IDs, _ = traj.ExpertIDsOf((*p)[:n]) // an even number of bytes, of our own making
	*p = (*p)[n:]
	return e
}

func (p *decoder) images(e *episode.Body, names []string) {
	e.Images = make([]episode.Image, p.int())
	if len(e.Images) == 0 {
		e.Images = nil
		return
	}
	for i := range e.Images {
		im := &e.Images[i].Image
		im.Hash, im.Path, im.Width, im.Height = names[p.int()], names[p.int()], p.int(), p.int()
		if p.int() == 1 {
			im.Crop = &traj.Crop{Source: names[p.int()], Box: [4]int{p.int(), p.int(), p.int(), p.int()}}
		}
	}
	for i := range e.Sequences {
		for range p.int() {
			e.Sequences[i].Images = append(e.Sequences[i].Images,
				traj.ImageSpan{Image: p.int(), Start: p.int(), Tokens: p.int(), Grid: [3]int{p.int(), p.int(), p.int()}})
		}
	}
}

func (p *decoder) runs() []float64 {
	n := p.int()
	if n == 0 {
		return nil
	}
	x := make([]float64, n)
	for i := 0; i < len(x); {
		n, v := p.int(), p.real()
		for range n {
			x[i] = v
			i++
		}
	}
	return x
}

func (p *decoder) mask(n int) []bool {
	m := make([]bool, n)
	for t, is := 0, false; t < n; is = !is {
		for range p.int() {
			m[t] = is
			t++
		}
	}
	return m
}

func (p *decoder) sequence() traj.Sequence {
	n, wide, kind := p.int(), p.int(), p.int()
	s := traj.Sequence{TokenIDs: make([]int32, n), LossMask: p.mask(n), Logprobs: make([]traj.Logprob, n)}
	b := *p
	if wide == 1 {
		for t := range s.TokenIDs {
			s.TokenIDs[t] = int32(binary.LittleEndian.Uint32(b[4*t:]))
		}
		b = b[4*n:]
	} else {
		for t := range s.TokenIDs {
			s.TokenIDs[t] = int32(binary.LittleEndian.Uint16(b[2*t:]))
		}
		b = b[2*n:]
	}
	none := traj.NoLogprob()
	for t := range s.Logprobs {
		if kind == logprobsAll || (kind == logprobsSampled && s.LossMask[t]) {
			s.Logprobs[t] = traj.Logprob(math.Float32frombits(binary.LittleEndian.Uint32(b)))
			b = b[4:]
		} else {
			s.Logprobs[t] = none
		}
	}
	*p = b
	return s
}
