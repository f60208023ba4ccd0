package rundir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentcli/internal/exit"
)

func TestAFolderThatCannotBeUsedIsRefusedBeforeTheWork(t *testing.T) {
	dir := t.TempDir()
	file, empty, taken := filepath.Join(dir, "file"), filepath.Join(dir, "empty"), filepath.Join(dir, "taken")
	for _, f := range []string{empty, taken} {
		if err := os.Mkdir(f, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{file, filepath.Join(taken, JournalFile)} {
		if err := os.WriteFile(f, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		path        string
		resumed, ok bool
	}{
		{path: "", ok: true},
		{path: empty, ok: true},
		{path: filepath.Join(dir, "a", "b"), ok: true},
		{path: taken},
		{path: taken, resumed: true, ok: true},
		{path: dir}, // not empty, and no run
		{path: file},
		{path: filepath.Join(file, "run")},
	} {
		err := CheckOutput(c.path, "train", c.resumed)
		var usage exit.UsageError
		if (err == nil) != c.ok || err != nil && (!errors.As(err, &usage) || !strings.Contains(err.Error(), c.path)) {
			t.Errorf("%q, resumed %v: %v", c.path, c.resumed, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 3 {
		t.Errorf("something was left behind: %v, %v", left, err)
	}
}
