//go:build unix

package rundir

import (
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// FreeBytes is what an ordinary user can still write in the file system of dir,
// which need not exist yet; -1 where that cannot be told.
func FreeBytes(dir string) int64 {
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

// otherOwner says whether a file belongs to another user than ours, and to whom.
func otherOwner(path string) (owner string, other bool) {
	st, err := os.Stat(path)
	if err != nil {
		return "", false
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok || int(sys.Uid) == os.Getuid() {
		return "", false
	}
	owner = strconv.Itoa(int(sys.Uid))
	if u, err := user.LookupId(owner); err == nil {
		owner = u.Username
	}
	return owner, true
}
