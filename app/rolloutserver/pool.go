package rolloutserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"sync"

	"agentcli/app/rollout"
	"agentcli/engine"
	"agentcli/journal"
	"agentcli/traj"
)

// What can become of a request beside its trajectory.
var (
	errOver     = errors.New("the run is over")
	errOtherRow = errors.New("was played with another row; give each row an id of its own")
)

// job is a task that somebody waits for.
type job struct {
	task     traj.Task
	group    string
	sampling func(traj.Sampling) traj.Sampling // over the run's

	done   chan struct{} // closed when it is over
	result *played       // nil: nobody waits for it any more

	waiting int           // how many wait
	gone    chan struct{} // closed when nobody does
	started bool          // the engine has it
}

// played is a trajectory, and how its replies stand in its messages.
type played struct {
	*traj.Trajectory
	turns *turns // nil: it was played before the server's start
}

// record is what is kept of a trajectory that has ended.
type record struct {
	at    int64 // where the journal has it
	turns *turns
}

// pool hands the tasks of requests to the engine, and its trajectories back. It is safe
// for concurrent use.
type pool struct {
	journal *journal.Journal
	before  *journal.Index // what the journal had when the run began

	mu        sync.Mutex
	queue     []*job
	jobs      map[string]*job   // waiting or being played, by the task's id: one at a time
	turns     map[string]*turns // of trajectories that have ended and are not handed on yet
	kept      map[string]record // what was played since, by trajectory
	wake      chan struct{}     // something is in the queue
	ending    chan struct{}     // nothing new is begun
	over      chan struct{}     // nothing is played any more
	failure   error
	admission admission
	ended     func(id string) // is called with each trajectory that has ended; nil: nothing is
}

func newPool() *pool {
	p := &pool{jobs: map[string]*job{}, turns: map[string]*turns{}, kept: map[string]record{},
		wake: make(chan struct{}, 1), ending: make(chan struct{}), over: make(chan struct{})}
	p.admission.opened = p.signal
	return p
}

// open is given what an earlier run has played.
func (p *pool) open(j *journal.Journal) { p.journal, p.before = j, j.Index() }

// close ends what waits.
func (p *pool) close(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failure = errOver; err != nil {
		p.failure = fmt.Errorf("%w: %w", errOver, err)
	}
	close(p.over)
}

// play has a task played, and waits for its trajectory. One that has been played is not
// played again, and one that is being played is waited for. One that was abandoned is
// played anew, after it has ended.
func (p *pool) play(ctx context.Context, j *job) (*played, error) {
	for {
		x, joined, err := p.join(j)
		if x == nil {
			return joined, err
		}
		select {
		case <-x.done:
		case <-p.over:
			select {
			case <-x.done:
			default:
				return nil, p.failure
			}
		case <-ctx.Done():
			p.leave(x, err == nil)
			return nil, context.Cause(ctx)
		}
		if x.result != nil && err == nil {
			return x.result, nil
		}
	}
}

// errAbandoned is in join's answer where the job that it gives is to be waited for, and is
// nobody's any more.
var errAbandoned = errors.New("abandoned")

// join gives the job of a task, which the caller waits for from now on. Where there is no
// job it gives what was played before, or an error.
func (p *pool) join(j *job) (*job, *played, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if x, ok := p.jobs[j.task.ID]; ok {
		if x.waiting == 0 {
			return x, nil, errAbandoned
		}
		if !sameTask(&x.task, &j.task) {
			return nil, nil, fmt.Errorf("id %q %w", j.task.ID, errOtherRow)
		}
		x.waiting++
		return x, nil, nil
	}
	if t, err := p.recall(&j.task); t != nil || err != nil {
		return nil, t, err
	}
	j.done, j.gone, j.waiting = make(chan struct{}), make(chan struct{}), 1
	p.jobs[j.task.ID] = j
	p.queue = append(p.queue, j)
	p.admission.queued()
	p.signal()
	return j, nil, nil
}

// signal wakes who takes jobs from the queue.
func (p *pool) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// leave says that one of those who wait for a job has gone away.
func (p *pool) leave(j *job, joined bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !joined {
		return
	}
	if j.waiting--; j.waiting > 0 {
		return
	}
	close(j.gone)
	if !j.started {
		delete(p.jobs, j.task.ID)
		close(j.done)
	}
}

// recall reads what was played before; nil: nothing was. The caller holds mu.
func (p *pool) recall(task *traj.Task) (*played, error) {
	id := task.ID + "#0"
	was, ok := p.kept[id]
	if !ok {
		was.at = p.before.Offset(id)
	}
	if was.at == 0 {
		return nil, nil
	}
	t, err := p.journal.At(was.at)
	if err != nil {
		return nil, err
	}
	if !sameTask(&t.Task, task) {
		return nil, fmt.Errorf("id %q %w", task.ID, errOtherRow)
	}
	return &played{t, was.turns}, nil
}

// sameTask reports whether two rows ask the same. The environment's name is left out: the
// engine puts that of the run in its place.
func sameTask(a, b *traj.Task) bool {
	text := func(t traj.Task) ([]byte, error) { t.Env = ""; return json.Marshal(t) }
	x, errX := text(*a)
	y, errY := text(*b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// feed is the pool as a run's tasks.
func (p *pool) feed(open func(rollout.FedRun) error) *rollout.Feed {
	return &rollout.Feed{Open: open, Tasks: p.tasks, Limits: p.limits, Done: p.finished, Close: p.close, Observe: p.observe,
		Served: engine.Served{Group: p.group, Gone: p.gone, Kept: p.keep,
			Ending: sync.OnceFunc(func() { close(p.ending) })}}
}

// tasks yields the tasks of the queue, until the run ends.
func (p *pool) tasks(ctx context.Context, stop <-chan struct{}) iter.Seq2[traj.Task, error] {
	return func(yield func(traj.Task, error) bool) {
		for {
			if j := p.next(); j != nil {
				if !yield(j.task, nil) {
					return
				}
				continue
			}
			select {
			case <-p.wake:
			case <-p.ending:
				return
			case <-stop:
				return
			case <-ctx.Done():
				return
			}
		}
	}
}

// next takes the first of the queue for which somebody still waits; nil: none, or none may
// begin.
func (p *pool) next() *job {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.queue) > 0 && p.admission.open() {
		j := p.queue[0]
		p.queue = p.queue[1:]
		if j.waiting > 0 {
			j.started = true
			p.admission.begin()
			return j
		}
	}
	return nil
}

func (p *pool) jobOf(task traj.Task) *job {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.jobs[task.ID]
}

func (p *pool) group(task traj.Task) string {
	if j := p.jobOf(task); j != nil {
		return j.group
	}
	return ""
}

// gone is closed at once for a task that nobody waits for any more.
func (p *pool) gone(task traj.Task) <-chan struct{} {
	if j := p.jobOf(task); j != nil {
		return j.gone
	}
	over := make(chan struct{})
	close(over)
	return over
}

func (p *pool) limits(task traj.Task, of engine.Limits) engine.Limits {
	if j := p.jobOf(task); j != nil && j.sampling != nil {
		own := of.Sampling.MaxTokens
		of.Sampling = j.sampling(of.Sampling)
		if own > 0 && (of.Sampling.MaxTokens == 0 || of.Sampling.MaxTokens > own) {
			of.Sampling.MaxTokens = own // the run's limit is the user's
		}
	}
	return of
}

func (p *pool) keep(id string, at int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept[id] = record{at, p.turns[id]}
}

// finished hands a trajectory to whoever waits for it.
func (p *pool) finished(t *traj.Trajectory) {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.turns[t.ID]
	delete(p.turns, t.ID)
	if p.ended != nil {
		p.ended(t.ID)
	}
	j := p.jobs[t.Task.ID]
	if j == nil || !j.started { // of an earlier run
		return
	}
	delete(p.jobs, t.Task.ID)
	p.admission.end()
	if j.waiting > 0 {
		j.result = &played{t, of}
	}
	close(j.done)
}

// observe sees which replies go on with the one before.
func (p *pool) observe(t *traj.Trajectory) engine.Watcher { return &turnWatcher{p: p, id: t.ID} }
