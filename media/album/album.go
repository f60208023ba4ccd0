// Package album makes images of conversations (traj.Image) from files, and pixels and files
// from such images. It is in layer 1: it knows traj and media.
package album

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"image"
	"image/png"

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
	file := im.Bytes
	if im.Crop != nil {
		file = im.Crop.File
	}
	if file == nil {
		return nil, malformed.Errorf(malformed.Missing, "the file of image %.12s is not there", im.Hash)
	}
	// It was held to its limits when it was opened.
	pixels, err := media.Decode(file, media.Limits{Pixels: 1 << 31, Bytes: len(file)})
	if err != nil {
		return nil, err
	}
	if im.Crop == nil {
		return pixels, nil
	}
	box := im.Crop.Box
	if pixels, err = pixels.Crop(box[0], box[1], box[2], box[3]); err != nil {
		return nil, err
	}
	if pixels.Hash() != im.Hash {
		return nil, malformed.Errorf(malformed.Mismatch, "the crop %.12s has other pixels now", im.Hash)
	}
	return pixels, nil
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
	m := image.NewNRGBA(image.Rect(0, 0, pixels.Width, pixels.Height))
	for i := range pixels.Width * pixels.Height {
		copy(m.Pix[4*i:], pixels.Pix[3*i:3*i+3])
		m.Pix[4*i+3] = 255
	}
	var b bytes.Buffer
	err = png.Encode(&b, m)
	return b.Bytes(), err
}
