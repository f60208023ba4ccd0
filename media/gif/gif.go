// Package gif decodes the first frame of a GIF file to the RGB bytes that Pillow makes of
// it: on the logical screen, around it the transparent colour or that of index 0,
// transparency on white.
package gif

import (
	"encoding/binary"
	"strings"

	"agentcli/internal/malformed"
	"agentcli/media/raster"
)

// Is tells by its first bytes whether a file is a GIF.
func Is(file []byte) bool {
	return len(file) >= 6 && (strings.HasPrefix(string(file[:6]), "GIF87a") || strings.HasPrefix(string(file[:6]), "GIF89a"))
}

// A code of 12 bits stands for fewer than 4,096 pixels: a smaller file cannot hold its frame.
const pixelsPerByte = 4096

// frame is the first image of a file.
type frame struct {
	screenW, screenH    int
	x, y, width, height int
	interlaced          bool
	palette             []byte // nil: grey
	transparent         int    // index, or -1
	minBits             int
	data                []byte // blocks of codes
}

// Decode reads a file. Errors are of a kind of malformed.
func Decode(file []byte, limits raster.Limits) (*raster.Image, error) {
	f, err := read(file)
	if err != nil {
		return nil, err
	}
	w, h := f.size()
	if err := limits.Size(w, h); err != nil {
		return nil, err
	}
	if f.width*f.height/pixelsPerByte > len(f.data) {
		return nil, raster.Truncated()
	}
	indices := make([]byte, f.width*f.height)
	if err := f.decode(indices); err != nil {
		return nil, err
	}
	colours := f.colours()
	img := raster.New(w, h)
	if around := colours[max(f.transparent, 0)]; around != [3]byte{} && (f.width < w || f.height < h) {
		for i := 0; i < len(img.Pix); i += 3 {
			copy(img.Pix[i:i+3], around[:])
		}
	}
	for i, y := range f.fileRows() {
		row := img.Pix[3*((f.y+y)*w+f.x):][:3*f.width]
		for x, v := range indices[i*f.width : (i+1)*f.width] {
			c := &colours[v]
			row[3*x], row[3*x+1], row[3*x+2] = c[0], c[1], c[2]
		}
	}
	return img, nil
}

// Size reads the size of an image, and no pixels.
func Size(file []byte, limits raster.Limits) (width, height int, err error) {
	f, err := read(file)
	if err != nil {
		return 0, 0, err
	}
	width, height = f.size()
	return width, height, limits.Size(width, height)
}

// size is that of the screen. A frame that leaves it makes it larger.
func (f *frame) size() (width, height int) {
	return max(f.screenW, f.x+f.width), max(f.screenH, f.y+f.height)
}

// colours are those of the indices; those beyond the palette are black.
func (f *frame) colours() *[256][3]byte {
	var all [256][3]byte
	for i := range all {
		switch {
		case i == f.transparent:
			all[i] = [3]byte{255, 255, 255}
		case f.palette == nil:
			all[i] = [3]byte{byte(i), byte(i), byte(i)}
		case 3*i+3 <= len(f.palette):
			all[i] = [3]byte(f.palette[3*i:])
		}
	}
	return &all
}

// reader walks a file; what is behind its end reads as zero, and sets cut.
type reader struct {
	b   []byte
	cut bool
}

func (r *reader) take(n int) []byte {
	if n > len(r.b) {
		r.b, r.cut = nil, true
		return make([]byte, n)
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

// block is a block of an extension, nil behind the last one.
func (r *reader) block() []byte {
	n := int(r.take(1)[0])
	if n == 0 {
		return nil
	}
	return r.take(n)
}

// read finds the first frame. A local palette takes the place of the global one.
func read(file []byte) (*frame, error) {
	le := binary.LittleEndian
	r := &reader{b: file}
	r.take(6)
	s := r.take(7)
	f := &frame{screenW: int(le.Uint16(s)), screenH: int(le.Uint16(s[2:])), transparent: -1}
	if s[4]&128 != 0 {
		f.palette = r.take(3 << (s[4]&7 + 1))
	}
	for !r.cut {
		switch r.take(1)[0] {
		case ';':
			return nil, malformed.Errorf(malformed.Missing, "it has no image")
		case '!':
			kind, first := r.take(1)[0], r.block()
			if kind == 0xf9 && len(first) >= 4 && first[0]&1 != 0 {
				f.transparent = int(first[3])
			}
			for b := first; b != nil && !r.cut; {
				b = r.block()
			}
		case ',':
			s := r.take(9)
			f.x, f.y, f.width, f.height = int(le.Uint16(s)), int(le.Uint16(s[2:])), int(le.Uint16(s[4:])), int(le.Uint16(s[6:]))
			f.interlaced = s[8]&64 != 0
			if s[8]&128 != 0 {
				f.palette = r.take(3 << (s[8]&7 + 1))
			}
			f.minBits = int(r.take(1)[0])
			f.data = r.b
			if r.cut {
				return nil, raster.Truncated()
			}
			if f.minBits > 12 {
				return nil, malformed.Field("code size", malformed.Range, "%d; at most 12 is possible", f.minBits)
			}
			return f, nil
		}
	}
	return nil, raster.Truncated()
}
