//go:build libtorch

package policy

import (
	"errors"

	"agentcli/internal/torch"
)

// change is a wish for other weights, or for a pause.
type change struct {
	how   Exchange
	pause bool
	make  func(s *torch.Scope) error // nil: the weights stay
	done  chan error
}

// readyFor says that the change may be made now; it ends or takes back what is under way.
func readyFor(sc *scheduler, c *change) bool {
	switch {
	case c.how == ExchangeAbort:
		for _, q := range append(append([]*sequence{}, sc.running...), sc.waiting...) {
			out := q.reply(sc.experts)
			out.FinishReason, out.Text = FinishAbort, sc.p.tok.Decode(out.IDs, true)
			sc.load.Aborts++
			sc.finish(q, out, nil)
		}
		sc.waiting = nil
	case c.how == ExchangeKeep || sc.paused:
		if c.make != nil { // their keys and values are of the old weights
			for len(sc.running) > 0 {
				sc.preempt(sc.running[len(sc.running)-1])
			}
		}
	default:
		return len(sc.waiting) == 0 && len(sc.running) == 0
	}
	return true
}

// makeChange makes a change. What the cache holds is of the old weights: it is forgotten.
func makeChange(sc *scheduler, c *change) {
	var err error
	if c.make != nil {
		err = sc.p.worker.Do(func(s *torch.Scope) error {
			torch.EmptyCache(sc.p.net.device) // what training has left
			before := sc.p.net
			err := c.make(s)
			if sc.p.net != before {
				closeDecoders(sc)
				makeDecoders(sc, s)
			}
			return err
		})
		sc.table = newTable(sc, len(sc.table.blocks))
		sc.slots.forget()
		sc.most = mostRunning(sc) // there is more memory now, perhaps
	}
	sc.mu.Lock()
	sc.change = nil
	if c.pause {
		sc.paused = true
	}
	sc.mu.Unlock()
	c.done <- err
}

// askFor has a change made by the loop, and waits for it.
func askFor(sc *scheduler, c *change) error {
	c.done = make(chan error, 1)
	sc.mu.Lock()
	switch {
	case sc.closed:
		sc.mu.Unlock()
		return errClosed
	case sc.change != nil:
		sc.mu.Unlock()
		return errors.New("the weights are being exchanged already")
	}
	sc.change = c
	sc.wake.Signal()
	sc.mu.Unlock()
	return <-c.done
}

// Pause has nothing computed until Resume: what is under way ends first, is ended, or stays
// where it is. What comes meanwhile waits.
func (e *Engine) Pause(how Exchange) error { return askFor(e.p.sched, &change{how: how, pause: true}) }

// Resume ends a pause.
func (e *Engine) Resume() {
	e.p.sched.mu.Lock()
	e.p.sched.paused = false
	e.p.sched.wake.Signal()
	e.p.sched.mu.Unlock()
}

// ForgetPrefixes has no later prompt find anything in the cache that is there now.
func (e *Engine) ForgetPrefixes() {
	e.p.sched.mu.Lock()
	e.p.sched.forget = true
	e.p.sched.wake.Signal()
	e.p.sched.mu.Unlock()
}

// Load is what the policy is doing.
func (e *Engine) Load() Load {
	e.p.sched.mu.Lock()
	defer e.p.sched.mu.Unlock()
	l := e.p.sched.seen
	l.Waiting += len(e.p.sched.inbox)
	return l
}
