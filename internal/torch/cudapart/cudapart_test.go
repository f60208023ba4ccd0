package cudapart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Another torch's CUDA part would crash, or compute something else: it is named, and not
// taken; of several the first that fits is.
func TestTheCUDAPartOfAnotherTorchIsRefusedByName(t *testing.T) {
	const version = "2.11.0"
	torchOf := func(version string) Place {
		dir := t.TempDir()
		lib := filepath.Join(dir, "lib")
		if err := os.MkdirAll(lib, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(lib, File), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if version != "" {
			text := "from typing import Optional\n__version__ = '" + version + "+cu130'\ndebug = False\n"
			if err := os.WriteFile(filepath.Join(dir, "version.py"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return Place{Folder: lib, What: "python3"}
	}
	old, fits, later := torchOf("2.10.1"), torchOf(version), torchOf(version)
	if path, refused := Find([]Place{{Folder: t.TempDir(), Same: true}, old, fits, later}, version); path != filepath.Join(fits.Folder, File) {
		t.Errorf("%q, refused %q", path, refused)
	}
	path, refused := Find([]Place{old, torchOf("")}, version)
	if path != "" || len(refused) != 2 || !strings.Contains(refused[0], "2.10.1") || !strings.Contains(refused[0], version) {
		t.Errorf("%q, refused %q", path, refused)
	}
	own := old
	own.Same = true
	if path, _ := Find([]Place{own, fits}, version); path != filepath.Join(old.Folder, File) {
		t.Errorf("%q: not what lies beside the libtorch that is loaded", path)
	}
}

// libtorch counts no devices where the driver is too old, and does not say why.
func TestADriverOfAnOlderCUDAIsNamed(t *testing.T) {
	for _, c := range []struct {
		driver, runtime int
		old             bool
	}{{12080, 13000, true}, {11040, 12080, true}, {13000, 13000, false}, {12020, 12080, false}, {14000, 13000, false}, {0, 13000, false},
		{12080, 0, false}} {
		got := OldDriver(c.driver, c.runtime)
		if (got != "") != c.old || c.old && (!strings.Contains(got, "CUDA") || !strings.Contains(got, ".")) {
			t.Errorf("driver %d, libtorch %d: %q", c.driver, c.runtime, got)
		}
	}
}
