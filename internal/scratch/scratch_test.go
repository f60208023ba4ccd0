package scratch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNothingIsLeft of a file, whether it is closed or not.
func TestNothingIsLeft(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	f, err := New("x-*")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("abc"), 5); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 3)
	if _, err := f.ReadAt(b, 5); err != nil || string(b) != "abc" {
		t.Errorf("%q %v", b, err)
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if f.left == "" && len(left) > 0 {
		t.Errorf("before Close there is %v", left)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if left, err = os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("after Close there is %v %v", left, err)
	}
}

// TestTMPDIRComesFirst: who names a folder has reasons, and reads of it where it fails.
func TestTMPDIRComesFirst(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	t.Setenv("TMPDIR", none)
	_, err := New("x-*")
	if err == nil || Dir() != none {
		t.Fatalf("%s %v", Dir(), err)
	}
	want := none + ": no such file or directory; rows are kept there: name a folder with room for it in TMPDIR"
	if said := Explain(err, "rows are kept there").Error(); said != want || strings.Contains(said, "x-") {
		t.Errorf("%s, want %s", said, want)
	}
	t.Setenv("TMPDIR", "")
	if st, err := os.Stat(Dir()); err != nil || !st.IsDir() {
		t.Errorf("%s: %v", Dir(), err)
	}
}
