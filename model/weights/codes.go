package weights

import (
	"math"

	"agentcli/internal/codes"
)

// Coded is the type of a tensor of InCodes: its numbers are to be computed from Tensor.Codes.
const Coded DType = "CODES"

// InCodes is a tensor whose numbers are not computed yet, for whoever computes them: it has Codes and no Data. False where
// the file has other numbers or blocks, and where an adapter changes them.
func InCodes(m *Model, name string) (Tensor, bool) {
	if x := m.adapted; x != nil && !x.changes(name) {
		return InCodes(x.base, name)
	}
	source, ok := m.source.(interface {
		codesOf(i TensorInfo) *codes.Matrices
	})
	i, known := m.infos[name]
	if !ok || !known {
		return Tensor{}, false
	}
	c := source.codesOf(i)
	return Tensor{Name: name, DType: Coded, Shape: i.Shape, Codes: c}, c != nil
}

// numbersIn computes the numbers of a tensor in that type: float32, bfloat16 or the one to which they are rounded.
func numbersIn(c *codes.Matrices, d DType) []byte {
	out := make([]byte, int64(c.Count)*int64(c.Rows)*int64(c.Cols)*d.Size())
	if len(out) == 0 {
		return out
	}
	const wide = 16 // stored columns that are transposed together: a line of memory
	high := 1       // stored rows that are made together
	if c.Transposed {
		high = 32
	}
	tiles := (c.Rows + high - 1) / high // of a matrix
	parallel(c.Count*tiles, 1+(1<<16)/(c.Cols*high), func(from, end int) {
		rows, columns := make([]float32, high*c.Cols), make([]float32, wide*high)
		for t := from; t < end; t++ {
			matrix, row := t/tiles, t%tiles*high
			n := min(high, c.Rows-row)
			for i := range n {
				c.Row(matrix*c.Rows+row+i, rows[i*c.Cols:][:c.Cols])
			}
			if !c.Transposed {
				putRounded(out, d, c.Rounding, (matrix*c.Rows+row)*c.Cols, rows)
				continue
			}
			for first := 0; first < c.Cols; first += wide {
				m := min(wide, c.Cols-first)
				for i := range n {
					for j, x := range rows[i*c.Cols+first:][:m] {
						columns[j*high+i] = x
					}
				}
				for j := range m {
					putRounded(out, d, c.Rounding, (matrix*c.Cols+first+j)*c.Rows+row, columns[j*high:][:n])
				}
			}
		}
	})
	return out
}

// putRounded rounds numbers and puts them there.
func putRounded(to []byte, d DType, rounding codes.Rounding, at int, v []float32) {
	switch rounding {
	case codes.ToFloat16:
		for i, x := range v {
			v[i] = roundToHalf(x)
		}
	case codes.ToBFloat16:
		for i, x := range v {
			v[i] = math.Float32frombits(uint32(toBF16(x)) << 16)
		}
	}
	to = to[int64(at)*d.Size():][:int64(len(v))*d.Size()]
	switch d {
	case F32:
		for i, x := range v {
			put(to, i, x)
		}
	case F16:
		for i, x := range v {
			le.PutUint16(to[2*i:], toHalf(x))
		}
	case BF16:
		for i, x := range v {
			le.PutUint16(to[2*i:], toBF16(x))
		}
	}
}
