package rows

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"agentcli/internal/malformed"
	"agentcli/internal/setting"
	"agentcli/lossscale"
	"agentcli/media/processor"
	"agentcli/parquet"
	"agentcli/trainer/episode"
	"agentcli/trainer/store"
	"agentcli/traj"
)

// Sources say where what a file lacks comes from.
type Sources struct {
	Rewarded bool  // trajectories get their rewards from a model, later
	Score    Score // makes rewards anew; nil: the file's count
	// EvalSplit marks the rows of text whose column split has this value, for
	// Data.HoldOutSplit; "": none. Trajectories have no such column.
	EvalSplit string
	// Made are the rewards that Score made of the rows when the run began, in their order
	// (Data.Made); nil: the run begins.
	Made   []MadeReward
	Format func() (*Format, error) // asked once, for rows of text
	// Observations is the format of the model that sampled a file, by the name that the
	// file has for it: where the tool output is that --echo learns. Nil: all that was not
	// sampled counts as such.
	Observations func(model string) (*Format, error)
	// Vocabulary gives the tokens of the model that sampled a file, by the name that the file
	// has for it, "" of rows of text. It is asked where Options.Weigh is set.
	Vocabulary func(model string) (lossscale.Vocabulary, error)
	// Images prepares the images of rows; nil: rows with images are an error.
	Images ImageProcessor
	// Demonstrations are what the teacher is shown; nil: nothing.
	Demonstrations Demonstrations
	// OnDisk keeps of the rows an index in memory alone, and the rest in a temporary
	// file: the caller closes the Data.
	OnDisk bool
}

// Demonstrations gives what the teacher is shown for a row, "" for another attempt
// of its group.
type Demonstrations func(*traj.Trajectory) (string, error)

// Options say what a run asks of the rows. The zero value takes trajectories only, with or
// without a reward and a group.
type Options struct {
	Sources
	Reward bool   // a trajectory without a reward takes no part
	Group  bool   // a trajectory without a group takes no part
	Pairs  string // PairsBestWorst or PairsAll: groups are made into pairs; "": they are not
	Text   TextKind
	Steps  StepTokens // of TextSteps
	Layout Layout     // of rows that are kept on disk
	// Weigh weighs the parts of replies; nil: each weighs 1. It multiplies what a row itself
	// says (a file's column loss_weights, a row of text's weight).
	Weigh     *lossscale.Rules
	LastRound bool // Layout takes the last reply only
	Experts   bool // the experts that were chosen for the tokens are read
}

// Layout says which tokens of a row are counted when it is put on disk. Whoever lays the rows
// out by one of the same name need not count them again.
type Layout struct {
	Name  string
	Count func(e *episode.Episode) // sets e.Counts
}

// rowColumns are those that training reads.
var rowColumns = []string{"id", "group_id", "task_id", "dataset", "policy", "policy_version", "sequences",
	"steps", "reward", "reward_parts", "termination", "turns", "meta", parquet.ColumnLossWeights}

// scoredBy are the columns that a reward looks at.
var scoredBy = []string{"question", "answer", "messages"}

// shownOf are the columns that demonstrations come from.
var shownOf = []string{"question", "answer"}

// columns are those that are read of a file that has some.
func (o *Options) columns(path string, have map[string]bool) (cols []string, err error) {
	needed := []string{"sequences"}
	switch {
	case o.Score != nil:
		needed = append(needed, "messages")
	case o.Reward:
		needed = append(needed, "reward")
	}
	for _, column := range needed {
		if !have[column] {
			return nil, malformed.At(path, "column "+column, malformed.Missing, "there is none; train reads files in the schema of docs/format.md")
		}
	}
	wanted := rowColumns
	switch {
	case o.Score != nil:
		wanted = slices.Concat(wanted, scoredBy)
	case o.Observations != nil || o.Weigh.NeedsQueries():
		wanted = slices.Concat(wanted, []string{"messages"})
	}
	if o.Experts {
		wanted = slices.Concat(wanted, []string{parquet.ColumnExperts})
	}
	if o.Demonstrations != nil {
		wanted = slices.Concat(wanted, shownOf)
	}
	if have[parquet.ColumnImages] { // the files of images stand in the messages
		wanted = slices.Concat(wanted, []string{"messages", parquet.ColumnImages})
	}
	for _, c := range wanted {
		if have[c] && !slices.Contains(cols, c) {
			cols = append(cols, c)
		}
	}
	return cols, nil
}

// Load reads the files of a run: trajectories and, where Options.Text says so, rows of text.
// A pattern with *, ? or [ names several files. Rows that cannot be trained on are in
// Data.Skipped; that none is left is ErrNoRows. The episodes are in the order of their ids.
func Load(ctx context.Context, patterns []string, o Options) (_ *Data, end error) {
	l := &loading{Data: &Data{Unscored: !o.Reward}, o: &o, seen: seen{ids: map[string]string{}, texts: map[string]string{}}}
	if o.Made != nil && o.Score != nil {
		l.replay = &o.Made
	}
	d := l.Data
	if o.OnDisk {
		d.Layout = o.Layout.Name
		spill, err := store.NewSpill()
		if err != nil {
			return nil, err
		}
		d.Spill = spill
		defer func() {
			if end != nil {
				_ = spill.Close()
			}
		}()
	}
	var err error
	if d.Files, err = filesOf(patterns); err != nil {
		return nil, err
	}
	d.Runs, d.RewardSums = make([]RunSource, len(d.Files)), make([]RewardSum, len(d.Files))
	for i, f := range d.Files {
		isText, err := l.isText(f)
		switch {
		case err != nil:
		case isText:
			err = l.readText(ctx, f)
		default:
			err = l.readTrajectories(ctx, f, i)
		}
		if err != nil {
			return nil, err
		}
	}
	if l.replay != nil && len(*l.replay) > 0 {
		return nil, traj.Mark(
			setting.Errorf("the files have %d rows fewer than the checkpoint was written with; "+
				"put them back as they were, or start afresh without %s",
				len(*l.replay), setting.Name("Resume")), ErrOtherRows)
	}
	if d.Spill != nil {
		if err := d.Spill.Finish(); err != nil {
			return nil, err
		}
	}
	// A rollout writes its rows as they end, which differs from run to run. The model that is
	// trained on them must not.
	slices.SortStableFunc(d.Episodes, func(a, b *episode.Episode) int { return strings.Compare(a.ID, b.ID) })
	d.Unmatched, d.Rounded = o.Weigh.Unmatched(), o.Weigh.Rounded()
	if err = d.empty(); err == nil && o.Pairs != "" {
		_, err = d.MakePairs(o.Pairs)
	}
	return d, err
}

// filesOf are the files that patterns name, each once.
func filesOf(patterns []string) (all []string, err error) {
	for _, p := range patterns {
		files := []string{p}
		if strings.ContainsAny(p, "*?[") {
			if files, err = filepath.Glob(p); err != nil || len(files) == 0 {
				return nil, malformed.At(p, "", malformed.Missing, "no file matches the pattern")
			}
		}
		for _, f := range files {
			// Overlapping patterns name a file twice; its rows count once.
			if f = filepath.Clean(f); !slices.Contains(all, f) {
				all = append(all, f)
			}
		}
	}
	return all, nil
}

// loading is data that is being read.
type loading struct {
	*Data
	o      *Options
	seen   seen
	replay *[]MadeReward // of Options.Made, those of rows that are still to be read; nil: rewards are not made again
	text   *textReader   // nil: no file of text was read yet
}

// add takes an episode in.
func (l *loading) add(e *episode.Episode) error {
	l.Episodes = append(l.Episodes, e)
	if l.Spill == nil {
		return nil
	}
	if l.o.Layout.Count != nil {
		l.o.Layout.Count(e)
	}
	return l.Spill.Put(e)
}

// sampledBy notes the policy of a row.
func (l *loading) sampledBy(name, file string) {
	if name != "" && !slices.ContainsFunc(l.Policies, func(p Policy) bool { return p.Name == name }) {
		l.Policies = append(l.Policies, Policy{name, file})
	}
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

// trajectoryFile is one that is being read.
type trajectoryFile struct {
	path         string
	number       int                  // among Data.Files
	run          *RunSource           // that it says it is of
	row          int                  // the newest one, from 1
	format       *Format              // of the tool output; nil: it is not looked for
	temperatures []float64            // of each row; nil: that of the run
	vocabulary   lossscale.Vocabulary // of Options.Weigh
	images       *processor.Processor // of its images; nil: none was seen yet
}

// readTrajectories reads the file of number i.
func (l *loading) readTrajectories(ctx context.Context, path string, i int) error {
	o, f := l.o, &trajectoryFile{path: path, number: i, run: &l.Runs[i]}
	r, err := parquet.Open(path)
	if errors.Is(err, parquet.ErrNotParquet) && strings.HasSuffix(path, ".jsonl") {
		return setting.Errorf("%w; roll it out first and train on the trajectories, or train on its text with %s sft", err, setting.Name("Algo"))
	}
	if err != nil {
		return err
	}
	defer r.Close()
	if raw := r.Metadata().Run; len(raw) > 0 {
		// A file of another program may carry anything here.
		_ = json.Unmarshal(raw, f.run)
	}
	have := map[string]bool{}
	for _, c := range r.Columns() {
		have[c] = true
	}
	cols, err := o.columns(path, have)
	if err != nil {
		return err
	}
	if !have["group_id"] {
		l.Ungrouped = append(l.Ungrouped, path)
	}
	if o.Observations != nil && have["messages"] {
		if f.format, err = o.Observations(f.run.Model.Name); err != nil {
			return err
		}
	}
	if have[temperatureColumn] {
		if f.temperatures, err = ownTemperatures(ctx, path); err != nil {
			return err
		}
	}
	if o.Weigh != nil {
		if f.vocabulary, err = o.vocabulary(f.run.Model.Name); err != nil {
			return err
		}
	}
	rows := r.RowsAhead(ctx, ahead(), cols...)
	switch {
	case l.replay != nil:
		rows = replayed(rows, l.replay)
	case o.Score != nil:
		rows = rescored(ctx, rows, o.Score)
	}
	for t, err := range rows {
		if err != nil {
			return err
		}
		f.row++
		if err := l.readTrajectory(f, t); err != nil {
			return err
		}
	}
	return nil
}

// readTrajectory takes a row in, or counts why it takes no part.
func (l *loading) readTrajectory(f *trajectoryFile, t *traj.Trajectory) error {
	d, o := l.Data, l.o
	if o.Score != nil {
		d.Made = append(d.Made, madeOf(t))
	}
	id := t.ID
	if id == "" {
		id = fmt.Sprintf("%s:row %d", filepath.Base(f.path), f.row)
	}
	if other, dup := l.seen.ids[id]; dup && t.ID != "" {
		if other != f.path {
			// The same ids in two files are two runs: their groups are not one.
			id = filepath.Base(f.path) + ":" + id
		} else {
			d.Skipped.Add("with an id that occurs twice in the file", id)
			return nil
		}
	}
	e, reason, err := parseRow(t, id, o)
	if err == nil && reason == "" {
		err = l.readImages(e, t, f)
	}
	if err == nil && reason == "" {
		if o.Weigh != nil {
			weighReplies(e, t, o.Weigh, f.vocabulary)
		}
		if o.weighsNothing(e) {
			reason = "whose tokens all have weight 0"
		}
	}
	if err != nil {
		return &malformed.Error{Path: f.path, ID: strings.TrimPrefix(id, filepath.Base(f.path)+":"), Err: err}
	}
	if reason != "" {
		d.Skipped.Add(reason, id)
		return nil
	}
	l.seen.ids[t.ID] = f.path // a row that takes no part leaves its id to another attempt
	if f.format != nil {
		found, err := markContent(e, t, f.format)
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
	if e.Group == "" && !o.Group {
		e.Group = e.ID
	}
	if e.Group == "" {
		d.Skipped.Add("without a group_id or task_id, so with nothing to compare them with", id)
		return nil
	}
	temperature := f.run.Temperature()
	if f.temperatures != nil && !math.IsNaN(f.temperatures[f.row-1]) {
		temperature = f.temperatures[f.row-1]
	}
	SetTemperature(e, temperature, f.run)
	if !taggedGroup.MatchString(e.Group) { // else it is of one run, however many files have its rows
		e.Group = f.path + "\x00" + e.Group
	}
	e.Group, e.Task, e.File = l.seen.once(e.Group), l.seen.once(e.Task), f.path
	d.Parts.add(e)
	if o.Reward && o.Score == nil { // a reward made anew may differ each time
		d.RewardSums[f.number].add(e)
	}
	if err := l.add(e); err != nil {
		return err
	}
	l.sampledBy(cmp.Or(t.Policy, f.run.Model.Name), f.path)
	return nil
}
