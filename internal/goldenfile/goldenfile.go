// Package goldenfile reads the files of testdata that scripts/golden makes from the
// real thing. Only tests import it.
package goldenfile

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Load reads testdata/name, JSON, into v. A name that ends in .gz is of a compressed file.
func Load(tb testing.TB, name string, v any) {
	tb.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	r := io.Reader(f)
	if strings.HasSuffix(name, ".gz") {
		if r, err = gzip.NewReader(f); err != nil {
			tb.Fatal(err)
		}
	}
	b, err := io.ReadAll(r)
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		tb.Fatalf("%s: %v", name, err)
	}
}
