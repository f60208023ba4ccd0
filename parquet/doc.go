// Package parquet writes trajectories to Apache Parquet and reads them back,
// whoever wrote them, and reads any other Parquet file row by row.
//
// It is the only package that imports arrow. It is in layer 1: beside arrow it
// imports traj and the standard library only. Arrow panics where its sink
// fails or a file lies about itself; no such panic leaves this package.
package parquet

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Versions of the file layout. A file without images is of version 1.
const (
	SchemaVersion       = 1
	SchemaVersionImages = 2 // the newest that this program reads
)

// The keys of the file metadata.
const (
	KeySchema = "agentcli.schema"
	KeyRun    = "agentcli.run"
)

// Errors that a caller may tell apart.
var (
	// ErrNotParquet: the file has no Parquet footer: it is something else, or was cut off.
	ErrNotParquet = errors.New("not a complete Parquet file")
	// ErrNewerSchema: the file was written by a newer agentcli.
	ErrNewerSchema = errors.New("newer schema")
	// ErrNoColumn: what a trajectory has needs an optional column (WriterConfig.Columns).
	ErrNoColumn = errors.New("it would be lost")
)

// Metadata is what a file says about the run that made it.
type Metadata struct {
	Schema int             // agentcli.schema; 0 in a file that another program wrote
	Run    json.RawMessage // agentcli.run: the command's whole configuration; nil where absent
}

// guard turns a panic of arrow into an error. The sink's own error, where it
// has one, is the cause and is what the user should read.
func guard(cause func() error, f func() error) (err error) {
	defer func() {
		r := recover()
		if cause != nil {
			if c := cause(); c != nil {
				err = c
				return
			}
		}
		if r != nil {
			err = fmt.Errorf("damaged or unsupported Parquet data (%v)", oneLine(fmt.Sprint(r)))
		}
	}()
	return f()
}

// oneLine keeps an error of a library readable as one line.
func oneLine(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c == '\n' || c == '\r' || c == '\t' {
			b[i] = ' '
		}
	}
	if len(b) > 300 {
		b = append(b[:300:300], "..."...)
	}
	return string(b)
}
