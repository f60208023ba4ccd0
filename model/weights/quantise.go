package weights

import (
	"fmt"
	"math"

	"agentcli/model/gguf"
)

// An encoder makes one block of float32 values.
var encoders = map[gguf.TensorType]struct {
	values, bytes int
	f             func(dst []byte, x []float32)
}{
	gguf.F32:  {1, 4, func(d []byte, x []float32) { put(d, 0, x[0]) }},
	gguf.F16:  {1, 2, func(d []byte, x []float32) { le.PutUint16(d, toHalf(x[0])) }},
	gguf.BF16: {1, 2, func(d []byte, x []float32) { le.PutUint16(d, toBF16(x[0])) }},
	gguf.Q8_0: {32, 34, encodeQ8_0},
	gguf.Q4_K: {256, 144, encodeQ4_K},
}

// quantise encodes float32 values on all cores.
func quantise(t gguf.TensorType, src []byte) ([]byte, error) {
	e, ok := encoders[t]
	if !ok {
		return nil, fmt.Errorf("%s cannot be written", t)
	}
	blocks := len(src) / 4 / e.values
	dst := make([]byte, blocks*e.bytes)
	parallel(blocks, 1+(1<<12)/e.values, func(from, to int) {
		x := make([]float32, e.values)
		for i := from; i < to; i++ {
			for k := range x {
				x[k] = math.Float32frombits(le.Uint32(src[4*(i*e.values+k):]))
			}
			e.f(dst[i*e.bytes:(i+1)*e.bytes], x)
		}
	})
	return dst, nil
}

// encodeQ8_0 is the gguf package's quantisation bit by bit: the scale is the
// largest value's 127th part, and numbers round away from zero.
func encodeQ8_0(dst []byte, x []float32) {
	top := float32(0)
	for _, v := range x {
		top = max(top, float32(math.Abs(float64(v))))
	}
	d, inverse := top/127, float32(0)
	if d != 0 {
		inverse = 1 / d
	}
	le.PutUint16(dst, toHalf(d))
	for i, v := range x {
		dst[2+i] = byte(int8(math.Round(float64(v * inverse))))
	}
}

// encodeQ4_K is ggml's quantize_row_q4_K_ref: eight groups of 32 values, each
// with a scale and a minimum of six bits.
func encodeQ4_K(dst []byte, x []float32) {
	var scales, mins [8]float32
	topScale, topMin := float32(0), float32(0)
	for g := range 8 {
		scales[g], mins[g] = fitGroup(x[32*g : 32*g+32])
		topScale, topMin = max(topScale, scales[g]), max(topMin, mins[g])
	}
	clear(dst[:16])
	le.PutUint16(dst, toHalf(topScale/63))
	le.PutUint16(dst[2:], toHalf(topMin/63))
	packed := dst[4:16]
	for g := range 8 {
		s, m := sixBits(scales[g], topScale), sixBits(mins[g], topMin)
		if g < 4 {
			packed[g], packed[g+4] = packed[g]|s, packed[g+4]|m
		} else {
			packed[g+4] = s&15 | m<<4
			packed[g-4] |= s >> 4 << 6
			packed[g] |= m >> 4 << 6
		}
	}
	// The values are rounded with the scales as they were stored.
	d, dm := f16(dst), f16(dst[2:])
	sc, mn := scaleMin(packed)
	for g := range 8 {
		s, m := d*float32(sc[g]), dm*float32(mn[g])
		for i := range 32 {
			q := 0
			if s != 0 {
				q = min(max(nearest((x[32*g+i]+m)/s), 0), 15)
			}
			at := 16 + g/2*32 + i
			if g%2 == 0 {
				dst[at] = byte(q)
			} else {
				dst[at] |= byte(q) << 4
			}
		}
	}
}

func nearest(v float32) int { return int(math.RoundToEven(float64(v))) }

// sixBits is v in 63rd parts of the largest.
func sixBits(v, top float32) byte {
	if top <= 0 {
		return 0
	}
	return byte(min(nearest(63/top*v), 63))
}

// fitGroup finds the scale s and the minimum m ≥ 0 for which s·q−m, with q from
// 0 to 15, comes closest to the values: ggml's make_qkx2_quants with its 20 steps.
// Large values weigh more.
func fitGroup(x []float32) (scale, minimum float32) {
	const levels, first, step, steps = 15, -1, 0.1, 20
	square := float32(0)
	for _, v := range x {
		square += v * v
	}
	average := float32(math.Sqrt(float64(square / float32(len(x)))))
	low, high := x[0], x[0]
	var weight [32]float32
	var sumW, sumX float32
	for i, v := range x {
		low, high = min(low, v), max(high, v)
		w := average + float32(math.Abs(float64(v)))
		weight[i] = w
		sumW += w
		sumX += w * v
	}
	low = min(low, 0)
	if high == low {
		return 0, -low
	}
	off := func(s, m float32, q []int) (e float32) {
		for i, v := range x {
			diff := s*float32(q[i]) + m - v
			e += weight[i] * diff * diff
		}
		return e
	}
	var q [32]int
	round := func(inverse float32) {
		for i, v := range x {
			q[i] = min(max(nearest(inverse*(v-low)), 0), levels)
		}
	}
	round(levels / (high - low))
	scale, best := (high-low)/levels, low
	least := off(scale, low, q[:])
	for k := range steps + 1 {
		round((first + step*float32(k) + levels) / (high - low))
		var sumL, sumLL, sumXL float32
		for i, v := range x {
			l, w := float32(q[i]), weight[i]
			sumL += w * l
			sumLL += w * l * l
			sumXL += w * l * v
		}
		det := sumW*sumLL - sumL*sumL
		if det <= 0 {
			continue
		}
		s, m := (sumW*sumXL-sumX*sumL)/det, (sumLL*sumX-sumL*sumXL)/det
		if m > 0 {
			s, m = sumXL/sumLL, 0
		}
		if e := off(s, m, q[:]); e < least {
			least, scale, best = e, s, m
		}
	}
	return scale, -best
}
