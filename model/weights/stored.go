package weights

import (
	"slices"

	"agentcli/model/gguf"
)

// Stored is a matrix as its file has it: number j of row i is
//
//	Scale[i, j/Block]·Factor[i, j/Group]·Q[i, j] + Least[i, j/Block]·LeastFactor[i, j/Group]
//
// in float32. Scale and Least are float16, Q and the factors are whole numbers.
type Stored struct {
	Rows, Cols, Group, Block int
	Bits                     int // 4: all of Q is 0 to 15; else 8
	Q                        []int8
	Scale, Least             []uint16 // Least is nil where it is 0
	Factor, LeastFactor      []int8   // nil where they are 1
}

// part is the numbers of the blocks from..to-1.
func (s *Stored) part(from, to int) Stored {
	groups := s.Block / s.Group
	p := Stored{Q: s.Q[from*s.Block : to*s.Block], Scale: s.Scale[from:to]}
	if s.Least != nil {
		p.Least = s.Least[from:to]
	}
	if s.Factor != nil {
		p.Factor = s.Factor[from*groups : to*groups]
	}
	if s.LeastFactor != nil {
		p.LeastFactor = s.LeastFactor[from*groups : to*groups]
	}
	return p
}

// storedBlock takes a block of a GGUF apart.
type storedBlock struct {
	group, bits    int
	least, factors bool
	f              func(to Stored, src []byte)
}

var storedBlocks = map[gguf.TensorType]storedBlock{
	gguf.Q8_0: {32, 8, false, false, func(to Stored, b []byte) {
		to.Scale[0] = le.Uint16(b)
		for i, x := range b[2:34] {
			to.Q[i] = int8(x)
		}
	}},
	gguf.Q4_0: {32, 4, true, false, func(to Stored, b []byte) {
		to.Scale[0], to.Least[0] = le.Uint16(b), toHalf(-8*f16(b))
		halvesOf(to.Q, b[2:18])
	}},
	gguf.Q4_1: {32, 4, true, false, func(to Stored, b []byte) {
		to.Scale[0], to.Least[0] = le.Uint16(b), le.Uint16(b[2:])
		halvesOf(to.Q, b[4:20])
	}},
	gguf.Q4_K: {32, 4, true, true, func(to Stored, b []byte) {
		scalesOfK(to, b)
		for g := range 8 {
			for i, x := range b[16+g/2*32 : 48+g/2*32] {
				to.Q[32*g+i] = int8(x >> (g % 2 * 4) & 15)
			}
		}
	}},
	gguf.Q5_K: {32, 8, true, true, func(to Stored, b []byte) {
		scalesOfK(to, b)
		for g := range 8 {
			for i, x := range b[48+g/2*32 : 80+g/2*32] {
				to.Q[32*g+i] = int8(x>>(g%2*4)&15 | b[16+i]>>g&1<<4)
			}
		}
	}},
	gguf.Q6_K: {16, 8, false, true, func(to Stored, b []byte) {
		low, high := b[:128], b[128:192]
		for g, x := range b[192:208] {
			to.Factor[g] = int8(x)
		}
		to.Scale[0] = le.Uint16(b[208:])
		for p := range 256 {
			half, k := p/128, p%128
			x := low[half*64+k%64]>>(k/64*4)&15 | high[half*32+k%32]>>(k/32*2)&3<<4
			to.Q[p] = int8(x) - 32
		}
	}},
}

// scalesOfK are the scales of a block of Q4_K or Q5_K, whose least values have their sign changed.
func scalesOfK(to Stored, b []byte) {
	const sign = 1 << 15
	to.Scale[0], to.Least[0] = le.Uint16(b), le.Uint16(b[2:])^sign
	scales, least := scaleMin(b[4:16])
	for g := range 8 {
		to.Factor[g], to.LeastFactor[g] = int8(scales[g]), int8(least[g])
	}
}

// halvesOf are the low halves of bytes, then the high ones.
func halvesOf(q []int8, b []byte) {
	for i, x := range b {
		q[i], q[i+len(b)] = int8(x&15), int8(x>>4)
	}
}

// StoredMatrix is a matrix as a GGUF has it in Q8_0, Q4_0, Q4_1, Q4_K, Q5_K or Q6_K; false for others.
func StoredMatrix(m *Model, name string) (*Stored, bool) {
	g, ok := m.source.(*ggufTensors)
	i, known := m.infos[name]
	if !ok || !known || len(i.Shape) != 2 {
		return nil, false
	}
	change := changeOf(g.config, name)
	if change.plus != 0 || change.columns != nil || change.negExp {
		return nil, false
	}
	part := g.names[name]
	t, ok := g.file.Lookup(part.name)
	form, can := storedBlocks[t.Type]
	if !ok || !can {
		return nil, false
	}
	raw := g.mapped(name)
	d := decoders[t.Type]
	s := newStored(int(i.Shape[0]), int(i.Shape[1]), d.values, form)
	parallel(len(s.Scale), 1+(1<<16)/d.values, func(from, to int) {
		for b := from; b < to; b++ {
			form.f(s.part(b, b+1), raw[b*d.bytes:][:d.bytes])
		}
	})
	if t.Type == gguf.Q4_0 && slices.ContainsFunc(s.Least, func(h uint16) bool { return h&infinite == infinite }) {
		return nil, false // eight times a scale is no float16
	}
	if change.rows != nil {
		s.Q, s.Scale, s.Least = rowsBack(s.Q, change.rows), rowsBack(s.Scale, change.rows), rowsBack(s.Least, change.rows)
		s.Factor, s.LeastFactor = rowsBack(s.Factor, change.rows), rowsBack(s.LeastFactor, change.rows)
	}
	return s, true
}

// InBlocks is a matrix in the blocks of its GGUF, for whoever computes the numbers: its rows are in our order,
// and DType is the file's name for the type, which is none of numbers. False where the format has other numbers
// than the model, and where an adapter changes them.
func InBlocks(m *Model, name string) (Tensor, bool) {
	if x := m.adapted; x != nil && !x.changes(name) {
		return InBlocks(x.base, name)
	}
	g, ok := m.source.(*ggufTensors)
	i, known := m.infos[name]
	if !ok || !known || len(i.Shape) != 2 {
		return Tensor{}, false
	}
	part, change := g.names[name], changeOf(g.config, name)
	t, ok := g.file.Lookup(part.name)
	if _, can := storedBlocks[t.Type]; !ok || !can || part.clamped != nil || change.needsFloat32() {
		return Tensor{}, false
	}
	return Tensor{Name: name, DType: DType(t.Type.String()), Shape: i.Shape, Data: change.undo(g.mapped(name))}, true
}

const infinite = 0x7c00 // the exponent of a float16 that is infinite or not a number

// newStored is a matrix of zeros in blocks of so many numbers.
func newStored(rows, cols, block int, form storedBlock) *Stored {
	s := &Stored{Rows: rows, Cols: cols, Group: form.group, Block: block, Bits: form.bits, Q: make([]int8, rows*cols)}
	s.Scale = make([]uint16, len(s.Q)/block)
	if form.least {
		s.Least = make([]uint16, len(s.Scale))
	}
	if form.factors {
		s.Factor = make([]int8, len(s.Q)/form.group)
	}
	if form.factors && form.least {
		s.LeastFactor = make([]int8, len(s.Factor))
	}
	return s
}
