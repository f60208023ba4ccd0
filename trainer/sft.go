package trainer

import (
	"context"

	"agentcli/policy"
	"agentcli/trainer/episode"
	"agentcli/trainer/store"
)

// SFT is supervised fine-tuning, the cross-entropy of given replies (GPTLM):
//
//	L = Σ_t w_t·a_t·(−log π(y_t | y_<t))
//
// over the tokens of assistant turns only, end-of-turn tokens included; prompts,
// tool output and the template's own text are context. w is the aggregation's
// weight over the counts of the whole optimiser step (1/N with token-mean), a the
// row's own weight, 1 unless it has one; a token of weight 0 is not counted.
//
// What it learns from are sampled tokens of trajectories as they are, or
// conversations in text, rendered by the model's own template (text.go). Rows are
// packed as everything here is: a prefix that rows of a micro-batch share is
// computed once.
type SFT struct {
	supervised
	maxLength float64 // L of seq-mean-token-sum-norm
}

func (f *SFT) run(ctx context.Context) error {
	if err := f.prepare(ctx, f.heldOutLoss); err != nil { // there is no reference
		return err
	}
	f.maxLength = maxLength(f.t.Config, f.t.Data, flatten(f.t.groups))
	// epochs → minibatches of rows → step (trainer.go)
	return f.t.epochs(ctx, f.t.groups, f)
}

func (f *SFT) changesModel(batch []*episode.Episode) bool {
	return countTokens(batch, f.maxLength).rl.Tokens > 0
}

// loss adds what a sequence is of the loss, and its derivatives.
func (f *SFT) loss(n counts, total *float64, g *policy.Gradients, m *metrics) func(it store.Item, part policy.Outputs) error {
	return func(it store.Item, part policy.Outputs) error {
		w, err := f.t.Config.Aggregation.Weight(it.Episode.Actions(), n.rl)
		if err != nil {
			return err
		}
		for t, a := range it.Stream().ActionWeight {
			g.Logprobs = append(g.Logprobs, -w*a)
			*total -= w * a * part.Logprobs[t]
			m.weigh("train/nll", -part.Logprobs[t], a)
			m.weigh("train/entropy", part.Entropy[t], a)
		}
		return nil
	}
}

// heldOutLoss is the loss of rows that are not trained on.
func (f *SFT) heldOutLoss(ctx context.Context, held *Trainer, m *metrics) error {
	all, total := flatten(held.groups), 0.0
	n := countTokens(all, maxLength(held.Config, held.Data, all))
	err := held.forward(ctx, forwardPass{phase: "eval", model: held.Actor, take: f.loss(n, &total, &policy.Gradients{}, m)}, all)
	m.set("train/loss", total)
	return err
}

// step: loss → gradient → AdamW.
func (f *SFT) step(ctx context.Context, batch []*episode.Episode, at stepNumbers, m *metrics) error {
	start := f.t.Clock()
	n, total := countTokens(batch, f.maxLength), 0.0
	err := f.t.accumulate(ctx, f.t.Actor, "update", batch, at, m, func(mb store.MicroBatch, o policy.Outputs) (g policy.Gradients, err error) {
		err = mb.Each(o, f.loss(n, &total, &g, m))
		return g, err
	})
	if err != nil {
		return err
	}
	if err := f.update(batch, at, m); err != nil {
		return err
	}
	m.set("train/loss", total)
	m.set("train/tokens", float64(n.rl.Tokens))
	m.set("timing_s/update_actor", f.t.Clock().Sub(start).Seconds())
	return nil
}
