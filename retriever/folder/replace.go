package folder

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"agentcli/internal/setting"
)

const lockName = "lock"

// vacant refuses a name that is taken by anything but an empty folder or, with replace,
// an index.
func vacant(dir string, replace bool) error {
	st, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if entries, err := os.ReadDir(dir); st.IsDir() && (err != nil || len(entries) == 0) {
		return err
	}
	if _, err := indexFiles(dir); err != nil {
		return fmt.Errorf("%s %w and is no index; name another folder", dir, ErrExists)
	}
	if !replace {
		return setting.Errorf("%s %w; %s replaces it", dir, ErrExists, setting.Name("Replace"))
	}
	return nil
}

// vacantPartial refuses a folder that no build has left behind: what is in it would be
// removed.
func vacantPartial(partial string) error {
	entries, err := os.ReadDir(partial)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	left := slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == lockName || e.Name() == manifestName })
	if !left {
		return fmt.Errorf("%s %w and is not of this program; an index is built in a folder of that name, so move it, or name another", partial,
			ErrExists)
	}
	return nil
}

// indexFiles are the names of what an index has written into a folder, the manifest first.
// Without an index its error is ErrNotIndex.
func indexFiles(dir string) ([]string, error) {
	b, err := os.ReadFile(filepath.Join(dir, manifestName))
	if err != nil {
		return nil, fmt.Errorf("%s %w: %w", dir, ErrNotIndex, err)
	}
	var m Manifest
	if err := json.Unmarshal(b, &m); err != nil || m.Format < 1 || len(m.Files) == 0 {
		return nil, fmt.Errorf("%s %w: its %s is of another program", dir, ErrNotIndex, manifestName)
	}
	names := slices.Sorted(maps.Keys(m.Files))
	for _, name := range names {
		if name != filepath.Base(name) || !filepath.IsLocal(name) {
			return nil, fmt.Errorf("%s %w: its %s names the file %q", dir, ErrNotIndex, manifestName, name)
		}
	}
	return append([]string{manifestName}, names...), nil
}

// rename gives the finished folder its name. Of an index that is there it removes what that
// index has written; files of others stay.
func (w *Writer) rename() error {
	if w.replace {
		old, err := indexFiles(w.dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := w.collides(old); err != nil {
			return err
		}
		for _, name := range old {
			if err := os.Remove(filepath.Join(w.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	entries, err := os.ReadDir(w.dir)
	if err == nil && len(entries) > 0 {
		return w.moveInto()
	}
	if err := os.Remove(w.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Rename(w.partial, w.dir)
}

// collides refuses files of others that have the names of new ones.
func (w *Writer) collides(old []string) error {
	for name := range w.files {
		if _, err := os.Lstat(filepath.Join(w.dir, name)); err == nil && !slices.Contains(old, name) {
			return fmt.Errorf("%s %w and is not the index's; move it, or name another folder", filepath.Join(w.dir, name), ErrExists)
		}
	}
	return nil
}

// moveInto moves the finished files beside those of others, the manifest last.
func (w *Writer) moveInto() error {
	for _, name := range append(slices.Sorted(maps.Keys(w.files)), manifestName) {
		if err := os.Rename(w.Path(name), filepath.Join(w.dir, name)); err != nil {
			return err
		}
	}
	return os.Remove(w.partial)
}
