package weights

import (
	"fmt"
	"slices"

	"agentcli/internal/codes"
	"agentcli/internal/malformed"
)

// mxfp4 is gpt-oss's: blocks [.., rows, groups, 16] of two e2m1 numbers a byte,
// the lower half first, and scales [.., rows, groups], powers of two. The
// tensor is [.., groups·32, rows]: transformers' convert_moe_packed_tensors
// transposes it.
func (p *parts) mxfp4(name, scalesName string) (r recipe, err error) {
	blocks, _ := p.get(name)
	scales, err := p.need(blocks, scalesName)
	if err != nil {
		return r, err
	}
	if err := blocks.dims([]DType{U8}, -1, -1, -1, 16); err != nil {
		return r, err
	}
	experts, rows, groups := blocks.Shape[0], int(blocks.Shape[1]), int(blocks.Shape[2])
	if err := scales.dims([]DType{U8}, experts, int64(rows), int64(groups)); err != nil {
		return r, err
	}
	info := TensorInfo{DType: BF16, Shape: []int64{experts, int64(groups) * 32, int64(rows)}}
	return recipe{info, "MXFP4", blocks, func() *codes.Matrices {
		return &codes.Matrices{Data: blocks.data, Count: int(experts), Rows: rows, Cols: groups * 32, Transposed: true,
			Stride: groups * 16, Bits: 4, Meaning: codes.E2M1, Rounding: codes.ToBFloat16,
			Scales: scales.floats(), Across: groups, High: 1, Wide: 32}
	}}, nil
}

// roundings are those to the types of scales.
var roundings = map[DType]codes.Rounding{F32: codes.ToFloat32, F16: codes.ToFloat16, BF16: codes.ToBFloat16}

// scaled is a matrix of one byte a number, e4m3 or int8, with a scale for all,
// for each row, or for each block: the blocks follow from the scales' shape.
// fp8's scales are named weight_scale_inv, those of compressed-tensors
// weight_scale; the latter may have zero points.
func (p *parts) scaled(module string) (r recipe, err error) {
	w, _ := p.get(module + ".weight")
	if err := w.dims([]DType{F8E4M3, I8}, -1, -1); err != nil {
		return r, err
	}
	scale, ok := p.get(module + ".weight_scale_inv")
	if !ok {
		if scale, err = p.need(w, module+".weight_scale"); err != nil {
			return r, err
		}
	}
	for _, unused := range []string{"input_scale", "activation_scale", "weight_shape", "input_zero_point", "output_scale"} {
		p.get(module + "." + unused) // activations are not quantised here
	}
	rows, cols := w.Shape[0], w.Shape[1]
	g, err := scale.grid(rows, cols)
	if err != nil {
		return r, err
	}
	zeros, hasZeros := p.get(module + ".weight_zero_point")
	if hasZeros {
		if err := zeros.dims([]DType{I8, F8E4M3}, scale.Shape...); err != nil {
			return r, err
		}
	}
	kind := scale.DType
	if kind != F32 && kind != F16 {
		kind = BF16 // as transformers does for scales of one byte, too
	}
	meaning := codes.E4M3
	if w.DType == I8 {
		meaning = codes.Signed
	}
	return recipe{TensorInfo{DType: kind, Shape: w.Shape}, string(w.DType) + " with scales", w, func() *codes.Matrices {
		c := &codes.Matrices{Data: w.data, Count: 1, Rows: int(rows), Cols: int(cols),
			Stride: int(cols), Bits: 8, Meaning: meaning, Rounding: roundings[kind],
			Scales: scale.floats(), Across: g.across, High: g.high, Wide: g.wide}
		if hasZeros {
			c.Zeros = zeros.floats()
		}
		return c
	}}, nil
}

// grid is how a matrix is cut into blocks, each with a scale.
type grid struct {
	across     int // blocks side by side
	high, wide int // rows and columns of a block
}

// grid reads scales of a matrix: one number, one a row, or [blocks down, blocks
// across]. The last block may be smaller where blocks are of 128, as fp8's are.
func (p part) grid(rows, cols int64) (grid, error) {
	if err := p.dims(append(floatTypes, F8E8M0, U8), p.Shape...); err != nil {
		return grid{}, err
	}
	down, across := int64(1), int64(1)
	switch len(p.Shape) {
	case 0:
	case 1:
		down = p.Shape[0]
	case 2:
		down, across = p.Shape[0], p.Shape[1]
	default:
		return grid{}, p.fail(malformed.Mismatch, "its shape %v is no grid over [%d %d]", p.Shape, rows, cols)
	}
	high, ok1 := blockSize(rows, down)
	wide, ok2 := blockSize(cols, across)
	if !ok1 || !ok2 {
		return grid{}, p.fail(malformed.Mismatch, "its shape %v does not divide [%d %d]", p.Shape, rows, cols)
	}
	return grid{int(across), high, wide}, nil
}

// blockSize is the size of a block of which n make the whole. Where they do not
// divide it, they are of 128.
func blockSize(whole, n int64) (int, bool) {
	if n <= 0 || whole <= 0 {
		return 0, false
	}
	if whole%n == 0 {
		return int(whole / n), true
	}
	return 128, (whole+127)/128 == n
}

// bitsOf is how many bits a number has, of which so many lie in 32-bit words.
func bitsOf(numbers, words int64) (uint, bool) {
	for _, bits := range []int64{2, 4, 8} {
		if n := 32 / bits; (numbers+n-1)/n == words {
			return uint(bits), true
		}
	}
	return 0, false
}

func (p part) word(i int) uint32 { return le.Uint32(p.data[4*i:]) }

// packed is compressed-tensors' pack-quantized: weight_packed [rows, words],
// the first number in the lowest bits and half the range added; weight_scale
// [rows, groups]; weight_zero_point packed down the rows; weight_shape; and,
// where columns were put in order, weight_g_idx [columns].
func (p *parts) packed(module string) (r recipe, err error) {
	w, _ := p.get(module + ".weight_packed")
	if err := w.dims([]DType{I32}, -1, -1); err != nil {
		return r, err
	}
	shape, err := p.need(w, module+".weight_shape")
	if err != nil {
		return r, err
	}
	if err := shape.dims([]DType{I64, I32}, 2); err != nil {
		return r, err
	}
	size := int(shape.DType.Size())
	rows, cols := int64(le.Uint32(shape.data)), int64(le.Uint32(shape.data[size:]))
	bits, ok := bitsOf(cols, w.Shape[1])
	if !ok || rows != w.Shape[0] || cols == 0 {
		return r, w.fail(malformed.Mismatch, "its shape %v does not fit weight_shape [%d %d] with 2, 4 or 8 bits", w.Shape, rows, cols)
	}
	scale, err := p.need(w, module+".weight_scale")
	if err != nil {
		return r, err
	}
	g, err := scale.grid(rows, cols)
	if err != nil {
		return r, err
	}
	columns, err := p.columns(module+".weight_g_idx", cols, g.across)
	if err != nil {
		return r, err
	}
	zeros, hasZeros := p.get(module + ".weight_zero_point")
	each := int(32 / bits)
	if hasZeros {
		if err := zeros.dims([]DType{I32}, (rows+int64(each)-1)/int64(each), int64(g.across)); err != nil {
			return r, err
		}
	}
	return recipe{TensorInfo{DType: scale.DType, Shape: []int64{rows, cols}}, fmt.Sprintf("int%d, packed", bits), w, func() *codes.Matrices {
		c := &codes.Matrices{Data: w.data, Count: 1, Rows: int(rows), Cols: int(cols),
			Stride: 4 * int(w.Shape[1]), Bits: int(bits), Rounding: roundings[scale.DType],
			Scales: scale.floats(), Across: g.across, High: g.high, Wide: g.wide, Groups: columns}
		if !hasZeros {
			c.Zeros = slices.Repeat([]float32{float32(int(1) << (bits - 1))}, len(c.Scales))
			return c
		}
		scales := c.Scales // zero points are of each row, though scales may be of several
		c.High, c.Scales, c.Zeros = 1, make([]float32, c.Rows*g.across), make([]float32, c.Rows*g.across)
		for i := range c.Scales {
			row, x := i/g.across, i%g.across
			c.Scales[i] = scales[row/g.high*g.across+x]
			c.Zeros[i] = float32(zeros.code(row/each*g.across+x, row%each, bits))
		}
		return c
	}}, nil
}

// code is one of a word, the first in the lowest bits.
func (p part) code(word, i int, bits uint) uint32 {
	return p.word(word) >> (uint(i) * bits) & (1<<bits - 1)
}

// columns reads the group of each column, where columns were put in order; nil: groups are runs of columns.
func (p *parts) columns(name string, cols int64, groups int) ([]int32, error) {
	x, ok := p.get(name)
	if !ok {
		return nil, nil
	}
	if err := x.dims([]DType{I32, I64}, cols); err != nil {
		return nil, err
	}
	out, size := make([]int32, cols), int(x.DType.Size())
	for i := range out {
		out[i] = int32(le.Uint32(x.data[size*i:]))
		if out[i] == -1 {
			return nil, nil // not set: runs of columns
		}
		if out[i] < 0 || int(out[i]) >= groups {
			return nil, x.fail(malformed.Range, "column %d is of group %d; there are %d", i, out[i], groups)
		}
	}
	return out, nil
}

// gptq is AutoGPTQ's layout, transposed: qweight [in/numbers a word, out],
// qzeros [groups, out/numbers a word], scales [groups, out], g_idx [in]. The
// first format stores zero points less one.
func (p *parts) gptq(module string, q *quantisation) (r recipe, err error) {
	w, _ := p.get(module + ".qweight")
	bits := uint(q.Bits)
	each := int(32 / bits)
	if err := w.dims([]DType{I32}, -1, -1); err != nil {
		return r, err
	}
	in, out := int(w.Shape[0])*each, int(w.Shape[1])
	zeros, scale, err := p.gptqScales(w, module, each)
	if err != nil {
		return r, err
	}
	groups := int(scale.Shape[0])
	wide, ok := blockSize(int64(in), int64(groups))
	if !ok {
		return r, scale.fail(malformed.Mismatch, "%d groups do not divide %d inputs", groups, in)
	}
	columns, err := p.columns(module+".g_idx", int64(in), groups)
	if err != nil {
		return r, err
	}
	more := uint32(1)
	if q.Checkpoint == "gptq_v2" {
		more = 0
	}
	info := TensorInfo{DType: scale.DType, Shape: []int64{int64(out), int64(in)}}
	return recipe{info, fmt.Sprintf("GPTQ int%d", bits), w, func() *codes.Matrices {
		c := &codes.Matrices{Data: w.data, Count: 1, Rows: in, Cols: out, Transposed: true,
			Stride: 4 * out, Bits: q.Bits, Order: codes.Down, Rounding: roundings[scale.DType],
			Scales: scale.floats(), Zeros: make([]float32, groups*out), Across: out, High: wide, Wide: 1, Groups: columns}
		for i := range c.Zeros {
			c.Zeros[i] = float32((zeros.code(i/each, i%each, bits) + more) & (1<<bits - 1))
		}
		return c
	}}, nil
}

// gptqScales are the zero points and scales of GPTQ and AWQ.
func (p *parts) gptqScales(w part, module string, each int) (zeros, scale part, err error) {
	if scale, err = p.need(w, module+".scales"); err != nil {
		return
	}
	out := w.Shape[1]
	if len(scale.Shape) == 2 && scale.Shape[1] != out { // AWQ packs outputs
		out *= int64(each)
	}
	if err = scale.dims(floatTypes, -1, out); err != nil {
		return
	}
	if zeros, err = p.need(w, module+".qzeros"); err != nil {
		return
	}
	if out%int64(each) != 0 {
		return zeros, scale, w.fail(malformed.Mismatch, "%d outputs do not fill words of %d", out, each)
	}
	return zeros, scale, zeros.dims([]DType{I32}, scale.Shape[0], out/int64(each))
}

// awq is AutoAWQ's gemm layout, transposed: qweight [in, out/8], qzeros [groups,
// out/8], scales [groups, out].
func (p *parts) awq(module string) (r recipe, err error) {
	w, _ := p.get(module + ".qweight")
	if err := w.dims([]DType{I32}, -1, -1); err != nil {
		return r, err
	}
	in, words := int(w.Shape[0]), int(w.Shape[1])
	zeros, scale, err := p.gptqScales(w, module, 8)
	if err != nil {
		return r, err
	}
	out := words * 8
	if scale.Shape[1] != int64(out) {
		return r, scale.fail(malformed.Mismatch, "its shape is %v, want %d outputs", scale.Shape, out)
	}
	groups := int(scale.Shape[0])
	wide, ok := blockSize(int64(in), int64(groups))
	if !ok {
		return r, scale.fail(malformed.Mismatch, "%d groups do not divide %d inputs", groups, in)
	}
	return recipe{TensorInfo{DType: scale.DType, Shape: []int64{int64(out), int64(in)}}, "AWQ int4", w, func() *codes.Matrices {
		c := &codes.Matrices{Data: w.data, Count: 1, Rows: in, Cols: out, Transposed: true,
			Stride: 4 * words, Bits: 4, Order: codes.Interleaved, Rounding: roundings[scale.DType],
			Scales: scale.floats(), Zeros: make([]float32, groups*out), Across: out, High: wide, Wide: 1}
		for i := range c.Zeros {
			c.Zeros[i] = float32(zeros.code(i/8, int(codes.Interleave[i%8]), 4))
		}
		return c
	}}, nil
}
