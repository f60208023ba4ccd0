package sandbox

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

//go:embed zygote.py
var zygoteCode string

// modules are always imported before anything is forked.
var modules = []string{"math", "cmath", "json", "re", "itertools", "functools", "collections", "fractions", "decimal", "statistics",
	"random", "datetime", "time", "heapq", "bisect", "string", "operator", "typing", "dataclasses", "copy", "textwrap", "hashlib",
	"io", "os", "contextlib"}

// systemPaths are shown to the code beside the interpreter's own folders.
var systemPaths = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
	"/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime"}

var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}

// refuse is a part that tests take for refused.
var refuse Part

// errLost is the end of a process whose zygote has died.
var errLost = errors.New("the sandbox's zygote has died")

// Pool is a zygote and its processes. It is safe for concurrent use.
type Pool struct {
	c     Config
	py    interpreter
	parts []Part
	held  []Held
	room  chan struct{} // a place for each living process
	spare chan *Proc
	scrap string // the folder of the processes' own folders, where there is no mount namespace

	mu     sync.Mutex
	z      *zygote
	closed bool
	wg     sync.WaitGroup // of what fills spare
}

// interpreter is what a Python says of itself.
type interpreter struct {
	Executable, Real string
	Version          string
	Paths            []string // folders it needs
}

// Open starts a zygote, and finds out how far this machine lets it be isolated.
// The error of a refusal wraps ErrRefused and names the part.
func Open(ctx context.Context, c Config) (*Pool, error) {
	c.Limits = c.Limits.filled()
	if c.Parallel <= 0 {
		c.Parallel = DefaultParallel
	}
	if c.Spare == 0 {
		c.Spare = runtime.GOMAXPROCS(0)
	}
	c.Spare = min(max(c.Spare, 0), c.Parallel/2)
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	py, err := ask(ctx, c.Python)
	if err != nil {
		return nil, err
	}
	p := &Pool{c: c, py: py, room: make(chan struct{}, c.Parallel), spare: make(chan *Proc, max(c.Spare, 0))}
	missing := map[Part]string{}
	for _, part := range required {
		if slices.Contains(c.Without, part) {
			missing[part] = "left out"
		} else {
			p.parts = append(p.parts, part)
		}
	}
	for {
		err = p.try(ctx)
		if err == nil {
			break
		}
		p.shut()
		var r *refusal
		if !errors.As(err, &r) || !slices.Contains(p.parts, r.Part) || !c.Weaker {
			return nil, err
		}
		missing[r.Part] = r.Reason
		p.parts = slices.DeleteFunc(p.parts, func(x Part) bool { return x == r.Part })
	}
	details := map[Part]string{
		Namespaces: "user, mount, pid, net, ipc, uts; a root of its own; user, mount, pid, ipc for each call",
		Landlock:   "files, TCP, signals and abstract sockets, as far as this kernel knows them",
		Seccomp:    fmt.Sprintf("%d system calls denied, and all that were not known", len(deniedAlways)+len(deniedCode)),
	}
	for _, part := range required {
		why, out := missing[part]
		h := Held{Part: part, OK: !out, Detail: details[part]}
		if out {
			h.Detail = why
		}
		p.held = append(p.held, h)
	}
	p.held = append(p.held, p.z.group.held())
	p.refill(c.Spare)
	return p, nil
}

// try starts a zygote and one process with the parts that are left.
func (p *Pool) try(ctx context.Context) error {
	if !p.has(Namespaces) && p.scrap == "" {
		dir, err := os.MkdirTemp("", "agentcli-sandbox-")
		if err != nil {
			return fmt.Errorf("sandbox: %w", err)
		}
		p.scrap = dir
	}
	if refuse != "" && p.has(refuse) {
		return &refusal{refuse, "a test refuses it"}
	}
	z, err := p.launch(ctx)
	if err != nil {
		return err
	}
	p.z = z
	c, err := p.fork(ctx, z)
	if err != nil {
		return err
	}
	defer c.Close()
	r, err := c.run(ctx, "print(6 * 7)", startLimit, false)
	if err == nil && string(r.Stdout) != "42\n" {
		err = fmt.Errorf("sandbox: a first call failed: %q, %s", r.Stdout, lastLine(r.Stderr))
	}
	return err
}

func (p *Pool) has(part Part) bool { return slices.Contains(p.parts, part) }

// Parts says which parts hold.
func (p *Pool) Parts() []Held { return p.held }

// Isolated says whether every required part holds.
func (p *Pool) Isolated() bool { return len(p.parts) == len(required) }

// Python is the interpreter's version, and those of Config.Modules that it has.
func (p *Pool) Python() (version string, modules []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.z == nil {
		return p.py.Version, nil
	}
	return p.py.Version, p.z.modules
}

// ask runs the interpreter, outside of the sandbox, to learn where its files are.
func ask(ctx context.Context, path string) (interpreter, error) {
	const question = `import json,os,sys,sysconfig
p=[]
for x in (sys.prefix,sys.base_prefix,sys.exec_prefix,sys.base_exec_prefix):
    p+=[os.path.join(x,y) for y in ("bin","lib","lib64","pyvenv.cfg")]
p+=[os.path.dirname(os.path.realpath(sys.executable))]+[x for x in sys.path if x]
print(json.dumps({"Executable":sys.executable,"Real":os.path.realpath(sys.executable),"Version":sys.version.split()[0],"Paths":p}))`
	var i interpreter
	cmd := exec.CommandContext(ctx, path, "-I", "-c", question)
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &i)
	}
	if err == nil && i.Executable == "" {
		err = errors.New("it does not know where it is")
	}
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) && len(exit.Stderr) > 0 {
			err = errors.New(lastLine(exit.Stderr))
		}
		return i, fmt.Errorf("%s does not run as Python: %w", path, err)
	}
	var paths []string
	for _, x := range i.Paths {
		x = filepath.Clean(x)
		if !filepath.IsAbs(x) || x == "/" || x == "/usr" || strings.HasPrefix(x, "/usr/") || slices.Contains(systemPaths, x) || slices.Contains(paths, x) {
			continue
		}
		if _, err := os.Stat(x); err == nil {
			paths = append(paths, x)
		}
	}
	slices.Sort(paths) // a folder before what is in it
	i.Paths = paths
	return i, nil
}

// zygote is one running zygote.
type zygote struct {
	cmd     *exec.Cmd
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
func (p *Pool) launch(ctx context.Context) (_ *zygote, err error) {
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
	z := &zygote{control: conn.(*net.UnixConn), grouped: !p.has(Namespaces), live: map[int]*Proc{}, done: make(chan struct{}), stderr: &bounded{max: 64 << 10}}
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

	z.cmd = &exec.Cmd{Path: "/proc/self/exe", Args: []string{initName}, Env: []string{}, Dir: "/",
		ExtraFiles: []*os.File{theirs, configR, reportW}, Stdout: z.stderr, Stderr: z.stderr, WaitDelay: time.Second}
	attr := &syscall.SysProcAttr{Setsid: true}
	root := os.Getuid() == 0
	if p.has(Namespaces) {
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
		if p.has(Namespaces) {
			return nil, &refusal{Namespaces, err.Error()}
		}
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	_ = theirs.Close()
	_ = configR.Close()
	_ = reportW.Close()
	z.group = join(z.cmd.Process.Pid, p.c)
	defer func() {
		if err != nil {
			z.end()
		}
	}()
	binds := slices.Concat(systemPaths, devices, p.py.Paths)
	if err := json.NewEncoder(configW).Encode(initConfig{
		Namespaces: p.has(Namespaces), Seccomp: p.has(Seccomp), Root: root, Binds: binds,
		// -B: no .pyc files; -s: nothing of a user's own; the environment is ours.
		Program: p.py.Real, Args: []string{p.py.Executable, "-s", "-B", "-X", "utf8", "-c", zygoteCode},
		Env: []string{"PYTHONHASHSEED=0", "PYTHONSAFEPATH=1", "HOME=" + workDir, "TMPDIR=" + workDir, "PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8",
			"OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1", "MKL_NUM_THREADS=1", "NUMEXPR_NUM_THREADS=1", "MPLBACKEND=Agg"},
	}); err != nil && !errors.Is(err, syscall.EPIPE) {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	_ = configW.Close()
	stop := context.AfterFunc(ctx, func() { _ = z.cmd.Process.Kill() })
	defer stop()
	var r refusal
	if err := json.NewDecoder(reportR).Decode(&r); err == nil {
		if r.Part == "" {
			return nil, fmt.Errorf("sandbox: %s", r.Reason)
		}
		return nil, &r
	}
	if err := z.greet(p); err != nil {
		if errors.Is(err, ErrRefused) {
			return nil, err
		}
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		z.end()
		if s := lastLine(z.stderr.b.Bytes()); s != "" {
			return nil, fmt.Errorf("the sandbox's Python (%s) does not start: %s", p.py.Executable, s)
		}
		return nil, fmt.Errorf("the sandbox's Python (%s) does not start: %w", p.py.Executable, err)
	}
	go z.listen()
	return z, nil
}

// greet tells the zygote its configuration and waits for it to be ready.
func (z *zygote) greet(p *Pool) error {
	f, err := codeFilter(!p.has(Namespaces))
	if err != nil && p.has(Seccomp) {
		return &refusal{Seccomp, err.Error()}
	}
	l := p.c.Limits
	cpu := int64((l.Wall+time.Second-1)/time.Second) + 1
	config, err := json.Marshal(map[string]any{
		"parts": p.parts, "arch": runtime.GOARCH, "modules": slices.Concat(modules, p.c.Modules), "filter": hex.EncodeToString(program(f)),
		"read":    slices.Concat(systemPaths, p.py.Paths, p.own()),
		"devices": devices, "disk": l.Disk, "inodes": max(l.Disk>>14, 256), "cpu": cpu, "tmp": workDir,
		"limits": map[string]int64{"CPU": 3600, "AS": l.Memory, "FSIZE": l.FileSize, "NOFILE": int64(l.Files), "NPROC": int64(l.Processes), "CORE": 0},
	})
	if err != nil {
		return err
	}
	if _, err := z.control.Write(config); err != nil {
		return err
	}
	b := make([]byte, 4096)
	n, err := z.control.Read(b)
	if err != nil {
		return err
	}
	var hello struct {
		Modules []string `json:"modules"`
		Refused string   `json:"refused"`
	}
	err = json.Unmarshal(b[:n], &hello)
	if hello.Refused != "" {
		part, why, _ := strings.Cut(hello.Refused, "\n")
		return &refusal{Part(part), why}
	}
	z.modules = hello.Modules
	return err
}

// own are the files that only a root of its own has.
func (p *Pool) own() []string {
	if p.has(Namespaces) {
		return []string{"/proc", "/dev", "/etc"}
	}
	return nil
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
	t := time.AfterFunc(patience, func() { _ = z.cmd.Process.Kill() })
	_ = z.cmd.Wait()
	t.Stop()
	z.group.remove()
}

// listen hands out the ends of processes until the zygote is gone.
func (z *zygote) listen() {
	b := make([]byte, 4096)
	for {
		n, err := z.control.Read(b)
		if err != nil || n == 0 {
			break
		}
		var m struct {
			Exit   int `json:"exit"`
			Status int `json:"status"`
		}
		if json.Unmarshal(b[:n], &m) != nil {
			break
		}
		z.mu.Lock()
		c := z.live[m.Exit]
		delete(z.live, m.Exit)
		z.mu.Unlock()
		if c != nil {
			c.ended(syscall.WaitStatus(m.Status), nil)
		}
	}
	z.end()
	z.mu.Lock()
	z.dead = true
	lost := z.live
	z.live = nil
	z.mu.Unlock()
	for _, c := range lost {
		c.ended(0, errLost)
	}
	close(z.done)
}

func (z *zygote) send(op string, id int, tmp string, fds ...int) error {
	b, err := json.Marshal(map[string]any{"op": op, "id": id, "tmp": tmp})
	if err != nil {
		return err
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	_, _, err = z.control.WriteMsgUnix(b, oob, nil)
	return err
}

// running gives the zygote, a new one where the last has died.
func (p *Pool) running(ctx context.Context) (*zygote, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrClosed
	}
	select {
	case <-p.z.done:
		z, err := p.launch(ctx)
		if err != nil {
			return nil, err
		}
		p.z = z
	default:
	}
	return p.z, nil
}

// Start gives a process that is ready for code, and waits for a place where as
// many as may be live already. Close it.
func (p *Pool) Start(ctx context.Context) (*Proc, error) {
	for {
		select {
		case c := <-p.spare:
			p.refill(1)
			if c.Alive() {
				return c, nil
			}
			c.Close()
			continue
		default:
		}
		select {
		case c := <-p.spare:
			p.refill(1)
			if c.Alive() {
				return c, nil
			}
			c.Close()
		case p.room <- struct{}{}:
			return p.forkHere(ctx)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// forkHere forks a process for a place that was taken.
func (p *Pool) forkHere(ctx context.Context) (*Proc, error) {
	z, err := p.running(ctx)
	var c *Proc
	if err == nil {
		c, err = p.fork(ctx, z)
	}
	if err != nil {
		<-p.room
		return nil, err
	}
	c.leave = sync.OnceFunc(func() { <-p.room })
	return c, nil
}

// refill prepares n processes for later calls, where there is a place.
func (p *Pool) refill(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range n {
		if p.closed || p.c.Spare <= 0 {
			return
		}
		select {
		case p.room <- struct{}{}:
		default:
			return
		}
		p.wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), startLimit)
			defer cancel()
			c, err := p.forkHere(ctx)
			if err != nil {
				return // the next call will say so
			}
			select {
			case p.spare <- c:
			default:
				c.Close()
			}
		})
	}
}

// Run runs code in a fresh process, which is gone with all that it started when
// Run returns. An error means that the code could not be run at all.
func (p *Pool) Run(ctx context.Context, code string) (Result, error) {
	for try := 0; ; try++ {
		c, err := p.Start(ctx)
		if err != nil {
			return Result{}, err
		}
		r, err := c.run(ctx, code, p.c.Limits.Wall, false)
		c.Close()
		// The zygote may have died under a process that had not begun.
		if errors.Is(err, errLost) && try == 0 && ctx.Err() == nil {
			continue
		}
		return r, err
	}
}

// Close ends every process and the zygote.
func (p *Pool) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.shut()
	p.wg.Wait()
	for {
		select {
		case c := <-p.spare:
			c.Close()
			continue
		default:
		}
		return nil
	}
}

func (p *Pool) shut() {
	p.mu.Lock()
	z := p.z
	p.mu.Unlock()
	if z != nil {
		_ = z.control.Close() // listen ends it
		<-z.done
	}
	if p.scrap != "" {
		removeAll(p.scrap)
		p.scrap = ""
	}
}

// Proc is a process of a Pool; it is used by one goroutine.
type Proc struct {
	z        *zygote
	id       int
	limits   Limits
	ctl      *os.File
	out, err *os.File
	dir      string
	leave    func()
	stopped  bool

	over   chan struct{} // closed at its end
	status syscall.WaitStatus
	lost   error
}

func (c *Proc) ended(s syscall.WaitStatus, err error) {
	c.status, c.lost = s, err
	close(c.over)
}

// fork asks the zygote for a process and waits until its walls stand.
func (p *Pool) fork(ctx context.Context, z *zygote) (_ *Proc, err error) {
	c := &Proc{z: z, limits: p.c.Limits, over: make(chan struct{})}
	var theirs []int
	defer func() {
		for _, fd := range theirs {
			_ = unix.Close(fd)
		}
		if err != nil {
			c.shut()
		}
	}()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	theirs = append(theirs, pair[1])
	_ = unix.SetNonblock(pair[0], true)
	c.ctl = os.NewFile(uintptr(pair[0]), "process")
	for _, f := range []**os.File{&c.out, &c.err} {
		var pipe [2]int
		if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
			return nil, fmt.Errorf("sandbox: %w", err)
		}
		theirs = append(theirs, pipe[1])
		_ = unix.SetNonblock(pipe[0], true)
		*f = os.NewFile(uintptr(pipe[0]), "output")
	}
	tmp := workDir
	if p.scrap != "" {
		if c.dir, err = os.MkdirTemp(p.scrap, "call-"); err != nil {
			return nil, fmt.Errorf("sandbox: %w", err)
		}
		tmp = c.dir
	}
	z.mu.Lock()
	if z.dead || z.live == nil {
		z.mu.Unlock()
		return nil, errLost
	}
	z.next++
	c.id = z.next
	z.live[c.id] = c
	z.mu.Unlock()
	if err := z.send("start", c.id, tmp, theirs...); err != nil {
		z.mu.Lock()
		delete(z.live, c.id)
		z.mu.Unlock()
		return nil, fmt.Errorf("%w: %w", errLost, err)
	}
	for _, fd := range theirs {
		_ = unix.Close(fd)
	}
	theirs = nil
	stop := context.AfterFunc(ctx, func() { _ = c.ctl.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var b [1]byte
	if _, err := io.ReadFull(c.ctl, b[:]); err != nil {
		c.kill()
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case c.lost != nil:
			return nil, c.lost
		}
		return nil, fmt.Errorf("sandbox: a process ended before it began: %v", signalName(c.status))
	}
	if b[0] != 'R' {
		reason, _ := io.ReadAll(io.LimitReader(c.ctl, 4096))
		c.kill()
		part, why, _ := bytes.Cut(reason, []byte("\n"))
		if len(part) == 0 {
			return nil, fmt.Errorf("sandbox: %s", why)
		}
		return nil, &refusal{Part(part), string(why)}
	}
	return c, nil
}

// kill ends the process, with all that it started, and waits.
func (c *Proc) kill() {
	if c.id == 0 {
		return
	}
	if c.Alive() {
		_ = c.z.send("kill", c.id, "")
	}
	<-c.over
}

func (c *Proc) shut() {
	for _, f := range []*os.File{c.ctl, c.out, c.err} {
		if f != nil {
			_ = f.Close()
		}
	}
	if c.dir != "" {
		removeAll(c.dir)
	}
}

// Close ends the process and forgets its files.
func (c *Proc) Close() {
	c.kill()
	c.shut()
	if c.leave != nil {
		c.leave()
	}
}

// Alive says whether the process can run code.
func (c *Proc) Alive() bool {
	select {
	case <-c.over:
		return false
	default:
		return true
	}
}

// Run runs code in the process, in the names that earlier code has left, and
// leaves it stopped until the next. Where the limits or ctx demand it the
// process is ended. What the code has started is gone when Run returns.
func (c *Proc) Run(ctx context.Context, code string) (Result, error) {
	if c.stopped {
		c.stopped = false
		if err := c.z.send("cont", c.id, ""); err != nil {
			return Result{}, fmt.Errorf("%w: %w", errLost, err)
		}
	}
	r, err := c.run(ctx, code, c.limits.Wall, true)
	if err == nil && c.Alive() {
		c.stopped = c.z.send("stop", c.id, "") == nil
	}
	return r, err
}

// run gives the process one code; without keep it is the last.
func (c *Proc) run(ctx context.Context, code string, wall time.Duration, keep bool) (Result, error) {
	out, errs := &bounded{max: c.limits.Output}, &bounded{max: c.limits.Output}
	var wg sync.WaitGroup
	streams := []struct {
		f *os.File
		b *bounded
	}{{c.out, out}, {c.err, errs}}
	for _, s := range streams {
		wg.Go(func() { _, _ = io.CopyBuffer(s.b, struct{ io.Reader }{s.f}, make([]byte, 4096)) })
	}
	_ = c.ctl.SetDeadline(time.Now().Add(wall))
	stop := context.AfterFunc(ctx, func() { _ = c.ctl.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	frame := binary.LittleEndian.AppendUint32(make([]byte, 0, len(code)+5), uint32(len(code)))
	if keep {
		frame = append(frame, 1)
	} else {
		frame = append(frame, 0)
	}
	_, err := c.ctl.Write(append(frame, code...))
	var reply [5]byte
	if err == nil {
		_, err = io.ReadFull(c.ctl, reply[:])
	}
	if err == nil && reply[0] != 'D' {
		err = errors.New("the process has lost its way") // the code wrote into its control
	}
	r := Result{TimedOut: errors.Is(err, os.ErrDeadlineExceeded)}
	if keep = keep && err == nil; keep {
		for _, s := range streams {
			_ = s.f.SetReadDeadline(time.Unix(1, 0))
		}
	} else {
		c.kill()
	}
	wg.Wait() // all writers are gone, or the deadline is over
	if keep {
		for _, s := range streams {
			_ = s.f.SetReadDeadline(time.Time{})
			drain(s.f, s.b)
		}
	}
	r.Stdout, r.Stderr, r.Cut = out.b.Bytes(), errs.b.Bytes(), out.cut || errs.cut
	switch {
	case err == nil:
		r.ExitCode = int(reply[1])
	case r.TimedOut && errors.Is(ctx.Err(), context.Canceled):
		return r, ctx.Err()
	case r.TimedOut:
		r.ExitCode = -1
	case c.lost != nil:
		return r, c.lost
	default: // it ended before the code did
		if r.Signal = signalName(c.status); r.Signal != "" {
			r.ExitCode = -1
		} else {
			r.ExitCode = c.status.ExitStatus()
		}
	}
	return r, nil
}

// drain takes what is in a pipe now.
func drain(f *os.File, to io.Writer) {
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	b := make([]byte, 4096)
	_ = raw.Read(func(fd uintptr) bool {
		for range 64 { // a pipe holds no more
			n, err := unix.Read(int(fd), b)
			if n <= 0 || err != nil {
				break
			}
			_, _ = to.Write(b[:n])
		}
		return true
	})
}

func signalName(w syscall.WaitStatus) string {
	if w.Signaled() {
		return w.Signal().String()
	}
	return ""
}
