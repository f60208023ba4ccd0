package weights

import "agentcli/model/gguf"

// Stored is a matrix as its file has it: number j of row i is
//
//	Scale[i, j/Group]·Q[i, j] + Least[i, j/Group]
//
// in float32, where Q is a whole number.
type Stored struct {
	Rows, Cols, Group int
	Bits              int // 4: all of Q is 0 to 15; else 8
	Q                 []int8
	Scale, Least      []float32 // Least is nil where it is 0
}

// storedBlock takes a block of a GGUF apart: its whole numbers, and a scale and a least value for
// each group of them.
type storedBlock struct {
	group, bits int
	least       bool
	f           func(q []int8, scale, least []float32, src []byte)
}

var storedBlocks = map[gguf.TensorType]storedBlock{
	gguf.Q8_0: {32, 8, false, func(q []int8, s, _ []float32, b []byte) {
		s[0] = f16(b)
		for i, x := range b[2:34] {
			q[i] = int8(x)
		}
	}},
	gguf.Q4_0: {32, 4, true, func(q []int8, s, m []float32, b []byte) {
		s[0] = f16(b)
		m[0] = -8 * s[0]
		halvesOf(q, b[2:18])
	}},
	gguf.Q4_1: {32, 4, true, func(q []int8, s, m []float32, b []byte) {
		s[0], m[0] = f16(b), f16(b[2:])
		halvesOf(q, b[4:20])
	}},
	gguf.Q4_K: {32, 4, true, func(q []int8, s, m []float32, b []byte) {
		d, dm := f16(b), f16(b[2:])
		sc, mn := scaleMin(b[4:16])
		for g := range 8 {
			s[g], m[g] = d*float32(sc[g]), -(dm * float32(mn[g]))
			for i, x := range b[16+g/2*32 : 48+g/2*32] {
				q[32*g+i] = int8(x >> (g % 2 * 4) & 15)
			}
		}
	}},
	gguf.Q5_K: {32, 8, true, func(q []int8, s, m []float32, b []byte) {
		d, dm := f16(b), f16(b[2:])
		sc, mn := scaleMin(b[4:16])
		for g := range 8 {
			s[g], m[g] = d*float32(sc[g]), -(dm * float32(mn[g]))
			for i, x := range b[48+g/2*32 : 80+g/2*32] {
				q[32*g+i] = int8(x>>(g%2*4)&15 | b[16+i]>>g&1<<4)
			}
		}
	}},
	gguf.Q6_K: {16, 8, false, func(q []int8, s, _ []float32, b []byte) {
		low, high, sc, d := b[:128], b[128:192], b[192:208], f16(b[208:])
		for g := range 16 {
			s[g] = d * float32(int8(sc[g]))
		}
		for p := range 256 {
			half, k := p/128, p%128
			x := low[half*64+k%64]>>(k/64*4)&15 | high[half*32+k%32]>>(k/32*2)&3<<4
			q[p] = int8(x) - 32
		}
	}},
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
	s := &Stored{Rows: int(i.Shape[0]), Cols: int(i.Shape[1]), Group: form.group, Bits: form.bits}
	d := decoders[t.Type]
	groups := d.values / form.group
	n := s.Rows * s.Cols / d.values
	s.Q, s.Scale, s.Least = make([]int8, s.Rows*s.Cols), make([]float32, n*groups), make([]float32, n*groups)
	parallel(n, 1+(1<<16)/d.values, func(from, to int) {
		for b := from; b < to; b++ {
			form.f(s.Q[b*d.values:][:d.values], s.Scale[b*groups:][:groups], s.Least[b*groups:][:groups], raw[b*d.bytes:][:d.bytes])
		}
	})
	if change.rows != nil {
		s.Q, s.Scale, s.Least = rowsBack(s.Q, change.rows), rowsBack(s.Scale, change.rows), rowsBack(s.Least, change.rows)
	}
	if !form.least {
		s.Least = nil
	}
	return s, true
}
