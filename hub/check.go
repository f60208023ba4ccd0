package hub

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// InRepository is the path that a file of the cache has in its repository; ok is false
// where the path is none of the cache.
func InRepository(file string) (in string, ok bool) {
	_, rest, ok := strings.Cut(filepath.ToSlash(file), "/snapshots/")
	if !ok {
		return "", false
	}
	_, in, ok = strings.Cut(rest, "/")
	return in, ok
}

// CheckCached compares a file of the cache with the hash that is its blob's name: the
// sha256 of a large file, the git blob sha1 of a small one. A file that is no link to a
// blob is not compared. A difference is an ErrDamaged.
func CheckCached(ctx context.Context, file string) (compared bool, err error) {
	blob, err := filepath.EvalSymlinks(file)
	if err != nil {
		return false, err
	}
	tag := filepath.Base(blob)
	if filepath.Base(filepath.Dir(blob)) != "blobs" || !isHex(tag, 64) && !isHex(tag, 40) {
		return false, nil
	}
	f, err := os.Open(blob)
	if err != nil {
		return false, err
	}
	defer f.Close()
	err = check(ctx, f, meta{etag: tag, size: -1})
	if errors.Is(err, errHash) {
		return true, fmt.Errorf("%s: %w: its bytes are not those that were fetched; remove it and fetch it again", file, ErrDamaged)
	}
	return err == nil, err
}

// SHA256 is the hash of a file's bytes, in hexadecimal.
func SHA256(ctx context.Context, file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, stoppable{ctx, f}); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// stoppable ends with its context.
type stoppable struct {
	ctx context.Context
	r   io.Reader
}

func (s stoppable) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.r.Read(p)
}
