package jpeg

// Constants of the inverse DCT: a number times 2^13, rounded (Loeffler, Ligtenberg and
// Moschytz, "Practical fast 1-D DCT algorithms with 11 multiplications", as in libjpeg's
// jidctint.c).
const (
	f0298 = 2446
	f0390 = 3196
	f0541 = 4433
	f0765 = 6270
	f0899 = 7373
	f1175 = 9633
	f1501 = 12299
	f1847 = 15137
	f1961 = 16069
	f2053 = 16819
	f2562 = 20995
	f3072 = 25172
)

// inverse writes the samples of a block, whose highest coefficient in zigzag order is last.
func (c *component) inverse(b *[64]int16, last, x, y int) {
	stride := 8 * c.strideBlocks
	out := c.plane[8*y*stride+8*x:]
	if last == 0 {
		v := clamp((int32(b[0]*int16(c.quant[0]))<<2 + 16) >> 5)
		w := uint64(v) * 0x0101010101010101
		for i := range 8 {
			row := out[i*stride : i*stride+8]
			row[0], row[1], row[2], row[3] = byte(w), byte(w), byte(w), byte(w)
			row[4], row[5], row[6], row[7] = byte(w), byte(w), byte(w), byte(w)
		}
		return
	}
	idct(b, c.quant, out, stride)
}

// clamp moves a sample from around zero to 0…255.
func clamp(v int32) byte {
	v += 128
	if uint32(v) > 255 {
		v = ^v >> 31 & 255
	}
	return byte(v)
}

// short saturates to 16 bits, as the vector instructions of libjpeg-turbo do.
func short(v int32) int32 { return min(max(v, -1<<15), 1<<15-1) }

// idctGo is two passes of a DCT of 8 numbers: columns, with two bits more, then rows.
func idctGo(b *[64]int16, quant *[64]uint16, out []byte, stride int) {
	var w [64]int32
	for i := range 8 {
		q := func(k int) int32 { return int32(b[8*k+i] * int16(quant[8*k+i])) }
		if b[8+i]|b[16+i]|b[24+i]|b[32+i]|b[40+i]|b[48+i]|b[56+i] == 0 {
			dc := short(q(0) << 2)
			for k := range 8 {
				w[8*k+i] = dc
			}
			continue
		}
		v := lift(q(0), q(1), q(2), q(3), q(4), q(5), q(6), q(7), 1<<10)
		for k := range 8 {
			w[8*k+i] = short(v[k] >> 11)
		}
	}
	for i := range 8 {
		r := w[8*i : 8*i+8]
		v := lift(r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7], 1<<17)
		row := out[i*stride : i*stride+8]
		for k := range row {
			row[k] = clamp(v[k] >> 18)
		}
	}
}

// lift is the one-dimensional transform, times 2^13 and √8, with a bias for rounding.
func lift(x0, x1, x2, x3, x4, x5, x6, x7, bias int32) (out [8]int32) {
	z1 := (x2 + x6) * f0541
	e2, e3 := z1-x6*f1847, z1+x2*f0765
	e0, e1 := (x0+x4)<<13+bias, (x0-x4)<<13+bias
	a0, a3, a1, a2 := e0+e3, e0-e3, e1+e2, e1-e2

	z3, z4 := x7+x3, x5+x1
	z5 := (z3 + z4) * f1175
	z3, z4 = z5-z3*f1961, z5-z4*f0390
	z1, z2 := -(x7+x1)*f0899, -(x5+x3)*f2562
	o0, o1 := x7*f0298+z1+z3, x5*f2053+z2+z4
	o2, o3 := x3*f3072+z2+z3, x1*f1501+z1+z4
	return [8]int32{a0 + o3, a1 + o2, a2 + o1, a3 + o0, a3 - o0, a2 - o1, a1 - o2, a0 - o3}
}
