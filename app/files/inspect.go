package files

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"sort"
	"strings"

	"agentcli/app/console"
	"agentcli/app/report"
	"agentcli/app/rundir"
	"agentcli/app/termimage"
	"agentcli/eval"
	"agentcli/internal/exit"
	"agentcli/internal/text"
	"agentcli/lossscale"
	"agentcli/parquet"
	"agentcli/traj"
)

// InspectOptions say what is shown of a file.
type InspectOptions struct {
	Path      string
	ID        string
	JSON      bool
	Tokens    bool
	Tokenizer string
	LossScale string // of a training, whose weights of tokens are shown; "": those of the file
	Color     bool
	HTML      bool               // a page of the trajectories, in place of text
	Limit     int                // trajectories of the page; 0: all
	Draw      termimage.Protocol // images of the trajectory in its text
	Images    string             // folder that the images of the trajectory are written into; "": none
}

// anyCorrect, in the place of an ID, is the first trajectory that is correct.
const anyCorrect = "correct"

// openRows opens a file of trajectories that the user names.
func openRows(path string) (*parquet.Reader, error) {
	if err := rundir.CheckNotFolder(path, "a Parquet file"); err != nil {
		return nil, err
	}
	return parquet.Open(path)
}

// Inspect prints a summary of a file, or one trajectory of it.
func Inspect(ctx context.Context, o InspectOptions, s console.Streams) error {
	r, err := openRows(o.Path)
	if err != nil {
		return err
	}
	defer r.Close()
	if o.HTML {
		return inspectPage(ctx, r, o, s)
	}
	if o.ID == "" {
		return inspectFile(ctx, r, o, s)
	}
	var some []string
	for t, err := range r.Rows(ctx) {
		if err != nil {
			return err
		}
		if t.ID == o.ID || (o.ID == anyCorrect && t.Correct != nil && *t.Correct) {
			if o.Images != "" {
				if err := saveImages(t, o, s); err != nil {
					return err
				}
			}
			return inspectOne(t, r.Metadata(), o, s)
		}
		if t.Task.ID == o.ID || len(some) < 3 {
			some = append(some, t.ID)
		}
	}
	if len(some) > 4 {
		some = some[len(some)-4:]
	}
	if o.ID == anyCorrect {
		return fmt.Errorf("%s: no trajectory is correct; there is %s", o.Path, strings.Join(some, ", "))
	}
	return exit.Usagef("%s: there is no trajectory %q; there is %s", o.Path, o.ID, strings.Join(some, ", "))
}

// fileSummary is what inspect says of a whole file.
type fileSummary struct {
	File         string             `json:"file"`
	Trajectories int                `json:"trajectories"`
	Groups       int                `json:"groups"`
	Scored       int                `json:"scored"`
	Bad          int                `json:"bad_rewards,omitempty"` // that are no number: not scored, and in no mean
	FirstBad     string             `json:"first_bad_reward,omitempty"`
	Reward       *groupMean         `json:"reward"`
	Pass1        *groupMean         `json:"pass@1"`
	MixedGroups  int                `json:"groups_with_both_outcomes"`
	Trainable    int                `json:"trainable"`
	TrainTokens  int64              `json:"trainable_tokens"`
	LeftOut      int                `json:"left_out"` // failed or cancelled: not in the tokens and turns
	Terminations map[string]int     `json:"terminations"`
	Tokens       map[string]*spread `json:"tokens"`
	Turns        *spread            `json:"turns"`
	ToolCalls    int                `json:"tool_calls"`
	ToolErrors   int                `json:"tool_errors"`
	Policies     map[string]int     `json:"policies"`
	Weights      *tokenWeights      `json:"loss_weights,omitempty"` // nil: every token weighs 1
	Scheduler    *told              `json:"scheduler,omitempty"`    // nil: the file has nothing of one
	Run          json.RawMessage    `json:"run,omitempty"`
	groups       map[string][]float64
	right        map[string][]float64
	learned      string // what TrainTokens counts
}

// groupMean is a mean with its standard error over groups; the error is nil for
// a single group.
type groupMean struct {
	Value  float64  `json:"value"`
	StdErr *float64 `json:"stderr"`
	Bound  *float64 `json:"bound95,omitempty"` // see eval.Bound
}

// spread is the mean and the ends of a number, with the mean's standard error
// over groups.
type spread struct {
	Mean   float64  `json:"mean"`
	StdErr *float64 `json:"stderr"`
	Min    int      `json:"min"`
	Max    int      `json:"max"`
	n      int
	groups map[string][2]float64 // sum and count
}

func (s *spread) add(group string, v int) {
	if s.n == 0 || v < s.Min {
		s.Min = v
	}
	if s.n == 0 || v > s.Max {
		s.Max = v
	}
	s.n++
	if s.groups == nil {
		s.groups = map[string][2]float64{}
	}
	g := s.groups[group]
	s.groups[group] = [2]float64{g[0] + float64(v), g[1] + 1}
}

// finish settles the mean.
func (s *spread) finish() {
	var sums, counts []float64
	for _, k := range slices.Sorted(maps.Keys(s.groups)) { // sums do not depend on the order of a map
		sums, counts = append(sums, s.groups[k][0]), append(counts, s.groups[k][1])
	}
	if e := eval.Ratio(sums, counts); e.Value != nil {
		s.Mean, s.StdErr = *e.Value, e.StdErr
	}
}

// overGroups averages within each group, then over the groups.
func overGroups(groups map[string][]float64) *groupMean {
	if len(groups) == 0 {
		return nil
	}
	keys := make([]string, 0, len(groups))
	for k := range groups {
		keys = append(keys, k)
	}
	sort.Strings(keys) // sums do not depend on the order of a map
	means := make([]float64, 0, len(keys))
	for _, k := range keys {
		m := 0.0
		for _, v := range groups[k] {
			m += v
		}
		means = append(means, m/float64(len(groups[k])))
	}
	e := eval.Share(means)
	return &groupMean{Value: *e.Value, StdErr: e.StdErr, Bound: e.Bound}
}

func inspectFile(ctx context.Context, r *parquet.Reader, o InspectOptions, s console.Streams) error {
	f := fileSummary{File: o.Path, Terminations: map[string]int{}, Policies: map[string]int{}, Turns: &spread{},
		Tokens: map[string]*spread{"prompt": {}, "completion": {}}, Run: r.Metadata().Run,
		groups: map[string][]float64{}, right: map[string][]float64{}, learned: "sampled token"}
	weigh, err := openWeighing(o, policyPath("", r.Metadata()))
	if err != nil {
		return err
	}
	columns := []string{"id", "task_id", "group_id", "policy", "policy_version", "steps", "sequences", "reward", "correct", "termination",
		"prompt_tokens", "completion_tokens", parquet.ColumnInfos, parquet.ColumnLossWeights}
	if weigh.needsMessages() {
		columns = append(columns, "messages")
	}
	if weigh != nil || slices.Contains(r.Columns(), parquet.ColumnLossWeights) {
		f.Weights = &tokenWeights{}
	}
	if slices.Contains(r.Columns(), parquet.ColumnInfos) {
		f.Scheduler = &told{}
	}
	if weigh != nil && weigh.strategy == lossscale.All {
		f.learned = "token"
	}
	seen := map[string]bool{}
	for t, err := range r.RowsAhead(ctx, runtime.GOMAXPROCS(0), columns...) {
		if err != nil {
			return err
		}
		weigh.apply(t)
		f.add(t, seen)
	}
	weigh.note(s)
	f.Groups = len(seen)
	for _, s := range []*spread{f.Tokens["prompt"], f.Tokens["completion"], f.Turns} {
		s.finish()
	}
	f.Reward, f.Pass1 = overGroups(f.groups), overGroups(f.right)
	for _, rs := range f.groups {
		for _, v := range rs {
			if v != rs[0] {
				f.MixedGroups++
				break
			}
		}
	}
	if o.JSON {
		return console.WriteJSON(s.Out, f)
	}
	return f.write(s.Out, console.Painter(o.Color))
}

func (f *fileSummary) add(t *traj.Trajectory, seen map[string]bool) {
	f.Trajectories++
	seen[t.GroupID] = true
	f.Terminations[string(t.Termination)]++
	f.Policies[fmt.Sprintf("%s@%d", t.Policy, t.PolicyVersion)]++
	scored := t.Reward != nil && traj.Finite(*t.Reward)
	switch {
	case scored:
		f.Scored++
		f.groups[t.GroupID] = append(f.groups[t.GroupID], *t.Reward)
	case t.Reward != nil:
		if f.Bad++; f.Bad == 1 {
			f.FirstBad = cmp.Or(t.ID, fmt.Sprintf("row %d", f.Trajectories))
		}
	}
	if t.Correct != nil {
		v := 0.0
		if *t.Correct {
			v = 1
		}
		f.right[t.GroupID] = append(f.right[t.GroupID], v)
	}
	sampled := 0
	for i := range t.Sequences {
		sampled += t.Sequences[i].Trained()
	}
	if sampled > 0 && scored && !t.Termination.Infrastructure() {
		f.Trainable++
		f.TrainTokens += int64(sampled)
	}
	if t.Termination.Infrastructure() {
		f.LeftOut++
	} else {
		f.Tokens["prompt"].add(t.GroupID, t.PromptTokens)
		f.Tokens["completion"].add(t.GroupID, t.CompletionTokens)
		f.Turns.add(t.GroupID, t.Turns())
	}
	if f.Scheduler != nil {
		f.Scheduler.add(t)
	}
	if f.Weights != nil && !t.Termination.Infrastructure() {
		f.Weights.add(t)
	}
	for i := range t.Steps {
		f.ToolCalls += t.Steps[i].ToolCalls
		f.ToolErrors += t.Steps[i].ToolErrors
	}
}

func (f *fileSummary) write(out io.Writer, p console.Painter) error {
	b := bufio.NewWriter(out)
	fmt.Fprintln(b, p.Bold(f.File))
	var rows [][]string
	line := func(k, format string, args ...any) { rows = append(rows, []string{k, fmt.Sprintf(format, args...)}) }
	line("trajectories", "%d in %s, %d scored", f.Trajectories, text.Plural(f.Groups, "group"), f.Scored)
	if f.Bad > 0 {
		line("bad rewards", "%d, NaN or infinite, in no mean (the first: %s); train refuses the file, score it again",
			f.Bad, text.Harmless(f.FirstBad))
	}
	line("reward", "%s", f.Reward)
	line("pass@1", "%s", f.Pass1)
	line("groups with both outcomes", "%d of %d", f.MixedGroups, f.Groups)
	line("trainable", "%s, %s", text.Plural(f.Trainable, "trajectory"), text.Plural(int(f.TrainTokens), f.learned))
	if f.Weights != nil {
		line("weights in the loss", "%s", f.Weights)
	}
	if c := f.Scheduler; c != nil && c.Infos > 0 {
		line("infos", "of %s", text.Plural(c.Infos, "trajectory"))
	}
	if c := f.Scheduler; c != nil && c.Cut > 0 {
		line("cut off", "%s of %s, not trained on", text.Plural(c.CutTokens, "token"), text.Plural(c.Cut, "trajectory"))
	}
	line("prompt tokens", "%s", f.Tokens["prompt"])
	line("completion tokens", "%s", f.Tokens["completion"])
	line("turns", "%s", f.Turns)
	if f.LeftOut > 0 {
		line("left out of these", "%s that failed or were cancelled", text.Plural(f.LeftOut, "trajectory"))
	}
	line("tool calls", "%d, of which %d failed", f.ToolCalls, f.ToolErrors)
	for _, k := range traj.Terminations {
		if n := f.Terminations[string(k)]; n > 0 {
			line("ended: "+string(k), "%d (%.1f %%)", n, 100*float64(n)/float64(f.Trajectories))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(f.Policies)) {
		line("policy", "%s (%d)", k, f.Policies[k])
	}
	for _, kv := range runFacts(f.Run) {
		line(kv[0], "%s", kv[1])
	}
	if err := report.Table(b, "  ", nil, rows); err != nil {
		return err
	}
	return b.Flush()
}

func (e *groupMean) String() string {
	switch {
	case e == nil:
		return "none"
	case e.Bound != nil:
		return fmt.Sprintf("%.4f", e.Value) + report.Certainty(&e.Value, e.StdErr, e.Bound, 4)
	case e.StdErr == nil:
		return fmt.Sprintf("%.4f", e.Value)
	}
	return fmt.Sprintf("%.4f ± %.4f", e.Value, *e.StdErr)
}

func (s *spread) String() string {
	switch {
	case s.n == 0:
		return "none"
	case s.StdErr == nil:
		return fmt.Sprintf("mean %.1f, %d to %d", s.Mean, s.Min, s.Max)
	}
	return fmt.Sprintf("mean %.1f ± %.1f, %d to %d", s.Mean, *s.StdErr, s.Min, s.Max)
}

// runFacts picks from the run's configuration what a reader asks first.
func runFacts(run json.RawMessage) [][2]string {
	var m map[string]any
	if json.Unmarshal(run, &m) != nil {
		return nil
	}
	var out [][2]string
	for _, k := range []string{"command", "version", "dataset", "model", "sampling", "reward", "logprobs"} {
		v, ok := m[k]
		if !ok || v == nil || v == "" {
			continue
		}
		if words := plainWords(v); words != "" {
			out = append(out, [2]string{"run: " + k, words})
		}
	}
	return out
}

// plainWords puts a JSON value on one readable line: an object as its name and
// then each other entry that says something.
func plainWords(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case []any:
		var parts []string
		for _, e := range v {
			parts = append(parts, plainWords(e))
		}
		return strings.Join(parts, " ")
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		sort.Strings(keys)
		var parts []string
		name, _ := v["name"].(string)
		if name != "" {
			parts = append(parts, name)
		}
		for _, k := range keys {
			words := plainWords(v[k])
			if _, nested := v[k].(map[string]any); nested && words != "" {
				words = "(" + words + ")"
			}
			if words == "" || k == "name" && name != "" {
				continue
			}
			if strings.HasSuffix(k, "_hash") && len(words) > 12 {
				words = words[:12] // enough to tell two apart
			}
			parts = append(parts, strings.ReplaceAll(k, "_", " ")+" "+words)
		}
		return strings.Join(parts, ", ")
	}
	return text.Harmless(fmt.Sprint(v))
}
