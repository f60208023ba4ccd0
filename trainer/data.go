package trainer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"agentcli/parquet"
	"agentcli/trainer/episode"
	"agentcli/trainer/store"
	"agentcli/traj"
)

// Data is what the files held.
type Data struct {
	Files    []string
	Episodes []*episode.Episode
	Skipped  Skipped
	Policies []Policy    // that the rows name, else their file, in order of appearance
	Runs     []RunSource // of each file
	Pairs    []Pair      // where the rows are pairs; nil: groups of trajectories make them

	Unmarked int // rows with tool output that --echo could not find among their tokens

	Ungrouped []string // files without a column group_id

	unscored bool // the rows need no reward of their own: a model scores them later

	made    []madeReward // of all rows of the files, where rewards are made anew; nil: they are not
	rewards []rewardSum  // of each file, where its own rewards are trained on
	parts   components   // of the rows' rewards

	spill   *store.Spill // where the episodes' bodies are; nil: in memory
	tallied layoutKey    // what they were counted for when they were put there
	tally   func(*episode.Episode)
}

// Close gives up what of the data is on disk.
func (d *Data) Close() error {
	if d == nil || d.spill == nil {
		return nil
	}
	return d.spill.Close()
}

// add takes an episode in.
func (d *Data) add(e *episode.Episode) error {
	d.Episodes = append(d.Episodes, e)
	if d.spill == nil {
		return nil
	}
	if d.tally != nil {
		d.tally(e)
	}
	return d.spill.Put(e)
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
	Dataset struct {
		Name  string `json:"name"`
		Split string `json:"split"`
	} `json:"dataset"`
	Sampling traj.Sampling `json:"sampling"`
	Limits   struct {
		Turns    int `json:"max_turns"`
		Response int `json:"max_response_tokens"` // of everything behind the first prompt
	} `json:"limits"`
	Logprobs string `json:"logprobs"` // what they are of
}

// most is how many tokens could be sampled in a trajectory; 0: the file does not say.
func (r RunSource) most() int {
	n := r.Sampling.MaxTokens * r.Limits.Turns
	if limit := r.Limits.Response; limit > 0 && (n == 0 || limit < n) {
		return limit
	}
	return n
}

// Filtered says in words where the rows were sampled from no distribution that can
// be computed from the model's logits and a temperature, or "" where they were.
func (r RunSource) Filtered() string {
	var how []string
	if r.Model.Kind == "server" && (r.Sampling.Temperature == nil || r.Sampling.TopP == 0) {
		how = append(how, "the server's own defaults")
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

func (d *Data) empty() error {
	switch {
	case len(d.Episodes) > 0:
		return nil
	case d.Skipped.Rows == 0:
		return fmt.Errorf("%s: there are no rows to train on", strings.Join(d.Files, ", "))
	}
	return traj.Mark(fmt.Errorf("%s: none of the %d rows can be trained on: %s", strings.Join(d.Files, ", "), d.Skipped.Rows, d.Skipped.String()), ErrNoRows)
}

// ErrNoRows is wrapped by the error of files whose rows were all left out.
var ErrNoRows = errors.New("no rows to train on")

// DropUnfit leaves out the rows that a run with these settings cannot train on: those that do
// not fit into the model's window, and then, where attempts are compared, those that
// nothing is left to compare with in their group (a failure of the infrastructure is no
// reward, so the attempt that is left of such a group has no baseline). That nothing
// remains is an error.
func (d *Data) DropUnfit(window int, c Config) error {
	if err := d.dropLong(window); err != nil || c.IsSupervised() {
		return err
	}
	if err := d.dropStale(int64(c.MaxStaleness)); err != nil || !c.ComparesGroups() {
		return err
	}
	return d.dropLone()
}

// newest is the newest version of a policy that sampled rows.
func (d *Data) newest() (version int64) {
	for _, e := range d.Episodes {
		version = max(version, e.PolicyVersion)
	}
	return version
}

func (d *Data) dropStale(most int64) error {
	if most == 0 {
		return nil
	}
	newest := d.newest()
	d.Episodes = slices.DeleteFunc(d.Episodes, func(e *episode.Episode) bool {
		stale := newest-e.PolicyVersion > most
		if stale {
			d.Skipped.Add(fmt.Sprintf("sampled by a policy more than %d versions older than the newest", most), e.ID)
		}
		return stale
	})
	return d.empty()
}

func (d *Data) dropLone() error {
	alone := map[*episode.Episode]bool{}
	for _, g := range groups(d.Episodes) {
		if len(g) == 1 {
			alone[g[0]] = true
		}
	}
	d.Episodes = slices.DeleteFunc(d.Episodes, func(e *episode.Episode) bool {
		if alone[e] {
			d.Skipped.Add("left alone in its group", e.ID)
		}
		return alone[e]
	})
	return d.empty()
}

func (d *Data) dropLong(window int) error {
	d.Episodes = slices.DeleteFunc(d.Episodes, func(e *episode.Episode) bool {
		long := int(e.Sizes().Longest) > window
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
		b := e.Body
		if b == nil {
			if int(e.BodySizes.MaxID) < vocab {
				continue
			}
			var err error
			if b, err = e.Store.ReadBody(e); err != nil {
				return err
			}
		}
		for i, s := range b.Sequences {
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
// remax. A row whose task has none is an error, and so are attempts that are not
// greedy, or several at one task.
func (d *Data) CompareWithGreedy(ctx context.Context, path string) error {
	r, err := parquet.Open(path)
	if err != nil {
		return err
	}
	defer r.Close()
	const remedy = "roll the same dataset out with --temperature 0 and -n 1"
	var run RunSource
	if raw := r.Metadata().Run; len(raw) > 0 {
		_ = json.Unmarshal(raw, &run) // as of the other files
	}
	own, err := ownTemperatures(ctx, path)
	if err != nil {
		return err
	}
	score, row := map[string]float64{}, 0
	for t, err := range r.Rows(ctx, "id", "task_id", "reward") {
		if err != nil {
			return err
		}
		row++
		sampled := run.Sampling.Temperature
		if own != nil && !math.IsNaN(own[row-1]) {
			sampled = &own[row-1]
		}
		if sampled != nil && *sampled >= LeastTemperature {
			return fmt.Errorf("--greedy %s: %s was sampled at temperature %g, so it is no greedy attempt; %s", path, cmp.Or(t.ID, fmt.Sprintf("row %d", row)), *sampled, remedy)
		}
		if t.Reward == nil || math.IsNaN(*t.Reward) {
			continue
		}
		if _, twice := score[t.Task.ID]; twice {
			return fmt.Errorf("--greedy %s: there are several attempts at task %q, and one is compared with; %s", path, t.Task.ID, remedy)
		}
		score[t.Task.ID] = *t.Reward
	}
	for _, e := range d.Episodes {
		x, ok := score[e.Task]
		if !ok {
			return fmt.Errorf("%s: there is no greedy attempt with a reward at task %q of %s; %s", path, e.Task, e.ID, remedy)
		}
		e.GreedyScore = &x
	}
	return nil
}

// CheckGroups looks whether the rows can be compared at all: every advantage
// here is relative to a group. Groups of one among others are left out by DropUnfit.
func (d *Data) CheckGroups() error {
	all := groups(d.Episodes)
	if slices.ContainsFunc(all, func(g []*episode.Episode) bool { return len(g) > 1 }) {
		return nil
	}
	why := ""
	if len(d.Ungrouped) > 0 {
		why = fmt.Sprintf("; %s has no column group_id, so its rows were grouped by task_id", d.Ungrouped[0])
	}
	const remedy = "give the attempts at one task the same group_id, as in docs/format.md, or roll out with -n 2 or more"
	return fmt.Errorf("%s: none of the %d rows shares its group_id with another, so there is nothing to compare it with%s: %s",
		strings.Join(d.Files, ", "), len(d.Episodes), why, remedy)
}
