package rollout

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"

	"agentcli/agent"
	"agentcli/app/models"
	"agentcli/datasets"
	"agentcli/engine"
	"agentcli/env"
	"agentcli/internal/exit"
	"agentcli/internal/setting"
	"agentcli/model/chat"
	"agentcli/traj"
)

// envSetup is an environment as a run plays rows in it.
type envSetup struct {
	environment
	o     Options // the run's, with what the environment and the dataset imply
	tools *toolset
	form  traj.Form // of calls; nil: the model's own
	words traj.Form // of results, where form is nil and calls are the model's own; nil: its own too
	// specs are the tools', one list for all trajectories: who makes something of a list
	// keeps it with that list.
	specs []traj.ToolSpec
}

// envSetups are those of a run, by name. The first is what its settings are shown as; one
// that no row named so far is opened when the first row does. It is safe for concurrent use.
type envSetups struct {
	given  Options // as the user gave them
	data   *datasets.Dataset
	notice func(string)
	count  func(string) int // tokens of a text; nil: not known
	images env.ImageConfig  // of tools' results

	mu  sync.Mutex
	all []*envSetup
}

// openEnvSetups opens the environments that the dataset is known to name.
func openEnvSetups(ctx context.Context, given Options, data *datasets.Dataset, notice func(string)) (*envSetups, error) {
	s := &envSetups{given: given, data: data, notice: notice}
	names := []string{given.Env}
	if given.Env == "" && len(data.Envs) > 0 {
		names = slices.Clone(data.Envs)
		for i, name := range names {
			if name == environments[0].name {
				names[i] = ""
			}
		}
		slices.Sort(names) // the default one first
	}
	for _, name := range names {
		if _, err := s.of(ctx, name); err != nil {
			return s, err
		}
	}
	return s, nil
}

// checkRetriever refuses settings of searches where no row is played with the tool search. Of
// a file that is not read to its end that is not known.
func (s *envSetups) checkRetriever() error {
	name := setting.Name("Retriever")
	if s.given.Retriever == "" {
		name = setting.Name("RetrieverTopK")
	}
	switch {
	case s.given.Retriever == "" && s.given.RetrieverTopK == 0, s.given.Resume != "":
		return nil
	case s.given.Env == "" && (!s.data.IsChecked() || s.given.Command == "loop"): // whose held-out tasks may search
		return nil
	case slices.ContainsFunc(s.open(), func(x *envSetup) bool { return slices.Contains(x.tools.names, "search") }):
		return nil
	}
	return exit.Usagef("%s has no effect: no row is played with the tool search; add %s search, or %s search", name,
		setting.Name("Tools"), setting.Name("Env"))
}

// of gives the environment of that name, opened.
func (s *envSetups) of(ctx context.Context, name string) (*envSetup, error) {
	e, err := environmentNamed(name)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, have := range s.all {
		if have.name == e.name {
			return have, nil
		}
	}
	x := &envSetup{environment: e, o: settled(s.given, e, s.data)}
	for _, have := range s.all {
		if x.tools = have.tools.shared(x.o); x.tools != nil {
			break
		}
	}
	if x.tools == nil {
		x.tools, err = openTools(ctx, x.o, s.notice)
	}
	if err == nil {
		x.form, err = x.o.continueReply(x.tools)
	}
	if err == nil && x.form == nil && x.o.Model.Parser == chat.ParserDeepEyes {
		x.words, err = chat.ParserFor(chat.ParserDeepEyes, x.tools.config.Specs())
	}
	if err != nil {
		x.tools.close()
		return nil, err
	}
	if x.form != nil && len(s.data.OwnTools) > 0 {
		s.notice(fmt.Sprintf("the environment %s writes calls in a form of its own: the tools of a row (column tools) are not offered in it",
			x.name))
	}
	x.specs = x.tools.config.Specs()
	s.all = append(s.all, x)
	return x, nil
}

// settled fills in what the user left open: from the dataset, if it is made for the
// environment, then from the environment, then from any dataset.
func settled(o Options, e environment, d *datasets.Dataset) Options {
	suggest := func() {
		if o.Tools == nil {
			o.Tools = d.DefaultTools
		}
		if o.MaxTurns == 0 {
			if o.MaxTurns = d.MaxTurns; o.Scheduler != "" && d.MaxTurns > 0 {
				// The dataset's is for one answer; a scheduler is asked only where a turn can follow.
				o.MaxTurns = max(d.MaxTurns, engine.DefaultMaxTurns)
			}
		}
		if o.Sampling.MaxTokens == 0 {
			o.Sampling.MaxTokens = d.MaxTokens
		}
	}
	o.Env = e.name
	if made, err := environmentNamed(d.Env); err == nil && made.name == e.name {
		suggest()
	}
	e.defaults(&o)
	suggest()
	if o.MaxTurns == 0 {
		o.MaxTurns = engine.DefaultMaxTurns
	}
	return o
}

// main is the environment that the run's settings are shown as.
func (s *envSetups) main() *envSetup { return s.all[0] }

// open are those that are opened.
func (s *envSetups) open() []*envSetup {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// ofTask is that of a task of placed.
func (s *envSetups) ofTask(t traj.Task) (*envSetup, error) {
	return s.of(context.Background(), s.nameOf(t))
}

// nameOf is the environment that a task is played in: the one that the user named, else
// the row's.
func (s *envSetups) nameOf(t traj.Task) string {
	if s.given.Env != "" {
		return s.given.Env
	}
	return t.Env
}

// placed are the tasks with the environment that they are played in, which is open. That
// of the default one is "".
func (s *envSetups) placed(ctx context.Context, tasks iter.Seq2[traj.Task, error]) iter.Seq2[traj.Task, error] {
	return func(yield func(traj.Task, error) bool) {
		for t, err := range tasks {
			if err == nil {
				var x *envSetup
				if x, err = s.of(ctx, s.nameOf(t)); err == nil {
					if t.Env = x.name; t.Env == environments[0].name {
						t.Env = ""
					}
				}
			}
			if !yield(t, err) {
				return
			}
		}
	}
}

// specs are the tools of all environments that are open, each name once.
func (s *envSetups) specs() []traj.ToolSpec {
	var all []traj.ToolSpec
	for _, x := range s.open() {
		all = append(all, missingIn(all, x.specs)...)
	}
	return all
}

// ownForm are the tools that the model calls in its own form: of environments without
// another one, with those of the first row that has its own; or of all where each has
// another one.
func (s *envSetups) ownForm() []traj.ToolSpec {
	var all []traj.ToolSpec
	for _, x := range s.open() {
		if x.form == nil {
			all = append(all, missingIn(all, x.specs)...)
			all = append(all, missingIn(all, s.data.OwnTools)...)
		}
	}
	if !slices.ContainsFunc(s.open(), func(x *envSetup) bool { return x.form == nil }) {
		return s.specs()
	}
	return all
}

// missingIn are those of more whose names all does not have.
func missingIn(all, more []traj.ToolSpec) (out []traj.ToolSpec) {
	for _, t := range more {
		if !slices.ContainsFunc(all, func(have traj.ToolSpec) bool { return have.Name == t.Name }) {
			out = append(out, t)
		}
	}
	return out
}

// reportCaches tells what the caches of tools were good for.
func (s *envSetups) reportCaches() {
	var told []*env.Cache
	for _, x := range s.open() {
		if c := x.tools.config.Cache; !slices.Contains(told, c) {
			told = append(told, c)
			x.tools.reportCache(s.notice)
		}
	}
}

// close ends the tools of all.
func (s *envSetups) close() {
	if s == nil {
		return
	}
	for _, x := range s.open() {
		x.tools.close()
	}
}

// config has the run's tools and those of the task's own row; of two with one name, the
// run's, which can be called. Where calls have another form than the model's own, a row's
// tools cannot be offered.
func (x *envSetup) config(t traj.Task) (env.Config, error) {
	c := x.tools.config
	if x.form != nil {
		return c, nil
	}
	own, err := datasets.OwnTools(&t)
	if len(own) > 0 {
		c.Declared = missingIn(c.Specs(), own)
	}
	return c, err
}

// newEnv opens a task's environment.
func (s *envSetups) newEnv(t traj.Task) (env.Environment, error) {
	x, err := s.ofTask(t)
	if err != nil {
		return nil, err
	}
	c, err := x.config(t)
	if err != nil {
		return nil, err
	}
	c.CountTokens, c.Images = s.count, s.images
	return x.environment.open(t, c)
}

// newAgent makes a task's agent.
func (s *envSetups) newAgent(t traj.Task) (agent.Agent, error) {
	x, err := s.ofTask(t)
	if err != nil {
		return nil, err
	}
	c, err := x.config(t)
	if err != nil {
		return nil, err
	}
	specs := x.specs
	if len(c.Declared) > 0 {
		specs = c.Specs()
	}
	a := agent.New(specs)
	a.Replies, a.Form = s.replies(t), x.words
	if x.form != nil {
		a.Form = x.form
		answerStops := slices.Contains(x.o.Sampling.Stop, chat.AnswerStop)
		a.Answers = func(reply string) bool { return chat.IsSearchAnswer(reply, answerStops) }
	}
	return a, nil
}

// limits are a task's.
func (s *envSetups) limits(t traj.Task) engine.Limits {
	x, err := s.ofTask(t)
	if err != nil { // newEnv says so
		return engine.Limits{}
	}
	if n := len(s.replies(t)); n > 0 {
		return engine.Limits{Sampling: x.o.Sampling, MaxTurns: n}
	}
	return engine.Limits{Sampling: x.o.Sampling, MaxTurns: x.o.MaxTurns, FinalTurn: x.o.FinalTurn}
}

// replies are those that a model that replays says in a task; nil where the model has its own.
func (s *envSetups) replies(t traj.Task) []string {
	if !strings.HasPrefix(s.given.Model.Model, models.ReplayPrefix) {
		return nil
	}
	return datasets.Replies(&t)
}

// identity is what decides what the rows of each environment mean that the dataset is known
// to name: those that are opened later change nothing.
func (s *envSetups) identity() map[string]any {
	all := map[string]any{}
	for _, x := range s.open() {
		if !slices.Contains(s.data.Envs, x.name) && (x.name != environments[0].name || !slices.Contains(s.data.Envs, "")) {
			continue
		}
		all[x.name] = map[string]any{"tools": x.tools.names, "added_tools": x.tools.added, "prompt": x.o.Prompt, "sampling": x.o.Sampling,
			"max_turns": x.o.MaxTurns, "final_turn": x.o.FinalTurn, "continue_reply": x.o.ContinueReply,
			"max_observation": x.o.MaxObservationTokens}
	}
	return all
}
