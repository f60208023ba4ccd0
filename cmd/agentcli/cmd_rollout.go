package main

import (
	"os"

	"agentcli/app/rollout"
	"agentcli/app/rolloutserver"
	"agentcli/datasets"
	"agentcli/internal/exit"

	"github.com/urfave/cli/v2"
)

func rolloutCommand() *cli.Command {
	return withSettings(&cli.Command{
		Name:  "rollout",
		Usage: "play tasks and write the trajectories as Parquet to stdout, to -o FILE, or into --output DIR",
		Description: "With nothing configured: the dataset arith, the small model that set-up fetched.\n\n" +
			"  agentcli rollout > traj.parquet\n" +
			"  agentcli rollout --base-url http://localhost:8000/v1 -d aime2024 -n 8 -o traj.parquet",
		Action: func(c *cli.Context) error {
			o, err := runOptionsOf(c)
			if err != nil {
				return err
			}
			run := o.loop.Rollout
			if o.serve.Serve == "" && o.serve.Token == os.Getenv(tokenVariable) {
				o.serve.Token = "" // a variable of the shell asks for nothing
			}
			if o.serve.Serve != "" || o.serve.OfServer() != "" {
				if run.Resume == "" && run.Samples != rollout.DefaultSamples {
					return exit.Usagef("--serve plays a row once for each request; leave --samples out")
				}
				run.Sampling = rollout.OwnDistribution(run.Sampling)
				o.serve.FileOptions = rollout.FileOptions{Options: run, File: o.file}
				return rolloutserver.Run(c.Context, o.serve, streamsOf(c))
			}
			if run.Dataset == "" {
				run.Dataset = "arith"
			}
			if !c.IsSet("limit") && datasets.Generated(run.Dataset) {
				run.Limit = rollout.GeneratedTasks
			}
			run.ChooseSplit(run.Resume != "", run.Settings)
			run.Sampling = rollout.OwnDistribution(run.Sampling)
			return rollout.Rollout(c.Context, rollout.FileOptions{Options: run, File: o.file}, streamsOf(c))
		},
	})
}
