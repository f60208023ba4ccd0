package trainer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"agentcli/policy"
	"agentcli/trainer/algo"
	"agentcli/trainer/episode"
	"agentcli/trainer/store"
	"agentcli/traj"
)

// precompute fills in what the models said before anything changed: from the
// checkpoint of a resumed run, else by asking them.
func (s *Session) precompute(ctx context.Context, episodes []*episode.Episode, values Scorer) error {
	c := s.Config
	s.old = s.oldSource(episodes)
	if s.Done > 0 {
		return s.restore(episodes, values != nil)
	}
	var diff RolloutDiff
	if err := s.oldLogprobs(ctx, episodes, &diff); err != nil {
		return err
	}
	switch {
	case c.KLCoef == 0 || s.refIsCurrent():
	case s.Ref == Scorer(s.Actor) && s.old == oldAsked: // it was just asked
		s.refIsOld(episodes)
	default:
		err := s.score(ctx, "ref", s.Ref, episodes, intoColumn(store.RefLogprobs), store.RefLogprobs)
		if err != nil {
			return err
		}
	}
	if c.needsTeacher() {
		if err := s.demonstrations(episodes); err != nil {
			return err
		}
		err := s.score(ctx, "teacher", s.Teacher, episodes, intoColumn(store.TeacherLogprobs), store.TeacherLogprobs)
		if err != nil {
			return err
		}
	}
	if values != nil {
		err := s.score(ctx, "values", values, episodes, intoColumn(store.Values), store.Values)
		if err != nil {
			return err
		}
	}
	if s.Release != nil {
		s.Release()
		s.Ref, s.Teacher, s.Reward = nil, nil, nil
	}
	s.demonstrationOf = nil
	s.Frozen = s.freeze(episodes)
	s.Frozen.Diff = diff
	return nil
}

// oldLogprobs fills TokenStream.OldLogprobs, and looks that the file has what the settings
// ask of it. Recomputed ones are compared with the file's.
func (s *Session) oldLogprobs(ctx context.Context, episodes []*episode.Episode, diff *RolloutDiff) error {
	c := s.Config
	for _, e := range episodes {
		if err := checkRecorded(e, c); err != nil {
			return err
		}
		switch {
		case !e.MissingLogprobs || e.LogprobsUntempered: // recomputed ones will do
		case c.OldLogprobs == OldFile:
			return traj.Mark(fmt.Errorf("%s: some of its tokens have no log-prob in the file; use --old-logprobs recompute", e.ID), ErrUnfit)
		case c.needsRollout():
			return traj.Mark(fmt.Errorf("%s: some of its tokens have no log-prob in the file, which --loss %s or --off-policy %s needs", e.ID, c.Loss, c.OffPolicy.Kind), ErrUnfit)
		}
		if c.OldLogprobs == OldFile && e.Body != nil {
			useRolloutLogprobs(e)
		}
	}
	if s.old != oldAsked {
		return nil
	}
	return s.score(ctx, "old_log_prob", s.Actor, episodes, func(it store.Item, o policy.Outputs) error {
		x := it.Stream()
		if x.OldLogprobs = o.Logprobs; x.RolloutLogprobs != nil {
			diff.add(x.OldLogprobs, x.RolloutLogprobs, x.ActionWeight)
		}
		return nil
	}, store.OldLogprobs)
}

// useRolloutLogprobs takes the file's log-probs for those of the old policy, where it
// has them.
func useRolloutLogprobs(e *episode.Episode) {
	for i := range e.Streams {
		e.Streams[i].OldLogprobs = e.Streams[i].RolloutLogprobs
	}
}

// oldSource says where the log-probs before the update come from.
type oldSource int

const (
	oldAsked     oldSource = iota // of a forward pass of the policy before its first update
	oldOfFile                     // as recorded at sampling
	oldIsCurrent                  // of the one update itself: the policy before it is the one that is updated
	oldNotRead                    // nothing reads them: what was recorded stands in for them in the metrics
)

// oldSource finds it: no forward pass whose result nothing reads.
func (s *Session) oldSource(episodes []*episode.Episode) oldSource {
	c := s.Config
	loss, _ := algo.LossByName(c.Loss)
	reads := c.readsOld() || c.klInLoss() && s.Ref == Scorer(s.Actor) ||
		loss.NeedsRollout() && slices.ContainsFunc(episodes, func(e *episode.Episode) bool { return e.LogprobsUntempered })
	switch {
	case c.OldLogprobs == OldFile:
		return oldOfFile
	case c.klInReward(): // the advantages need them first
		return oldAsked
	case !reads:
		return oldNotRead
	case c.Epochs == 1 && len(minibatches(s.groups, c.Minibatch, rng(c.Seed, 0))) == 1:
		return oldIsCurrent
	}
	return oldAsked
}

// refIsCurrent reports whether the reference is the policy in its only update.
func (s *Session) refIsCurrent() bool {
	return s.old == oldIsCurrent && s.Config.klInLoss() && s.Ref == Scorer(s.Actor)
}

// refIsOld takes the old log-probs for the reference's.
func (s *Session) refIsOld(episodes []*episode.Episode) {
	s.loader.Same(episodes, store.RefLogprobs, store.OldLogprobs)
}

// intoColumn puts what a model says into a column: values into that of values, else log-probs.
func intoColumn(k store.Column) func(store.Item, policy.Outputs) error {
	return func(it store.Item, o policy.Outputs) error {
		x := it.Stream()
		if *k.Of(x) = o.Logprobs; k == store.Values {
			x.Values = o.Values
		}
		return nil
	}
}

// score runs the episodes through a model and hands on what it says of each
// sequence's tokens; the columns that take fills are kept.
func (s *Session) score(ctx context.Context, phase string, model Scorer, episodes []*episode.Episode, take func(store.Item, policy.Outputs) error, fills ...store.Column) error {
	if phase == "forward" { // within an update, and counted there
		return s.pass(ctx, phase, model, episodes, take, fills...)
	}
	return s.timed(phase, func() error { return s.pass(ctx, phase, model, episodes, take, fills...) })
}

func (s *Session) pass(ctx context.Context, phase string, model Scorer, episodes []*episode.Episode, take func(store.Item, policy.Outputs) error, fills ...store.Column) error {
	done, total := 0, sequences(episodes)
	for mb, err := range s.loader.MicroBatches(episodes, fills...) {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return ErrInterrupted
		}
		batch := mb.Batch
		if slices.Contains(fills, store.TeacherLogprobs) && s.Config.Demonstration != DemonstrateNothing {
			if batch, err = s.demonstrated(mb); err != nil {
				return err
			}
		}
		o, err := model.Forward(batch)
		if err == nil {
			err = mb.Each(o, take)
		}
		if err != nil {
			return fmt.Errorf("%s: %s: %w", phase, mb.Rows(), err)
		}
		done += len(mb.Items)
		s.progress(phase, done, total)
	}
	return nil
}

// rescore puts a reward model's scores in the place of the file's. A resumed run
// has them in its checkpoint.
func (s *Session) rescore(ctx context.Context) error {
	all := s.Data.Episodes
	switch {
	case s.Done > 0 && s.Frozen.Scores != nil:
		if len(s.Frozen.Scores) != len(all) {
			return fmt.Errorf("the trajectories are not those that the checkpoint was written with (%d then, %d now)", len(s.Frozen.Scores), len(all))
		}
		s.scores = s.Frozen.Scores
	case s.Reward != nil:
		read := make([]*episode.Episode, len(all))
		for i, e := range all {
			read[i] = &episode.Episode{ID: e.ID, Layout: episode.LayoutOfLastToken, Store: e.Store, StoredAt: e.StoredAt, StoredBytes: e.StoredBytes}
			if e.Body != nil {
				read[i].Body = &episode.Body{Sequences: e.Sequences}
			}
		}
		if err := s.loader.Count(read); err != nil {
			return err
		}
		err := s.score(ctx, "reward_model", s.Reward, read, func(it store.Item, o policy.Outputs) error {
			if len(o.Values) != 1 {
				return errors.New("the reward model has no value head")
			}
			it.Episode.Score = o.Values[0]
			return nil
		})
		if err != nil {
			return err
		}
		s.scores = make([]float64, len(all))
		for i, e := range read {
			s.scores[i] = e.Score
		}
	default:
		return nil
	}
	for i, e := range all {
		e.Unscored = false
		if e.Score = s.scores[i]; e.Body != nil {
			e.Parts, e.StepRewards = nil, nil
		}
	}
	return nil
}
