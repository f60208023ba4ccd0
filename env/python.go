package env

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"agentcli/sandbox"
	"agentcli/traj"
)

// driver runs the code that it finds on stdin and shows the value of a last
// expression, as a notebook does.
//
//go:embed driver.py
var driver string

// Python runs code in a sandboxed process of its own for every call.
type Python struct {
	box  *sandbox.Sandbox
	path string
	wall time.Duration
}

// PythonConfig describes the python tool.
type PythonConfig struct {
	Path    string        // of the interpreter; "" looks for one that works
	Timeout time.Duration // of one call; 0: sandbox.DefaultWall
	Weaker  bool          // run without isolation where the kernel refuses it
}

// NewPython finds an interpreter and checks that it can be isolated here.
func NewPython(ctx context.Context, c PythonConfig) (*Python, error) {
	candidates := []string{c.Path}
	if c.Path == "" {
		candidates = interpreters()
	}
	if len(candidates) == 0 {
		return nil, fmt.Errorf("the python tool needs python3, and none is in PATH; install it, or leave python out of --tools")
	}
	if c.Timeout == 0 {
		c.Timeout = sandbox.DefaultWall
	}
	var first error
	for _, path := range candidates {
		p := &Python{path: path, wall: c.Timeout,
			box: sandbox.New(sandbox.Config{Limits: sandbox.Limits{Wall: c.Timeout}, Weaker: c.Weaker})}
		err := p.box.Check(ctx, p.program("1"))
		if err == nil {
			return p, nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, fmt.Errorf("the python tool cannot run: %w; --sandbox weaker runs it without isolation", first)
}

// Isolated says whether calls run without network, in namespaces of their own.
func (p *Python) Isolated() bool { return p.box.Isolated() }

// interpreters lists every python3 in PATH, and those of the system first:
// a version manager's shim is often not readable to anybody else.
func interpreters() []string {
	var found []string
	for _, dir := range append([]string{"/usr/bin", "/usr/local/bin"}, filepath.SplitList(os.Getenv("PATH"))...) {
		path := filepath.Join(dir, "python3")
		if st, err := os.Stat(path); filepath.IsAbs(path) && err == nil && st.Mode()&0o111 != 0 && !contains(found, path) {
			found = append(found, path)
		}
	}
	return found
}

// Spec describes the tool to a model.
func (p *Python) Spec() traj.ToolSpec {
	return traj.ToolSpec{
		Name: "python",
		Description: "Run Python 3 code and return what it prints, and the value of its last expression. " +
			"Every call starts afresh; there is no network.",
		Parameters: json.RawMessage(`{"type":"object","properties":{"code":{"type":"string","description":"the code to run"}},"required":["code"]}`),
	}
}

// Call runs the code. A traceback comes back as the tool's error.
func (p *Python) Call(ctx context.Context, args json.RawMessage) (string, error) {
	var a struct {
		Code *string `json:"code"`
	}
	if err := readArgs(args, &a); err != nil {
		return "", err
	}
	if a.Code == nil {
		return "", fmt.Errorf(`wrong arguments: "code" is missing`)
	}
	r, err := p.box.Run(ctx, p.program(*a.Code))
	if err != nil {
		return "", err
	}
	text := strings.TrimRight(string(r.Stdout), "\n")
	if e := strings.TrimRight(string(r.Stderr), "\n"); e != "" {
		text = strings.TrimLeft(text+"\n"+e, "\n")
	}
	if r.Cut {
		text += "\n… [further output left out]"
	}
	switch {
	case r.TimedOut:
		return "", fail(text, fmt.Sprintf("the code ran longer than %v and was stopped", p.wall))
	case r.Signal != "":
		return "", fail(text, "the code was stopped by the system: "+r.Signal)
	case r.ExitCode != 0:
		return "", fail(text, fmt.Sprintf("the code ended with status %d", r.ExitCode))
	}
	return text, nil
}

// fail joins what was printed before the end with the reason for it.
func fail(text, reason string) error {
	if text == "" {
		return fmt.Errorf("%s", reason)
	}
	return fmt.Errorf("%s\n%s", reason, text)
}

func (p *Python) program(code string) sandbox.Program {
	return sandbox.Program{
		// -I: neither the user's folders nor PYTHON* variables; -B: no .pyc files.
		Args:  []string{p.path, "-I", "-B", "-X", "utf8", "-c", driver},
		Env:   []string{"OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1", "MKL_NUM_THREADS=1", "MPLBACKEND=Agg"},
		Stdin: []byte(code),
	}
}
