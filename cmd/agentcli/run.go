package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"

	"agentcli/agent"
	"agentcli/app/models"
	"agentcli/app/rundir"
	"agentcli/datasets"
	"agentcli/engine"
	"agentcli/env"
	"agentcli/internal/console"
	"agentcli/internal/exit"
	"agentcli/journal"
	"agentcli/model/chat"
	"agentcli/rewards"
	"agentcli/telemetry"
	"agentcli/traj"
)

// session is a run that is set up: model, data, tools, folder and journal.
type session struct {
	o       runOptions
	s       console.Streams
	see     seeing
	model   agent.Model
	info    models.Source
	data    *datasets.Dataset
	tools   env.Config
	added   []any // specs and versions of tools that are not built in
	reward  string
	scores  *scorer
	journal *journal.Journal
	dir     string
	keepDir bool // the folder is the user's, not a scratch one
	moved   bool // resumed with another server than the stored one
	closers []io.Closer
}

// maxUnlimited is how many tasks a run takes on without being told a number.
const maxUnlimited = 1_000_000

// evalSplit is the split of a generated dataset that eval takes by itself.
const evalSplit = "test"

// open sets a run up, with its folder and journal. Nothing is on disk before
// everything named is known to exist.
func open(ctx context.Context, o runOptions, s console.Streams) (*session, error) {
	x, err := setUp(ctx, o, s)
	if err != nil {
		return nil, err
	}
	if err := x.openFolder(); err != nil {
		x.close()
		return nil, err
	}
	return x, nil
}

// setUp is open without anything on disk.
func setUp(ctx context.Context, o runOptions, s console.Streams) (_ *session, err error) {
	x := &session{o: o, s: s}
	defer func() {
		if err != nil {
			x.close()
		}
	}()
	if o.Command == "eval" && o.Split == "" && datasets.Generated(o.Dataset) {
		o.Split, x.o.Split = evalSplit, evalSplit // what was trained on is no measure
	}
	if x.data, err = datasets.Open(ctx, o.Dataset, datasets.Options{Split: o.Split, Limit: o.Limit, Seed: o.Seed, Level: o.Level,
		Shots: o.Shots, Fields: o.Fields, System: o.System, Prompt: o.Prompt, Ahead: o.Command != "loop"}); err != nil {
		return nil, err
	}
	if n, known := x.data.Len(); o.Limit == 0 && o.Command != "loop" && x.data.Whole() && (!known || n > maxUnlimited) {
		return nil, exit.Usagef("dataset %s is generated and has no end worth waiting for; say how many problems with --limit N", x.data.Name)
	}
	x.fillDefaults()
	if s := rundir.ForeignRun(o.Resume); s != "" {
		x.notice(s)
	}
	if err = x.openTools(ctx); err != nil {
		return nil, err
	}
	x.reward = x.o.Reward
	if x.reward == "" {
		x.reward = x.data.Reward
	}
	x.scores = newScorer(x.rewardOf, x.notice, x.o.Added.Env)
	x.closers = append(x.closers, x.scores)
	if _, err = x.scores.get(x.reward); err != nil {
		return nil, exit.UsageError{Err: err}
	}
	if x.data.Unanswered != "" {
		if err = x.unanswered(x.data.Unanswered); err != nil {
			return nil, err
		}
	}
	if err = x.continueReply(); err != nil {
		return nil, err
	}
	m := x.o.Model
	m.Tools, m.Parallel, m.Temperature = x.tools.Specs(), x.o.Parallel, 1
	if t := x.o.Sampling.Temperature; t != nil {
		m.Temperature = *t
	}
	if err = x.openMetrics(ctx); err != nil {
		return nil, err
	}
	m.OnRetry = x.see.retry()
	if x.see.metrics != nil {
		m.OnServers = x.see.metrics.Servers
	}
	var closer io.Closer
	m.Answered = x.hasAnswered()
	if x.model, x.info, closer, err = models.Open(ctx, m, x.notice); err != nil {
		if errors.Is(err, traj.ErrGone) {
			x.dir = o.Resume
			err = exit.PartialError{Message: fmt.Sprintf("%v; go on with: %s", err, x.resumeHint(""))}
		}
		return nil, err
	}
	if closer != nil {
		x.closers = append(x.closers, closer)
	}
	if counter, ok := x.model.(agent.TokenCounter); ok {
		x.tools.CountTokens = counter.CountTokens
	}
	if err = x.openSpans(ctx); err != nil {
		return nil, err
	}
	return x, nil
}

// fillDefaults takes from the dataset what the user left open.
func (x *session) fillDefaults() {
	if x.o.Tools == nil {
		x.o.Tools = x.data.DefaultTools
	}
	if x.o.MaxTurns == 0 {
		x.o.MaxTurns = x.data.MaxTurns
	}
	if x.o.MaxTurns == 0 {
		x.o.MaxTurns = engine.DefaultMaxTurns
	}
	if x.o.Sampling.MaxTokens == 0 {
		x.o.Sampling.MaxTokens = x.data.MaxTokens
	}
}

func (x *session) close() {
	x.see.close()
	if x.journal != nil {
		_ = x.journal.Close()
	}
	for _, c := range x.closers {
		_ = c.Close()
	}
}

// part is what the engine is to play of a run.
type part struct {
	name     string // the run's, in the ids of groups
	tasks    iter.Seq2[traj.Task, error]
	total    int // tasks; 0: not known
	samples  int
	seed     int64
	journal  *journal.Journal
	ordered  bool
	count    func() int // engine.Config.Count
	distinct bool       // engine.Config.DistinctIDs
}

// play runs the engine with a progress display.
func (x *session) play(ctx context.Context, sink func(*traj.Trajectory) error) (engine.Summary, error) {
	p := part{name: x.identity()[:8], total: x.o.Limit, samples: x.o.Samples, seed: x.o.Seed, journal: x.journal, ordered: x.o.Ordered, distinct: true}
	if n, known := x.data.Len(); known {
		p.total = n
	}
	var check *ahead
	if !x.data.Whole() {
		check, ctx = x.checkAhead(ctx)
		p.total, p.count = 0, check.count
	}
	p.tasks = x.data.Tasks(ctx)
	sum, err := x.playPart(ctx, p, sink)
	if bad := check.end(); bad != nil && err == nil {
		err = bad
	}
	x.see.untraced(x.notice)
	x.sayCache()
	return sum, err
}

func (x *session) playPart(ctx context.Context, p part, sink func(*traj.Trajectory) error) (engine.Summary, error) {
	m := newMeter(x.s, p.total*max(p.samples, 1))
	defer m.close()
	specs := x.tools.Specs()
	e, err := engine.New(engine.Config{
		Model: x.model,
		NewAgent: func(traj.Task) (agent.Agent, error) {
			a := agent.New(specs)
			if x.o.ContinueReply {
				a.Answers = chat.IsSearchAnswer
			}
			return a, nil
		},
		NewEnv:  func(traj.Task) (env.Environment, error) { return env.New(x.tools) },
		Reward:  x.scores.score,
		Run:     p.name,
		Policy:  x.info.Name,
		Samples: p.samples, Tasks: p.total, Count: p.count, DistinctIDs: p.distinct, Parallel: x.o.Parallel, Seed: p.seed, Sampling: x.o.Sampling,
		MaxTurns: x.o.MaxTurns, FinalTurn: x.o.FinalTurn, MaxPromptTokens: x.o.MaxPromptTokens, MaxResponseTokens: x.o.MaxResponseTokens,
		Timeout: x.o.Timeout, RewardLimit: x.o.RewardTimeout, Budget: x.o.Budget, FailOnError: x.o.FailOnError,
		Stop: console.StopRequested(ctx), Journal: p.journal, Ordered: p.ordered, Progress: m.show, Tick: m.tick(), Observe: telemetry.Join(x.see.observe(x.tracer()), x.observeServer()),
	})
	if err != nil {
		return engine.Summary{}, exit.UsageError{Err: err}
	}
	sum, err := e.Run(ctx, p.tasks, sink)
	m.last(sum.Progress)
	return sum, err
}

// rewardOf names the reward of a trajectory: a task's own counts unless the user
// named another.
func (x *session) rewardOf(t *traj.Trajectory) string {
	if x.o.Reward == "" && t.Task.Reward != "" {
		return t.Task.Reward
	}
	return x.reward
}

// scorer scores trajectories by the reward that of names, and makes each reward
// once.
type scorer struct {
	of     func(*traj.Trajectory) string
	notice func(string)
	pass   []string // names of variables that programs get
	mu     sync.Mutex
	made   map[string]rewards.Reward
}

func newScorer(of func(*traj.Trajectory) string, notice func(string), pass []string) *scorer {
	return &scorer{of: of, notice: notice, pass: pass, made: map[string]rewards.Reward{}}
}

func (s *scorer) get(name string) (rewards.Reward, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r, ok := s.made[name]; ok {
		return r, nil
	}
	r, err := rewards.New(name, rewards.Options{Notice: s.notice, Pass: s.pass})
	if err == nil {
		s.made[name] = r
	}
	return r, err
}

func (s *scorer) score(ctx context.Context, t *traj.Trajectory) error {
	r, err := s.get(s.of(t))
	if err != nil {
		return err
	}
	got, err := r.Score(ctx, t)
	if err != nil {
		return err
	}
	t.Reward, t.RewardParts, t.Correct, t.Extracted = got.Value, got.Parts, got.Correct, got.Extracted
	return nil
}

// Close ends the programs behind rewards.
func (s *scorer) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.made {
		if c, ok := r.(io.Closer); ok {
			_ = c.Close()
		}
	}
	return nil
}
