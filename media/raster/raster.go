// Package raster is the form that every image decoder of agentcli writes: RGB bytes with a
// size, the limits that a decoder holds itself to, transparency on white, and the
// orientation of EXIF. It imports internal/malformed, internal/setting and the
// standard library only.
package raster

import (
	"crypto/sha256"
	"encoding/hex"

	"agentcli/internal/malformed"
	"agentcli/internal/setting"
)

// Image is a picture in RGB.
type Image struct {
	Width, Height int
	Pix           []byte // [Height, Width, 3], row by row, without padding
}

// New is a black image.
func New(width, height int) *Image {
	return &Image{Width: width, Height: height, Pix: make([]byte, 3*width*height)}
}

// Hash is the SHA-256 of the pixels in hexadecimal, without the size: in Python
// hashlib.sha256(image.tobytes()).hexdigest() of a PIL image in RGB.
func (m *Image) Hash() string {
	sum := sha256.Sum256(m.Pix)
	return hex.EncodeToString(sum[:])
}

// Crop copies the rectangle from (x0, y0) up to, not including, (x1, y1). A rectangle that
// is empty or leaves the image is an error of kind malformed.Range.
func (m *Image) Crop(x0, y0, x1, y1 int) (*Image, error) {
	if x0 < 0 || y0 < 0 || x1 > m.Width || y1 > m.Height || x0 >= x1 || y0 >= y1 {
		return nil, malformed.Field("box", malformed.Range, "[%d, %d, %d, %d] is no rectangle within %d × %d pixels",
			x0, y0, x1, y1, m.Width, m.Height)
	}
	out := New(x1-x0, y1-y0)
	for y := range out.Height {
		from := 3 * ((y0+y)*m.Width + x0)
		copy(out.Pix[3*y*out.Width:3*(y+1)*out.Width], m.Pix[from:])
	}
	return out, nil
}

// Oriented is the image as a viewer shows it, by the EXIF tag Orientation: 1 to 8. Any
// other number, and 1, leaves it as it is. An image that is turned is a new one.
func (m *Image) Oriented(orientation int) *Image {
	if orientation < 2 || orientation > 8 {
		return m
	}
	out := &Image{Width: m.Width, Height: m.Height, Pix: make([]byte, len(m.Pix))}
	if Turned(orientation) {
		out.Width, out.Height = m.Height, m.Width
	}
	// Where the first pixel of a source row goes, and how far it is to the next one.
	w, h := out.Width, out.Height
	for y := range m.Height {
		var start, step int
		switch orientation {
		case 2:
			start, step = y*w+w-1, -1
		case 3:
			start, step = (h-1-y)*w+w-1, -1
		case 4:
			start, step = (h-1-y)*w, 1
		case 5:
			start, step = y, w
		case 6:
			start, step = w-1-y, w
		case 7:
			start, step = (h-1)*w+w-1-y, -w
		case 8:
			start, step = (h-1)*w+y, -w
		}
		row := m.Pix[3*y*m.Width : 3*(y+1)*m.Width]
		for x, d := 0, 3*start; x < len(row); x, d = x+3, d+3*step {
			out.Pix[d], out.Pix[d+1], out.Pix[d+2] = row[x], row[x+1], row[x+2]
		}
	}
	return out
}

// Turned reports whether an orientation exchanges width and height.
func Turned(orientation int) bool { return orientation >= 5 && orientation <= 8 }

// OverWhite is a colour of opacity a over white, rounded as PIL's alpha_composite does.
func OverWhite(s, a byte) byte {
	switch a {
	case 0:
		return 255
	case 255:
		return s
	}
	t := uint32(s)*uint32(a)*128 + 255*(255-uint32(a))*128 + 0x80<<7
	return byte((t>>8 + t) >> 8 >> 7)
}

// Limits are what an image may have at most.
type Limits struct {
	Pixels int // width times height
}

// Size refuses an image that is too large, or empty, by its header.
func (l Limits) Size(width, height int) error {
	if width <= 0 || height <= 0 {
		return malformed.Errorf(malformed.Range, "it has %d × %d pixels", width, height)
	}
	if width > l.Pixels/height {
		return malformed.Errorf(malformed.Range, "%w", setting.Errorf("it has %d × %d pixels, more than %d in all; raise %s",
			width, height, l.Pixels, setting.Name("MaxImagePixels")))
	}
	return nil
}

// Truncated is the error of a file that ends before its pixels do.
func Truncated() error { return malformed.Errorf(malformed.Truncated, "the file is cut off") }
