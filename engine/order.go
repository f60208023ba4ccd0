package engine

import (
	"maps"
	"slices"

	"agentcli/journal"
	"agentcli/traj"
)

// order hands trajectories on in the order in which their attempts were begun,
// which is that of the tasks. One that ends before its turn waits in the journal:
// only its place in the file is kept. Without a journal it waits in memory. It is
// used under the run's lock.
type order struct {
	journal *journal.Journal
	begun   int // turns given
	next    int // the turn that is handed on next
	waiting map[int]waiting
	old     *journal.Index // nil: none; of the run that is resumed: not handed on yet
}

type waiting struct {
	t  *traj.Trajectory // nil: in the journal
	at int64
}

func newOrder(j *journal.Journal) *order {
	o := &order{journal: j, waiting: map[int]waiting{}}
	if j != nil {
		o.old = j.Index()
	}
	return o
}

// turn is the place of the next attempt.
func (o *order) turn() int { o.begun++; return o.begun - 1 }

// arrive takes a trajectory, and hands on all whose turn it now is.
func (o *order) arrive(turn int, t *traj.Trajectory, at int64, sink func(*traj.Trajectory) error) error {
	w := waiting{t, at}
	if o.journal != nil && turn != o.next {
		w.t = nil
	}
	o.waiting[turn] = w
	return o.advance(sink)
}

// kept gives a trajectory of the run that is resumed its turn.
func (o *order) kept(id string, sink func(*traj.Trajectory) error) error {
	at := o.old.Offset(id)
	o.old.Forget(id)
	o.waiting[o.turn()] = waiting{nil, at}
	return o.advance(sink)
}

func (o *order) advance(sink func(*traj.Trajectory) error) error {
	for {
		w, ok := o.waiting[o.next]
		if !ok {
			return nil
		}
		delete(o.waiting, o.next)
		o.next++
		if err := o.hand(w, sink); err != nil {
			return err
		}
	}
}

func (o *order) hand(w waiting, sink func(*traj.Trajectory) error) error {
	if w.t == nil {
		var err error
		if w.t, err = o.journal.At(w.at); err != nil {
			return err
		}
	}
	return sink(w.t)
}

// rest hands on what still waits at the end: that behind an attempt that was
// lost, and what the run that is resumed had finished beyond the tasks that were
// begun now, in the order in which that ended.
func (o *order) rest(sink func(*traj.Trajectory) error) error {
	for _, turn := range slices.Sorted(maps.Keys(o.waiting)) {
		if err := o.hand(o.waiting[turn], sink); err != nil {
			return err
		}
	}
	if o.old == nil {
		return nil
	}
	for _, at := range o.old.Offsets() {
		if err := o.hand(waiting{nil, at}, sink); err != nil {
			return err
		}
	}
	return nil
}
