package engine

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"agentcli/agent"
	"agentcli/env"
	"agentcli/traj"
)

// awayModel is a model that may be away.
type awayModel struct {
	agent.Model
	ready func(ctx context.Context) error
}

func (m awayModel) Ready(ctx context.Context) error { return m.ready(ctx) }

// While the model is away no environment is made: an attempt that could only wait is
// not begun.
func TestNothingBeginsWhileTheModelIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := make(chan struct{})
		var begun atomic.Int32
		c := config(func(_ context.Context, req *traj.Request) (*traj.Response, error) { return say(req, "84"), nil })
		c.Model = awayModel{c.Model, func(ctx context.Context) error {
			select {
			case <-back:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}}
		newEnv := c.NewEnv
		c.NewEnv = func(x traj.Task) (env.Environment, error) { begun.Add(1); return newEnv(x) }
		c.Parallel = 4
		time.AfterFunc(time.Hour, func() {
			if n := begun.Load(); n > 0 {
				t.Errorf("%d attempts began while the model was away", n)
			}
			close(back)
		})
		if all, sum, err := play(t, c, 8); err != nil || sum.Interrupted || len(all) != 8 {
			t.Errorf("%d, %+v, %v", len(all), sum, err)
		}
	})
}

// A stop, a cancelled run and a model that is given up end the wait at once, with
// nothing begun.
func TestTheWaitForTheModelEndsWithTheRun(t *testing.T) {
	gone := fmt.Errorf("it does not come back: %w", traj.ErrGone)
	broken := errors.New("broken")
	for name, x := range map[string]struct {
		end  func(stop chan struct{}, cancel func())
		err  error // of Ready; nil: it waits
		want error
	}{
		"stop":   {func(stop chan struct{}, _ func()) { close(stop) }, nil, nil},
		"cancel": {func(_ chan struct{}, cancel func()) { cancel() }, nil, nil},
		"gone":   {nil, gone, traj.ErrGone},
		"broken": {nil, broken, broken},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				stop := make(chan struct{})
				c := config(func(_ context.Context, req *traj.Request) (*traj.Response, error) { return say(req, "84"), nil })
				c.Model = awayModel{c.Model, func(ctx context.Context) error {
					if x.err != nil {
						return x.err
					}
					<-ctx.Done()
					return ctx.Err()
				}}
				c.Stop = stop
				if x.end != nil {
					time.AfterFunc(time.Minute, func() { x.end(stop, cancel) })
				}
				start := time.Now()
				e, err := New(c)
				if err != nil {
					t.Fatal(err)
				}
				sum, err := e.Run(ctx, tasks(8), func(*traj.Trajectory) error { t.Error("something was played"); return nil })
				if !errors.Is(err, x.want) || sum.Done != 0 || time.Since(start) > time.Minute || !sum.Interrupted && !errors.Is(x.want, broken) {
					t.Errorf("%v, %+v after %v", err, sum, time.Since(start))
				}
			})
		})
	}
}

func TestAPanicWhileTheModelIsWaitedForIsAnError(t *testing.T) {
	c := config(func(_ context.Context, req *traj.Request) (*traj.Response, error) { return say(req, "84"), nil })
	c.Model = awayModel{c.Model, func(context.Context) error { panic("boom") }}
	if all, _, err := play(t, c, 2); err == nil || len(all) > 0 {
		t.Errorf("%d, %v", len(all), err)
	}
}
