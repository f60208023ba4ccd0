package sandbox

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// TestSuites runs pytest in the sandbox: what AGENTCLI_SANDBOX_SUITES names, its
// arguments for each suite, separated by semicolons. The interpreter of
// AGENTCLI_PYTHON has pytest and the packages. It is how the list of allowed
// system calls was found; scripts/sandbox_suites.sh runs it inside and outside,
// and compares.
func TestSuites(t *testing.T) {
	suites := os.Getenv("AGENTCLI_SANDBOX_SUITES")
	if suites == "" {
		t.Skip("AGENTCLI_SANDBOX_SUITES is not set")
	}
	var without []Part
	if os.Getenv("AGENTCLI_SANDBOX_WITHOUT") != "" { // to see which failures are seccomp's
		without = []Part{Seccomp}
	}
	p := pool(t, Config{Spare: -1, Parallel: 2, Without: without, BestEffort: len(without) > 0,
		Limits: Limits{Wall: 50 * time.Minute, Memory: 16 << 30, Processes: 512, FileSize: 1 << 30, Disk: 2 << 30, Files: 4096, Output: 8 << 20}})
	for suite := range strings.SplitSeq(suites, ";") {
		args := strings.Fields(suite)
		code := fmt.Sprintf("import sys, os, pytest\nos.environ['HOME'] = os.getcwd()\nsys.argv = ['pytest']\nsys.exit(pytest.main(%s))",
			pyList(append([]string{"-q", "-p", "no:cacheprovider", "-rfE", "--tb=line"}, args...)))
		start := time.Now()
		r := do(t, p, code)
		t.Logf("%s: exit %d after %v %s\n%s%s", suite, r.ExitCode, time.Since(start).Round(time.Second), r.Signal, r.Stdout, r.Stderr)
	}
}

func pyList(list []string) string {
	for i, s := range list {
		list[i] = fmt.Sprintf("%q", s)
	}
	return "[" + strings.Join(list, ", ") + "]"
}
