package trainer

import (
	"context"
	"slices"

	"agentcli/internal/setting"
	"agentcli/policy"
	"agentcli/trainer/algo"
	"agentcli/trainer/episode"
	"agentcli/trainer/store"
	"agentcli/traj"
)

// precomputed says where a step finds the log-probs of the policy and of the reference before
// the first update.
type precomputed struct {
	old          oldSource
	refIsCurrent bool // the reference is the policy in its only update
}

// oldSource says where the log-probs before the update come from.
type oldSource int

const (
	oldRecomputed oldSource = iota // of a forward pass of the policy before its first update
	oldFromFile                    // as recorded at sampling
	oldIsCurrent                   // of the one update itself: the policy before it is the one that is updated
	oldUnused                      // nothing reads them: what was recorded stands in for them in the metrics
)

// precompute fills in the columns that no update changes: log π_old, log π_ref, the teacher's
// log-probs and the critic's values of the episodes. A resumed run has them in its checkpoint,
// any other one runs the models forward. critic is nil where there is none.
func precompute(ctx context.Context, t *Trainer, episodes []*episode.Episode, critic Scorer) (precomputed, error) {
	c := t.Config
	p := precomputed{old: oldLogprobsFrom(t, episodes)}
	p.refIsCurrent = p.old == oldIsCurrent && c.klInLoss() && t.Ref == Scorer(t.Actor)
	if t.Done > 0 {
		return p, restore(t, episodes, map[store.Column]bool{
			store.OldLogprobs:     p.old == oldRecomputed || p.old == oldFromFile,
			store.RefLogprobs:     c.KLCoef > 0 && !p.refIsCurrent,
			store.TeacherLogprobs: c.NeedsTeacher(),
			store.Values:          critic != nil,
		})
	}
	var diff RolloutDiff
	if err := oldLogprobs(ctx, t, p.old, episodes, &diff); err != nil {
		return p, err
	}
	switch {
	case c.KLCoef == 0 || p.refIsCurrent:
	case t.Ref == Scorer(t.Actor) && p.old == oldRecomputed: // the same numbers
		t.loader.Same(episodes, store.RefLogprobs, store.OldLogprobs)
	default:
		if err := t.forward(ctx, into(store.RefLogprobs, "ref", t.Ref), episodes); err != nil {
			return p, err
		}
	}
	if c.NeedsTeacher() {
		if err := teacherLogprobs(ctx, t, episodes); err != nil { // opd.go
			return p, err
		}
	}
	if critic != nil {
		if err := t.forward(ctx, into(store.Values, "values", critic), episodes); err != nil {
			return p, err
		}
	}
	if t.Release != nil {
		t.Release()
		t.Ref, t.Teacher, t.Reward = nil, nil, nil
	}
	t.Frozen = freeze(t, episodes)
	t.Frozen.Diff = diff
	return p, nil
}

// precompute computes what the loss reads beside a step. critic is nil where there is none.
func (p *policyGradient) precompute(ctx context.Context, critic Scorer) (err error) {
	episodes := flatten(p.t.groups)
	p.precomputed, err = precompute(ctx, p.t, episodes, critic)
	p.maxLength = maxLength(p.t.Config, p.t.Data, episodes)
	return err
}

// oldLogprobsFrom says where the old log-probs come from: no forward pass whose result nothing
// reads.
func oldLogprobsFrom(t *Trainer, episodes []*episode.Episode) oldSource {
	c := t.Config
	loss, _ := algo.LossByName(c.Loss)
	reads := c.readsOld() || c.klInLoss() && t.Ref == Scorer(t.Actor) ||
		loss.NeedsRollout() && slices.ContainsFunc(episodes, func(e *episode.Episode) bool { return e.LogprobsUntempered })
	switch {
	case c.OldLogprobs == OldFile:
		return oldFromFile
	case c.klInReward(): // the advantages need them first
		return oldRecomputed
	case !reads:
		return oldUnused
	case c.Epochs == 1 && len(minibatches(t.groups, c.Minibatch, rng(c.Seed, 0))) == 1:
		return oldIsCurrent
	}
	return oldRecomputed
}

// oldLogprobs fills TokenStream.OldLogprobs, and looks that the file has what the settings
// ask of it. Recomputed ones are compared with the file's.
func oldLogprobs(ctx context.Context, t *Trainer, from oldSource, episodes []*episode.Episode, diff *RolloutDiff) error {
	c := t.Config
	for _, e := range episodes {
		if err := checkRecorded(e, c); err != nil {
			return err
		}
		if c.RouterReplay && e.MissingExperts && e.Counts.Wanted > 0 {
			return traj.Mark(setting.Errorf("%s: the file does not say which experts were chosen for its tokens; leave out %s, or sample with it",
				e.Name(), setting.Name("RouterReplay")), ErrUnfit)
		}
		switch {
		case !e.MissingLogprobs || e.LogprobsUntempered: // recomputed ones will do
		case c.OldLogprobs == OldFile:
			return traj.Mark(setting.Errorf("%s: some of its tokens have no log-prob in the file; use %s recompute",
				e.ID, setting.Name("OldLogprobs")), ErrUnfit)
		case c.needsRollout():
			return traj.Mark(setting.Errorf("%s: some of its tokens have no log-prob in the file, which %s %s or %s %s needs",
				e.ID, setting.Name("Loss"), c.Loss, setting.Name("OffPolicy"), c.OffPolicy.Kind), ErrUnfit)
		}
		if c.OldLogprobs == OldFile && e.Body != nil {
			useRolloutLogprobs(e)
		}
	}
	if from != oldRecomputed {
		return nil
	}
	take := func(it store.Item, o policy.Outputs) error {
		x := it.Stream()
		if x.OldLogprobs = o.Logprobs; x.RolloutLogprobs != nil {
			diff.add(x.OldLogprobs, x.RolloutLogprobs, x.ActionWeight)
		}
		return nil
	}
	return t.forward(ctx, forwardPass{phase: "old_log_prob", model: t.Actor, take: take, fills: []store.Column{store.OldLogprobs}}, episodes)
}

// useRolloutLogprobs takes the file's log-probs for those of the old policy, where it
// has them.
func useRolloutLogprobs(e *episode.Episode) {
	for i := range e.Streams {
		e.Streams[i].OldLogprobs = e.Streams[i].RolloutLogprobs
	}
}
