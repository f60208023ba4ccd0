package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// initName is the program name under which this program, started a second
// time, becomes the zygote's init: not a name that a user can give it by chance.
const initName = "agentcli-sandbox-init"

// Descriptors that the init inherits.
const (
	fdControl = 3 // to the zygote, which keeps it
	fdConfig  = 4 // what to do
	fdReport  = 5 // what went wrong; closed by the exec of the zygote
)

// Users: nobody is the user on the host that sandboxed programs run as when we
// are root; inside is who they take themselves for. It must not be 0: a user
// of that number keeps every capability within its namespaces.
const (
	nobody = 65534
	inside = 1000
)

// initConfig is what the init does.
type initConfig struct {
	Namespaces, Seccomp bool
	Root                bool     // we are root: become nobody at the end
	DropUser            bool     // the same, on the host: without namespaces
	Binds               []string // read-only, at their own places
	Args, Env           []string
	Program             string
}

func init() {
	if len(os.Args) > 0 && os.Args[0] == initName {
		runtime.LockOSThread() // everything below is of the thread that calls exec
		becomeZygote()
	}
}

// becomeZygote never returns.
func becomeZygote() {
	report := os.NewFile(fdReport, "report")
	die := func(p Part, err error) {
		_ = json.NewEncoder(report).Encode(notGranted(p, err))
		os.Exit(1)
	}
	// Whoever started us may have left descriptors open that we do not know of.
	if err := unix.CloseRange(fdConfig, 1<<31-1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		for fd := fdConfig; fd < 4096; fd++ { // before Linux 5.11
			unix.CloseOnExec(fd)
		}
	}
	var c initConfig
	err := json.NewDecoder(os.NewFile(fdConfig, "config")).Decode(&c)
	if err != nil {
		die("", err)
	}
	// 1 is the one limit at which the kernel starts no handler of core files, which
	// would be a program of the host's. Who may not raise the limit to it keeps 0.
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1, Max: 1})
	if c.Namespaces {
		if err := makeRoot(c); err != nil {
			die(Namespaces, err)
		}
		_ = unix.Sethostname([]byte("sandbox"))
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		die(Seccomp, kernel("no_new_privs", err))
	}
	if c.Namespaces {
		if err := keepOnly(c.Root, unix.CAP_SYS_ADMIN); err != nil {
			die(Namespaces, kernel("capabilities", err))
		}
	} else if c.DropUser {
		if err := become(nobody); err != nil {
			die("", err)
		}
	}
	if own, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err == nil { // which is 20 - nice
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, min(20-own+niceness, 19))
	}
	if c.Seccomp {
		f, err := filter()
		if err == nil {
			err = install(f)
		}
		if err != nil {
			die(Seccomp, err)
		}
	}
	die("", fmt.Errorf("%s: %w", c.Program, syscall.Exec(c.Program, c.Args, c.Env)))
}

// keepOnly drops every capability but one, which exec passes on.
func keepOnly(root bool, keep uintptr) error {
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if c == keep {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && err != unix.EINVAL {
			return err
		}
	}
	if root {
		if err := unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0); err != nil {
			return err
		}
		if err := become(inside); err != nil {
			return err
		}
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	bit := uint32(1) << (keep % 32)
	data[keep/32] = unix.CapUserData{Effective: bit, Permitted: bit, Inheritable: bit}
	if err := unix.Capset(&hdr, &data[0]); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, keep, 0, 0)
}

// niceness is how much less of the processors the sandbox asks for than the engine:
// about half. With much less calls beside a busy model would take longer than they
// may.
const niceness = 3

// become gives up user 0, in this thread.
func become(user uintptr) error {
	if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); e != 0 {
		return fmt.Errorf("setgroups: %w", e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, user, user, user); e != 0 {
		return fmt.Errorf("setresgid: %w", e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, user, user, user); e != 0 {
		return fmt.Errorf("setresuid: %w", e)
	}
	return nil
}

// workDir is a call's own folder, and /tmp. Its parent holds nothing else, so
// that one Landlock rule for the parent serves every call.
const workDir = "/home/user"

const old = "/.old" // where the host's root is until it is let go

// makeRoot leaves nothing of the host's files in sight but what is bound.
func makeRoot(c initConfig) error {
	mount := func(what, source, target, fstype string, flags uintptr, data string) error {
		return kernel(what, unix.Mount(source, target, fstype, flags, data))
	}
	if err := mount("private mounts", "", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	const base = "/tmp" // comes into sight again, under old, once we have moved
	if err := mount("a root of its own", "tmpfs", base, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755,size=1m"); err != nil {
		return err
	}
	if err := os.Mkdir(base+old, 0o700); err != nil {
		return err
	}
	if err := kernel("pivot_root", unix.PivotRoot(base, base+old)); err != nil {
		return err
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	// A new proc can only be mounted while one is in sight.
	for _, d := range []string{"/proc", "/dev", "/etc", filepath.Dir(workDir), workDir} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return err
		}
	}
	if err := mount("a proc of its own", "proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return err
	}
	for _, p := range c.Binds {
		if err := bind(p); err != nil {
			return err
		}
	}
	// An interpreter below /tmp has made a folder of it: code then finds its own
	// place by TMPDIR only.
	if err := os.Symlink(strings.TrimPrefix(workDir, "/"), "/tmp"); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	for name, target := range map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1",
		"stderr": "/proc/self/fd/2", "shm": workDir} {
		if err := os.Symlink(target, "/dev/"+name); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{
		"passwd":   fmt.Sprintf("root:x:0:0:root:/:/sbin/nologin\nuser:x:%d:%d::%s:/bin/sh\n", inside, inside, workDir),
		"group":    fmt.Sprintf("root:x:0:\nuser:x:%d:\n", inside),
		"hosts":    "127.0.0.1 localhost\n",
		"hostname": "sandbox\n",
	} {
		if err := os.WriteFile("/etc/"+name, []byte(text), 0o644); err != nil {
			return err
		}
	}
	if err := kernel("letting go of the host's root", unix.Unmount(old, unix.MNT_DETACH)); err != nil {
		return err
	}
	if err := os.Remove(old); err != nil {
		return err
	}
	return mount("a read-only root", "", "/", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "")
}

// bind shows a path of the host at its own place, read-only. A path that the
// host does not have is left out; a symbolic link is copied.
func bind(path string) error {
	st, err := os.Lstat(old + path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := os.Lstat(path); err == nil {
		return nil // it is in sight already, in a folder that was bound
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if st.Mode()&fs.ModeSymlink != 0 {
		to, err := os.Readlink(old + path)
		if err != nil {
			return err
		}
		return os.Symlink(to, path)
	}
	if st.IsDir() {
		err = os.Mkdir(path, 0o755)
	} else {
		err = os.WriteFile(path, nil, 0o644)
	}
	if err != nil {
		return err
	}
	if err := kernel("showing "+path, unix.Mount(old+path, path, "", unix.MS_BIND|unix.MS_REC, "")); err != nil {
		return err
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID}
	if strings.HasPrefix(path, "/dev/") {
		attr.Attr_set |= unix.MOUNT_ATTR_NOEXEC
	} else {
		attr.Attr_set |= unix.MOUNT_ATTR_NODEV
	}
	return kernel("making "+path+" read-only", unix.MountSetattr(unix.AT_FDCWD, path, unix.AT_RECURSIVE, &attr))
}
