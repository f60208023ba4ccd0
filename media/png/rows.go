package png

import (
	"agentcli/internal/malformed"
	"agentcli/media/raster"
)

// unfilter undoes the filter of a row (RFC 2083, section 6). The first size bytes of row and
// of above are zero and stand for what is left of the image.
func unfilter(filter byte, row, above []byte, size int) error {
	above = above[:len(row)]
	switch filter {
	case 0:
	case 1:
		for i := size; i < len(row); i++ {
			row[i] += row[i-size]
		}
	case 2:
		for i := size; i < len(row); i++ {
			row[i] += above[i]
		}
	case 3:
		for i := size; i < len(row); i++ {
			row[i] += byte((int(row[i-size]) + int(above[i])) / 2)
		}
	case 4:
		switch size {
		case 3:
			paeth3(row, above, 3, 3)
		case 4:
			paeth4(row, above, 4, 4)
		case 6:
			paeth3(row, above, 6, 6)
			paeth3(row, above, 9, 6)
		case 8:
			paeth4(row, above, 8, 8)
			paeth4(row, above, 12, 8)
		default:
			for i := size; i < len(row); i++ {
				row[i] += paeth(int32(row[i-size]), int32(above[i]), int32(above[i-size]))
			}
		}
	default:
		return malformed.Field("IDAT", malformed.Range, "filter %d; there are 0 to 4", filter)
	}
	return nil
}

// paeth3 and paeth4 keep the neighbours of three or four bytes, which come again after step
// bytes, in registers.
func paeth3(row, above []byte, from, step int) {
	var a, b, c, e, f, g int32 // left, and left above, of the three channels
	for i := from; i+2 < len(row) && i+2 < len(above); i += step {
		u, v, w := int32(above[i]), int32(above[i+1]), int32(above[i+2])
		a = int32(row[i] + paeth(a, u, e))
		b = int32(row[i+1] + paeth(b, v, f))
		c = int32(row[i+2] + paeth(c, w, g))
		row[i], row[i+1], row[i+2] = byte(a), byte(b), byte(c)
		e, f, g = u, v, w
	}
}

func paeth4(row, above []byte, from, step int) {
	var a, b, c, d, e, f, g, h int32
	for i := from; i+3 < len(row) && i+3 < len(above); i += step {
		u, v, w, x := int32(above[i]), int32(above[i+1]), int32(above[i+2]), int32(above[i+3])
		a = int32(row[i] + paeth(a, u, e))
		b = int32(row[i+1] + paeth(b, v, f))
		c = int32(row[i+2] + paeth(c, w, g))
		d = int32(row[i+3] + paeth(d, x, h))
		row[i], row[i+1], row[i+2], row[i+3] = byte(a), byte(b), byte(c), byte(d)
		e, f, g, h = u, v, w, x
	}
}

// paeth is the neighbour nearest to left + up − corner; ties go to left, then up.
func paeth(left, up, corner int32) byte {
	pa, pb := up-corner, left-corner
	pc := pa + pb
	pa = (pa ^ pa>>31) - pa>>31 // absolute values
	pb = (pb ^ pb>>31) - pb>>31
	pc = (pc ^ pc>>31) - pc>>31
	n := corner
	if pb <= pc {
		n = up
	}
	if pa <= pb && pa <= pc {
		n = left
	}
	return byte(n)
}

// expand turns a row of samples into RGB. Samples of 16 bits lose their low byte. The
// transparent colour of tRNS is compared as Pillow does it: with samples of 8 bits, after
// scaling, by its low byte. Pillow makes white of nearly all grey of 16 bits; here it is the
// high byte, as for RGB, and transparency is compared with all 16 bits.
func (d *decoder) expand(dst, src []byte) {
	n := len(dst) / 3
	switch {
	case d.colour == palette:
		for x := range n {
			copy(dst[3*x:3*x+3], d.palette[sample(src, x, d.depth)][:])
		}
	case d.colour == grey && d.depth == 16:
		for x := range n {
			v := src[2*x]
			if d.key != nil && d.key[0] == uint16(src[2*x])<<8|uint16(src[2*x+1]) {
				v = 255
			}
			dst[3*x], dst[3*x+1], dst[3*x+2] = v, v, v
		}
	case d.colour == grey:
		d.expandGrey(dst, src)
	case d.colour == rgb && d.depth == 8:
		copy(dst, src)
		d.whiten(dst)
	case d.colour == rgb:
		for i := range dst {
			dst[i] = src[2*i]
		}
		d.whiten(dst)
	case d.colour == greyAlpha:
		step := d.depth / 8
		for x := range n {
			v := raster.OverWhite(src[2*step*x], src[2*step*x+step])
			dst[3*x], dst[3*x+1], dst[3*x+2] = v, v, v
		}
	case d.colour == rgba:
		step := d.depth / 8
		for x := range n {
			s := src[4*step*x : 4*step*x+4*step]
			if a := s[3*step]; a == 255 {
				dst[3*x], dst[3*x+1], dst[3*x+2] = s[0], s[step], s[2*step]
			} else {
				dst[3*x] = raster.OverWhite(s[0], a)
				dst[3*x+1] = raster.OverWhite(s[step], a)
				dst[3*x+2] = raster.OverWhite(s[2*step], a)
			}
		}
	}
}

func (d *decoder) expandGrey(dst, src []byte) {
	scale := byte(255 / (1<<d.depth - 1))
	key := -1
	if d.key != nil {
		key = int(d.key[0] & 0xff)
		if d.depth == 1 && d.key[0] != 0 {
			key = 255
		}
	}
	for x := range len(dst) / 3 {
		v := sample(src, x, d.depth) * scale
		if int(v) == key {
			v = 255
		}
		dst[3*x], dst[3*x+1], dst[3*x+2] = v, v, v
	}
}

// whiten makes the transparent colour white.
func (d *decoder) whiten(dst []byte) {
	if d.key == nil {
		return
	}
	r, g, b := byte(d.key[0]), byte(d.key[1]), byte(d.key[2])
	for x := 0; x < len(dst); x += 3 {
		if dst[x] == r && dst[x+1] == g && dst[x+2] == b {
			dst[x], dst[x+1], dst[x+2] = 255, 255, 255
		}
	}
}

// sample is the x-th number of depth bits, 1 to 8.
func sample(row []byte, x, depth int) byte {
	if depth == 8 {
		return row[x]
	}
	per := 8 / depth
	return row[x/per] >> (8 - depth - x%per*depth) & (1<<depth - 1)
}
