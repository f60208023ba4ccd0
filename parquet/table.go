package parquet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"strconv"

	"agentcli/internal/malformed"
	"agentcli/traj"

	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/file"
)

// Table reads any Parquet file row by row.
type Table struct {
	path    string
	src     source
	size    int64
	pq      *file.Reader
	columns []string
}

// OpenTable opens a Parquet file of any layout.
func OpenTable(path string) (*Table, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, pathError(path, err)
	}
	st, err := f.Stat()
	switch {
	case err == nil && st.IsDir():
		err = fmt.Errorf("%s: is a folder, want a Parquet file", path)
	case err == nil && !st.Mode().IsRegular():
		err = fmt.Errorf("%s: a Parquet file must be a regular file (its index is at the end, a pipe cannot be read)", path)
	case err == nil && st.Size() == 0:
		err = malformed.At(path, "", malformed.Missing, "%w: it is empty", ErrNotParquet)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	t, err := newTable(path, f, st.Size())
	if err != nil {
		f.Close()
		return nil, &malformed.Error{Path: path, Err: err}
	}
	return t, nil
}

// source is an open file.
type source interface {
	parquet.ReaderAtSeeker
	io.Closer
}

// newTable reads the index of a file.
func newTable(path string, f source, size int64) (*Table, error) {
	t := &Table{path: path, src: f, size: size}
	return t, guard(nil, func() (err error) {
		if err = checkMagic(f, size); err != nil {
			return err
		}
		props := parquet.NewReaderProperties(newBudget(size))
		if t.pq, err = file.NewParquetReader(f, file.WithReadProps(props)); err != nil {
			return malformed.Errorf(malformed.Syntax, "%w: its index is damaged (copy or write the file again)", ErrNotParquet)
		}
		if err := checkChunks(t.pq, size); err != nil {
			return err
		}
		root := t.pq.MetaData().Schema.Root()
		for i := 0; i < root.NumFields(); i++ {
			t.columns = append(t.columns, root.Field(i).Name())
		}
		return nil
	})
}

// checkMagic tells a file that was cut off from one that is no Parquet file.
func checkMagic(f io.ReaderAt, size int64) error {
	const magic = "PAR1"
	head, tail := make([]byte, 4), make([]byte, 4)
	if n, _ := f.ReadAt(head, 0); string(head[:n]) != magic {
		return traj.Mark(malformed.Errorf(malformed.Syntax, "no Parquet file: it does not start with %s", magic), ErrNotParquet)
	}
	if size < 12 {
		return malformed.Errorf(malformed.Truncated, "%w: it ends after %d bytes", ErrNotParquet, size)
	}
	if _, err := f.ReadAt(tail, size-4); err != nil || string(tail) != magic {
		return malformed.Errorf(malformed.Truncated,
			"%w: its end is missing (the writer was interrupted, or the copy is incomplete)", ErrNotParquet)
	}
	return nil
}

func pathError(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return traj.Mark(fmt.Errorf("%s: no such file; look at the path", path), fs.ErrNotExist)
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return fmt.Errorf("%s: %w", path, err)
}

// Columns are the names of the top-level columns, in the file's order.
func (t *Table) Columns() []string { return t.columns }

// Has reports whether the file has the column.
func (t *Table) Has(column string) bool {
	for _, c := range t.columns {
		if c == column {
			return true
		}
	}
	return false
}

// Value is the file metadata under key.
func (t *Table) Value(key string) (string, bool) {
	if v := t.pq.MetaData().KeyValueMetadata().FindValue(key); v != nil {
		return *v, true
	}
	return "", false
}

// Close closes the file.
func (t *Table) Close() error { return t.src.Close() }

// metadata reads and checks what a trajectory file says about itself.
func (t *Table) metadata() (Metadata, error) {
	var m Metadata
	if v, ok := t.Value(KeySchema); ok {
		n, err := strconv.Atoi(v)
		if err != nil {
			return m, fmt.Errorf("%s: its metadata %s is %q, want a number", t.path, KeySchema, v)
		}
		if n > SchemaVersionImages {
			return m, fmt.Errorf("%s: %w: the file has %s %d, this agentcli reads up to %d: read it with the agentcli that wrote it, or update",
				t.path, ErrNewerSchema, KeySchema, n, SchemaVersionImages)
		}
		m.Schema = n
	}
	if v, ok := t.Value(KeyRun); ok && json.Valid([]byte(v)) {
		m.Run = json.RawMessage(v)
	}
	return m, nil
}

// Rows yields each row as a map from column name to nil, bool, int64, uint64,
// float64, string, []byte, time.Time, []any or map[string]any. Decimals come
// as exact text. With cols only those columns are read. The iteration ends
// after the first error, which names the file and the row.
func (t *Table) Rows(ctx context.Context, cols ...string) iter.Seq2[map[string]any, error] {
	return scan(ctx, t.streaming(), cols, func(nodes []*node) (map[string]any, error) {
		row := make(map[string]any, len(nodes))
		for _, n := range nodes {
			v, err := n.value()
			if err != nil {
				return nil, err
			}
			row[n.name] = v
		}
		return row, nil
	})
}

// streamBuffer is how many bytes of a column are read at once where rows are streamed.
const streamBuffer = 128 << 10

// streaming is the table read page by page. Otherwise arrow reads a column of a row group
// as a whole, and a file of gigabytes may have one row group.
func (t *Table) streaming() *Table {
	props := parquet.NewReaderProperties(newBudget(t.size))
	props.BufferedStreamEnabled, props.BufferSize = true, streamBuffer
	s := *t
	err := guard(nil, func() (err error) {
		s.pq, err = file.NewParquetReader(t.src, file.WithReadProps(props), file.WithMetadata(t.pq.MetaData()))
		return err
	})
	if err != nil {
		return t // as it is: whoever reads it says what is wrong
	}
	return &s
}

// scan walks the rows: decode consumes one record from every node. Only
// arrow's side runs under guard: a panic of the iterator's consumer is its own.
func scan[T any](ctx context.Context, t *Table, cols []string, decode func([]*node) (T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		var nodes []*node
		err := guard(nil, func() (err error) {
			nodes, err = t.nodes(cols)
			return err
		})
		if err != nil {
			yield(none, fmt.Errorf("%s: %w", t.path, err))
			return
		}
		var n int64
		for g := 0; g < t.pq.NumRowGroups(); g++ {
			var rows int64
			err := guard(nil, func() (err error) {
				rows, err = openGroup(t, g, nodes)
				return err
			})
			if err != nil {
				yield(none, &malformed.Error{Path: t.path, Row: int(n + 1), Err: err})
				return
			}
			for i := int64(0); i < rows; i++ {
				if err := ctx.Err(); err != nil {
					yield(none, err)
					return
				}
				n++
				var v T
				err := guard(nil, func() (err error) {
					v, err = decode(nodes)
					return err
				})
				if err != nil {
					yield(none, &malformed.Error{Path: t.path, Row: int(n), Err: err})
					return
				}
				if !yield(v, nil) {
					return
				}
			}
		}
	}
}

// nodes builds fresh cursors for the chosen columns, so that several scans of
// one table do not disturb each other.
func (t *Table) nodes(cols []string) ([]*node, error) {
	root := t.pq.MetaData().Schema.Root()
	want := map[string]bool{}
	for _, c := range cols {
		if !t.Has(c) {
			return nil, fmt.Errorf("no column %q (it has: %s)", c, list(t.columns))
		}
		want[c] = true
	}
	var nodes []*node
	leaves := 0
	for i := 0; i < root.NumFields(); i++ {
		n, err := buildNode(root.Field(i), 0, 0, &leaves)
		if err != nil {
			return nil, err
		}
		if len(cols) == 0 || want[n.name] {
			nodes = append(nodes, n)
		}
	}
	return nodes, nil
}

// list joins names for an error; a long list is cut.
func list(names []string) string {
	s := ""
	for i, n := range names {
		if i == 12 {
			return s + ", ..."
		}
		if i > 0 {
			s += ", "
		}
		s += n
	}
	return s
}
