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

	"agentcli/trainer/episode"
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

	eval    *Frozen     // of the held-out rows; nil: there are none
	n       int         // episodes that are trained on
	rewards []rewardSum // of the files
	made    []madeReward
	rows    func() iter.Seq2[*remarks, error]
}

// remarks are what was said of one episode, by sequence and wanted token; empty
// where nobody was asked.
type remarks struct {
	ID                       string
	Old, Ref, Teacher, Value [][]float64
}

// frozenHead is what a file of them begins with; as many remarks follow.
type frozenHead struct {
	Format, Episodes int
	Scores           []float64
	Diff             RolloutDiff
	Rewards          []rewardSum // nil: of a version that did not keep them
	Ended            bool
	Left             int
	Unvalued         int
	Unmeasured       *Metrics
	Made             []madeReward // rewards made anew
	Eval             int          // remarks that follow of held-out rows, plus 1; 0: there are none
	EvalMade         []madeReward // rewards made anew of held-out rows that have files of their own
}

const frozenFormat = 2

// HeldOut is what is kept of the held-out rows; nil where there is nothing.
func (f *Frozen) HeldOut() *Frozen {
	if f == nil {
		return nil
	}
	return f.eval
}

func remarksOf(e *episode.Episode) *remarks {
	n := len(e.Streams)
	r := &remarks{ID: e.ID, Old: make([][]float64, n), Ref: make([][]float64, n), Teacher: make([][]float64, n), Value: make([][]float64, n)}
	for i, x := range e.Streams {
		r.Old[i], r.Ref[i], r.Teacher[i], r.Value[i] = x.OldLogprobs, x.RefLogprobs, x.TeacherLogprobs, x.Values
	}
	return r
}

// freeze keeps what was said of the episodes.
func (s *Session) freeze(episodes []*episode.Episode) *Frozen {
	f := &Frozen{n: len(episodes), Scores: s.scores, rewards: s.Data.rewards, made: s.Data.made}
	if s.eval != nil {
		f.eval = s.eval.Frozen
	}
	if s.Data.shelf == nil {
		all := make([]*remarks, len(episodes))
		for i, e := range episodes {
			all[i] = remarksOf(e)
		}
		f.rows = func() iter.Seq2[*remarks, error] {
			return func(yield func(*remarks, error) bool) {
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
	f.rows = func() iter.Seq2[*remarks, error] {
		return func(yield func(*remarks, error) bool) {
			for _, e := range episodes {
				opened, err := s.open(e)
				if err != nil {
					yield(nil, err)
					return
				}
				r := remarksOf(e)
				if opened {
					e.Body = nil
				}
				if !yield(r, nil) {
					return
				}
			}
		}
	}
	return f
}

// restore hands everything back to the episodes that it is of.
func (s *Session) restore(episodes []*episode.Episode, values bool) error {
	f, c := s.Frozen, s.Config
	changed := func(what string) error {
		return fmt.Errorf("the trajectories are not those that the checkpoint was written with (%s); put the files back as they were, or start afresh without --resume", what)
	}
	if f.n != len(episodes) {
		return changed(fmt.Sprintf("%d then, %d now", f.n, len(episodes)))
	}
	var cols []column
	for k, need := range []bool{!c.IsSupervised() && (s.old == oldAsked || s.old == oldOfFile), c.KLCoef > 0 && !s.refIsCurrent() || c.Algo == AlgoDPO, c.Loss == "opd", values} {
		if need {
			cols = append(cols, column(k))
		}
	}
	i := 0
	if f.n > 0 {
		for r, err := range f.rows() {
			if err != nil {
				return err
			}
			e := episodes[i]
			if r.ID != e.ID {
				return changed(fmt.Sprintf("%s then, %s now", r.ID, e.ID))
			}
			err = s.together([]*episode.Episode{e}, func() error {
				for _, k := range cols {
					from := [][][]float64{r.Old, r.Ref, r.Teacher, r.Value}[k]
					if len(from) != len(e.Streams) {
						return changed(e.ID)
					}
					for j := range e.Streams {
						if len(from[j]) != len(e.Streams[j].ActionWeight) {
							return changed(e.ID)
						}
						*k.of(&e.Streams[j]) = from[j]
					}
				}
				return nil
			}, cols...)
			if err != nil {
				return err
			}
			i++
		}
	}
	if i != f.n {
		return changed(fmt.Sprintf("%d then, %d now", i, f.n))
	}
	s.stored(cols...)
	// The checkpoint that it was read from will be gone when the next is written.
	s.Frozen = s.freeze(episodes)
	s.Frozen.Scores, s.Frozen.Diff, s.Frozen.Ended, s.Frozen.eval = f.Scores, f.Diff, f.Ended, f.eval
	s.Frozen.Left, s.Frozen.Unvalued, s.Frozen.Unmeasured = f.Left, f.Unvalued, f.Unmeasured
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
	head := frozenHead{Format: frozenFormat, Episodes: f.n, Scores: f.Scores, Diff: f.Diff, Rewards: f.rewards, Ended: f.Ended, Left: f.Left, Unvalued: f.Unvalued, Unmeasured: f.Unmeasured, Made: f.made}
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

// ReadFrozen reads what WriteFile wrote; most of it later, when a session goes on
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
		return nil, fmt.Errorf("%s: the checkpoint is of another version of agentcli; go on with that one, or start afresh without --resume", path)
	}
	f := &Frozen{n: head.Episodes, Scores: head.Scores, Diff: head.Diff, rewards: head.Rewards, Ended: head.Ended, Left: head.Left, Unvalued: head.Unvalued, Unmeasured: head.Unmeasured, made: head.Made}
	f.rows = remarksIn(path, 0, f.n)
	if head.Eval > 0 {
		f.eval = &Frozen{n: head.Eval - 1, made: head.EvalMade, rows: remarksIn(path, f.n, head.Eval-1)}
	}
	return f, nil
}

// remarksIn reads n remarks of a file that WriteFile wrote, behind those that are
// skipped.
func remarksIn(path string, skip, n int) func() iter.Seq2[*remarks, error] {
	damaged := func(err error) error { return fmt.Errorf("%s: the checkpoint is damaged: %w", path, err) }
	return func() iter.Seq2[*remarks, error] {
		return func(yield func(*remarks, error) bool) {
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
				x := &remarks{}
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
