package trainer

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"agentcli/parquet"
	"agentcli/trainer/store"
	"agentcli/traj"
)

// rowColumns are those that training reads.
var rowColumns = []string{"id", "group_id", "task_id", "dataset", "policy", "policy_version", "sequences", "steps", "reward", "reward_parts", "termination", "turns", "meta"}

// scoredBy are the columns that a reward looks at.
var scoredBy = []string{"question", "answer", "messages"}

// needs says what a row must have to be trained on, and what makes its reward.
type needs struct {
	reward, group bool
	score         Score
	made          *[]madeReward // what score made of the rows when the run began, as far as they are still to be read; nil: it begins
	demonstrate   Demonstrations
	observe       func(model string) (*Format, error)
	onDisk        *Config // keep what is not asked for all the time on disk, for these settings; nil: in memory
}

// columns are those that are read of a file that has some.
func (n needs) columns(path string, have map[string]bool) (cols []string, err error) {
	needed := []string{"sequences"}
	switch {
	case n.score != nil:
		needed = append(needed, "messages")
	case n.reward:
		needed = append(needed, "reward")
	}
	for _, column := range needed {
		if !have[column] {
			return nil, fmt.Errorf("%s: there is no column %q; train reads files in the schema of docs/format.md", path, column)
		}
	}
	wanted := rowColumns
	switch {
	case n.score != nil:
		wanted = slices.Concat(wanted, scoredBy)
	case n.observe != nil:
		wanted = slices.Concat(wanted, []string{"messages"})
	}
	if n.demonstrate != nil {
		wanted = slices.Concat(wanted, shownOf)
	}
	for _, c := range wanted {
		if have[c] && !slices.Contains(cols, c) {
			cols = append(cols, c)
		}
	}
	return cols, nil
}

// load reads files, each as trajectories unless text takes it.
func load(ctx context.Context, patterns []string, need needs, text func(d *Data, path string) (taken bool, err error)) (d *Data, err error) {
	d = &Data{unscored: !need.reward}
	if need.onDisk != nil {
		d.tallied, d.tally = need.onDisk.layoutKey(), need.onDisk.tally
		spill, spillErr := store.NewSpill()
		if spillErr != nil {
			return nil, spillErr
		}
		d.spill = spill
		defer func() {
			if err != nil {
				_ = spill.Close()
			}
		}()
	}
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
	d.Runs, d.rewards = make([]RunSource, len(d.Files)), make([]rewardSum, len(d.Files))
	seen := seen{ids: map[string]string{}, texts: map[string]string{}}
	for i, f := range d.Files {
		if text != nil {
			if taken, err := text(d, f); err != nil {
				return nil, err
			} else if taken {
				continue
			}
		}
		if err := d.loadFile(ctx, f, i, seen, need); err != nil {
			return nil, err
		}
	}
	if need.made != nil && len(*need.made) > 0 {
		return nil, traj.Mark(fmt.Errorf("the files have %d rows fewer than the checkpoint was written with; put them back as they were, or start afresh without --resume", len(*need.made)), ErrOtherRows)
	}
	if d.spill != nil {
		if err := d.spill.Finish(); err != nil {
			return nil, err
		}
	}
	return d, d.empty()
}

// seen is what is remembered of rows while files are read.
type seen struct {
	ids   map[string]string // in which file
	texts map[string]string // those that many rows have are kept once
}

func (s seen) once(text string) string {
	if one, ok := s.texts[text]; ok {
		return one
	}
	s.texts[text] = text
	return text
}

// taggedGroup are group ids with the tag of a run (engine.Config.Run): no other run has
// them. Other ids are reused between runs.
var taggedGroup = regexp.MustCompile(`@[0-9a-f]{8}(\.[0-9a-z.]+)?$`)

// ahead is how many row groups are decoded at a time.
func ahead() int { return min(runtime.GOMAXPROCS(0), 8) }

// loadFile reads the file of number i.
func (d *Data) loadFile(ctx context.Context, path string, i int, seen seen, need needs) error {
	run := &d.Runs[i]
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
	cols, err := need.columns(path, have)
	if err != nil {
		return err
	}
	if !have["group_id"] {
		d.Ungrouped = append(d.Ungrouped, path)
	}
	var format *Format // of the tool output; nil: it is not asked for
	if need.observe != nil && have["messages"] {
		if format, err = need.observe(run.Model.Name); err != nil {
			return err
		}
	}
	var own []float64
	if have[temperatureColumn] {
		if own, err = ownTemperatures(ctx, path); err != nil {
			return err
		}
	}
	var weights *tokenWeights // nil: the file has none
	if have[weightsColumn] {
		if weights, err = openTokenWeights(ctx, path); err != nil {
			return err
		}
		defer weights.close()
	}
	row, rows := 0, r.RowsAhead(ctx, ahead(), cols...)
	switch {
	case need.score != nil && need.made != nil:
		rows = replayed(rows, need.made)
	case need.score != nil:
		rows = rescored(ctx, rows, need.score)
	}
	for t, err := range rows {
		if err != nil {
			return err
		}
		row++
		if need.score != nil {
			d.made = append(d.made, madeOf(t))
		}
		given, err := weights.row()
		if err != nil {
			return err
		}
		id := t.ID
		if id == "" {
			id = fmt.Sprintf("%s:row %d", filepath.Base(path), row)
		}
		if other, dup := seen.ids[id]; dup && t.ID != "" {
			if other != path {
				// The same ids in two files are two runs: their groups are not one.
				id = filepath.Base(path) + ":" + id
			} else {
				d.Skipped.Add("with an id that occurs twice in the file", id)
				continue
			}
		}
		e, reason, err := parseRow(t, id, need)
		if err == nil && reason == "" {
			var none bool
			if none, err = applyTokenWeights(e, t, given); none {
				reason = "whose tokens all have weight 0"
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %s: %w", path, strings.TrimPrefix(id, filepath.Base(path)+":"), err)
		}
		if reason != "" {
			d.Skipped.Add(reason, id)
			continue
		}
		seen.ids[t.ID] = path // a row that takes no part leaves its id to another attempt
		if format != nil {
			found, err := markContent(e, t, format)
			if err != nil {
				return err
			}
			if !found {
				d.Unmarked++
			}
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
		temperature := run.temperature()
		if own != nil && !math.IsNaN(own[row-1]) {
			temperature = own[row-1]
		}
		setTemperature(e, temperature, run)
		if !taggedGroup.MatchString(e.Group) { // else it is of one run, however many files have its rows
			e.Group = path + "\x00" + e.Group
		}
		e.Group, e.Task, e.File = seen.once(e.Group), seen.once(e.Task), path
		d.parts.add(e)
		if need.reward && need.score == nil { // a reward made anew may differ each time
			d.rewards[i].add(e)
		}
		if err := d.add(e); err != nil {
			return err
		}
		d.sampledBy(cmp.Or(t.Policy, run.Model.Name), path)
	}
	return nil
}
