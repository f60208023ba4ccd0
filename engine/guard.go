package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"agentcli/env"
	"agentcli/traj"
)

// patience is how long an environment may go on after its trajectory's end,
// before it is left behind.
const patience = 5 * time.Second

var errLeft = errors.New("did not come back after the trajectory's end, and was left behind")

// guard calls what can hang and panic without harm to more than its own trajectory.
type guard struct {
	what    string
	workers *workers
	left    <-chan outcome // of a call that was left behind: it may still run; nil: none was
}

// outcome is how a guarded call ended.
type outcome struct{ err error }

// do runs f to its end, or to a while after ctx's end: Go cannot stop it.
func (g *guard) do(ctx context.Context, f func() error) error {
	done := make(chan outcome, 1)
	g.workers.run(func() {
		var err error
		returned := false
		defer func() {
			if x := recover(); x != nil {
				err = fmt.Errorf("panic in %s: %v", g.what, x)
			} else if !returned {
				err = fmt.Errorf("%s ended its goroutine", g.what)
			}
			done <- outcome{err}
		}()
		err = f()
		returned = true
	})
	select {
	case o := <-done:
		return o.err
	case <-ctx.Done():
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case o := <-done:
		return o.err
	case <-late.C:
		g.left = done
		return fmt.Errorf("%s %w", g.what, errLeft)
	}
}

// guarded is an environment behind a guard.
type guarded struct {
	env.Environment
	guard
}

func (g *guarded) Reset(ctx context.Context, task traj.Task) (traj.Observation, error) {
	var o traj.Observation
	err := g.do(ctx, func() (err error) { o, err = g.Environment.Reset(ctx, task); return err })
	if err != nil {
		return traj.Observation{}, err // what was left behind may still write to o
	}
	return valid(o), nil
}

func (g *guarded) Step(ctx context.Context, a traj.Action) (env.Result, error) {
	var r env.Result
	err := g.do(ctx, func() (err error) { r, err = g.Environment.Step(ctx, a); return err })
	if err != nil {
		return env.Result{}, err
	}
	r.Observation = valid(r.Observation)
	return r, nil
}

// Close waits no longer than for anything else.
func (g *guarded) Close() error {
	if g.left != nil { // it is in use
		return nil
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	return g.do(over, g.Environment.Close)
}

// valid is an observation that JSON and Parquet can hold. The messages may be
// the task's own: they are not changed in place.
func valid(o traj.Observation) traj.Observation {
	o.Continue = strings.ToValidUTF8(o.Continue, "�")
	for i := range o.Messages {
		m := o.Messages[i]
		if utf8.ValidString(m.Content) && utf8.ValidString(m.Reasoning) && utf8.ValidString(m.Name) && utf8.ValidString(m.ToolCallID) {
			continue
		}
		o.Messages = slices.Clone(o.Messages)
		for i := range o.Messages {
			m := &o.Messages[i]
			for _, s := range []*string{&m.Content, &m.Reasoning, &m.Name, &m.ToolCallID} {
				*s = strings.ToValidUTF8(*s, "�")
			}
		}
		break
	}
	return o
}
