package weights

import (
	"math"
	"os"
	"slices"
)

// Needs is what a model takes in memory, before it is opened.
type Needs struct {
	WeightBytes map[DType]int64 // of all weights in each type to compute in
	// Of keys and values: of one token in each type, and of the model's whole window.
	TokenBytes, WindowBytes map[DType]int64
	StateBytes              map[DType]int64 // of one sequence's recurrent states; 0: the model has none
	FileBytes               int64           // on disk
}

// NeedsOf reckons what a model takes.
func NeedsOf(m *Model) Needs {
	c := m.config
	n := Needs{WeightBytes: map[DType]int64{}, TokenBytes: map[DType]int64{}, WindowBytes: map[DType]int64{}, StateBytes: map[DType]int64{}}
	window := int64(c.MaxPositions)
	for _, d := range []DType{F32, BF16} {
		n.WeightBytes[d] = m.Parameters() * d.Size()
		n.TokenBytes[d] = c.CachedPerToken() * d.Size()
		n.StateBytes[d] = c.StateBytes(d.Size())
		n.WindowBytes[d] = math.MaxInt64
		if n.TokenBytes[d] == 0 || window <= math.MaxInt64/n.TokenBytes[d] {
			n.WindowBytes[d] = n.TokenBytes[d] * window
		}
	}
	files := slices.Clone(m.files)
	slices.Sort(files)
	for _, f := range slices.Compact(files) {
		if st, err := os.Stat(f); err == nil {
			n.FileBytes += st.Size()
		}
	}
	return n
}
