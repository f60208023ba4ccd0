package trainer

import (
	"context"
	"errors"
	"fmt"

	"agentcli/policy"
	"agentcli/trainer/episode"
	"agentcli/trainer/rows"
	"agentcli/trainer/store"
	"agentcli/traj"
)

// scoreByModel puts a reward model's scores in the place of the file's, where there is one. A
// resumed run has them in its checkpoint.
func scoreByModel(ctx context.Context, t *Trainer) error {
	all := t.Data.Episodes
	switch {
	case t.Done > 0 && t.Frozen.Scores != nil:
		if len(t.Frozen.Scores) != len(all) {
			return traj.Mark(fmt.Errorf("the trajectories are not those that the checkpoint was written with (%d then, %d now)",
				len(t.Frozen.Scores), len(all)), rows.ErrOtherRows)
		}
		t.scores = t.Frozen.Scores
	case t.Reward != nil:
		read := make([]*episode.Episode, len(all))
		for i, e := range all {
			read[i] = &episode.Episode{ID: e.ID, Layout: episode.LayoutOfLastToken, Store: e.Store, StoredAt: e.StoredAt, StoredBytes: e.StoredBytes}
			if e.Body != nil {
				read[i].Body = &episode.Body{Sequences: e.Sequences, Images: e.Images}
			}
		}
		if err := t.loader.Count(read); err != nil {
			return err
		}
		take := func(it store.Item, o policy.Outputs) error {
			if len(o.Values) != 1 {
				return errors.New("the reward model has no value head")
			}
			it.Episode.Score = o.Values[0]
			return nil
		}
		err := t.forward(ctx, forwardPass{phase: "reward_model", model: t.Reward, take: take}, read)
		if err != nil {
			return err
		}
		t.scores = make([]float64, len(all))
		for i, e := range read {
			t.scores[i] = e.Score
		}
	default:
		return nil
	}
	for i, e := range all {
		e.Unscored = false
		if e.Score = t.scores[i]; e.Body != nil {
			e.Parts, e.StepRewards = nil, nil
		}
	}
	return nil
}
