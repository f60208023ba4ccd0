package engine

import (
	"context"
	"time"

	"agentcli/env"
	"agentcli/traj"
)

// Watcher sees what happens in one trajectory, as it happens. Event is called by
// one goroutine at a time, and not any more after TrajectoryEnd. It must be quick,
// and neither keeps nor changes what an event points to after it has returned. A
// panic in it is swallowed: who looks on breaks nothing.
type Watcher interface {
	Event(at time.Time, e Event)
}

// Event is one of the types below.
type Event interface{ event() }

type (
	// TurnStart begins the turn of that number, from 0: a model call and what
	// follows it. The turn lasts until the next one, or TrajectoryEnd.
	TurnStart struct{ Turn int }
	// Observed is what the model is shown next: the opening conversation, or
	// what the environment gave.
	Observed struct {
		Observation traj.Observation
		Continues   bool // the model goes on with its own reply
		Rewritten   bool // the messages are a whole history, in the place of the conversation
		CutAt       int  // bytes of the model's own reply that stay; 0: all
		// ImageTokens are those of each image that the model is shown for the first time, in
		// order, with the two around it: as a local model counts them, or as Qwen2.5-VL does.
		ImageTokens []int
	}
	// ModelStart begins a model call.
	ModelStart struct{ Request *traj.Request }
	// ModelEnd ends a model call, its retries included, with a reply or an error.
	ModelEnd struct {
		Request  *traj.Request
		Response *traj.Response // nil after an error
		Err      error
		Took     time.Duration
	}
	// ToolStart begins a tool call. ID tells it from the others of the
	// trajectory.
	ToolStart struct{ Call traj.ToolCall }
	// ToolEnd ends a tool call, with what the tool gave before it is cut to size.
	ToolEnd struct {
		Call    traj.ToolCall
		Result  string
		Err     error
		Outcome string // one of env.Outcomes
		Took    time.Duration
	}
	// TrajectoryEnd is the last event. The trajectory is scored.
	TrajectoryEnd struct{ Trajectory *traj.Trajectory }
)

func (TurnStart) event()     {}
func (Observed) event()      {}
func (ModelStart) event()    {}
func (ModelEnd) event()      {}
func (ToolStart) event()     {}
func (ToolEnd) event()       {}
func (TrajectoryEnd) event() {}

// watcherFor asks whether somebody wants to see this trajectory; nil: nobody does.
func watcherFor(t *traj.Trajectory, observe func(*traj.Trajectory) Watcher) (w Watcher) {
	if observe == nil {
		return nil
	}
	defer func() {
		if recover() != nil {
			w = nil
		}
	}()
	return observe(t)
}

// emit tells the watcher. Callers look first whether there is one, so that an
// event that nobody sees is not even made. Tools that were left behind speak after
// the end, and are not heard.
func (p *player) emit(e Event) {
	p.telling.Lock()
	defer p.telling.Unlock()
	if p.endReported {
		return
	}
	_, p.endReported = e.(TrajectoryEnd)
	defer func() { _ = recover() }()
	p.watcher.Event(p.c.Now(), e)
}

// watchTools makes the environment's tool calls events.
func (p *player) watchTools(ctx context.Context) context.Context {
	if p.watcher == nil {
		return ctx
	}
	return env.WithToolHook(ctx, func(call traj.ToolCall) func(string, error, string) {
		start := p.c.Now()
		p.emit(ToolStart{call})
		return func(result string, err error, outcome string) {
			p.emit(ToolEnd{call, result, err, outcome, p.c.Now().Sub(start)})
		}
	})
}
