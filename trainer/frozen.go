package trainer

import (
	"bufio"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"

	"agentcli/internal/setting"
	"agentcli/trainer/episode"
	"agentcli/trainer/rows"
	"agentcli/trainer/store"
	"agentcli/traj"
)

// Frozen is what the models said before the first update: log-probs of the policy
// that the run started from, of the reference and of the teacher, and the critic's
// values. It belongs in the checkpoint: the resumed models have moved on and could
// not give it again. It holds none of that itself where it stands on disk anyway,
// and is written and read one episode after the other.
type Frozen struct {
	Scores []float64   // by the reward model, of all episodes of the files; nil: there was none
	Diff   RolloutDiff // of the file's log-probs to the starting policy's, once it is known
	Ended  bool        // no step follows, however many there were to be
	Left   int         // steps so far that were left out (Config.SkipBad, Config.TargetKL), which Adam does not count
	// Unvalued is how many steps so far moved the policy and left the critic as it was,
	// which its Adam does not count.
	Unvalued int
	// Unmeasured are the metrics of the newest step, where the evaluation after it was
	// interrupted; nil: it was not.
	Unmeasured *Metrics

	eval    *Frozen          // of the held-out rows; nil: there are none
	n       int              // episodes that are trained on
	rewards []rows.RewardSum // of the files
	made    []rows.MadeReward
	rows    func() iter.Seq2[*logprobRecord, error]
}

// logprobRecord is what the models said of one episode, [sequences][wanted tokens]; the
// inner slices are nil where no model was asked. Its field names are those of the file.
type logprobRecord struct {
	ID                       string
	Old, Ref, Teacher, Value [][]float64
}

// frozenHead is what a file of them begins with; as many logprobRecords follow.
type frozenHead struct {
	Format, Episodes int
	Scores           []float64
	Diff             RolloutDiff
	Rewards          []rows.RewardSum // nil: of a version that did not keep them
	Ended            bool
	Left             int
	Unvalued         int
	Unmeasured       *Metrics
	Made             []rows.MadeReward // rewards made anew
	Eval             int               // records that follow of held-out rows, plus 1; 0: there are none
	EvalMade         []rows.MadeReward // rewards made anew of held-out rows that have files of their own
}

const frozenFormat = 3 // 3: episodes are in the order of their ids

// HeldOut is what is kept of the held-out rows; nil where there is nothing.
func (f *Frozen) HeldOut() *Frozen {
	if f == nil {
		return nil
	}
	return f.eval
}

// MadeRewards are the rewards that were made anew when the run began (rows.Sources.Made);
// nil: none were.
func (f *Frozen) MadeRewards() []rows.MadeReward {
	if f == nil {
		return nil
	}
	return f.made
}

// recorded says which column of the store each field of a logprobRecord is.
var recorded = []struct {
	column store.Column
	field  func(*logprobRecord) *[][]float64
}{
	{store.OldLogprobs, func(r *logprobRecord) *[][]float64 { return &r.Old }},
	{store.RefLogprobs, func(r *logprobRecord) *[][]float64 { return &r.Ref }},
	{store.TeacherLogprobs, func(r *logprobRecord) *[][]float64 { return &r.Teacher }},
	{store.Values, func(r *logprobRecord) *[][]float64 { return &r.Value }},
}

func recordOf(e *episode.Episode) *logprobRecord {
	r := &logprobRecord{ID: e.ID}
	for _, c := range recorded {
		of := make([][]float64, len(e.Streams))
		for i := range e.Streams {
			of[i] = *c.column.Of(&e.Streams[i])
		}
		*c.field(r) = of
	}
	return r
}

// freeze keeps what was said of the episodes.
func freeze(t *Trainer, episodes []*episode.Episode) *Frozen {
	f := &Frozen{n: len(episodes), Scores: t.scores, rewards: t.Data.RewardSums, made: t.Data.Made}
	if t.heldOut != nil {
		f.eval = t.heldOut.rows.Frozen
	}
	if t.Data.Spill == nil {
		all := make([]*logprobRecord, len(episodes))
		for i, e := range episodes {
			all[i] = recordOf(e)
		}
		f.rows = func() iter.Seq2[*logprobRecord, error] {
			return func(yield func(*logprobRecord, error) bool) {
				for _, r := range all {
					if !yield(r, nil) {
						return
					}
				}
			}
		}
		return f
	}
	episodes = slices.Clone(episodes)
	f.rows = func() iter.Seq2[*logprobRecord, error] {
		return func(yield func(*logprobRecord, error) bool) {
			for _, e := range episodes {
				release, err := t.loader.Load(e)
				if err != nil {
					yield(nil, err)
					return
				}
				r := recordOf(e)
				release()
				if !yield(r, nil) {
					return
				}
			}
		}
	}
	return f
}

// restore hands back to the episodes what a checkpoint has of them, in the needed columns.
func restore(t *Trainer, episodes []*episode.Episode, needed map[store.Column]bool) error {
	f := t.Frozen
	changed := func(what string) error {
		return traj.Mark(setting.Errorf("the trajectories are not those that the checkpoint was written with (%s); "+
			"put the files back as they were, or start afresh without %s", what, setting.Name("Resume")), rows.ErrOtherRows)
	}
	if f.n != len(episodes) {
		return changed(fmt.Sprintf("%d then, %d now", f.n, len(episodes)))
	}
	var cols []store.Column
	for _, k := range recorded {
		if needed[k.column] {
			cols = append(cols, k.column)
		}
	}
	var next func() (*logprobRecord, error, bool)
	if f.n > 0 {
		var stop func()
		next, stop = iter.Pull2(f.rows())
		defer stop()
	}
	read := 0
	err := t.loader.Each(episodes, func(e *episode.Episode) error {
		r, err, ok := next()
		switch {
		case err != nil:
			return err
		case !ok:
			return changed(fmt.Sprintf("%d then, %d now", read, f.n))
		case r.ID != e.ID:
			return changed(fmt.Sprintf("%s then, %s now", r.ID, e.ID))
		}
		read++
		for _, k := range recorded {
			if !needed[k.column] {
				continue
			}
			from := *k.field(r)
			if len(from) != len(e.Streams) {
				return changed(e.ID)
			}
			for j := range e.Streams {
				if len(from[j]) != len(e.Streams[j].ActionWeight) {
					return changed(e.ID)
				}
				*k.column.Of(&e.Streams[j]) = from[j]
			}
		}
		return nil
	}, cols...)
	if err != nil {
		return err
	}
	// The checkpoint that it was read from will be gone when the next is written.
	t.Frozen = freeze(t, episodes)
	t.Frozen.Scores, t.Frozen.Diff, t.Frozen.Ended, t.Frozen.eval = f.Scores, f.Diff, f.Ended, f.eval
	t.Frozen.Left, t.Frozen.Unvalued, t.Frozen.Unmeasured = f.Left, f.Unvalued, f.Unmeasured
	return nil
}

// WriteFile writes everything, bit for bit.
func (f *Frozen) WriteFile(path string) error {
	w, err := os.Create(path)
	if err != nil {
		return err
	}
	buf := bufio.NewWriterSize(w, 1<<20)
	if err := errors.Join(f.write(buf), buf.Flush()); err != nil {
		w.Close()
		return fmt.Errorf("%s: %w", path, err)
	}
	return w.Close()
}

func (f *Frozen) write(w io.Writer) error {
	enc := gob.NewEncoder(w)
	head := frozenHead{Format: frozenFormat, Episodes: f.n, Scores: f.Scores, Diff: f.Diff, Rewards: f.rewards,
		Ended: f.Ended, Left: f.Left, Unvalued: f.Unvalued, Unmeasured: f.Unmeasured, Made: f.made}
	if f.eval != nil {
		head.Eval, head.EvalMade = f.eval.n+1, f.eval.made
	}
	if err := enc.Encode(head); err != nil {
		return err
	}
	for _, x := range []*Frozen{f, f.eval} {
		if x == nil || x.n == 0 {
			continue
		}
		for r, err := range x.rows() {
			if err != nil {
				return err
			}
			if err := enc.Encode(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// ReadFrozen reads what WriteFile wrote; most of it later, when a run goes on
// with it: the file must stay until then.
func ReadFrozen(path string) (*Frozen, error) {
	r, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var head frozenHead
	damaged := func(err error) error { return fmt.Errorf("%s: the checkpoint is damaged: %w", path, err) }
	if err := gob.NewDecoder(bufio.NewReader(r)).Decode(&head); err != nil {
		return nil, damaged(err)
	}
	if head.Format != frozenFormat {
		return nil, setting.Errorf("%s: the checkpoint is of another version of agentcli; go on with that one, or start afresh without %s",
			path, setting.Name("Resume"))
	}
	f := &Frozen{n: head.Episodes, Scores: head.Scores, Diff: head.Diff, rewards: head.Rewards,
		Ended: head.Ended, Left: head.Left, Unvalued: head.Unvalued, Unmeasured: head.Unmeasured, made: head.Made}
	f.rows = recordsIn(path, 0, f.n)
	if head.Eval > 0 {
		f.eval = &Frozen{n: head.Eval - 1, made: head.EvalMade, rows: recordsIn(path, f.n, head.Eval-1)}
	}
	return f, nil
}

// recordsIn reads n records of a file that WriteFile wrote, behind those that are
// skipped.
func recordsIn(path string, skip, n int) func() iter.Seq2[*logprobRecord, error] {
	damaged := func(err error) error { return fmt.Errorf("%s: the checkpoint is damaged: %w", path, err) }
	return func() iter.Seq2[*logprobRecord, error] {
		return func(yield func(*logprobRecord, error) bool) {
			r, err := os.Open(path)
			if err != nil {
				yield(nil, err)
				return
			}
			defer r.Close()
			dec := gob.NewDecoder(bufio.NewReaderSize(r, 1<<20))
			if err := dec.Decode(&frozenHead{}); err != nil {
				yield(nil, damaged(err))
				return
			}
			for i := range skip + n {
				x := &logprobRecord{}
				if err := dec.Decode(x); err != nil {
					yield(nil, damaged(err))
					return
				}
				if i >= skip && !yield(x, nil) {
					return
				}
			}
		}
	}
}
