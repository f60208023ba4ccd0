// Package album makes images of conversations (traj.Image) from files, and pixels and files
// from such images. It is in layer 1: it knows traj and media.
package album

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"image"
	"image/png"
	"math"
	"sync/atomic"

	"agentcli/internal/malformed"
	"agentcli/internal/setting"
	"agentcli/media"
	"agentcli/traj"
)

// Open makes an image of a file's bytes, which it keeps and reads the header of; path is the
// name that the image is known by. Errors are media.Decode's: of a kind of malformed, without
// a path.
func Open(file []byte, path string, limits media.Limits) (traj.Image, error) {
	h, err := media.ReadHeader(file, limits)
	if err != nil {
		return traj.Image{}, err
	}
	return traj.Image{Hash: Hash(file), Path: path, Bytes: file, Width: h.Width, Height: h.Height}, nil
}

// Hash is the SHA-256 of a file, in hexadecimal.
func Hash(file []byte) string {
	sum := sha256.Sum256(file)
	return hex.EncodeToString(sum[:])
}

// mostPixels is the limit of AllowPixels.
var mostPixels atomic.Int64

// AllowPixels raises the limit of width times height of the files that this process decodes,
// media.DefaultMaxPixels, to n. A lower n changes nothing: files are held to lower limits by Open.
func AllowPixels(n int) {
	for {
		was := mostPixels.Load()
		if int64(n) <= was || mostPixels.CompareAndSwap(was, int64(n)) {
			return
		}
	}
}

// Pixels decodes an image: the file's, or its rectangle of a crop. Errors are of a kind of
// malformed and name the image's hash: Missing where the file is not there, Mismatch where its
// size or a crop's pixels are not those that the image was recorded with, Range where the file
// has more pixels than AllowPixels and the default allow. Size and limit are checked by the
// header, before pixels are decoded. It waits while MaxDecoding pixels are decoded by others,
// and may be called from several goroutines at once.
func Pixels(im *traj.Image) (pixels *media.Image, err error) {
	err = Use(context.Background(), im, func(m *media.Image) error { pixels = m; return nil })
	return pixels, err
}

// Use decodes an image as Pixels does and calls f with its pixels, which count for MaxDecoding
// until f returns: f decodes no other image. It fails with ctx's error, f's, and those of Pixels.
func Use(ctx context.Context, im *traj.Image, f func(*media.Image) error) error {
	return decoding.use(ctx, im, func(pixels *media.Image) error {
		if im.Crop != nil && pixels.Hash() != im.Hash {
			return malformed.Errorf(malformed.Mismatch, "the crop %.12s has other pixels now", im.Hash)
		}
		return f(pixels)
	})
}

// use is Use within a bound, without a check of the pixels' hash.
func (b *pixelBound) use(ctx context.Context, im *traj.Image, f func(*media.Image) error) error {
	file, h, err := fileOf(im)
	if err != nil {
		return err
	}
	leave, err := b.enter(ctx, h.Width*h.Height)
	if err != nil {
		return err
	}
	defer leave()
	pixels, err := media.Decode(file, limits(file))
	if err == nil && im.Crop != nil {
		box := im.Crop.Box
		pixels, err = pixels.Crop(box[0], box[1], box[2], box[3])
	}
	if err != nil {
		return err
	}
	return f(pixels)
}

// limits are those of Pixels for a file that is in memory.
func limits(file []byte) media.Limits {
	return media.Limits{Pixels: max(int(mostPixels.Load()), media.DefaultMaxPixels), Bytes: max(len(file), 1)}
}

// fileOf is the file that an image is decoded from, and its header. It refuses files that
// Pixels does not decode.
func fileOf(im *traj.Image) (file []byte, h media.Header, err error) {
	file = im.Bytes
	if im.Crop != nil {
		file = im.Crop.File
	}
	if file == nil {
		return nil, h, malformed.Errorf(malformed.Missing, "the file of image %.12s is not there", im.Hash)
	}
	most := limits(file)
	h, err = media.ReadHeader(file, media.Limits{Pixels: math.MaxInt, Bytes: most.Bytes})
	if err != nil {
		return nil, h, fmt.Errorf("image %.12s: %w", im.Hash, err)
	}
	if h.Width > most.Pixels/h.Height {
		return nil, h, malformed.Errorf(malformed.Range, "%w", setting.Errorf("image %.12s has %d × %d pixels, more than %d in all; "+
			"record it again at a smaller size, or train with a higher %s", im.Hash, h.Width, h.Height, most.Pixels, setting.Name("MaxImagePixels")))
	}
	width, height := h.Width, h.Height
	if im.Crop != nil {
		width, height = im.Crop.Box[2]-im.Crop.Box[0], im.Crop.Box[3]-im.Crop.Box[1]
	}
	if known := im.Width != 0 || im.Height != 0; known && (width != im.Width || height != im.Height) {
		return nil, h, malformed.Errorf(malformed.Mismatch, "image %.12s has %d × %d pixels and was recorded with %d × %d; record it again",
			im.Hash, width, height, im.Width, im.Height)
	}
	return file, h, nil
}

// File is an image as a file: its own, or a PNG of a crop. Errors are those of Pixels.
func File(im *traj.Image) (file []byte, err error) {
	if im.Crop == nil && im.Bytes != nil {
		return im.Bytes, nil
	}
	err = Use(context.Background(), im, func(pixels *media.Image) error {
		file, err = PNG(pixels)
		return err
	})
	return file, err
}

// PNG is a file of pixels.
func PNG(pixels *media.Image) ([]byte, error) {
	m := image.NewNRGBA(image.Rect(0, 0, pixels.Width, pixels.Height))
	for i := range pixels.Width * pixels.Height {
		copy(m.Pix[4*i:], pixels.Pix[3*i:3*i+3])
		m.Pix[4*i+3] = 255
	}
	var b bytes.Buffer
	err := png.Encode(&b, m)
	return b.Bytes(), err
}

// Crop is a part of an image: box are its left, upper, right and lower edge in the image's
// pixels. A crop of a crop is one of the same file. Errors are ctx's and those of Pixels.
func Crop(ctx context.Context, im *traj.Image, box [4]int) (traj.Image, error) {
	source := traj.Crop{Source: im.Hash, File: im.Bytes, Box: box}
	if im.Crop != nil {
		source = *im.Crop
		x, y := im.Crop.Box[0], im.Crop.Box[1]
		source.Box = [4]int{x + box[0], y + box[1], x + box[2], y + box[3]}
	}
	out := traj.Image{Width: box[2] - box[0], Height: box[3] - box[1], Crop: &source}
	err := decoding.use(ctx, &out, func(pixels *media.Image) error { out.Hash = pixels.Hash(); return nil })
	if err != nil {
		return traj.Image{}, err
	}
	return out, nil
}
