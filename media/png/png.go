// Package png decodes PNG files to the RGB bytes that Pillow makes of them: every colour
// type, depth and interlace, transparency on white. ICC profiles and gamma are ignored, as
// Pillow ignores them. Of an APNG it takes the default image.
package png

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/flate"

	"agentcli/internal/malformed"
	"agentcli/media/raster"
)

// Signature is what a PNG file begins with.
const Signature = "\x89PNG\r\n\x1a\n"

// Colour types of the header.
const (
	grey      = 0
	rgb       = 2
	palette   = 3
	greyAlpha = 4
	rgba      = 6
)

// Deflate makes at most 258 bytes of 2 bits: a smaller file cannot hold its pixels.
const deflateRatio = 1032

type decoder struct {
	width, height int
	depth, colour int
	interlaced    bool
	palette       [256][3]byte // transparency is on white already
	key           []uint16     // of tRNS, where the file has one colour that is transparent
	data          []byte       // of all IDAT chunks
	exif, xmp     []byte
}

// Decode reads a file. The image is not turned; orientation is that of its EXIF block.
// Errors are of a kind of malformed.
func Decode(file []byte, limits raster.Limits) (img *raster.Image, orientation int, err error) {
	var d decoder
	if err := d.chunks(file, limits); err != nil {
		return nil, 0, err
	}
	need := 0
	for _, p := range d.passes() {
		need += p.height * (1 + d.rowBytes(p.width))
	}
	if need/deflateRatio > len(d.data) {
		return nil, 0, raster.Truncated()
	}
	img = raster.New(d.width, d.height)
	if err := d.pixels(img); err != nil {
		return nil, 0, err
	}
	return img, raster.Orientation(d.exif, d.xmp), nil
}

// Size reads the size and the orientation of an image, and no pixels.
func Size(file []byte, limits raster.Limits) (width, height, orientation int, err error) {
	var d decoder
	if err := d.chunks(file, limits); err != nil {
		return 0, 0, 0, err
	}
	return d.width, d.height, raster.Orientation(d.exif, d.xmp), nil
}

// chunks reads everything but the pixels.
func (d *decoder) chunks(file []byte, limits raster.Limits) error {
	b := bytes.TrimPrefix(file, []byte(Signature))
	var plte, trns []byte
	for first := true; len(b) >= 8; first = false {
		n := binary.BigEndian.Uint32(b)
		name := string(b[4:8])
		body := b[8:]
		whole := uint64(n) <= uint64(len(body))
		if whole {
			body = body[:n]
		}
		if first != (name == "IHDR") {
			return malformed.Errorf(malformed.Syntax, "its first chunk is not the only IHDR")
		}
		switch name {
		case "IHDR", "PLTE", "tRNS":
			if !whole || len(b) < 12+int(n) {
				return raster.Truncated()
			}
			if crc32.ChecksumIEEE(b[4:8+n]) != binary.BigEndian.Uint32(b[8+n:]) {
				return malformed.Field(name, malformed.Mismatch, "its checksum is wrong")
			}
		}
		switch name {
		case "IHDR":
			if err := d.header(body, limits); err != nil {
				return err
			}
		case "PLTE":
			plte = body
		case "tRNS":
			trns = body
		case "IDAT":
			if d.data == nil {
				d.data = body[:len(body):len(body)] // the usual single chunk is not copied
			} else {
				d.data = append(d.data, body...)
			}
		case "eXIf":
			d.exif = body
		case "tEXt", "zTXt":
			if d.exif == nil {
				d.exif = rawProfile(name, body)
			}
		case "iTXt":
			if text, ok := bytes.CutPrefix(body, []byte("XML:com.adobe.xmp\x00\x00")); ok {
				d.xmp = text
			}
		}
		// What follows a damaged chunk is lost; the pixels may be complete.
		if name == "IEND" || !whole || len(b) < 12+int(n) {
			break
		}
		b = b[12+n:]
	}
	if d.width == 0 || d.data == nil {
		return raster.Truncated()
	}
	return d.colours(plte, trns)
}

func (d *decoder) header(b []byte, limits raster.Limits) error {
	if len(b) != 13 {
		return malformed.Field("IHDR", malformed.Range, "it has %d bytes, not 13", len(b))
	}
	width, height := binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])
	if width >= 1<<31 || height >= 1<<31 {
		return malformed.Field("IHDR", malformed.Range, "it has %d × %d pixels", width, height)
	}
	if err := limits.Size(int(width), int(height)); err != nil {
		return err
	}
	d.width, d.height, d.depth, d.colour = int(width), int(height), int(b[8]), int(b[9])
	ok := false
	switch d.colour {
	case grey:
		ok = d.depth == 1 || d.depth == 2 || d.depth == 4 || d.depth == 8 || d.depth == 16
	case palette:
		ok = d.depth == 1 || d.depth == 2 || d.depth == 4 || d.depth == 8
	case rgb, greyAlpha, rgba:
		ok = d.depth == 8 || d.depth == 16
	}
	if !ok {
		return malformed.Field("IHDR", malformed.Unsupported, "colour type %d with %d bits", d.colour, d.depth)
	}
	if b[10] != 0 || b[11] != 0 || b[12] > 1 {
		return malformed.Field("IHDR", malformed.Unsupported, "compression %d, filter %d, interlace %d", b[10], b[11], b[12])
	}
	d.interlaced = b[12] == 1
	return nil
}

// colours prepares the palette or the transparent colour.
func (d *decoder) colours(plte, trns []byte) error {
	switch d.colour {
	case palette:
		if len(plte) == 0 || len(plte) > 768 {
			return malformed.Field("PLTE", malformed.Range, "it has %d bytes; from 3 to 768 are possible", len(plte))
		}
		for i := range len(plte) / 3 {
			a := byte(255)
			if i < len(trns) {
				a = trns[i]
			}
			for c := range 3 {
				d.palette[i][c] = raster.OverWhite(plte[3*i+c], a)
			}
		}
		for i := len(plte) / 3; i < len(trns) && i < 256; i++ {
			for c := range 3 {
				d.palette[i][c] = raster.OverWhite(0, trns[i])
			}
		}
	case grey, rgb:
		if trns == nil {
			return nil
		}
		n := 1
		if d.colour == rgb {
			n = 3
		}
		if len(trns) < 2*n {
			return malformed.Field("tRNS", malformed.Range, "it has %d bytes, not %d", len(trns), 2*n)
		}
		for i := range n {
			d.key = append(d.key, binary.BigEndian.Uint16(trns[2*i:]))
		}
	}
	return nil
}

func (d *decoder) channels() int {
	return [7]int{grey: 1, rgb: 3, palette: 1, greyAlpha: 2, rgba: 4}[d.colour]
}

func (d *decoder) rowBytes(width int) int { return (width*d.channels()*d.depth + 7) / 8 }

// pass is one of the seven images of Adam7, or the image.
type pass struct{ x0, y0, dx, dy, width, height int }

func (d *decoder) passes() []pass {
	if !d.interlaced {
		return []pass{{0, 0, 1, 1, d.width, d.height}}
	}
	var all []pass
	for _, p := range []pass{{0, 0, 8, 8, 0, 0}, {4, 0, 8, 8, 0, 0}, {0, 4, 4, 8, 0, 0}, {2, 0, 4, 4, 0, 0},
		{0, 2, 2, 4, 0, 0}, {1, 0, 2, 2, 0, 0}, {0, 1, 1, 2, 0, 0}} {
		p.width, p.height = (d.width-p.x0+p.dx-1)/p.dx, (d.height-p.y0+p.dy-1)/p.dy
		if p.width > 0 && p.height > 0 {
			all = append(all, p)
		}
	}
	return all
}

// pixels inflates and unfilters row by row. Data behind the last row is not looked at.
func (d *decoder) pixels(img *raster.Image) error {
	// The header of zlib (RFC 1950). Its checksum stands behind the last row.
	if len(d.data) < 2 {
		return raster.Truncated()
	}
	if head := binary.BigEndian.Uint16(d.data); head>>8&15 != 8 || head%31 != 0 || head&0x20 != 0 {
		return malformed.Field("IDAT", malformed.Syntax, "%#04x is no header of zlib", head)
	}
	z := flate.NewReader(bytes.NewReader(d.data[2:]))
	size := (d.channels()*d.depth + 7) / 8 // bytes from a sample to its left neighbour's
	line := make([]byte, 3*d.width)
	for _, p := range d.passes() {
		n := d.rowBytes(p.width)
		// The filters look size bytes to the left: those are zero.
		above, row := make([]byte, size+n), make([]byte, size+n)
		for y := range p.height {
			// The byte of the filter is read into the margin.
			if _, err := io.ReadFull(z, row[size-1:]); err != nil {
				if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
					return raster.Truncated()
				}
				return malformed.Field("IDAT", malformed.Syntax, "%w", err)
			}
			filter := row[size-1]
			row[size-1] = 0
			if err := unfilter(filter, row, above, size); err != nil {
				return err
			}
			at := 3 * ((p.y0+y*p.dy)*d.width + p.x0)
			if p.dx == 1 {
				d.expand(img.Pix[at:at+3*p.width], row[size:])
			} else {
				d.expand(line[:3*p.width], row[size:])
				for x := range p.width {
					copy(img.Pix[at+3*x*p.dx:], line[3*x:3*x+3])
				}
			}
			above, row = row, above
		}
	}
	return nil
}
