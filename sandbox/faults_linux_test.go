package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestRefused: a part that is refused is named, and nothing runs without it
// unless it may.
func TestRefused(t *testing.T) {
	pool(t, Config{})
	for _, part := range required {
		refuse = part
		_, err := Open(t.Context(), Config{Python: python(t)})
		var r *refusal
		if !errors.Is(err, ErrRefused) || !errors.As(err, &r) || r.Part != part || !strings.Contains(err.Error(), string(part)) {
			t.Errorf("%s: %v", part, err)
		}
		p, err := Open(t.Context(), Config{Python: python(t), BestEffort: true})
		if err != nil {
			t.Errorf("%s, weaker: %v", part, err)
			continue
		}
		if p.Isolated() {
			t.Error("not all parts hold")
		}
		for _, h := range p.Parts() {
			if h.Part == part && h.OK || h.Part != part && !h.OK && h.Part != Cgroup {
				t.Errorf("without %s: %+v", part, h)
			}
		}
		if r := do(t, p, "open('f', 'w').write('x'); 6*7"); string(r.Stdout) != "42\n" {
			t.Errorf("without %s: %+v %s", part, r, r.Stderr)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	refuse = ""
}

// TestFaultsAreNoRefusals: what goes wrong by our own fault, or by the moment's,
// fails, in the tests too; it neither skips them nor leaves a part out.
func TestFaultsAreNoRefusals(t *testing.T) {
	for errno, want := range map[syscall.Errno]bool{syscall.EPERM: true, syscall.EACCES: true, syscall.ENOSYS: true, syscall.EINVAL: true,
		syscall.EOPNOTSUPP: true, syscall.ENOSPC: true,
		syscall.ENOENT: false, syscall.EEXIST: false, syscall.ENOMEM: false, syscall.EAGAIN: false,
		syscall.EMFILE: false, syscall.ENAMETOOLONG: false} {
		r := notGranted(Namespaces, kernel("a mount", errno))
		if got := errors.Is(reported(r.both()), ErrRefused); got != want || !strings.Contains(reported(r.both()).Error(), "a mount") {
			t.Errorf("%v of the kernel: refused %v, %v", errno, got, r)
		}
		if r := notGranted(Namespaces, &os.PathError{Op: "mkdir", Path: "/dev", Err: errno}); errors.Is(reported(r.both()), ErrRefused) {
			t.Errorf("%v of a mkdir counts as a refusal: %v", errno, r)
		}
	}
	if !refused(errNoFilter) || refused(nil) || refused(errors.New("?")) {
		t.Error("a processor without a filter is refused, and nothing else without a number")
	}
}

// A set-up fault for real: a folder of the interpreter's whose name is too long
// to be shown in the new root.
func TestAFaultOfSetUpFailsWhateverMayBeLeftOut(t *testing.T) {
	real := pool(t, Config{}) // here nothing is refused
	dir := t.TempDir()
	long := dir
	for len(long) < 4092 { // of 4095 that a path may have; under the old root it is 5 longer
		long += "/" + strings.Repeat("x", min(200, 4092-len(long)-1))
	}
	if err := os.MkdirAll(long, 0o755); err != nil {
		t.Fatal(err)
	}
	fake := filepath.Join(dir, "python")
	script := fmt.Sprintf("#!/bin/sh\necho '{\"Executable\":%q,\"Real\":%q,\"Version\":\"3\",\"Paths\":[%q]}'\n",
		real.iso.py.Executable, real.iso.py.Real, long)
	if err := os.WriteFile(fake, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, weaker := range []bool{false, true} {
		p, err := Open(t.Context(), Config{Python: fake, BestEffort: weaker})
		if err == nil {
			p.Close()
		}
		if err == nil || errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "namespaces: ") ||
			!strings.Contains(err.Error(), syscall.ENAMETOOLONG.Error()) {
			t.Errorf("weaker %v: %.300v", weaker, err)
		}
	}
}

// A Python that ends without a word is reported with how it ended.
func TestAPythonThatDoesNotStartIsReportedWithItsEnd(t *testing.T) {
	real := pool(t, Config{})
	silent, err := exec.LookPath("false")
	if err != nil {
		t.Fatal(err)
	}
	end := exec.CommandContext(t.Context(), silent).Run()
	fake := filepath.Join(t.TempDir(), "python")
	script := fmt.Sprintf("#!/bin/sh\necho '{\"Executable\":%q,\"Real\":%q,\"Version\":\"3\",\"Paths\":[]}'\n", real.iso.py.Executable, silent)
	if err := os.WriteFile(fake, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	p, err := Open(t.Context(), Config{Python: fake})
	if err == nil {
		p.Close()
		t.Fatal("it starts")
	}
	if end == nil || !strings.Contains(err.Error(), end.Error()) {
		t.Errorf("%v does not say %v", err, end)
	}
}

// TestKernelRefuses runs itself where the kernel grants no namespaces.
func TestKernelRefuses(t *testing.T) {
	const marker = "AGENTCLI_TEST_NO_NAMESPACES"
	if os.Getenv(marker) == "" {
		pool(t, Config{}) // here it grants them
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestKernelRefuses$", "-test.v")
		cmd.Env = append(os.Environ(), marker+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: TestKernelRefuses") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), Config{Python: python(t)})
	var r *refusal
	if !errors.As(err, &r) || r.Part != Namespaces {
		t.Fatal(err)
	}
	p, err := Open(t.Context(), Config{Python: python(t), BestEffort: true})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if p.Isolated() {
		t.Error("it takes itself for isolated")
	}
	if r := do(t, p, "6*7"); string(r.Stdout) != "42\n" {
		t.Errorf("%+v", r)
	}
}

// TestZygoteDies: the next call gets a new one, and calls that were running
// say so.
func TestZygoteDies(t *testing.T) {
	p := pool(t, Config{})
	c, err := p.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	time.AfterFunc(100*time.Millisecond, func() { _ = p.supervisor.z.cmd.Process.Kill() })
	if _, err := c.Run(t.Context(), "import time; time.sleep(30)"); !errors.Is(err, errLost) {
		t.Error(err)
	}
	for range 5 {
		if r := do(t, p, "6*7"); string(r.Stdout) != "42\n" {
			t.Errorf("%+v", r)
		}
	}
}

// TestACallOutlivesTheDeathOfItsZygote: the pool is not told of the death, and the processes
// that it holds ready die one after the other.
func TestACallOutlivesTheDeathOfItsZygote(t *testing.T) {
	p := pool(t, Config{Spare: 4, Parallel: 8})
	for range 10 {
		p.supervisor.mu.Lock()
		_ = p.supervisor.z.kill()
		p.supervisor.mu.Unlock()
		for range 3 {
			if r := do(t, p, "6*7"); string(r.Stdout) != "42\n" {
				t.Errorf("%+v", r)
			}
		}
	}
}

func TestMissingPython(t *testing.T) {
	if _, err := Open(t.Context(), Config{Python: "/does/not/exist"}); err == nil || errors.Is(err, ErrRefused) {
		t.Fatal(err)
	}
}

// unsharedMounts lets a probe that mounts do so where nobody else sees it.
func unsharedMounts(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if os.Getuid() == 0 {
		cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS
	}
}
