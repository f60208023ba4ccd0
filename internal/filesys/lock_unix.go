//go:build unix

package filesys

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

func lock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return fmt.Errorf("%w: %s", ErrLocked, f.Name())
		default: // ENOSYS, ENOTSUP, EOPNOTSUPP, ENOLCK: what it is called differs
			return fmt.Errorf("%w: %s: %w", ErrNoLocks, f.Name(), err)
		}
	}
}
