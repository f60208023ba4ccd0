package main

import (
	"os"
	"slices"

	"agentcli/app/console"
	"agentcli/app/files"
	"agentcli/app/termimage"
	"agentcli/internal/exit"

	"github.com/urfave/cli/v2"
)

func inspectCommand() *cli.Command {
	return &cli.Command{
		Name:        "inspect",
		Usage:       "a summary of a file of trajectories, or one trajectory",
		ArgsUsage:   "FILE [ID]",
		Description: "ID names a trajectory (task#attempt); the word correct takes the first one that is.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "as JSON"},
			&cli.BoolFlag{Name: "tokens", Usage: "show the tokens, those that are trained on underlined"},
			&cli.StringFlag{Name: "tokenizer", Usage: "model folder or .gguf whose tokenizer reads the tokens (default: " +
				"the policy that the file names)"},
			&cli.BoolFlag{Name: "html", Usage: "write a page with the trajectories, their images and the boxes on them to stdout"},
			&cli.IntFlag{Name: "limit", Value: files.DefaultPageLimit, Usage: "trajectories of the page; 0: all"},
			&cli.StringFlag{Name: "images", Usage: "write the images of the trajectory into this `FOLDER`, with the boxes on them"},
			&cli.StringFlag{Name: "draw", Value: "auto", Usage: "show the images of the trajectory in the terminal: " +
				"auto (where stdout is a terminal that is known to), " + termimage.Names()},
			&cli.StringFlag{Name: "loss-scale", Usage: "show the weights of tokens that train would use with this --loss-scale"},
		},
		Action: func(c *cli.Context) error {
			if c.NArg() < 1 || c.NArg() > 2 {
				return exit.Usagef("inspect wants FILE and perhaps the ID of a trajectory, got %d arguments", c.NArg())
			}
			s := streamsOf(c)
			o := files.InspectOptions{Path: c.Args().Get(0), ID: c.Args().Get(1), JSON: c.Bool("json"), Tokens: c.Bool("tokens"),
				Tokenizer: c.String("tokenizer"), LossScale: c.String("loss-scale"), Color: console.UseColor(s.OutTTY),
				HTML: c.Bool("html"), Limit: c.Int("limit"), Images: c.String("images")}
			var err error
			if o.Draw, err = drawnBy(c.String("draw"), s.OutTTY); err != nil {
				return err
			}
			if o.Tokens && o.ID == "" {
				return exit.Usagef("--tokens shows one trajectory: give its ID")
			}
			switch {
			case o.Images != "" && (o.ID == "" || o.HTML):
				return exit.Usagef("--images writes the images of one trajectory: give its ID, without --html")
			case o.HTML && (o.JSON || o.Tokens):
				return exit.Usagef("--html is a page of its own: leave out --json and --tokens")
			case o.Limit < 0:
				return exit.Usagef("--limit is %d; it must not be negative", o.Limit)
			}
			return files.Inspect(c.Context, o, s)
		},
	}
}

// drawnBy is the protocol that --draw asks for.
func drawnBy(name string, tty bool) (termimage.Protocol, error) {
	switch {
	case name == "auto" && tty:
		return termimage.Detect(os.Getenv), nil
	case name == "auto":
		return termimage.None, nil
	case slices.Contains(termimage.Protocols, termimage.Protocol(name)):
		return termimage.Protocol(name), nil
	}
	return "", exit.Usagef("--draw is %q; it is auto, %s", name, termimage.Names())
}
