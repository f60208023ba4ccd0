package env

import (
	"context"
	"errors"

	"agentcli/internal/safego"
	"agentcli/traj"
)

// Outcomes of a tool call.
const (
	OutcomeOK        = "ok"
	OutcomeError     = "error"     // the tool said no
	OutcomeTimeout   = "timeout"   // it took longer than it may
	OutcomeRefused   = "refused"   // there is no such tool, or the arguments do not fit: it did not run
	OutcomeCancelled = "cancelled" // the trajectory ended meanwhile
)

// Outcomes lists them.
var Outcomes = []string{OutcomeOK, OutcomeError, OutcomeTimeout, OutcomeRefused, OutcomeCancelled}

var (
	errRefused = errors.New("refused")
	errTimeout = errors.New("time-out")
)

// ToolHook is called when a tool call begins, by several goroutines at once. The
// function that it returns is called at the call's end, with what the tool gave
// before it is cut to size, and one of Outcomes.
type ToolHook func(traj.ToolCall) (end func(result string, err error, outcome string))

type hookKey struct{}

// WithToolHook makes Step tell hook of the calls that it runs.
func WithToolHook(ctx context.Context, hook ToolHook) context.Context {
	return context.WithValue(ctx, hookKey{}, hook)
}

// HookOf is the hook that Step's context carries, or nil: for an environment of
// your own that runs tools.
func HookOf(ctx context.Context) ToolHook {
	hook, _ := ctx.Value(hookKey{}).(ToolHook)
	return hook
}

// watched is call, seen by the context's hook if there is one.
func (e *ToolEnvironment) watched(ctx context.Context, c traj.ToolCall) (output, error) {
	hook := HookOf(ctx)
	if hook == nil {
		return e.call(ctx, c)
	}
	var end func(result string, err error, outcome string)
	undisturbed(func() { end = hook(c) })
	out, err := e.call(ctx, c)
	outcome := OutcomeError
	switch {
	case err == nil:
		outcome = OutcomeOK
	case ctx.Err() != nil:
		outcome = OutcomeCancelled
	case errors.Is(err, errRefused):
		outcome = OutcomeRefused
	case errors.Is(err, errTimeout):
		outcome = OutcomeTimeout
	}
	undisturbed(func() { end(out.text, err, outcome) })
	return out, err
}

// undisturbed calls a part of a hook: its panic cannot affect the call.
func undisturbed(f func()) {
	defer safego.Catch(nil)
	f()
}
