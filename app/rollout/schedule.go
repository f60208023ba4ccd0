package rollout

import (
	"context"
	"errors"

	"agentcli/engine"
	"agentcli/internal/exit"
	"agentcli/internal/setting"
	"agentcli/rewards"
	"agentcli/scheduler"
	"agentcli/traj"
)

// scheduled are the settings that a scheduler implies.
func scheduled(o *Options) error {
	if o.Scheduler == "" {
		if o.GymEnv != "" {
			return exit.Usagef("%s %s needs %s %s", setting.Name("GymEnv"), o.GymEnv, setting.Name("Scheduler"), scheduler.GymName)
		}
		return timeoutActs(o)
	}
	if err := scheduler.Check(o.Scheduler); err != nil {
		return exit.UsageError{Err: setting.Errorf("%s %w", setting.Name("Scheduler"), err)}
	}
	if o.GymEnv != "" && !scheduler.Gymlike(o.Scheduler) {
		return exit.Usagef("%s %s needs %s %s or %s, and it is %s", setting.Name("GymEnv"), o.GymEnv, setting.Name("Scheduler"),
			scheduler.GymName, scheduler.OpenEnvName, o.Scheduler)
	}
	if err := timeoutActs(o); err != nil {
		return err
	}
	switch {
	case o.Scheduler == scheduler.SearchR1:
		o.ContinueReply = true
	case o.Scheduler == scheduler.DeepEyes && o.Env == "":
		o.Env = deepEyesEnv
	case scheduler.Gymlike(o.Scheduler) && o.Reward == "":
		o.Reward = "env" // what the environments give
	}
	return nil
}

// timeoutActs refuses a limit of answers where nobody is asked. A run of an older program
// may have it.
func timeoutActs(o *Options) error {
	if d := o.SchedulerTimeout; d == 0 || d == scheduler.DefaultTimeout || o.Resume != "" || scheduler.AsksProgram(o.Scheduler, o.GymEnv) {
		return nil
	}
	return exit.Usagef("%s has no effect: neither a scheduler nor its environment is a program or a server; leave it out, or name one by "+
		"%s or %s",
		setting.Name("SchedulerTimeout"), setting.Name("Scheduler"), setting.Name("GymEnv"))
}

// openScheduler opens the scheduler of a run; nil: the engine's loop.
func openScheduler(ctx context.Context, o Options, scorer *rewards.Scorer, notice func(string)) (*scheduler.Set, error) {
	if o.Scheduler == "" {
		return nil, nil
	}
	s, err := scheduler.Open(ctx, o.Scheduler, scheduler.Options{Gym: o.GymEnv, Timeout: o.SchedulerTimeout, Pass: o.Added.Env,
		Notice: notice, Stderr: o.Trace != "", Correct: correctBy(scorer)})
	if err != nil && !errors.Is(err, context.Canceled) {
		err = exit.UsageError{Err: err}
	}
	return s, err
}

// correctBy asks a task's reward about a conversation that ends with a reply.
func correctBy(scorer *rewards.Scorer) func(context.Context, *engine.Turn) (bool, error) {
	return func(ctx context.Context, t *engine.Turn) (bool, error) {
		one := &traj.Trajectory{ID: t.Trajectory, Task: *t.Task, Messages: t.Messages,
			Steps: []traj.Step{{FinishReason: t.Reply.FinishReason}}, Termination: traj.Answered}
		if err := scorer.Score(ctx, one); err != nil {
			return false, err
		}
		if one.Correct != nil {
			return *one.Correct, nil
		}
		return one.Reward != nil && *one.Reward >= 1, nil
	}
}
