package weights

import (
	"fmt"
	"math"
	mathbits "math/bits"

	"agentcli/internal/malformed"
)

// e2m1 is every number of four bits: with a zero below zero, as transformers has
// it.
var e2m1 = func() (t [16]float32) {
	for i, v := range fp4Values {
		t[i] = v / 2
	}
	t[8] = float32(math.Copysign(0, -1))
	return t
}()

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
	r = recipe{info: TensorInfo{DType: BF16, Shape: []int64{experts, int64(groups) * 32, int64(rows)}}, stored: "MXFP4"}
	r.start = func(to *sink) func(int, int) {
		expert := make([]float32, 32*groups*rows) // numbers of bfloat16
		return func(e, _ int) {
			for row := range rows {
				for g := range groups {
					at := (e*rows+row)*groups + g
					scale := float32(math.Ldexp(1, int(scales.data[at])-127))
					for k, b := range blocks.data[16*at : 16*at+16] {
						expert[(32*g+2*k)*rows+row] = scale * e2m1[b&15]
						expert[(32*g+2*k+1)*rows+row] = scale * e2m1[b>>4]
					}
				}
			}
			to.put(e, 0, expert)
		}
	}
	return r, nil
}

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
	zero := grid{}
	if z, ok := p.get(module + ".weight_zero_point"); ok {
		if err := z.dims([]DType{I8, F8E4M3}, scale.Shape...); err != nil {
			return r, err
		}
		zero = g
		zero.values = z.floats()
	}
	kind := scale.DType
	if kind != F32 && kind != F16 {
		kind = BF16 // as transformers does for scales of one byte, too
	}
	r = recipe{info: TensorInfo{DType: kind, Shape: w.Shape}, stored: string(w.DType) + " with scales"}
	values := &e4m3
	if w.DType == I8 {
		values = &int8Values
	}
	r.start = func(to *sink) func(int, int) {
		many := g.high*g.wide >= 4*256 // numbers of a scale: more than they have values
		var levels [][256]float32      // of each block of a row of blocks
		if many {
			levels = make([][256]float32, g.cols)
		}
		row, of := make([]float32, cols), -1
		return func(from, end int) {
			for o := from; o < end; o++ {
				fresh := o/g.high != of
				of = o / g.high
				for first := 0; first < len(row); first += g.wide {
					stored := w.data[int64(o)*cols : int64(o+1)*cols][first:min(first+g.wide, len(row))]
					out := row[first:][:len(stored)]
					scale, z := g.at(o, first), float32(0)
					if zero.values != nil {
						z = zero.at(o, first)
					}
					if !many {
						for i, b := range stored {
							out[i] = to.round((values[b] - z) * scale)
						}
						continue
					}
					level := &levels[first/g.wide]
					for b := 0; fresh && b < len(level); b++ {
						level[b] = to.round((values[b] - z) * scale)
					}
					for i, b := range stored {
						out[i] = level[b]
					}
				}
				to.put(o, 0, row)
			}
		}
	}
	return r, nil
}

var int8Values = func() (t [256]float32) {
	for i := range t {
		t[i] = float32(int8(i))
	}
	return t
}()

// grid is a number for each block of a matrix.
type grid struct {
	values     []float32
	cols       int // blocks side by side
	high, wide int // rows and columns of a block
}

func (g grid) at(row, col int) float32 { return g.values[row/g.high*g.cols+col/g.wide] }

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
	return grid{p.floats(), int(across), high, wide}, nil
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
	columns, err := p.columns(module+".weight_g_idx", cols, g)
	if err != nil {
		return r, err
	}
	half, mask := int(1)<<(bits-1), uint32(1)<<bits-1
	each := int(32 / bits)
	lg := mathbits.TrailingZeros(uint(each))
	zero := func(int, int) int { return 0 }
	if z, ok := p.get(module + ".weight_zero_point"); ok {
		if err := z.dims([]DType{I32}, (rows+int64(each)-1)/int64(each), int64(g.cols)); err != nil {
			return r, err
		}
		zero = func(o, group int) int { return int(z.word(o/each*g.cols+group)>>(uint(o%each)*bits)&mask) - half }
	}
	r = recipe{info: TensorInfo{DType: scale.DType, Shape: []int64{rows, cols}}, stored: fmt.Sprintf("int%d, packed", bits)}
	words := int(w.Shape[1])
	r.start = func(to *sink) func(int, int) {
		level := make([]float32, g.cols<<bits) // of each group
		row := make([]float32, cols)
		return func(from, end int) {
			for o := from; o < end; o++ {
				stored := w.data[4*o*words:]
				for x := 0; bits < 8 && x < g.cols; x++ {
					to.levels(level[x<<bits:][:1<<bits], half+zero(o, x), g.values[o/g.high*g.cols+x])
				}
				for first := 0; first < len(row); first += columns.run(g.wide) {
					x := columns.group(first, g)
					z, scale, of := half+zero(o, x), g.values[o/g.high*g.cols+x], level[x<<bits:][:1<<bits]
					for i := first; i < min(first+columns.run(g.wide), len(row)); i++ {
						q := le.Uint32(stored[i>>lg<<2:]) >> (uint(i&(each-1)) * bits) & mask
						if bits < 8 {
							row[i] = of[q]
						} else { // a group has not many more numbers than they have values
							row[i] = to.round(float32(int(q)-z) * scale)
						}
					}
				}
				to.put(o, 0, row)
			}
		}
	}
	return r, nil
}

// groupIndex gives the group of each column, where columns were put in order; it
// is empty where groups are runs of columns.
type groupIndex []int32

func (x groupIndex) group(col int, g grid) int {
	if len(x) == 0 {
		return col / g.wide
	}
	return int(x[col])
}

// run is how many columns from a border on are of one group.
func (x groupIndex) run(wide int) int {
	if len(x) > 0 {
		return 1
	}
	return wide
}

func (p *parts) columns(name string, cols int64, g grid) (groupIndex, error) {
	x, ok := p.get(name)
	if !ok {
		return nil, nil
	}
	if err := x.dims([]DType{I32, I64}, cols); err != nil {
		return nil, err
	}
	out, size := make(groupIndex, cols), int(x.DType.Size())
	for i := range out {
		out[i] = int32(le.Uint32(x.data[size*i:]))
		if out[i] == -1 {
			return nil, nil // not set: runs of columns
		}
		if out[i] < 0 || int(out[i]) >= g.cols {
			return nil, x.fail(malformed.Range, "column %d is of group %d; there are %d", i, out[i], g.cols)
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
	each, mask := int(32/bits), uint32(1)<<bits-1
	lg := mathbits.TrailingZeros(uint(each))
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
	columns, err := p.columns(module+".g_idx", int64(in), grid{cols: groups, wide: wide})
	if err != nil {
		return r, err
	}
	more := uint32(1)
	if q.Checkpoint == "gptq_v2" {
		more = 0
	}
	scales := scale.floats()
	r = recipe{info: TensorInfo{DType: scale.DType, Shape: []int64{int64(out), int64(in)}}, stored: fmt.Sprintf("GPTQ int%d", bits), unit: 16}
	zero := func(group, o int) int {
		return int((zeros.word(group*(out/each)+o/each)>>(uint(o%each)*bits)&mask + more) & mask)
	}
	r.start = func(to *sink) func(int, int) {
		const piece = 128                         // inputs: whole words
		var tile [16][piece]float32               // of outputs
		level := make([]float32, groups*16<<bits) // of each group and output
		var z [16]int                             // of the outputs, in the group of an input
		return func(from, end int) {
			for x := 0; bits < 8 && x < groups; x++ {
				for o := from; o < end; o++ {
					to.levels(level[(x*16+o-from)<<bits:][:1<<bits], zero(x, o), scales[x*out+o])
				}
			}
			of, x := level, 0
			for first := 0; first < in; first += piece {
				n := min(piece, in-first)
				for i := range n {
					if (first+i)%columns.run(wide) == 0 {
						x = columns.group(first+i, grid{wide: wide})
						of = level[x*16<<bits:][:16<<bits]
						for o := from; bits == 8 && o < end; o++ {
							z[o-from] = zero(x, o)
						}
					}
					stored, shift := w.data[4*((first+i)>>lg*out+from):][:4*(end-from)], uint(i&(each-1))*bits
					for k := range end - from {
						q := le.Uint32(stored[4*k:]) >> shift & mask
						if bits < 8 {
							tile[k][i] = of[k<<bits|int(q)]
						} else { // a group has not many more numbers than they have values
							tile[k][i] = to.round(float32(int(q)-z[k]) * scales[x*out+from+k])
						}
					}
				}
				for o := from; o < end; o++ {
					to.put(o, first, tile[o-from][:n])
				}
			}
		}
	}
	return r, nil
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

// awqPlace is where AWQ's gemm layout has the eight numbers of a word.
var awqPlace = [8]uint{0, 4, 1, 5, 2, 6, 3, 7}

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
	scales := scale.floats()
	r = recipe{info: TensorInfo{DType: scale.DType, Shape: []int64{int64(out), int64(in)}}, stored: "AWQ int4",
		unit: 128} // whose words are a line of memory
	r.start = func(to *sink) func(int, int) {
		var level [8][16]float32
		tile := make([]float32, 8*wide)
		return func(from, end int) {
			for group := range groups {
				for c := from / 8; c < end/8; c++ {
					for k := range level {
						zero := int(zeros.word(group*words+c) >> (4 * awqPlace[k]) & 15)
						to.levels(level[k][:], zero, scales[group*out+8*c+k])
					}
					n := min(wide, in-group*wide)
					for i := range n {
						v := w.word((group*wide+i)*words + c)
						for k := range level {
							tile[k*wide+i] = level[k][v>>(4*awqPlace[k])&15]
						}
					}
					for k := range level {
						to.put(8*c+k, group*wide, tile[k*wide:][:n])
					}
				}
			}
		}
	}
	return r, nil
}
