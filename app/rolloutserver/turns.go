package rolloutserver

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"agentcli/engine"
	"agentcli/traj"
)

// turns say how the steps of a trajectory stand in its messages.
type turns struct {
	opening   int    // messages before the first reply
	continued []bool // of each step: it goes on with the reply of the step before
	rewritten bool   // a scheduler put another history in the place of the conversation
}

// turnWatcher notes the turns of a trajectory.
type turnWatcher struct {
	p    *pool
	id   string
	open bool // the next turn goes on with the reply before
	all  turns
}

// Event implements engine.Watcher.
func (w *turnWatcher) Event(_ time.Time, e engine.Event) {
	switch e := e.(type) {
	case engine.Observed:
		if len(w.all.continued) == 0 {
			w.all.opening += len(e.Observation.Messages)
		}
		w.open, w.all.rewritten = e.Continues, w.all.rewritten || e.Rewritten
	case engine.ModelEnd:
		if e.Err == nil {
			w.all.continued, w.open = append(w.all.continued, w.open), false
		}
	case engine.TrajectoryEnd:
		w.p.mu.Lock()
		w.p.turns[w.id] = &w.all
		w.p.mu.Unlock()
	}
}

// reply is the tokens of one message of the model's: what it sampled, and what was
// inserted in between.
type reply struct {
	ids      []int32
	mask     []int
	logprobs []float64 // of the ids whose mask is 1
}

// errTurns is in the error of a trajectory whose tokens have no place in one list for each
// reply.
var errTurns = errors.New("one list of ids for each reply cannot hold it")

// replies are the tokens of a trajectory's sampled messages, in order.
func (p *played) replies() ([]reply, error) {
	if p.turns != nil && p.turns.rewritten {
		return nil, fmt.Errorf("the scheduler has rewritten the trajectory's history: %w", errTurns)
	}
	groups := p.groups()
	if groups == nil {
		return nil, fmt.Errorf("which of its replies belong together is not known: %w", errTurns)
	}
	out := make([]reply, len(groups))
	for i, steps := range groups {
		var ok bool
		if out[i], ok = p.reply(steps); !ok {
			return nil, fmt.Errorf("the ids of reply %d are not in the file: %w", i+1, errTurns)
		}
	}
	return out, nil
}

// groups are the steps of each sampled message; nil: they are not known.
func (p *played) groups() (all [][]traj.Step) {
	of := p.turns
	if of == nil {
		if of = p.guess(); of == nil {
			return nil
		}
	}
	for i, step := range p.Steps {
		if of.continued[i] && len(all) > 0 {
			all[len(all)-1] = append(all[len(all)-1], step)
		} else {
			all = append(all, []traj.Step{step})
		}
	}
	if len(all) != p.sampledMessages(of.opening) {
		return nil
	}
	return all
}

// sampledMessages are those of the model behind the opening.
func (p *played) sampledMessages(opening int) (n int) {
	for _, m := range p.Messages[min(opening, len(p.Messages)):] {
		if m.Role == traj.RoleAssistant {
			n++
		}
	}
	return n
}

// guess tells the turns of a trajectory of an earlier process by the number of its
// messages: all replies are turns of their own, or all are one. Several sequences that are
// trained on may be a rewritten history: then it is nil.
func (p *played) guess() *turns {
	trained := 0
	for i := range p.Sequences {
		if w := p.Sequences[i].Weights; w == nil || slices.ContainsFunc(w, func(x float64) bool { return x > 0 }) {
			trained++
		}
	}
	of := &turns{opening: len(p.Task.Messages), continued: make([]bool, len(p.Steps))}
	switch n := p.sampledMessages(of.opening); {
	case n == len(p.Steps) && trained <= 1:
		return of
	case n == 1:
		for i := 1; i < len(of.continued); i++ {
			of.continued[i] = true
		}
		return of
	}
	return nil
}

// reply joins the steps of one message. Where the model had ended its turn and it was opened
// again, the tokens so far are in the sequence of the next step, without the end.
func (p *played) reply(steps []traj.Step) (r reply, ok bool) {
	last := steps[len(steps)-1]
	if last.Sequence < 0 {
		return r, false
	}
	s := &p.Sequences[last.Sequence]
	from := steps[0].Start
	if from > last.End {
		return r, false
	}
	r.ids = slices.Clone(s.TokenIDs[from:last.End])
	r.mask = make([]int, len(r.ids))
	logprobs := make([]float64, len(r.ids))
	for _, step := range steps {
		if step.Sequence < 0 {
			return r, false
		}
		own := &p.Sequences[step.Sequence]
		end := step.End
		if step.Sequence != last.Sequence { // its last token closed the turn
			for end > step.Start && (end > len(s.TokenIDs) || own.TokenIDs[end-1] != s.TokenIDs[end-1]) {
				end--
			}
		}
		if end > last.End || !slices.Equal(own.TokenIDs[step.Start:end], s.TokenIDs[step.Start:end]) {
			return r, false
		}
		for i := step.Start; i < end; i++ {
			if own.LossMask[i] && (own.Weights == nil || own.Weights[i] > 0) {
				r.mask[i-from], logprobs[i-from] = 1, float64(own.Logprobs[i])
			}
		}
	}
	for i, m := range r.mask {
		if m == 1 {
			r.logprobs = append(r.logprobs, logprobs[i])
		}
	}
	return r, true
}
