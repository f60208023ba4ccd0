// Package jpeg decodes JPEG files to the RGB bytes that Pillow makes of them with
// libjpeg-turbo: the same inverse DCT, triangle upsampling and integer colour conversion.
// Baseline, extended and progressive files of 8 bits with Huffman codes are read, in grey,
// YCbCr, RGB, CMYK and YCCK. Arithmetic codes, lossless and hierarchical files and 12 bits
// are refused by name.
package jpeg

import (
	"bytes"
	"encoding/binary"

	"agentcli/internal/malformed"
	"agentcli/media/raster"
)

// Signature is what a JPEG file begins with.
const Signature = "\xff\xd8\xff"

// Markers.
const (
	sof0  = 0xc0
	sof1  = 0xc1
	sof2  = 0xc2
	dht   = 0xc4
	jpg   = 0xc8
	dac   = 0xcc
	sof15 = 0xcf
	rst0  = 0xd0
	rst7  = 0xd7
	soi   = 0xd8
	eoi   = 0xd9
	sos   = 0xda
	dqt   = 0xdb
	dri   = 0xdd
	app0  = 0xe0
	app1  = 0xe1
	app14 = 0xee
)

// A file may go over its blocks this often in all. Real ones take 12 scans or fewer; a few
// bytes of a scan can name all blocks of an image, so scans have to be bounded.
const maxVisits = 20

// component is one of the colours of a frame.
type component struct {
	id            byte
	h, v          int // sampling factors
	table         int // of quantisation
	width, height int // samples that are real
	blocksX       int // blocks in a row of the image alone
	blocksY       int
	strideBlocks  int // blocks in a row, filled up to whole MCUs
	rowsBlocks    int
	quant         *[64]uint16 // as it was when the component's first scan began
	plane         []byte      // [8·rowsBlocks, 8·strideBlocks]
	coefficients  []int16     // [rowsBlocks·strideBlocks, 64] in natural order, where several scans make them
	dc, ac        int         // Huffman tables of this scan
	prediction    int32
	seen          bool      // a scan has had it
	missing       [64]uint8 // bits of each coefficient that no scan has had yet, in zigzag order
}

type decoder struct {
	file        []byte
	at          int
	limits      raster.Limits
	width       int
	height      int
	progressive bool
	components  []component
	maxH, maxV  int
	mcusX       int
	mcusY       int
	quant       [4]*[64]uint16
	huffman     [2][4]*huffman // DC, AC
	restart     int            // MCUs between two restart markers; 0: none
	jfif        bool
	adobe       int // transform of the Adobe marker, -1 without one
	exif, xmp   []byte
	sizeOnly    bool
	visits      int // of blocks by scans
	blocks      int
	bits        bitReader
}

// Decode reads a file. The image is not turned; orientation is that of its EXIF block.
// Errors are of a kind of malformed.
func Decode(file []byte, limits raster.Limits) (img *raster.Image, orientation int, err error) {
	d := &decoder{file: file, limits: limits, adobe: -1}
	if err := d.markers(); err != nil {
		return nil, 0, err
	}
	img, err = d.output()
	if err != nil {
		return nil, 0, err
	}
	return img, raster.Orientation(d.exif, d.xmp), nil
}

// Size reads the size and the orientation of an image, and no pixels.
func Size(file []byte, limits raster.Limits) (width, height, orientation int, err error) {
	d := &decoder{file: file, limits: limits, adobe: -1, sizeOnly: true}
	if err := d.markers(); err != nil {
		return 0, 0, 0, err
	}
	return d.width, d.height, raster.Orientation(d.exif, d.xmp), nil
}

// marker skips to the next marker and gives its code, 0 at the end of the file.
func (d *decoder) marker() byte {
	for d.at+1 < len(d.file) {
		if d.file[d.at] == 0xff && d.file[d.at+1] != 0 && d.file[d.at+1] != 0xff {
			d.at += 2
			return d.file[d.at-1]
		}
		d.at++
	}
	d.at = len(d.file)
	return 0
}

// markers reads the file up to its end marker or, of a file of one scan, to its last pixel;
// for the size alone, to its first scan.
func (d *decoder) markers() error {
	for {
		m := d.marker()
		switch {
		case m == 0:
			return raster.Truncated()
		case m == eoi:
			return d.complete()
		case m == soi || m >= rst0 && m <= rst7 || m == 1:
			continue
		}
		if d.at+2 > len(d.file) {
			return raster.Truncated()
		}
		n := int(binary.BigEndian.Uint16(d.file[d.at:]))
		if n < 2 || d.at+n > len(d.file) {
			return raster.Truncated()
		}
		body := d.file[d.at+2 : d.at+n]
		d.at += n
		var err error
		switch {
		case m == sos && d.sizeOnly && d.components != nil:
			return nil
		case m == sos:
			done, serr := d.scan(body)
			if done || serr != nil {
				return serr
			}
		case m == dht:
			err = readHuffman(body, &d.huffman)
		case m == dqt:
			err = d.quantisation(body)
		case m == dri:
			if len(body) < 2 {
				return raster.Truncated()
			}
			d.restart = int(binary.BigEndian.Uint16(body))
		case m >= sof0 && m <= sof15 && m != jpg && m != dac:
			err = d.frame(m, body)
		case m == dac:
			err = malformed.Field("DAC", malformed.Unsupported, "arithmetic codes; write the file again with Huffman codes")
		default:
			d.application(m, body)
		}
		if err != nil {
			return err
		}
	}
}

// application reads what decides about colours and orientation.
func (d *decoder) application(m byte, body []byte) {
	switch {
	case m == app0 && bytes.HasPrefix(body, []byte("JFIF\x00")):
		d.jfif = true
	case m == app14 && bytes.HasPrefix(body, []byte("Adobe")) && len(body) >= 12:
		d.adobe = int(body[11])
	case m == app1 && bytes.HasPrefix(body, []byte("Exif\x00\x00")) && d.exif == nil:
		d.exif = body
	case m == app1 && bytes.HasPrefix(body, []byte("http://ns.adobe.com/xap/1.0/\x00")):
		d.xmp = body
	}
}

func (d *decoder) quantisation(b []byte) error {
	for len(b) > 0 {
		id, wide := b[0]&15, b[0]>>4
		size := 64 * (1 + int(wide))
		if id > 3 || wide > 1 {
			return malformed.Field("DQT", malformed.Range, "table %d of precision %d", id, wide)
		}
		if b = b[1:]; len(b) < size {
			return malformed.Field("DQT", malformed.Truncated, "a table has %d bytes, not %d", len(b), size)
		}
		t := new([64]uint16)
		for i := range t {
			if wide == 1 {
				t[zigzag[i]] = binary.BigEndian.Uint16(b[2*i:])
			} else {
				t[zigzag[i]] = uint16(b[i])
			}
		}
		d.quant[id] = t
		b = b[size:]
	}
	return nil
}

var unsupported = map[byte]string{3: "a lossless frame", 5: "a hierarchical frame", 6: "a hierarchical frame", 7: "a hierarchical frame",
	9: "arithmetic codes", 10: "arithmetic codes", 11: "a lossless frame", 13: "a hierarchical frame", 14: "a hierarchical frame",
	15: "a hierarchical frame"}

// frame reads the size and the components of the image.
func (d *decoder) frame(m byte, b []byte) error {
	if what, no := unsupported[m-sof0]; no {
		return malformed.Field("SOF", malformed.Unsupported, "%s; write the file again as baseline or progressive", what)
	}
	if d.components != nil {
		return malformed.Field("SOF", malformed.Duplicate, "there are two frames")
	}
	if len(b) < 6 || len(b) < 6+3*int(b[5]) {
		return raster.Truncated()
	}
	if b[0] != 8 {
		return malformed.Field("SOF", malformed.Unsupported, "samples of %d bits; 8 are supported", b[0])
	}
	d.height, d.width = int(binary.BigEndian.Uint16(b[1:])), int(binary.BigEndian.Uint16(b[3:]))
	if err := d.limits.Size(d.width, d.height); err != nil {
		return err
	}
	n := int(b[5])
	if n != 1 && n != 3 && n != 4 {
		return malformed.Field("SOF", malformed.Unsupported, "%d components; 1, 3 and 4 are supported", n)
	}
	d.progressive = m == sof2
	all := make([]component, n)
	d.maxH, d.maxV = 1, 1
	for i := range all {
		c := b[6+3*i:]
		all[i] = component{id: c[0], h: int(c[1] >> 4), v: int(c[1] & 15), table: int(c[2])}
		if all[i].h < 1 || all[i].h > 4 || all[i].v < 1 || all[i].v > 4 || all[i].table > 3 {
			return malformed.Field("SOF", malformed.Range, "component %d has sampling %d × %d, table %d", i, all[i].h, all[i].v, all[i].table)
		}
		d.maxH, d.maxV = max(d.maxH, all[i].h), max(d.maxV, all[i].v)
	}
	d.mcusX, d.mcusY = ceil(d.width, 8*d.maxH), ceil(d.height, 8*d.maxV)
	for i := range all {
		c := &all[i]
		if d.maxH%c.h != 0 || d.maxV%c.v != 0 {
			return malformed.Field("SOF", malformed.Unsupported, "component %d has sampling %d × %d of %d × %d", i, c.h, c.v, d.maxH, d.maxV)
		}
		c.width, c.height = ceil(d.width*c.h, d.maxH), ceil(d.height*c.v, d.maxV)
		c.blocksX, c.blocksY = ceil(c.width, 8), ceil(c.height, 8)
		c.strideBlocks, c.rowsBlocks = d.mcusX*c.h, d.mcusY*c.v
		d.blocks += c.blocksX * c.blocksY
	}
	// Each block takes a bit or more.
	if d.blocks/8 > len(d.file)-d.at {
		return raster.Truncated()
	}
	d.components = all
	return nil
}

func ceil(a, b int) int { return (a + b - 1) / b }

// unknown is the number of missing bits of a coefficient that no scan has had at all.
const unknown = 255

// smoothed is how many coefficients libjpeg guesses from the neighbours of a block where
// progressive scans have not made them exact.
const smoothed = 10

// complete refuses a file that has ended before all its components were seen, or before the
// low coefficients were exact: libjpeg would guess those.
func (d *decoder) complete() error {
	if d.components == nil {
		return raster.Truncated()
	}
	for i := range d.components {
		if !d.components[i].seen {
			return raster.Truncated()
		}
		for _, bits := range d.components[i].missing[:smoothed] {
			if bits != 0 {
				return raster.Truncated()
			}
		}
	}
	return nil
}
