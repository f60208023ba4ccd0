// Package parquettest writes files of trajectories for tests. Only tests import
// it.
package parquettest

import (
	"encoding/json"
	"testing"

	"agentcli/parquet"
	"agentcli/traj"
)

// Write writes a file with these rows, of a run that run (JSON) describes, and
// returns its path.
func Write(tb testing.TB, path, run string, rows ...*traj.Trajectory) string {
	tb.Helper()
	w, err := parquet.CreateFile(path, parquet.Metadata{Run: json.RawMessage(run)}, parquet.WriterConfig{})
	if err != nil {
		tb.Fatal(err)
	}
	for _, r := range rows {
		if err := w.Write(r); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return path
}
