package main

import (
	"agentcli/app/files"
	"agentcli/internal/exit"
	"agentcli/rewards"

	"github.com/urfave/cli/v2"
)

func scoreCommand() *cli.Command {
	return &cli.Command{
		Name:      "score",
		Usage:     "score rows again: response (or messages) and answer in, the rows with their scores out",
		ArgsUsage: "FILE",
		Description: "FILE is .jsonl, .json, .csv or .parquet; - reads JSON lines from stdin. " +
			"A row has a response (text) or messages, and an answer (text, a number or a list);\n" +
			"options, if there, are the reward's options for that row: strict, float_rounding, extraction, profile, math_tolerance,\n" +
			"decimal_comma, and objects of single rewards (docs/rewards.md).\n" +
			"A row whose response is null, or that the reward fails on, has no score: its reward is null, and error says why.",
		Flags: append(settingFlags(forScore),
			&cli.StringFlag{Name: "reward", Usage: "reward function: " + rewards.Choices +
				" (default: the one that a trajectory file names, else " + files.UsualReward + ")"},
			&cli.StringFlag{
				Name: "against", Usage: "`FILE` of labels, rows of id and label (true or false): prints accuracy and Cohen's κ on stderr"}),
		Action: func(c *cli.Context) error {
			if c.NArg() != 1 {
				return exit.Usagef("score wants one FILE, got %d arguments", c.NArg())
			}
			o, err := optionsOf(c)
			if err != nil {
				return err
			}
			return files.Score(c.Context, files.ScoreOptions{Path: c.Args().First(), Reward: c.String("reward"), Against: c.String("against"),
				Env: o.loop.Rollout.Added.Env, Grader: o.loop.Rollout.Grader, Judge: o.loop.Rollout.Judge},
				streamsOf(c))
		},
	}
}
