//go:build libtorch

package torch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Another torch's CUDA part would crash, or compute something else: it is named, and not
// taken; of several the first that fits is.
func TestTheCUDAPartOfAnotherTorchIsRefusedByName(t *testing.T) {
	torchOf := func(version string) place {
		dir := t.TempDir()
		lib := filepath.Join(dir, "lib")
		if err := os.MkdirAll(lib, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(lib, cudaFile), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if version != "" {
			text := "from typing import Optional\n__version__ = '" + version + "+cu130'\ndebug = False\n"
			if err := os.WriteFile(filepath.Join(dir, "version.py"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return place{folder: lib, what: "python3"}
	}
	old, fits, later := torchOf("2.10.1"), torchOf(Version()), torchOf(Version())
	if path, refused := findCUDA([]place{{folder: t.TempDir(), same: true}, old, fits, later}); path != filepath.Join(fits.folder, cudaFile) {
		t.Errorf("%q, refused %q", path, refused)
	}
	path, refused := findCUDA([]place{old, torchOf("")})
	if path != "" || len(refused) != 2 || !strings.Contains(refused[0], "2.10.1") || !strings.Contains(refused[0], Version()) {
		t.Errorf("%q, refused %q", path, refused)
	}
	own := old
	own.same = true
	if path, _ := findCUDA([]place{own, fits}); path != filepath.Join(old.folder, cudaFile) {
		t.Errorf("%q: not what lies beside the libtorch that is loaded", path)
	}
}
