package rows

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"agentcli/internal/malformed"
	"agentcli/internal/setting"
	"agentcli/lossscale"
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

	Unmatched []lossscale.Unmatched // patterns of Options.Weigh that no reply of the files matches
	Rounded   lossscale.Rounded     // tokens that are wholly in no piece of Options.Weigh

	Ungrouped []string // files without a column group_id

	Unscored bool // the rows need no reward of their own: a model scores them later

	Made       []MadeReward // of all rows of the files, where rewards are made anew; nil: they are not
	RewardSums []RewardSum  // of each file, where its own rewards are trained on
	Parts      Components   // of the rows' rewards

	Spill  *store.Spill // where the episodes' bodies are; nil: in memory
	Layout string       // the name of the Layout that they were counted for when they were put there
}

// Close gives up what of the data is on disk.
func (d *Data) Close() error {
	if d == nil || d.Spill == nil {
		return nil
	}
	return d.Spill.Close()
}

// Policy is a model that sampled rows.
type Policy struct{ Name, File string } // File is the first that names it

func (d *Data) empty() error {
	switch {
	case len(d.Episodes) > 0:
		return nil
	case d.Skipped.Rows == 0:
		return traj.Mark(fmt.Errorf("%s: there are no rows to train on", strings.Join(d.Files, ", ")), ErrEmpty)
	}
	return traj.Mark(fmt.Errorf("%s: none of the %d rows can be trained on: %s", strings.Join(d.Files, ", "),
		d.Skipped.Rows, d.Skipped.String()), ErrNoRows)
}

// Errors of files with nothing to train on.
var (
	// ErrNoRows: all rows were left out; Skipped says why.
	ErrNoRows = errors.New("no rows to train on")
	// ErrEmpty: the files have no rows.
	ErrEmpty = errors.New("no rows")
	// ErrNothingToCompare: no two rows are of one group, or all of a group have the same reward.
	ErrNothingToCompare = errors.New("nothing to compare a row with")
)

// TokenError is a token id that the model does not have.
type TokenError struct {
	ID       string // of the row
	Sequence int
	Position int // in the sequence
	Token    int32
	Vocab    int // the number of ids that the model has
}

func (e *TokenError) Error() string {
	return fmt.Sprintf("%s: sequence %d: token id %d at position %d is outside the model's vocabulary of %d",
		e.ID, e.Sequence, e.Token, e.Position, e.Vocab)
}

// NewestVersion is the newest version of a policy that sampled rows.
func (d *Data) NewestVersion() (version int64) {
	for _, e := range d.Episodes {
		version = max(version, e.PolicyVersion+e.VersionsAhead.Most)
	}
	return version
}

// DropStale leaves out the rows that a policy of over `most` versions before the newest
// sampled; 0: none. That nothing remains is ErrNoRows, here and in the other drops.
func (d *Data) DropStale(most int64) error {
	if most == 0 {
		return nil
	}
	newest := d.NewestVersion()
	d.Episodes = slices.DeleteFunc(d.Episodes, func(e *episode.Episode) bool {
		stale := newest-e.PolicyVersion > most
		if stale {
			d.Skipped.Add(fmt.Sprintf("sampled by a policy more than %d versions older than the newest", most), e.ID)
		}
		return stale
	})
	return d.empty()
}

// DropLone leaves out the rows that are alone in their group.
func (d *Data) DropLone() error {
	alone := map[*episode.Episode]bool{}
	for _, g := range episode.Groups(d.Episodes) {
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

// DropLong leaves out the rows with a sequence of over `window` tokens.
func (d *Data) DropLong(window int) error {
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
					return &TokenError{ID: e.ID, Sequence: i, Position: j, Token: id, Vocab: vocab}
				}
			}
		}
	}
	return nil
}

// CheckGroups looks whether the rows can be compared at all: every advantage
// here is relative to a group. Groups of one among others are left out by DropLone.
func (d *Data) CheckGroups() error {
	all := episode.Groups(d.Episodes)
	if slices.ContainsFunc(all, func(g []*episode.Episode) bool { return len(g) > 1 }) {
		return nil
	}
	why, err := "", error(nil)
	if len(d.Ungrouped) > 0 {
		err = malformed.At(d.Ungrouped[0], "column group_id", malformed.Missing, "there is none, so its rows were grouped by task_id")
		why = "; " + err.Error()
	}
	err = errors.Join(ErrNothingToCompare, err)
	return traj.Mark(setting.Errorf("%s: none of the %d rows shares its group_id with another, so there is nothing to compare it with%s: "+
		"give the attempts at one task the same group_id, as in docs/format.md, or roll out with %s 2 or more",
		strings.Join(d.Files, ", "), len(d.Episodes), why, setting.Name("Samples")), err)
}

// Temperatures are those of the rows, ascending.
func (d *Data) Temperatures() []float64 {
	var all []float64
	for _, e := range d.Episodes {
		if t := e.SamplingTemperature(); !slices.Contains(all, t) {
			all = append(all, t)
		}
	}
	slices.Sort(all)
	return all
}

// Greedy names a row, and its file, that was sampled at temperature 0, or so near that there is no
// distribution to speak of; "" where there is none.
func (d *Data) Greedy() string {
	i := slices.IndexFunc(d.Episodes, func(e *episode.Episode) bool { return e.SampledGreedily })
	if i < 0 {
		return ""
	}
	return d.Episodes[i].Name()
}

// CheckRewards refuses files whose rewards are not those that a checkpoint was
// written with; a checkpoint that does not know them says nothing.
func (d *Data) CheckRewards(then []RewardSum) error {
	if len(then) != len(d.RewardSums) {
		return nil // of an older version, or the rows are in memory
	}
	for i, was := range then {
		if now := d.RewardSums[i]; was != 0 && now != 0 && was != now {
			return traj.Mark(malformed.At(d.Files[i], "reward", malformed.Mismatch, "they are not those that the checkpoint was written with; "+
				"put the file back as it was, or start afresh without %s", setting.Name("Resume")), ErrOtherRows)
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
	fault := func(kind malformed.Kind, id, format string, args ...any) error {
		return setting.Errorf("%s %w; roll the same dataset out with %s 0 and %s 1", setting.Name("Greedy"),
			&malformed.Error{Path: path, ID: id, Kind: kind, Err: fmt.Errorf(format, args...)}, setting.Name("Temperature"), setting.Name("Samples"))
	}
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
		if sampled != nil && *sampled >= episode.LeastTemperature {
			return fault(malformed.Range, cmp.Or(t.ID, fmt.Sprintf("row %d", row)), "it was sampled at temperature %g, so it is no greedy attempt",
				*sampled)
		}
		if t.Reward == nil || math.IsNaN(*t.Reward) {
			continue
		}
		if _, twice := score[t.Task.ID]; twice {
			return fault(malformed.Duplicate, t.ID, "there are several attempts at task %q, and one is compared with", t.Task.ID)
		}
		score[t.Task.ID] = *t.Reward
	}
	for _, e := range d.Episodes {
		x, ok := score[e.Task]
		if !ok {
			return fault(malformed.Missing, "", "there is no greedy attempt with a reward at task %q of %s", e.Task, e.ID)
		}
		e.GreedyScore = &x
	}
	return nil
}
