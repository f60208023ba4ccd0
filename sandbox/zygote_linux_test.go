package sandbox

import (
	"slices"
	"strings"
	"testing"
)

// The init is this program again: where its libraries are found through the environment, it needs
// that. What runs in the sandbox sees nothing of it.
func TestTheInitFindsTheProgramsLibrariesAndCodeDoesNot(t *testing.T) {
	t.Setenv("LD_LIBRARY_PATH", "/opt/libraries")
	if got := initEnv(); !slices.Equal(got, []string{"LD_LIBRARY_PATH=/opt/libraries"}) {
		t.Errorf("the init gets %q", got)
	}
	r, err := pool(t, Config{}).Run(t.Context(), "import os\nprint(sorted(os.environ))")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(r.Stdout), "LD_LIBRARY_PATH") || !strings.Contains(string(r.Stdout), "HOME") {
		t.Errorf("code sees %s%s", r.Stdout, r.Stderr)
	}
}
