package engine

import (
	"time"
)

// Progress is where a run stands.
type Progress struct {
	Done, Total, Running int // Total is 0 where it is not known
	Resumed              int // of Done: taken from the journal
	Errors               int // trajectories that failed for infrastructure reasons, or were cancelled
	Cancelled            int // of Errors
	TooLong              int // trajectories that ended as prompt_too_long
	Groups               int // tasks that have a reward
	Scored               int
	// Mean and StdErr are of the rewards so far. The error is taken over tasks, whose
	// attempts are not independent; NaN below two tasks.
	Mean, StdErr float64
	FirstError   string        // of the first of Errors, by id, that was not cancelled, behind its id
	FirstTooLong string        // of the first of TooLong, behind its id
	Images       int64         // that models were shown in this process
	ImageTokens  int64         // of them
	Tokens       int64         // sampled in this process, by trajectories that still run too
	Spent        int64         // tokens of prompts and replies, those of the run that is resumed included
	Cost         float64       // of Spent; 0 where no price is known
	Elapsed      time.Duration // of this process
	ETA          time.Duration // what is left, by the rate at which trajectories ended in this process; 0: not known
}

// progress brings what changes all the time up to date. Its caller holds mu.
func (r *run) progress() Progress {
	p := &r.tally.Progress
	if p.Total == 0 && r.c.Count != nil {
		p.Total = r.c.Count() * r.c.Samples
	}
	p.Tokens = r.expenses.billed.out.Load()
	p.Images, p.ImageTokens = r.shown.images.Load(), r.shown.tokens.Load()
	in, out := r.expenses.total()
	p.Spent, p.Cost = in+out, r.c.Budget.CostOf(in, out)
	p.Elapsed = r.c.Now().Sub(r.start)
	p.ETA = r.eta()
	return *p
}

// eta is Elapsed times what is left over what was done in this process. Trajectories
// that were resumed took no time and say nothing. Before half of what runs at
// once has ended the rate is that of the quickest few, and no guide; and a run that
// is being stopped has another end.
func (r *run) eta() time.Duration {
	p := &r.tally.Progress
	done, left := p.Done-p.Resumed, p.Total-p.Done
	if p.Total == 0 || left <= 0 || done <= 0 || p.Elapsed <= 0 || 2*done < min(r.c.Parallel, done+left) || r.tally.Interrupted {
		return 0
	}
	select {
	case <-r.c.Stop:
		return 0
	default:
	}
	return time.Duration(float64(p.Elapsed) / float64(done) * float64(left))
}

func (r *run) showProgress() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.c.Progress(r.progress())
	}
}

// tick shows the progress now and then, though nothing has ended.
func (r *run) tick(over <-chan struct{}) {
	t := time.NewTicker(r.c.Tick)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			r.showProgress()
		case <-over:
			return
		}
	}
}
