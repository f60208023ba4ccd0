package rundir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// StripPath is a file error without the call and the path, which the message names.
func StripPath(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// Exists reports whether there is something at path.
func Exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Absolute is the whole path of a file or folder that is there; other names,
// those of the hub, stay as they are.
func Absolute(name string) string {
	if _, err := os.Stat(name); err != nil {
		return name
	}
	abs, err := filepath.Abs(name)
	if err != nil {
		return name
	}
	return abs
}

// Sync returns when the files and folders are on disk. What a library has written is
// synced by it; what a run writes itself, filesys.WriteFile syncs.
func Sync(paths ...string) error {
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		st, err := f.Stat()
		if err == nil {
			if err = f.Sync(); st.IsDir() {
				err = nil // not every file system can
			}
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}
