package trainer

import (
	"slices"
	"testing"

	"agentcli/trainer/episode"
)

// The gradient is linear in a token's weight, and that of weight 0 is that of a token
// which was not sampled.
func TestATokensWeightMultipliesItsLoss(t *testing.T) {
	gradient := func(change func(*episode.Episode, int)) []float64 {
		c := config()
		c.Advantage, c.Aggregation, c.OldLogprobs = "dr_grpo", "seq-mean-token-sum", OldFile
		model, episodes := newBigram(vocab, 1), corpus()
		record(.3, model, episodes)
		e := episodes[0]
		change(e, slices.Index(e.Sequences[0].LossMask, true))
		train(t, model, c, episodes)
		return model.steps[0]
	}
	weighing := func(w float64) []float64 {
		return gradient(func(e *episode.Episode, at int) {
			for i := range e.Sequences {
				e.Sequences[i].Weights = slices.Repeat([]float64{1}, len(e.Sequences[i].TokenIDs))
			}
			e.Sequences[0].Weights[at] = w
		})
	}
	one, two, three := weighing(1), weighing(2), weighing(3)
	if gap(one, gradient(func(*episode.Episode, int) {})) != 0 {
		t.Error("a weight of 1 changes the gradient")
	}
	moved := false
	for i := range one {
		if d := (three[i] - two[i]) - (two[i] - one[i]); d > 1e-12 || d < -1e-12 {
			t.Errorf("entry %d: %v, %v, %v", i, one[i], two[i], three[i])
		}
		moved = moved || two[i] != one[i]
	}
	if !moved {
		t.Error("a weight of 2 changes nothing")
	}
	if d := gap(weighing(0), gradient(func(e *episode.Episode, at int) { e.Sequences[0].LossMask[at] = false })); d > 1e-12 {
		t.Errorf("a token of weight 0 has a part of the gradient: %v", d)
	}
}
