package parquet

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"agentcli/internal/filesys"
	"agentcli/traj"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
)

// Defaults of WriterConfig.
const (
	DefaultRowGroupRows  = 1024
	DefaultRowGroupBytes = 32 << 20
)

// WriterConfig bounds the memory of a Writer. The zero value takes the
// defaults.
type WriterConfig struct {
	RowGroupRows  int   // rows after which a row group is written; 0: DefaultRowGroupRows
	RowGroupBytes int64 // estimated bytes after which a row group is written; 0: DefaultRowGroupBytes

	Columns []string // optional ones that the file has: ColumnInfos, ColumnLossWeights, ColumnExperts, ColumnImages

	// ImagesBeside keeps the files of images in ImageFolder of the file's path, for CreateFile
	// alone: the rows name them.
	ImagesBeside bool

	buffer int  // size of the buffer before the sink; tests make it small
	plain  bool // uncompressed: tests that write thousands of files need no compressor
}

// Validate checks the limits.
func (c WriterConfig) Validate() error {
	if c.RowGroupRows < 0 || c.RowGroupBytes < 0 {
		return fmt.Errorf("parquet writer: row group limits must not be negative (rows %d, bytes %d)", c.RowGroupRows, c.RowGroupBytes)
	}
	return nil
}

// Writer writes trajectories as rows. It is not safe for concurrent use. After
// an error every further call returns that error.
type Writer struct {
	sink  *sink
	buf   *bufio.Writer
	pq    *groupWriter
	rb    *array.RecordBuilder
	cfg   WriterConfig
	rows  int
	bytes int64
	total int64

	folder *imageFolder // of WriterConfig.ImagesBeside
	files  *files       // of the images in the present row group; nil: the file has none
	err    error
	done   bool

	sys  filesys.FS
	file filesys.File // of CreateFile
	tmp  string       // "" where the file is written in place
	path string
}

// sink remembers the first error of the writer below and refuses to go on:
// arrow would otherwise write on after a failed page, and panics in places.
type sink struct {
	w   io.Writer
	n   int64
	err error
}

func (s *sink) Write(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.w.Write(p)
	s.n += int64(n)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	s.err = err
	return n, err
}

func (s *sink) failed() error {
	if s.err == nil {
		return nil
	}
	err := s.err
	var pe *os.PathError
	if errors.As(err, &pe) {
		err = pe.Err // the path is the temporary one; the caller names its own
	}
	return fmt.Errorf("cannot write the Parquet file after %d bytes: %w", s.n, err)
}

// NewWriter starts a file on w. The caller closes w after Close.
func NewWriter(w io.Writer, meta Metadata, c WriterConfig) (*Writer, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.RowGroupRows == 0 {
		c.RowGroupRows = DefaultRowGroupRows
	}
	if c.RowGroupBytes == 0 {
		c.RowGroupBytes = DefaultRowGroupBytes
	}
	if c.buffer == 0 {
		c.buffer = 256 << 10
	}
	if len(meta.Run) == 0 {
		meta.Run = []byte("{}")
	}
	schema, err := schemaOf(meta, c.Columns)
	if err != nil {
		return nil, err
	}
	s := &sink{w: w}
	out := &Writer{sink: s, buf: bufio.NewWriterSize(s, c.buffer), cfg: c}
	mem := memory.NewGoAllocator()
	codec := compress.Codecs.Zstd
	if c.plain {
		codec = compress.Codecs.Uncompressed
	}
	options := []parquet.WriterProperty{parquet.WithCompression(codec), parquet.WithAllocator(mem),
		parquet.WithCreatedBy("agentcli"), parquet.WithStats(true)}
	if slices.Contains(c.Columns, ColumnImages) {
		options = append(options, imageProperties()...)
		out.files = &files{tokens: map[string]int{}}
	}
	props := parquet.NewWriterProperties(options...)
	err = guard(s.failed, func() (err error) {
		out.pq, err = newGroupWriter(out.buf, schema, props)
		if err == nil {
			out.rb = array.NewRecordBuilder(mem, out.pq.bare())
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// schemaOf is the schema of a file with these optional columns. What it says of itself is a
// new file's: meta.Schema counts for nothing.
func schemaOf(meta Metadata, optional []string) (*arrow.Schema, error) {
	fields, err := columnsWith(optional)
	if err != nil {
		return nil, err
	}
	keys, values := []string{KeySchema, KeyRun}, []string{strconv.Itoa(SchemaVersion), valid(string(meta.Run))}
	if slices.Contains(optional, ColumnImages) {
		values[0] = strconv.Itoa(SchemaVersionImages)
		keys, values = append(keys, keyHuggingFace), append(values, huggingFace(fields[messagesColumn]))
		md := arrow.NewMetadata(keys, values)
		arrowSchema, err := arrowSchemaText(arrow.NewSchema(fields, &md)) // pyarrow reads the metadata there
		if err != nil {
			return nil, err
		}
		keys, values = append(keys, keyArrowSchema), append(values, arrowSchema)
	}
	md := arrow.NewMetadata(keys, values)
	return arrow.NewSchema(fields, &md), nil
}

// Write adds one trajectory. It reaches the sink when its row group is full.
func (w *Writer) Write(t *traj.Trajectory) error {
	if w.err != nil {
		return w.err
	}
	if w.done {
		return errors.New("parquet writer: write after close")
	}
	for i := range t.Sequences {
		if err := t.Sequences[i].Validate(); err != nil {
			return fmt.Errorf("trajectory %s: %w", t.ID, err) // the caller's fault: nothing was written, the writer goes on
		}
	}
	if err := w.holds(t); err != nil {
		return err
	}
	if err := checkImages(t); err != nil {
		return fmt.Errorf("trajectory %s: %w", t.ID, err)
	}
	if w.folder != nil {
		if t, w.err = w.folder.keep(t); w.err != nil {
			return w.err
		}
	}
	w.err = guard(w.sink.failed, func() error {
		size := sizeOf(t)
		if w.files != nil {
			n := w.files.missing(t)
			if n > 0 && w.rows > 0 && w.bytes+size+n > w.cfg.RowGroupBytes { // rows of one image stay together
				if err := w.flush(); err != nil {
					return err
				}
				n = w.files.missing(t)
			}
			w.files.add(t)
			size += n
		}
		addRow(w.rb, t, w.files)
		w.rows++
		w.total++
		w.bytes += size
		if w.rows >= w.cfg.RowGroupRows || w.bytes >= w.cfg.RowGroupBytes && w.files == nil || w.bytes >= 2*w.cfg.RowGroupBytes {
			return w.flush()
		}
		return nil
	})
	return w.err
}

// holds reports what a trajectory has that the file has no column for.
func (w *Writer) holds(t *traj.Trajectory) error {
	var missing string
	switch {
	case t.Infos != nil && !slices.Contains(w.cfg.Columns, ColumnInfos):
		missing = ColumnInfos
	case t.Weighed() && !slices.Contains(w.cfg.Columns, ColumnLossWeights):
		missing = ColumnLossWeights
	case t.HasExperts() && !slices.Contains(w.cfg.Columns, ColumnExperts):
		missing = ColumnExperts
	case len(t.Images) > 0 && !slices.Contains(w.cfg.Columns, ColumnImages):
		missing = ColumnImages
	default:
		return nil
	}
	return fmt.Errorf("trajectory %s has %s, and the file no such column: %w", t.ID, missing, ErrNoColumn)
}

// Rows is the number of trajectories taken so far.
func (w *Writer) Rows() int64 { return w.total }

// Bytes is what has reached the sink so far: whole row groups.
func (w *Writer) Bytes() int64 { return w.sink.n }

func (w *Writer) flush() error {
	if w.rows == 0 {
		return nil
	}
	rec := w.rb.NewRecord()
	defer rec.Release()
	w.rows, w.bytes = 0, 0
	var files [][]byte
	if w.files != nil {
		files = w.files.files
		defer w.files.clear()
	}
	if err := w.pq.write(rec, files); err != nil {
		return err
	}
	return w.buf.Flush()
}

// Close writes what is left and the footer. For CreateFile it then syncs the
// file and gives it its name; on an error nothing is left behind.
func (w *Writer) Close() error {
	if w.done {
		return w.err
	}
	if w.err == nil {
		w.err = guard(w.sink.failed, func() error {
			if err := w.flush(); err != nil {
				return err
			}
			if err := w.pq.close(); err != nil {
				return err
			}
			return w.buf.Flush()
		})
	}
	w.done = true
	w.release()
	if w.file == nil {
		return w.err
	}
	if w.err != nil {
		w.discard()
		w.err = fmt.Errorf("%s: %w", w.path, w.err)
		return w.err
	}
	w.err = w.finish()
	return w.err
}

func (w *Writer) release() {
	if w.rb != nil {
		w.rb.Release()
		w.rb = nil
	}
}

// Abort gives the file up: nothing is left under its name nor beside it. A
// Writer on an io.Writer only stops. It does nothing after Close.
func (w *Writer) Abort() {
	if w.done {
		return
	}
	w.done = true
	if w.err == nil {
		w.err = errors.New("parquet writer: aborted")
	}
	w.release()
	if w.file != nil {
		w.discard()
	}
}

func (w *Writer) discard() {
	_ = w.file.Close()
	if w.tmp != "" {
		_ = w.sys.Remove(w.tmp)
	}
}

func (w *Writer) finish() error {
	if w.tmp == "" {
		if err := w.file.Close(); err != nil {
			return pathError(w.path, err)
		}
		return nil
	}
	err := w.file.Sync()
	if cerr := w.file.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = w.sys.Rename(w.tmp, w.path)
	}
	if err != nil {
		_ = w.sys.Remove(w.tmp)
		return pathError(w.path, err)
	}
	if err := w.sys.SyncDir(filepath.Dir(w.path)); err != nil { // the name is durable only then
		return pathError(w.path, err)
	}
	return nil
}

// CreateFile writes to path: under a temporary name in the same folder until
// Close has synced it, so that path never holds half a file. A path that
// exists and is no regular file (a pipe, /dev/null) is written in place.
func CreateFile(path string, meta Metadata, c WriterConfig) (*Writer, error) {
	if st, err := os.Stat(path); err == nil {
		switch {
		case st.IsDir():
			return nil, fmt.Errorf("%s: is a folder, want the name of a file", path)
		case !st.Mode().IsRegular():
			f, err := filesys.OS.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return nil, pathError(path, err)
			}
			return create(filesys.OS, f, "", path, meta, c)
		}
	}
	// Behind a symbolic link the file is replaced, not the link.
	target := path
	if real, err := filepath.EvalSymlinks(path); err == nil {
		target = real
	}
	mode := os.FileMode(0o644)
	if st, err := os.Stat(target); err == nil {
		mode = st.Mode().Perm()
	}
	return CreateIn(filesys.OS, target, mode, meta, c)
}

// CreateIn is CreateFile on a file system that has regular files only.
func CreateIn(sys filesys.FS, path string, mode os.FileMode, meta Metadata, c WriterConfig) (*Writer, error) {
	for {
		tmp := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.%08x.tmp", filepath.Base(path), rand.Uint32()))
		f, err := sys.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, pathError(path, err)
		}
		return create(sys, f, tmp, path, meta, c)
	}
}

func create(sys filesys.FS, f filesys.File, tmp, path string, meta Metadata, c WriterConfig) (*Writer, error) {
	w, err := NewWriter(f, meta, c)
	if err != nil {
		_ = f.Close()
		if tmp != "" {
			_ = sys.Remove(tmp)
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	w.sys, w.file, w.tmp, w.path = sys, f, tmp, path
	if c.ImagesBeside && slices.Contains(c.Columns, ColumnImages) {
		if w.folder, err = newImageFolder(sys, path); err != nil {
			w.Abort()
			return nil, err
		}
	}
	return w, nil
}
