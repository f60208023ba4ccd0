package parquet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"agentcli/traj"

	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet/pqarrow"
	"github.com/google/go-cmp/cmp"
)

// byOneWriter is the file that arrow's own writer makes of all groups.
func byOneWriter(t *testing.T, meta Metadata, c WriterConfig, rows []*traj.Trajectory, perGroup int) []byte {
	t.Helper()
	w, err := NewWriter(&bytes.Buffer{}, meta, c) // for the schema and the properties
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	mem := memory.NewGoAllocator()
	pq, err := pqarrow.NewFileWriter(w.pq.schema, &out, w.pq.props, pqarrow.NewArrowWriterProperties(pqarrow.WithAllocator(mem)))
	if err != nil {
		t.Fatal(err)
	}
	rb := array.NewRecordBuilder(mem, w.pq.schema)
	for i, r := range rows {
		addRow(rb, r, nil)
		if (i+1)%perGroup == 0 || i == len(rows)-1 {
			rec := rb.NewRecord()
			if err := pq.Write(rec); err != nil {
				t.Fatal(err)
			}
			rec.Release()
		}
	}
	if err := pq.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// manyRows differ in size; their texts have less than so many characters.
func manyRows(n, length int) []*traj.Trajectory {
	rng := rand.New(rand.NewPCG(2, 3))
	var rows []*traj.Trajectory
	for i := range n {
		r := *samples()[i%3]
		r.ID = fmt.Sprint("task/", i, "#0")
		r.Seed = int64(rng.Uint64())
		if i%5 == 0 {
			long := make([]byte, rng.IntN(length))
			for k := range long {
				long[k] = byte('a' + rng.IntN(26))
			}
			r.Messages = []traj.Message{{Role: "user", Content: string(long)}}
			ids, mask, lp := make([]int32, 2000), make([]bool, 2000), make([]traj.Logprob, 2000)
			for k := range ids {
				ids[k], mask[k], lp[k] = rng.Int32(), k > 10, traj.NoLogprob()
			}
			r.Sequences = []traj.Sequence{{TokenIDs: ids, LossMask: mask, Logprobs: lp}}
		}
		rows = append(rows, &r)
	}
	return rows
}

// TestTheFileIsThatOfOneWriter: row groups of writers of their own, and a footer put
// together from theirs, are the bytes that arrow writes by itself.
func TestTheFileIsThatOfOneWriter(t *testing.T) {
	meta := Metadata{Schema: SchemaVersion, Run: json.RawMessage(`{"model":"m","config":"` + strings.Repeat("long ", 2000) + `"}`)}
	for _, c := range []struct {
		rows, perGroup int
		plain          bool
	}{{0, 1, false}, {1, 1, false}, {300, 100, false}, {301, 100, true}, {60, 3, false}, {400 / every(), 1, true}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			conf := WriterConfig{RowGroupRows: c.perGroup, plain: c.plain}
			rows := manyRows(c.rows, 1000)
			want := byOneWriter(t, meta, conf, rows, c.perGroup)
			var got bytes.Buffer
			w, err := NewWriter(&got, meta, conf)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rows {
				if err := w.Write(r); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Bytes(), want) {
				at := 0
				for at < min(len(want), got.Len()) && want[at] == got.Bytes()[at] {
					at++
				}
				t.Errorf("%d bytes, want %d; they differ from byte %d on", got.Len(), len(want), at)
			}
			if w.Bytes() != int64(len(want)) {
				t.Errorf("Bytes is %d, want %d", w.Bytes(), len(want))
			}
		})
	}
}

// TestLongTextsAreReadAsFromOneWriter: where statistics are of texts of thousands of
// bytes, arrow leaves pieces of a column's metadata between columns, which nobody reads;
// their offsets are not those of one writer.
func TestLongTextsAreReadAsFromOneWriter(t *testing.T) {
	conf := WriterConfig{RowGroupRows: 7}
	rows := manyRows(200/every(), 40_000)
	path := filepath.Join(t.TempDir(), "one.parquet")
	if err := os.WriteFile(path, byOneWriter(t, Metadata{Schema: SchemaVersion, Run: []byte("{}")}, conf, rows, 7), 0o600); err != nil {
		t.Fatal(err)
	}
	want := read(t, path)
	write(t, path, rows, conf)
	if diff := cmp.Diff(want, read(t, path), same); diff != "" {
		t.Error(diff)
	}
}

// TestARowGroupTakesEightKilobytes: no more than that of memory until the file is closed.
func TestARowGroupTakesEightKilobytes(t *testing.T) {
	live := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	w, err := NewWriter(nowhere{}, Metadata{}, WriterConfig{RowGroupRows: 1, plain: true})
	if err != nil {
		t.Fatal(err)
	}
	row := samples()[0]
	const groups = 100
	var before int64
	for i := range 2 * groups {
		if i == groups {
			before = live()
		}
		if err := w.Write(row); err != nil {
			t.Fatal(err)
		}
	}
	if each := (live() - before) / groups; each > 8<<10 || each < 1<<10 {
		t.Errorf("a row group takes %d bytes", each)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

type nowhere struct{}

func (nowhere) Write(b []byte) (int, error) { return len(b), nil }
