package cachedir

import (
	"os"
	"path/filepath"
	"testing"
)

func TestPath(t *testing.T) {
	for _, c := range []struct{ xdg, home, want string }{
		{"/x", "/h", "/x/agentcli/runs/a"},
		{"", "/h", "/h/.cache/agentcli/runs/a"},
		{"", "", filepath.Join(os.TempDir(), ".cache/agentcli/runs/a")},
	} {
		t.Setenv("XDG_CACHE_HOME", c.xdg)
		t.Setenv("HOME", c.home)
		if got := Path("runs", "a"); got != c.want {
			t.Errorf("%q %q: %s, want %s", c.xdg, c.home, got, c.want)
		}
	}
}
