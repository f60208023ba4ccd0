package engine

import (
	"sync"

	"agentcli/internal/safego"
)

// maxIdle is the maximum number of goroutines that wait for further calls. Short calls, for
// which a new goroutine is dear, rarely overlap.
const maxIdle = 16

// workers run calls in goroutines, and keep some of these for later calls. The stack of a new
// goroutine is small: growing it for each attempt, and for each call of an environment, took
// 5 % of the work of a run against a server that answers at once.
type workers struct {
	mu   sync.Mutex
	idle []chan func() // of those that wait for a call
	over bool
}

// guard returns a new guard. what names in errors what it guards.
func (w *workers) guard(what string) guard { return guard{what: what, workers: w} }

// run runs f, which recovers from its panics, in a goroutine.
func (w *workers) run(f func()) {
	w.mu.Lock()
	n := len(w.idle)
	if n == 0 {
		w.mu.Unlock()
		go func() {
			defer safego.Catch(nil)
			w.work(f)
		}()
		return
	}
	last := w.idle[n-1] // its stack and what it used are the most likely to be in the cache
	w.idle = w.idle[:n-1]
	w.mu.Unlock()
	last <- f
}

func (w *workers) work(f func()) {
	next := make(chan func(), 1)
	for ok := true; ok; f, ok = <-next {
		f()
		if !w.keep(next) {
			return
		}
	}
}

// keep lets a goroutine wait for a further call. It is false where it is to end.
func (w *workers) keep(next chan func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over || len(w.idle) == maxIdle {
		return false
	}
	w.idle = append(w.idle, next)
	return true
}

// end ends the goroutines that wait, and each of the others when its call has ended.
func (w *workers) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	for _, next := range w.idle {
		close(next)
	}
	w.idle = nil
}
