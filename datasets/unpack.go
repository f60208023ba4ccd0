package datasets

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"agentcli/internal/malformed"

	"github.com/klauspost/compress/zstd"
)

// The bounds of decompression. Rows of text shrink to a tenth; a file that unpacks to more
// than maxRatio times what was read of it is made to fill the memory or the disk.
const (
	maxWindow = 128 << 20 // memory that a .zst file may ask for, in bytes
	maxRatio  = 500
)

// slack is how many bytes any file may unpack to; a test has fewer.
var slack int64 = 64 << 20

// formatOf is the ending that says what a file is, and the one of its compression, "" for
// none, both in lower case.
func formatOf(path string) (format, packed string) {
	ext := strings.ToLower(filepath.Ext(path))
	if ext == ".gz" || ext == ".zst" {
		return strings.ToLower(filepath.Ext(strings.TrimSuffix(path, filepath.Ext(path)))), ext
	}
	return ext, ""
}

// withoutFormat is a path without both endings.
func withoutFormat(path string) string {
	if _, packed := formatOf(path); packed != "" {
		path = path[:len(path)-len(packed)]
	}
	return strings.TrimSuffix(path, filepath.Ext(path))
}

// openBytes opens the bytes of a file; a test puts another in its place.
var openBytes = open

// openText opens a file, unpacked.
func openText(ctx context.Context, path string) (io.ReadCloser, error) {
	f, err := openBytes(ctx, path)
	if err != nil {
		return nil, err
	}
	u := &unpacked{path: path, file: f}
	switch _, packed := formatOf(path); packed {
	case ".gz":
		u.text, err = gzip.NewReader(bufio.NewReaderSize(u.counted(), 32<<10))
	case ".zst":
		var z *zstd.Decoder
		// One goroutine: others would read the file ahead of the rows that are asked for.
		if z, err = zstd.NewReader(u.counted(), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderConcurrency(1)); err == nil {
			u.text, u.close = z, z.Close
		}
	default:
		return f, nil
	}
	if err != nil {
		f.Close()
		return nil, u.fault(err)
	}
	return u, nil
}

// unpacked is the text of a compressed file.
type unpacked struct {
	path  string
	file  io.ReadCloser
	text  io.Reader
	close func() // of the decompressor; nil: it needs none
	in    int64  // bytes read of the file
	out   int64  // bytes of text
}

func (u *unpacked) counted() io.Reader {
	return readerFunc(func(p []byte) (int, error) {
		n, err := u.file.Read(p)
		u.in += int64(n)
		return n, err
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// errBomb is a fault of a file that unpacks to too much.
var errBomb = malformed.Errorf(malformed.Range,
	"unpacks to more than %d times its size, which no dataset does; look at it, and unpack it yourself if it is right", maxRatio)

func (u *unpacked) Read(p []byte) (int, error) {
	n, err := u.text.Read(p)
	if u.out += int64(n); u.out > slack && u.out > maxRatio*u.in {
		return 0, &malformed.Error{Path: u.path, Err: errBomb}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return n, u.fault(err)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return n, u.fault(err)
	}
	return n, err
}

// fault says what is wrong with the compressed bytes.
func (u *unpacked) fault(err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return malformed.At(u.path, "", malformed.Truncated, "is cut off: its compressed data ends too early")
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return malformed.At(u.path, "", malformed.Range, "asks for more than %d MB of memory to be unpacked", maxWindow>>20)
	}
	return malformed.At(u.path, "", malformed.Syntax, "cannot be unpacked: %w", fmt.Errorf("%s", strings.TrimPrefix(err.Error(), "gzip: ")))
}

func (u *unpacked) Close() error {
	if u.close != nil {
		u.close()
	}
	return u.file.Close()
}
