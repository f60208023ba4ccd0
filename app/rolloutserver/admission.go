package rolloutserver

import (
	"context"
	"sync"
)

// admission decides whether jobs may begin: none does while weights are pushed to the server
// that samples, and weights are pushed when those that had begun are over. So no trajectory
// is sampled with two versions. It is safe for concurrent use; its zero value is open.
type admission struct {
	opened func()      // is called when jobs may begin again
	waits  func()      // is called where one has to wait for a push; nil: nobody is told
	ending func(n int) // is called where a push has to wait for n jobs; nil: nobody is told

	mu      sync.Mutex
	begun   int           // jobs that are being played
	idle    chan struct{} // closed when none is; nil: nobody waits for that
	holds   int           // that are not released
	pushing bool          // weights are being pushed: nothing begins until they all are
	pushed  bool          // some have been
}

func (a *admission) open() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.holds == 0 && !a.pushing
}

// queued is called with each job that is to begin.
func (a *admission) queued() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if (a.pushing || a.holds > 0) && a.waits != nil {
		a.waits()
	}
}

func (a *admission) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begun++
}

func (a *admission) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begun--
	a.settle()
}

// settle tells who waits for it that no job is being played. The caller holds mu.
func (a *admission) settle() {
	if a.begun == 0 && a.idle != nil {
		close(a.idle)
		a.idle = nil
	}
}

// hold lets no further job begin, and returns when those that have begun are over, or with
// an error when ctx is. pushing says that weights come, after which nothing begins until
// release says that they are over. Each hold is released, also after an error.
func (a *admission) hold(ctx context.Context, pushing bool) error {
	a.mu.Lock()
	a.holds++
	a.pushing = a.pushing || pushing
	if a.idle == nil {
		a.idle = make(chan struct{})
	}
	idle := a.idle
	if a.begun > 0 && a.holds == 1 && a.ending != nil {
		a.ending(a.begun)
	}
	a.settle()
	a.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// release takes back a hold. ends says that it was for what ends a push, done that it was
// done. Where that makes a new version it calls adopt before a job begins.
func (a *admission) release(pushing, ends, done bool, adopt func()) {
	a.mu.Lock()
	version := false
	switch {
	case done && pushing:
		a.pushing, a.pushed = true, true
	case done && ends:
		version = a.pushed
		a.pushing, a.pushed = false, false
	case pushing && !a.pushed: // nothing has changed
		a.pushing = false
	}
	a.mu.Unlock()
	if version {
		adopt()
	}
	a.mu.Lock()
	a.holds--
	a.mu.Unlock()
	a.opened()
}
