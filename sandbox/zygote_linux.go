package sandbox

import (
	"context"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"agentcli/internal/safego"

	"golang.org/x/sys/unix"
)

// modules are always imported before anything is forked.
var modules = []string{"math", "cmath", "json", "re", "itertools", "functools", "collections", "fractions", "decimal", "statistics",
	"random", "datetime", "time", "heapq", "bisect", "string", "operator", "typing", "dataclasses", "copy", "textwrap", "hashlib",
	"io", "os", "contextlib"}

//go:embed zygote.py
var zygoteCode string

// errLost is the end of a process whose zygote has died.
var errLost = errors.New("the sandbox's zygote has died")

// zygote is one running zygote.
type zygote struct {
	iso     *isolation
	cmd     *exec.Cmd
	kill    func() error // of cmd
	wait    func() error // of cmd
	control *net.UnixConn
	grouped bool // without a pid namespace
	stderr  *bounded
	modules []string
	group   *group
	done    chan struct{} // closed when it is gone

	mu   sync.Mutex
	next int
	live map[int]*Proc
	dead bool
}

// launch starts a zygote and waits until it has imported its modules.
func launch(ctx context.Context, iso *isolation) (_ *zygote, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "control"), os.NewFile(uintptr(pair[1]), "control")
	defer ours.Close()
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	z := &zygote{iso: iso, control: conn.(*net.UnixConn), grouped: !iso.has(Namespaces), live: map[int]*Proc{},
		done: make(chan struct{}), stderr: &bounded{max: 64 << 10}}
	defer func() {
		if err != nil {
			_ = conn.Close()
		}
	}()
	configR, configW, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	reportR, reportW, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	defer configR.Close()
	defer configW.Close()
	defer reportR.Close()
	defer reportW.Close()

	z.cmd = &exec.Cmd{Path: "/proc/self/exe", Args: []string{initName}, Env: initEnv(), Dir: "/",
		ExtraFiles: []*os.File{theirs, configR, reportW}, Stdout: z.stderr, Stderr: z.stderr, WaitDelay: time.Second}
	attr := &syscall.SysProcAttr{Setsid: true}
	root := os.Getuid() == 0
	if iso.has(Namespaces) {
		attr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID |
			syscall.CLONE_NEWNS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS
		if root {
			// User 0 is there for the mounts only: the init leaves it for good.
			attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}, {ContainerID: inside, HostID: nobody, Size: 1}}
			attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}, {ContainerID: inside, HostID: nobody, Size: 1}}
			attr.GidMappingsEnableSetgroups = true
		} else {
			attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: inside, HostID: os.Getuid(), Size: 1}}
			attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: inside, HostID: os.Getgid(), Size: 1}}
			for c := uintptr(0); c <= unix.CAP_CHECKPOINT_RESTORE; c++ {
				attr.AmbientCaps = append(attr.AmbientCaps, c)
			}
		}
	}
	z.cmd.SysProcAttr = attr
	if err := z.cmd.Start(); err != nil {
		if iso.has(Namespaces) {
			return nil, reported(notGranted(Namespaces, kernel("new namespaces", err)).both())
		}
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	z.kill, z.wait = z.cmd.Process.Kill, z.cmd.Wait
	_ = theirs.Close()
	_ = configR.Close()
	_ = reportW.Close()
	z.group = join(z.cmd.Process.Pid, iso.c)
	defer func() {
		if err != nil {
			z.end()
		}
	}()
	binds := slices.Concat(systemPaths, devices, iso.py.Paths)
	if err := json.NewEncoder(configW).Encode(initConfig{
		Namespaces: iso.has(Namespaces), Seccomp: iso.has(Seccomp), Root: root, DropUser: iso.dropUser, Binds: binds,
		// -B: no .pyc files; -s: nothing of a user's own; the environment is ours.
		Program: iso.py.Real, Args: []string{iso.py.Executable, "-s", "-B", "-X", "utf8", "-c", zygoteCode},
		Env: []string{"PYTHONHASHSEED=0", "PYTHONSAFEPATH=1", "HOME=" + workDir, "TMPDIR=" + workDir,
			"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8",
			"OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1", "MKL_NUM_THREADS=1", "NUMEXPR_NUM_THREADS=1", "MPLBACKEND=Agg"},
	}); err != nil && !errors.Is(err, syscall.EPIPE) {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	_ = configW.Close()
	stop := context.AfterFunc(ctx, func() { _ = z.kill() })
	defer stop()
	var r refusal
	if err := json.NewDecoder(reportR).Decode(&r); err == nil {
		return nil, reported(r.both())
	}
	if err := z.greet(); err != nil {
		if errors.Is(err, ErrRefused) {
			return nil, err
		}
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		z.end()
		if s := lastLine(z.stderr.b.Bytes()); s != "" {
			return nil, fmt.Errorf("the sandbox's Python (%s) does not start: %s", iso.py.Executable, s)
		}
		return nil, fmt.Errorf("the sandbox's Python (%s) does not start: %w (its process: %s)", iso.py.Executable, err, z.cmd.ProcessState)
	}
	go z.listen()
	return z, nil
}

// greet tells the zygote its configuration and waits for it to be ready.
func (z *zygote) greet() error {
	iso := z.iso
	f, err := codeFilter(!iso.has(Namespaces))
	if err != nil && iso.has(Seccomp) {
		return &refusal{Seccomp, err.Error()}
	}
	l := iso.c.Limits
	cpu := int64((l.Wall+time.Second-1)/time.Second) + 1
	config, err := json.Marshal(map[string]any{
		"parts": iso.parts, "arch": runtime.GOARCH, "modules": slices.Concat(modules, iso.c.Modules), "filter": hex.EncodeToString(program(f)),
		"read":    slices.Concat(systemPaths, iso.py.Paths, iso.own()),
		"devices": devices, "disk": l.Disk, "inodes": max(l.Disk>>14, 256), "cpu": cpu, "tmp": workDir,
		"limits": map[string]int64{"CPU": 3600, "AS": l.Memory, "FSIZE": l.FileSize, "NOFILE": int64(l.Files), "NPROC": int64(l.Processes)},
	})
	if err != nil {
		return err
	}
	if _, err := z.control.Write(config); err != nil {
		return err
	}
	z.modules, err = readGreeting(z.control)
	return err
}

// stop ends a zygote that listens, and waits.
func (z *zygote) stop() {
	_ = z.control.Close() // listen ends it
	<-z.done
}

// end ends the zygote and everything that it has started, and waits. In a pid
// namespace the kernel sees to the rest; without one the zygote does, before it
// ends by itself.
func (z *zygote) end() {
	_ = z.control.Close()
	patience := time.Duration(0)
	if z.grouped {
		patience = 2 * time.Second
	}
	t := time.AfterFunc(patience, func() { _ = z.kill() })
	_ = z.wait()
	t.Stop()
	z.group.remove()
}

// listen hands out the ends of processes until the zygote is gone.
func (z *zygote) listen() {
	defer safego.Catch(nil)
	z.handOut()
	z.mu.Lock()
	z.dead = true // nothing is asked of it any more: who wants a process waits for another zygote
	lost := z.live
	z.live = nil
	z.mu.Unlock()
	z.end()
	for _, c := range lost {
		c.ended(0, errLost)
	}
	close(z.done)
}

// over reports whether the zygote has died, and then waits until its processes know.
func (z *zygote) over() bool {
	z.mu.Lock()
	dead := z.dead
	z.mu.Unlock()
	if dead {
		<-z.done
	}
	return dead
}

// handOut gives each process the end that the zygote reports of it.
func (z *zygote) handOut() {
	defer safego.Catch(nil) // the zygote is ended, and its processes are lost
	readEnds(z.control, func(id int, status syscall.WaitStatus) {
		z.mu.Lock()
		c := z.live[id]
		delete(z.live, id)
		z.mu.Unlock()
		if c != nil {
			c.ended(status, nil)
		}
	})
}

func (z *zygote) send(op string, id int, tmp string, fds ...int) error {
	b := fmt.Appendf(nil, "%s %d", op, id)
	if tmp != "" {
		b = fmt.Appendf(b, " %s", tmp)
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	_, _, err := z.control.WriteMsgUnix(b, oob, nil)
	return err
}

// supervisor keeps a zygote running: it starts a new one where the last has died.
type supervisor struct {
	mu     sync.Mutex
	z      *zygote
	closed bool
}

// fork makes a process. Where it reports errLost, the zygote's death is known.
func (s *supervisor) fork(ctx context.Context) (*Proc, error) {
	z, err := s.running(ctx)
	if err != nil {
		return nil, err
	}
	c, err := z.fork(ctx)
	if errors.Is(err, errLost) {
		_ = inGrace(z.done) // who found out first need not be its listener
	}
	return c, err
}

// running gives the zygote.
func (s *supervisor) running(ctx context.Context) (*zygote, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	if s.z.over() {
		z, err := launch(ctx, s.z.iso)
		if err != nil {
			return nil, err
		}
		s.z = z
	}
	return s.z, nil
}

// modules are those of Config.Modules that the zygote has, with their versions.
func (s *supervisor) modules() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.z.modules
}

// close ends the zygote for good.
func (s *supervisor) close() {
	s.mu.Lock()
	s.closed = true
	z := s.z
	s.mu.Unlock()
	z.stop()
}

// initEnv is the environment of the init, which this program becomes again: its libraries are
// where ours were found. The zygote gets none of it.
func initEnv() []string {
	const libraries = "LD_LIBRARY_PATH"
	if dirs, ok := os.LookupEnv(libraries); ok {
		return []string{libraries + "=" + dirs}
	}
	return []string{}
}
