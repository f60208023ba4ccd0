// Package sandbox runs Python code that nobody trusts, fast enough to run it
// for every tool call of a model: a zygote, a Python that has imported the usual
// modules, waits behind namespaces, a root of its own, a system call filter and
// limits, and forks a process for each call, which puts itself behind more of
// them before it sees the code. docs/sandbox.md says what stops what.
//
// The zygote is started through a second instance of the running program, whose
// init function here takes over: every program (and test) that imports this
// package can hold a sandbox. Of agentcli it imports internal/safego and
// internal/text only.
package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrRefused is wrapped by the error of a machine that cannot isolate.
var ErrRefused = errors.New("this machine refuses to isolate programs")

// ErrClosed is returned by a Pool that was closed.
var ErrClosed = errors.New("the sandbox is closed")

// Defaults of Config and Limits.
const (
	DefaultWall      = 10 * time.Second
	DefaultMemory    = 1 << 30
	DefaultProcesses = 32
	DefaultFileSize  = 16 << 20
	DefaultDisk      = 64 << 20
	DefaultFiles     = 128
	DefaultOutput    = 64 << 10

	// DefaultParallel is how many processes may live at once.
	DefaultParallel = 64

	// startLimit is how long the zygote may take to import its modules from a
	// cold disk.
	startLimit = 60 * time.Second
)

// Limits bound one process and all that it starts; zero fields take the defaults.
type Limits struct {
	Wall      time.Duration // of one Run by the clock; the CPU limit follows from it
	Memory    int64         // bytes of address space of each process
	Processes int           // and threads, at once
	FileSize  int64         // bytes of one file
	Disk      int64         // bytes of all files
	Files     int           // open at once, in each process
	Output    int           // bytes kept of stdout, and of stderr
}

func (l Limits) filled() Limits {
	set := func(p *int, d int) {
		if *p == 0 {
			*p = d
		}
	}
	set64 := func(p *int64, d int64) {
		if *p == 0 {
			*p = d
		}
	}
	if l.Wall == 0 {
		l.Wall = DefaultWall
	}
	set64(&l.Memory, DefaultMemory)
	set64(&l.FileSize, DefaultFileSize)
	set64(&l.Disk, DefaultDisk)
	set(&l.Processes, DefaultProcesses)
	set(&l.Files, DefaultFiles)
	set(&l.Output, DefaultOutput)
	return l
}

// Config says what runs, and how it is held.
type Config struct {
	Python   string   // an absolute path
	Modules  []string // imported ahead, beside the usual ones, where they are installed
	Limits   Limits
	Parallel int // processes at once; 0: DefaultParallel
	Spare    int // processes that wait for a call; 0: the processors, < 0: none
	// BestEffort leaves out the parts that the kernel refuses, instead of failing.
	BestEffort bool
	// Without leaves parts out on purpose; for tests that show what they are for.
	Without []Part
}

// Part is one layer of the sandbox.
type Part string

// The parts. Namespaces stand for the zygote's (user, mount, pid, net, ipc, uts)
// and for those of each process (user, mount, pid, ipc).
const (
	Namespaces Part = "namespaces"
	Landlock   Part = "Landlock"
	Seccomp    Part = "seccomp"
	Cgroup     Part = "cgroup" // where permitted: its absence refuses nothing
)

var required = []Part{Namespaces, Landlock, Seccomp}

// Held is how one part stands in an open Pool.
type Held struct {
	Part   Part
	OK     bool
	Detail string // what it is made of, or why it is missing
}

// refusal is a part that the kernel did not grant.
type refusal struct {
	Part   Part
	Reason string
}

func (r *refusal) Error() string { return fmt.Sprintf("no %s: %s", r.Part, r.Reason) }
func (r *refusal) Unwrap() error { return ErrRefused }

// Result is how one Run ended.
type Result struct {
	Stdout, Stderr []byte
	Cut            bool // some output was thrown away
	TimedOut       bool
	ExitCode       int    // what the code ended with: 1 after an exception, -1 after a signal
	Signal         string // that ended the process
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

func lastLine(b []byte) string {
	s := strings.TrimSpace(string(b))
	return s[strings.LastIndexByte(s, '\n')+1:]
}
