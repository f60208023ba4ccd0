package main

import (
	"context"
	"errors"
	"fmt"

	"agentcli/engine"
	"agentcli/traj"
)

// drafts drives the model itself: it has several drafts of an answer written, each of which
// the model looks over once. Each is a row of the file, of one group.
type drafts struct{ n int }

// Next implements engine.Scheduler; it is not asked, as there is Run.
func (drafts) Next(context.Context, engine.Turn) (engine.Next, error) { return engine.Next{}, nil }

// Run implements engine.Runner.
func (d drafts) Run(_ context.Context, attempt *engine.Drive) error {
	for i := range d.n {
		b, err := attempt.Begin(nil)
		if err != nil {
			return err
		}
		if err := draft(b, i); err != nil && !errors.Is(err, engine.ErrEnded) { // by a limit, say
			return err
		}
	}
	return nil
}

func draft(b *engine.Branch, number int) error {
	turn, err := b.Reply(engine.Next{})
	for err == nil && !turn.Action.Final { // calls of tools
		if _, err = b.Step(); err == nil {
			turn, err = b.Reply(engine.Next{})
		}
	}
	if err == nil {
		err = b.Say(traj.Message{Role: traj.RoleUser, Content: "Look it over, and answer again."})
	}
	if err == nil {
		_, err = b.Reply(engine.Next{NoTools: true})
	}
	if err != nil {
		return err
	}
	b.End(traj.Answered)
	return b.Note(engine.Next{Info: traj.Info(fmt.Sprintf(`{"draft": %d, "messages": %d}`, number, len(b.Trajectory().Messages)))})
}
