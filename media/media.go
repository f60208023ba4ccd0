// Package media decodes the images of datasets, tools and servers to RGB pixels that equal
// Pillow's. The formats are packages below it; resizing is media/resize, a model's patches
// are media/qwen. It knows no messages, models or files: bytes come in.
package media

import (
	"strings"

	"agentcli/internal/malformed"
	"agentcli/internal/safego"
	"agentcli/internal/setting"
	"agentcli/media/bmp"
	"agentcli/media/gif"
	"agentcli/media/jpeg"
	"agentcli/media/png"
	"agentcli/media/raster"
	"agentcli/media/webp"
)

// Image is a picture in RGB: [Height, Width, 3].
type Image = raster.Image

// Defaults of Limits.
const (
	DefaultMaxPixels = 64_000_000
	DefaultMaxBytes  = 64 << 20
)

// Limits are what a file may have at most. Zero, or less, is the default.
type Limits struct {
	Pixels int // width times height
	Bytes  int // of the file
}

// MaxPixels is the limit of width times height.
func (l Limits) MaxPixels() int {
	if l.Pixels <= 0 {
		return DefaultMaxPixels
	}
	return l.Pixels
}

// MaxBytes is the limit of a file's bytes.
func (l Limits) MaxBytes() int {
	if l.Bytes <= 0 {
		return DefaultMaxBytes
	}
	return l.Bytes
}

// Decode reads a PNG, JPEG, GIF, WebP or BMP file, which it knows by its first bytes: the
// first frame, turned as EXIF says, with white behind what is transparent. The header is
// checked against the limits before memory is taken. Errors are of a kind of malformed and
// name no path. It may be called from several goroutines at once, and keeps nothing of file.
func Decode(file []byte, limits Limits) (img *Image, err error) {
	// The codecs are others' in part: a panic of theirs is a fault of the file.
	defer safego.Into(&err)
	format, err := formatOf(file, limits)
	if err != nil {
		return nil, err
	}
	most := raster.Limits{Pixels: limits.MaxPixels()}
	orientation := 1
	switch format {
	case PNG:
		img, orientation, err = png.Decode(file, most)
	case JPEG:
		img, orientation, err = jpeg.Decode(file, most)
	case GIF:
		img, err = gif.Decode(file, most)
	case WebP:
		img, orientation, err = webp.Decode(file, most)
	case BMP:
		img, err = bmp.Decode(file, most)
	}
	if err != nil {
		return nil, &malformed.Error{Field: string(format), Err: err}
	}
	return img.Oriented(orientation), nil
}

// Header is what a file says of its image.
type Header struct {
	Format        Format
	Width, Height int // of the image that Decode gives
}

// ReadHeader reads what Decode would give of a file, without its pixels. Errors are Decode's;
// a file whose pixels are damaged may pass.
func ReadHeader(file []byte, limits Limits) (h Header, err error) {
	defer safego.Into(&err)
	if h.Format, err = formatOf(file, limits); err != nil {
		return h, err
	}
	most := raster.Limits{Pixels: limits.MaxPixels()}
	orientation := 1
	switch h.Format {
	case PNG:
		h.Width, h.Height, orientation, err = png.Size(file, most)
	case JPEG:
		h.Width, h.Height, orientation, err = jpeg.Size(file, most)
	case GIF:
		h.Width, h.Height, err = gif.Size(file, most)
	case WebP:
		h.Width, h.Height, orientation, err = webp.Size(file, most)
	case BMP:
		h.Width, h.Height, err = bmp.Size(file, most)
	}
	if err != nil {
		return Header{}, &malformed.Error{Field: string(h.Format), Err: err}
	}
	if raster.Turned(orientation) {
		h.Width, h.Height = h.Height, h.Width
	}
	return h, nil
}

// Format is the name of a file's format.
type Format string

// The formats that Decode reads.
const (
	PNG  Format = "PNG"
	JPEG Format = "JPEG"
	GIF  Format = "GIF"
	WebP Format = "WebP"
	BMP  Format = "BMP"
)

// formatOf tells a file's format by its first bytes.
func formatOf(file []byte, limits Limits) (Format, error) {
	if len(file) == 0 {
		return "", malformed.Errorf(malformed.Truncated, "the file is empty")
	}
	if most := limits.MaxBytes(); len(file) > most {
		return "", malformed.Errorf(malformed.Range, "%w",
			setting.Errorf("the file has more than %d bytes; raise %s", most, setting.Name("MaxImageBytes")))
	}
	begins := func(s string) bool { return len(file) >= len(s) && strings.HasPrefix(string(file[:len(s)]), s) }
	switch {
	case begins(png.Signature):
		return PNG, nil
	case begins(jpeg.Signature):
		return JPEG, nil
	case gif.Is(file):
		return GIF, nil
	case webp.Is(file):
		return WebP, nil
	case begins(bmp.Signature):
		return BMP, nil
	}
	return "", malformed.Errorf(malformed.Unsupported, "it is no PNG, JPEG, GIF, WebP or BMP file")
}
