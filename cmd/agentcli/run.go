package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"agentcli/agent"
	"agentcli/datasets"
	"agentcli/engine"
	"agentcli/env"
	"agentcli/parquet"
	"agentcli/rewards"
	"agentcli/sandbox"
	"agentcli/traj"

	"github.com/goccy/go-yaml"
	"github.com/urfave/cli/v2"
)

// runOptions are the settings that eval and rollout share.
type runOptions struct {
	Command string
	Model   modelOptions

	Dataset string
	Split   string
	Limit   int
	Level   string
	Shots   *int
	Fields  map[string]string
	System  *string
	Prompt  *string
	Reward  string

	Samples  int
	Seed     int64
	Sampling traj.Sampling

	Tools    []string // nil: the dataset's
	Weaker   bool
	Python   string // the interpreter; "": one in PATH
	Session  bool   // python keeps its variables within a trajectory
	MaxTurns int

	MaxPromptTokens, MaxResponseTokens int
	Timeout, ToolTimeout               time.Duration
	Parallel                           int

	Output   string
	Resume   string
	Settings map[string]any // as given, for config.yaml
}

// modelsOwn is what stands for a sampling setting that is left open.
const modelsOwn = " (default: off, for eval the server's)"

func runFlags() []cli.Flag {
	return append([]cli.Flag{
		configFlag(),
		&cli.StringFlag{Name: "dataset", Aliases: []string{"d"}, Category: "data", Usage: "a `NAME` of `agentcli datasets list`, or a .jsonl, .json, .csv or .parquet file"},
		&cli.StringFlag{Name: "split", Category: "data", Usage: "of the dataset (default: its own)"},
		&cli.StringFlag{Name: "level", Category: "data", Usage: "how hard a generated dataset is (default: 1)"},
		&cli.IntFlag{Name: "shots", Category: "data", Usage: "worked examples before the question (default: the dataset's)"},
		&cli.StringSliceFlag{Name: "field", Category: "data", Usage: "which column is which, for example question=problem; repeatable"},
		&cli.StringFlag{Name: "system", Category: "data", Usage: "system prompt (default: the dataset's)"},
		&cli.StringFlag{Name: "prompt", Category: "data", Usage: "text around the question, with {question} in it (default: the dataset's)"},
		&cli.StringFlag{Name: "reward", Category: "data", Usage: strings.Join(rewards.Names(), ", ") + "; how replies are scored (default: the dataset's)"},
		&cli.Int64Flag{Name: "seed", Category: "sampling", Usage: "of the run; every attempt's seed follows from it"},
		&cli.Float64Flag{Name: "temperature", Category: "sampling", Usage: "0 is greedy (default: 1, for eval the server's)"},
		&cli.Float64Flag{Name: "top-p", Category: "sampling", Usage: "the likeliest tokens of this probability mass; 1 is off" + modelsOwn},
		&cli.IntFlag{Name: "top-k", Category: "sampling", Usage: "the K likeliest tokens; -1 is off" + modelsOwn},
		&cli.Float64Flag{Name: "min-p", Category: "sampling", Usage: "tokens at least this likely, relative to the likeliest; 0 is off" + modelsOwn},
		&cli.IntFlag{Name: "max-tokens", Category: "sampling", Usage: "of one reply (default: the dataset's)"},
		&cli.StringSliceFlag{Name: "stop", Category: "sampling", Usage: "stop string; repeatable"},
		&cli.StringSliceFlag{Name: "stop-ids", Category: "sampling", Usage: "token ids that end a reply beside the model's own, for example 2,50"},
		&cli.StringFlag{Name: "tools", Category: "agent", Usage: "calculator, python, several with commas, or none (default: the dataset's)"},
		&cli.StringFlag{Name: "sandbox", Category: "agent", Value: "strict", Usage: "for python: strict, or weaker, which leaves out what the kernel refuses (agentcli doctor says what)"},
		&cli.StringFlag{Name: "python", Category: "agent", Usage: "`PATH` of the interpreter for the python tool (default: the first in PATH that works)"},
		&cli.BoolFlag{Name: "python-session", Category: "agent", Usage: "the python tool keeps variables and files within a trajectory"},
		&cli.IntFlag{Name: "max-turns", Category: "agent", Usage: "model calls a trajectory (default: the dataset's)"},
		&cli.IntFlag{Name: "max-prompt-tokens", Category: "agent", Usage: "of any prompt (default: what the model takes)"},
		&cli.IntFlag{Name: "max-response-tokens", Category: "agent", Usage: "of everything after the first prompt (default: no limit)"},
		&cli.DurationFlag{Name: "timeout", Category: "agent", Usage: "of a trajectory, for example 90s or 5m (default: no limit)"},
		&cli.DurationFlag{Name: "tool-timeout", Category: "agent", Value: 10 * time.Second, Usage: "of one tool call, for example 10s"},
		&cli.IntFlag{Name: "parallel", Aliases: []string{"j"}, Category: "run", Value: engine.DefaultParallel, Usage: "trajectories at once"},
		&cli.StringFlag{Name: "output", Category: "run", Usage: "`DIR` for everything of the run"},
		&cli.StringFlag{Name: "resume", Category: "run", Usage: "go on with the run in `DIR`"},
	}, modelFlags()...)
}

// notSettings are flags that do not change what a run is, and stay out of the
// folder's config.yaml.
var notSettings = []string{"output", "resume", "o"}

func runOptionsOf(c *cli.Context) (runOptions, error) {
	if err := noArguments(c); err != nil {
		return runOptions{}, err
	}
	if dir := c.String("resume"); dir != "" {
		if c.String("config") != "" {
			return runOptions{}, usagef("--resume takes the settings of the run in its folder; leave --config out")
		}
		if _, err := os.Stat(filepath.Join(dir, configName)); err != nil {
			return runOptions{}, usagef("--resume %s: there is no %s in that folder, so it holds no run", dir, configName)
		}
		if err := applyConfig(c, filepath.Join(dir, configName)); err != nil {
			return runOptions{}, err
		}
	}
	if err := applyConfig(c, c.String("config")); err != nil {
		return runOptions{}, err
	}
	m, err := modelOptionsOf(c)
	if err != nil {
		return runOptions{}, err
	}
	o := runOptions{
		Command: c.Command.Name, Model: m,
		Dataset: c.String("dataset"), Split: c.String("split"), Limit: c.Int("limit"), Level: c.String("level"), Reward: c.String("reward"),
		Samples: c.Int("samples"), Seed: c.Int64("seed"),
		Sampling: traj.Sampling{TopP: c.Float64("top-p"), TopK: c.Int("top-k"), MinP: c.Float64("min-p"),
			MaxTokens: c.Int("max-tokens"), Stop: c.StringSlice("stop")},
		Python: c.String("python"), Session: c.Bool("python-session"),
		MaxTurns: c.Int("max-turns"), MaxPromptTokens: c.Int("max-prompt-tokens"), MaxResponseTokens: c.Int("max-response-tokens"),
		Timeout: c.Duration("timeout"), ToolTimeout: c.Duration("tool-timeout"), Parallel: c.Int("parallel"),
		Output: c.String("output"), Resume: c.String("resume"), Settings: settings(c, notSettings...),
	}
	if c.IsSet("shots") {
		n := c.Int("shots")
		o.Shots = &n
	}
	if c.IsSet("system") {
		s := c.String("system")
		o.System = &s
	}
	if c.IsSet("prompt") {
		s := c.String("prompt")
		o.Prompt = &s
	}
	if c.IsSet("temperature") {
		t := c.Float64("temperature")
		o.Sampling.Temperature = &t
	}
	if t := c.String("tools"); t != "" {
		o.Tools = []string{}
		if t != "none" {
			o.Tools = strings.FieldsFunc(t, func(r rune) bool { return r == ',' || r == ' ' })
		}
	}
	if o.Sampling.StopIDs, err = stopIDs(c.StringSlice("stop-ids")); err != nil {
		return o, err
	}
	for _, f := range c.StringSlice("field") {
		name, column, ok := strings.Cut(f, "=")
		if !ok || name == "" || column == "" {
			return o, usagef("--field %q is not of the form question=COLUMN", f)
		}
		if o.Fields == nil {
			o.Fields = map[string]string{}
		}
		o.Fields[name] = column
	}
	switch c.String("sandbox") {
	case "strict":
	case "weaker":
		o.Weaker = true
	default:
		return o, usagef("--sandbox %q is unknown; it is strict or weaker", c.String("sandbox"))
	}
	return o, o.validate()
}

// stopIDs reads ids that are separated by commas, or given one by one.
func stopIDs(list []string) ([]int32, error) {
	var ids []int32
	for _, s := range list {
		for _, one := range strings.Split(s, ",") {
			id, err := strconv.ParseInt(strings.TrimSpace(one), 10, 32)
			if err != nil || id < 0 {
				return nil, usagef("--stop-ids %q: %q is no token id; write them as 2,50", s, one)
			}
			ids = append(ids, int32(id))
		}
	}
	return ids, nil
}

func (o *runOptions) validate() error {
	for _, f := range []struct {
		name string
		v    float64
		min  float64
		max  float64
	}{
		{"limit", float64(o.Limit), 0, math.MaxInt32}, {"samples", float64(o.Samples), 0, 1e6}, {"parallel", float64(o.Parallel), 1, 1e6},
		{"max-turns", float64(o.MaxTurns), 0, 1e6}, {"max-tokens", float64(o.Sampling.MaxTokens), 0, 1e9},
		{"max-prompt-tokens", float64(o.MaxPromptTokens), 0, 1e9}, {"max-response-tokens", float64(o.MaxResponseTokens), 0, 1e9},
		{"top-p", o.Sampling.TopP, 0, 1}, {"min-p", o.Sampling.MinP, 0, 1}, {"top-k", float64(o.Sampling.TopK), -1, 1e9},
		{"timeout", float64(o.Timeout), 0, math.MaxInt64}, {"tool-timeout", float64(o.ToolTimeout), 1, math.MaxInt64},
	} {
		if !(f.v >= f.min && f.v <= f.max) {
			if strings.HasSuffix(f.name, "timeout") {
				return usagef("--%s is %v; it must be positive", f.name, time.Duration(f.v))
			}
			return usagef("--%s is %v; it must be from %v to %v", f.name, f.v, f.min, f.max)
		}
	}
	if t := o.Sampling.Temperature; t != nil && !(*t >= 0 && *t <= 100) {
		return usagef("--temperature is %v; it must be from 0 to 100", *t)
	}
	if o.Output != "" && o.Resume != "" && filepath.Clean(o.Output) != filepath.Clean(o.Resume) {
		return usagef("--resume goes on in its own folder; leave --output out")
	}
	return nil
}

// Names within a run's folder.
const (
	configName  = "config.yaml"
	journalName = "journal"
	dataName    = "traj.parquet"
	reportName  = "report.json"
)

// session is a run that is set up: model, data, tools, folder and journal.
type session struct {
	o       runOptions
	s       streams
	mu      sync.Mutex // of what is written to stderr
	meter   *meter
	model   agent.Model
	info    modelSource
	data    *datasets.Dataset
	tools   env.Config
	reward  string
	journal *engine.Journal
	dir     string
	keepDir bool // the folder is the user's, not a scratch one
	closers []io.Closer
}

// maxUnlimited is how many tasks a run takes on without being told a number.
const maxUnlimited = 1_000_000

// open sets a run up. Nothing is on disk before everything named is known to
// exist.
func open(ctx context.Context, o runOptions, s streams) (_ *session, err error) {
	x := &session{o: o, s: s}
	defer func() {
		if err != nil {
			x.close()
		}
	}()
	if x.data, err = datasets.Open(ctx, o.Dataset, datasets.Options{Split: o.Split, Limit: o.Limit, Seed: o.Seed, Level: o.Level,
		Shots: o.Shots, Fields: o.Fields, System: o.System, Prompt: o.Prompt}); err != nil {
		return nil, err
	}
	if n, known := x.data.Len(); o.Limit == 0 && (!known || n > maxUnlimited) {
		return nil, usagef("dataset %s is generated and has no end worth waiting for; say how many problems with --limit N", x.data.Name)
	}
	x.fillDefaults()
	if err = x.openTools(ctx); err != nil {
		return nil, err
	}
	x.reward = x.o.Reward
	if x.reward == "" {
		x.reward = x.data.Reward
	}
	if _, err = rewards.New(x.reward, rewards.Options{}); err != nil {
		return nil, usageError{err}
	}
	m := x.o.Model
	m.WithTools, m.Parallel = len(x.tools.Tools) > 0, x.o.Parallel
	var closer io.Closer
	if x.model, x.info, closer, err = openModel(ctx, m, x.notice); err != nil {
		return nil, err
	}
	if closer != nil {
		x.closers = append(x.closers, closer)
	}
	return x, x.openFolder()
}

// notice tells the user something, above the progress bar if there is one.
func (x *session) notice(text string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.meter != nil {
		x.meter.clear()
	}
	fmt.Fprintln(x.s.err, "agentcli: "+text)
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

func (x *session) openTools(ctx context.Context) error {
	x.tools = env.Config{ToolTimeout: x.o.ToolTimeout + time.Second, Hung: &env.Hung{}} // the tool's own limit comes first
	for _, name := range x.o.Tools {
		switch name {
		case "calculator":
			x.tools.Tools = append(x.tools.Tools, env.Calculator{})
		case "python":
			if err := x.openPython(ctx); err != nil {
				return err
			}
		default:
			return usagef("there is no tool %q; the tools are calculator and python", name)
		}
	}
	if err := x.tools.Validate(); err != nil {
		return usageError{err}
	}
	return nil
}

// openPython starts the python tool.
func (x *session) openPython(ctx context.Context) error {
	c := env.PythonConfig{Path: x.o.Python, Timeout: x.o.ToolTimeout, Weaker: x.o.Weaker}
	if x.o.Session {
		if x.o.Parallel > env.MaxPythonSessions {
			return usagef("--python-session holds a process for each trajectory; --parallel may be %d at most", env.MaxPythonSessions)
		}
		c.Parallel = max(x.o.Parallel, 2)
	}
	p, err := env.NewPython(ctx, c)
	if err != nil {
		return err
	}
	x.closers = append(x.closers, p)
	for _, h := range p.Parts() {
		if !h.OK && h.Part != sandbox.Cgroup {
			x.notice(fmt.Sprintf("--sandbox weaker: python code of the model runs here without %s (%s)", h.Part, h.Detail))
		}
	}
	if x.o.Session {
		x.tools.Tools = append(x.tools.Tools, env.PythonSessions{Python: p})
	} else {
		x.tools.Tools = append(x.tools.Tools, p)
	}
	return nil
}

// identity is the hash of everything that decides what a run's rows mean; a run
// is resumed only by the same. How fast, where to and how often to try again
// are not part of it, nor how many tasks and samples: a run may be made longer.
func (x *session) identity() string {
	info := x.info
	info.BaseURL = "" // a server may move
	tools := x.o.Tools
	if x.o.Session {
		tools = append(slices.Clone(tools), "python-session")
	}
	b, err := json.Marshal(map[string]any{
		"model": info, "parser": x.o.Model.Parser, "dataset": x.o.Dataset, "split": x.o.Split, "level": x.o.Level, "shots": x.o.Shots,
		"fields": x.o.Fields, "system": x.o.System, "prompt": x.o.Prompt, "reward": x.reward, "seed": x.o.Seed, "sampling": x.o.Sampling,
		"tools": tools, "max_turns": x.o.MaxTurns, "max_prompt": x.o.MaxPromptTokens, "max_response": x.o.MaxResponseTokens,
	})
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// openFolder makes or finds the run's folder and its journal. Without --output
// a rollout keeps its journal in the cache until it has ended well.
func (x *session) openFolder() (err error) {
	id := x.identity()
	if x.o.Resume != "" {
		x.dir, x.keepDir = x.o.Resume, !isWithin(filepath.Join(cacheDir(), "runs"), x.o.Resume)
		config := filepath.Join(x.dir, configName)
		x.journal, err = engine.OpenJournal(filepath.Join(x.dir, journalName), id, x.notice)
		switch {
		case errors.Is(err, engine.ErrOtherRun):
			return usageError{fmt.Errorf("%w%s", err, changedSettings(config, x.o.Settings))}
		case err != nil:
			return err
		}
		sweep(x.dir)                               // the journal is ours, so nobody else writes here
		return writeSettings(config, x.o.Settings) // as it goes on: longer, elsewhere, faster
	}
	x.dir, x.keepDir = x.o.Output, true
	if x.dir == "" {
		name := fmt.Sprintf("%s-%s", fileName(x.data.Name), time.Now().Format("20060102-150405.000"))
		if x.o.Command == "eval" {
			x.dir = filepath.Join("runs", name)
		} else {
			x.dir, x.keepDir = filepath.Join(cacheDir(), "runs", name), false
		}
	}
	if err := os.MkdirAll(x.dir, 0o755); err != nil {
		return fmt.Errorf("cannot make the run's folder: %w", err)
	}
	if x.journal, err = engine.CreateJournal(filepath.Join(x.dir, journalName), id); err != nil {
		return err
	}
	return writeSettings(filepath.Join(x.dir, configName), x.o.Settings)
}

// sweep removes what a run that was killed left half written in its folder.
func sweep(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // the run will say what is wrong with the folder
	}
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, "."+dataName+".") && strings.HasSuffix(name, ".tmp") || name == reportName+".tmp" || name == configName+".tmp" {
			_ = os.Remove(filepath.Join(dir, name))
		}
	}
}

// lasting are the settings that the finished trajectories of a run were made
// with; see identity.
var lasting = []string{"model", "dtype", "parser", "dataset", "split", "level", "shots", "field", "system", "prompt", "reward", "seed",
	"temperature", "top-p", "top-k", "min-p", "max-tokens", "stop", "stop-ids", "tools", "python-session", "max-turns", "max-prompt-tokens", "max-response-tokens"}

// changedSettings names what differs from a run's stored settings and must not.
func changedSettings(path string, now map[string]any) string {
	was := map[string]any{}
	b, err := os.ReadFile(path)
	if err != nil || yaml.Unmarshal(b, &was) != nil {
		return ""
	}
	text := func(v any) string {
		b, err := yaml.Marshal(v)
		if v == nil || err != nil {
			return "not set"
		}
		return strings.Join(strings.Fields(string(b)), " ")
	}
	var list []string
	for _, name := range lasting {
		if a, b := text(was[name]), text(now[name]); a != b {
			list = append(list, fmt.Sprintf("--%s is %s and was %s", name, b, a))
		}
	}
	if len(list) == 0 {
		return " (no flag differs: the model's files have changed)"
	}
	return " (" + strings.Join(list, ", ") + ")"
}

// writeSettings writes a run's settings as --config reads them.
func writeSettings(path string, settings map[string]any) error {
	b, err := yaml.Marshal(settings)
	if err == nil {
		err = os.WriteFile(path+".tmp", b, 0o644)
	}
	if err == nil {
		err = os.Rename(path+".tmp", path)
	}
	if err != nil {
		return fmt.Errorf("cannot write the run's settings: %w", err)
	}
	return nil
}

// fileName makes a dataset's name fit for a folder.
func fileName(s string) string {
	s = strings.TrimSuffix(filepath.Base(s), filepath.Ext(s))
	return strings.Map(func(r rune) rune {
		if r == '/' || r == '\\' || r < ' ' || r == ':' {
			return '-'
		}
		return r
	}, s)
}

func (x *session) close() {
	if x.journal != nil {
		_ = x.journal.Close()
	}
	for _, c := range x.closers {
		_ = c.Close()
	}
}

// metadata is what the Parquet file says of the run.
func (x *session) metadata() (parquet.Metadata, error) {
	run, err := json.Marshal(map[string]any{
		"command": x.o.Command, "version": version(), "config": x.o.Settings, "model": x.info,
		"sampling": x.o.Sampling, "seed": x.o.Seed, "samples": x.o.Samples, "logprobs": x.info.Logprobs,
		"tools": x.tools.Specs(), "reward": x.reward, "parser": x.o.Model.Parser,
		"limits": map[string]any{"max_turns": x.o.MaxTurns, "max_prompt_tokens": x.o.MaxPromptTokens, "max_response_tokens": x.o.MaxResponseTokens,
			"timeout": x.o.Timeout.String(), "tool_timeout": x.o.ToolTimeout.String()},
		"dataset": map[string]any{"name": x.data.Name, "split": x.data.Split, "limit": x.o.Limit, "level": x.o.Level, "shots": x.o.Shots,
			"system": x.o.System, "prompt": x.o.Prompt, "fields": x.o.Fields},
	})
	return parquet.Metadata{Run: run}, err
}

// play runs the engine with a progress display.
func (x *session) play(ctx context.Context, sink func(*traj.Trajectory) error) (engine.Summary, error) {
	total := x.o.Limit
	if n, known := x.data.Len(); known {
		total = n
	}
	m := newMeter(x.s, total*max(x.o.Samples, 1))
	x.mu.Lock()
	x.meter = m
	x.mu.Unlock()
	defer m.close()
	specs := x.tools.Specs()
	e, err := engine.New(engine.Config{
		Model:    x.model,
		NewAgent: func(traj.Task) (agent.Agent, error) { return agent.New(specs), nil },
		NewEnv:   func(traj.Task) (env.Environment, error) { return env.New(x.tools) },
		Reward:   scorer(x.rewardOf),
		Run:      x.identity()[:8],
		Policy:   x.info.Name,
		Samples:  x.o.Samples, Tasks: total, Parallel: x.o.Parallel, Seed: x.o.Seed, Sampling: x.o.Sampling,
		MaxTurns: x.o.MaxTurns, MaxPromptTokens: x.o.MaxPromptTokens, MaxResponseTokens: x.o.MaxResponseTokens,
		Timeout: x.o.Timeout, RewardLimit: time.Minute,
		Stop: stopRequested(ctx), Journal: x.journal, Progress: m.show,
	})
	if err != nil {
		return engine.Summary{}, usageError{err}
	}
	return e.Run(ctx, x.data.Tasks(ctx), sink)
}

// rewardOf names the reward of a trajectory: a task's own counts unless the user
// named another.
func (x *session) rewardOf(t *traj.Trajectory) string {
	if x.o.Reward == "" && t.Task.Reward != "" {
		return t.Task.Reward
	}
	return x.reward
}

// scorer scores trajectories by the reward that of names.
func scorer(of func(*traj.Trajectory) string) func(context.Context, *traj.Trajectory) error {
	var mu sync.Mutex
	made := map[string]rewards.Reward{}
	get := func(name string) (rewards.Reward, error) {
		mu.Lock()
		defer mu.Unlock()
		if r, ok := made[name]; ok {
			return r, nil
		}
		r, err := rewards.New(name, rewards.Options{})
		if err == nil {
			made[name] = r
		}
		return r, err
	}
	return func(ctx context.Context, t *traj.Trajectory) error {
		r, err := get(of(t))
		if err != nil {
			return err
		}
		s, err := r.Score(ctx, t)
		if err != nil {
			return err
		}
		t.Reward, t.RewardParts, t.Correct, t.Extracted = s.Value, s.Parts, s.Correct, s.Extracted
		return nil
	}
}

// resumeHint is the command that goes on with this run.
func (x *session) resumeHint(rest string) string {
	return strings.TrimSpace(fmt.Sprintf("agentcli %s --resume %s %s", x.o.Command, shellWord(x.dir), rest))
}

func shellWord(s string) string {
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./=+:@%", r))
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// ending turns how a run ended into the command's error. saved says where the
// finished trajectories are.
func (x *session) ending(sum engine.Summary, err error, saved, rest string) error {
	finished := sum.Done - sum.Errors
	switch {
	case err != nil && finished == 0:
		return err
	case err != nil:
		return fmt.Errorf("%w; %s finished and kept, go on with: %s", err, plural(finished, "trajectory"), x.resumeHint(rest))
	case sum.Interrupted && finished == 0 && !x.keepDir:
		return interruptedError{"interrupted before anything was finished; nothing is kept"}
	case sum.Interrupted:
		return interruptedError{fmt.Sprintf("interrupted: %s finished%s; go on with: %s", plural(finished, "trajectory"), saved, x.resumeHint(rest))}
	case sum.Done == 0:
		return fmt.Errorf("dataset %s gave no tasks; nothing was run", x.data.Name)
	case sum.Errors == sum.Done:
		all := "all " + plural(sum.Done, "trajectory")
		if sum.Done == 1 {
			all = "the one trajectory"
		}
		return fmt.Errorf("%s failed: %s; try again with: %s", all, sum.FirstError, x.resumeHint(rest))
	case sum.Errors > 0:
		return partialError{fmt.Sprintf("%d of %s failed for infrastructure reasons (the first: %s); try again with: %s",
			sum.Errors, plural(sum.Done, "trajectory"), sum.FirstError, x.resumeHint(rest))}
	}
	return nil
}
