// Package sandbox runs a program that nobody trusts: in its own namespaces
// without a network, under resource limits, with an empty environment, an
// empty folder of its own, bounded output, and nothing left behind. It imports
// no other package of agentcli.
package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// ErrRefused is wrapped by the error of a machine that cannot isolate.
var ErrRefused = errors.New("this machine refuses to isolate programs")

// Defaults of Limits.
const (
	DefaultWall      = 10 * time.Second
	DefaultMemory    = 1 << 30
	DefaultProcesses = 32
	DefaultFileSize  = 16 << 20
	DefaultFiles     = 128
	DefaultOutput    = 64 << 10

	// killDelay is how long a killed program's pipes may stay open.
	killDelay = 500 * time.Millisecond
)

// Limits bound one run; zero fields take the defaults.
type Limits struct {
	Wall      time.Duration // by the clock; the CPU limit follows from it
	Memory    int64         // bytes of address space of each process
	Processes int           // and threads, at once
	FileSize  int64         // bytes of one file
	Files     int           // open at once, in each process
	Output    int           // bytes kept of stdout, and of stderr
}

func (l Limits) filled() Limits {
	set := func(p *int, d int) {
		if *p == 0 {
			*p = d
		}
	}
	if l.Wall == 0 {
		l.Wall = DefaultWall
	}
	if l.Memory == 0 {
		l.Memory = DefaultMemory
	}
	if l.FileSize == 0 {
		l.FileSize = DefaultFileSize
	}
	set(&l.Processes, DefaultProcesses)
	set(&l.Files, DefaultFiles)
	set(&l.Output, DefaultOutput)
	return l
}

// Config says how programs are held.
type Config struct {
	Limits Limits
	// Weaker runs without namespaces where the kernel refuses them: limits and
	// an empty environment only, with the network in reach.
	Weaker bool
}

// Sandbox runs programs. It is safe for concurrent use.
type Sandbox struct {
	limits Limits
	weaker bool

	once sync.Once
	mode mode
	err  error
}

// mode is how far a program is kept apart from us.
type mode int

const (
	unchecked mode = iota // Check has not been called
	asNobody              // namespaces, as a user who owns nothing (we are root)
	asSelf                // namespaces, as our own user
	plain                 // limits only
)

// New returns a sandbox; whether the machine can isolate is found out by Check,
// without which nothing runs.
func New(c Config) *Sandbox { return &Sandbox{limits: c.Limits.filled(), weaker: c.Weaker} }

// Program is what to run.
type Program struct {
	Args  []string // Args[0] is an absolute path
	Env   []string
	Stdin []byte // reaches the program only once every limit is in force
}

// Result is how a program ended.
type Result struct {
	Stdout, Stderr []byte
	Cut            bool // some output was thrown away
	TimedOut       bool
	ExitCode       int // -1 after a signal
	Signal         string
}

// Check finds out how far this machine lets programs be isolated, by running
// probe, which must end with status 0. It does so once; the error wraps
// ErrRefused.
func (s *Sandbox) Check(ctx context.Context, probe Program) error {
	s.once.Do(func() {
		// Whoever lets programs run for a moment only still asks whether they run
		// at all, and the first start, from a cold disk, is slow.
		limits := s.limits
		limits.Wall = max(limits.Wall, DefaultWall)
		modes := []mode{asSelf}
		if os.Getuid() == 0 {
			modes = []mode{asNobody, asSelf}
		}
		if s.weaker {
			modes = append(modes, plain)
		}
		var errs []error
		for _, m := range modes {
			r, err := s.run(ctx, probe, m, limits)
			if err == nil && r.TimedOut {
				err = fmt.Errorf("the probe took longer than %v", limits.Wall)
			}
			if err == nil && r.ExitCode != 0 {
				err = fmt.Errorf("the probe ended with status %d: %s", r.ExitCode, firstLine(r.Stderr))
			}
			if err == nil {
				s.mode = m
				return
			}
			errs = append(errs, err)
		}
		s.err = fmt.Errorf("%w: %w", ErrRefused, errs[0])
	})
	return s.err
}

// Isolated says whether programs run in namespaces; meaningful after Check.
func (s *Sandbox) Isolated() bool { return s.mode == asNobody || s.mode == asSelf }

// Run runs a program to its end, which the wall limit or ctx may bring about.
// An error means that it could not be run at all.
func (s *Sandbox) Run(ctx context.Context, p Program) (Result, error) {
	if s.err != nil {
		return Result{}, s.err
	}
	if s.mode == unchecked {
		return Result{}, errors.New("sandbox: Run before Check")
	}
	return s.run(ctx, p, s.mode, s.limits)
}

func (s *Sandbox) run(ctx context.Context, p Program, m mode, l Limits) (Result, error) {
	dir, err := os.MkdirTemp("", "agentcli-sandbox-")
	if err != nil {
		return Result{}, fmt.Errorf("sandbox: %w", err)
	}
	defer removeAll(dir)
	ctx, cancel := context.WithTimeout(ctx, l.Wall)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.Args[0], p.Args[1:]...)
	cmd.Dir = dir
	cmd.Env = append([]string{"HOME=" + dir, "TMPDIR=" + dir, "PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8"}, p.Env...)
	out, errs := &bounded{max: l.Output}, &bounded{max: l.Output}
	cmd.Stdout, cmd.Stderr = out, errs
	cmd.WaitDelay = killDelay
	cmd.Cancel = func() error { return killGroup(cmd.Process.Pid) }
	isolate(cmd, dir, m)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return Result{}, fmt.Errorf("sandbox: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return Result{}, fmt.Errorf("sandbox: %w", err)
	}
	if err := limit(cmd.Process.Pid, l); err != nil {
		_ = killGroup(cmd.Process.Pid)
		_ = cmd.Wait()
		return Result{}, fmt.Errorf("sandbox: %w", err)
	}
	written := make(chan struct{})
	go func() { // a program need not read what it is given
		defer close(written)
		_, _ = stdin.Write(p.Stdin)
		_ = stdin.Close()
	}()
	err = cmd.Wait() // closes stdin's pipe too, so the writer ends
	<-written
	_ = killGroup(cmd.Process.Pid) // whatever it left running in its group
	r := Result{Stdout: out.b.Bytes(), Stderr: errs.b.Bytes(), Cut: out.cut || errs.cut,
		ExitCode: cmd.ProcessState.ExitCode(), Signal: signalName(cmd.ProcessState)}
	r.TimedOut = ctx.Err() == context.DeadlineExceeded
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) && ctx.Err() == nil {
		return r, fmt.Errorf("sandbox: %w", err)
	}
	return r, nil
}

// removeAll removes a folder in which a program may have made folders that we
// cannot look into.
func removeAll(dir string) {
	if os.RemoveAll(dir) == nil {
		return
	}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	_ = os.RemoveAll(dir)
}

// bounded keeps the first max bytes and swallows the rest, so that a flood
// neither fills memory nor blocks the program until its time is over.
type bounded struct {
	b   bytes.Buffer
	max int
	cut bool
}

func (w *bounded) Write(p []byte) (int, error) {
	if room := w.max - w.b.Len(); room < len(p) {
		w.cut = true
		w.b.Write(p[:max(room, 0)])
	} else {
		w.b.Write(p)
	}
	return len(p), nil
}

func firstLine(b []byte) string {
	line, _, _ := bytes.Cut(bytes.TrimSpace(b), []byte("\n"))
	return string(line)
}
