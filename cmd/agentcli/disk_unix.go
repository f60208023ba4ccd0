//go:build unix

package main

import (
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// freeBytes is what an ordinary user can still write in the file system of dir,
// which need not exist yet; -1 where that cannot be told.
func freeBytes(dir string) int64 {
	for up := filepath.Dir(dir); dir != up; dir, up = up, filepath.Dir(up) {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			break
		}
	}
	var s syscall.Statfs_t
	if syscall.Statfs(dir, &s) != nil {
		return -1
	}
	return int64(s.Bavail) * int64(s.Bsize) //nolint:unconvert // Bsize has another type on other systems
}

// ignoreFileLimit makes a file that outgrows ulimit -f an error of its write; by
// itself Go ends the process with a dump of its stacks.
func ignoreFileLimit() { signal.Ignore(syscall.SIGXFSZ) }
