package trainer

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"agentcli/parquet"
	"agentcli/traj"
)

// Skipped counts the rows that cannot be trained on, by reason.
type Skipped struct {
	Rows    int
	Reasons map[string]int
	Example map[string]string // the first row of each reason
}

// Add counts one row.
func (s *Skipped) Add(reason, id string) {
	if s.Reasons == nil {
		s.Reasons, s.Example = map[string]int{}, map[string]string{}
	}
	if s.Reasons[reason] == 0 {
		s.Example[reason] = id
	}
	s.Rows++
	s.Reasons[reason]++
}

// String lists the reasons, the most frequent first.
func (s *Skipped) String() string {
	reasons := make([]string, 0, len(s.Reasons))
	for r := range s.Reasons {
		reasons = append(reasons, r)
	}
	sort.Slice(reasons, func(i, j int) bool {
		a, b := reasons[i], reasons[j]
		return s.Reasons[a] > s.Reasons[b] || (s.Reasons[a] == s.Reasons[b] && a < b)
	})
	for i, r := range reasons {
		reasons[i] = fmt.Sprintf("%d %s (first: %s)", s.Reasons[r], r, s.Example[r])
	}
	return strings.Join(reasons, "; ")
}

// Data is what the files held.
type Data struct {
	Files    []string
	Episodes []*Episode
	Skipped  Skipped
	Policies []Policy    // that the rows name, else their file, in order of appearance
	Runs     []RunSource // of each file
	Pairs    []Pair      // where the rows are pairs; nil: groups of trajectories make them

	Ungrouped []string // files without a column group_id
}

// Policy is a model that sampled rows.
type Policy struct{ Name, File string } // File is the first that names it

// sampledBy notes the policy of a row.
func (d *Data) sampledBy(name, file string) {
	if name != "" && !slices.ContainsFunc(d.Policies, func(p Policy) bool { return p.Name == name }) {
		d.Policies = append(d.Policies, Policy{name, file})
	}
}

// RunSource is the part of a file's agentcli.run that training looks at; every
// field may be missing, for a file written by somebody else.
type RunSource struct {
	Model struct {
		Name          string `json:"name"`
		Kind          string `json:"kind"` // local or server
		TokenizerHash string `json:"tokenizer_hash"`
		TemplateHash  string `json:"template_hash"`
	} `json:"model"`
	Sampling traj.Sampling `json:"sampling"`
}

// Filtered says in words where the rows were not sampled from the model's own
// distribution, or "" where they were.
func (r RunSource) Filtered() string {
	var how []string
	if r.Model.Kind == "server" && (r.Sampling.Temperature == nil || r.Sampling.TopP == 0) {
		how = append(how, "the server's own defaults")
	}
	if t := r.Sampling.Temperature; t != nil && *t != 1 {
		how = append(how, fmt.Sprintf("temperature %g", *t))
	}
	if p := r.Sampling.TopP; p > 0 && p < 1 {
		how = append(how, fmt.Sprintf("top_p %g", p))
	}
	if r.Sampling.TopK > 0 {
		how = append(how, fmt.Sprintf("top_k %d", r.Sampling.TopK))
	}
	if r.Sampling.MinP > 0 {
		how = append(how, fmt.Sprintf("min_p %g", r.Sampling.MinP))
	}
	return strings.Join(how, ", ")
}

// columns that training reads.
var columns = []string{"id", "group_id", "task_id", "dataset", "policy", "sequences", "steps", "reward", "reward_parts", "termination", "turns", "meta"}

// scoredBy are the columns that a reward looks at.
var scoredBy = []string{"question", "answer", "messages"}

// Load reads trajectory files; a pattern with *, ? or [ names several.
func Load(ctx context.Context, patterns []string) (*Data, error) {
	return load(ctx, patterns, needs{reward: true, group: true}, nil)
}

// needs says what a row must have to be trained on, and what makes its reward.
type needs struct {
	reward, group bool
	score         Score
}

// load reads files, each as trajectories unless text takes it.
func load(ctx context.Context, patterns []string, need needs, text func(d *Data, path string) (taken bool, err error)) (*Data, error) {
	d := &Data{}
	for _, p := range patterns {
		files := []string{p}
		if strings.ContainsAny(p, "*?[") {
			var err error
			if files, err = filepath.Glob(p); err != nil || len(files) == 0 {
				return nil, fmt.Errorf("%s: no file matches the pattern", p)
			}
		}
		for _, f := range files {
			// Overlapping patterns name a file twice; its rows count once.
			if f = filepath.Clean(f); !slices.Contains(d.Files, f) {
				d.Files = append(d.Files, f)
			}
		}
	}
	d.Runs = make([]RunSource, len(d.Files))
	seen := map[string]string{}
	for i, f := range d.Files {
		if text != nil {
			if taken, err := text(d, f); err != nil {
				return nil, err
			} else if taken {
				continue
			}
		}
		if err := d.loadFile(ctx, f, &d.Runs[i], seen, need); err != nil {
			return nil, err
		}
	}
	return d, d.empty()
}

func (d *Data) empty() error {
	switch {
	case len(d.Episodes) > 0:
		return nil
	case d.Skipped.Rows == 0:
		return fmt.Errorf("%s: there are no rows to train on", strings.Join(d.Files, ", "))
	}
	return fmt.Errorf("%s: none of the %d rows can be trained on: %s", strings.Join(d.Files, ", "), d.Skipped.Rows, d.Skipped.String())
}

// DropLong leaves out the rows that do not fit into the model's window; that
// nothing remains is an error.
func (d *Data) DropLong(window int) error {
	d.Episodes = slices.DeleteFunc(d.Episodes, func(e *Episode) bool {
		long := slices.ContainsFunc(e.Sequences, func(s traj.Sequence) bool { return len(s.TokenIDs) > window })
		if long {
			d.Skipped.Add(fmt.Sprintf("longer than the model's window of %d tokens", window), e.ID)
		}
		return long
	})
	return d.empty()
}

// CheckTokens names the first row with a token id that the model does not have.
func (d *Data) CheckTokens(vocab int) error {
	for _, e := range d.Episodes {
		for i, s := range e.Sequences {
			for j, id := range s.TokenIDs {
				if id < 0 || int(id) >= vocab {
					return fmt.Errorf("%s: sequence %d: token id %d at position %d is outside the model's vocabulary of %d", e.ID, i, id, j, vocab)
				}
			}
		}
	}
	return nil
}

// CompareWithGreedy reads the scores of greedy attempts at the same tasks, for
// remax. A row whose task has none is an error.
func (d *Data) CompareWithGreedy(ctx context.Context, path string) error {
	r, err := parquet.Open(path)
	if err != nil {
		return err
	}
	defer r.Close()
	score := map[string]float64{}
	for t, err := range r.Rows(ctx, "id", "task_id", "reward") {
		if err != nil {
			return err
		}
		if t.Reward != nil && !math.IsNaN(*t.Reward) {
			score[t.Task.ID] = *t.Reward
		}
	}
	for _, e := range d.Episodes {
		x, ok := score[e.Task]
		if !ok {
			return fmt.Errorf("%s: there is no greedy attempt with a reward at task %q of %s; roll the same dataset out with --temperature 0", path, e.Task, e.ID)
		}
		e.Greedy = &x
	}
	return nil
}

// CheckGroups looks whether the rows can be compared at all: every advantage
// here is relative to a group. Groups of one among others are only a warning.
func (d *Data) CheckGroups() (warning string, err error) {
	all, lone := groups(d.Episodes), 0
	for _, g := range all {
		if len(g) == 1 {
			lone++
		}
	}
	why := ""
	if len(d.Ungrouped) > 0 {
		why = fmt.Sprintf("; %s has no column group_id, so its rows were grouped by task_id", d.Ungrouped[0])
	}
	const mend = "give the attempts at one task the same group_id, as in docs/format.md, or roll out with -n 2 or more"
	switch {
	case lone == 0:
		return "", nil
	case lone == len(all):
		return "", fmt.Errorf("%s: none of the %d rows shares its group_id with another, so there is nothing to compare it with%s: %s",
			strings.Join(d.Files, ", "), len(d.Episodes), why, mend)
	}
	return fmt.Sprintf("%d of the %d groups have a single row, which nothing is compared with: its advantage is its bare reward%s (%s)", lone, len(all), why, mend), nil
}

func (d *Data) loadFile(ctx context.Context, path string, run *RunSource, seen map[string]string, need needs) error {
	r, err := parquet.Open(path)
	if err != nil {
		return err
	}
	defer r.Close()
	if raw := r.Metadata().Run; len(raw) > 0 {
		// A file of another program may carry anything here.
		_ = json.Unmarshal(raw, run)
	}
	have := map[string]bool{}
	for _, c := range r.Columns() {
		have[c] = true
	}
	needed := []string{"sequences"}
	switch {
	case need.score != nil:
		needed = append(needed, "messages")
	case need.reward:
		needed = append(needed, "reward")
	}
	for _, column := range needed {
		if !have[column] {
			return fmt.Errorf("%s: there is no column %q; train reads files in the schema of docs/format.md", path, column)
		}
	}
	if !have["group_id"] {
		d.Ungrouped = append(d.Ungrouped, path)
	}
	var cols []string
	wanted := columns
	if need.score != nil {
		wanted = slices.Concat(columns, scoredBy)
	}
	for _, c := range wanted {
		if have[c] {
			cols = append(cols, c)
		}
	}
	row := 0
	for t, err := range rescored(ctx, r.Rows(ctx, cols...), need.score) {
		if err != nil {
			return err
		}
		row++
		id := t.ID
		if id == "" {
			id = fmt.Sprintf("%s:row %d", filepath.Base(path), row)
		}
		if other, dup := seen[id]; dup && t.ID != "" {
			if other != path {
				// The same ids in two files are two runs: their groups are not one.
				id = filepath.Base(path) + ":" + id
			} else {
				d.Skipped.Add("with an id that occurs twice in the file", id)
				continue
			}
		}
		seen[t.ID] = path
		e, reason, err := episode(t, id, need)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", path, strings.TrimPrefix(id, filepath.Base(path)+":"), err)
		}
		if reason != "" {
			d.Skipped.Add(reason, id)
			continue
		}
		if e.Group == "" {
			e.Group = t.Task.ID
		}
		if e.Group == "" && !need.group {
			e.Group = e.ID
		}
		if e.Group == "" {
			d.Skipped.Add("without a group_id or task_id, so with nothing to compare them with", id)
			continue
		}
		// Group ids are reused between runs.
		e.Group = path + "\x00" + e.Group
		d.Episodes = append(d.Episodes, e)
		d.sampledBy(cmp.Or(t.Policy, run.Model.Name), path)
	}
	return nil
}

// episode checks one row. reason is why it takes no part, err a row that
// contradicts itself.
func episode(t *traj.Trajectory, id string, need needs) (e *Episode, reason string, err error) {
	if t.Termination.Infrastructure() {
		return nil, "ended by " + string(t.Termination), nil
	}
	score := 0.0
	if t.Reward != nil {
		score = *t.Reward
	} else if need.reward {
		return nil, "without a reward", nil
	}
	if need.reward && (math.IsNaN(score) || math.IsInf(score, 0)) {
		return nil, "", fmt.Errorf("the reward is %v; score the file again", *t.Reward)
	}
	e = &Episode{ID: id, Group: t.GroupID, Task: t.Task.ID, Role: roleOf(t), Score: score, Parts: t.RewardParts, Termination: t.Termination,
		Turns: len(t.Steps), LastRound: -1}
	kept := make([]int, len(t.Sequences)) // where a sequence stands in the episode
	for i := range t.Sequences {
		kept[i] = -1
		s := &t.Sequences[i]
		if err := s.Validate(); err != nil {
			return nil, "", fmt.Errorf("sequence %d: %w", i, err)
		}
		if len(s.LossMask) > 0 && s.LossMask[0] {
			return nil, "", fmt.Errorf("sequence %d: its first token is marked as sampled, but nothing stands before it", i)
		}
		if n := s.Sampled(); n > 0 {
			e.Sampled += n
			kept[i] = len(e.Sequences)
			e.Sequences = append(e.Sequences, *s)
		}
	}
	if e.Sampled == 0 && len(t.Sequences) > 0 {
		return nil, "without a sampled token", nil
	}
	if e.Sampled == 0 {
		return nil, "without token ids (their server returned none; use vLLM or SGLang, or a local policy)", nil
	}
	e.Prompt = slices.Index(e.Sequences[0].LossMask, true)
	for i, s := range t.Steps {
		e.ToolCalls += s.ToolCalls
		e.ToolErrors += s.ToolErrors
		if s.Sequence < 0 || s.Sequence >= len(kept) || kept[s.Sequence] < 0 || s.Start < 0 || s.End > len(t.Sequences[s.Sequence].TokenIDs) || s.Start >= s.End {
			if s.Reward != nil && *s.Reward != 0 {
				return nil, "", fmt.Errorf("step %d has a reward, but no tokens that it is for", i)
			}
			continue
		}
		if kept[s.Sequence] == len(e.Sequences)-1 {
			e.LastRound = s.Start
		}
		if r := s.Reward; r != nil {
			if math.IsNaN(*r) || math.IsInf(*r, 0) {
				return nil, "", fmt.Errorf("the reward of step %d is %v; score the file again", i, *r)
			}
			e.StepRewards = append(e.StepRewards, StepReward{kept[s.Sequence], s.End - 1, *r})
		}
	}
	return e, "", nil
}

// roleOf is the key "role" of a row's meta, else its dataset.
func roleOf(t *traj.Trajectory) string {
	var meta struct {
		Role string `json:"role"`
	}
	if len(t.Task.Meta) > 0 && json.Unmarshal(t.Task.Meta, &meta) == nil && meta.Role != "" {
		return meta.Role
	}
	return t.Task.Dataset
}

// groups lists the episodes by group, in order of first appearance.
func groups(episodes []*Episode) [][]*Episode {
	at := map[string]int{}
	var out [][]*Episode
	for _, e := range episodes {
		i, ok := at[e.Group]
		if !ok {
			i = len(out)
			at[e.Group] = i
			out = append(out, nil)
		}
		out[i] = append(out[i], e)
	}
	return out
}
