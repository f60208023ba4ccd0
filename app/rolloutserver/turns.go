package rolloutserver

import (
	"slices"
	"time"

	"agentcli/engine"
	"agentcli/traj"
)

// turnWatcher notes of each turn of a trajectory whether it goes on with the reply before.
type turnWatcher struct {
	p    *pool
	id   string
	open bool // the next turn does
	all  []bool
}

// Event implements engine.Watcher.
func (w *turnWatcher) Event(_ time.Time, e engine.Event) {
	switch e := e.(type) {
	case engine.Observed:
		w.open = e.Observation.Continue != "" || e.Continues
	case engine.ModelEnd:
		if e.Err == nil {
			w.all, w.open = append(w.all, w.open), false
		}
	case engine.TrajectoryEnd:
		w.p.mu.Lock()
		w.p.turns[w.id] = w.all
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

// replies are those of a trajectory's sampled messages, in order. false says that they
// cannot be told: a rewritten history has lost some, or the server gave no ids.
func (p *played) replies() ([]reply, bool) {
	groups := p.groups()
	sampled := 0
	for _, m := range p.Messages[min(len(p.Task.Messages), len(p.Messages)):] {
		if m.Role == traj.RoleAssistant {
			sampled++
		}
	}
	if groups == nil || len(groups) != sampled {
		return nil, false
	}
	out := make([]reply, 0, len(groups))
	for _, steps := range groups {
		r, ok := p.reply(steps)
		if !ok {
			return nil, false
		}
		out = append(out, r)
	}
	return out, true
}

// groups are the steps of each message. Of a trajectory that the journal has it is told by
// how many messages there are.
func (p *played) groups() (all [][]traj.Step) {
	continued := p.continued
	if len(continued) < len(p.Steps) {
		sampled := 0
		for _, m := range p.Messages[min(len(p.Task.Messages), len(p.Messages)):] {
			if m.Role == traj.RoleAssistant {
				sampled++
			}
		}
		continued = make([]bool, len(p.Steps))
		switch sampled {
		case len(p.Steps):
		case 1:
			for i := 1; i < len(continued); i++ {
				continued[i] = true
			}
		default:
			return nil
		}
	}
	for i, step := range p.Steps {
		if continued[i] && len(all) > 0 {
			all[len(all)-1] = append(all[len(all)-1], step)
		} else {
			all = append(all, []traj.Step{step})
		}
	}
	return all
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
