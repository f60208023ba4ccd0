package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// nobody is the user on the host that sandboxed programs run as when we are
// root; inside is who they take themselves for. It must not be 0: a user of
// that number keeps every capability within its namespaces.
const (
	nobody = 65534
	inside = 1000
)

func isolate(cmd *exec.Cmd, dir string, m mode) {
	attr := &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	cmd.SysProcAttr = attr
	if m == plain {
		return
	}
	uid, gid := os.Getuid(), os.Getgid()
	if m == asNobody {
		uid, gid = nobody, nobody
		_ = os.Chown(dir, uid, gid) // where this fails the folder is just not writable
	}
	// CLONE_NEWPID: when the first process ends, the kernel kills all others.
	// CLONE_NEWNET: a network of its own, without any interface that is up.
	attr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID |
		syscall.CLONE_NEWNS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: inside, HostID: uid, Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: inside, HostID: gid, Size: 1}}
	attr.Credential = &syscall.Credential{Uid: inside, Gid: inside, NoSetGroups: true}
}

// limit sets the limits of a program that is waiting for its stdin.
func limit(pid int, l Limits) error {
	cpu := uint64((l.Wall + time.Second - 1) / time.Second)
	for _, r := range []struct {
		name     string
		resource int
		value    uint64
	}{
		{"CPU time", unix.RLIMIT_CPU, cpu + 1},
		{"memory", unix.RLIMIT_AS, uint64(l.Memory)},
		{"processes", unix.RLIMIT_NPROC, uint64(l.Processes)},
		{"file size", unix.RLIMIT_FSIZE, uint64(l.FileSize)},
		{"open files", unix.RLIMIT_NOFILE, uint64(l.Files)},
		{"core files", unix.RLIMIT_CORE, 0},
	} {
		err := unix.Prlimit(pid, r.resource, &unix.Rlimit{Cur: r.value, Max: r.value}, nil)
		if err == unix.ESRCH {
			return nil // it has ended already
		}
		if err != nil {
			return fmt.Errorf("cannot limit the program's %s: %w", r.name, err)
		}
	}
	return nil
}

func killGroup(pid int) error {
	err := syscall.Kill(-pid, syscall.SIGKILL)
	if err == syscall.ESRCH {
		return os.ErrProcessDone
	}
	return err
}

func signalName(s *os.ProcessState) string {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return w.Signal().String()
	}
	return ""
}
