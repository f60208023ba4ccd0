package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"agentcli/env"
	"agentcli/internal/workclock"
	"agentcli/traj"
)

// A server that is away for longer than a trajectory may work: what waits for it is
// not ended by --timeout, and what it never answers is worth no 0.
func TestAnOutageIsNoTimeoutOfThePolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		c := config(func(ctx context.Context, req *traj.Request) (*traj.Response, error) {
			asked++
			if asked%2 == 0 { // away for an hour, and it does not come back to every second trajectory
				resume := workclock.Wait(ctx)
				time.Sleep(time.Hour)
				resume()
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return say(req, "84"), nil
		})
		c.Timeout, c.Parallel = 5*time.Second, 1
		all, sum, err := play(t, c, 6)
		if err != nil || sum.Errors != 3 || sum.Mean != 1 {
			t.Errorf("%+v, %v", sum, err)
		}
		for _, x := range all {
			if x.Termination != traj.Answered && (x.Termination != traj.ModelFailed || x.Reward != nil) {
				t.Errorf("%s ended as %s with the reward %v", x.ID, x.Termination, x.Reward)
			}
		}
	})
}

// queued is a tool of which one call at a time may run, for ten seconds.
type queued struct{ turn chan struct{} }

func (q queued) Spec() traj.ToolSpec { return traj.ToolSpec{Name: "queued"} }

func (q queued) Turn(ctx context.Context) (func(), error) {
	select {
	case q.turn <- struct{}{}:
		return func() { <-q.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (q queued) Call(context.Context, json.RawMessage) (string, error) {
	time.Sleep(10 * time.Second)
	return "done", nil
}

func TestWaitingForAToolBehindOthersIsNoTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config(func(_ context.Context, req *traj.Request) (*traj.Response, error) {
			if len(req.Messages) == 1 {
				return say(req, "", traj.ToolCall{Name: "queued", Arguments: "{}"}), nil
			}
			return say(req, "84"), nil
		})
		q := queued{make(chan struct{}, 1)}
		c.NewEnv = func(traj.Task) (env.Environment, error) { return env.New(env.Config{Tools: []env.Tool{q}}) }
		c.Timeout, c.Parallel = 15*time.Second, 8
		all, sum, err := play(t, c, 8)
		if err != nil || sum.Mean != 1 || len(all) != 8 {
			t.Errorf("%+v, %v", sum, err)
		}
		c.Timeout = 5 * time.Second // the tool itself takes longer
		if all, _, _ = play(t, c, 8); len(all) != 8 {
			t.Fatal(len(all))
		}
		for _, x := range all {
			if x.Termination != traj.Timeout {
				t.Errorf("%s ended as %s", x.ID, x.Termination)
			}
		}
		time.Sleep(time.Minute) // the tools that were left behind end
	})
}

func TestARunEndsEarlyWhenTooManyFail(t *testing.T) {
	const parallel = 2
	for name, tc := range map[string]struct {
		limit ErrorLimit
		total int    // tasks
		at    [2]int // the trajectory at which the run ends, if all fail, and if every second one does
	}{
		"count":                    {ErrorLimit{Count: 3}, 0, [2]int{3, 6}},
		"share":                    {ErrorLimit{Share: .1}, 60, [2]int{6, 12}},
		"share of a total unknown": {ErrorLimit{Share: .1}, 0, [2]int{100, 100}},
		"no limit":                 {ErrorLimit{}, 0, [2]int{300, 300}},
	} {
		for i, every := range []int64{1, 2} {
			t.Run(fmt.Sprintf("%s, every %d", name, every), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var n atomic.Int64
					c := config(func(_ context.Context, req *traj.Request) (*traj.Response, error) {
						if n.Add(1)%every == 0 {
							return nil, errors.New("the server is odd")
						}
						return say(req, "84"), nil
					})
					c.FailOnError, c.Parallel, c.Tasks = tc.limit, parallel, tc.total
					all, sum, err := play(t, c, 300)
					if ends := tc.limit != (ErrorLimit{}); ends != errors.Is(err, ErrTooManyErrors) || ends != sum.Interrupted {
						t.Errorf("%v, %+v", err, sum)
					}
					// The others end too. Where every second one fails, one success more may pass a slow failure.
					most := tc.at[i] + parallel - 1 + i
					if len(all) > most || len(all) != sum.Done || sum.Cancelled > 0 {
						t.Errorf("%d trajectories ended, %d are the most: %+v", len(all), most, sum)
					}
				})
			})
		}
	}
	for _, bad := range []ErrorLimit{{Count: -1}, {Share: -.1}, {Share: 1.1}} {
		c := config(nil)
		c.FailOnError = bad
		if c.Validate() == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}

// Nothing is started against a model that is gone, and what was under way is kept.
func TestARunWhoseModelIsGoneStartsNothingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		c := config(func(_ context.Context, req *traj.Request) (*traj.Response, error) {
			if n.Add(1) > 10 {
				return nil, traj.Mark(fmt.Errorf("nothing listens there"), traj.ErrGone)
			}
			return say(req, "84"), nil
		})
		c.Parallel = 4
		all, sum, err := play(t, c, 300)
		if !errors.Is(err, traj.ErrGone) || len(all) > 14 || len(all) != int(n.Load()) || sum.Errors != len(all)-10 || sum.Mean != 1 {
			t.Errorf("%v; asked %d times, %d trajectories, %+v", err, n.Load(), len(all), sum)
		}
	})
}
