package engine

import (
	"fmt"
	"math"

	"agentcli/traj"
)

// tally counts the trajectories of a run and their rewards. The run's lock guards it.
type tally struct {
	Summary
	limit           ErrorLimit
	attempts        int                 // at one task at most: in this run, or in the one that it resumes
	tasks           map[string]taskMean // of which further attempts may come
	groups          int                 // tasks with a reward
	sum, sumSq      float64             // of the tasks' mean rewards
	failed, tooLong firstOf
}

func newTally(c *Config) tally {
	y := tally{limit: c.FailOnError, attempts: c.Samples, tasks: map[string]taskMean{}}
	y.Total = c.Tasks * c.Samples
	if c.Journal != nil {
		y.attempts = max(y.attempts, c.Journal.Attempts())
	}
	return y
}

// count takes a trajectory into the numbers. The error, ErrTooManyErrors, says that
// too many have failed for the run to go on.
func (y *tally) count(t *traj.Trajectory, resumed bool) (tooMany error) {
	y.Done++
	if !resumed {
		y.Running--
	}
	if t.Termination == traj.Cancelled {
		y.Interrupted = true
		y.Cancelled++
	}
	if t.Termination == traj.PromptTooLong {
		y.TooLong++
		y.tooLong.add(t)
		y.FirstTooLong = y.tooLong.String()
	}
	if t.Termination.Infrastructure() {
		y.Errors++
		if t.Termination != traj.Cancelled {
			y.failed.add(t)
			y.FirstError = y.failed.String()
		}
	}
	// A success, too, may be the one from which on a share counts.
	if failed := y.Errors - y.Cancelled; y.limit.reached(failed, y.Done, y.Total) {
		tooMany = fmt.Errorf("%d of %d trajectories failed for infrastructure reasons (the first: %s): %w",
			failed, y.Done, y.FirstError, ErrTooManyErrors)
	}
	if t.Reward != nil {
		y.reward(t.Task.ID, *t.Reward)
	}
	y.ended(t.Task.ID)
	return tooMany
}

// firstOf is an error by the trajectory that has it: the first by its id, whichever ended first.
type firstOf struct{ id, why string }

func (f *firstOf) add(t *traj.Trajectory) {
	if f.id == "" || t.ID < f.id {
		*f = firstOf{t.ID, t.Error}
	}
}

func (f *firstOf) String() string { return f.id + ": " + f.why }

// taskMean is the mean reward of one task's attempts so far.
type taskMean struct {
	n, ended int // that have a reward; all
	mean     float64
}

// ended notes that one more attempt at a task is over. A task of which nothing
// more comes is forgotten: a run over a large dataset keeps those in play alone. A
// run that is resumed may have more attempts than it now asks for.
func (y *tally) ended(task string) {
	m := y.tasks[task]
	if m.ended++; m.ended >= y.attempts {
		delete(y.tasks, task)
		return
	}
	y.tasks[task] = m
}

// reward counts one reward, and keeps the sum and the sum of squares of the
// tasks' means.
func (y *tally) reward(task string, x float64) {
	y.Scored++
	y.Mean += (x - y.Mean) / float64(y.Scored)
	m := y.tasks[task]
	if m.n == 0 {
		y.groups++
	}
	y.sum, y.sumSq = y.sum-m.mean, y.sumSq-m.mean*m.mean
	m.n++
	m.mean += (x - m.mean) / float64(m.n)
	y.sum, y.sumSq = y.sum+m.mean, y.sumSq+m.mean*m.mean
	y.tasks[task] = m
	y.Groups = y.groups
	y.StdErr = math.NaN()
	if n := float64(y.groups); n > 1 {
		y.StdErr = math.Sqrt(math.Max(0, y.sumSq-y.sum*y.sum/n) / (n - 1) / n)
	}
}
