package main

import (
	"agentcli/app/models"

	"github.com/urfave/cli/v2"
)

// initCommand is model init.
func initCommand() *cli.Command {
	return &cli.Command{Name: "init", Usage: "write a model with random weights", Flags: []cli.Flag{
		&cli.StringFlag{Name: "config", Required: true,
			Usage: "config.json `FILE`; the tokenizer's and the processor's files are copied from its folder"},
		&cli.Int64Flag{Name: "seed", Usage: "of the weights"},
		&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Required: true, Usage: "new `FOLDER`"},
	}, Action: func(c *cli.Context) error {
		if _, err := modelArgs(c, 0); err != nil {
			return err
		}
		return models.Init(c.String("config"), c.Int64("seed"), c.String("output"))
	}}
}
