// Package testmodel finds the small real model that tests are run on. Only
// tests import it.
package testmodel

import (
	"os"
	"path/filepath"
	"testing"
)

// Name is the file that set-up fetches into the cache folder.
const Name = "SmolLM2-135M-Instruct.Q4_1.gguf"

// Path is the SmolLM2 GGUF: AGENTCLI_TEST_GGUF, or the one in the cache folder.
// Without it the test is skipped, and says so.
func Path(tb testing.TB) string {
	tb.Helper()
	if p := os.Getenv("AGENTCLI_TEST_GGUF"); p != "" {
		return p
	}
	cache, err := os.UserCacheDir()
	if err == nil {
		for _, pat := range []string{Name, "*/" + Name, "*/*/" + Name} {
			if m, _ := filepath.Glob(filepath.Join(cache, "agentcli", pat)); len(m) > 0 {
				return m[0]
			}
		}
	}
	tb.Skip("no " + Name + ": run `make setup`, or set AGENTCLI_TEST_GGUF")
	return ""
}
