//go:build unix

package datasets

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"agentcli/internal/malformed"
)

// mkfifo makes a named pipe.
func mkfifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rows.jsonl")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A pipe without a writer, and one whose writer writes nothing more, end with the context:
// ^C is heeded.
func TestAWaitForAPipeEndsWithTheContext(t *testing.T) {
	for _, writes := range []bool{false, true} {
		path := mkfifo(t)
		ctx, cancel := context.WithCancel(t.Context())
		if writes {
			w, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			if _, err := w.WriteString(`{"question": "x"}` + "\n"); err != nil {
				t.Fatal(err)
			}
		} else {
			cancel()
		}
		rows := 0
		var last error
		for _, err := range ReadRows(ctx, path) {
			if last = err; err == nil {
				rows++
				cancel() // the reader waits for the next row, or is about to
			}
		}
		if !errors.Is(last, context.Canceled) || writes != (rows == 1) {
			t.Errorf("%d rows, then %v", rows, last)
		}
		cancel()
	}
}

// What can be read once is no dataset: its tasks would never come.
func TestAPipeIsNoDataset(t *testing.T) {
	offline(t)
	path := mkfifo(t)
	if _, err := Open(t.Context(), path, Options{}); malformed.Facts(err).Kind != malformed.Unsupported || malformed.Facts(err).Path != path {
		t.Error(err)
	}
}
