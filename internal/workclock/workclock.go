// Package workclock limits how long something works, not how long it takes: a
// context whose time runs only while somebody works on what it is of. Who waits
// for its turn, for a pause to end or for a server to come back stops it. It is
// in layer 0 and imports the standard library only.
package workclock

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrSpent is the cause of a context's end whose working time is spent.
var ErrSpent = errors.New("the working time is spent")

// clock counts the time in which at least one is busy. It is safe for concurrent
// use.
type clock struct {
	mu    sync.Mutex
	left  time.Duration // as of since, or now if nobody is busy
	since time.Time     // when the clock began to run, or was last read
	busy  int           // who works; the clock runs while there is one
	timer *time.Timer   // ends the context; stopped while nobody is busy
	over  bool
}

type key struct{}

// WithLimit is a context that ends, with the cause ErrSpent, after limit of working
// time. Whoever calls it works. limit 0 or less is no limit: then it is
// parent itself.
func WithLimit(parent context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if limit <= 0 {
		return parent, func() {}
	}
	ctx, cancel := context.WithCancelCause(parent)
	c := &clock{left: limit, busy: 1, since: time.Now()}
	c.timer = time.AfterFunc(limit, func() { cancel(ErrSpent) })
	return context.WithValue(ctx, key{}, c), func() {
		c.mu.Lock()
		c.over = true
		c.timer.Stop()
		c.mu.Unlock()
		cancel(context.Canceled)
	}
}

func of(ctx context.Context) *clock {
	c, _ := ctx.Value(key{}).(*clock)
	return c
}

// Wait stops counting the caller as one who works, until it calls what it gets.
func Wait(ctx context.Context) (resume func()) {
	c := of(ctx)
	if c == nil {
		return func() {}
	}
	c.add(-1)
	return sync.OnceFunc(func() { c.add(1) })
}

// Work counts one more who works, until it calls what it gets: for a goroutine that
// works while its starter waits.
func Work(ctx context.Context) (done func()) {
	c := of(ctx)
	if c == nil {
		return func() {}
	}
	c.add(1)
	return sync.OnceFunc(func() { c.add(-1) })
}

// Attempt begins something that may come to nothing: void gives back the working
// time since then.
func Attempt(ctx context.Context) (void func()) {
	c := of(ctx)
	if c == nil {
		return func() {}
	}
	c.mu.Lock()
	c.read()
	was := c.left
	c.mu.Unlock()
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.read()
		c.left = max(c.left, was)
		c.set()
	}
}

func (c *clock) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read()
	c.busy += n
	c.set()
}

// read takes the time that has passed off what is left.
func (c *clock) read() {
	now := time.Now()
	if c.busy > 0 {
		c.left -= now.Sub(c.since)
	}
	c.since = now
}

// set lets the timer run while somebody works.
func (c *clock) set() {
	switch {
	case c.over:
	case c.busy > 0:
		c.timer.Reset(max(c.left, 0))
	default:
		c.timer.Stop()
	}
}
