package trainer

import (
	"context"
	"iter"
	"sync"

	"agentcli/traj"
)

// Score gives a trajectory its reward, in place. It is safe for concurrent use.
type Score func(context.Context, *traj.Trajectory) error

// scoredAtOnce is how many rows are scored at a time: a remote reward answers
// slowly.
const scoredAtOnce = 64

// rescored scores rows on their way, many at a time and in their order. What the
// infrastructure ended is not scored; a row that cannot be scored has no reward,
// and is left out for that, as it is when a file is made.
func rescored(ctx context.Context, rows iter.Seq2[*traj.Trajectory, error], score Score) iter.Seq2[*traj.Trajectory, error] {
	if score == nil {
		return rows
	}
	return func(yield func(*traj.Trajectory, error) bool) {
		var batch []*traj.Trajectory
		flush := func() bool {
			var work sync.WaitGroup
			for _, t := range batch {
				t.Reward, t.RewardParts, t.Correct, t.Extracted = nil, nil, nil, nil
				if t.Termination.Infrastructure() && t.Termination != traj.RewardFailed {
					continue
				}
				work.Go(func() {
					if t.Termination == traj.RewardFailed {
						t.Termination = traj.Answered // as far as anyone knows; it gets another chance
					}
					if score(ctx, t) != nil {
						t.Termination = traj.RewardFailed
					}
				})
			}
			work.Wait()
			for _, t := range batch {
				if !yield(t, ctx.Err()) {
					return false
				}
			}
			batch = batch[:0]
			return true
		}
		for t, err := range rows {
			if err != nil {
				if flush() {
					yield(t, err)
				}
				return
			}
			if batch = append(batch, t); len(batch) == scoredAtOnce && !flush() {
				return
			}
		}
		flush()
	}
}
