package env

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"agentcli/sandbox"
	"agentcli/traj"
)

func python(t *testing.T, timeout time.Duration) *Python {
	t.Helper()
	if len(interpreters()) == 0 {
		t.Skip("no python3 here")
	}
	p, err := NewPython(t.Context(), PythonConfig{Timeout: timeout})
	if errors.Is(err, sandbox.ErrRefused) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func run(t *testing.T, p *Python, code string) (string, error) { return runTool(t, p, code) }

func runTool(t *testing.T, p Tool, code string) (string, error) {
	args, err := json.Marshal(map[string]string{"code": code})
	if err != nil {
		t.Fatal(err)
	}
	return p.Call(t.Context(), args)
}

func TestPython(t *testing.T) {
	p := python(t, 0)
	t.Setenv("AGENTCLI_CANARY", "secret")
	for _, c := range []struct{ code, want, err string }{
		{"12*7", "84", ""},
		{"x = 6\nprint(x)\nx*7", "6\n42", ""},
		{"None", "", ""},
		{"'é'", "'é'", ""},
		{"1/0", "", "the code ended with status 1\nTraceback (most recent call last):\n  File \"<code>\", line 1, in <module>"},
		{"print(1)\ndef f(:", "", "SyntaxError"},
		{"import sys; print('a'); sys.exit(3)", "", "the code ended with status 3\na"},
		{"import os; os.environ.get('AGENTCLI_CANARY')", "", ""},
		{"import os; sorted(os.listdir('.'))", "[]", ""},
		{"open('f','w').write('x')", "1", ""},
		{"import socket; s=socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b'x',('127.0.0.1',9))", "", "PermissionError"},
		{"1;", "", ""},
		{"float('nan')", "nan", ""},
		{"import sys; sys.stdout.buffer.write(b'a\\xff\\xfeb'); None", "a\xff\xfeb", ""},
		{"import os; os.abort()", "", "the code was stopped by the system: "},
		{"import ctypes; ctypes.string_at(0)", "", "the code was stopped by the system: "},
		{"raise SystemExit('enough')", "", "enough"},
		{"'a;'", "'a;'", ""},
		{"import json\njson.loads('{')", "", "line 2, in <module>\n    json.loads('{')\njson.decoder.JSONDecodeError"},
		{"import os; os.getuid()", "1000", ""},
		{"x = bytearray(4<<30)", "", "MemoryError"},
		{"f=open('big','wb')\nfor i in range(100): f.write(b'x'*(1<<20))", "", ""},
		{"import os\nn=0\ntry:\n  while True:\n    if os.fork()==0:\n      import time; time.sleep(30)\n    n+=1\nexcept OSError: pass\nn < 40",
			"True", ""},
		{"print('x'*10_000_000)", "", ""},
	} {
		got, err := run(t, p, c.code)
		switch {
		case strings.HasPrefix(c.code, "f=open('big'"):
			if err == nil {
				t.Errorf("a file of 100 MiB was written")
			}
		case strings.HasPrefix(c.code, "print('x'*"):
			if err != nil || len(got) > sandbox.DefaultOutput+100 || !strings.Contains(got, "further output left out") {
				t.Errorf("output flood: %d bytes, %v", len(got), err)
			}
		case c.err != "":
			if err == nil || !strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), "main()") {
				t.Errorf("%q: %q, %v; want error %q", c.code, got, err, c.err)
			}
		case err != nil || got != c.want:
			t.Errorf("%q: %q, %v; want %q", c.code, got, err, c.want)
		}
	}
}

func TestPythonTimeoutKillsTheGroup(t *testing.T) {
	p := python(t, time.Second)
	start := time.Now()
	_, err := run(t, p, "import subprocess, time\nsubprocess.Popen(['sleep','60'])\nprint('begun', flush=True)\nwhile True: pass")
	if err == nil || !strings.Contains(err.Error(), "longer than 1s") || !strings.Contains(err.Error(), "begun") {
		t.Fatal(err)
	}
	if d := time.Since(start); d > 10*time.Second {
		t.Fatalf("took %v", d)
	}
}

func TestPythonSession(t *testing.T) {
	p := PythonSessions{python(t, time.Second)}
	a, b := p.Open(), p.Open()
	defer b.Close()
	call := func(tool Tool, code, want, wantErr string) {
		t.Helper()
		got, err := runTool(t, tool, code)
		if got != want || wantErr == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), wantErr) {
			t.Errorf("%q: %q, %v; want %q, %q", code, got, err, want, wantErr)
		}
	}
	call(a, "x = 6\nopen('f','w').write('kept')\nimport math; math.pi = 3\ndef f(): return 1/0", "", "")
	call(a, "x*7", "42", "")
	call(a, "_, open('f').read(), math.pi", "(42, 'kept', 3)", "")
	call(a, "f()", "", "File \"<code>\", line 4, in f")
	call(b, "x", "", "NameError")
	call(b, "import math; math.pi", "3.141592653589793", "")
	call(b, "import os; os.path.exists('f')", "False", "")
	call(p, "x = 1", "", "")
	call(p, "x", "", "NameError")
	// What runs on is gone before the next call, and so is its output.
	call(a, "import subprocess; q = subprocess.Popen(['sh','-c','sleep 0.1; echo late']); 1", "1", "")
	call(a, "import time; time.sleep(.3); q.poll() is not None", "True", "")
	call(a, "import sys; sys.exit(3)", "", "status 3")
	call(a, "x", "6", "")
	call(a, "while True: pass", "", "was stopped; its variables and files are gone")
	call(a, "x", "", "NameError")
	call(a, "import os; os._exit(0)", "[the process ended; its variables and files are gone]", "")
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	call(a, "1", "", "closed")
}

// TestPythonScience: numpy and sympy are at hand where they are installed, and
// draw different numbers in each call.
func TestPythonScience(t *testing.T) {
	p := python(t, 0)
	_, modules := p.Version(t.Context())
	if path := os.Getenv("AGENTCLI_PYTHON"); path != "" {
		var err error
		if p, err = NewPython(t.Context(), PythonConfig{Path: path}); err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		_, modules = p.Version(t.Context())
	}
	if len(modules) == 0 {
		t.Skip("neither is installed")
	}
	if slices.Contains(modules, "sympy") {
		if got, err := run(t, p, "import sympy as sp\nx = sp.Symbol('x')\nsp.factor(x**2 - 1)"); got != "(x - 1)*(x + 1)" {
			t.Error(got, err)
		}
	}
	if slices.Contains(modules, "numpy") {
		if got, err := run(t, p, "import numpy as np\nfloat(np.eye(3).sum())"); got != "3.0" {
			t.Error(got, err)
		}
		a, _ := run(t, p, "import numpy as np\nnp.random.rand()")
		b, _ := run(t, p, "import numpy as np\nnp.random.rand()")
		if a == b || a == "" {
			t.Error(a, b)
		}
	}
}

// TestPythonSessionInEnvironment: an environment opens a session of its own for
// each trajectory, and closes it.
func TestPythonSessionInEnvironment(t *testing.T) {
	p := PythonSessions{python(t, 0)}
	step := func(e *ToolEnvironment, code string) string {
		args, _ := json.Marshal(map[string]string{"code": code})
		r, err := e.Step(t.Context(), traj.Action{ToolCalls: []traj.ToolCall{{ID: "1", Name: "python", Arguments: string(args)}}})
		if err != nil {
			t.Fatal(err)
		}
		return r.Observation.Messages[0].Content
	}
	var envs []*ToolEnvironment
	for range 2 {
		e, err := New(Config{Tools: []Tool{p}})
		if err != nil {
			t.Fatal(err)
		}
		envs = append(envs, e)
	}
	step(envs[0], "x = 1")
	if got := step(envs[0], "x"); got != "1" {
		t.Error(got)
	}
	if got := step(envs[1], "x"); !strings.Contains(got, "NameError") {
		t.Error(got)
	}
	for _, e := range envs {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	if got := step(envs[0], "x"); !strings.Contains(got, "closed") {
		t.Error(got)
	}
}

// TestPythonFaultsAreData: whatever code does to its process, the step has a
// message that can be written down, and the next call works.
func TestPythonFaultsAreData(t *testing.T) {
	p := python(t, time.Second)
	for _, code := range []string{"import os; os.abort()", "while True: pass",
		"import sys; sys.stdout.buffer.write(b'\\xff'*100000)", "x = bytearray(4<<30)",
		"import os, signal; os.kill(os.getpid(), signal.SIGSTOP)", "import os; os.close(1); os.close(2); os.close(0)", "1/0"} {
		args, err := json.Marshal(map[string]string{"code": code})
		if err != nil {
			t.Fatal(err)
		}
		r := step(t, Config{Tools: []Tool{p}}, calls("python", string(args), "python", `{"code":"6*7"}`))
		m := r.Observation.Messages
		if len(m) != 2 || m[1].Content != "42" || !utf8.ValidString(m[0].Content) || len(m[0].Content) > 4*DefaultMaxObservation {
			t.Errorf("%s: %d errors, %+v", code, r.ToolErrors, m)
		}
	}
}

func TestPythonArguments(t *testing.T) {
	p := &Python{}
	if _, err := p.Call(t.Context(), json.RawMessage(`{}`)); err == nil {
		t.Fatal("code is missing")
	}
}

// A call that waits for a place waits before its time begins, and a queue is no
// working time of its trajectory.
func TestPythonCallsWaitForAPlaceBeforeTheirTimeBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Python{turns: make(chan struct{}, 1)}
		var _ Queued = p
		first, err := p.Turn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.Turn(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a second call had the only place: %v", err)
		}
		first()
		first()
		if _, err := p.Turn(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
