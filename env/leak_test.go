package env

import (
	"errors"
	"testing"

	"agentcli/sandbox"
	"agentcli/traj"

	"go.uber.org/goleak"
)

// TestNothingIsLeftAfterPythonCloses: neither goroutines of the pool nor of a
// session.
func TestNothingIsLeftAfterPythonCloses(t *testing.T) {
	if len(interpreters()) == 0 {
		t.Skip("no python3 here")
	}
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	p, err := NewPython(t.Context(), PythonConfig{})
	if errors.Is(err, sandbox.ErrRefused) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(Config{Tools: []Tool{PythonSessions{Python: p}}})
	if err != nil {
		t.Fatal(err)
	}
	res, err := e.Step(t.Context(), traj.Action{ToolCalls: []traj.ToolCall{{Name: "python", Arguments: `{"code":"6*7"}`}}})
	if err != nil || res.Observation.Messages[0].Content != "42" {
		t.Fatal(res, err)
	}
	if out, err := run(t, p, "6*7"); err != nil || out != "42" {
		t.Fatal(out, err)
	}
	if err := errors.Join(e.Close(), p.Close()); err != nil {
		t.Fatal(err)
	}
}
