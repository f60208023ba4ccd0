//go:build !unix

package gguf

import (
	"io"
	"os"
)

// Without mmap the file is read whole.
func mapFile(f *os.File, size int) ([]byte, func() error, error) {
	b := make([]byte, size)
	_, err := io.ReadFull(f, b)
	return b, func() error { return nil }, err
}
