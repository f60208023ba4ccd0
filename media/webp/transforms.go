package webp

// undo makes the pixels what they were before the transform.
func (t *transform) undo(pix []uint32, height int) []uint32 {
	switch t.kind {
	case predict:
		t.unpredict(pix)
	case crossColour:
		t.uncross(pix)
	case subtractGreen:
		for i, v := range pix {
			green := v >> 8 & 0xff
			pix[i] = v&0xff00ff00 | (v&0x00ff00ff+(green<<16|green))&0x00ff00ff
		}
	case indices:
		return t.unindex(pix, height)
	}
	return pix
}

// add adds each byte for itself.
func add(a, b uint32) uint32 {
	return (a&0xff00ff00+b&0xff00ff00)&0xff00ff00 | (a&0x00ff00ff+b&0x00ff00ff)&0x00ff00ff
}

// mean is the mean of each byte, rounded down.
func mean(a, b uint32) uint32 { return (a^b)&0xfefefefe>>1 + a&b }

const opaqueBlack = 0xff000000

func (t *transform) unpredict(pix []uint32) {
	w := t.width
	across := tiles(w, t.bits)
	pix[0] = add(pix[0], opaqueBlack)
	for x := 1; x < w; x++ {
		pix[x] = add(pix[x], pix[x-1])
	}
	for y := 1; y < len(pix)/w; y++ {
		row := y * w
		pix[row] = add(pix[row], pix[row-w])
		modes := t.data[y>>t.bits*across:]
		for x := 1; x < w; {
			end := min((x>>t.bits+1)<<t.bits, w)
			// The pixel above to the right of the last one is the first of its own row.
			predictTile(pix[row-w+x-1:row+end], w, end-x, modes[x>>t.bits]>>8&15)
			x = end
		}
	}
}

// predictTile adds to the last n pixels of p their prediction from those to the left and
// above; p begins above to the left of the first of them, and rows are w apart.
func predictTile(p []uint32, w, n int, mode uint32) {
	left := p[w]
	out := p[w+1 : w+1+n]
	above := p[: n+2 : n+2]
	for i := range out {
		corner, top, right := above[i], above[i+1], above[i+2]
		var v uint32
		switch mode {
		case 1:
			v = left
		case 2:
			v = top
		case 3:
			v = right
		case 4:
			v = corner
		case 5:
			v = mean(mean(left, right), top)
		case 6:
			v = mean(left, corner)
		case 7:
			v = mean(left, top)
		case 8:
			v = mean(corner, top)
		case 9:
			v = mean(top, right)
		case 10:
			v = mean(mean(left, corner), mean(top, right))
		case 11:
			v = nearer(left, top, corner)
		case 12:
			v = gradient(left, top, corner)
		case 13:
			v = halfGradient(mean(left, top), corner)
		default:
			v = opaqueBlack
		}
		left = add(out[i], v)
		out[i] = left
	}
}

func abs(v int32) int32 { return (v ^ v>>31) - v>>31 }

// nearer is left or top, whichever left + top − corner is nearer to.
func nearer(left, top, corner uint32) uint32 {
	sum := int32(0)
	for s := 0; s < 32; s += 8 {
		c := int32(corner >> s & 0xff)
		sum += abs(int32(left>>s&0xff)-c) - abs(int32(top>>s&0xff)-c)
	}
	if sum <= 0 {
		return top
	}
	return left
}

func limit(v int32) uint32 {
	if uint32(v) > 255 {
		v = ^v >> 31 & 255
	}
	return uint32(v)
}

// lanes puts each byte into 16 bits.
func lanes(v uint32) uint64 {
	x := uint64(v)
	x = (x | x<<16) & 0x0000ffff0000ffff
	return (x | x<<8) & 0x00ff00ff00ff00ff
}

// gradient is left + top − corner of each byte, from 0 to 255. All four are computed at
// once, 256 higher: then bit 8 says that a sum is in range, bit 9 that it is above.
func gradient(left, top, corner uint32) uint32 {
	const ones = 0x0001000100010001
	sum := lanes(left) + lanes(top) + ones<<8 - lanes(corner)
	in, above := sum>>8&ones, sum>>9&ones
	v := sum&(in*255) | above*255
	v = (v | v>>8) & 0x0000ffff0000ffff
	return uint32(v | v>>16)
}

// halfGradient is a + (a − b) / 2, rounded towards a.
func halfGradient(a, b uint32) (out uint32) {
	for s := 0; s < 32; s += 8 {
		v := int32(a >> s & 0xff)
		out |= limit(v+(v-int32(b>>s&0xff))/2) << s
	}
	return out
}

func (t *transform) uncross(pix []uint32) {
	across := tiles(t.width, t.bits)
	for y := 0; y*t.width < len(pix); y++ {
		row := pix[y*t.width : (y+1)*t.width]
		tile := t.data[y>>t.bits*across:]
		for x, v := range row {
			m := tile[x>>t.bits]
			part := func(factor, colour uint32) uint32 {
				return uint32(int32(int8(factor)) * int32(int8(colour)) >> 5)
			}
			green := v >> 8
			red := v>>16 + part(m, green)
			blue := v + part(m>>8, green) + part(m>>16, red)
			row[x] = v&0xff00ff00 | red&0xff<<16 | blue&0xff
		}
	}
}

// unindex looks colours up. Several indices may be in one byte of green.
func (t *transform) unindex(pix []uint32, height int) []uint32 {
	var palette [256]uint32
	copy(palette[:], t.data)
	out := make([]uint32, t.width*height)
	packed := tiles(t.width, t.bits)
	size := 8 >> t.bits
	for y := range height {
		row := pix[y*packed : (y+1)*packed]
		to := out[y*t.width : (y+1)*t.width]
		for x := range to {
			v := row[x>>t.bits] >> 8 & 0xff
			to[x] = palette[v>>(x&(1<<t.bits-1)*size)&(1<<size-1)]
		}
	}
	return out
}
