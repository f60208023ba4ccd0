package folder

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"agentcli/internal/filesys"
	"agentcli/retriever"
)

func create(t *testing.T, dir string, replace bool) *Writer {
	t.Helper()
	w, err := Create(dir, replace)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Abort)
	return w
}

// commit writes a folder with one file.
func commit(t *testing.T, dir, content string, replace bool) {
	t.Helper()
	w := create(t, dir, replace)
	f, err := w.Create("a.dat")
	if err == nil {
		_, err = io.WriteString(f, content)
	}
	if err == nil {
		err = f.Close()
	}
	if err == nil {
		err = w.Commit(&Manifest{Kind: "k"})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, dir string) string {
	t.Helper()
	f, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := f.Map("a.dat", true)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestAFolderIsThereWhenItIsFinished(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x")
	w := create(t, dir, false)
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the folder is there before it is finished")
	}
	if _, err := Open(w.Path(".")); !errors.Is(err, ErrNotIndex) {
		t.Errorf("half of an index: %v", err)
	}
	w.Abort()
	commit(t, dir, "one", false)
	if got := read(t, dir); got != "one" {
		t.Error(got)
	}
	entries, err := os.ReadDir(filepath.Dir(dir))
	if err != nil || len(entries) != 1 {
		t.Error("something is left beside the folder", entries, err)
	}
	entries, err = os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Error("want the file and its manifest", entries, err)
	}
}

func TestWhatIsThereIsNotReplacedUnasked(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x")
	commit(t, dir, "one", false)
	if _, err := Create(dir, false); !errors.Is(err, ErrExists) {
		t.Error(err)
	}
	commit(t, dir, "two", true)
	if got := read(t, dir); got != "two" {
		t.Error(got)
	}
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "thesis.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(other, true); !errors.Is(err, ErrExists) {
		t.Errorf("a folder that is no index: %v", err)
	}
	commit(t, t.TempDir(), "into an empty one", false)
}

// Files of others beside an index outlive it, and a folder that is not of the program is not
// touched.
func TestReplacingAnIndexLeavesFilesOfOthers(t *testing.T) {
	write := func(path, content string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(t.TempDir(), "x")
	commit(t, dir, "one", false)
	write(filepath.Join(dir, "notes", "thesis.txt"), "mine")
	commit(t, dir, "two", true)
	if b, err := os.ReadFile(filepath.Join(dir, "notes", "thesis.txt")); err != nil || string(b) != "mine" || read(t, dir) != "two" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := os.Stat(dir + ".partial"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}

	// A file of the user's has the name of a new one.
	w := create(t, dir, true)
	f, err := w.Create("b.dat")
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	write(filepath.Join(dir, "b.dat"), "mine")
	if err := w.Commit(&Manifest{Kind: "k"}); !errors.Is(err, ErrExists) || read(t, dir) != "two" {
		t.Error(err)
	}
	w.Abort()

	for name, manifest := range map[string]string{
		"of another program":    `{"name": "app", "icons": []}`,
		"with a path":           `{"format": 2, "kind": "k", "files": {"../y/a.dat": {}}}`,
		"that is no JSON":       `{`,
		"with an absolute path": `{"format": 2, "kind": "k", "files": {"/tmp/a.dat": {}}}`,
	} {
		other := t.TempDir()
		write(filepath.Join(other, manifestName), manifest)
		if _, err := Create(other, true); !errors.Is(err, ErrExists) {
			t.Errorf("a manifest %s: %v", name, err)
		}
	}
	fresh := filepath.Join(t.TempDir(), "x")
	write(fresh+".partial/thesis.txt", "mine")
	if _, err := Create(fresh, true); !errors.Is(err, ErrExists) {
		t.Errorf("a folder of another's: %v", err)
	}
}

// TestABuildThatWasKilledIsNoObstacle: and one that runs is.
func TestABuildThatWasKilledIsNoObstacle(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x")
	if err := os.MkdirAll(dir+".partial/sub", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+".partial/"+lockName, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w := create(t, dir, false)
	if _, err := os.Stat(w.Path("sub")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("what the killed one left is still there")
	}
	if _, err := Create(dir, false); !errors.Is(err, filesys.ErrLocked) {
		t.Errorf("a second build of the same folder: %v", err)
	}
}

func TestDamagedFoldersAreRefused(t *testing.T) {
	for name, damage := range map[string]func(dir string) error{
		"a missing file": func(dir string) error { return os.Remove(filepath.Join(dir, "a.dat")) },
		"a cut file":     func(dir string) error { return os.Truncate(filepath.Join(dir, "a.dat"), 2) },
		"a changed file": func(dir string) error { return os.WriteFile(filepath.Join(dir, "a.dat"), []byte("onf"), 0o600) },
	} {
		dir := filepath.Join(t.TempDir(), "x")
		commit(t, dir, "one", false)
		if err := damage(dir); err != nil {
			t.Fatal(err)
		}
		f, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Map("a.dat", true); !errors.Is(err, retriever.ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := f.Map("b.dat", false); !errors.Is(err, retriever.ErrDamaged) {
			t.Errorf("a file that the manifest does not name: %v", err)
		}
		f.Close()
	}
	for _, manifest := range []string{"", "{", "[]", `{"format":99}`, `{"format":"1"}`} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, manifestName), []byte(manifest), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir); !errors.Is(err, ErrNotIndex) {
			t.Errorf("manifest %q: %v", manifest, err)
		}
	}
	if _, err := Open(t.TempDir()); !errors.Is(err, ErrNotIndex) {
		t.Error(err)
	}
	corpus := filepath.Join(t.TempDir(), "corpus.jsonl")
	if err := os.WriteFile(corpus, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(corpus); !errors.Is(err, ErrNotIndex) {
		t.Errorf("a file: %v", err)
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
