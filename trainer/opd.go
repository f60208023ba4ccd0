package trainer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"agentcli/internal/malformed"
	"agentcli/internal/setting"
	"agentcli/policy"
	"agentcli/trainer/episode"
	"agentcli/trainer/store"
	"agentcli/traj"
)

// OPD is on-policy distillation (Agarwal et al. 2024, GKD; Lu et al. 2025), what --algo grpo is
// with a loss that reads a teacher (--loss opd). The policy sampled the tokens, and the teacher
// says for each of them how much better it would have been:
//
//	A_t = log π_teacher(y_t | y_<t) − log π(y_t | y_<t)
//
// Rewards take no part in the loss; they are measured where the rows have some.
//
// In on-policy self-distillation (opsd; Shenfeld et al. 2026, Self-Distillation
// Enables Continual Learning, arXiv 2601.19897; Zhao et al. 2026, arXiv
// 2601.18734) the teacher is the policy itself, which reads the
// same tokens with a demonstration behind the question (Config.Demonstration),
//
//	A_t = log π(y_t | question, demonstration, y_<t) − log π(y_t | question, y_<t)
//
// Departures: that teacher is the policy as it was before the first update of the
// run (of each step, in a loop), or any model that is named, where the first paper
// takes a running mean of the policy; the derivative is that of the sampled token,
// as with any other teacher, not of the whole vocabulary.
type OPD struct{ policyGradient }

func (d *OPD) run(ctx context.Context) error {
	t := d.t
	if err := scoreByModel(ctx, t); err != nil { // with a reward model; else the file's scores stay
		return err
	}
	// Rewards and advantages are of the metrics only.
	x, err := newEstimation(t)
	if err != nil {
		return err
	}
	if err := x.shapeAndEstimate(); err != nil {
		return err
	}

	// log π_old, log π_ref and log π_teacher, before anything changes (precompute.go).
	if err := d.precompute(ctx, nil); err != nil {
		return err
	}

	// epochs → minibatches of whole groups → step (trainer.go)
	return t.epochs(ctx, t.groups, d)
}

func (d *OPD) step(ctx context.Context, batch []*episode.Episode, at stepNumbers, m *metrics) error {
	t, start := d.t, d.t.Clock()
	n, err := d.beginStep(batch, at, m)
	if err != nil {
		return err
	}

	// −A_t·ρ_t, ρ = exp(log π − log π_rollout), where the token's probability did not fall by
	// more than Threshold, + τ·(log π − log π_rollout)² (algo.Losses), and the terms of grpo.go
	work := d.episodesToCompute(batch)
	err = d.accumulatePolicy(ctx, work, at, m, func(mb store.MicroBatch, o policy.Outputs) (policy.Gradients, error) {
		return d.policyLoss(mb, n, o, m)
	})
	if err != nil {
		return err
	}
	if err := addPTX(ctx, t, len(batch), at, m); err != nil {
		return err
	}

	// AdamW
	if err := t.stepActor(work, at, m); err != nil {
		return err
	}
	m.set("timing_s/update_actor", t.Clock().Sub(start).Seconds())
	return nil
}

// teacherLogprobs computes the teacher's log-probs of the episodes' actions, behind a
// demonstration where Config has one.
func teacherLogprobs(ctx context.Context, t *Trainer, episodes []*episode.Episode) error {
	pass := into(store.TeacherLogprobs, "teacher", t.Teacher)
	if t.Config.Demonstration != DemonstrateNothing {
		d := demonstrations{t: t}
		if err := d.find(episodes); err != nil {
			return err
		}
		pass.read = d.show
	}
	return t.forward(ctx, pass, episodes)
}

// Demonstration of Config.
const (
	DemonstrateNothing = ""
	DemonstrateBest    = "best"   // the best other attempt of the group
	DemonstrateAnswer  = "answer" // the task's own first answer
)

// Demonstrator writes demonstrations as a model reads them.
type Demonstrator interface {
	// Show puts a demonstration behind the question of a prompt.
	Show(prompt []int32, question, demonstration string) ([]int32, error)
	// Text is what ids say, without special tokens.
	Text(ids []int32) string
}

// demonstrations are what the teacher is shown of each episode.
type demonstrations struct {
	t  *Trainer
	of map[*episode.Episode]string // of the others of its group; nil: the rows bring their own
}

// find finds for each episode of a group what its teacher is shown of
// the others: the best one that is better than the worst. It changes nothing where
// the rows bring their own.
func (d *demonstrations) find(episodes []*episode.Episode) error {
	if d.t.Demonstrator == nil {
		return errors.New("a demonstration needs a Demonstrator that writes it")
	}
	if d.t.Config.Demonstration != DemonstrateBest {
		return nil
	}
	d.of = map[*episode.Episode]string{}
	for _, g := range episode.Groups(episodes) {
		worst := slices.MinFunc(g, byScore).Score
		release, err := d.t.loader.Load(g...)
		if err != nil {
			return err
		}
		for _, e := range g {
			others := slices.DeleteFunc(slices.Clone(g), func(o *episode.Episode) bool { return o == e || o.Score <= worst })
			if len(others) > 0 {
				d.of[e] = d.replyText(slices.MaxFunc(others, byScore))
			}
		}
		release()
	}
	if len(d.of) == 0 {
		return traj.Mark(
			setting.Errorf("%s best: no attempt is better than the others of its group, so there is nothing to show (sample more attempts, "+
				"or give %s answer)", setting.Name("Demonstration"), setting.Name("Demonstration")), ErrNothingToLearn)
	}
	return nil
}

func byScore(a, b *episode.Episode) int {
	switch {
	case a.Score < b.Score:
		return -1
	case a.Score > b.Score:
		return 1
	}
	return 0
}

// replyText is everything behind the prompt of an episode's last sequence: its replies,
// and what the tools said.
func (d *demonstrations) replyText(e *episode.Episode) string {
	q := &e.Sequences[len(e.Sequences)-1]
	return d.t.Demonstrator.Text(q.TokenIDs[slices.Index(q.LossMask, true):])
}

// TooLongError is a row that with its demonstration does not fit the model's window.
type TooLongError struct {
	ID             string // of the row
	Tokens, Window int
}

func (e *TooLongError) Error() string {
	return fmt.Sprintf("%s: with its demonstration it has %d tokens, and the model's window %d", e.ID, e.Tokens, e.Window)
}

// show is a micro-batch as the teacher reads it. The wanted tokens are the
// same, in the same order: all stand behind the prompt.
func (d *demonstrations) show(mb store.MicroBatch) (policy.Batch, error) {
	b := policy.Batch{Own: mb.Batch.Own, Temperature: mb.Batch.Temperature}
	if mb.Batch.Images != nil {
		return b, malformed.Field("images", malformed.Unsupported, "%s: demonstrations are for rows of text", mb.Rows())
	}
	for i, it := range mb.Items {
		ids, want := mb.Batch.Sequences[i], mb.Batch.Want[i]
		text := it.Episode.Demonstration
		if text == "" {
			text = d.of[it.Episode]
		}
		if text != "" {
			first := slices.Index(it.Episode.Sequences[it.Sequence].LossMask, true)
			front, err := d.t.Demonstrator.Show(ids[:first], it.Episode.Question, text)
			if err != nil {
				return b, fmt.Errorf("%s: %w", it.Episode.ID, err)
			}
			if n, window := len(front)+len(ids)-first, d.t.Actor.Window(); n > window {
				return b, &TooLongError{ID: it.Episode.ID, Tokens: n, Window: window}
			}
			ids, want = slices.Concat(front, ids[first:]), slices.Concat(make([]bool, len(front)), want[first:])
		}
		b.Sequences, b.Want = append(b.Sequences, ids), append(b.Want, want)
	}
	return b, nil
}
