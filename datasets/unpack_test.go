package datasets

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentcli/internal/malformed"

	"github.com/klauspost/compress/zstd"
)

func packed(t *testing.T, ext, text string) string {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser = gzip.NewWriter(&b)
	if strings.HasSuffix(ext, ".zst") {
		z, err := zstd.NewWriter(&b)
		if err != nil {
			t.Fatal(err)
		}
		w = z
	}
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestCompressedFilesAreRead(t *testing.T) {
	offline(t)
	const row = `{"question":"Q?","answer":"x","id":7}`
	for name, text := range map[string]string{"a.jsonl": row, "a.ndjson": row, "a.json": "[" + row + "]",
		"a.csv": "question,answer,id\nQ?,x,7\n"} {
		for _, ext := range []string{".gz", ".zst", ".GZ"} {
			file := filepath.Join(writeFiles(t, map[string]string{name + ext: packed(t, strings.ToLower(ext), text)}), name+ext)
			got := tasks(t, file, Options{})
			if len(got) != 1 || got[0].ID != "a/7" || got[0].Answers[0] != "x" {
				t.Errorf("%s%s: %+v", name, ext, got)
			}
		}
	}
}

func TestDamagedAndHostileCompressedFilesAreErrors(t *testing.T) {
	offline(t)
	defer func(n int64) { slack = n }(slack)
	slack = 1 << 20
	row := `{"question":"` + strings.Repeat("Q", 300) + `?","answer":"x"}` + "\n"
	for name, x := range map[string]struct {
		text string
		kind malformed.Kind
	}{
		"text.jsonl.gz":  {row, malformed.Syntax},
		"text.jsonl.zst": {row, malformed.Syntax},
		"cut.jsonl.gz":   {packed(t, ".gz", row)[:30], malformed.Truncated},
		"cut.jsonl.zst":  {packed(t, ".zst", strings.Repeat(row, 9))[:40], malformed.Truncated},
		"empty.jsonl.gz": {"", malformed.Truncated},
		"line.jsonl.zst": {packed(t, ".zst", strings.Repeat("a", 8<<20)), malformed.Range},
		"rows.jsonl.gz":  {packed(t, ".gz", strings.Repeat("\n", 8<<20)), malformed.Range},
		"rows.jsonl.zst": {packed(t, ".zst", strings.Repeat("\n", 8<<20)), malformed.Range},
	} {
		file := filepath.Join(writeFiles(t, map[string]string{name: x.text}), name)
		_, err := Open(context.Background(), file, Options{})
		if facts := malformed.Facts(err); err == nil || facts.Kind != x.kind || facts.Path != file || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %v", name, err, x.kind)
		}
	}
	file := filepath.Join(writeFiles(t, map[string]string{"a.parquet.gz": packed(t, ".gz", "x")}), "a.parquet.gz")
	if _, err := Open(context.Background(), file, Options{}); err == nil {
		t.Error("a compressed Parquet file was read")
	}
}

// endless is a file that has a beginning and then rows without end, and counts what is read.
type endless struct {
	begin io.Reader
	more  []byte
	read  *int64
}

func (e *endless) Read(p []byte) (int, error) {
	n, err := e.begin.Read(p)
	if errors.Is(err, io.EOF) {
		e.begin = bytes.NewReader(e.more)
		n, err = e.begin.Read(p)
	}
	*e.read += int64(n)
	return n, err
}

func (e *endless) Close() error { return nil }

// TestTheFirstRowNeedsTheBeginningOnly reads the first rows of files without an end.
func TestTheFirstRowNeedsTheBeginningOnly(t *testing.T) {
	offline(t)
	defer func(f func(context.Context, string) (io.ReadCloser, error)) { openBytes = f }(openBytes)
	row := `{"question":"` + strings.Repeat("long ", 200) + `?","answer":"x"}` + "\n"
	const fields = "question,answer\n"
	for name, x := range map[string]struct{ begin, more string }{
		"a.jsonl":     {row, row},
		"a.jsonl.gz":  {packed(t, ".gz", row), packed(t, ".gz", row)},
		"a.jsonl.zst": {packed(t, ".zst", row), packed(t, ".zst", row)},
		"a.csv":       {fields, "Q?,x\n"},
		"a.csv.zst":   {packed(t, ".zst", fields), packed(t, ".zst", "Q?,x\n")},
		"a.json":      {"[" + strings.TrimSpace(row), "," + strings.TrimSpace(row)},
	} {
		read := int64(0)
		openBytes = func(context.Context, string) (io.ReadCloser, error) {
			return &endless{begin: strings.NewReader(x.begin), more: []byte(x.more), read: &read}, nil
		}
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, nil, 0o600); err != nil { // there must be one of that name
			t.Fatal(err)
		}
		for r, err := range ReadRows(context.Background(), path) {
			if err != nil || r.Fields["answer"] != "x" {
				t.Fatalf("%s: %+v %v", name, r, err)
			}
			break
		}
		if read > 1<<20 {
			t.Errorf("%s: %d bytes were read for the first row", name, read)
		}
		read = 0
		// Open reads some rows more, and leaves the rest for Check.
		if d, err := Open(context.Background(), path, Options{Ahead: true}); err != nil || d.IsChecked() {
			t.Errorf("%s: %v", name, err)
		}
		if read > 4<<20 {
			t.Errorf("%s: %d bytes were read to open it", name, read)
		}
	}
}
