package weights

import "math"

func q2_K(dst, src []byte) {
	scales, qs, d, dm := src[:16], src[16:80], f16(src[80:]), f16(src[82:])
	for g := range 16 {
		s, m := float32(d*float32(scales[g]&15)), float32(dm*float32(scales[g]>>4))
		for i := range 16 {
			q := qs[g/8*32+g%2*16+i] >> (g / 2 % 4 * 2) & 3
			put(dst, 16*g+i, float32(s*float32(q))-m)
		}
	}
}

func q3_K(dst, src []byte) {
	mask, qs, scales, d := src[:32], src[32:96], src[96:108], f16(src[108:])
	for g := range 16 {
		s := int(scales[g%8]>>(g/8*4)&15) | int(scales[8+g%4]>>(g/4*2)&3)<<4
		dl := float32(d * float32(s-32))
		for i := range 16 {
			at := g%2*16 + i
			q := int(qs[g/8*32+at] >> (g / 2 % 4 * 2) & 3)
			if mask[at]>>(g/2)&1 == 0 {
				q -= 4
			}
			put(dst, 16*g+i, dl*float32(q))
		}
	}
}

// tq1_0 packs five ternary digits a byte: the digits are the carries as the byte,
// a fraction of 256, is multiplied by three.
func tq1_0(dst, src []byte) {
	d, i := f16(src[52:]), 0
	digits := func(qs []byte, n int) {
		power := byte(1)
		for range n {
			for _, q := range qs {
				put(dst, i, d*float32(int(uint16(q*power)*3>>8)-1))
				i++
			}
			power *= 3
		}
	}
	digits(src[:32], 5)
	digits(src[32:48], 5)
	digits(src[48:52], 4)
}

func tq2_0(dst, src []byte) {
	d := f16(src[64:])
	for i := range 256 {
		put(dst, i, d*float32(int(src[i/128*32+i%32]>>(i/32%4*2)&3)-1))
	}
}

// fp4Values are those of e2m1, doubled.
var fp4Values = [16]float32{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

// halfE8M0 is half of 2^(e-127).
func halfE8M0(e byte) float32 {
	if e < 2 {
		return math.Float32frombits(0x00200000 << e)
	}
	return math.Float32frombits(uint32(e-1) << 23)
}

func mxfp4(dst, src []byte) { nibbles(dst, 0, halfE8M0(src[0]), src[1:17], &fp4Values) }

// halfUE4M3 is half of an unsigned e4m3 number; the one that is not a number
// counts as 0.
func halfUE4M3(x byte) float32 {
	exp, man := int(x>>3&15), float32(x&7)
	switch {
	case x == 0x7f:
		return 0
	case exp == 0:
		return man / 1024
	}
	return (1 + man/8) * float32(math.Ldexp(0.5, exp-7))
}

func nvfp4(dst, src []byte) {
	for g := range 4 {
		nibbles(dst, 16*g, halfUE4M3(src[g]), src[4+8*g:12+8*g], &fp4Values)
	}
}
