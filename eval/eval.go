// Package eval turns trajectories into an evaluation's report: pass@k, pass^k
// and maj@k with their standard errors over problems, rates, and a summary of
// each problem. What failed for infrastructure reasons counts as no attempt.
//
// It is pure: no files, no clock, no randomness that is not seeded. It is floor
// 1: of this module it may import traj only. How answers are compared comes in
// through Config.Vote.
package eval

import (
	"encoding/json"
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"

	"agentcli/traj"
)

// Problem is one problem's summary.
type Problem struct {
	ID       string         `json:"id"`
	N        int            `json:"n"` // attempts that count
	C        int            `json:"c"` // of them correct
	Failed   int            `json:"failed,omitempty"`
	Answers  map[string]int `json:"answers"`
	attempts []graded
}

// Tokens are what the trajectories took.
type Tokens struct {
	Prompt        int64    `json:"prompt"`
	Completion    int64    `json:"completion"`
	PerTrajectory *float64 `json:"completion_per_trajectory"`
}

// Report is report.json, schema version 1.
type Report struct {
	Schema       int                      `json:"schema"`
	Dataset      string                   `json:"dataset"`
	Split        string                   `json:"split,omitempty"`
	Model        string                   `json:"model"`
	Problems     int                      `json:"problems"`
	Samples      int                      `json:"samples"`
	Trajectories int                      `json:"trajectories"`
	Incomplete   int                      `json:"incomplete"` // problems short of attempts that count
	Metrics      map[string]Estimate      `json:"metrics"`
	MetricOrder  []string                 `json:"-"`
	Reward       Estimate                 `json:"reward"`
	Rates        map[string]*float64      `json:"rates"`
	Tokens       Tokens                   `json:"tokens"`
	Turns        *float64                 `json:"turns_per_trajectory"`
	Terminations map[traj.Termination]int `json:"terminations"`
	PerProblem   []*Problem               `json:"per_problem"`
}

// Config says what is evaluated.
type Config struct {
	Dataset, Split, Model string
	Samples               int // attempts at each problem
	PassK                 int // the largest k, at most Samples
	// Vote is an attempt's extracted answer as it counts for maj@k: equal where
	// the reward takes two for the same. It is asked only where there is an
	// answer; nil: the answer as it is written.
	Vote func(*traj.Trajectory) string
}

// Tally gathers an evaluation's trajectories, a few bytes of each. It is used by
// one goroutine.
type Tally struct {
	c                  Config
	byID               map[string]*Problem
	order              []string
	ends               map[traj.Termination]int
	all, failed        int
	unanswered, cut    int
	calls, callErrors  int
	prompt, completion int64
	turns              int
	rewardSum, rewardN map[string]float64
}

// New returns an empty tally.
func New(c Config) *Tally {
	if c.Vote == nil {
		c.Vote = func(t *traj.Trajectory) string { return *t.Extracted }
	}
	return &Tally{c: c, byID: map[string]*Problem{}, ends: map[traj.Termination]int{}, rewardSum: map[string]float64{}, rewardN: map[string]float64{}}
}

// Add counts one trajectory.
func (y *Tally) Add(t *traj.Trajectory) {
	p := y.byID[t.Task.ID]
	if p == nil {
		p = &Problem{ID: t.Task.ID, Answers: map[string]int{}}
		y.byID[t.Task.ID] = p
		y.order = append(y.order, t.Task.ID)
	}
	y.all++
	y.ends[t.Termination]++
	y.turns += t.Turns()
	for _, s := range t.Steps {
		y.calls += s.ToolCalls
		y.callErrors += s.ToolErrors
		y.prompt += int64(s.PromptTokens)
	}
	y.completion += int64(t.CompletionTokens)
	if t.Termination.Infrastructure() {
		y.failed++
		p.Failed++
		return
	}
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
		y.unanswered++
	} else {
		g.answer = y.c.Vote(t)
		p.Answers[*t.Extracted]++
	}
	switch t.Termination {
	case traj.MaxTokens, traj.TurnLength, traj.PromptTooLong:
		y.cut++
	}
	if t.Reward != nil {
		y.rewardSum[p.ID] += *t.Reward
		y.rewardN[p.ID]++
	}
	p.attempts = append(p.attempts, g)
}

// Report is what the trajectories so far come to.
func (y *Tally) Report() *Report {
	r := &Report{Schema: 1, Dataset: y.c.Dataset, Split: y.c.Split, Model: y.c.Model, Problems: len(y.order), Samples: y.c.Samples,
		Trajectories: y.all, Metrics: map[string]Estimate{}, Terminations: y.ends, PerProblem: make([]*Problem, 0, len(y.order)),
		Tokens: Tokens{Prompt: y.prompt, Completion: y.completion, PerTrajectory: ratio(float64(y.completion), float64(y.all))},
		Turns:  ratio(float64(y.turns), float64(y.all))}
	sort.Slice(y.order, func(i, j int) bool { return naturalLess(y.order[i], y.order[j]) })
	var means []float64
	for _, id := range y.order {
		p := y.byID[id]
		r.PerProblem = append(r.PerProblem, p)
		if p.N < y.c.Samples {
			r.Incomplete++
		}
		if y.rewardN[id] > 0 {
			means = append(means, y.rewardSum[id]/y.rewardN[id])
		}
	}
	r.Reward = Mean(means)
	metric := func(name string, k int, f func(*Problem) float64) {
		var values []float64
		for _, p := range r.PerProblem {
			if p.N >= k { // a problem short of attempts has no such number
				values = append(values, f(p))
			}
		}
		r.Metrics[name] = Mean(values)
		r.MetricOrder = append(r.MetricOrder, name)
	}
	for _, k := range Ks(y.c.PassK) {
		metric(fmt.Sprintf("pass@%d", k), k, func(p *Problem) float64 { return PassAtK(p.N, p.C, k) })
	}
	if k := y.c.PassK; k > 1 {
		metric(fmt.Sprintf("maj@%d", k), k, func(p *Problem) float64 { return p.majAtK(k) })
		metric(fmt.Sprintf("pass^%d", k), k, func(p *Problem) float64 { return PassHatK(p.N, p.C, k) })
	}
	good := float64(y.all - y.failed)
	r.Rates = map[string]*float64{
		"no_answer":            ratio(float64(y.unanswered), good),
		"truncated":            ratio(float64(y.cut), good),
		"infrastructure_error": ratio(float64(y.failed), float64(y.all)),
		"tool_error":           ratio(float64(y.callErrors), float64(y.calls)),
	}
	return r
}

func ratio(a, b float64) *float64 {
	if b == 0 {
		return nil
	}
	v := a / b
	return &v
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

// WriteJSON writes report.json.
func (r *Report) WriteJSON(w io.Writer) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}
