// Package album makes images of conversations (traj.Image) from files, and pixels and files
// from such images. It is in layer 1: it knows traj and media.
package album

import (
	"crypto/sha256"
	"encoding/hex"

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
