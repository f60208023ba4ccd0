package child

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"unsafe"
)

// Of waitid(2).
const (
	pPid    = 1
	wExited = 4
	wNoWait = 0x1000000
)

// awaitEnd returns when a child has ended, and leaves it to be waited for: until
// then no other process or group gets its number. It is false where it cannot.
func awaitEnd(pid int) bool {
	for {
		var info [128]byte
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, pPid, uintptr(pid), uintptr(unsafe.Pointer(&info)), wExited|wNoWait, 0, 0)
		if !errors.Is(errno, syscall.EINTR) {
			return errno == 0
		}
	}
}

// killMarked kills the processes whose environment has a variable: a daemon has
// left its parent's group and session, but not that. A process that has cleared
// its environment is not found.
func killMarked(mark string) {
	want := append([]byte(mark), 0)
	for range 8 { // what was started meanwhile is found by the next look
		found := false
		list, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, path := range list {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err != nil || pid == os.Getpid() {
				continue
			}
			p, err := os.FindProcess(pid) // a handle: the number cannot become another's under it
			if err != nil {
				continue
			}
			if env, err := os.ReadFile(path); err == nil && (bytes.HasPrefix(env, want) || bytes.Contains(env, append([]byte{0}, want...))) {
				found = p.Kill() == nil || found
			}
			_ = p.Release()
		}
		if !found {
			return
		}
	}
}
