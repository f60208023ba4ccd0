package sandbox

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

func box(t *testing.T, c Config) *Sandbox {
	t.Helper()
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Skip("no /bin/sh here")
	}
	s := New(c)
	if err := s.Check(t.Context(), sh("true")); errors.Is(err, ErrRefused) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	return s
}

// sh is a shell that reads its script from stdin, as the limits want it.
func sh(script string) Program { return Program{Args: []string{"/bin/sh"}, Stdin: []byte(script)} }

func TestRun(t *testing.T) {
	for _, weaker := range []bool{false, true} {
		s := box(t, Config{Weaker: weaker})
		if weaker {
			s.mode = plain
		}
		t.Setenv("AGENTCLI_CANARY", "secret")
		r, err := s.Run(t.Context(), sh("echo out; echo err >&2; echo [$AGENTCLI_CANARY]; exit 3"))
		if err != nil || string(r.Stdout) != "out\n[]\n" || string(r.Stderr) != "err\n" || r.ExitCode != 3 || r.TimedOut || r.Cut {
			t.Fatalf("weaker %v: %+v %v", weaker, r, err)
		}
	}
}

func TestLimits(t *testing.T) {
	s := box(t, Config{Limits: Limits{Wall: 500 * time.Millisecond, Output: 100}})
	start := time.Now()
	r, err := s.Run(t.Context(), sh("sleep 60 & sleep 60"))
	if err != nil || !r.TimedOut || time.Since(start) > 5*time.Second {
		t.Fatalf("%+v %v after %v", r, err, time.Since(start))
	}
	r, err = s.Run(t.Context(), sh("i=0; while [ $i -lt 1000 ]; do echo 0123456789; i=$((i+1)); done"))
	if err != nil || !r.Cut || len(r.Stdout) != 100 {
		t.Fatalf("%d bytes, %v, %v", len(r.Stdout), r.Cut, err)
	}
	// A background process that keeps the pipe open does not hold us up.
	start = time.Now()
	r, err = s.Run(t.Context(), sh("sleep 60 & echo done"))
	if err != nil || string(r.Stdout) != "done\n" || time.Since(start) > 5*time.Second {
		t.Fatalf("%+v %v after %v", r, err, time.Since(start))
	}
}

func TestRefusedSaysSo(t *testing.T) {
	s := New(Config{})
	err := s.Check(t.Context(), Program{Args: []string{"/does/not/exist"}})
	if !errors.Is(err, ErrRefused) || strings.Contains(err.Error(), "\n") {
		t.Fatal(err)
	}
	if _, err := s.Run(t.Context(), sh("true")); err == nil {
		t.Fatal("a sandbox that was refused must not run anything")
	}
}

// TestCheckTakesItsTime: programs that may run for a moment only do not shorten
// the probe, which starts from a cold disk.
func TestCheckTakesItsTime(t *testing.T) {
	box(t, Config{})
	s := New(Config{Limits: Limits{Wall: 50 * time.Millisecond}})
	if err := s.Check(t.Context(), sh("sleep 0.3")); err != nil {
		t.Fatal(err)
	}
	r, err := s.Run(t.Context(), sh("sleep 5"))
	if err != nil || !r.TimedOut {
		t.Fatalf("the limit still holds for programs: %+v %v", r, err)
	}
}

func TestRunBeforeCheck(t *testing.T) {
	if _, err := New(Config{}).Run(t.Context(), sh("true")); err == nil {
		t.Fatal("nothing runs before it is known how")
	}
}

func TestMissingProgram(t *testing.T) {
	s := box(t, Config{})
	if _, err := s.Run(t.Context(), Program{Args: []string{"/does/not/exist"}}); err == nil {
		t.Fatal("a missing program is an error")
	}
}
