package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// python is AGENTCLI_PYTHON, or the first interpreter of PATH.
func python(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("AGENTCLI_PYTHON"); path != "" {
		return path
	}
	path, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 here")
	}
	return path
}

func pool(t testing.TB, c Config) *Pool {
	t.Helper()
	c.Python = python(t)
	p, err := Open(t.Context(), c)
	if errors.Is(err, ErrRefused) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func do(t testing.TB, p *Pool, code string) Result {
	t.Helper()
	r, err := p.Run(t.Context(), code)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRun(t *testing.T) {
	p := pool(t, Config{})
	for _, c := range []struct {
		code, out, err string
		status         int
	}{
		{"print('a'); import sys; print('b', file=sys.stderr); 6*7", "a\n42\n", "b\n", 0},
		{"import sys; sys.exit(3)", "", "", 3},
		{"import sys; sys.exit('words')", "", "words\n", 1},
		{"1/0", "", "Traceback (most recent call last):\n  File \"<code>\", line 1, in <module>\n    1/0\n    ~^~\nZeroDivisionError: " +
			"division by zero\n", 1},
		{"import os; print('x'); os._exit(7)", "x\n", "", 7},
		{"import os, sys; print('x'); sys.stdout.flush(); os.close(1); os.close(2)", "x\n", "", 0},
		{"input()", "", "EOFError: EOF when reading a line\n", 1},
		{"import os; os.getuid(), os.getpid(), os.uname().nodename, os.getcwd()", "(1000, 1, 'sandbox', '/home/user')\n", "", 0},
		{"import subprocess; subprocess.run(['echo', 'a'], capture_output=True).stdout", "b'a\\n'\n", "", 0},
		{"import multiprocessing as m\nwith m.get_context('fork').Pool(2) as p: print(p.map(abs, [-1, -2]))", "[1, 2]\n", "", 0},
		{"import asyncio\nasync def f(): return 1\nasyncio.run(f())", "1\n", "", 0},
		{"import threading\nt = threading.Thread(target=lambda: print('t')); t.start(); t.join()", "t\n", "", 0},
		{"import sqlite3\nc = sqlite3.connect('x.db'); c.execute('create table t(a)'); c.execute('insert into t values(5)'); " +
			"c.commit()\nsqlite3.connect('x.db').execute('select a from t').fetchall()", "[(5,)]\n", "", 0},
		{"import resource, subprocess; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); subprocess.run(['sh', '-c', 'ulimit -c 0; " +
			"echo a'], capture_output=True).stdout", "b'a\\n'\n", "", 0},
		{"import tempfile; f = tempfile.NamedTemporaryFile(); f.write(b'x')", "1\n", "", 0},
		{"from dataclasses import dataclass\n@dataclass\nclass A: x: int\nimport pickle; pickle.loads(pickle.dumps(A(1)))", "A(x=1)\n", "", 0},
	} {
		r := do(t, p, c.code)
		if string(r.Stdout) != c.out || !strings.HasSuffix(string(r.Stderr), c.err) || c.err == "" &&
			len(r.Stderr) > 0 || r.ExitCode != c.status || r.Cut || r.TimedOut || r.Signal != "" {
			t.Errorf("%s\n%q %q %+v; want %q %q %d", c.code, r.Stdout, r.Stderr, r, c.out, c.err, c.status)
		}
	}
	if r := do(t, p, "import ctypes; ctypes.string_at(0)"); r.Signal != "segmentation fault" || r.ExitCode != -1 {
		t.Errorf("%+v", r)
	}
}

// TestRandom: processes of one zygote do not draw the same numbers, nor where a
// module wants something done after a fork that the zygote does not know of.
func TestRandom(t *testing.T) {
	for _, c := range []struct{ name, module, code string }{
		{"random", "", "import random; random.random()"},
		{"a stranger", "concurrent.futures.thread", "import random; random.random()"},
		{"numpy", "numpy", "import numpy; numpy.random.random()"},
		{"sympy", "sympy", "import sympy.core.random as r; r.rng.random()"},
		{"numpy's normal numbers", "numpy", "import numpy; numpy.random.normal()"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var x Config
			if c.module != "" {
				x.Modules = []string{c.module}
			}
			p := pool(t, x)
			if _, list := p.Python(); c.module != "" && !slices.Contains(list, c.module) {
				t.Skip(c.module + " is not installed")
			}
			a, b := do(t, p, c.code), do(t, p, c.code)
			if len(a.Stdout) < 5 || bytes.Equal(a.Stdout, b.Stdout) {
				t.Fatalf("%s %s %s", a.Stdout, b.Stdout, a.Stderr)
			}
		})
	}
}

// TestStopped runs every probe in the sandbox, where it must not reach its aim,
// and outside of it, where it must.
func TestStopped(t *testing.T) {
	p := pool(t, Config{})
	if !p.Isolated() {
		t.Fatal(p.Parts())
	}
	a, clean, err := aims()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(clean)
	for _, x := range probes {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			if o := outcome(x.name, do(t, p, a.aim(x.code))); !o.Stopped {
				t.Errorf("it reached its aim inside: %s", o.Detail)
			}
			if x.root && os.Getuid() != 0 {
				return
			}
			out := outside(t, a.aim(x.code))
			if strings.Contains(out, "Function not implemented") {
				t.Skip("this kernel does not have it at all")
			}
			if !strings.Contains(out, "REACHED") {
				t.Errorf("it does not reach its aim outside either, and shows nothing: %s", out)
			}
		})
	}
}

// outside runs code as anybody's program, in a mount namespace that keeps the
// host's mounts as they are where we are root.
func outside(t *testing.T, code string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python(t), "-c", code)
	cmd.Dir = t.TempDir()
	cmd.WaitDelay = 300 * time.Millisecond
	unsharedMounts(cmd)
	out, _ := cmd.CombinedOutput()
	return string(out)
}

// TestDescriptors: what whoever started us left open is not handed on.
func TestDescriptors(t *testing.T) {
	name := filepath.Join(t.TempDir(), "open-file-of-the-caller")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := syscall.Open(name, syscall.O_RDONLY, 0) // without O_CLOEXEC
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	const look = `
import os
for fd in os.listdir('/proc/self/fd'):
    try: print(fd, os.readlink('/proc/self/fd/' + fd))
    except OSError: pass
`
	if out := outside(t, look); !strings.Contains(out, name) {
		t.Errorf("it is not handed on outside either, which shows nothing: %s", out)
	}
	r := do(t, pool(t, Config{}), look)
	for line := range strings.Lines(string(r.Stdout)) {
		n, what, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case n == "0" && what == "/dev/null", n == "1" && strings.HasPrefix(what, "pipe:"), n == "2" && strings.HasPrefix(what, "pipe:"):
		case strings.HasPrefix(what, "socket:") && strings.Count(string(r.Stdout), "socket:") == 1: // its control
		case strings.HasPrefix(what, "/proc/"): // the listing itself
		default:
			t.Errorf("descriptor %s is %s", n, what)
		}
	}
	if !strings.Contains(string(r.Stdout), "0 /dev/null") {
		t.Errorf("%s%s", r.Stdout, r.Stderr)
	}
}

func TestEndlessLoop(t *testing.T) {
	p := pool(t, Config{Limits: Limits{Wall: 300 * time.Millisecond}})
	for _, code := range []string{"print('begun')\nwhile True: pass", "print('begun')\nimport time; time.sleep(60)",
		"print('begun')\nimport subprocess; subprocess.run(['sleep', '60'])",
		"print('begun')\nimport signal\nfor s in range(1, 65):\n  try: signal.signal(s, signal.SIG_IGN)\n  except (OSError, ValueError): " +
			"pass\nwhile True: pass"} {
		start := time.Now()
		r := do(t, p, code)
		if !r.TimedOut || string(r.Stdout) != "begun\n" || time.Since(start) > 3*time.Second {
			t.Errorf("%s: %+v after %v", code, r, time.Since(start))
		}
	}
	if r := do(t, p, "import time; time.sleep(.05); 1"); r.TimedOut || string(r.Stdout) != "1\n" {
		t.Errorf("short code was stopped: %+v", r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	if _, err := p.Run(ctx, "while True: pass"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestOutputFlood(t *testing.T) {
	p := pool(t, Config{Limits: Limits{Output: 1000}})
	r := do(t, p, "print('x' * 50_000_000); import sys; print('y' * 1_000_000, file=sys.stderr)")
	if !r.Cut || len(r.Stdout) != 1000 || len(r.Stderr) != 1000 || r.ExitCode != 0 {
		t.Errorf("%d %d %v", len(r.Stdout), len(r.Stderr), r.Cut)
	}
	if r := do(t, p, "print('x' * 999)"); r.Cut || len(r.Stdout) != 1000 {
		t.Errorf("%d %v", len(r.Stdout), r.Cut)
	}
}

// TestLeftoverProcesses: what the code has started is gone with its process, be it
// as far away as it can get.
func TestLeftoverProcesses(t *testing.T) {
	const daemon = `
import os, subprocess
told, tell = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        subprocess.Popen(['sleep', '%s'], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.write(tell, b'it runs') # Popen waits for the program to begin
        os._exit(0)
    os._exit(0)
print(os.read(told, 9).decode())
`
	running := func(mark string) (pids []int) {
		dirs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, d := range dirs {
			b, _ := os.ReadFile(d)
			if string(b) == "sleep\x00"+mark+"\x00" {
				var pid int
				fmt.Sscanf(d, "/proc/%d/", &pid)
				pids = append(pids, pid)
			}
		}
		return pids
	}
	// What runs, as soon as something does, or nothing does.
	awaited := func(mark string, something bool) (pids []int) {
		for range 1000 {
			if pids = running(mark); (len(pids) > 0) == something {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
		return pids
	}
	p := pool(t, Config{})
	if r := do(t, p, fmt.Sprintf(daemon, "61.25")); string(r.Stdout) != "it runs\n" {
		t.Errorf("it was never there, which shows nothing: %q %q", r.Stdout, r.Stderr)
	}
	left := awaited("61.25", false) // the kernel ends it beside the next call
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	outside(t, fmt.Sprintf(daemon, "61.5"))
	left = awaited("61.5", true) // Popen may return before the kernel has the program's command line
	if len(left) == 0 {
		t.Error("outside nothing stays behind either, which shows nothing")
	}
	for _, pid := range left {
		if x, err := os.FindProcess(pid); err == nil {
			_ = x.Kill()
		}
	}
}

// TestState: nothing passes from one call to the next, nor between processes
// that run at the same time; within one process it does.
func TestState(t *testing.T) {
	p := pool(t, Config{})
	const spoil = `
import math, builtins, sys, os, json, random
math.sqrt = lambda x: 'spoilt'; builtins.len = lambda x: 'spoilt'; json.dumps = lambda x: 'spoilt'
sys.modules['statistics'] = None
os.environ['SPOILT'] = 'spoilt'
open('/home/user/spoilt', 'w').write('spoilt')
try: open('/dev/shm/spoilt', 'w').write('spoilt')
except OSError: pass
x = 'spoilt'
`
	const look = `
import math, os, json
found = [str(math.sqrt(4)), str(len('')), json.dumps(1), os.environ.get('SPOILT', ''), str(globals().get('x', ''))]
found += [open(f).read() for f in ('/home/user/spoilt', '/dev/shm/spoilt') if os.path.exists(f)]
try: import statistics
except ImportError: found.append('spoilt')
sum('spoilt' in f for f in found)
`
	a, err := p.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := p.Start(t.Context()) // another trajectory, there all the time
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, x := range []struct {
		where, code, want string
		run               func(context.Context, string) (Result, error)
	}{
		{"spoiling a call", spoil, "", p.Run},
		{"the next call", look, "0\n", p.Run},
		{"spoiling a session", spoil, "", a.Run},
		{"the session itself", look, "8\n", a.Run},
		{"another session", look, "0\n", b.Run},
		{"a call after the session", look, "0\n", p.Run},
	} {
		r, err := x.run(t.Context(), x.code)
		if err != nil || string(r.Stdout) != x.want || len(r.Stderr) > 0 {
			t.Errorf("%s: %q %s %v; want %q", x.where, r.Stdout, r.Stderr, err, x.want)
		}
	}
}

// TestSession: between two calls a session's process is stopped, with its
// threads, and its children are gone.
func TestSession(t *testing.T) {
	p := pool(t, Config{})
	c, err := p.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	session := func(code string) string {
		t.Helper()
		r, err := c.Run(t.Context(), code)
		if err != nil || r.ExitCode != 0 {
			t.Fatalf("%s: %+v %v", code, r, err)
		}
		return string(r.Stdout)
	}
	session("import threading, time, subprocess\ndef count():\n  while True: pass\nthreading.Thread(target=count, daemon=True).start()")
	session("child = subprocess.Popen(['sleep', '30'])")
	if got := session("a = time.process_time(); time.sleep(.2); b = time.process_time(); b - a > .02"); got != "True\n" {
		t.Error("the thread does not run within a call")
	}
	if got := session("child.poll() is not None"); got != "True\n" {
		t.Error("a child outlived the call that started it")
	}
	session("a = time.process_time()")
	time.Sleep(500 * time.Millisecond)
	ran, err := strconv.ParseFloat(strings.TrimSpace(session("time.process_time() - a")), 64) // 8e-05 too
	if err != nil || ran > .2 {
		t.Errorf("the thread ran on between two calls, for %v s, %v", ran, err)
	}
	if got := session("print('a' * 100_000)"); len(got) != DefaultOutput {
		t.Errorf("%d bytes", len(got))
	}
	if got := session("_ = 3\n_ + 1"); got != "4\n" {
		t.Errorf("what was left of a flood: %q", got)
	}
}

// TestClose: a closed pool runs nothing, ends what runs, and leaves no process,
// descriptor or folder.
func TestClose(t *testing.T) {
	count := func() int {
		list, _ := os.ReadDir("/proc/self/fd")
		return len(list)
	}
	pool(t, Config{Spare: -1}) // whatever a first one leaves open in the runtime
	before := count()
	p, err := Open(t.Context(), Config{Python: python(t), Spare: 4})
	if err != nil {
		t.Skip(err)
	}
	pid := p.supervisor.z.cmd.Process.Pid
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { _, _ = p.Run(t.Context(), "import time; time.sleep(30)") })
	}
	time.Sleep(100 * time.Millisecond)
	start := time.Now()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if time.Since(start) > 5*time.Second {
		t.Errorf("closing took %v", time.Since(start))
	}
	if _, err := p.Run(t.Context(), "1"); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
		t.Error("the zygote is still there")
	}
	if after := count(); after > before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
	for _, d := range p.supervisor.z.group.dirs {
		if _, err := os.Stat(d); err == nil {
			t.Errorf("%s is still there", d)
		}
	}
}

// TestCloseWithoutNamespaces: nothing is left where the kernel does not see to
// it.
func TestCloseWithoutNamespaces(t *testing.T) {
	p := pool(t, Config{BestEffort: true, Without: []Part{Namespaces}})
	done := make(chan struct{})
	go func() {
		_, _ = p.Run(t.Context(), "import subprocess; subprocess.run(['sleep', '63.5'])")
		close(done)
	}()
	running := func() bool { return exec.CommandContext(t.Context(), "pgrep", "-f", "^sleep 63.5$").Run() == nil }
	for range 100 {
		if running() {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if !running() {
		t.Fatal("it was never there, which shows nothing")
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	<-done
	for range 50 {
		if !running() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("what code has started outlived the sandbox")
}

// TestKilled runs itself and kills that with SIGKILL while code runs in its
// sandbox: nothing of it stays.
func TestKilled(t *testing.T) {
	const marker = "AGENTCLI_TEST_KILLED"
	if os.Getenv(marker) != "" {
		p := pool(t, Config{})
		do(t, p, "import subprocess; subprocess.run(['sleep', '64.5'])")
		return
	}
	pool(t, Config{})
	running := func() bool { return exec.CommandContext(t.Context(), "pgrep", "-f", "^sleep 64.5$").Run() == nil }
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestKilled$")
	cmd.Env = append(os.Environ(), marker+"=1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for range 300 {
		if running() {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if !running() {
		t.Error("it was never there, which shows nothing")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	for range 100 {
		if !running() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("what code has started outlived agentcli")
}
