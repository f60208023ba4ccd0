package trainer

import (
	"encoding/binary"
	"iter"
	"math"

	"agentcli/internal/scratch"
	"agentcli/trainer/episode"
)

// column is a number of each wanted token that is computed once and needed
// again.
type column int

const (
	colOld column = iota
	colRef
	colTeacher
	colValue
	colReward
	colAdv
	colReturn
	numColumns
	noColumn column = -1 // nothing is kept
)

// of is where a stream has the column.
func (c column) of(x *episode.TokenStream) *[]float64 {
	return [...]*[]float64{&x.OldLogprobs, &x.RefLogprobs, &x.TeacherLogprobs, &x.Values, &x.Rewards, &x.Advantages, &x.Returns}[c]
}

// columns are a file of numbers beside a shelf: for each column as many float64
// as its episodes have wanted tokens, in the episodes' order.
type columns struct {
	file *scratch.File
	n    int64 // wanted tokens
	have [numColumns]bool
	from [numColumns]column // where it stands: two may be one
}

func newColumns(n int64) (*columns, error) {
	f, err := newScratch()
	if err != nil {
		return nil, err
	}
	c := &columns{file: f, n: n}
	for i := range c.from {
		c.from[i] = column(i)
	}
	return c, nil
}

func (c *columns) at(k column, e *episode.Episode) int64 {
	return 8 * (int64(c.from[k])*c.n + e.FirstWanted)
}

// write keeps one column of an episode that is at hand. It can be read once all
// episodes have it (has).
func (c *columns) write(k column, e *episode.Episode) error {
	return c.put(k, e, func(yield func(float64) bool) {
		for i := range e.Streams {
			for _, v := range *k.of(&e.Streams[i]) {
				if !yield(v) {
					return
				}
			}
		}
	})
}

// put keeps a column's numbers of an episode: one of each wanted token.
func (c *columns) put(k column, e *episode.Episode, values iter.Seq[float64]) error {
	b, ok := shelfOf(e).read.Get().(*[]byte)
	if !ok {
		b = &[]byte{}
	}
	defer shelfOf(e).read.Put(b)
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
func (c *columns) get(k column, e *episode.Episode) ([]float64, error) {
	p, err := shelfOf(e).bytes(c.file, c.at(k, e), 8*int(e.Counts.Wanted))
	if err != nil {
		return nil, err
	}
	defer shelfOf(e).read.Put(p)
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
			*k.of(&e.Streams[i]), all = all[:n:n], all[n:]
		}
	}
	return nil
}
