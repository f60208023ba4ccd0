package trainer

import (
	"context"

	"agentcli/trainer/algo"
	"agentcli/trainer/episode"
	"agentcli/trainer/rows"
)

// DPO is direct preference optimisation (Rafailov et al. 2023, equation 7):
//
//	L = 1/N Σ_pairs −log σ(β·h),  h = (log π(c) − log π_ref(c)) − (log π(r) − log π_ref(r))
//
// c is the preferred reply, r the rejected one, log π the sum over the reply's own
// tokens, each times its weight, N the pairs of the whole optimiser step. By Config also IPO, (h − 1/2β)²
// with log π the mean over the tokens, and SLiC's hinge, max(0, 1 − β·h).
//
// The reference is the model as it starts, or Models.Ref; it is asked once, before
// the first update. Of trajectories of several turns the reply is all that the
// policy sampled, over all sequences; observations are context.
type DPO struct{ supervised }

func (d *DPO) run(ctx context.Context) error {
	// log π_ref, before the first update
	if err := d.prepare(ctx, d.heldOutLoss); err != nil {
		return err
	}
	// epochs → minibatches of whole pairs → step (trainer.go)
	return d.t.epochs(ctx, d.t.groups, d)
}

func (d *DPO) changesModel([]*episode.Episode) bool { return true }

// reply is Σ a·lp of an episode's tokens, by the model and by the reference, a what a token
// weighs by itself; weight is what one of them counts in the loss.
func (d *DPO) reply(e *episode.Episode) (lp, ref, weight float64) {
	e.EachAction(func(_ int, x *episode.TokenStream, t int) {
		lp += x.ActionWeight[t] * x.Outputs.Logprobs[t]
		ref += x.ActionWeight[t] * x.RefLogprobs[t]
	})
	weight = 1
	if d.t.Config.Supervised.DPOLoss == string(algo.DPOIPO) {
		weight = 1 / float64(e.Actions())
	}
	return lp, ref, weight
}

// step: loss → gradient → AdamW.
func (d *DPO) step(ctx context.Context, batch []*episode.Episode, at stepNumbers, m *metrics) error {
	start := d.t.Clock()
	units, n := d.pairUnits(batch)
	err := d.jointly(ctx, units, at, m, d.loss(d.t.pairs, n, m))
	if err != nil {
		return err
	}
	if err := d.update(batch, at, m); err != nil {
		return err
	}
	m.set("train/pairs", float64(n))
	m.set("timing_s/update_actor", d.t.Clock().Sub(start).Seconds())
	return nil
}

// heldOutLoss is the loss of pairs that are not trained on.
func (d *DPO) heldOutLoss(ctx context.Context, held *Trainer, m *metrics) error {
	units, n := supervised{held}.pairUnits(flatten(held.groups))
	return supervised{held}.forwardUnits(ctx, units, d.loss(held.pairs, n, m))
}

// loss adds what the pairs of a group are of the loss over n pairs, and its derivatives.
func (d *DPO) loss(pairs map[string][]rows.Pair, n int, m *metrics) func(unit []*episode.Episode) error {
	c := d.t.Config.Supervised
	return func(unit []*episode.Episode) error {
		for _, p := range pairs[unit[0].Group] {
			chosen, refChosen, wc := d.reply(p.Chosen)
			rejected, refRejected, wr := d.reply(p.Rejected)
			// −log σ(β·h), and its derivative with respect to log π(c)
			l, grad, err := algo.DPO(algo.DPOKind(c.DPOLoss), wc*chosen, wr*rejected, wc*refChosen, wr*refRejected, c.DPOBeta, c.LabelSmoothing)
			if err != nil {
				return err
			}
			p.Chosen.EachAction(func(_ int, x *episode.TokenStream, t int) {
				x.Gradients.Logprobs[t] += grad * wc / float64(n) * x.ActionWeight[t]
			})
			p.Rejected.EachAction(func(_ int, x *episode.TokenStream, t int) {
				x.Gradients.Logprobs[t] -= grad * wr / float64(n) * x.ActionWeight[t]
			})
			m.add("train/loss", l)
			m.compare(c.DPOBeta*(chosen-refChosen), c.DPOBeta*(rejected-refRejected))
			m.add("logps/chosen", chosen)
			m.add("logps/rejected", rejected)
		}
		return nil
	}
}

// compare counts the rewards of one pair, by the names that TRL's users know.
func (m *metrics) compare(chosen, rejected float64) {
	right := 0.0
	if chosen > rejected {
		right = 1
	}
	m.add("rewards/chosen", chosen)
	m.add("rewards/rejected", rejected)
	m.add("rewards/margins", chosen-rejected)
	m.add("rewards/accuracies", right)
}
