package rollout

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"agentcli/datasets"
	"agentcli/internal/safego"
	"agentcli/rewards"
)

// datasetCheck reads a dataset's file to its end while the run plays its first rows: a run
// over millions of rows begins at once, and a row that is no task still ends it soon,
// not after a day.
type datasetCheck struct {
	rows atomic.Int64 // once all are read
	over chan struct{}
	err  error
	stop context.CancelCauseFunc
}

// checkDataset begins to read. The context that it gives is ended by the first bad row.
func checkDataset(ctx context.Context, d *datasets.Dataset, reward string, o rewards.Options) (*datasetCheck, context.Context) {
	ctx, cancel := context.WithCancelCause(ctx)
	a := &datasetCheck{over: make(chan struct{}), stop: cancel}
	go func() {
		defer close(a.over)
		defer safego.Catch(func(err error) { a.err = err; cancel(err) })
		n, err := d.Check(ctx, func(row string) error { return missingAnswer(row, reward, o) })
		if err == nil {
			a.rows.Store(int64(n))
			return
		}
		if ctx.Err() == nil {
			a.err = err
			cancel(fmt.Errorf("the dataset cannot be read: %w", err))
		}
	}()
	return a, ctx
}

// count is how many tasks there are; 0: not known yet.
func (a *datasetCheck) count() int { return int(a.rows.Load()) }

// end stops reading, and gives what was wrong with the dataset.
func (a *datasetCheck) end() error {
	if a == nil {
		return nil
	}
	a.stop(errors.New("the run is over"))
	<-a.over
	return a.err
}

// missingAnswer is what is wrong with a row without an answer, if anything is: most
// rewards of ours compare with it. row names it; "": whoever reports the error does.
func missingAnswer(row, reward string, o rewards.Options) error {
	if !rewards.NeedsAnswers(reward, o) {
		return nil
	}
	if row != "" {
		row += ": "
	}
	return fmt.Errorf("%shas no answer, and the reward %s needs one in every row", row, reward)
}
