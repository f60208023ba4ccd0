package main

import (
	"cmp"

	"agentcli/app/data"
	"agentcli/app/rollout"
	"agentcli/internal/exit"

	"github.com/urfave/cli/v2"
)

func datasetsVerifyCommand(asJSON, split cli.Flag) *cli.Command {
	return &cli.Command{Name: "verify", Usage: "check files, hashes, rows, ids and gold answers of datasets", ArgsUsage: "[NAME|FILE ...]",
		Flags: []cli.Flag{asJSON, split},
		Action: func(c *cli.Context) error {
			return data.WriteVerified(c.Context, data.VerifyOptions{Names: c.Args().Slice(), Split: c.String("split"), JSON: c.Bool("json"),
				Checks: data.Checks{Envs: rollout.Environments(), Entry: rollout.CheckEntry}}, streamsOf(c))
		}}
}

func datasetsOverlapCommand() *cli.Command {
	return &cli.Command{Name: "overlap", Usage: "rows of A whose question shares words with one of B, as JSON lines (contamination)",
		ArgsUsage: "A B",
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "words", Value: data.DefaultWords, Usage: "how many words in a row must be the same"},
			&cli.StringFlag{Name: "split-a", Usage: "split of A (default: its own)"},
			&cli.StringFlag{Name: "split-b", Usage: "split of B (default: its own)"},
			&cli.IntFlag{Name: "limit", Usage: "at most so many rows of each; required for a generated dataset"},
		},
		Action: func(c *cli.Context) error {
			if c.NArg() != 2 {
				return exit.Usagef("datasets overlap wants A B, got %d", c.NArg())
			}
			if err := cmp.Or(positive("words", c.Int("words")), notNegative("limit", c.Int("limit"))); err != nil {
				return err
			}
			return data.WriteOverlap(c.Context, data.OverlapOptions{Names: [2]string{c.Args().Get(0), c.Args().Get(1)},
				Splits: [2]string{c.String("split-a"), c.String("split-b")}, Words: c.Int("words"), Limit: c.Int("limit")}, streamsOf(c))
		}}
}
