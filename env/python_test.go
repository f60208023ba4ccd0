package env

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"agentcli/sandbox"
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
	return p
}

func run(t *testing.T, p *Python, code string) (string, error) {
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
		{"import socket; s=socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b'x',('127.0.0.1',9))", "", "Network is unreachable"},
		{"import socket; [n for _, n in socket.if_nameindex()]", "['lo']", ""},
		{"import os; os.getuid()", "1000", ""},
		{"x = bytearray(4<<30)", "", "MemoryError"},
		{"f=open('big','wb')\nfor i in range(100): f.write(b'x'*(1<<20))", "", ""},
		{"import os\nn=0\ntry:\n  while True:\n    if os.fork()==0:\n      import time; time.sleep(30)\n    n+=1\nexcept OSError: pass\nn < 40", "True", ""},
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

func TestPythonLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	p := python(t, 0)
	t.Setenv("TMPDIR", dir)
	if _, err := run(t, p, "import subprocess,os\nos.makedirs('d/e')\nos.chmod('d',0)\nsubprocess.Popen(['sleep','60'],start_new_session=True)\n1"); err != nil {
		t.Log(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 0 {
		t.Fatalf("left behind: %v, %v", left, err)
	}
}

func TestPythonArguments(t *testing.T) {
	p := &Python{}
	if _, err := p.Call(t.Context(), json.RawMessage(`{}`)); err == nil {
		t.Fatal("code is missing")
	}
}
