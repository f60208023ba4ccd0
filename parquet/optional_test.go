package parquet

import (
	"errors"
	"path/filepath"
	"testing"

	"agentcli/internal/malformed"
	"agentcli/traj"

	"github.com/google/go-cmp/cmp"
)

// scheduled are rows with what only a scheduler gives.
func scheduled() []*traj.Trajectory {
	rows := samples()
	rows[0].Infos = []traj.Info{nil, traj.Info(`{"tip":true,"n":[1,2]}`)}
	rows[0].Sequences[1].Weights = []float64{1, .5}
	rows[2].Sequences[0].Weights = []float64{}
	return rows
}

func writeColumns(t *testing.T, rows []*traj.Trajectory, columns ...string) (string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "t.parquet")
	w, err := CreateFile(path, Metadata{}, WriterConfig{Columns: columns})
	if err != nil {
		return "", err
	}
	defer w.Abort()
	for _, row := range rows {
		if err := w.Write(row); err != nil {
			return "", err
		}
	}
	return path, w.Close()
}

// written opens a file of these rows.
func written(t *testing.T, rows []*traj.Trajectory, columns ...string) *Reader {
	t.Helper()
	path, err := writeColumns(t, rows, columns...)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// comeBack compares the rows of a file with those that were written.
func comeBack(t *testing.T, r *Reader, want []*traj.Trajectory) {
	t.Helper()
	i := 0
	for got, err := range r.Rows(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want[i], got, same); diff != "" {
			t.Errorf("row %d: %s", i, diff)
		}
		i++
	}
	if i != len(want) {
		t.Errorf("%d of %d rows", i, len(want))
	}
}

// TestInfosAndWeightsComeBack: in any order of the columns that are asked for.
func TestInfosAndWeightsComeBack(t *testing.T) {
	r := written(t, scheduled(), ColumnInfos, ColumnLossWeights)
	if got := OptionalColumns(r.Columns()); !cmp.Equal(got, []string{ColumnInfos, ColumnLossWeights}) {
		t.Errorf("optional columns: %v", got)
	}
	comeBack(t, r, scheduled())
	for got, err := range r.Rows(t.Context(), ColumnLossWeights, "sequences") {
		if err != nil || got.Sequences[1].Weights[1] != .5 {
			t.Fatalf("%+v %v", got, err)
		}
		break
	}
}

// TestNothingIsLostWithoutAColumnForIt: a file has the columns that it was made with, and
// refuses a row that needs another.
func TestNothingIsLostWithoutAColumnForIt(t *testing.T) {
	for _, columns := range [][]string{nil, {ColumnInfos}, {ColumnLossWeights}} {
		if _, err := writeColumns(t, scheduled(), columns...); !errors.Is(err, ErrNoColumn) {
			t.Errorf("%v: %v", columns, err)
		}
	}
	path, err := writeColumns(t, samples())
	if err != nil {
		t.Fatal(err)
	}
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got := OptionalColumns(r.Columns()); len(got) > 0 {
		t.Errorf("a file of a run without a scheduler has %v", got)
	}
	if _, err := writeColumns(t, nil, "nonsense"); err == nil {
		t.Error("a column that there is not was taken")
	}
}

// TestWeightsThatAreNone: the reader names what is wrong.
func TestWeightsThatAreNone(t *testing.T) {
	rows := scheduled()
	rows[0].Sequences[1].Weights = []float64{1, -1}
	path, err := writeColumns(t, rows, ColumnInfos, ColumnLossWeights)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, err := range r.Rows(t.Context()) {
		var m *malformed.Error
		if !errors.As(err, &m) || malformed.Facts(err).Kind != malformed.Range {
			t.Errorf("%v", err)
		}
		break
	}
}

// Experts of tokens come back as they were, those that do not fit are not written, and rows without any
// have none.
func TestExpertsComeBack(t *testing.T) {
	rows := samples()
	n := len(rows[0].Sequences[1].TokenIDs)
	rows[0].Sequences[1].Experts = &traj.Experts{Layers: 2, Active: 3, IDs: make(traj.ExpertIDs, (n-1)*6)}
	for i := range rows[0].Sequences[1].Experts.IDs {
		rows[0].Sequences[1].Experts.IDs[i] = uint16(1000 * i)
	}
	if _, err := writeColumns(t, rows); !errors.Is(err, ErrNoColumn) {
		t.Errorf("a file without a column for experts: %v", err)
	}
	comeBack(t, written(t, rows, ColumnExperts), rows)
	rows[0].Sequences[1].Experts.IDs = rows[0].Sequences[1].Experts.IDs[:5]
	if _, err := writeColumns(t, rows, ColumnExperts); err == nil {
		t.Error("five ids of experts are written for rows of six")
	}
}
