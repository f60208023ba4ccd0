package files

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash"
	"math"
	"os"
	"slices"
	"strings"

	"agentcli/app/console"
	"agentcli/app/rundir"
	"agentcli/internal/exit"
	"agentcli/internal/setting"
	"agentcli/parquet"
	"agentcli/traj"
)

// FilterOptions say which trajectories stay.
type FilterOptions struct {
	Path       string
	File       string // -o; "" is stdout
	BestOf     bool
	MinReward  *float64
	Correct    bool
	MaxPerTask int // trajectories a task; 0: no limit
	Dedup      bool
}

func (o FilterOptions) validate() error {
	switch {
	case o.MaxPerTask < 0:
		return exit.Usagef("%s %d: want a number of trajectories, or 0 for all", setting.Name("MaxPerTask"), o.MaxPerTask)
	case o.MinReward != nil && (math.IsNaN(*o.MinReward) || math.IsInf(*o.MinReward, 0)):
		return exit.Usagef("%s %v: want a number", setting.Name("MinReward"), *o.MinReward)
	case !o.BestOf && o.MinReward == nil && !o.Correct && o.MaxPerTask == 0 && !o.Dedup:
		return exit.Usagef("filter wants to be told what to keep: %s, %s, %s, %s or %s", setting.Name("BestOf"),
			setting.Name("MinReward"), setting.Name("Correct"), setting.Name("MaxPerTask"), setting.Name("Dedup"))
	}
	return nil
}

// filterKey is what is remembered of a row in the first pass.
type filterKey struct {
	group, task string
	reward      float64
}

// Filter writes the trajectories of a file that pass, as a file of the same kind.
func Filter(ctx context.Context, o FilterOptions, s console.Streams) error {
	if err := o.validate(); err != nil {
		return err
	}
	if o.File == "" && s.OutTTY {
		return exit.Usagef("stdout is a terminal and Parquet is not for reading: add > best.parquet or -o FILE")
	}
	if o.File != "" {
		if err := notTheSame(o.Path, o.File); err != nil {
			return err
		}
		if err := rundir.CheckFile(o.File); err != nil {
			return err
		}
	}
	r, err := openRows(o.Path)
	if err != nil {
		return err
	}
	defer r.Close()
	if slices.Contains(r.Columns(), "temperature") {
		s.Say("warning: the rows' own column temperature is not kept: train will take them to be sampled as the file as a whole was")
	}
	keep, report, err := o.choose(ctx, r)
	if err != nil {
		return err
	}
	if report.Kept == 0 {
		return fmt.Errorf("%s: none of the %d trajectories is left: %s", o.Path, report.Rows, report.text())
	}
	meta, err := report.into(r.Metadata())
	if err != nil {
		return err
	}
	form := parquet.WriterConfig{Columns: parquet.OptionalColumns(r.Columns())}
	var w *parquet.Writer
	if o.File == "" {
		w, err = parquet.NewWriter(s.Out, meta, form)
	} else {
		w, err = parquet.CreateFile(o.File, meta, form)
	}
	if err != nil {
		return err
	}
	defer w.Abort() // nothing is left of half a file
	n := 0
	// Rows of tokens alone can be trained on, and so filtered.
	cols := slices.DeleteFunc(parquet.ColumnNames(), func(c string) bool { return c == "messages" && !slices.Contains(r.Columns(), c) })
	for t, err := range r.Rows(ctx, cols...) {
		if err != nil {
			return err
		}
		if keep[n] {
			if err := w.Write(t); err != nil {
				return err
			}
		}
		n++
	}
	if err := w.Close(); err != nil {
		return err
	}
	s.Say(fmt.Sprintf("%d of %d trajectories kept, of %d of %d tasks: %s", report.Kept, report.Rows,
		report.KeptTasks, report.Tasks, report.text()))
	return nil
}

// notTheSame refuses to write over the rows that are read: what is left out would be
// lost. Links to one file are one file.
func notTheSame(in, out string) error {
	a, errIn := os.Stat(in) // opening it says better what is wrong
	b, errOut := os.Stat(out)
	if errIn == nil && errOut == nil && os.SameFile(a, b) {
		return exit.Usagef("%s %s is the file that is read, and the rows that are left out would be lost; write to another",
			setting.Name("File"), out)
	}
	return nil
}

// filterReport is what the written file says of how it was filtered.
type filterReport struct {
	BestOf     bool     `json:"best_of,omitempty"`
	MinReward  *float64 `json:"min_reward,omitempty"`
	Correct    bool     `json:"correct,omitempty"`
	MaxPerTask int      `json:"max_per_task,omitempty"`
	Dedup      bool     `json:"dedup,omitempty"`
	Rows       int      `json:"rows"`
	Kept       int      `json:"kept"`
	Tasks      int      `json:"-"`
	KeptTasks  int      `json:"-"`
	dropped    []string // in words
}

func (r *filterReport) text() string {
	if len(r.dropped) == 0 {
		return "nothing was left out"
	}
	return strings.Join(r.dropped, ", ")
}

// into adds the report to what the file says of its run; a file that was filtered
// before has a list of them.
func (r *filterReport) into(m parquet.Metadata) (parquet.Metadata, error) {
	run := map[string]json.RawMessage{}
	if len(m.Run) > 0 {
		_ = json.Unmarshal(m.Run, &run) // another program's file may carry anything here
	}
	if run == nil {
		run = map[string]json.RawMessage{}
	}
	var before []json.RawMessage
	_ = json.Unmarshal(run["filters"], &before)
	this, err := json.Marshal(r)
	if err != nil {
		return m, err
	}
	if run["filters"], err = json.Marshal(append(before, this)); err != nil {
		return m, err
	}
	raw, err := json.Marshal(run)
	return parquet.Metadata{Run: raw}, err
}

// choose reads the file a first time and says which of its rows stay.
func (o FilterOptions) choose(ctx context.Context, r *parquet.Reader) (keep []bool, report *filterReport, err error) {
	report = &filterReport{BestOf: o.BestOf, MinReward: o.MinReward, Correct: o.Correct, MaxPerTask: o.MaxPerTask, Dedup: o.Dedup}
	cols := []string{"id", "task_id", "group_id", "reward", "correct"}
	if o.Dedup {
		cols = append(cols, "sequences", "messages")
	}
	cols = slices.DeleteFunc(cols, func(c string) bool { return c != "id" && !slices.Contains(r.Columns(), c) })
	for flag, column := range map[string]string{"best-of": "reward", "min-reward": "reward", "correct": "correct"} {
		asked := flag == "best-of" && o.BestOf || flag == "min-reward" && o.MinReward != nil || flag == "correct" && o.Correct
		if asked && !slices.Contains(cols, column) {
			return nil, nil, fmt.Errorf("%s: there is no column %q, which --%s looks at; agentcli score adds it to rows of text",
				o.Path, column, flag)
		}
	}
	var rows []filterKey
	seen := map[[sha256.Size]byte]bool{}
	lost := map[string]int{}
	tasks := map[string]bool{}
	for t, err := range r.Rows(ctx, cols...) {
		if err != nil {
			return nil, nil, err
		}
		reward := math.NaN()
		if t.Reward != nil {
			reward = *t.Reward
		}
		tasks[t.Task.ID] = true
		rows = append(rows, filterKey{t.GroupID, t.Task.ID, reward})
		why := o.reject(t, reward)
		if why == "" && o.Dedup {
			if k := dedupKey(t); seen[k] {
				why = "said before"
			} else {
				seen[k] = true
			}
		}
		if why != "" {
			lost[why]++
		}
		keep = append(keep, why == "")
	}
	if o.BestOf {
		best := map[string]int{} // of each group: its row
		for i, x := range rows {
			if j, ok := best[x.group]; keep[i] && (!ok || x.reward > rows[j].reward) {
				best[x.group] = i
			}
		}
		for i, x := range rows {
			if keep[i] && best[x.group] != i {
				keep[i] = false
				lost["not the best of their group"]++
			}
		}
	}
	per := map[string]int{}
	for i, x := range rows {
		if !keep[i] {
			continue
		}
		if per[x.task]++; o.MaxPerTask > 0 && per[x.task] > o.MaxPerTask {
			keep[i] = false
			lost[fmt.Sprintf("over %s", setting.Name("MaxPerTask"))]++
			continue
		}
		report.Kept++
	}
	report.Rows, report.Tasks, report.KeptTasks = len(rows), len(tasks), len(per)
	for _, why := range []string{"without a reward", fmt.Sprintf("below %s", setting.Name("MinReward")),
		"not graded", "not correct", "said before", "not the best of their group", fmt.Sprintf("over %s", setting.Name("MaxPerTask"))} {
		if n := lost[why]; n > 0 {
			report.dropped = append(report.dropped, fmt.Sprintf("%d %s", n, why))
		}
	}
	return keep, report, nil
}

// reject says why a row does not stay by itself, or "".
func (o FilterOptions) reject(t *traj.Trajectory, reward float64) string {
	switch {
	case (o.BestOf || o.MinReward != nil) && math.IsNaN(reward):
		return "without a reward"
	case o.MinReward != nil && reward < *o.MinReward:
		return fmt.Sprintf("below %s", setting.Name("MinReward"))
	case o.Correct && t.Correct == nil:
		return "not graded"
	case o.Correct && !*t.Correct:
		return "not correct"
	}
	return ""
}

// dedupKey is equal for trajectories at one task with the same tokens, and, where
// there are none, with the same messages.
func dedupKey(t *traj.Trajectory) (sum [sha256.Size]byte) {
	h := sha256.New()
	text := func(s string) {
		count(h, len(s))
		h.Write([]byte(s))
	}
	text(t.Task.ID)
	for i := range t.Sequences {
		count(h, len(t.Sequences[i].TokenIDs))
		for _, id := range t.Sequences[i].TokenIDs {
			count(h, int(id))
		}
	}
	if len(t.Sequences) == 0 {
		for _, m := range t.Messages {
			text(m.Role)
			text(m.Content)
			for _, c := range m.ToolCalls {
				text(c.Name)
				text(c.Arguments)
			}
		}
	}
	h.Sum(sum[:0])
	return sum
}

func count(h hash.Hash, n int) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(n))
	h.Write(b[:])
}
