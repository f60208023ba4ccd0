package trainer

import (
	"encoding/gob"
	"fmt"
	"os"
)

// Frozen are the log-probs that a run computes once, before its first update:
// those of the policy it started from, and of the reference. They belong in the
// checkpoint: the resumed model has moved on and could not give them again.
type Frozen struct {
	IDs []string      // of the episodes that are trained on, in order
	Old [][][]float64 // episode, sequence, sampled token
	Ref [][][]float64 // the same; nil without a KL term

	Diff RolloutDiff // of the file's log-probs to the starting policy's, once it is known
}

func freeze(episodes []*Episode, c Config) *Frozen {
	f := &Frozen{}
	for _, e := range episodes {
		f.IDs, f.Old = append(f.IDs, e.ID), append(f.Old, e.Old)
		if c.KLCoef > 0 {
			f.Ref = append(f.Ref, e.Ref)
		}
	}
	return f
}

// restore hands the log-probs back to the episodes they are of.
func (f *Frozen) restore(episodes []*Episode, c Config) error {
	changed := func(what string) error {
		return fmt.Errorf("the trajectories are not those that the checkpoint was written with (%s); put the files back as they were, or start afresh without --resume", what)
	}
	if len(f.IDs) != len(episodes) || len(f.Old) != len(episodes) {
		return changed(fmt.Sprintf("%d then, %d now", len(f.IDs), len(episodes)))
	}
	if c.KLCoef > 0 && len(f.Ref) != len(episodes) {
		return changed("it has no log-probs of the reference")
	}
	for i, e := range episodes {
		if f.IDs[i] != e.ID {
			return changed(fmt.Sprintf("%s then, %s now", f.IDs[i], e.ID))
		}
		e.Old = f.Old[i]
		if c.KLCoef > 0 {
			e.Ref = f.Ref[i]
		}
		for _, lps := range [][][]float64{e.Old, e.Ref} {
			if lps == nil {
				continue
			}
			if len(lps) != len(e.Sequences) {
				return changed(e.ID)
			}
			for j := range lps {
				if len(lps[j]) != e.Sequences[j].Sampled() {
					return changed(e.ID)
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
