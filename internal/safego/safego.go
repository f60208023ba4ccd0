// Package safego keeps a panic within the goroutine in which it happened. A
// goroutine has no caller: a panic that its own function does not recover ends
// the whole program. TestEveryGoroutineRecovers holds the module to that. It is
// in layer 0 and imports the standard library only.
package safego

import (
	"fmt"
	"runtime/debug"
)

// Panic is a recovered panic as an error.
type Panic struct {
	Value any
	Stack []byte
}

func (p *Panic) Error() string { return fmt.Sprintf("internal error (panic): %v", p.Value) }

// Unwrap gives the panic's value where it is an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// Into is deferred: it puts a panic of the function that defers it into *err.
func Into(err *error) {
	if x := recover(); x != nil {
		*err = &Panic{x, debug.Stack()}
	}
}

// Catch is deferred: it hands a panic of the function that defers it to report; nil
// discards it, for work whose failure its waiter sees anyway.
func Catch(report func(error)) {
	if x := recover(); x != nil && report != nil {
		report(&Panic{x, debug.Stack()})
	}
}

// Do calls f; a panic in it is its error.
func Do(f func() error) (err error) {
	defer Into(&err)
	return f()
}
