package engine

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"sync"
	"time"

	"agentcli/agent"
	"agentcli/env"
	"agentcli/internal/hashset"
	"agentcli/internal/safego"
	"agentcli/internal/setting"
	"agentcli/internal/splitmix"
	"agentcli/journal"
	"agentcli/traj"
)

// Defaults of Config.
const (
	DefaultParallel = 32
	DefaultMaxTurns = 8
	DefaultGrace    = 10 * time.Second
)

// Config is everything that a run needs. Zero limits mean no limit, but for
// those that name a default.
type Config struct {
	Model    agent.Model
	NewAgent func(traj.Task) (agent.Agent, error)
	NewEnv   func(traj.Task) (env.Environment, error)
	// NewScheduler gives the scheduler of one trajectory; nil, and a nil Scheduler: the
	// loop of agent and environment.
	NewScheduler func(traj.Task) (Scheduler, error)
	// Reward fills in Reward, RewardParts, Correct and Extracted. It is safe
	// for concurrent use. Its error means that no score could be found
	// (reward_error). nil: the sum of the environment's rewards, if it gives any.
	Reward func(ctx context.Context, t *traj.Trajectory) error

	Policy  string // name of the policy in rows where the model gave none
	Run     string // told apart from other runs: part of the group's id
	Samples int    // attempts at each task; 0: 1
	Tasks   int    // how many there are, for the progress; 0: not known
	// Count says how many there are, where that is found out on the way; 0: not
	// yet. nil: nobody finds out.
	Count func() int
	// DistinctIDs says that whoever gives the tasks has seen to it that their ids
	// differ: the engine then remembers none of them.
	DistinctIDs bool
	Parallel    int // trajectories at once; 0: DefaultParallel
	Seed        int64
	Sampling    traj.Sampling // MaxTokens is of one turn

	MaxTurns int // model calls; 0: DefaultMaxTurns
	// FinalTurn gives a model that still calls tools in its last turn the
	// results, and one more turn without tools.
	FinalTurn bool
	// Limits says for a task what stands in the place of Sampling, MaxTurns and FinalTurn.
	// nil: nothing does.
	Limits            func(traj.Task) Limits
	MaxPromptTokens   int // of any prompt
	MaxResponseTokens int // of everything after the first prompt, observations included

	// Timeout is the working time of a trajectory: waiting in queues, for pauses
	// between tries and for a server to come back is not counted (package
	// workclock), nor is the reward. One that is spent while the model has not
	// answered ends the trajectory as model_error, else as timeout.
	Timeout      time.Duration
	ModelTimeout time.Duration // of one model call, its retries included
	RewardLimit  time.Duration // of one score

	Budget Budget // of the whole run
	// FailOnError ends the run early: nothing new starts, what runs has Grace.
	FailOnError ErrorLimit

	// Stop, once closed, ends the run in good order: nothing new starts, what
	// runs has Grace to finish. Cancelling Run's context ends it at once.
	Stop  <-chan struct{}
	Grace time.Duration // 0: DefaultGrace

	Served   *Served          // nil: nobody waits for single trajectories
	Journal  *journal.Journal // nil: none
	Ordered  bool             // sink gets the trajectories in the tasks' order, then by attempt
	Progress func(Progress)   // called by one goroutine at a time; must be quick
	Tick     time.Duration    // Progress is called so often, and when a trajectory ends; 0: only then
	// Observe is asked at the start of every attempt who wants to see it: what is
	// known of it then are its names, task and seed. nil, and a nil Watcher:
	// nobody, at no cost.
	Observe func(*traj.Trajectory) Watcher
	Now     func() time.Time
}

// Limits are settings that tasks of one run may have apart: see Config.
type Limits struct {
	Sampling  traj.Sampling
	MaxTurns  int // 0: DefaultMaxTurns
	FinalTurn bool
}

// limits are those of a task.
func (c *Config) limits(t traj.Task) Limits {
	if c.Limits == nil {
		return Limits{Sampling: c.Sampling, MaxTurns: c.MaxTurns, FinalTurn: c.FinalTurn}
	}
	l := c.Limits(t)
	if l.MaxTurns == 0 {
		l.MaxTurns = DefaultMaxTurns
	}
	return l
}

// Validate reports what makes the configuration unusable.
func (c *Config) Validate() error {
	switch {
	case c.Model == nil:
		return errors.New("engine: there is no model")
	case c.NewAgent == nil || c.NewEnv == nil:
		return errors.New("engine: there is no agent or no environment")
	}
	for _, n := range []struct {
		name setting.Name
		v    int
	}{
		{setting.Name("Samples"), c.Samples},
		{setting.Name("Parallel"), c.Parallel},
		{setting.Name("MaxTurns"), c.MaxTurns},
		{setting.Name("MaxPromptTokens"), c.MaxPromptTokens},
		{setting.Name("MaxResponseTokens"), c.MaxResponseTokens},
		{setting.Name("MaxTokens"), c.Sampling.MaxTokens},
	} {
		if n.v < 0 {
			return setting.Errorf("%s is %d; it must not be negative", n.name, n.v)
		}
	}
	if c.Timeout < 0 || c.ModelTimeout < 0 || c.RewardLimit < 0 {
		return errors.New("a time-out must not be negative")
	}
	if err := c.FailOnError.validate(); err != nil {
		return err
	}
	return c.Budget.validate()
}

// Summary is how a run ended.
type Summary struct {
	Progress
	Interrupted bool // it was stopped before its end
	BudgetSpent bool // that is why
}

// AgentExecutionEngine plays trajectories. One engine serves one run.
type AgentExecutionEngine struct{ c Config }

// New returns an engine.
func New(c Config) (*AgentExecutionEngine, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c.Samples = max(c.Samples, 1)
	if c.Parallel == 0 {
		c.Parallel = DefaultParallel
	}
	if c.MaxTurns == 0 {
		c.MaxTurns = DefaultMaxTurns
	}
	if c.Grace == 0 {
		c.Grace = DefaultGrace
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Progress == nil {
		c.Progress = func(Progress) {}
	}
	return &AgentExecutionEngine{c: c}, nil
}

// run is the state of one Run.
type run struct {
	*AgentExecutionEngine
	sink   func(*traj.Trajectory) error
	cancel context.CancelCauseFunc
	start  time.Time

	expenses expenses
	shown    shown
	workers  workers

	mu     sync.Mutex
	order  *order
	err    error         // the first that ends the run
	broken bool          // the sink failed, or the journal while it was read for it
	early  error         // why nothing new starts
	enough chan struct{} // closed when early is set
	tally  tally
}

// Run plays Samples attempts at every task and gives each finished trajectory
// to sink, one at a time, in the order in which they end, or that of the tasks if
// Ordered; with a journal, those of the run that is resumed come first, unless
// Ordered. It returns when every goroutine of its
// own has ended. The error is what made it end early: a task that could not be
// read, a sink or a journal that failed, a model's traj.ErrFatal or traj.ErrGone, or
// ErrTooManyErrors. After the last two what ran was played on, and handed on. Being
// stopped is no error: see Summary.Interrupted.
func (e *AgentExecutionEngine) Run(ctx context.Context, tasks iter.Seq2[traj.Task, error],
	sink func(*traj.Trajectory) error) (Summary, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &run{AgentExecutionEngine: e, sink: each(sink), cancel: cancel, start: e.c.Now(), enough: make(chan struct{}), tally: newTally(&e.c)}
	r.expenses.limit = e.c.Budget
	if e.c.Ordered {
		r.order = newOrder(e.c.Journal)
	}
	if e.c.Journal != nil {
		in, out := e.c.Journal.Spent()
		r.expenses.before.in.Store(in)
		r.expenses.before.out.Store(out)
		err := e.c.Journal.Replay(func(t *traj.Trajectory) error {
			r.tally.Resumed++
			if r.order != nil {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.count(t, true) // it is handed on when its turn comes
				return nil
			}
			return r.deliver(t, true, 0, 0)
		})
		if err != nil {
			return r.tally.Summary, err
		}
	}
	r.start = e.c.Now() // reading the journal took time too, in which nothing was played
	over := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() { defer safego.Catch(r.fail); r.watch(over) })
	if e.c.Tick > 0 {
		watch.Go(func() { defer safego.Catch(r.fail); r.tick(over) })
	}
	r.startAll(ctx, tasks)
	r.workers.end()
	if r.order != nil && !r.broken { // nobody else runs any more
		if err := r.order.rest(r.sink); r.err == nil {
			r.err = err
		}
	}
	close(over)
	watch.Wait()
	r.progress()
	if e.c.Journal != nil {
		if err := e.c.Journal.Err(); err != nil && r.err == nil {
			r.err = err
		}
	}
	if r.err == nil {
		r.err = r.early
	}
	return r.tally.Summary, r.err
}

// ErrTaskID is in the error of a task whose id is empty or occurs twice.
var ErrTaskID = errors.New("the task id")

var errGrace = errors.New("stopped before it was finished")

// watch gives what runs its grace after a stop, or after the run's early end.
func (r *run) watch(over <-chan struct{}) {
	select {
	case <-r.c.Stop: // nil blocks for ever
	case <-r.enough:
	case <-over:
		return
	}
	grace := time.NewTimer(r.c.Grace)
	defer grace.Stop()
	select {
	case <-grace.C:
		r.cancel(errGrace)
	case <-over:
	}
}

// startAll starts every attempt as soon as there is room, and waits for them.
func (r *run) startAll(ctx context.Context, tasks iter.Seq2[traj.Task, error]) {
	room := make(chan struct{}, r.c.Parallel)
	var wg sync.WaitGroup
	defer wg.Wait()
	starting, cancel := context.WithCancel(ctx)
	defer cancel()
	wg.Go(func() { defer safego.Catch(r.fail); defer cancel(); r.untilStop(starting); r.ending() })
	var seen hashset.Set
	for task, err := range tasks {
		if err != nil {
			if ctx.Err() == nil {
				r.fail(err)
			} else {
				r.interrupted()
			}
			return
		}
		if task.ID == "" || !r.c.DistinctIDs && seen.Add(hash(task.ID)) {
			r.fail(fmt.Errorf("dataset %s: %w %q: it is empty or occurs twice; give every row its own id", task.Dataset, ErrTaskID, task.ID))
			return
		}
		if err := r.unchanged(&task); err != nil {
			r.fail(err)
			return
		}
		for attempt := range r.c.Samples {
			if done, err := r.resumed(task.ID, attempt); err != nil {
				r.fail(err)
				return
			} else if done {
				continue
			}
			select {
			case room <- struct{}{}:
			case <-r.c.Stop:
			case <-r.enough:
			case <-ctx.Done():
			}
			if r.stopping(ctx) { // it wins over room
				r.interrupted()
				return
			}
			if !r.ready(starting) {
				return
			}
			if r.expenses.spent() {
				r.interrupted()
				r.mu.Lock()
				r.tally.BudgetSpent = true
				r.mu.Unlock()
				return
			}
			turn := 0
			r.mu.Lock()
			r.tally.Running++
			if r.order != nil {
				turn = r.order.turn()
			}
			r.mu.Unlock()
			wg.Add(1)
			r.workers.run(func() {
				defer func() { <-room; wg.Done() }()
				defer safego.Catch(r.fail)
				r.playAndRecord(ctx, task, attempt, turn)
			})
		}
	}
}

// stopping reports whether nothing new is to start.
func (r *run) stopping(ctx context.Context) bool {
	select {
	case <-r.c.Stop:
	case <-r.enough:
	case <-ctx.Done():
	default:
		return false
	}
	return true
}

// untilStop returns when nothing new is to start.
func (r *run) untilStop(ctx context.Context) {
	select {
	case <-r.c.Stop:
	case <-r.enough:
	case <-ctx.Done():
	}
}

// ending tells who gives the tasks one by one that no more are taken.
func (r *run) ending() {
	if r.c.Served != nil {
		r.c.Served.Ending()
	}
}

// ready waits until the model takes requests. It is false where nothing is to start.
func (r *run) ready(ctx context.Context) bool {
	err := func() (err error) {
		defer safego.Into(&err)
		return agent.Ready(ctx, r.c.Model)
	}()
	switch {
	case ctx.Err() != nil:
		r.interrupted()
	case errors.Is(err, traj.ErrGone):
		r.mu.Lock()
		r.endEarly(err)
		r.mu.Unlock()
		r.interrupted()
	case err != nil:
		r.fail(err)
	}
	return err == nil && ctx.Err() == nil
}

func (r *run) interrupted() {
	r.mu.Lock()
	r.tally.Interrupted = true
	r.mu.Unlock()
}

// playAndRecord plays an attempt, appends it to the journal and delivers it to the sink.
func (r *run) playAndRecord(ctx context.Context, task traj.Task, attempt, turn int) {
	t, fatal := r.attempt(ctx, task, attempt)
	if fatal != nil {
		r.fail(fatal) // first: a run that cannot succeed hands nothing more on
	}
	var at int64
	if r.c.Journal != nil {
		var err error
		if at, err = r.c.Journal.Append(t); err != nil {
			r.fail(err)
			r.mu.Lock()
			r.tally.Running-- // it is lost: neither done nor kept
			r.mu.Unlock()
			return
		}
		if r.c.Served != nil && !t.Termination.Infrastructure() {
			r.c.Served.Kept(t.ID, at)
		}
	}
	if err := r.deliver(t, false, turn, at); err != nil {
		r.fail(err)
	}
}

func (r *run) fail(err error) {
	r.mu.Lock()
	if r.err == nil {
		r.err = err
	}
	r.mu.Unlock()
	r.cancel(errors.New("the run was ended by another trajectory's failure"))
}

// endEarly lets nothing new start. The caller holds mu.
func (r *run) endEarly(why error) {
	if r.early == nil {
		r.early = why
		close(r.enough)
	}
}

// count takes a trajectory into the numbers, and ends the run early where too many
// have failed. The caller holds mu.
func (r *run) count(t *traj.Trajectory, resumed bool) {
	if err := r.tally.count(t, resumed); err != nil {
		r.endEarly(err)
	}
}

// deliver counts a trajectory and hands it on, or lets it wait for its turn; at is
// where the journal has it. After a failure nothing more is handed on: the sink
// may be broken.
func (r *run) deliver(t *traj.Trajectory, resumed bool, turn int, at int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count(t, resumed)
	p := r.progress()
	if r.err != nil {
		return r.err
	}
	var err error
	if r.order != nil {
		err = r.order.arrive(turn, t, at, r.sink)
	} else {
		err = r.sink(t)
	}
	if err != nil {
		r.broken, r.err = true, err
		return err
	}
	r.c.Progress(p)
	return nil
}

// unchanged fails where a finished attempt at a task is of a row that was another:
// before any other attempt at it is begun, for the two could not be compared.
func (r *run) unchanged(task *traj.Task) error {
	if r.c.Journal == nil {
		return nil
	}
	for attempt := range r.tally.attempts {
		if err := r.c.Journal.SameTask(trajectoryID(task.ID, attempt), task); err != nil {
			return err
		}
	}
	return nil
}

// resumed reports whether the journal has an attempt of an earlier run. If rows
// are ordered, it hands that on when its turn comes.
func (r *run) resumed(task string, attempt int) (bool, error) {
	id := trajectoryID(task, attempt)
	if r.c.Journal == nil || !r.c.Journal.Finished(id) {
		return false, nil
	}
	if r.order == nil {
		return true, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return true, r.err
	}
	err := r.order.kept(id, r.sink)
	if err != nil {
		r.broken, r.err = true, err
	}
	return true, err
}

func trajectoryID(task string, attempt int) string { return fmt.Sprintf("%s#%d", task, attempt) }

func hash(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s))
	return h.Sum64()
}

// AttemptSeed is the seed of one attempt: it depends on nothing but the run's
// seed, the task and the attempt's number, so no schedule changes it.
func AttemptSeed(run int64, task string, attempt int) int64 {
	return int64(splitmix.Next(splitmix.Next(splitmix.Next(uint64(run))^hash(task)) + uint64(attempt)))
}

// turnSeed is the seed of one model call.
func turnSeed(attempt int64, turn int) int64 {
	return int64(splitmix.Next(uint64(attempt) + uint64(turn)))
}
