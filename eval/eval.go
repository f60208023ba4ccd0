// Package eval turns trajectories into an evaluation's report: pass@k, pass^k
// and maj@k with their standard errors over problems, rates, and a summary of
// each problem. What failed for infrastructure reasons counts as no attempt.
//
// It is pure: no files but the Spool that it is given, no clock, no randomness that
// is not seeded. It is in layer
// 1: of this module it may import traj only. How answers are compared comes in
// through Config.Vote.
package eval

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"

	"agentcli/traj"
)

// Problem is one problem's summary.
type Problem struct {
	ID        string  `json:"id"`
	N         int     `json:"n"`                   // attempts that count
	C         int     `json:"c"`                   // of them correct
	Failed    int     `json:"failed,omitempty"`    // for infrastructure reasons
	Cancelled int     `json:"cancelled,omitempty"` // by the run's end
	Answers   Answers `json:"answers"`
	attempts  []graded
	env       string
	sums      sums
	looks     looks
	rewardSum float64
	rewardN   int
	maj       float64 // of PassK attempts, where there are so many; of a report's problem
}

// Answers are the extracted answers of a problem, as they were written, and how
// often each was given; in JSON an object. A map of each problem's own would be
// most of what a long evaluation keeps in memory.
type Answers []answer

type answer struct {
	Answer string
	N      int
}

// add counts an answer that was given n times. What is kept of it holds nothing else
// in memory: an answer is often a piece of a long reply.
func (a *Answers) add(text string, n int) {
	for i := range *a {
		if (*a)[i].Answer == text {
			(*a)[i].N += n
			return
		}
	}
	*a = append(*a, answer{strings.Clone(text), n})
}

// MarshalJSON writes an object from answers to counts.
func (a Answers) MarshalJSON() ([]byte, error) {
	m := make(map[string]int, len(a))
	for _, x := range a {
		m[x.Answer] = x.N
	}
	return json.Marshal(m)
}

// undecided is the verdict of a grader that could not show an answer to be right or wrong.
const undecided = "undecided"

// callsRan reports whether the calls of the last step of a trajectory that ended so were
// run, and their results shown.
func callsRan(end traj.Termination) bool {
	return end != traj.MaxTurns && end != traj.MaxTokens && end != traj.TurnLength
}

// sums are over the attempts that count.
type sums struct {
	unanswered, unread, undecided, cut, calls, callErrors, completion, turns int
	// ended by an answer; with a call that could not be read; tokens that tools wrote;
	// calls that ran and did not fail
	answered, badTurns, observed, validCalls int
}

// Tokens are what the trajectories took.
type Tokens struct {
	Prompt        int64    `json:"prompt"`
	Completion    int64    `json:"completion"`
	PerTrajectory *float64 `json:"completion_per_trajectory"` // of those that count
	StdErr        *float64 `json:"completion_per_trajectory_stderr"`
}

// Report is report.json, schema version 1.
type Report struct {
	Schema       int                      `json:"schema"`
	Dataset      string                   `json:"dataset"`
	Split        string                   `json:"split,omitempty"`
	Model        string                   `json:"model"`
	BaseURL      []string                 `json:"base_url,omitempty"` // of the servers that were asked
	Problems     int                      `json:"problems"`
	Samples      int                      `json:"samples"`
	Trajectories int                      `json:"trajectories"`
	Incomplete   int                      `json:"incomplete"` // problems short of attempts that count
	Metrics      map[string]Estimate      `json:"metrics"`
	MetricOrder  []string                 `json:"-"`
	Reward       Estimate                 `json:"reward"`
	Rates        map[string]*float64      `json:"rates"` // of the attempts that count, but for infrastructure_error
	RatesStdErr  map[string]*float64      `json:"rates_stderr"`
	RatesBound   map[string]float64       `json:"rates_bound95,omitempty"`
	Tokens       Tokens                   `json:"tokens"`
	Turns        *float64                 `json:"turns_per_trajectory"`
	TurnsStdErr  *float64                 `json:"turns_per_trajectory_stderr"`
	Calls        *float64                 `json:"valid_calls_per_trajectory"` // that ran and did not fail
	CallsStdErr  *float64                 `json:"valid_calls_per_trajectory_stderr"`
	Environments []Environment            `json:"environments,omitempty"` // where a run has several, by name
	Looks        *Looks                   `json:"looks,omitempty"`
	LeftOut      int                      `json:"left_out"` // trajectories that failed or were cancelled: in no mean and no rate
	Terminations map[traj.Termination]int `json:"terminations"`
	PerProblem   Problems                 `json:"-"` // the last field of report.json: see WriteJSON
}

// Config says what is evaluated.
type Config struct {
	Dataset, Split, Model string
	BaseURL               []string // of the servers, as the report shows them
	Samples               int      // attempts at each problem
	PassK                 int      // the largest k, at most Samples
	// Vote is an attempt's extracted answer as it is written for maj@k. It is asked only
	// where there is an answer; nil: the answer as it stands.
	Vote func(*traj.Trajectory) string
	// ReadsAnswer reports whether a trajectory's reward reads an answer out of the reply, so that it
	// can be missing; nil: each does.
	ReadsAnswer func(t *traj.Trajectory) bool
	// Same reports whether two votes for the problem of a trajectory count as one; nil:
	// where they are written alike.
	Same func(t *traj.Trajectory, a, b string) bool
	// Spool opens room for the problems of a long evaluation; whoever gives it
	// closes it, when the report has been written. It is asked when they take half a
	// megabyte. nil, and where it fails: memory holds them.
	Spool  func() (Spool, error)
	Notice func(string) // is told that it failed; nil: nobody is
}

// Tally gathers an evaluation's trajectories. It is used by one goroutine.
type Tally struct {
	c                  Config
	open               map[string]*Problem // of which attempts are expected
	most               int                 // of those; when they are more their parts join the others
	done               store               // the others
	ends               map[traj.Termination]int
	all                int
	prompt, completion int64
}

// New returns an empty tally.
func New(c Config) *Tally {
	if c.Vote == nil {
		c.Vote = func(t *traj.Trajectory) string { return *t.Extracted }
	}
	return &Tally{c: c, open: map[string]*Problem{}, most: mostOpen, ends: map[traj.Termination]int{},
		done: store{full: pieceSize, open: c.Spool, notice: c.Notice}}
}

// mostOpen is more than a run plays at once: only a run that is resumed with more
// attempts has so many.
const mostOpen = 1 << 14

// Add counts one trajectory.
func (y *Tally) Add(t *traj.Trajectory) {
	p := y.open[t.Task.ID]
	if p == nil {
		p = &Problem{ID: strings.Clone(t.Task.ID), env: strings.Clone(t.Task.Env)}
		y.open[p.ID] = p
	}
	y.count(p, t)
	if p.N+p.Failed+p.Cancelled >= y.c.Samples {
		y.done.add(p)
		delete(y.open, p.ID)
	} else if len(y.open) > y.most {
		for _, p := range y.open {
			y.done.add(p)
		}
		clear(y.open)
	}
}

// observedTokens are the tokens behind the first prompt that the model did not sample, in
// the last prompt that it saw and its reply.
func observedTokens(t *traj.Trajectory) int {
	if len(t.Steps) == 0 {
		return 0
	}
	last := t.Steps[len(t.Steps)-1]
	return max(0, last.PromptTokens+last.CompletionTokens-t.PromptTokens-t.CompletionTokens)
}

func (y *Tally) count(p *Problem, t *traj.Trajectory) {
	y.all++
	y.ends[t.Termination]++
	for _, s := range t.Steps {
		y.prompt += int64(s.PromptTokens)
	}
	y.completion += int64(t.CompletionTokens)
	switch {
	case t.Termination == traj.Cancelled:
		p.Cancelled++
		return
	case t.Termination.Infrastructure():
		p.Failed++
		return
	}
	for i, s := range t.Steps {
		p.sums.calls += s.ToolCalls
		p.sums.callErrors += s.ToolErrors
		if i < len(t.Steps)-1 || callsRan(t.Termination) {
			p.sums.validCalls += s.ToolCalls - s.ToolErrors
		}
		if n := s.ToolMalformed; n != nil && *n > 0 {
			p.sums.badTurns++
		}
	}
	if t.Termination == traj.Answered {
		p.sums.answered++
	}
	p.sums.observed += observedTokens(t)
	p.sums.turns += t.Turns()
	p.sums.completion += t.CompletionTokens
	g := graded{attempt: t.Attempt, none: t.Extracted == nil}
	switch {
	case t.Correct != nil:
		g.correct = *t.Correct
	case t.Reward != nil:
		g.correct = *t.Reward >= 1
	}
	p.N++
	if g.correct {
		p.C++
	}
	switch {
	case g.none && y.c.ReadsAnswer != nil && !y.c.ReadsAnswer(t):
		p.sums.unread++
	case g.none:
		p.sums.unanswered++
	default:
		p.Answers.add(*t.Extracted, 1)
	}
	p.looks.count(t, g.correct)
	if t.Verdict == undecided {
		p.sums.undecided++
	}
	switch t.Termination {
	case traj.MaxTokens, traj.TurnLength, traj.PromptTooLong:
		p.sums.cut++
	}
	if t.Reward != nil {
		p.rewardSum += *t.Reward
		p.rewardN++
	}
	if y.c.PassK > 1 { // nothing else asks for single attempts
		if !g.none {
			g.answer = y.vote(t, p.attempts)
		}
		p.attempts = append(p.attempts, g)
	}
}

// vote is what a trajectory's answer counts as: an earlier answer to the problem that
// is the same, or its own.
func (y *Tally) vote(t *traj.Trajectory, earlier []graded) string {
	own := y.c.Vote(t)
	tried := map[string]bool{}
	for _, g := range earlier {
		if g.none || tried[g.answer] {
			continue
		}
		tried[g.answer] = true
		if g.answer == own || y.c.Same != nil && y.c.Same(t, g.answer, own) {
			return g.answer
		}
	}
	return strings.Clone(own)
}

// Report is what the trajectories so far come to. The error is the Spool's: what is
// on it could not be read.
func (y *Tally) Report() (*Report, error) {
	r := &Report{Schema: 1, Dataset: y.c.Dataset, Split: y.c.Split, Model: y.c.Model, BaseURL: y.c.BaseURL, Samples: y.c.Samples,
		Trajectories: y.all, Metrics: map[string]Estimate{}, Terminations: y.ends, Tokens: Tokens{Prompt: y.prompt, Completion: y.completion},
		Rates: map[string]*float64{}, RatesStdErr: map[string]*float64{}, RatesBound: map[string]float64{}}
	list, err := y.problems()
	if err != nil {
		return nil, err
	}
	r.PerProblem, r.Problems = list, list.Len()
	// Two passes, as the errors want the means first.
	e, apart := newEstimates(y.c.PassK), apart{}
	err = list.each(false, func(p *Problem) bool {
		r.LeftOut += p.Failed + p.Cancelled
		if p.N < y.c.Samples {
			r.Incomplete++
		}
		e.add(p)
		apart.of(p).add(p)
		return true
	})
	if err == nil {
		err = list.each(false, func(p *Problem) bool { e.again(p); apart.of(p).again(p); return true })
	}
	if err != nil {
		return nil, err
	}
	e.into(r)
	apart.into(r)
	return r, nil
}

// problems are those of which no attempt is expected any more, and the others.
func (y *Tally) problems() (Problems, error) {
	y.done.last()
	all := y.done // a copy: those that are open may go on
	all.piece, all.pieces, all.scratch = nil, slices.Clip(all.pieces), nil
	for _, id := range slices.Sorted(maps.Keys(y.open)) {
		all.add(y.open[id])
	}
	list, err := all.sorted(func(p *Problem) float64 {
		if y.c.PassK > 1 && p.N >= y.c.PassK {
			return p.majAtK(y.c.PassK)
		}
		return 0
	})
	y.done.open, y.done.spool, y.done.end = all.open, all.spool, all.end
	return list, err
}

// WriteJSON writes report.json, one problem after the other: of a long evaluation
// they are nearly all of it.
func (r *Report) WriteJSON(w io.Writer) error {
	head, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	b := bufio.NewWriter(w)
	_, _ = b.Write(bytes.TrimSuffix(head, []byte("\n}")))
	_, _ = b.WriteString(",\n  \"per_problem\": [")
	between := "\n    "
	for p, err := range r.PerProblem.All() {
		if err != nil {
			return err
		}
		one, err := json.MarshalIndent(p, "    ", "  ")
		if err != nil {
			return err
		}
		_, _ = b.WriteString(between)
		_, _ = b.Write(one)
		between = ",\n    "
	}
	if r.PerProblem.Len() > 0 {
		_, _ = b.WriteString("\n  ")
	}
	_, _ = b.WriteString("]\n}\n")
	return b.Flush() // the first error of all of them
}
