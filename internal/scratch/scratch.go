// Package scratch makes large temporary files that leave nothing behind. It is
// in layer 0 and imports nothing.
package scratch

import (
	"errors"
	"fmt"
	"os"
)

// File is a file without a name: nothing is left of it, however the program ends.
type File struct {
	*os.File
	left string // its path, where the system gives no file without one
}

// Dir is where large temporary files go: TMPDIR, else the folder for those that need
// not fit into memory, as /tmp often must.
func Dir() string {
	if dir := os.Getenv("TMPDIR"); dir != "" {
		return dir
	}
	const disk = "/var/tmp"
	if st, err := os.Stat(disk); err == nil && st.IsDir() {
		return disk
	}
	return os.TempDir()
}

// New makes a file in Dir. Its error, as those of the File's, wants Explain.
func New(pattern string) (*File, error) {
	f, err := os.CreateTemp(Dir(), pattern)
	if err != nil {
		return nil, err
	}
	s := &File{File: f}
	if os.Remove(f.Name()) != nil {
		s.left = f.Name()
	}
	return s, nil
}

// Close gives the file up.
func (f *File) Close() error {
	err := f.File.Close()
	if f.left != "" {
		err = errors.Join(err, os.Remove(f.left))
	}
	return err
}

// Explain says what to do about a temporary file that cannot be used; what is what
// is kept there.
func Explain(err error, what string) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		err = pe.Err // the path is one that nobody knows
	}
	return fmt.Errorf("%s: %w; %s: name a folder with room for it in TMPDIR", Dir(), err, what)
}
