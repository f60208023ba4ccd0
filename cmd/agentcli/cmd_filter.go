package main

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

	"agentcli/app/rundir"
	"agentcli/internal/console"
	"agentcli/internal/exit"
	"agentcli/parquet"
	"agentcli/traj"

	"github.com/urfave/cli/v2"
)

// filterOptions say which trajectories stay.
type filterOptions struct {
	Path      string
	File      string // -o; "" is stdout
	BestOf    bool
	MinReward *float64
	Correct   bool
	MaxPer    int // trajectories a task; 0: no limit
	Dedup     bool
}

func filterCommand() *cli.Command {
	return &cli.Command{
		Name:      "filter",
		Usage:     "keep the good trajectories of a file: rejection sampling, for train --algo sft",
		ArgsUsage: "FILE",
		Description: "Rows pass --correct and --min-reward first, then --dedup, --best-of and --max-per-task, in this order.\n" +
			"The file keeps its rows' order and what it says of its run, and says how it was filtered.\n\n" +
			"  agentcli filter traj.parquet --best-of --min-reward 1 -o best.parquet\n" +
			"  agentcli train best.parquet --algo sft",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "o", Aliases: []string{"out"}, Usage: "write the Parquet file to `FILE` (default: stdout)"},
			&cli.BoolFlag{Name: "best-of", Usage: "of each group the trajectory with the highest reward, the first of equals"},
			&cli.Float64Flag{Name: "min-reward", Usage: "those with at least this reward (default: any)"},
			&cli.BoolFlag{Name: "correct", Usage: "those whose answer was graded correct"},
			&cli.IntFlag{Name: "max-per-task", Usage: "the first N of each task; 0: all"},
			&cli.BoolFlag{Name: "dedup", Usage: "of trajectories at one task with the same tokens, or the same text, the first"},
		},
		Action: func(c *cli.Context) error {
			if c.NArg() != 1 {
				return exit.Usagef("filter wants one FILE, got %d arguments", c.NArg())
			}
			o := filterOptions{Path: c.Args().First(), File: c.String("o"), BestOf: c.Bool("best-of"), Correct: c.Bool("correct"), MaxPer: c.Int("max-per-task"), Dedup: c.Bool("dedup")}
			if c.IsSet("min-reward") {
				x := c.Float64("min-reward")
				o.MinReward = &x
			}
			return runFilter(c.Context, o, streamsOf(c))
		},
	}
}

func (o filterOptions) validate() error {
	switch {
	case o.MaxPer < 0:
		return exit.Usagef("--max-per-task %d: want a number of trajectories, or 0 for all", o.MaxPer)
	case o.MinReward != nil && (math.IsNaN(*o.MinReward) || math.IsInf(*o.MinReward, 0)):
		return exit.Usagef("--min-reward %v: want a number", *o.MinReward)
	case !o.BestOf && o.MinReward == nil && !o.Correct && o.MaxPer == 0 && !o.Dedup:
		return exit.Usagef("filter wants to be told what to keep: --best-of, --min-reward, --correct, --max-per-task or --dedup")
	}
	return nil
}

// filterKey is what is remembered of a row in the first pass.
type filterKey struct {
	group, task string
	reward      float64
}

func runFilter(ctx context.Context, o filterOptions, s console.Streams) error {
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
	var w *parquet.Writer
	if o.File == "" {
		w, err = parquet.NewWriter(s.Out, meta, parquet.WriterConfig{})
	} else {
		w, err = parquet.CreateFile(o.File, meta, parquet.WriterConfig{})
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
	s.Say(fmt.Sprintf("%d of %d trajectories kept, of %d of %d tasks: %s", report.Kept, report.Rows, report.KeptTasks, report.Tasks, report.text()))
	return nil
}

// notTheSame refuses to write over the rows that are read: what is left out would be
// lost. Links to one file are one file.
func notTheSame(in, out string) error {
	a, errIn := os.Stat(in) // opening it says better what is wrong
	b, errOut := os.Stat(out)
	if errIn == nil && errOut == nil && os.SameFile(a, b) {
		return exit.Usagef("-o %s is the file that is read, and the rows that are left out would be lost; write to another", out)
	}
	return nil
}

// filterReport is what the written file says of how it was filtered.
type filterReport struct {
	BestOf    bool     `json:"best_of,omitempty"`
	MinReward *float64 `json:"min_reward,omitempty"`
	Correct   bool     `json:"correct,omitempty"`
	MaxPer    int      `json:"max_per_task,omitempty"`
	Dedup     bool     `json:"dedup,omitempty"`
	Rows      int      `json:"rows"`
	Kept      int      `json:"kept"`
	Tasks     int      `json:"-"`
	KeptTasks int      `json:"-"`
	dropped   []string // in words
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
func (o filterOptions) choose(ctx context.Context, r *parquet.Reader) (keep []bool, report *filterReport, err error) {
	report = &filterReport{BestOf: o.BestOf, MinReward: o.MinReward, Correct: o.Correct, MaxPer: o.MaxPer, Dedup: o.Dedup}
	cols := []string{"id", "task_id", "group_id", "reward", "correct"}
	if o.Dedup {
		cols = append(cols, "sequences", "messages")
	}
	cols = slices.DeleteFunc(cols, func(c string) bool { return c != "id" && !slices.Contains(r.Columns(), c) })
	for flag, column := range map[string]string{"best-of": "reward", "min-reward": "reward", "correct": "correct"} {
		asked := flag == "best-of" && o.BestOf || flag == "min-reward" && o.MinReward != nil || flag == "correct" && o.Correct
		if asked && !slices.Contains(cols, column) {
			return nil, nil, fmt.Errorf("%s: there is no column %q, which --%s looks at; agentcli score adds it to rows of text", o.Path, column, flag)
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
			if k := sameness(t); seen[k] {
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
		if per[x.task]++; o.MaxPer > 0 && per[x.task] > o.MaxPer {
			keep[i] = false
			lost["over --max-per-task"]++
			continue
		}
		report.Kept++
	}
	report.Rows, report.Tasks, report.KeptTasks = len(rows), len(tasks), len(per)
	for _, why := range []string{"without a reward", "below --min-reward", "not graded", "not correct", "said before", "not the best of their group", "over --max-per-task"} {
		if n := lost[why]; n > 0 {
			report.dropped = append(report.dropped, fmt.Sprintf("%d %s", n, why))
		}
	}
	return keep, report, nil
}

// reject says why a row does not stay by itself, or "".
func (o filterOptions) reject(t *traj.Trajectory, reward float64) string {
	switch {
	case (o.BestOf || o.MinReward != nil) && math.IsNaN(reward):
		return "without a reward"
	case o.MinReward != nil && reward < *o.MinReward:
		return "below --min-reward"
	case o.Correct && t.Correct == nil:
		return "not graded"
	case o.Correct && !*t.Correct:
		return "not correct"
	}
	return ""
}

// sameness is equal for trajectories at one task with the same tokens, and, where
// there are none, with the same messages.
func sameness(t *traj.Trajectory) (sum [sha256.Size]byte) {
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
