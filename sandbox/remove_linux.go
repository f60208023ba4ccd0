package sandbox

import (
	"io/fs"
	"os"
	"path/filepath"
)

// removeAll removes a folder in which a program may have made folders that we
// cannot look into.
func removeAll(dir string) {
	if os.RemoveAll(dir) == nil {
		return
	}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	_ = os.RemoveAll(dir)
}
