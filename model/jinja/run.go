package jinja

import (
	"fmt"
	"time"
)

// run is one evaluation. Errors inside it are panics of *Error, which Render recovers.
type run struct {
	limits     Limits
	now        func() time.Time
	root, out  *builder // what the template prints; what is printed to now
	generation [][2]int
	line       int
	steps      int
	bytes      int
	depth      int
}

// scope holds variables; an inner one sees the outer ones.
type scope struct {
	vars map[string]any
	up   *scope
}

func newScope(up *scope) *scope { return &scope{vars: map[string]any{}, up: up} }

func (s *scope) get(name string) (any, bool) {
	for ; s != nil; s = s.up {
		if v, ok := s.vars[name]; ok {
			return v, true
		}
	}
	return nil, false
}

func newRun(o Options) *run {
	r := &run{limits: o.Limits, now: o.Now, root: &builder{}, line: 1}
	r.out = r.root
	if r.now == nil {
		r.now = time.Now
	}
	or := func(n *int, def int) {
		if *n <= 0 {
			*n = def
		}
	}
	or(&r.limits.Steps, defaultLimits.Steps)
	or(&r.limits.Bytes, defaultLimits.Bytes)
	or(&r.limits.Output, defaultLimits.Output)
	or(&r.limits.Depth, defaultLimits.Depth)
	return r
}

// fail ends the evaluation with an error of the messages' values.
func (r *run) fail(format string, a ...any) {
	panic(&Error{ErrValue, r.line, fmt.Sprintf(format, a...)})
}

func (r *run) limit(format string, a ...any) {
	panic(&Error{ErrLimit, r.line, fmt.Sprintf(format, a...)})
}

// step counts work: nodes, and elements that an operation visits.
func (r *run) step(n int) {
	if r.steps += n; r.steps > r.limits.Steps || n < 0 {
		r.limit("more than %d steps", r.limits.Steps)
	}
}

// bytesPerItem is about what an element of a list takes.
const bytesPerItem = 32

// charge counts the bytes of what is about to be built.
func (r *run) charge(n int) {
	if r.bytes += n; r.bytes > r.limits.Bytes || n < 0 {
		r.limit("more than %d bytes of values", r.limits.Bytes)
	}
	r.step(n / 64)
}

// built charges for a string and returns it.
func (r *run) built(s Str) Str {
	r.charge(len(s.s) + bytesPerItem*len(s.data))
	return s
}

// deeper counts calls and nested values; the caller calls what it returns.
func (r *run) deeper() func() {
	if r.depth++; r.depth > r.limits.Depth {
		r.limit("more than %d calls or values inside each other", r.limits.Depth)
	}
	return func() { r.depth-- }
}

// print writes to what is printed to now.
func (r *run) print(s Str) {
	r.charge(len(s.s))
	if r.out.len()+len(s.s) > r.limits.Output {
		r.limit("more than %d bytes of text", r.limits.Output)
	}
	r.out.add(s)
}

// capture is what f prints.
func (r *run) capture(f func()) Str {
	outer := r.out
	r.out = &builder{}
	f()
	out := r.out.str()
	r.out = outer
	return out
}
