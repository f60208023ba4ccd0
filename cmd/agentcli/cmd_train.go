package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"agentcli/app/models"
	"agentcli/app/rundir"
	"agentcli/app/train"
	"agentcli/internal/exit"
	"agentcli/model/weights"
	"agentcli/trainer/rows"

	"github.com/urfave/cli/v2"
)

// An adapter's base may be named as --model is.
func init() {
	weights.FindBase = func(name string) (string, bool) { return models.FindCached(context.Background(), name) }
}

func trainCommand() *cli.Command {
	return withSettings(&cli.Command{
		Name:      "train",
		Usage:     "make a better model from trajectory files (GRPO, PPO and their family), text or preferences (SFT, DPO, reward models)",
		ArgsUsage: "FILE...",
		Description: "Reads trajectories in the schema of docs/format.md, whoever wrote them, compares the\n" +
			"attempts of each group, and updates the model. Only tokens that the policy sampled are\n" +
			"trained on. The output folder opens in transformers and vLLM and is taken by --model.\n" +
			"--algo sft, dpo, rm and prm also take .jsonl, .json, .csv and .parquet of text: docs/training.md has the columns.",
		Action: func(c *cli.Context) error {
			if c.Bool("print-config") {
				return showConfig(c)
			}
			o, err := resumeTrainOptions(c)
			if err != nil {
				return err
			}
			err = train.Run(c.Context, o, streamsOf(c))
			if errors.Is(err, train.ErrOtherSettings) {
				return exit.Usagef("%w; %s", err, resumeHelp())
			}
			return err
		},
	})
}

// showConfig is --print-config.
func showConfig(c *cli.Context) error {
	given := givenFlags(c)
	o, err := parseTrainOptions(c)
	if err != nil {
		return err
	}
	if err := o.refuseIdle(c, given); err != nil {
		return err
	}
	text, err := o.printConfig(c)
	if err != nil {
		return err
	}
	_, err = streamsOf(c).Out.Write(text)
	return err
}

func resumeTrainOptions(c *cli.Context) (train.Options, error) {
	files, given := c.Args().Slice(), givenFlags(c)
	if dir := c.String("resume"); dir != "" {
		if err := resumeSettings(c, dir); err != nil {
			return train.Options{}, err
		}
		if c.Bool("dry-run") {
			return train.Options{}, exit.Usagef("--dry-run shows a run before it begins; leave --resume out")
		}
	}
	settings, err := parseTrainOptions(c)
	if err != nil {
		return train.Options{}, err
	}
	o := settings.loop.Train
	if err := o.CheckTeacher(); err != nil {
		return o, err
	}
	o.Files = files
	if o.Resume != "" {
		if len(files) > 0 {
			return o, exit.Usagef("--resume takes the files of the run in its folder; leave %s out", files[0])
		}
		began, err := rundir.ReadInputs(o.Resume)
		if err != nil {
			return o, err
		}
		o.Files, o.PTXFiles, o.EvalFiles = began[""], began["ptx"], began["eval-dataset"]
		o.Output = o.Resume
	}
	if len(o.Files) == 0 {
		return o, exit.Usagef("train needs a trajectory file: agentcli train traj.parquet (agentcli rollout > traj.parquet makes one)")
	}
	if err := train.CheckFiles(o.Files); err != nil {
		return o, err
	}
	if err := checkHeldOut(o, given); err != nil {
		return o, err
	}
	if err := settings.refuseIdle(c, given); err != nil {
		return o, err
	}
	if o.Model != "" && !models.IsHubName(o.Model) {
		if _, err := os.Stat(o.Model); err != nil {
			return o, train.ErrNoModel(o.Model)
		}
	}
	if o.Greedy == "" && estimator(o.Config.Advantage).Greedy {
		return o, exit.Usagef("--advantage %s compares with greedy attempts; roll them out with --temperature 0 and name their file with "+
			"--greedy FILE", o.Config.Advantage)
	}
	return o, nil
}

// resumeSettings takes over the settings of the run of train or loop in dir, and refuses
// those that are given and may not change.
func resumeSettings(c *cli.Context, dir string) error {
	if c.String("config") != "" {
		return exit.Usagef("--resume takes the settings of the run in its folder; leave --config out")
	}
	if out := c.String("output"); out != "" && filepath.Clean(out) != filepath.Clean(dir) {
		return exit.Usagef("--resume goes on in its own folder; leave --output out")
	}
	if err := checkResumed(c, dir); err != nil {
		return err
	}
	if err := refuseChanged(c, dir); err != nil {
		return err
	}
	return applyConfig(c, filepath.Join(dir, rundir.ConfigFile))
}

// parseTrainOptions reads the settings that say how to train, from the flags, --config and
// --preset.
func parseTrainOptions(c *cli.Context) (*options, error) {
	if err := applyConfig(c, c.String("config")); err != nil {
		return nil, err
	}
	if err := applyPreset(c); err != nil {
		return nil, err
	}
	o, err := optionsOf(c)
	if err != nil {
		return nil, err
	}
	return o, completeTrainOptions(c, o)
}

// completeTrainOptions completes loop.Train by what no flag says, and checks it.
func completeTrainOptions(c *cli.Context, o *options) error {
	t := &o.loop.Train
	if err := t.Config.Validate(); err != nil {
		return exit.UsageError{Err: err}
	}
	if err := checkHoldout(t.Held); err != nil {
		return err
	}
	t.Backend, t.Settings = backendOf(c), absolutePaths(keptSettings(c))
	t.Settings[rundir.CommandKey] = "train"
	t.MakeAbsolute(t.Settings)
	if err := o.refuseIdle(c, nil); err != nil {
		return err
	}
	if t.RewardModel != "" && t.Reward != "" {
		return exit.Usagef("--reward-model and --reward both score the rows; give one of them")
	}
	if t.RewardModel != "" && estimator(t.Config.Advantage).Parts && !t.Config.IsSupervised() {
		return exit.Usagef("--reward-model gives a single number, and --advantage %s compares the components of a reward; "+
			"take another --advantage", t.Config.Advantage)
	}
	if err := models.CheckComputation(models.LocalOptions{DType: t.Open.DType, Device: t.Open.Device, Threads: t.Open.Threads,
		MaxContext: t.Open.MaxContext}); err != nil {
		return err
	}
	t.Open.LoRA.Seed = t.Config.Seed
	if err := t.Open.LoRA.Validate(); err != nil {
		return exit.UsageError{Err: err}
	}
	return nil
}

// checkHoldout refuses two ways of holding out at once.
func checkHoldout(h train.HeldOut) error {
	switch {
	case h.Part != rows.Holdout{} && h.Dataset != "":
		return exit.Usagef("--holdout takes rows from those that are trained on, and --eval-dataset names others; give one of them")
	case h.Part != rows.Holdout{} && h.Split != "":
		return exit.Usagef("--holdout and --eval-split both say which rows are held out; give one of them")
	case h.Every < 0:
		return exit.Usagef("--eval-every %d: want a number of steps, or 0", h.Every)
	}
	return nil
}

// checkHeldOut refuses what train does not measure itself: a policy's reward needs
// rollouts.
func checkHeldOut(o train.Options, given map[string]bool) error {
	measures := o.Config.IsSupervised()
	if o.Held.Given() && !measures {
		return exit.Usagef("--eval-dataset, --eval-split and --holdout have no effect with --algo %s, "+
			"whose rows were sampled before training; use loop, or eval on the trained model", o.Config.Algo)
	}
	if given["eval-every"] && !o.Held.Given() {
		return exit.Usagef("--eval-every has no effect without held-out rows; give --eval-dataset, --eval-split or --holdout too")
	}
	if o.Held.Dataset == "" || o.Resume != "" {
		return nil
	}
	return train.CheckFiles([]string{o.Held.Dataset})
}
