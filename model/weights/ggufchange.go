package weights

import (
	"math"
	"strings"

	"agentcli/model/arch"
)

// ggufChange is how the numbers of a tensor differ in a GGUF from ours.
type ggufChange struct {
	rows    []int   // row i there is our row rows[i]; nil: they are in our order
	columns []int   // so are columns
	plus    float32 // is added there
	negExp  bool    // x is −exp(x) there
}

// changeOf is the change of a tensor of a model.
func changeOf(c Config, name string) ggufChange {
	if f, ok := ggufOf(c.Architecture); ok && f.change != nil {
		return f.change(c, name)
	}
	return ggufChange{}
}

// needsFloat32 reports whether undo takes float32 values only; else it takes rows of any type.
func (ch ggufChange) needsFloat32() bool { return ch.columns != nil || ch.plus != 0 || ch.negExp }

// do makes float32 values as a file has them.
func (ch ggufChange) do(b []byte) []byte {
	if ch.plus != 0 {
		b = eachValue(b, func(x float64) float64 { return x + float64(ch.plus) })
	}
	if ch.negExp {
		b = eachValue(b, func(x float64) float64 { return -math.Exp(x) })
	}
	if ch.rows != nil {
		b = rowsOf(b, ch.rows)
	}
	if ch.columns != nil {
		b = columnsOf(b, ch.columns, rowsOf[byte])
	}
	return b
}

// undo is the reverse of do.
func (ch ggufChange) undo(b []byte) []byte {
	if ch.columns != nil {
		b = columnsOf(b, ch.columns, rowsBack[byte])
	}
	if ch.rows != nil {
		b = rowsBack(b, ch.rows)
	}
	if ch.negExp {
		b = eachValue(b, func(x float64) float64 { return math.Log(-x) })
	}
	if ch.plus != 0 {
		b = eachValue(b, func(x float64) float64 { return x - float64(ch.plus) })
	}
	return b
}

// rowsOf puts rows in another order: row i of the result is row from[i].
func rowsOf[T any](b []T, from []int) []T {
	w := len(b) / len(from)
	out := make([]T, 0, len(b))
	for _, i := range from {
		out = append(out, b[i*w:(i+1)*w]...)
	}
	return out
}

// rowsBack is the reverse of rowsOf. Nothing stays nil.
func rowsBack[T any](b []T, from []int) []T {
	if b == nil {
		return nil
	}
	w := len(b) / len(from)
	out := make([]T, len(b))
	for k, i := range from {
		copy(out[i*w:(i+1)*w], b[k*w:])
	}
	return out
}

// columnsOf puts the float32 numbers of each row in another order.
func columnsOf(b []byte, from []int, order func([]byte, []int) []byte) []byte {
	out := make([]byte, 0, len(b))
	for w := 4 * len(from); len(b) >= w; b = b[w:] {
		out = append(out, order(b[:w], from)...)
	}
	return out
}

// eachValue applies a function to float32 values.
func eachValue(b []byte, f func(float64) float64) []byte {
	out := make([]byte, len(b))
	for i := range len(b) / 4 {
		put(out, i, float32(f(float64(math.Float32frombits(le.Uint32(b[4*i:]))))))
	}
	return out
}

// pairedHeads is the change of families whose rotated pairs are neighbours in llama.cpp: within
// a head of q and k it stores the two halves that Hugging Face rotates against each other
// pairwise side by side.
func pairedHeads(c Config, name string) ggufChange {
	a, heads := c.First().Attention, 0
	switch {
	case strings.Contains(name, arch.QProj):
		heads = a.Heads
	case strings.Contains(name, arch.KProj):
		heads = a.KVHeads
	}
	if heads == 0 {
		return ggufChange{}
	}
	rows := make([]int, 0, heads*a.HeadDim)
	for h := range heads {
		for i := range a.HeadDim / 2 {
			rows = append(rows, h*a.HeadDim+i, h*a.HeadDim+a.HeadDim/2+i)
		}
	}
	return ggufChange{rows: rows}
}

// normsPlusOne is the change of families whose norms multiply by one plus their weight.
func normsPlusOne(c Config, name string) ggufChange {
	if strings.HasSuffix(name, "norm.weight") {
		return ggufChange{plus: float32(c.NormOffset)}
	}
	return ggufChange{}
}
