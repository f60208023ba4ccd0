package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"sort"
	"strconv"
	"strings"

	"agentcli/rewards"
	"agentcli/traj"
)

// estimate is a number and its standard error over problems; nil where it
// cannot be told (no problem is complete; fewer than two).
type estimate struct {
	Value    *float64 `json:"value"`
	StdErr   *float64 `json:"stderr"`
	Problems int      `json:"problems"` // that it is taken over
}

type problem struct {
	ID       string         `json:"id"`
	N        int            `json:"n"` // attempts that count
	C        int            `json:"c"` // of them correct
	Failed   int            `json:"failed,omitempty"`
	Answers  map[string]int `json:"answers"`
	attempts []graded
}

// graded is one attempt that counts.
type graded struct {
	attempt int
	answer  string // as it counts in a vote
	none    bool
	correct bool
}

type reportTokens struct {
	Prompt        int64    `json:"prompt"`
	Completion    int64    `json:"completion"`
	PerTrajectory *float64 `json:"completion_per_trajectory"`
}

// evalReport is report.json, schema version 1.
type evalReport struct {
	Schema       int                      `json:"schema"`
	Dataset      string                   `json:"dataset"`
	Split        string                   `json:"split,omitempty"`
	Model        string                   `json:"model"`
	Problems     int                      `json:"problems"`
	Samples      int                      `json:"samples"`
	Trajectories int                      `json:"trajectories"`
	Incomplete   int                      `json:"incomplete"` // problems short of attempts that count
	Metrics      map[string]estimate      `json:"metrics"`
	MetricOrder  []string                 `json:"-"`
	Reward       estimate                 `json:"reward"`
	Rates        map[string]*float64      `json:"rates"`
	Tokens       reportTokens             `json:"tokens"`
	Turns        *float64                 `json:"turns_per_trajectory"`
	Terminations map[traj.Termination]int `json:"terminations"`
	PerProblem   []*problem               `json:"per_problem"`
}

// tally gathers an evaluation's trajectories, a few bytes of each.
type tally struct {
	byID                 map[string]*problem
	order                []string
	ends                 map[traj.Termination]int
	all, failed          int
	unanswered, cut      int
	calls, callErrors    int
	prompt, completion   int64
	turns                int
	rewardSum, rewardN   map[string]float64
	samples, passK       int
	dataset, split, name string
	reward               func(*traj.Trajectory) string
}

// reward names the reward that a trajectory was scored by.
func newTally(dataset, split, model string, samples, passK int, reward func(*traj.Trajectory) string) *tally {
	return &tally{byID: map[string]*problem{}, ends: map[traj.Termination]int{}, rewardSum: map[string]float64{}, rewardN: map[string]float64{},
		samples: samples, passK: passK, reward: reward, dataset: dataset, split: split, name: model}
}

func (y *tally) add(t *traj.Trajectory) {
	p := y.byID[t.Task.ID]
	if p == nil {
		p = &problem{ID: t.Task.ID, Answers: map[string]int{}}
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
		g.answer = rewards.Vote(y.reward(t), *t.Extracted)
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

// ks are the k of pass@k: 1, 2, 4, 8 … and k itself.
func ks(k int) []int {
	var all []int
	for i := 1; i < k; i *= 2 {
		all = append(all, i)
	}
	return append(all, k)
}

// passAtK is the unbiased estimate 1 − C(n−c,k)/C(n,k) of the chance that at
// least one of k attempts is correct (Chen et al. 2021), as a product that
// neither overflows nor cancels.
func passAtK(n, c, k int) float64 {
	if n-c < k {
		return 1
	}
	q := 1.0
	for i := n - c + 1; i <= n; i++ {
		q *= 1 - float64(k)/float64(i)
	}
	return 1 - q
}

// passHatK is C(c,k)/C(n,k): the chance that all of k attempts are correct.
func passHatK(n, c, k int) float64 {
	q := 1.0
	for i := range k {
		q *= float64(c-i) / float64(n-i)
		if q <= 0 {
			return 0
		}
	}
	return q
}

// majSubsets is how many random subsets maj@k is averaged over where there are
// more than k attempts.
const majSubsets = 400

// majAtK is the chance that the most frequent answer of k attempts is correct,
// where what the reward takes for the same is one answer;
// a tie is broken at random, and an attempt without an answer has no vote.
func majAtK(p *problem, k int) float64 {
	sort.Slice(p.attempts, func(i, j int) bool { return p.attempts[i].attempt < p.attempts[j].attempt })
	if len(p.attempts) == k {
		return majority(p.attempts)
	}
	rng := rand.New(rand.NewPCG(1, uint64(len(p.attempts))))
	pick := append([]graded(nil), p.attempts...)
	sum := 0.0
	for range majSubsets {
		for i := range k { // the first k of a Fisher–Yates shuffle
			j := i + rng.IntN(len(pick)-i)
			pick[i], pick[j] = pick[j], pick[i]
		}
		sum += majority(pick[:k])
	}
	return sum / majSubsets
}

func majority(attempts []graded) float64 {
	votes, right := map[string]int{}, map[string]bool{}
	most := 0
	for _, a := range attempts {
		if a.none {
			continue
		}
		votes[a.answer]++
		right[a.answer] = right[a.answer] || a.correct
		most = max(most, votes[a.answer])
	}
	tied, good := 0, 0
	for answer, n := range votes {
		if n == most {
			tied++
			if right[answer] {
				good++
			}
		}
	}
	if tied == 0 {
		return 0
	}
	return float64(good) / float64(tied)
}

// over is the mean of values, one a problem, and its standard error.
func over(values []float64) estimate {
	e := estimate{Problems: len(values)}
	if len(values) == 0 {
		return e
	}
	mean := 0.0
	for _, v := range values {
		mean += v
	}
	mean /= float64(len(values))
	e.Value = &mean
	if n := float64(len(values)); n > 1 {
		sq := 0.0
		for _, v := range values {
			sq += (v - mean) * (v - mean)
		}
		se := math.Sqrt(sq / (n - 1) / n)
		e.StdErr = &se
	}
	return e
}

func (y *tally) report() *evalReport {
	r := &evalReport{Schema: 1, Dataset: y.dataset, Split: y.split, Model: y.name, Problems: len(y.order), Samples: y.samples,
		Trajectories: y.all, Metrics: map[string]estimate{}, Terminations: y.ends, PerProblem: make([]*problem, 0, len(y.order)),
		Tokens: reportTokens{Prompt: y.prompt, Completion: y.completion, PerTrajectory: ratio(float64(y.completion), float64(y.all))},
		Turns:  ratio(float64(y.turns), float64(y.all))}
	sort.Slice(y.order, func(i, j int) bool { return naturalLess(y.order[i], y.order[j]) })
	var means []float64
	for _, id := range y.order {
		p := y.byID[id]
		r.PerProblem = append(r.PerProblem, p)
		if p.N < y.samples {
			r.Incomplete++
		}
		if y.rewardN[id] > 0 {
			means = append(means, y.rewardSum[id]/y.rewardN[id])
		}
	}
	r.Reward = over(means)
	metric := func(name string, k int, f func(*problem) float64) {
		var values []float64
		for _, p := range r.PerProblem {
			if p.N >= k { // a problem short of attempts has no such number
				values = append(values, f(p))
			}
		}
		r.Metrics[name] = over(values)
		r.MetricOrder = append(r.MetricOrder, name)
	}
	for _, k := range ks(y.passK) {
		metric(fmt.Sprintf("pass@%d", k), k, func(p *problem) float64 { return passAtK(p.N, p.C, k) })
	}
	if k := y.passK; k > 1 {
		metric(fmt.Sprintf("maj@%d", k), k, func(p *problem) float64 { return majAtK(p, k) })
		metric(fmt.Sprintf("pass^%d", k), k, func(p *problem) float64 { return passHatK(p.N, p.C, k) })
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

var reportFormats = []string{"table", "json", "csv", "markdown"}

func (r *evalReport) write(w io.Writer, format string) error {
	switch format {
	case "json":
		return r.json(w)
	case "csv":
		return r.csv(w)
	case "markdown":
		return r.markdown(w)
	}
	return r.table(w)
}

func (r *evalReport) json(w io.Writer) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

func (r *evalReport) csv(w io.Writer) error {
	c := csv.NewWriter(w)
	_ = c.Write([]string{"dataset", "model", "metric", "value", "stderr", "problems", "samples"})
	for _, name := range r.MetricOrder {
		m := r.Metrics[name]
		_ = c.Write([]string{r.Dataset, r.Model, name, number(m.Value, -1), number(m.StdErr, -1), strconv.Itoa(m.Problems), strconv.Itoa(r.Samples)})
	}
	c.Flush()
	return c.Error()
}

func number(v *float64, decimals int) string {
	if v == nil {
		return ""
	}
	return strconv.FormatFloat(*v, 'f', decimals, 64)
}

func dash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

func (r *evalReport) title() string {
	return fmt.Sprintf("%s · %s · %s × %s", r.Dataset, r.Model, plural(r.Problems, "problem"), plural(r.Samples, "sample"))
}

func plural(n int, word string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(word, "y"):
		word = strings.TrimSuffix(word, "y") + "ies"
	default:
		word += "s"
	}
	return fmt.Sprintf("%d %s", n, word)
}

func (r *evalReport) markdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "**%s**\n\n| metric | value | ± |\n|---|---:|---:|\n", r.title())
	for _, name := range r.MetricOrder {
		m := r.Metrics[name]
		fmt.Fprintf(&b, "| %s | %s | %s |\n", name, dash(number(m.Value, 3)), dash(number(m.StdErr, 3)))
	}
	fmt.Fprintf(&b, "\n%s\n", strings.Join(r.notes(), "; "))
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *evalReport) table(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", r.title())
	for _, name := range r.MetricOrder {
		m := r.Metrics[name]
		fmt.Fprintf(&b, "  %-9s %6s ± %-6s\n", name, dash(number(m.Value, 3)), dash(number(m.StdErr, 3)))
	}
	b.WriteByte('\n')
	for _, line := range r.notes() {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *evalReport) notes() []string {
	var ends []string
	for _, t := range traj.Terminations {
		if n := r.Terminations[t]; n > 0 {
			ends = append(ends, fmt.Sprintf("%s %d", t, n))
		}
	}
	percent := func(name string) string {
		if v := r.Rates[name]; v != nil {
			return fmt.Sprintf("%.1f %%", 100**v)
		}
		return "–"
	}
	notes := []string{
		"ended: " + strings.Join(ends, ", "),
		fmt.Sprintf("no answer %s, truncated %s, tool errors %s", percent("no_answer"), percent("truncated"), percent("tool_error")),
		fmt.Sprintf("%s turns and %s tokens a trajectory", dash(number(r.Turns, 2)), dash(number(r.Tokens.PerTrajectory, 1))),
	}
	if r.Incomplete > 0 {
		notes = append(notes, fmt.Sprintf("%s incomplete: an attempt failed for infrastructure reasons or was never made, and counts nowhere",
			plural(r.Incomplete, "problem")))
	}
	return notes
}
