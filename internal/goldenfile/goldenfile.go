// Package goldenfile reads the files of testdata that scripts/golden makes from the
// real thing. Only tests import it.
package goldenfile

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// Load reads testdata/name, JSON, into v.
func Load(tb testing.TB, name string, v any) {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		tb.Fatal(err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		tb.Fatal(err)
	}
}
