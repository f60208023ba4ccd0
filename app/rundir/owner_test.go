package rundir

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTheSettingsOfAnotherUserAreSaid before a run goes on with them.
func TestTheSettingsOfAnotherUserAreSaid(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, ConfigFile)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("OPENAI_API_KEY", "sk-canary")
	if s := ForeignRun(dir); s != "" {
		t.Error(s)
	}
	if ForeignRun("") != "" {
		t.Error("said of no folder")
	}
	if os.Chown(path, 65534, -1) != nil {
		t.Skip("needs root")
	}
	if s := ForeignRun(dir); !strings.Contains(s, "OPENAI_API_KEY") || strings.Contains(s, "canary") {
		t.Error(s)
	}
}
