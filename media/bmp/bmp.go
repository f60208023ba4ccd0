// Package bmp decodes Windows and OS/2 bitmaps to the RGB bytes that Pillow makes of them:
// 1, 4, 8, 16, 24 and 32 bits, run lengths, bit fields, both directions, transparency on
// white.
package bmp

import (
	"encoding/binary"

	"agentcli/internal/malformed"
	"agentcli/media/raster"
)

// Signature is what a BMP file begins with.
const Signature = "BM"

// Compressions of the header.
const (
	plain     = 0
	rle8      = 1
	rle4      = 2
	bitFields = 3
)

// A layout is where the channels of a pixel are, as byte offsets; a is -1 where the pixel is
// opaque.
type layout struct{ r, g, b, a int }

// layouts are those of 32 bits, by the masks for red, green, blue and alpha.
var layouts = map[[4]uint32]layout{
	{0xff0000, 0xff00, 0xff, 0}:          {2, 1, 0, -1},
	{0xff000000, 0xff0000, 0xff00, 0}:    {3, 2, 1, -1},
	{0xff000000, 0xff00, 0xff, 0}:        {3, 1, 0, -1},
	{0xff000000, 0xff0000, 0xff00, 0xff}: {3, 2, 1, 0},
	{0xff, 0xff00, 0xff0000, 0xff000000}: {0, 1, 2, 3},
	{0xff0000, 0xff00, 0xff, 0xff000000}: {2, 1, 0, 3},
	{0xff000000, 0xff00, 0xff, 0xff0000}: {3, 1, 0, 2},
	{0, 0, 0, 0}:                         {2, 1, 0, 3},
}

type decoder struct {
	width, height int
	topDown       bool
	bits          int
	compression   uint32
	layout        layout
	greenBits     int // of 16 bits: 5 or 6
	palette       [256][3]byte
	pixels        int // where they begin in the file
}

// Decode reads a file. Errors are of a kind of malformed.
func Decode(file []byte, limits raster.Limits) (*raster.Image, error) {
	var d decoder
	if err := d.header(file, limits); err != nil {
		return nil, err
	}
	if d.pixels > len(file) {
		return nil, raster.Truncated()
	}
	if d.compression == rle8 || d.compression == rle4 {
		return d.runs(file)
	}
	stride := (d.width*d.bits + 31) / 32 * 4
	if (len(file)-d.pixels)/stride < d.height {
		return nil, raster.Truncated()
	}
	img := raster.New(d.width, d.height)
	for y := range d.height {
		row := file[d.pixels+y*stride:][:stride]
		d.expand(d.row(img, y), row)
	}
	return img, nil
}

// Size reads the size of an image, and no pixels.
func Size(file []byte, limits raster.Limits) (width, height int, err error) {
	var d decoder
	if err := d.header(file, limits); err != nil {
		return 0, 0, err
	}
	return d.width, d.height, nil
}

// row is the y-th one of the file.
func (d *decoder) row(img *raster.Image, y int) []byte {
	if !d.topDown {
		y = d.height - 1 - y
	}
	return img.Pix[3*y*d.width : 3*(y+1)*d.width]
}

func (d *decoder) header(file []byte, limits raster.Limits) error {
	const fileHeader = 14
	if len(file) < fileHeader+12 {
		return raster.Truncated()
	}
	le := binary.LittleEndian
	size := le.Uint32(file[fileHeader:])
	switch size {
	case 12, 40, 52, 56, 64, 108, 124:
	default:
		return malformed.Field("header size", malformed.Unsupported, "%d; 12, 40, 52, 56, 64, 108 and 124 are known", size)
	}
	end := fileHeader + int(size)
	if len(file) < end {
		return raster.Truncated()
	}
	h := file[fileHeader:end]
	colours, entry := uint32(0), 4
	var width, height uint32
	if size == 12 {
		width, height = uint32(le.Uint16(h[4:])), uint32(le.Uint16(h[6:]))
		d.bits, entry = int(le.Uint16(h[10:])), 3
	} else {
		width, height = le.Uint32(h[4:]), le.Uint32(h[8:])
		if d.topDown = h[11] == 0xff; d.topDown {
			height = -height
		}
		d.bits, d.compression, colours = int(le.Uint16(h[14:])), le.Uint32(h[16:]), le.Uint32(h[32:])
	}
	if width >= 1<<31 || height >= 1<<31 {
		return malformed.Errorf(malformed.Range, "it has %d × %d pixels", width, height)
	}
	if err := limits.Size(int(width), int(height)); err != nil {
		return err
	}
	d.width, d.height = int(width), int(height)
	switch d.bits {
	case 1, 4, 8, 16, 24, 32:
	default:
		return malformed.Field("bits", malformed.Unsupported, "%d a pixel", d.bits)
	}
	if colours == 0 {
		colours = 1 << min(d.bits, 30)
	}
	return d.coding(file, h, end, colours, entry)
}

// coding reads masks or palette, which follow the header, and where the pixels are.
func (d *decoder) coding(file, h []byte, end int, colours uint32, entry int) error {
	le := binary.LittleEndian
	d.pixels = int(le.Uint32(file[10:]))
	if d.bits <= 8 && d.pixels == end {
		d.pixels += entry * int(min(colours, 1<<16))
	}
	d.layout, d.greenBits = layout{2, 1, 0, -1}, 5
	switch {
	case d.compression == plain, d.compression == rle8 && d.bits == 8, d.compression == rle4 && d.bits == 4:
	case d.compression == bitFields && d.bits >= 16:
		masks := file[end:]
		if len(h) >= 52 {
			masks = h[40:]
		} else {
			end += 12
		}
		if len(masks) < 12 {
			return raster.Truncated()
		}
		var m [4]uint32
		for i := range 3 {
			m[i] = le.Uint32(masks[4*i:])
		}
		if len(h) >= 56 {
			m[3] = le.Uint32(masks[12:])
		}
		if err := d.masks(m); err != nil {
			return err
		}
	default:
		return malformed.Field("compression", malformed.Unsupported, "%d with %d bits a pixel", d.compression, d.bits)
	}
	if d.bits <= 8 {
		if colours > 1<<16 {
			return malformed.Field("colours", malformed.Range, "%d", colours)
		}
		table := file[end:]
		for i := range min(int(colours), 256, len(table)/entry) {
			d.palette[i] = [3]byte{table[entry*i+2], table[entry*i+1], table[entry*i]}
		}
		end += entry * int(colours)
	}
	if d.pixels == 0 {
		d.pixels = end
	}
	return nil
}

func (d *decoder) masks(m [4]uint32) error {
	known := true
	switch three := [3]uint32(m[:3]); d.bits {
	case 32:
		d.layout, known = layouts[m]
	case 24:
		known = three == [3]uint32{0xff0000, 0xff00, 0xff}
	case 16:
		known = three == [3]uint32{0xf800, 0x7e0, 0x1f} || three == [3]uint32{0x7c00, 0x3e0, 0x1f}
		if three[0] == 0xf800 {
			d.greenBits = 6
		}
	}
	if !known {
		return malformed.Field("masks", malformed.Unsupported, "%x of %d bits", m, d.bits)
	}
	return nil
}

// expand turns a row of the file into RGB.
func (d *decoder) expand(dst, src []byte) {
	switch d.bits {
	case 1, 4, 8:
		per := 8 / d.bits
		for x := range d.width {
			i := src[x/per] >> (8 - d.bits - x%per*d.bits) & (1<<d.bits - 1)
			copy(dst[3*x:3*x+3], d.palette[i][:])
		}
	case 16:
		green := 1<<d.greenBits - 1
		for x := range d.width {
			v := int(src[2*x]) | int(src[2*x+1])<<8
			dst[3*x] = byte((v >> (5 + d.greenBits) & 31) * 255 / 31)
			dst[3*x+1] = byte((v >> 5 & green) * 255 / green)
			dst[3*x+2] = byte((v & 31) * 255 / 31)
		}
	case 24:
		for x := 0; x < len(dst); x += 3 {
			dst[x], dst[x+1], dst[x+2] = src[x+2], src[x+1], src[x]
		}
	case 32:
		l := d.layout
		for x := range d.width {
			s, a := src[4*x:4*x+4], byte(255)
			if l.a >= 0 {
				a = s[l.a]
			}
			dst[3*x], dst[3*x+1], dst[3*x+2] = raster.OverWhite(s[l.r], a), raster.OverWhite(s[l.g], a), raster.OverWhite(s[l.b], a)
		}
	}
}

// runs decodes run lengths into indices, in the order of the file. What a jump or the end
// of a line leaves out has index 0.
func (d *decoder) runs(file []byte) (*raster.Image, error) {
	total := d.width * d.height
	// Four bytes jump over 255 rows and pixels at most, two make 255 pixels.
	if (len(file)-d.pixels+3)/2*(255*(d.width+1)) < total {
		return nil, raster.Truncated()
	}
	indices := make([]byte, total)
	at, x, n := d.pixels, 0, 0 // in the file, in the row as the file counts, of pixels made
	for n < total && at+2 <= len(file) {
		count, value := int(file[at]), file[at+1]
		at += 2
		switch {
		case count > 0:
			count = min(count, max(0, d.width-x), total-n)
			for i := range count {
				indices[n+i] = nibble(value, i, d.compression == rle4)
			}
			n, x = n+count, x+count
		case value == 0: // end of line
			n, x = (n+d.width-1)/d.width*d.width, 0
		case value == 1: // end of bitmap
			at = len(file)
		case value == 2: // jump
			if at+2 > len(file) {
				return nil, raster.Truncated()
			}
			n = min(total, n+int(file[at])+int(file[at+1])*d.width)
			x = n % d.width
			at += 2
		default: // as they are
			count := min(int(value), total-n)
			bytes := count
			if d.compression == rle4 {
				bytes = (count + 1) / 2
			}
			if at+bytes > len(file) {
				return nil, raster.Truncated()
			}
			for i := range count {
				if d.compression == rle4 {
					indices[n+i] = nibble(file[at+i/2], i, true)
				} else {
					indices[n+i] = file[at+i]
				}
			}
			n, x, at = n+count, x+int(value), at+bytes
			at += at % 2 // padded to an even place in the file
		}
	}
	if n < total {
		return nil, raster.Truncated()
	}
	img := raster.New(d.width, d.height)
	for y := range d.height {
		row := d.row(img, y)
		for i, v := range indices[y*d.width : (y+1)*d.width] {
			copy(row[3*i:3*i+3], d.palette[v][:])
		}
	}
	return img, nil
}

// nibble is the i-th of the pixels that a byte of a run stands for.
func nibble(b byte, i int, halves bool) byte {
	switch {
	case !halves:
		return b
	case i%2 == 0:
		return b >> 4
	}
	return b & 15
}
