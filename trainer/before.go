package trainer

import (
	"context"
	"fmt"

	"agentcli/policy"
	"agentcli/traj"
)

// before fills in what the models said before anything changed: from the
// checkpoint of a resumed run, else by asking them.
func (s *Session) before(ctx context.Context, episodes []*Episode, values Scorer) error {
	c := s.Config
	if s.Done > 0 {
		return s.restore(episodes, values != nil)
	}
	var diff RolloutDiff
	if err := s.oldLogprobs(ctx, episodes, &diff); err != nil {
		return err
	}
	switch {
	case c.KLCoef == 0:
	case s.Ref == Scorer(s.Actor) && c.OldLogprobs == OldRecompute: // it was just asked
		s.refIsOld(episodes)
	default:
		err := s.score(ctx, "ref", s.Ref, episodes, colRef, into(colRef))
		if err != nil {
			return err
		}
	}
	if c.Loss == "opd" {
		if err := s.demonstrations(episodes); err != nil {
			return err
		}
		err := s.score(ctx, "teacher", s.Teacher, episodes, colTeacher, into(colTeacher))
		if err != nil {
			return err
		}
	}
	if values != nil {
		err := s.score(ctx, "values", values, episodes, colValue, into(colValue))
		if err != nil {
			return err
		}
	}
	if s.Release != nil {
		s.Release()
		s.Ref, s.Teacher, s.Reward = nil, nil, nil
	}
	s.shown = nil
	s.Frozen = s.freeze(episodes)
	s.Frozen.Diff = diff
	return nil
}

// oldLogprobs fills Stream.Old, and looks that the file has what the settings
// ask of it. Recomputed ones are compared with the file's.
func (s *Session) oldLogprobs(ctx context.Context, episodes []*Episode, diff *RolloutDiff) error {
	c := s.Config
	for _, e := range episodes {
		if err := e.checkRecorded(c); err != nil {
			return err
		}
		switch {
		case !e.unsaid || e.untold: // recomputed ones will do
		case c.OldLogprobs == OldFile:
			return traj.Mark(fmt.Errorf("%s: some of its tokens have no log-prob in the file; use --old-logprobs recompute", e.ID), ErrUnfit)
		case c.needsRollout():
			return traj.Mark(fmt.Errorf("%s: some of its tokens have no log-prob in the file, which --loss %s or --off-policy %s needs", e.ID, c.Loss, c.OffPolicy.Kind), ErrUnfit)
		}
		if c.OldLogprobs == OldFile && e.Body != nil {
			e.oldFromFile()
		}
	}
	if c.OldLogprobs == OldFile {
		return nil
	}
	return s.score(ctx, "old_log_prob", s.Actor, episodes, colOld, func(it item, o policy.Outputs) error {
		x := it.stream()
		if x.Old = o.Logprobs; x.Roll != nil {
			diff.add(x.Old, x.Roll, x.RL)
		}
		return nil
	})
}

// refIsOld takes the old log-probs for the reference's.
func (s *Session) refIsOld(episodes []*Episode) {
	if s.Data.shelf != nil {
		c := s.Data.shelf.columns
		c.have[colRef], c.from[colRef] = true, c.from[colOld]
		return
	}
	for _, e := range episodes {
		for i := range e.Streams {
			e.Streams[i].Ref = e.Streams[i].Old
		}
	}
}

// into puts what a model says into a column.
func into(k column) func(item, policy.Outputs) error {
	return func(it item, o policy.Outputs) error {
		x := it.stream()
		if *k.of(x) = o.Logprobs; k == colValue {
			x.Value = o.Values
		}
		return nil
	}
}

// score runs the episodes through a model and hands on what it says of each
// sequence's tokens; the column that take fills is kept.
func (s *Session) score(ctx context.Context, phase string, model Scorer, episodes []*Episode, fills column, take func(item, policy.Outputs) error) error {
	done, total := 0, sequences(episodes)
	var cols []column
	if fills != noColumn {
		cols = []column{fills}
	}
	for mb, err := range s.micro(episodes, func(e *Episode) error { return s.store(e, cols...) }) {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return ErrInterrupted
		}
		batch := mb.batch
		if fills == colTeacher && s.Config.Demonstration != DemonstrateNothing {
			if batch, err = s.demonstrated(mb); err != nil {
				return err
			}
		}
		o, err := model.Forward(batch)
		if err == nil {
			err = mb.each(o, take)
		}
		if err != nil {
			return fmt.Errorf("%s: %s: %w", phase, names(mb.items), err)
		}
		done += len(mb.items)
		s.progress(phase, done, total)
	}
	s.stored(cols...)
	return nil
}
