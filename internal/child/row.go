package child

import (
	"fmt"
	"time"
)

const (
	maxFailures = 20               // in a row, before a program counts as broken
	pause       = 30 * time.Second // until a broken program is tried again
)

// Row counts failures between which nothing worked.
type Row struct {
	n    int
	at   time.Time
	last error
}

// Add counts one more.
func (r *Row) Add(err error, now time.Time) { r.n, r.at, r.last = r.n+1, now, err }

// Worth says whether people should be told of the failure that was added last:
// the first of a row, and the one that breaks the program.
func (r *Row) Worth() bool { return r.n == 1 || r.n == maxFailures }

// Broken is an ErrBroken while it is no use to try again.
func (r *Row) Broken(now time.Time) error {
	if r.n < maxFailures || now.Sub(r.at) >= pause {
		return nil
	}
	return fmt.Errorf("%w: it failed %d times in a row without an answer; the last time %w", ErrBroken, r.n, r.last)
}
