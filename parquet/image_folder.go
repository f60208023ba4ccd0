package parquet

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"agentcli/internal/filesys"
	"agentcli/internal/malformed"
	"agentcli/traj"
)

// imageFolder is where the images of a file of trajectories are files of their own, named by
// their hash: the column path says so of each.
type imageFolder struct {
	sys  filesys.FS
	dir  string          // of the trajectories' file
	name string          // of the folder, in dir
	kept map[string]bool // hashes of what is on disk
}

// ImageFolder is the folder of the images of a file of trajectories: x.images of x.parquet.
func ImageFolder(path string) string {
	return strings.TrimSuffix(path, filepath.Ext(path)) + ".images"
}

func newImageFolder(sys filesys.FS, path string) (*imageFolder, error) {
	dir := ImageFolder(path)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, pathError(dir, err)
	}
	if err := sys.SyncDir(filepath.Dir(dir)); err != nil {
		return nil, pathError(dir, err)
	}
	return &imageFolder{sys: sys, dir: filepath.Dir(dir), name: filepath.Base(dir), kept: map[string]bool{}}, nil
}

// keep gives a trajectory whose images are on disk, in the folder alone.
func (f *imageFolder) keep(t *traj.Trajectory) (*traj.Trajectory, error) {
	moved := *t
	moved.Images = slices.Clone(t.Images)
	for i := range moved.Images {
		if err := f.move(&moved.Images[i]); err != nil {
			return nil, err
		}
	}
	moved.Messages = slices.Clone(t.Messages)
	for i := range moved.Messages {
		m := &moved.Messages[i]
		m.Images = slices.Clone(m.Images)
		for k := range m.Images {
			if err := f.move(&m.Images[k]); err != nil {
				return nil, err
			}
		}
	}
	return &moved, nil
}

// move writes the file of an image, if it is not there, and names it.
func (f *imageFolder) move(im *traj.Image) error {
	if im.Crop != nil || im.Bytes == nil || im.Hash == "" {
		return nil
	}
	path := filepath.Join(f.name, im.Hash+extension(im.Bytes))
	if !f.kept[im.Hash] {
		name := filepath.Join(f.dir, path)
		if old, err := os.ReadFile(name); err != nil || hashOf(old) != im.Hash {
			if err := filesys.WriteFile(f.sys, name, im.Bytes, 0o644); err != nil {
				return pathError(name, err)
			}
		}
		f.kept[im.Hash] = true
	}
	im.Bytes, im.Path = nil, filepath.ToSlash(path)
	return nil
}

// folderReader reads images that are files of their own: those of the row before are at hand,
// since the attempts at a task share them.
// It is safe for concurrent use.
type folderReader struct {
	dir  string // of the trajectories' file
	mu   sync.Mutex
	last map[string][]byte // by hash
}

// decode makes a trajectory of a row.
func (r *folderReader) decode(nodes []*node) (*traj.Trajectory, error) { return decodeRow(nodes, r) }

// known is a file of the row before.
func (r *folderReader) known(hash string) ([]byte, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	file, have := r.last[hash]
	return file, have
}

// load reads the files of a row's images. Files of a dataset, whose names are not hashes, are
// nobody's to read here.
func (r *folderReader) load(t *traj.Trajectory) error {
	now := map[string][]byte{}
	for i := range t.Images {
		im := &t.Images[i]
		path := filepath.FromSlash(im.Path)
		if im.Crop != nil || im.Bytes != nil || im.Hash == "" || strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)) != im.Hash {
			continue
		}
		file, have := r.known(im.Hash)
		if !have {
			var err error
			if file, err = r.read(path); err != nil {
				return malformed.Errorf(malformed.Missing, "number %d is the file %s, which cannot be read: %w; "+
					"the folder belongs beside the file of trajectories", i, im.Path, err)
			}
		}
		now[im.Hash], im.Bytes = file, file
	}
	if len(now) > 0 {
		r.mu.Lock()
		r.last = now
		r.mu.Unlock()
	}
	return nil
}

// read reads a file below the folder, and not through a link out of it.
func (r *folderReader) read(path string) ([]byte, error) {
	root, err := os.OpenRoot(r.dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	st, err := root.Stat(path)
	switch {
	case err != nil:
	case !st.Mode().IsRegular():
		err = errors.New("it is no regular file")
	case st.Size() > mostBytes:
		err = fmt.Errorf("it has %d bytes", st.Size())
	}
	if err != nil {
		return nil, reason(err)
	}
	b, err := root.ReadFile(path)
	return b, reason(err)
}

// mostBytes is more than any image that a run takes has.
const mostBytes = 1 << 30

// extension is the usual one of a file of an image; "" of another file.
func extension(file []byte) string {
	for magic, name := range map[string]string{"\x89PNG": ".png", "\xff\xd8": ".jpg", "GIF8": ".gif", "RIFF": ".webp", "BM": ".bmp"} {
		if bytes.HasPrefix(file, []byte(magic)) {
			return name
		}
	}
	return ""
}

// reason is an error of the system without the path that a message names anyway.
func reason(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

func hashOf(file []byte) string {
	sum := sha256.Sum256(file)
	return hex.EncodeToString(sum[:])
}
