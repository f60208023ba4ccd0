// Package filesys is the part of a file system that a program needs to keep a
// file safely: positioned reads and writes, sync of a file and of a folder,
// atomic replacement, and a lock. OS is the machine's; tests use one in memory
// that fails, tears writes and crashes. It is in layer 0 and imports the standard
// library only.
package filesys

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Errors that a caller may tell apart.
var (
	// ErrLocked: another process holds the file's lock.
	ErrLocked = errors.New("the file is locked by another process")
	// ErrNoLocks: the file system has no locks (Lustre without flock, some FUSE mounts).
	ErrNoLocks = errors.New("the file system has no file locks")
)

// FS opens, renames and removes files. It is safe for concurrent use.
type FS interface {
	// OpenFile is os.OpenFile.
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	// Rename replaces the file at to, if there is one, in one step.
	Rename(from, to string) error
	// Link gives a file a second name; it fails where to exists.
	Link(from, to string) error
	Remove(name string) error
	// SyncDir makes the names in a folder as durable as the files' contents.
	SyncDir(dir string) error
}

// File is an open file. ReadAt and WriteAt may be called concurrently.
type File interface {
	io.Reader
	io.Writer
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Size is the length in bytes.
	Size() (int64, error)
	Truncate(size int64) error
	Sync() error
	// Lock takes the file's lock, which ends with Close or with the process. It
	// does not wait. Its errors wrap ErrLocked or ErrNoLocks.
	Lock() error
}

// OS is the machine's file system.
var OS FS = system{}

type system struct{}

func (system) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	f, err := os.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (system) Rename(from, to string) error { return os.Rename(from, to) }
func (system) Link(from, to string) error   { return os.Link(from, to) }
func (system) Remove(name string) error     { return os.Remove(name) }

func (system) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	_ = d.Sync() // not every file system can
	return nil
}

type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// Lock also looks whether the name still leads to this file: whoever had the
// lock before may have replaced it.
func (f osFile) Lock() error {
	if err := lock(f.File); err != nil {
		return err
	}
	mine, err := f.Stat()
	if err != nil {
		return err
	}
	if now, err := os.Stat(f.Name()); err == nil && !os.SameFile(mine, now) {
		return fmt.Errorf("%w: %s was replaced while it was opened", ErrLocked, f.Name())
	}
	return nil
}

// WriteFile is Replace of a file by data.
func WriteFile(sys FS, name string, data []byte, perm fs.FileMode) error {
	return Replace(sys, name, perm, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// Replace replaces a file by what write writes, whole or not at all, and returns when
// it is on disk: a temporary file beside it is written, synced and renamed, and the
// folder is synced.
func Replace(sys FS, name string, perm fs.FileMode, write func(io.Writer) error) (err error) {
	tmp := name + ".tmp"
	f, err := sys.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, perm)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = sys.Remove(tmp)
		}
	}()
	if err = write(f); err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if err = sys.Rename(tmp, name); err != nil {
		return err
	}
	return sys.SyncDir(filepath.Dir(name))
}
