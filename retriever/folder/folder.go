// Package folder is the folder of an index: its files, and a manifest that is written
// last. The folder gets its name when all of it is on disk; a folder without a manifest
// is not an index.
package folder

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"

	"agentcli/internal/filesys"
	"agentcli/internal/setting"
	"agentcli/internal/text"
	"agentcli/model/gguf"
	"agentcli/retriever"
	"agentcli/traj"
)

// Errors that a caller may tell apart.
var (
	// ErrNotIndex: the folder has no manifest, or one that is not ours.
	ErrNotIndex = errors.New("is not a finished index")
	// ErrExists: there is a folder or file of that name.
	ErrExists = errors.New("is there already")
)

// Format is the version of the files. A reader refuses others.
const Format = 2

const (
	manifestName = "manifest.json"
	maxManifest  = 1 << 20 // bytes
)

// Manifest says what an index is.
type Manifest struct {
	Format   int                        `json:"format"`
	Kind     string                     `json:"kind"`
	Settings map[string]json.RawMessage `json:"settings"` // of each part: bm25, dense
	Corpus   Corpus                     `json:"corpus"`
	Files    map[string]Sum             `json:"files"`
	Program  string                     `json:"program,omitempty"` // version that wrote it
}

// Corpus says what was indexed.
type Corpus struct {
	Name     string `json:"name"` // of the file, without its folder
	Bytes    int64  `json:"bytes"`
	SHA256   string `json:"sha256"`
	Passages int    `json:"passages"`
}

// Sum is the size and CRC-32C of a file.
type Sum struct {
	Bytes  int64  `json:"bytes"`
	CRC32C uint32 `json:"crc32c"`
}

// Castagnoli is the table of CRC-32C, which processors compute.
var Castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Writer builds a folder under another name.
type Writer struct {
	dir, partial string
	replace      bool
	lock         filesys.File
	files        map[string]Sum
}

// Create begins the folder dir. Until Commit it is dir.partial, which a process that was
// killed leaves behind, and which the next Create of the same folder removes. replace
// allows an index to be there already; files of others beside it stay.
func Create(dir string, replace bool) (*Writer, error) {
	dir = filepath.Clean(dir)
	if err := vacant(dir, replace); err != nil {
		return nil, err
	}
	if err := vacantPartial(dir + ".partial"); err != nil {
		return nil, err
	}
	w := &Writer{dir: dir, partial: dir + ".partial", replace: replace, files: map[string]Sum{}}
	if err := os.MkdirAll(w.partial, 0o755); err != nil {
		return nil, err
	}
	lock, err := filesys.OS.OpenFile(filepath.Join(w.partial, lockName), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := lock.Lock(); err != nil && !errors.Is(err, filesys.ErrNoLocks) {
		lock.Close()
		return nil, fmt.Errorf("%s: another process builds this index: %w", w.partial, err)
	}
	w.lock = lock
	old, err := os.ReadDir(w.partial)
	for _, e := range old {
		if e.Name() != lockName {
			err = errors.Join(err, os.RemoveAll(filepath.Join(w.partial, e.Name())))
		}
	}
	if err != nil {
		w.Abort()
		return nil, err
	}
	return w, nil
}

// Path is where a temporary file of that name may be; Commit leaves it behind.
func (w *Writer) Path(name string) string { return filepath.Join(w.partial, name) }

// File is a file of the folder that is written from front to back.
type File struct {
	w    *Writer
	name string
	f    *os.File
	b    *bufio.Writer
	sum  Sum
}

// Create begins a file.
func (w *Writer) Create(name string) (*File, error) {
	f, err := os.Create(w.Path(name))
	if err != nil {
		return nil, err
	}
	return &File{w: w, name: name, f: f, b: bufio.NewWriterSize(f, 1<<20)}, nil
}

func (f *File) Write(p []byte) (int, error) {
	n, err := f.b.Write(p)
	f.sum.Bytes += int64(n)
	f.sum.CRC32C = crc32.Update(f.sum.CRC32C, Castagnoli, p[:n])
	return n, err
}

// Size is the number of bytes written so far.
func (f *File) Size() int64 { return f.sum.Bytes }

// Close ends the file and puts it on disk.
func (f *File) Close() error {
	err := errors.Join(f.b.Flush(), f.f.Sync(), f.f.Close())
	f.w.files[f.name] = f.sum
	return err
}

// Set puts the settings of a part into the manifest.
func (m *Manifest) Set(part string, settings any) error {
	b, err := json.Marshal(settings)
	if m.Settings == nil {
		m.Settings = map[string]json.RawMessage{}
	}
	m.Settings[part] = b
	return err
}

// Get reads the settings of a part. Its error is retriever.ErrDamaged.
func (m *Manifest) Get(part string, settings any) error {
	if err := json.Unmarshal(m.Settings[part], settings); err != nil {
		return fmt.Errorf("settings of %s in %s: %w", part, manifestName, retriever.ErrDamaged)
	}
	return nil
}

// Commit writes the manifest and gives the folder its name. The caller fills in all but
// Format and Files.
func (w *Writer) Commit(m *Manifest) error {
	m.Format, m.Files = Format, w.files
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if err := filesys.WriteFile(filesys.OS, w.Path(manifestName), append(b, '\n'), 0o644); err != nil {
		return err
	}
	entries, err := os.ReadDir(w.partial)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if _, ours := w.files[e.Name()]; !ours && e.Name() != manifestName && e.Name() != lockName {
			if err := os.RemoveAll(w.Path(e.Name())); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(w.Path(lockName)); err != nil {
		return err
	}
	if err := w.rename(); err != nil {
		return err
	}
	w.lock.Close()
	w.lock = nil
	return filesys.OS.SyncDir(filepath.Dir(w.dir))
}

// Abort removes what was written. After Commit it does nothing.
func (w *Writer) Abort() {
	if w.lock != nil {
		os.RemoveAll(w.partial)
		w.lock.Close()
		w.lock = nil
	}
}

// Folder is an open index's folder.
type Folder struct {
	Manifest
	dir  string
	maps []*gguf.Mapping
}

// Open reads the manifest of a folder. Its errors are ErrNotIndex, fs.ErrNotExist and
// retriever.ErrDamaged.
func Open(dir string) (*Folder, error) {
	st, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, traj.Mark(fmt.Errorf("%s: no such folder; look at the path", dir), fs.ErrNotExist)
	}
	if err == nil && !st.IsDir() {
		return nil, setting.Errorf("%s %w: it is a file; if it is a corpus, build its index by `%s %s %s FOLDER`", dir, ErrNotIndex,
			setting.Name("bm25.Write"), text.ShellWord(dir), setting.Name("Output"))
	}
	path := filepath.Join(dir, manifestName)
	st, err = os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s %w: it has no %s; build it by %s", dir, ErrNotIndex, manifestName, setting.Name("bm25.Write"))
	}
	if err != nil {
		return nil, err
	}
	if st.Size() > maxManifest {
		return nil, fmt.Errorf("%s %w: %s has %d bytes", dir, ErrNotIndex, manifestName, st.Size())
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f := &Folder{dir: dir}
	if err := json.Unmarshal(b, &f.Manifest); err != nil {
		return nil, fmt.Errorf("%s %w: %s: %w", dir, ErrNotIndex, manifestName, err)
	}
	if f.Format != Format {
		return nil, fmt.Errorf("%s %w that this version reads: its format is %d, want %d; build it again", dir, ErrNotIndex, f.Format, Format)
	}
	return f, nil
}

// Map maps a file of the folder and compares its size with the manifest's. check also
// reads all of it and compares its checksum.
func (f *Folder) Map(name string, check bool) ([]byte, error) {
	want, ok := f.Files[name]
	if !ok {
		return nil, fmt.Errorf("%w: %s does not name %s", retriever.ErrDamaged, manifestName, name)
	}
	m, err := gguf.Map(filepath.Join(f.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w: the file is missing", name, retriever.ErrDamaged)
	}
	if err != nil {
		return nil, err
	}
	f.maps = append(f.maps, m)
	b := m.Bytes()
	if int64(len(b)) != want.Bytes {
		return nil, fmt.Errorf("%s: %w: it has %d bytes, want %d", name, retriever.ErrDamaged, len(b), want.Bytes)
	}
	if check && crc32.Checksum(b, Castagnoli) != want.CRC32C {
		return nil, fmt.Errorf("%s: %w: its checksum is not the manifest's", name, retriever.ErrDamaged)
	}
	return b, nil
}

// MapFile maps a file outside of an open folder.
func MapFile(path string) (*gguf.Mapping, error) { return gguf.Map(path) }

// Close ends all mappings.
func (f *Folder) Close() error {
	var err error
	for _, m := range f.maps {
		err = errors.Join(err, m.Close())
	}
	f.maps = nil
	return err
}
