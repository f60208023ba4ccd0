package engine

import (
	"context"
	"errors"

	"agentcli/internal/safego"
	"agentcli/traj"
)

// Served is what a run has beside its tasks where somebody waits for each. Its functions
// are called by several goroutines at once.
type Served struct {
	// Group names the group that attempts at a task are compared in; "": the task.
	Group func(traj.Task) string
	// Gone is closed when nobody waits for a task any more: its trajectory ends as cancelled.
	Gone func(traj.Task) <-chan struct{}
	// Kept gets the place of a trajectory in the journal, before the sink gets the trajectory.
	Kept func(id string, at int64)
	// Ending is called when no task is begun any more: the tasks must end, however many
	// are still waited for. It may be called before anything was played.
	Ending func()
}

var errGone = errors.New("the client that requested it has disconnected")

// awaited ends with ctx, or when nobody waits for the task any more.
func (s *Served) awaited(ctx context.Context, task traj.Task) (context.Context, context.CancelFunc) {
	own, cancel := context.WithCancelCause(ctx)
	go func() {
		defer safego.Catch(cancel)
		select {
		case <-s.Gone(task):
			cancel(errGone)
		case <-own.Done():
		}
	}()
	return own, func() { cancel(nil) }
}
