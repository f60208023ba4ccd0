package main

import (
	"agentcli/app/loop"
	"agentcli/app/models"
	"agentcli/app/rollout"
	"agentcli/app/rundir"
	"agentcli/internal/exit"
	"agentcli/trainer"
	"agentcli/trainer/algo"

	"github.com/urfave/cli/v2"
)

func loopCommand() *cli.Command {
	return withSettings(&cli.Command{
		Name:  "loop",
		Usage: "roll out and train in turn, until --steps",
		Description: "Each step plays --tasks tasks with the policy as it is, keeps them in rollouts/ of the run's\n" +
			"folder, and trains on them; --eval-every steps it is measured on held-out tasks, and the best\n" +
			"model is kept in best/. The code is that of rollout, train and eval.\n\n" +
			"  agentcli loop -d lastword --steps 12 --lr 2e-5 --minibatch 0 --output runs/lastword",
		Action: func(c *cli.Context) error {
			o, err := loopOptionsOf(c)
			if err != nil {
				return err
			}
			if c.Bool("print-config") {
				text, err := o.printConfig(c)
				if err != nil {
					return err
				}
				_, err = streamsOf(c).Out.Write(text)
				return err
			}
			return loop.Run(c.Context, o.loop, streamsOf(c))
		},
	})
}

func loopOptionsOf(c *cli.Context) (*options, error) {
	given := givenFlags(c)
	if err := noArguments(c); err != nil {
		return nil, err
	}
	if err := refuseUnknownHere(c); err != nil {
		return nil, err
	}
	if dir := c.String("resume"); dir != "" {
		if err := resumeSettings(c, dir); err != nil {
			return nil, err
		}
	}
	if err := applyConfig(c, c.String("config")); err != nil {
		return nil, err
	}
	if err := applyPreset(c); err != nil {
		return nil, err
	}
	loss, _ := algo.LossByName(c.String("loss"))
	if kind := algo.DefaultCorrection(loss); c.Int("async") > 0 && !c.IsSet("off-policy") && kind != algo.NoCorrection {
		if c.String("old-logprobs") == trainer.OldFile {
			return nil, exit.Usagef("--async 1 corrects for stale tokens by the difference between recomputed log-probs and the recorded ones, " +
				"and with --old-logprobs file there is none; leave that out, or give --off-policy none too")
		}
		if err := c.Set("off-policy", kind); err != nil {
			return nil, err
		}
	}
	if given := (trainer.Config{Algo: c.String("algo")}); given.IsSupervised() || c.String("ptx") != "" {
		return nil, exit.Usagef("--algo %s and --ptx have no meaning in a loop, which learns from the rewards of its own rollouts", given.Algo)
	}
	o, err := optionsOf(c)
	if err != nil {
		return nil, err
	}
	l := &o.loop
	if err := finishRun(c, o); err != nil {
		return nil, err
	}
	l.Settings = keptSettings(c)
	l.Settings[rundir.CommandKey] = "loop"
	l.Rollout.Output, l.Rollout.Resume, l.Rollout.Sampling = "", "", rollout.OwnDistribution(l.Rollout.Sampling)
	if l.Rollout.Dataset == "" {
		l.Rollout.Dataset = "arith"
	}
	l.Rollout.ChooseSplit(l.Resume != "", l.Settings)
	if err := completeTrainOptions(c, o); err != nil {
		return nil, err
	}
	if err := l.Train.CheckTeacher(); err != nil {
		return nil, err
	}
	if m := &l.Rollout.Model; !l.Serves() {
		m.BaseURL, m.BaseFromEnv, m.TokenMode, m.Stream = nil, false, "", false // a loop's servers are those that it is told
	}
	l.Train.MakeAbsolute(l.Settings)
	if l.Train.Config.SaveEvery == 0 {
		l.Train.Config.SaveEvery = 1
	}
	if l.Resume != "" {
		l.Output = l.Resume
	}
	if err := validateLoop(*l); err != nil {
		return nil, err
	}
	return o, o.refuseIdle(c, given)
}

// validateLoop checks what the settings of rollouts, training and the loop say together.
func validateLoop(o loop.Options) error {
	g, temperature := o.Train.Config, *o.Rollout.Sampling.Temperature
	switch {
	case o.Steps < 1, o.Tasks < 1, o.Rollout.Samples < 1:
		return exit.Usagef("--steps, --tasks and --samples must be at least 1")
	case o.Serves() && o.Train.Model == "":
		return exit.Usagef("--base-url: name the model that is trained, which the servers serve, by --model FOLDER")
	case o.Serves() && o.Rollout.Model.TokenMode == models.TokenModeChat:
		return exit.Usagef("--token-mode chat: a server may return no token ids then, and a loop trains on them; leave it out")
	case o.Async < 0 || o.Async > 1:
		return exit.Usagef("--async %d: want 0 or 1", o.Async)
	case o.EvalEvery < 0, o.EvalTasks < 1, o.EvalTries < 1:
		return exit.Usagef("--eval-every must be at least 0, --eval-tasks and --eval-samples at least 1")
	case !(o.KLTarget >= 0) || !(o.KLHorizon > 0):
		return exit.Usagef("--kl-target must be at least 0, --kl-horizon above 0")
	case o.KLTarget > 0 && (g.KLCoef == 0 || g.KLIn != trainer.KLInReward):
		return exit.Usagef("--kl-target moves --kl-coef by the KL in the reward; give --kl-coef above 0 and --kl-in reward too")
	case o.Rollout.Cuts() && !o.Train.Force:
		return exit.Usagef("--top-p, --top-k, --min-p and --grammar cut the distribution that is trained, and the gradient would be biased; " +
			"leave them out, or add --force")
	case temperature < trainer.LeastTemperature:
		return exit.Usagef("--temperature %g: a loop learns from differences between attempts, and greedy ones have none; "+
			"give a temperature of at least %g", temperature, trainer.LeastTemperature)
	case temperature != 1 && (models.IsServer(o.Train.Ref) || models.IsServer(o.Train.Teacher)):
		return exit.Usagef("--ref or --teacher: %w", models.ErrRemoteTemperature(temperature))
	case estimator(g.Advantage).Greedy:
		return exit.Usagef("--advantage %s needs a file of greedy attempts, which a loop does not make; use rollout and train", g.Advantage)
	case o.Rollout.Samples == 1 && g.ComparesGroups():
		return exit.Usagef("--samples 1: --advantage %s compares the attempts at a task, and a single one has none beside it; "+
			"give -n 2 or more, or --algo ppo, which compares none", g.Advantage)
	case o.Rollout.Samples == 1 && g.DropZeroStd:
		return exit.Usagef("--samples 1: --drop-zero-std leaves out groups whose attempts all scored the same, " +
			"which a single attempt always did; give -n 2 or more, or leave it out")
	case o.Rollout.Samples == 1 && g.Demonstration == trainer.DemonstrateBest:
		return exit.Usagef("--samples 1: --demonstration best shows an attempt the best of the others, and a single one has none beside it; " +
			"give -n 2 or more, or --demonstration answer")
	}
	return nil
}
