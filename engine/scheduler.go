package engine

import (
	"context"

	"agentcli/env"
	"agentcli/traj"
)

// Scheduler decides what follows a reply. One serves one trajectory and is used by one
// goroutine. Its error is the trajectory's env_error. The engine keeps what is its own
// whatever a scheduler says: ids, seeds, limits, budgets and time-outs. A reply that its
// limit cut short, or an empty one, ends the trajectory, and no scheduler is asked.
//
// Starter, Finisher, Closer and Runner are what one may have beside it.
type Scheduler interface {
	Next(ctx context.Context, t Turn) (Next, error)
}

// Turn is a reply, and what is known when the next turn is decided. What it points to is
// the engine's: a scheduler only reads it, and does not keep it.
type Turn struct {
	Trajectory string // its id
	Number     int    // from 1
	Last       bool   // a limit allows no further turn: what would begin one is left out
	Task       *traj.Task
	Messages   []traj.Message // the conversation, the reply last

	Text   string // the reply as the model wrote it, thinking and calls included; what Next.Cut counts
	Reply  *traj.Response
	Action traj.Action // what the agent made of it
	// Env is what the environment said; nil: it was not asked, as nobody would read the
	// results of calls in a last turn.
	Env *env.Result

	Infos    []traj.Info // of the turns so far
	Sampling traj.Sampling
}

// Next is what follows a turn. The zero value goes on with what the environment said.
//
// Messages, Continue and History begin the next turn in three ways; one of them at a time
// is given.
type Next struct {
	Stop traj.Termination // ends the trajectory; "": it goes on

	// Messages stand behind those of the environment: a new turn.
	Messages []traj.Message
	// Continue stands behind the model's own reply, with which it goes on. Cut takes back
	// what follows its first *Cut bytes (of Turn.Text) before; nil: nothing.
	Continue string
	Cut      *int
	// History takes the place of the conversation: the next prompt is rendered from it. At
	// least one reply of the model is in it, and its last message is not the model's.
	History []traj.Message

	NoTools  bool           // the next turn offers no tools
	Sampling *traj.Sampling // of the next turn; nil: as ever. MaxTokens is at most the run's

	Reward *float64 // of this step, in place of the environment's; nil: that
	// Weights are those of the reply's tokens in the loss: one for all, or one for each
	// that was sampled. nil: 1.
	Weights []float64
	Info    traj.Info // of this step
}

// Opening is how a trajectory begins.
type Opening struct {
	Trajectory string
	Task       *traj.Task
	Messages   []traj.Message // replaced: the conversation begins with others
	Seed       int64          // of the trajectory
	Info       traj.Info      // given: "start" in the info of the first step
}

// Starter is a Scheduler that has a say before the first turn.
type Starter interface {
	Start(ctx context.Context, o Opening) (Opening, error)
}

// Finisher is a Scheduler that is asked first whether a reply was the last; "": Next
// decides.
type Finisher interface {
	Finished(ctx context.Context, t Turn) (traj.Termination, error)
}

// Runner is a Scheduler that drives the model itself, in place of the loop, and gives one
// trajectory or several: trees, debates, best of several drafts. Next is not asked.
type Runner interface {
	Run(ctx context.Context, d *Drive) error
}

// Closer is a Scheduler that is closed at the end of its trajectory, whatever it is. It is
// called once, also after an error of Start.
type Closer interface {
	Close(end traj.Termination) error
}

// ToolLoop is the scheduler of a run without one, the loop of an agent and its environment: it goes on with what the
// environment said, until the agent has a final answer or the environment is done.
type ToolLoop struct{}

// Next implements Scheduler.
func (ToolLoop) Next(_ context.Context, t Turn) (Next, error) {
	switch {
	case t.Action.Final:
		return Next{Stop: traj.Answered}, nil
	case t.Env != nil && t.Env.Done:
		return Next{Stop: traj.EnvDone}, nil
	}
	return Next{}, nil
}
