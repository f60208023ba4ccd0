package weights

import (
	"encoding/binary"
	"errors"
	"math"
	"runtime"
	"sync"

	"agentcli/internal/safego"
	"agentcli/model/gguf"
)

var le = binary.LittleEndian

// A decoder turns one block into float32 values; where blocks are of one value,
// any number of them. The order of operations and
// their roundings are those of the gguf package's reference, bit by bit; the
// conversions to float32 keep the compiler from fusing a product with a sum.
type decoder struct {
	values, bytes int
	f             func(dst, src []byte)
}

var decoders = map[gguf.TensorType]decoder{
	gguf.F32: {1, 4, func(d, s []byte) { copy(d, s) }}, gguf.F16: {1, 2, halfToFloat}, gguf.BF16: {1, 2, brainToFloat},
	gguf.Q4_0: {32, 18, q4_0}, gguf.Q4_1: {32, 20, q4_1}, gguf.Q5_0: {32, 22, q5_0}, gguf.Q5_1: {32, 24, q5_1},
	gguf.Q8_0: {32, 34, q8_0}, gguf.Q2_K: {256, 84, q2_K}, gguf.Q3_K: {256, 110, q3_K},
	gguf.Q4_K: {256, 144, q4_K}, gguf.Q5_K: {256, 176, q5_K}, gguf.Q6_K: {256, 210, q6_K},
	gguf.IQ2_XXS: {256, 66, iq2_XXS}, gguf.IQ2_XS: {256, 74, iq2_XS}, gguf.IQ2_S: {256, 82, iq2_S},
	gguf.IQ3_XXS: {256, 98, iq3_XXS}, gguf.IQ3_S: {256, 110, iq3_S}, gguf.IQ1_S: {256, 50, iq1_S}, gguf.IQ1_M: {256, 56, iq1_M},
	gguf.IQ4_NL: {32, 18, iq4_NL}, gguf.IQ4_XS: {256, 136, iq4_XS}, gguf.TQ1_0: {256, 54, tq1_0}, gguf.TQ2_0: {256, 66, tq2_0},
	gguf.MXFP4: {32, 17, mxfp4}, gguf.NVFP4: {64, 36, nvfp4},
}

func canDequantise(t gguf.TensorType) bool { _, ok := decoders[t]; return ok }

// dequantise decodes a whole tensor on all cores.
func dequantise(t gguf.TensorType, src []byte) []byte {
	d := decoders[t]
	blocks := len(src) / d.bytes
	dst := make([]byte, blocks*d.values*4)
	parallel(blocks, 1+(1<<16)/d.values, func(from, to int) {
		if d.values == 1 {
			d.f(dst[4*from:4*to], src[from*d.bytes:to*d.bytes])
			return
		}
		for i := from; i < to; i++ {
			d.f(dst[i*d.values*4:(i+1)*d.values*4], src[i*d.bytes:(i+1)*d.bytes])
		}
	})
	return dst
}

// dequantiseBF16 is dequantise, rounded to the nearest bfloat16, even of two: half the bytes.
func dequantiseBF16(t gguf.TensorType, src []byte) []byte {
	d := decoders[t]
	blocks := len(src) / d.bytes
	dst := make([]byte, blocks*d.values*2)
	parallel(blocks, 1+(1<<16)/d.values, func(from, to int) {
		block := make([]byte, 4*d.values)
		for i := from; i < to; i++ {
			d.f(block, src[i*d.bytes:(i+1)*d.bytes])
			roundToBF16(dst[i*d.values*2:(i+1)*d.values*2], block)
		}
	})
	return dst
}

// roundToBF16 rounds a whole number of four float32 values.
func roundToBF16(dst, src []byte) {
	dst = dst[:len(src)/2]
	for i := 0; i+16 <= len(src); i += 16 {
		s := src[i : i+16 : i+16]
		a, b, c, d := le.Uint32(s), le.Uint32(s[4:]), le.Uint32(s[8:]), le.Uint32(s[12:])
		le.PutUint64(dst[i/2:], uint64(roundBits(a))|uint64(roundBits(b))<<16|uint64(roundBits(c))<<32|uint64(roundBits(d))<<48)
	}
}

// parallel splits 0..n over the cores in parts of at least least.
func parallel(n, least int, f func(from, to int)) {
	parts := min(runtime.GOMAXPROCS(0), n/least)
	if parts <= 1 {
		f(0, n)
		return
	}
	var wg sync.WaitGroup
	faults := make([]error, parts)
	for p := range parts {
		wg.Go(func() {
			defer safego.Into(&faults[p])
			f(n*p/parts, n*(p+1)/parts)
		})
	}
	wg.Wait()
	if err := errors.Join(faults...); err != nil {
		panic(err) // as it would without goroutines
	}
}

func put(d []byte, i int, v float32) { le.PutUint32(d[4*i:], math.Float32bits(v)) }

func halfToFloat(dst, src []byte) {
	for i := 0; i+1 < len(src) && 2*i+3 < len(dst); i += 2 {
		le.PutUint32(dst[2*i:], math.Float32bits(f16(src[i:])))
	}
}

func brainToFloat(dst, src []byte) {
	for i := 0; i+1 < len(src) && 2*i+3 < len(dst); i += 2 {
		le.PutUint32(dst[2*i:], uint32(le.Uint16(src[i:]))<<16)
	}
}

func q4_0(dst, src []byte) {
	d := f16(src)
	for j, q := range src[2:18] {
		put(dst, j, d*float32(int(q&15)-8))
		put(dst, j+16, d*float32(int(q>>4)-8))
	}
}

func q4_1(dst, src []byte) {
	d, m := f16(src), f16(src[2:])
	// Sixteen values in all: a table costs less than 32 products.
	var t [16]uint32
	for q := range t {
		t[q] = math.Float32bits(float32(d*float32(q)) + m)
	}
	dst = dst[:128]
	for j, q := range src[4:20] {
		le.PutUint32(dst[4*j:], t[q&15])
		le.PutUint32(dst[4*j+64:], t[q>>4])
	}
}

func q5_0(dst, src []byte) {
	d, h := f16(src), le.Uint32(src[2:])
	for j, q := range src[6:22] {
		put(dst, j, d*float32(int(q&15|byte(h>>j&1)<<4)-16))
		put(dst, j+16, d*float32(int(q>>4|byte(h>>(j+16)&1)<<4)-16))
	}
}

func q5_1(dst, src []byte) {
	d, m, h := f16(src), f16(src[2:]), le.Uint32(src[4:])
	for j, q := range src[8:24] {
		put(dst, j, float32(d*float32(q&15|byte(h>>j&1)<<4))+m)
		put(dst, j+16, float32(d*float32(q>>4|byte(h>>(j+16)&1)<<4))+m)
	}
}

func q8_0(dst, src []byte) {
	d := f16(src)
	dst = dst[:128]
	for j, q := range src[2:34] {
		le.PutUint32(dst[4*j:], math.Float32bits(d*float32(int8(q))))
	}
}

// scaleMin unpacks the eight 6-bit scales and minima of Q4_K and Q5_K.
func scaleMin(s []byte) (sc, mn [8]byte) {
	for i := range 4 {
		sc[i], mn[i] = s[i]&63, s[i+4]&63
		sc[i+4] = s[i+8]&15 | s[i]>>6<<4
		mn[i+4] = s[i+8]>>4 | s[i+4]>>6<<4
	}
	return sc, mn
}

func q4_K(dst, src []byte) {
	d, dm := f16(src), f16(src[2:])
	sc, mn := scaleMin(src[4:16])
	for b := range 8 {
		s, m := float32(d*float32(sc[b])), float32(dm*float32(mn[b]))
		for i, q := range src[16+b/2*32 : 48+b/2*32] {
			put(dst, b*32+i, float32(s*float32(q>>(b%2*4)&15))-m)
		}
	}
}

func q5_K(dst, src []byte) {
	d, dm := f16(src), f16(src[2:])
	sc, mn := scaleMin(src[4:16])
	high := src[16:48]
	for b := range 8 {
		s, m := float32(d*float32(sc[b])), float32(dm*float32(mn[b]))
		for i, q := range src[48+b/2*32 : 80+b/2*32] {
			put(dst, b*32+i, float32(s*float32(q>>(b%2*4)&15|high[i]>>b&1<<4))-m)
		}
	}
}

func q6_K(dst, src []byte) {
	low, high, sc, d := src[:128], src[128:192], src[192:208], f16(src[208:])
	for p := range 256 {
		half, k := p/128, p%128
		q := low[half*64+k%64] >> (k / 64 * 4) & 15
		q |= high[half*32+k%32] >> (k / 32 * 2) & 3 << 4
		s := float32(d * float32(int8(sc[p/16])))
		put(dst, p, s*float32(int(q)-32))
	}
}

func f16(b []byte) float32 { return halves[le.Uint16(b)] }

// halves is every float16: 256 KB, and half the time of computing them.
var halves = func() *[1 << 16]float32 {
	var t [1 << 16]float32
	for i := range t {
		t[i] = fromHalf(uint16(i))
	}
	return &t
}()

func fromHalf(h uint16) float32 {
	sign, exp, man := uint32(h>>15)<<31, uint32(h>>10&31), uint32(h&1023)
	switch exp {
	case 0:
		// Subnormal: man · 2^-24, exactly representable.
		f := float32(man) / (1 << 24)
		return math.Float32frombits(math.Float32bits(f) | sign)
	case 31:
		return math.Float32frombits(sign | 0x7f800000 | man<<13)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | man<<13)
}

// toHalf rounds to nearest, ties to even; too large becomes infinity.
func toHalf(f float32) uint16 {
	b := math.Float32bits(f)
	sign, b := uint16(b>>16&0x8000), b&0x7fffffff
	switch {
	case b > 0x7f800000:
		return sign | 0x7e00
	case b >= 0x477ff000: // 65520, which rounds up
		return sign | 0x7c00
	case b < 0x38800000: // below 2^-14: a subnormal, counted in units of 2^-24
		return sign | uint16(math.RoundToEven(float64(math.Float32frombits(b))*(1<<24)))
	}
	b += 0xfff + b>>13&1
	return sign | uint16(b>>13-112<<10)
}

// roundToHalf is the float16 nearest to f, even of two.
func roundToHalf(f float32) float32 {
	b := math.Float32bits(f)
	if size := b & 0x7fffffff; size < 0x38800000 || size >= 0x477ff000 { // subnormal, or infinite
		return halves[toHalf(f)]
	}
	return math.Float32frombits((b + 0xfff + b>>13&1) &^ 0x1fff)
}

// toBF16 rounds to nearest, ties to even.
func toBF16(f float32) uint16 { return roundBits(math.Float32bits(f)) }

func roundBits(b uint32) uint16 {
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}
