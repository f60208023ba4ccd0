package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync"

	"agentcli/agent"
	"agentcli/app/coderun"
	"agentcli/app/console"
	"agentcli/app/models"
	"agentcli/app/rundir"
	"agentcli/datasets"
	"agentcli/datasets/registry"
	"agentcli/engine"
	"agentcli/internal/exit"
	"agentcli/internal/setting"
	"agentcli/internal/text"
	"agentcli/journal"
	"agentcli/media/album"
	"agentcli/media/processor"
	"agentcli/media/qwen"
	"agentcli/model/chat"
	"agentcli/rewards"
	"agentcli/scheduler"
	"agentcli/telemetry"
	"agentcli/traj"
)

// Run is one run of the engine that is set up: model, data, tools, reward, and, after
// Open, its folder and journal. Close ends it.
type Run struct {
	Model  agent.Model
	Source models.Source // where the model is from
	Data   *datasets.Dataset

	o      Options // with what the main environment and the dataset imply
	s      console.Streams
	envs   *envSetups
	tools  *toolset        // of the main environment
	reward string          // that of a task without one of its own
	grader rewards.Options // of all rewards
	scorer *rewards.Scorer
	judge  *models.Judge // nil: none

	schedulers *scheduler.Set     // nil: the engine's loop
	requests   *datasets.Requests // Data, where the rows come from requests
	watchers   observers
	closers    []io.Closer

	dir     string
	keepDir bool // the folder is the user's, not one in the cache
	moved   bool // resumed with another server than the stored one
	journal *journal.Journal
}

// MaxUnlimited is how many tasks a run takes on without being told a number.
const MaxUnlimited = 1_000_000

// EvalSplit is the split of a generated dataset that eval takes by itself.
const EvalSplit = "test"

// Open sets a run up, with its folder and journal. Nothing is on disk before
// everything named is known to exist.
func Open(ctx context.Context, o Options, s console.Streams) (*Run, error) {
	x, err := SetUp(ctx, o, s)
	if err != nil {
		return nil, err
	}
	if err := x.openFolder(); err != nil {
		x.Close()
		return nil, err
	}
	return x, nil
}

// SetUp is Open without anything on disk.
func SetUp(ctx context.Context, o Options, s console.Streams) (_ *Run, err error) {
	x := &Run{o: o, s: s.Shared()}
	x.o.shown = &shownImages{processor.New(qwen.DefaultConfig())}
	defer func() {
		if err != nil {
			x.Close()
		}
	}()
	if _, err = environmentNamed(o.Env); err != nil {
		return nil, err
	}
	if err = scheduled(&x.o); err != nil {
		return nil, err
	}
	if err = x.openData(ctx); err != nil {
		return nil, err
	}
	if s := rundir.ForeignRun(o.Resume); s != "" {
		x.Notice(s)
	}
	if x.envs, err = openEnvSetups(ctx, x.o, x.Data, x.Notice); err != nil {
		return nil, err
	}
	if err = x.envs.checkRetriever(); err != nil {
		return nil, err
	}
	x.o, x.tools = x.envs.main().o, x.envs.main().tools
	if err = x.openReward(ctx); err != nil {
		return nil, err
	}
	if x.schedulers, err = openScheduler(ctx, x.o, x.scorer, x.Notice); err != nil {
		return nil, err
	}
	x.closers = append(x.closers, x.schedulers)
	if err = x.watchers.openMetrics(ctx, o.MetricsAddr, x.envs.specs(), s.Log()); err != nil {
		return nil, err
	}
	if err = x.openModel(ctx); err != nil {
		return nil, err
	}
	if err = x.watchers.openSpans(ctx, o.OTLP, x.Source, x.Notice); err != nil {
		return nil, err
	}
	return x, nil
}

// openData opens the dataset and takes from it what the user left open.
func (x *Run) openData(ctx context.Context) (err error) {
	o := &x.o
	album.AllowPixels(o.Images.MaxImagePixels)
	role := "train"
	if o.Command == "eval" {
		role = EvalSplit // what was trained on is no measure
	}
	if role == EvalSplit && o.Split == "" && datasets.Mixture(o.Dataset) == nil && datasets.Generated(o.Dataset) {
		o.Split = EvalSplit
	}
	if err := chooseFailed(ctx, o); err != nil {
		return err
	}
	if o.fed {
		x.requests, err = datasets.OpenRequests(o.ByEnv(datasets.Options{Fields: o.Fields, System: o.System, Prompt: o.Prompt, Images: o.Images,
			ObjectAnswers: func(own string) bool { return rewards.TakesObjects(cmp.Or(o.Reward, own)) }}))
		if err == nil {
			x.Data = x.requests.Dataset
		}
		return err
	}
	looped := o.Command == "loop" // which takes its tasks step by step
	if x.Data, err = datasets.Open(ctx, o.Dataset,
		o.ByEnv(datasets.Options{Split: o.Split, Limit: o.Limit, Seed: o.Seed, Level: o.Level, Select: o.Select,
			Shots: o.Shots, Fields: o.Fields, System: o.System, Prompt: o.Prompt, Images: o.Images, Ahead: !looped, Notice: x.Notice,
			ObjectAnswers: func(own string) bool { return rewards.TakesObjects(cmp.Or(o.Reward, own)) },
			Shuffle:       o.Shuffle, Role: role})); err != nil {
		return err
	}
	if n, known := x.Data.Len(); o.Limit == 0 && !looped && x.Data.IsChecked() && (!known || n > MaxUnlimited) {
		return exit.Usagef("dataset %s is generated and has no end; say how many problems with %s N", x.Data.Name, setting.Name("Limit"))
	}
	return nil
}

func (x *Run) openReward(ctx context.Context) (err error) {
	x.reward = x.o.Reward
	if x.reward == "" {
		x.reward = x.Data.Reward
		if rewards.External(x.reward) && strings.HasSuffix(x.o.Dataset, registry.Extension) { // which somebody may have sent
			return exit.Usagef("%s has the reward %s, which is not run or asked without being named: give %s %s, or another",
				x.o.Dataset, text.Redact(x.reward), setting.Name("Reward"), text.ShellWord(x.reward))
		}
	}
	names := rewardsOf(x.o.Reward, x.Data)
	// An older program took settings without effect. The held-out tasks of a loop may have
	// another reward.
	if x.o.Resume == "" && (x.o.Command != "loop" || x.o.Reward != "") {
		if err = models.CheckRewardSettings(x.o.Judge, x.o.Grader, names...); err != nil {
			return err
		}
	}
	if x.judge, err = models.OpenJudge(ctx, x.o.Judge, x.o.Parallel, x.Notice); err != nil {
		return err
	}
	programs := coderun.New(coderun.Config{Python: x.o.Python, BestEffort: x.o.BestEffort})
	x.closers = append(x.closers, programs)
	if x.grader, err = graderOptions(x.o, x.Data); err != nil {
		return err
	}
	x.grader.Notice, x.grader.Pass, x.grader.Judge, x.grader.Runner = x.Notice, x.o.Added.Env, x.judge.Rewards(), programs
	x.scorer = rewards.NewScorer(x.rewardOf, x.grader)
	if x.o.fed && x.reward == "" {
		return nil
	}
	for _, name := range names {
		_, err := x.scorer.Get(name)
		if err = cmp.Or(err, rewards.CheckProgram(name)); err != nil {
			return exit.UsageError{Err: err}
		}
	}
	if x.Data.Unanswered != "" {
		if err := missingAnswer(x.Data.Unanswered, x.reward, x.grader); err != nil {
			return exit.UsageError{Err: err}
		}
	}
	return nil
}

func (x *Run) openModel(ctx context.Context) (err error) {
	m := x.o.Model
	m.Tools, m.Parallel, m.Temperature = x.envs.ownForm(), x.o.Parallel, 1
	if m.Parser = x.envs.given.Model.Parser; x.o.ContinueReply && m.Parser == chat.ParserSearch {
		m.Parser = "" // it is in the requests
	}
	if m.Parser == chat.ParserDeepEyes {
		m.Parser = "" // likewise
	}
	if t := x.o.Sampling.Temperature; t != nil {
		m.Temperature = *t
	}
	m.OnRetry = x.watchers.retry()
	if x.watchers.metrics != nil {
		m.OnServers = x.watchers.metrics.Servers
	}
	m.ToolImages, m.RowImages = x.tools.showsImages(), x.o.fed
	m.Answered, m.Image, m.MinPixels, m.MaxPixels = m.Answered || hasAnswered(x.o), x.Data.FirstImage, x.o.MinPixels, x.o.MaxPixels
	var closer io.Closer
	if x.Model, x.Source, closer, err = models.Open(ctx, m, x.Notice); err != nil {
		if errors.Is(err, traj.ErrGone) && x.o.Resume != "" {
			x.dir = x.o.Resume
			err = exit.PartialError{Message: fmt.Sprintf("%v; go on with: %s", err, x.resumeHint(""))}
		}
		return err
	}
	if closer != nil {
		x.closers = append(x.closers, closer)
	}
	if g := x.o.Sampling.Grammar; g != nil {
		if err := x.Source.CheckGrammar(g, m.Tools); err != nil {
			return exit.UsageError{Err: err}
		}
	}
	if x.Source.Images != nil {
		x.o.shown.processor = x.Source.Images
	}
	x.envs.images = x.o.imageConfig()
	if why := x.Source.TextAlone(); why != nil {
		x.envs.images.TextAlone = true
		x.envs.images.Described = sync.OnceFunc(func() {
			x.Notice(fmt.Sprintf("a tool gave an image, and the model is given descriptions of images: %s", text.Line(why)))
		})
	}
	if counter, ok := x.Model.(agent.TokenCounter); ok {
		x.envs.count = counter.CountTokens
	}
	return nil
}

// Close ends what the run has opened. The journal and the folder stay.
func (x *Run) Close() {
	x.watchers.close()
	if x.journal != nil {
		_ = x.journal.Close()
	}
	if x.scorer != nil {
		_ = x.scorer.Close()
	}
	_ = x.judge.Close()
	for _, c := range x.closers {
		_ = c.Close()
	}
	x.envs.close()
}

// Part is what the engine is to play of a run.
type Part struct {
	Name     string // the run's, in the ids of groups
	Tasks    iter.Seq2[traj.Task, error]
	Total    int // tasks; 0: not known
	Samples  int
	Seed     int64
	Journal  *journal.Journal
	Ordered  bool
	Count    func() int // engine.Config.Count
	Distinct bool       // engine.Config.DistinctIDs
	Feed     *Feed      // that the tasks are from; nil: none
}

// Play runs the engine over the whole dataset, with a progress display.
func (x *Run) Play(ctx context.Context, sink func(*traj.Trajectory) error) (engine.Summary, error) {
	p := Part{Name: x.Identity()[:8], Total: x.o.Limit, Samples: x.o.Samples, Seed: x.o.Seed,
		Journal: x.journal, Ordered: x.o.Ordered, Distinct: true}
	if n, known := x.Data.Len(); known {
		p.Total = n
	}
	var check *datasetCheck
	if !x.Data.IsChecked() {
		check, ctx = checkDataset(ctx, x.Data, x.reward, x.grader)
		p.Total, p.Count = 0, check.count
	}
	p.Tasks = x.Data.Tasks(ctx)
	sum, err := x.PlayPart(ctx, p, sink)
	if bad := check.end(); bad != nil && err == nil {
		err = bad
	}
	x.watchers.reportUntraced(x.Notice)
	x.envs.reportCaches()
	return sum, err
}

// PlayPart runs the engine over some tasks, with a progress display. The sink gets each
// trajectory once, with its reward.
func (x *Run) PlayPart(ctx context.Context, p Part, sink func(*traj.Trajectory) error) (engine.Summary, error) {
	m := newMeter(x.s, p.Total*max(p.Samples, 1))
	defer m.close()
	o := x.o
	limits, served, watch := x.envs.limits, (*engine.Served)(nil), telemetry.Observe(nil)
	if p.Feed != nil {
		limits, served, watch = p.Feed.limits(limits), &p.Feed.Served, p.Feed.Observe
	}
	reward := x.scorer.Score
	if x.reward == "" { // whoever asks for trajectories scores them
		reward = nil
	}
	e, err := engine.New(engine.Config{
		Model:    x.Model,
		NewAgent: x.envs.newAgent,
		NewEnv:   x.envs.newEnv,
		Reward:   reward,
		Limits:   limits,
		Served:   served,

		NewScheduler: x.schedulers.New,
		Run:          p.Name, Policy: x.Source.Name,
		Tasks: p.Total, Count: p.Count, DistinctIDs: p.Distinct, Samples: p.Samples,
		Seed: p.Seed, Sampling: o.Sampling, Parallel: o.Parallel,

		MaxTurns: o.MaxTurns, FinalTurn: o.FinalTurn,
		MaxPromptTokens: o.MaxPromptTokens, MaxResponseTokens: o.MaxResponseTokens,
		Timeout: o.Timeout, RewardLimit: o.RewardTimeout, Budget: o.Budget, FailOnError: o.FailOnError,

		Stop: console.StopRequested(ctx), Journal: p.Journal, Ordered: p.Ordered,
		Progress: m.show, Tick: m.tick(),
		Observe: telemetry.Join(x.watchers.observe(newTracer(x.s, o.Trace)), x.observeServer(), watch),
	})
	if err != nil {
		return engine.Summary{}, exit.UsageError{Err: err}
	}
	sum, err := e.Run(ctx, x.envs.placed(ctx, p.Tasks), sink)
	m.last(sum.Progress)
	return sum, err
}

// rewardsOf names the rewards of a run, each once: the one that the user named, or those of
// the dataset's rows.
func rewardsOf(named string, d *datasets.Dataset) []string {
	switch {
	case named != "":
		return []string{named}
	case len(d.Rewards) == 0:
		return []string{d.Reward}
	}
	return d.Rewards
}

// rewardOf names the reward of a trajectory: a task's own counts unless the user
// named another.
func (x *Run) rewardOf(t *traj.Trajectory) string {
	if x.o.Reward == "" && t.Task.Reward != "" {
		return t.Task.Reward
	}
	return x.reward
}
