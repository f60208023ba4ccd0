package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAFolderThatCannotBeMadeIsRefusedBeforeTheWork(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, ok := range map[string]bool{"": true, dir: true, filepath.Join(dir, "a", "b"): true, filepath.Join(file, "run"): false, file: false} {
		err := canMake(path)
		if (err == nil) != ok || err != nil && (!strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "--output ")) {
			t.Errorf("%q: %v", path, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("something was left behind: %v, %v", left, err)
	}
}
