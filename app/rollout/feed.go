package rollout

import (
	"context"
	"iter"

	"agentcli/app/console"
	"agentcli/datasets"
	"agentcli/engine"
	"agentcli/journal"
	"agentcli/traj"
)

// Feed gives a run its tasks one by one, for somebody who waits for their trajectories.
type Feed struct {
	// Open is called when the run is set up, before it plays anything. It may put another
	// model in the place of the run's.
	Open func(FedRun) error
	// Tasks end when nothing more is to be played.
	Tasks  func(ctx context.Context, stop <-chan struct{}) iter.Seq2[traj.Task, error]
	Limits func(traj.Task, engine.Limits) engine.Limits // of a task, from those of the run
	Served engine.Served
	Done   func(*traj.Trajectory) // it is in the journal and goes into the file
	Close  func(error)            // no more trajectories come
	Rest   string                 // what the command that goes on with the run is to have
	// Observe sees the trajectories that are played.
	Observe func(*traj.Trajectory) engine.Watcher
}

// FedRun is what a Feed needs to know of its run.
type FedRun struct {
	*Run
	Requests *datasets.Requests // reads rows
	Journal  *journal.Journal
	Options  Options
}

// CheckAnswer says why a row cannot be scored: it has no answer, and its reward compares with one.
func (x FedRun) CheckAnswer(t *traj.Task) error {
	name := x.rewardOf(&traj.Trajectory{Task: *t})
	if name == "" || len(t.Answers) > 0 {
		return nil
	}
	return missingAnswer("", name, x.grader)
}

// play is Play with the tasks of the feed.
func (f *Feed) play(x *Run) func(context.Context, func(*traj.Trajectory) error) (engine.Summary, error) {
	return func(ctx context.Context, sink func(*traj.Trajectory) error) (sum engine.Summary, err error) {
		defer func() { f.Close(err) }()
		if err = f.Open(FedRun{x, x.requests, x.journal, x.o}); err != nil {
			return sum, err
		}
		return x.PlayPart(ctx, Part{Name: x.Identity()[:8], Samples: 1, Seed: x.o.Seed, Journal: x.journal, Distinct: true, Feed: f,
			Tasks: f.Tasks(ctx, console.StopRequested(ctx))}, func(t *traj.Trajectory) error {
			err := sink(t)
			f.Done(t)
			return err
		})
	}
}

// limits are a task's in a run of requests.
func (f *Feed) limits(of func(traj.Task) engine.Limits) func(traj.Task) engine.Limits {
	return func(t traj.Task) engine.Limits { return f.Limits(t, of(t)) }
}
