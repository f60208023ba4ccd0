package serve

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

// TestAPathOfARequestIsBelowAnAllowedFolder: of what is elsewhere nothing is said, not even
// whether it is there.
func TestAPathOfARequestIsBelowAnAllowedFolder(t *testing.T) {
	top := t.TempDir()
	allowed := filepath.Join(top, "allowed")
	if err := errors.Join(os.MkdirAll(filepath.Join(allowed, "model"), 0o755), os.Mkdir(filepath.Join(top, "other"), 0o755),
		os.Symlink(filepath.Join(top, "other"), filepath.Join(allowed, "link"))); err != nil {
		t.Fatal(err)
	}
	a := &administration{&server{o: Options{AllowPath: []string{allowed}}}}
	for path, want := range map[string]int{
		"": http.StatusBadRequest, allowed: 0,
		filepath.Join(allowed, "model"):        0,
		filepath.Join(allowed, "step-10"):      http.StatusBadRequest,
		filepath.Join(top, "other"):            http.StatusForbidden,
		filepath.Join(top, "none"):             http.StatusForbidden,
		filepath.Join(allowed, "link"):         http.StatusForbidden,
		filepath.Join(allowed, "link", "none"): http.StatusForbidden,
		filepath.Join(allowed, "..", "none"):   http.StatusForbidden,
		filepath.Join(allowed, "none", "none"): http.StatusForbidden,
	} {
		var p *problem
		if err := a.allowed("model_path", path); err != nil && !errors.As(err, &p) {
			t.Fatal(err)
		}
		if p == nil && want != 0 || p != nil && p.status != want {
			t.Errorf("%s: %v, want %d", path, p, want)
		}
	}
}
