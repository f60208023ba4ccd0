//go:build unix

package engine

import (
	"os"
	"syscall"
)

// lockFile keeps two runs from writing one journal; the lock ends with the
// process.
func lockFile(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }
