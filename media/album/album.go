// Package album makes images of conversations (traj.Image) from files, and pixels and files
// from such images. It is in layer 1: it knows traj and media.
package album

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"image"
	"image/png"
	"math"

	"agentcli/internal/malformed"
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

// Pixels decodes an image: the file's, or its rectangle of a crop. It fails where the file is
// not at hand or the image is another than it was.
func Pixels(im *traj.Image) (*media.Image, error) {
	pixels, err := cut(im)
	if err == nil && im.Crop != nil && pixels.Hash() != im.Hash {
		err = malformed.Errorf(malformed.Mismatch, "the crop %.12s has other pixels now", im.Hash)
	}
	if err != nil {
		return nil, err
	}
	return pixels, nil
}

// cut is Pixels without a check of their hash.
func cut(im *traj.Image) (*media.Image, error) {
	file := im.Bytes
	if im.Crop != nil {
		file = im.Crop.File
	}
	if file == nil {
		return nil, malformed.Errorf(malformed.Missing, "the file of image %.12s is not there", im.Hash)
	}
	// It was held to its limits when it was opened.
	pixels, err := media.Decode(file, media.Limits{Pixels: math.MaxInt32, Bytes: len(file)})
	if err != nil || im.Crop == nil {
		return pixels, err
	}
	b := im.Crop.Box
	return pixels.Crop(b[0], b[1], b[2], b[3])
}

// File is an image as a file: its own, or a PNG of a crop.
func File(im *traj.Image) ([]byte, error) {
	if im.Crop == nil && im.Bytes != nil {
		return im.Bytes, nil
	}
	pixels, err := Pixels(im)
	if err != nil {
		return nil, err
	}
	return PNG(pixels)
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
// pixels. A crop of a crop is one of the same file.
func Crop(im *traj.Image, box [4]int) (traj.Image, error) {
	source := traj.Crop{Source: im.Hash, File: im.Bytes, Box: box}
	if im.Crop != nil {
		source = *im.Crop
		x, y := im.Crop.Box[0], im.Crop.Box[1]
		source.Box = [4]int{x + box[0], y + box[1], x + box[2], y + box[3]}
	}
	out := traj.Image{Width: box[2] - box[0], Height: box[3] - box[1], Crop: &source}
	pixels, err := cut(&out)
	if err != nil {
		return traj.Image{}, err
	}
	out.Hash = pixels.Hash()
	return out, nil
}
