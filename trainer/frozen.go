package trainer

import (
	"encoding/gob"
	"fmt"
	"os"
)

// Frozen is what the models said before the first update: log-probs of the policy
// that the run started from, of the reference and of the teacher, and the critic's
// values. It belongs in the checkpoint: the resumed models have moved on and could
// not give it again. Each is by episode, sequence and wanted token.
type Frozen struct {
	IDs     []string // of the episodes that are trained on, in order
	Old     [][][]float64
	Ref     [][][]float64 // empty rows where there is none, as in those below
	Teacher [][][]float64
	Value   [][][]float64
	Scores  []float64 // by the reward model, of all episodes of the files; nil: there was none

	Diff RolloutDiff // of the file's log-probs to the starting policy's, once it is known
}

func freeze(episodes []*Episode) *Frozen {
	f := &Frozen{}
	for _, e := range episodes {
		n := len(e.Streams)
		old, ref, teacher, value := make([][]float64, n), make([][]float64, n), make([][]float64, n), make([][]float64, n)
		for i, x := range e.Streams {
			old[i], ref[i], teacher[i], value[i] = x.Old, x.Ref, x.Teacher, x.Value
		}
		f.IDs, f.Old, f.Ref = append(f.IDs, e.ID), append(f.Old, old), append(f.Ref, ref)
		f.Teacher, f.Value = append(f.Teacher, teacher), append(f.Value, value)
	}
	return f
}

// restore hands everything back to the episodes that it is of.
func (f *Frozen) restore(episodes []*Episode, c Config, values bool) error {
	changed := func(what string) error {
		return fmt.Errorf("the trajectories are not those that the checkpoint was written with (%s); put the files back as they were, or start afresh without --resume", what)
	}
	for _, all := range [][][][]float64{f.Old, f.Ref, f.Teacher, f.Value} {
		if len(f.IDs) != len(episodes) || len(all) != len(episodes) {
			return changed(fmt.Sprintf("%d then, %d now", len(f.IDs), len(episodes)))
		}
	}
	for i, e := range episodes {
		if f.IDs[i] != e.ID {
			return changed(fmt.Sprintf("%s then, %s now", f.IDs[i], e.ID))
		}
		for _, x := range []struct {
			from [][]float64
			need bool
			to   func(*Stream) *[]float64
		}{
			{f.Old[i], !c.IsSupervised(), func(s *Stream) *[]float64 { return &s.Old }},
			{f.Ref[i], c.KLCoef > 0 || c.Algo == AlgoDPO, func(s *Stream) *[]float64 { return &s.Ref }},
			{f.Teacher[i], c.Loss == "opd", func(s *Stream) *[]float64 { return &s.Teacher }},
			{f.Value[i], values, func(s *Stream) *[]float64 { return &s.Value }},
		} {
			if len(x.from) != len(e.Streams) {
				return changed(e.ID)
			}
			for j := range e.Streams {
				if n := len(x.from[j]); x.need && n != len(e.Streams[j].RL) {
					return changed(e.ID)
				}
				if x.need {
					*x.to(&e.Streams[j]) = x.from[j]
				}
			}
		}
	}
	return nil
}

// WriteFile writes the log-probs, bit for bit.
func (f *Frozen) WriteFile(path string) error {
	w, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := gob.NewEncoder(w).Encode(f); err != nil {
		w.Close()
		return fmt.Errorf("%s: %w", path, err)
	}
	return w.Close()
}

// ReadFrozen reads what WriteFile wrote.
func ReadFrozen(path string) (*Frozen, error) {
	r, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	f := &Frozen{}
	if err := gob.NewDecoder(r).Decode(f); err != nil {
		return nil, fmt.Errorf("%s: the checkpoint is damaged: %w", path, err)
	}
	return f, nil
}
