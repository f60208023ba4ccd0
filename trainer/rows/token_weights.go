package rows

import (
	"errors"
	"slices"

	"agentcli/lossscale"
	"agentcli/trainer/episode"
	"agentcli/traj"
)

// vocabulary is that of a model.
func (o *Options) vocabulary(model string) (lossscale.Vocabulary, error) {
	if o.Vocabulary == nil {
		return nil, errors.New("a rule that weighs replies needs the tokenizer of the model that sampled them (Sources.Vocabulary)")
	}
	return o.Vocabulary(model)
}

// weighReplies multiplies the weights of an episode's tokens by those that rules give the
// trajectory's replies.
func weighReplies(e *episode.Episode, t *traj.Trajectory, rules *lossscale.Rules, v lossscale.Vocabulary) {
	all, k := rules.Trajectory(v, t), 0
	for i := range t.Sequences {
		if t.Sequences[i].Sampled() > 0 { // the episode has no other
			multiply(&e.Sequences[k], all[i])
			k++
		}
	}
}

// multiply multiplies the weights of a sequence's tokens. One whose tokens all weigh 1 has
// no weights.
func multiply(s *traj.Sequence, by []float64) {
	if !slices.ContainsFunc(by, func(w float64) bool { return w != 1 }) {
		return
	}
	if s.Weights == nil {
		s.Weights = by
		return
	}
	product := make([]float64, len(by)) // the trajectory has the old ones, too
	for t, w := range by {
		product[t] = w * s.Weights[t]
	}
	s.Weights = product
}

// weighsNothing reports whether weights leave nothing of an episode to train on.
func (o *Options) weighsNothing(e *episode.Episode) bool {
	if !slices.ContainsFunc(e.Sequences, func(s traj.Sequence) bool { return s.Weights != nil }) {
		return false
	}
	if o.Layout.Count != nil {
		o.Layout.Count(e)
		return e.Actions() == 0
	}
	for i := range e.Sequences {
		s := &e.Sequences[i]
		for t, sampled := range s.LossMask {
			if sampled && (s.Weights == nil || s.Weights[t] > 0) {
				return false
			}
		}
	}
	return true
}
