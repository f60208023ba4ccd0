// Package eval turns trajectories into an evaluation's report: pass@k, pass^k
// and maj@k with their standard errors over problems, rates, and a summary of
// each problem. What failed for infrastructure reasons counts as no attempt.
//
// It is pure: no files, no clock, no randomness that is not seeded. It is floor
// 1: of this module it may import traj only. How answers are compared comes in
// through Config.Vote.
package eval

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
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
	sums      sums
	rewardSum float64
	rewardN   int
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

// sums are over the attempts that count.
type sums struct{ unanswered, cut, calls, callErrors, completion, turns int }

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
	// Vote is an attempt's extracted answer as it counts for maj@k: equal where
	// the reward takes two for the same. It is asked only where there is an
	// answer; nil: the answer as it is written.
	Vote func(*traj.Trajectory) string
}

// Tally gathers an evaluation's trajectories, a few bytes of each. It is used by
// one goroutine.
type Tally struct {
	c                  Config
	open               map[string]*Problem // of which attempts are expected
	done               packed              // the others
	closed             int                 // how many these are
	scratch            []byte
	ends               map[traj.Termination]int
	all                int
	prompt, completion int64
}

// New returns an empty tally.
func New(c Config) *Tally {
	if c.Vote == nil {
		c.Vote = func(t *traj.Trajectory) string { return *t.Extracted }
	}
	return &Tally{c: c, open: map[string]*Problem{}, ends: map[traj.Termination]int{}}
}

// Add counts one trajectory.
func (y *Tally) Add(t *traj.Trajectory) {
	p := y.open[t.Task.ID]
	if p == nil {
		p = &Problem{ID: strings.Clone(t.Task.ID)}
		y.open[p.ID] = p
	}
	y.count(p, t)
	if p.N+p.Failed+p.Cancelled >= y.c.Samples {
		y.scratch = y.done.add(p, y.scratch)
		y.closed++
		delete(y.open, p.ID)
	}
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
	for _, s := range t.Steps {
		p.sums.calls += s.ToolCalls
		p.sums.callErrors += s.ToolErrors
	}
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
	if g.none {
		p.sums.unanswered++
	} else {
		p.Answers.add(*t.Extracted, 1)
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
			g.answer = strings.Clone(y.c.Vote(t))
		}
		p.attempts = append(p.attempts, g)
	}
}

// Report is what the trajectories so far come to.
func (y *Tally) Report() *Report {
	list := y.problems()
	r := &Report{Schema: 1, Dataset: y.c.Dataset, Split: y.c.Split, Model: y.c.Model, BaseURL: y.c.BaseURL, Problems: list.Len(), Samples: y.c.Samples,
		Trajectories: y.all, Metrics: map[string]Estimate{}, Terminations: y.ends, PerProblem: list,
		Tokens: Tokens{Prompt: y.prompt, Completion: y.completion},
		Rates:  map[string]*float64{}, RatesStdErr: map[string]*float64{}, RatesBound: map[string]float64{}}
	means := make([]float64, 0, list.Len())
	for p := range list.each(false) {
		r.LeftOut += p.Failed + p.Cancelled
		if p.N < y.c.Samples {
			r.Incomplete++
		}
		if p.rewardN > 0 {
			means = append(means, p.rewardSum/float64(p.rewardN))
		}
	}
	r.Reward = Share(means)
	values := make([]float64, 0, list.Len())
	metric := func(name string, k int, f func(*Problem) float64) {
		values = values[:0]
		for p := range list.each(strings.HasPrefix(name, "maj")) {
			if p.N >= k { // a problem short of attempts has no such number
				values = append(values, f(p))
			}
		}
		r.Metrics[name] = Share(values)
		r.MetricOrder = append(r.MetricOrder, name)
	}
	for _, k := range Ks(y.c.PassK) {
		metric(fmt.Sprintf("pass@%d", k), k, func(p *Problem) float64 { return PassAtK(p.N, p.C, k) })
	}
	if k := y.c.PassK; k > 1 {
		metric(fmt.Sprintf("maj@%d", k), k, func(p *Problem) float64 { return p.majAtK(k) })
		metric(fmt.Sprintf("pass^%d", k), k, func(p *Problem) float64 { return PassHatK(p.N, p.C, k) })
	}
	as, bs := means[:0], values[:0]
	over := func(a, b func(*Problem) int) Estimate {
		as, bs = as[:0], bs[:0]
		for p := range list.each(false) {
			as, bs = append(as, float64(a(p))), append(bs, float64(b(p)))
		}
		return Ratio(as, bs)
	}
	counting := func(p *Problem) int { return p.N }
	rate := func(name string, a, b func(*Problem) int) {
		e := over(a, b)
		r.Rates[name], r.RatesStdErr[name] = e.Value, e.StdErr
		if e.Value != nil {
			if bound := Bound(*e.Value, e.Problems); bound != nil {
				r.RatesBound[name] = *bound
			}
		}
	}
	rate("no_answer", func(p *Problem) int { return p.sums.unanswered }, counting)
	rate("truncated", func(p *Problem) int { return p.sums.cut }, counting)
	rate("tool_error", func(p *Problem) int { return p.sums.callErrors }, func(p *Problem) int { return p.sums.calls })
	rate("infrastructure_error", func(p *Problem) int { return p.Failed }, func(p *Problem) int { return p.N + p.Failed + p.Cancelled })
	tokens, turns := over(func(p *Problem) int { return p.sums.completion }, counting), over(func(p *Problem) int { return p.sums.turns }, counting)
	r.Tokens.PerTrajectory, r.Tokens.StdErr = tokens.Value, tokens.StdErr
	r.Turns, r.TurnsStdErr = turns.Value, turns.StdErr
	return r
}

// naturalLess orders ids so that aime/9 comes before aime/10.
func naturalLess(a, b string) bool {
	ia, ib := strings.LastIndexAny(a, "/-_"), strings.LastIndexAny(b, "/-_")
	if a[:ia+1] == b[:ib+1] {
		na, ea := strconv.Atoi(a[ia+1:])
		nb, eb := strconv.Atoi(b[ib+1:])
		if ea == nil && eb == nil && na != nb {
			return na < nb
		}
	}
	return a < b
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
	for p := range r.PerProblem.All() {
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
