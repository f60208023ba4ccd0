package parquet

import (
	"context"
	"fmt"
	"iter"
	"path/filepath"
	"slices"
	"strings"

	"agentcli/internal/malformed"
	"agentcli/traj"
)

// Reader reads a file of trajectories. Several Rows may run one after the
// other, not at the same time.
type Reader struct {
	t    *Table
	meta Metadata
}

// required are the columns without which a file is no file of trajectories.
// Every other may be absent: what is not there is missing, not an error.
var required = []string{"id", "messages"}

// Open opens a file of trajectories, whoever wrote it. It refuses a newer
// schema by name and a file that is no file of trajectories.
func Open(path string) (*Reader, error) {
	t, err := OpenTable(path)
	if err != nil {
		return nil, err
	}
	r := &Reader{t: t}
	if r.meta, err = t.metadata(); err == nil {
		known := 0
		for _, c := range columns { // those of every file
			if t.Has(c.Name) {
				known++
			}
		}
		if known < 2 {
			err = malformed.At(path, "", malformed.Mismatch,
				"this is no file of trajectories: it has the columns %s; want %s and others", list(t.columns), list(required))
		}
	}
	if err != nil {
		t.Close()
		return nil, err
	}
	return r, nil
}

// Metadata is what the file says about its run.
func (r *Reader) Metadata() Metadata { return r.meta }

// Columns are the columns that the file has.
func (r *Reader) Columns() []string { return r.t.Columns() }

// Close closes the file.
func (r *Reader) Close() error { return r.t.Close() }

// Rows yields the trajectories in the file's order, reading only the named
// columns if any are named; the fields of other columns stay zero. Columns
// that the file lacks leave their fields zero too, except id and messages,
// which must be there if they are wanted. The iteration ends after the first
// error, which names the file and the row.
//
// The opening messages, environment, tools and reward name of the task are not
// columns: Task holds id, dataset, split, question, answers and meta.
func (r *Reader) Rows(ctx context.Context, cols ...string) iter.Seq2[*traj.Trajectory, error] {
	have, err := r.wanted(cols)
	if err != nil {
		return func(yield func(*traj.Trajectory, error) bool) { yield(nil, err) }
	}
	return scan(ctx, r.t, have, r.images().decode)
}

// images reads those that are files of their own.
func (r *Reader) images() *folderReader { return &folderReader{dir: filepath.Dir(r.t.path)} }

// wanted are those of the columns that the file has; no columns are all.
func (r *Reader) wanted(cols []string) ([]string, error) {
	all := ColumnNames()
	for _, c := range cols {
		if !slices.Contains(all, c) {
			return nil, fmt.Errorf("%s: %q is not a column of trajectories (they are %s)", r.t.path, c, strings.Join(all, ", "))
		}
	}
	if len(cols) == 0 {
		cols = all
	}
	// Both name images by their numbers in the list.
	if (slices.Contains(cols, "messages") || slices.Contains(cols, "sequences")) && !slices.Contains(cols, ColumnImages) {
		cols = append(slices.Clone(cols), ColumnImages)
	}
	// Weights come after the sequences that they are of, images after the messages.
	cols = slices.SortedFunc(slices.Values(cols), func(a, b string) int { return slices.Index(all, a) - slices.Index(all, b) })
	var have []string
	for _, c := range cols {
		if r.t.Has(c) {
			have = append(have, c)
			continue
		}
		for _, q := range required {
			if c == q {
				return nil, malformed.At(r.t.path, "column "+c, malformed.Missing, "it is missing (there are %s)", list(r.t.columns))
			}
		}
	}
	if len(have) == 0 {
		return nil, fmt.Errorf("%s: none of the columns %s is there (it has: %s)", r.t.path, list(cols), list(r.t.columns))
	}
	return have, nil
}

func decodeRow(nodes []*node, images *folderReader) (*traj.Trajectory, error) {
	t := &traj.Trajectory{}
	var links imageLinks
	for _, n := range nodes {
		if err := decodeColumn(n, t, &links); err != nil {
			return nil, &malformed.Error{Field: "column " + n.name, Err: err}
		}
	}
	if err := links.join(t, images); err != nil {
		return nil, err
	}
	// A file of another world may lack these; the id tells them.
	if t.Task.ID == "" && t.ID != "" {
		t.Task.ID, _, _ = strings.Cut(t.ID, "#")
	}
	if t.GroupID == "" {
		t.GroupID = t.Task.ID
	}
	return t, nil
}
