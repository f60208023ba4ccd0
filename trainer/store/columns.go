package store

import (
	"encoding/binary"
	"iter"
	"math"

	"agentcli/internal/scratch"
	"agentcli/trainer/episode"
)

// Column is a number of each wanted token that is computed once and needed again.
type Column int

// The columns, in their order in the file.
const (
	OldLogprobs Column = iota
	RefLogprobs
	TeacherLogprobs
	Values
	Rewards
	Advantages
	Returns
	numColumns
)

// table says what each column is called, and where a stream has it.
var table = [numColumns]struct {
	name  string
	field func(*episode.TokenStream) *[]float64
}{
	OldLogprobs:     {"old_logprobs", func(x *episode.TokenStream) *[]float64 { return &x.OldLogprobs }},
	RefLogprobs:     {"ref_logprobs", func(x *episode.TokenStream) *[]float64 { return &x.RefLogprobs }},
	TeacherLogprobs: {"teacher_logprobs", func(x *episode.TokenStream) *[]float64 { return &x.TeacherLogprobs }},
	Values:          {"values", func(x *episode.TokenStream) *[]float64 { return &x.Values }},
	Rewards:         {"rewards", func(x *episode.TokenStream) *[]float64 { return &x.Rewards }},
	Advantages:      {"advantages", func(x *episode.TokenStream) *[]float64 { return &x.Advantages }},
	Returns:         {"returns", func(x *episode.TokenStream) *[]float64 { return &x.Returns }},
}

// Of is where a stream has the column, [wanted tokens].
func (c Column) Of(x *episode.TokenStream) *[]float64 { return table[c].field(x) }

// String is the column's name.
func (c Column) String() string { return table[c].name }

// columns are a file of numbers beside a Spill: for each column as many float64
// as its episodes have wanted tokens, in the episodes' order.
type columns struct {
	file *scratch.File
	n    int64 // wanted tokens
	have [numColumns]bool
	from [numColumns]Column // which column of the file has it: two may share one
}

func newColumns(n int64) (*columns, error) {
	f, err := newScratch()
	if err != nil {
		return nil, err
	}
	c := &columns{file: f, n: n}
	for i := range c.from {
		c.from[i] = Column(i)
	}
	return c, nil
}

func (c *columns) at(k Column, e *episode.Episode) int64 {
	return 8 * (int64(c.from[k])*c.n + e.FirstWanted)
}

// write keeps one column of an episode that is in memory. It can be read once all
// episodes have it: see Complete.
func (c *columns) write(k Column, e *episode.Episode) error {
	return c.put(k, e, func(yield func(float64) bool) {
		for i := range e.Streams {
			for _, v := range *k.Of(&e.Streams[i]) {
				if !yield(v) {
					return
				}
			}
		}
	})
}

// put keeps a column's numbers of an episode: one of each wanted token.
func (c *columns) put(k Column, e *episode.Episode, values iter.Seq[float64]) error {
	b, ok := spillOf(e).read.Get().(*[]byte)
	if !ok {
		b = &[]byte{}
	}
	defer spillOf(e).read.Put(b)
	*b = (*b)[:0]
	for v := range values {
		*b = binary.LittleEndian.AppendUint64(*b, math.Float64bits(v))
	}
	if _, err := c.file.WriteAt(*b, c.at(k, e)); err != nil {
		return scratchError(err)
	}
	return nil
}

// get reads a column's numbers of an episode.
func (c *columns) get(k Column, e *episode.Episode) ([]float64, error) {
	p, err := spillOf(e).bytes(c.file, c.at(k, e), 8*int(e.Counts.Wanted))
	if err != nil {
		return nil, err
	}
	defer spillOf(e).read.Put(p)
	x := make([]float64, e.Counts.Wanted)
	for t := range x {
		x[t] = math.Float64frombits(binary.LittleEndian.Uint64((*p)[8*t:]))
	}
	return x, nil
}

// read fills in the columns that there are.
func (c *columns) read(e *episode.Episode) error {
	for k := range numColumns {
		if !c.have[k] || e.Counts.Wanted == 0 {
			continue
		}
		all, err := c.get(k, e)
		if err != nil {
			return err
		}
		for i := range e.Streams {
			n := len(e.Streams[i].ActionWeight)
			*k.Of(&e.Streams[i]), all = all[:n:n], all[n:]
		}
	}
	return nil
}
