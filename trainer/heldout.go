package trainer

import (
	"context"
	"errors"
	"fmt"
	"maps"
)

// heldOut measures rows that are not trained on.
type heldOut struct {
	rows    *Trainer // of them; it takes no step
	measure measureFunc
}

// measureFunc puts an algorithm's loss of held-out rows into m.
type measureFunc func(ctx context.Context, rows *Trainer, m *metrics) error

// newHeldOut prepares the evaluation of a supervised run: what the reference says of the
// rows of Eval, before anything changes. It is nil where there are none.
func newHeldOut(ctx context.Context, t *Trainer, measure measureFunc) (*heldOut, error) {
	if t.Eval == nil {
		return nil, nil
	}
	rows := New(t.Config, Models{Actor: t.Actor, Ref: t.Ref}, t.Eval)
	rows.Clock, rows.OnProgress, rows.Done = t.Clock, t.OnProgress, t.Done
	rows.Config.PTXCoef = 0
	if t.Done > 0 {
		if t.Frozen.eval == nil {
			return nil, errors.New("the checkpoint knows nothing of the held-out rows; go on with the settings that the run began with")
		}
		rows.Frozen = t.Frozen.eval
	}
	if err := rows.begin(); err != nil {
		return nil, fmt.Errorf("held-out rows: %w", err)
	}
	if err := (supervised{rows}).prepare(ctx, measure); err != nil {
		return nil, err
	}
	return &heldOut{rows, measure}, nil
}

// evaluate gives what the algorithm says of the held-out rows, by the names that
// metrics.jsonl has for them; nil where there are none, which a nil heldOut is.
func (h *heldOut) evaluate(ctx context.Context, t *Trainer) (map[string]float64, error) {
	if h == nil {
		return nil, nil
	}
	m := newMetrics(0, 0, 0, t.Eval, nil)
	if err := t.timed("eval", func() error { return h.measure(ctx, h.rows, m) }); err != nil {
		return nil, err
	}
	values := map[string]float64{}
	for key, x := range m.means {
		values[key] = x.sum / x.weight
	}
	maps.Copy(values, m.Values)
	out := map[string]float64{}
	for from, to := range map[string]string{"train/loss": "val/loss", "train/nll": "val/nll",
		"train/entropy": "val/entropy", "train/accuracy": "val/accuracy",
		"rewards/accuracies": "val/accuracy", "rewards/margins": "val/margin"} {
		if x, ok := values[from]; ok {
			out[to] = x
		}
	}
	return out, nil
}
