package jpeg

import (
	"agentcli/internal/malformed"
	"agentcli/media/raster"
)

// colourSpace is what the components mean.
type colourSpace int

const (
	grey colourSpace = iota
	yCbCr
	rgb
	cmyk
	ycck
)

// space decides as libjpeg does: by the markers of JFIF and Adobe, then by the components'
// names.
func (d *decoder) space() colourSpace {
	switch len(d.components) {
	case 1:
		return grey
	case 4:
		if d.adobe == 2 {
			return ycck
		}
		return cmyk
	}
	ids := [3]byte{d.components[0].id, d.components[1].id, d.components[2].id}
	switch {
	case d.jfif:
		return yCbCr
	case d.adobe >= 0:
		if d.adobe == 0 {
			return rgb
		}
		return yCbCr
	case ids == [3]byte{'R', 'G', 'B'}:
		return rgb
	}
	return yCbCr
}

// output turns the components into RGB, row by row.
func (d *decoder) output() (*raster.Image, error) {
	if d.progressive {
		for i := range d.components {
			d.components[i].inverseAll()
		}
	}
	space := d.space()
	if space == cmyk || space == ycck {
		if len(d.components) != 4 {
			return nil, malformed.Field("SOF", malformed.Mismatch, "%d components of CMYK", len(d.components))
		}
	}
	img := raster.New(d.width, d.height)
	width := ceil(d.width, d.maxH)*d.maxH + 8
	ups := make([]upsampler, len(d.components))
	for i := range ups {
		ups[i] = newUpsampler(&d.components[i], d.maxH, d.maxV, width)
	}
	var rows [4][]byte
	for y := range d.height {
		for i := range ups {
			rows[i] = ups[i].row(y)
		}
		dst := img.Pix[3*y*d.width : 3*(y+1)*d.width]
		switch space {
		case grey:
			for x, v := range rows[0][:d.width] {
				dst[3*x], dst[3*x+1], dst[3*x+2] = v, v, v
			}
		case yCbCr:
			fromYCbCr(dst, rows[0], rows[1], rows[2])
		case rgb:
			for x := range d.width {
				dst[3*x], dst[3*x+1], dst[3*x+2] = rows[0][x], rows[1][x], rows[2][x]
			}
		case cmyk, ycck:
			if space == ycck {
				fromYCbCr(dst, rows[0], rows[1], rows[2])
			} else {
				for x := range d.width {
					dst[3*x], dst[3*x+1], dst[3*x+2] = ^rows[0][x], ^rows[1][x], ^rows[2][x]
				}
			}
			underBlack(dst, rows[3])
		}
	}
	return img, nil
}

// underBlack finishes CMYK: dst has red, green and blue as they are without black, and files
// of Adobe's kind, which Pillow takes all to be, have black inverted.
func underBlack(dst, k []byte) {
	for x := range len(dst) / 3 {
		for c := range 3 {
			// In Pillow's words nk − MULDIV255(ink, nk), where ink is the inverse of what
			// libjpeg gives for Adobe's inverted files.
			nk := int(k[x])
			t := int(dst[3*x+c])*nk + 128
			dst[3*x+c] = byte(max(0, nk-(t>>8+t)>>8))
		}
	}
}

func (c *component) inverseAll() {
	for y := range c.blocksY {
		for x := range c.blocksX {
			at := 64 * (y*c.strideBlocks + x)
			c.inverse((*[64]int16)(c.coefficients[at:at+64]), 63, x, y)
		}
	}
	c.coefficients = nil
}

// upsampler makes a component as large as the image.
type upsampler struct {
	c      *component
	h, v   int  // how much larger
	smooth bool // triangles, not copies
	out    []byte
}

// newUpsampler chooses the way as libjpeg-turbo does (jdsample.c).
func newUpsampler(c *component, maxH, maxV, width int) upsampler {
	u := upsampler{c: c, h: maxH / c.h, v: maxV / c.v}
	switch {
	case u.h == 2 && u.v <= 2:
		u.smooth = c.width > 2
	case u.h == 1 && u.v == 2:
		u.smooth = true
	}
	if u.h > 1 || u.v > 1 {
		u.out = make([]byte, width)
	}
	return u
}

// row is the y-th row of the image, at least as wide as the image. It is valid until the
// next call.
func (u *upsampler) row(y int) []byte {
	c := u.c
	stride := 8 * c.strideBlocks
	at := func(r int) []byte {
		r = min(max(r, 0), c.height-1)
		return c.plane[r*stride : r*stride+stride]
	}
	near := at(y / u.v)
	if u.h == 1 && u.v == 1 {
		return near
	}
	far := near
	if u.smooth && u.v == 2 {
		far = at(y/2 - 1 + y%2*2)
	}
	switch {
	case !u.smooth:
		for x := range c.width {
			for i := range u.h {
				u.out[x*u.h+i] = near[x]
			}
		}
	case u.h == 1:
		bias := 1 + y%2
		for x := range c.width {
			u.out[x] = byte((3*int(near[x]) + int(far[x]) + bias) >> 2)
		}
	case u.v == 1:
		twiceAcross(u.out, near[:c.width])
	default:
		twiceBoth(u.out, near[:c.width], far[:c.width])
	}
	return u.out
}

// twiceAcross doubles a row: three quarters of the nearer sample, one of the other one.
func twiceAcross(out, s []byte) {
	n := len(s)
	out = out[:2*n]
	out[0], out[1] = s[0], byte((3*int(s[0])+int(s[1])+2)>>2)
	for i := 1; i < n-1; i++ {
		v := 3 * int(s[i])
		out[2*i] = byte((v + int(s[i-1]) + 1) >> 2)
		out[2*i+1] = byte((v + int(s[i+1]) + 2) >> 2)
	}
	out[2*n-2], out[2*n-1] = byte((3*int(s[n-1])+int(s[n-2])+1)>>2), s[n-1]
}

// twiceBoth is a row of an image doubled in both directions.
func twiceBoth(out, near, far []byte) {
	n := len(near)
	far = far[:n]
	out = out[:2*n]
	last := 3*int(near[0]) + int(far[0])
	this := last
	next := 3*int(near[1]) + int(far[1])
	out[0], out[1] = byte((4*this+8)>>4), byte((3*this+next+7)>>4)
	from := twiceBothVector(out, near, far)
	this, next = 3*int(near[from-1])+int(far[from-1]), 3*int(near[from])+int(far[from])
	for i := from; i < n-1; i++ {
		last, this = this, next
		next = 3*int(near[i+1]) + int(far[i+1])
		out[2*i] = byte((3*this + last + 8) >> 4)
		out[2*i+1] = byte((3*this + next + 7) >> 4)
	}
	last, this = this, next
	out[2*n-2], out[2*n-1] = byte((3*this+last+8)>>4), byte((4*this+7)>>4)
}

// Parts of red, green and blue that the colours have, times 2^16 for green.
var redOf, blueOf, greenOfRed, greenOfBlue = colourTables()

func colourTables() (red, blue, ofRed, ofBlue [256]int32) {
	for i := range int32(256) {
		v := i - 128
		red[i] = (91881*v + 1<<15) >> 16
		blue[i] = (116130*v + 1<<15) >> 16
		ofRed[i] = -46802 * v
		ofBlue[i] = -22554*v + 1<<15
	}
	return red, blue, ofRed, ofBlue
}

// fromYCbCr is libjpeg's conversion (jdcolor.c).
func fromYCbCr(dst, luma, cb, cr []byte) {
	n := len(dst) / 3
	luma, cb, cr = luma[:n], cb[:n], cr[:n]
	for x := toRGBVector(dst, luma, cb, cr); x < n; x++ {
		y, u, v := int32(luma[x]), cb[x], cr[x]
		p := dst[3*x : 3*x+3 : 3*x+3]
		p[0] = clip(y + redOf[v])
		p[1] = clip(y + (greenOfBlue[u]+greenOfRed[v])>>16)
		p[2] = clip(y + blueOf[u])
	}
}

func clip(v int32) byte {
	if uint32(v) > 255 {
		v = ^v >> 31 & 255
	}
	return byte(v)
}
