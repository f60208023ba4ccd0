package rollout

import (
	"context"
	"errors"

	"agentcli/engine"
	"agentcli/internal/exit"
	"agentcli/internal/setting"
	"agentcli/parquet"
	"agentcli/scheduler"
	"agentcli/traj"
)

// scheduled are the settings that a scheduler implies.
func (o *Options) scheduled() error {
	if o.Scheduler == "" {
		if o.GymEnv != "" {
			return exit.Usagef("%s %s needs %s %s", setting.Name("GymEnv"), o.GymEnv, setting.Name("Scheduler"), scheduler.GymName)
		}
		return nil
	}
	if err := scheduler.Check(o.Scheduler); err != nil {
		return exit.UsageError{Err: setting.Errorf("%s %w", setting.Name("Scheduler"), err)}
	}
	if o.GymEnv != "" && o.Scheduler != scheduler.GymName {
		return exit.Usagef("%s %s needs %s %s, and it is %s", setting.Name("GymEnv"), o.GymEnv, setting.Name("Scheduler"), scheduler.GymName,
			o.Scheduler)
	}
	if o.Scheduler == scheduler.SearchR1 {
		o.ContinueReply = true
	}
	return nil
}

// openScheduler opens the scheduler of the run.
func (x *Run) openScheduler(ctx context.Context) (err error) {
	if x.o.Scheduler == "" {
		return nil
	}
	x.schedulers, err = scheduler.Open(ctx, x.o.Scheduler, scheduler.Options{Gym: x.o.GymEnv, Timeout: x.o.SchedulerTimeout,
		Pass: x.o.Added.Env, Notice: x.Notice, Correct: x.correct})
	switch {
	case err == nil:
		x.closers = append(x.closers, x.schedulers)
	case !errors.Is(err, context.Canceled):
		err = exit.UsageError{Err: err}
	}
	return err
}

// correct asks the task's reward about a conversation that ends with a reply.
func (x *Run) correct(ctx context.Context, t *engine.Turn) (bool, error) {
	one := &traj.Trajectory{ID: t.Trajectory, Task: *t.Task, Messages: t.Messages, Steps: []traj.Step{{FinishReason: t.Reply.FinishReason}},
		Termination: traj.Answered}
	if err := x.scorer.Score(ctx, one); err != nil {
		return false, err
	}
	if one.Correct != nil {
		return *one.Correct, nil
	}
	return one.Reward != nil && *one.Reward >= 1, nil
}

// newScheduler gives a task its scheduler.
func (x *Run) newScheduler() func(traj.Task) (engine.Scheduler, error) {
	if x.schedulers == nil {
		return nil
	}
	return x.schedulers.New
}

// FileConfig is the form of the run's files of trajectories.
func (x *Run) FileConfig() parquet.WriterConfig {
	if x.schedulers == nil {
		return parquet.WriterConfig{}
	}
	return parquet.WriterConfig{Columns: []string{parquet.ColumnInfos, parquet.ColumnLossWeights}}
}
