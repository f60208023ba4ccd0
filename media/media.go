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
	if len(file) == 0 {
		return nil, malformed.Errorf(malformed.Truncated, "the file is empty")
	}
	if most := limits.MaxBytes(); len(file) > most {
		return nil, malformed.Errorf(malformed.Range, "%w",
			setting.Errorf("the file has more than %d bytes; raise %s", most, setting.Name("MaxImageBytes")))
	}
	// The codecs are others' in part: a panic of theirs is a fault of the file.
	defer safego.Into(&err)
	most := raster.Limits{Pixels: limits.MaxPixels()}
	var name string
	orientation := 1
	begins := func(s string) bool { return len(file) >= len(s) && strings.HasPrefix(string(file[:len(s)]), s) }
	switch {
	case begins(png.Signature):
		name = "PNG"
		img, orientation, err = png.Decode(file, most)
	case begins(jpeg.Signature):
		name = "JPEG"
		img, orientation, err = jpeg.Decode(file, most)
	case gif.Is(file):
		name = "GIF"
		img, err = gif.Decode(file, most)
	case webp.Is(file):
		name = "WebP"
		img, orientation, err = webp.Decode(file, most)
	case begins(bmp.Signature):
		name = "BMP"
		img, err = bmp.Decode(file, most)
	default:
		return nil, malformed.Errorf(malformed.Unsupported, "it is no PNG, JPEG, GIF, WebP or BMP file")
	}
	if err != nil {
		return nil, &malformed.Error{Field: name, Err: err}
	}
	return img.Oriented(orientation), nil
}
