// Package cachedir knows where the program keeps what can be made or fetched
// again: imported datasets, the model of set-up, unfinished runs. What comes
// from the hub is elsewhere, where Hugging Face's own tools look (package hub).
// It is in layer 0 and imports the standard library only.
package cachedir

import (
	"os"
	"path/filepath"
)

// Path is a place in the program's cache folder: below XDG_CACHE_HOME, else
// ~/.cache, as scripts/setup.sh has it. Where there is no home folder it is
// below the folder for temporary files.
func Path(elem ...string) string {
	base := os.Getenv("XDG_CACHE_HOME")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			home = os.TempDir()
		}
		base = filepath.Join(home, ".cache")
	}
	return filepath.Join(append([]string{base, "agentcli"}, elem...)...)
}
