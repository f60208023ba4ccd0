// Package webp decodes WebP files, lossy and lossless, to the RGB bytes that Pillow makes of
// them with libwebp: of an animation its first frame, transparency on white. The lossy
// codec is golang.org/x/image/vp8; the lossless one, the container, the upsampling of chroma
// and the colours, in which that module differs from libwebp, are here.
package webp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"

	"golang.org/x/image/vp8"

	"agentcli/internal/malformed"
	"agentcli/media/raster"
)

// Is tells by its first bytes whether a file is a WebP.
func Is(file []byte) bool {
	return len(file) >= 12 && string(file[:4]) == "RIFF" && string(file[8:12]) == "WEBP"
}

// chunk is a part of a RIFF file.
type chunk struct {
	name string
	data []byte
}

// chunks cuts b; the last one may be cut off.
func chunks(b []byte) (all []chunk) {
	for len(b) >= 8 {
		n := uint64(binary.LittleEndian.Uint32(b[4:]))
		c := chunk{string(b[:4]), b[8:]}
		if n > uint64(len(c.data)) {
			return append(all, c)
		}
		c.data = c.data[:n]
		all = append(all, c)
		if n += n & 1; n > uint64(len(b)-8) {
			return all
		}
		b = b[8+n:]
	}
	return all
}

func find(all []chunk, name string) []byte {
	for _, c := range all {
		if c.name == name {
			return c.data
		}
	}
	return nil
}

func uint24(b []byte) int { return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 }

// Flags of a VP8X chunk.
const (
	hasAnimation = 1 << 1
	hasAlpha     = 1 << 4
)

// Decode reads a file. The image is not turned; orientation is that of its EXIF block.
// Errors are of a kind of malformed.
func Decode(file []byte, limits raster.Limits) (img *raster.Image, orientation int, err error) {
	all := chunks(file[12:])
	if len(all) == 0 {
		return nil, 0, raster.Truncated()
	}
	orientation = raster.Orientation(find(all, "EXIF"), find(all, "XMP "))
	if all[0].name != "VP8X" {
		img, err = still(all, limits, 0, 0)
		return img, orientation, err
	}
	head := all[0].data
	if len(head) < 10 {
		return nil, 0, raster.Truncated()
	}
	width, height := uint24(head[4:])+1, uint24(head[7:])+1
	if err := limits.Size(width, height); err != nil {
		return nil, 0, err
	}
	if head[0]&hasAnimation == 0 {
		img, err = still(all, limits, width, height)
		return img, orientation, err
	}
	frame := find(all, "ANMF")
	if len(frame) < 16 {
		return nil, 0, raster.Truncated()
	}
	x, y := 2*uint24(frame), 2*uint24(frame[3:])
	w, h := uint24(frame[6:])+1, uint24(frame[9:])+1
	if x+w > width || y+h > height {
		return nil, 0, malformed.Field("ANMF", malformed.Range, "the first frame leaves the canvas of %d × %d pixels", width, height)
	}
	part, err := still(chunks(frame[16:]), limits, w, h)
	if err != nil || w == width && h == height {
		return part, orientation, err
	}
	// Around the frame is nothing: white where there is transparency, else black.
	img = raster.New(width, height)
	if head[0]&hasAlpha != 0 {
		for i := range img.Pix {
			img.Pix[i] = 255
		}
	}
	for row := range h {
		copy(img.Pix[3*((y+row)*width+x):], part.Pix[3*row*w:3*(row+1)*w])
	}
	return img, orientation, nil
}

// Size reads the size and the orientation of an image, and no pixels.
func Size(file []byte, limits raster.Limits) (width, height, orientation int, err error) {
	all := chunks(file[12:])
	if len(all) == 0 {
		return 0, 0, 0, raster.Truncated()
	}
	if head := all[0].data; all[0].name == "VP8X" {
		if len(head) < 10 {
			return 0, 0, 0, raster.Truncated()
		}
		width, height = uint24(head[4:])+1, uint24(head[7:])+1
	} else if width, height, err = stillSize(all); err != nil {
		return 0, 0, 0, err
	}
	return width, height, raster.Orientation(find(all, "EXIF"), find(all, "XMP ")), limits.Size(width, height)
}

// stillSize is the size of one frame.
func stillSize(all []chunk) (width, height int, err error) {
	for _, c := range all {
		switch c.name {
		case "VP8 ":
			head, err := vp8Header(vp8.NewDecoder(), c.data)
			return head.Width, head.Height, err
		case "VP8L":
			width, height, _, err = losslessHeader(c.data)
			return width, height, err
		}
	}
	return 0, 0, malformed.Errorf(malformed.Missing, "it has no image")
}

// still decodes one frame. Its size has to be the given one, where one is given.
func still(all []chunk, limits raster.Limits, width, height int) (*raster.Image, error) {
	check := func(w, h int) error {
		if width != 0 && (w != width || h != height) {
			return malformed.Errorf(malformed.Mismatch, "its header says %d × %d pixels, its frame %d × %d", width, height, w, h)
		}
		return limits.Size(w, h)
	}
	for _, c := range all {
		switch c.name {
		case "VP8 ":
			return lossy(c.data, find(all, "ALPH"), check)
		case "VP8L":
			return lossless(c.data, check)
		}
	}
	return nil, malformed.Errorf(malformed.Missing, "it has no image")
}

// tooMuchData is vp8's error for a frame whose last partition has 1<<24 bytes or more.
const tooMuchData = "vp8: too much data to decode"

// fault puts a codec's error under a kind.
func fault(err error) error {
	if err.Error() == tooMuchData {
		return malformed.Errorf(malformed.Unsupported,
			"its lossy frame has a last partition of 16 MiB or more, which is not decoded; convert the file to PNG or JPEG")
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return raster.Truncated()
	}
	return malformed.Errorf(malformed.Syntax, "%w", err)
}

// losslessHeader reads the five bytes in front of a lossless image.
func losslessHeader(data []byte) (width, height int, alpha bool, err error) {
	if len(data) < 5 {
		return 0, 0, false, raster.Truncated()
	}
	bits := binary.LittleEndian.Uint32(data[1:])
	if data[0] != 0x2f || bits>>29 != 0 {
		return 0, 0, false, malformed.Errorf(malformed.Syntax, "its lossless image has no header of version 0")
	}
	return int(bits&0x3fff) + 1, int(bits>>14&0x3fff) + 1, bits>>28&1 == 1, nil
}

func lossless(data []byte, check func(w, h int) error) (*raster.Image, error) {
	w, h, alpha, err := losslessHeader(data)
	if err != nil {
		return nil, err
	}
	if err := check(w, h); err != nil {
		return nil, err
	}
	pix, err := vp8l(data[5:], w, h)
	if err != nil {
		return nil, err
	}
	img := raster.New(w, h)
	for i, v := range pix {
		d := img.Pix[3*i : 3*i+3 : 3*i+3]
		d[0], d[1], d[2] = byte(v>>16), byte(v>>8), byte(v)
		if a := byte(v >> 24); alpha && a != 255 {
			d[0], d[1], d[2] = raster.OverWhite(d[0], a), raster.OverWhite(d[1], a), raster.OverWhite(d[2], a)
		}
	}
	return img, nil
}

// vp8Header gives a decoder its data, and reads the frame's header.
func vp8Header(d *vp8.Decoder, data []byte) (head vp8.FrameHeader, err error) {
	d.Init(bytes.NewReader(data), len(data))
	head, err = d.DecodeFrameHeader()
	if err != nil {
		return head, fault(err)
	}
	if !head.KeyFrame {
		return head, malformed.Errorf(malformed.Syntax, "its frame is not a key frame")
	}
	return head, nil
}

func lossy(data, alph []byte, check func(w, h int) error) (*raster.Image, error) {
	d := vp8.NewDecoder()
	head, err := vp8Header(d, data)
	if err != nil {
		return nil, err
	}
	if err := check(head.Width, head.Height); err != nil {
		return nil, err
	}
	// A macroblock takes more than a bit.
	if head.Width*head.Height/(256*8) > len(data) {
		return nil, raster.Truncated()
	}
	m, err := d.DecodeFrame()
	if err != nil {
		return nil, fault(err)
	}
	img := raster.New(head.Width, head.Height)
	toRGB(img, m)
	if alph == nil {
		return img, nil
	}
	alpha, err := opacity(alph, head.Width, head.Height)
	if err != nil {
		return nil, err
	}
	for i, a := range alpha {
		if a != 255 {
			for c := range 3 {
				img.Pix[3*i+c] = raster.OverWhite(img.Pix[3*i+c], a)
			}
		}
	}
	return img, nil
}

// opacity decodes an ALPH chunk: [height, width].
func opacity(b []byte, width, height int) ([]byte, error) {
	if len(b) < 1 {
		return nil, raster.Truncated()
	}
	head, b := b[0], b[1:]
	var alpha []byte
	switch head & 3 {
	case 0:
		if len(b) < width*height {
			return nil, raster.Truncated()
		}
		alpha = bytes.Clone(b[:width*height])
	case 1:
		// The values are the green of a lossless image without a header.
		pix, err := vp8l(b, width, height)
		if err != nil {
			return nil, err
		}
		alpha = make([]byte, width*height)
		for i, v := range pix {
			alpha[i] = byte(v >> 8)
		}
	default:
		return nil, malformed.Field("ALPH", malformed.Unsupported, "compression %d", head&3)
	}
	unfilter(alpha, width, head>>2&3)
	return alpha, nil
}

// unfilter undoes the prediction of values from their neighbours: left, above, or left +
// above − corner.
func unfilter(a []byte, width int, filter byte) {
	if filter == 0 {
		return
	}
	for i := 1; i < width; i++ {
		a[i] += a[i-1]
	}
	for i := width; i < len(a); i++ {
		switch {
		case filter == 2 || i%width == 0:
			a[i] += a[i-width]
		case filter == 1:
			a[i] += a[i-1]
		default:
			v := int(a[i-1]) + int(a[i-width]) - int(a[i-width-1])
			a[i] += byte(min(max(v, 0), 255))
		}
	}
}
