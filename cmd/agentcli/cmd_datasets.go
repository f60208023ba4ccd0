package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"agentcli/app/console"
	"agentcli/app/data"
	"agentcli/app/report"
	"agentcli/app/rollout"
	"agentcli/datasets"
	"agentcli/datasets/registry"
	"agentcli/hub"
	"agentcli/internal/exit"
	"agentcli/internal/text"
	"agentcli/rewards"
	"agentcli/traj"

	"github.com/urfave/cli/v2"
)

type datasetsOptions struct {
	Name, File string
	Split      string
	Level      string
	Limit      int
	Seed       int64
	Shots      *int
	Fields     map[string]string
	JSON       bool
	Force      bool
	Keep       registry.Entry // what an import stores beside the rows
}

func datasetsCommand() *cli.Command {
	asJSON := &cli.BoolFlag{Name: "json", Usage: "as JSON"}
	split := &cli.StringFlag{Name: "split", Usage: "of the dataset (default: its own)"}
	field := &cli.StringSliceFlag{Name: "field", Usage: "which column is which, for example question=problem; repeatable"}
	act := func(names int, run func(context.Context, datasetsOptions, console.Streams) error) cli.ActionFunc {
		return func(c *cli.Context) error {
			o, err := datasetsOptionsOf(c, names)
			if err != nil {
				return err
			}
			return run(c.Context, o, streamsOf(c))
		}
	}
	return &cli.Command{
		Name:  "datasets",
		Usage: "list, describe, fetch, import, show, check and compare datasets",
		Subcommands: []*cli.Command{
			{Name: "list", Usage: "the datasets that are known by name", Flags: []cli.Flag{asJSON}, Action: act(0, runDatasetsList)},
			{Name: "info", Usage: "describe a dataset or a file", ArgsUsage: "NAME", Flags: []cli.Flag{asJSON, split, field},
				Action: act(1, runDatasetsInfo)},
			{Name: "pull", Usage: "fetch a benchmark from the hub (HF_HOME, HF_ENDPOINT and HF_TOKEN count)",
				ArgsUsage: "NAME", Flags: []cli.Flag{split}, Action: act(1, runDatasetsPull)},
			{Name: "import", Usage: "give a file a name: its rows are copied where --dataset NAME finds them",
				ArgsUsage: "NAME FILE", Flags: []cli.Flag{field,
					&cli.StringFlag{Name: "split", Usage: "that the rows become (default: test)"},
					&cli.StringFlag{Name: "reward", Usage: "reward function of the dataset: " + rewards.Choices},
					&cli.StringFlag{Name: "prompt", Usage: "text around the question, with {question} and columns in braces"},
					&cli.StringFlag{Name: "system", Usage: "system prompt of the dataset"},
					&cli.StringFlag{Name: "env", Usage: "environment of the dataset: " + strings.Join(rollout.Environments(), " or ")},
					&cli.StringFlag{Name: "tools", Usage: "comma-separated tools of the dataset, or none"},
					&cli.BoolFlag{Name: "force", Usage: "replace what was imported under that name before"}}, Action: act(2, runDatasetsImport)},
			{Name: "show", Usage: "tasks as JSON lines, with the whole prompt", ArgsUsage: "NAME", Flags: []cli.Flag{split, field,
				&cli.StringFlag{Name: "level", Usage: "how hard a generated dataset is"},
				&cli.IntFlag{Name: "limit", Aliases: []string{"n"}, Value: 3, Usage: "how many; 0 is all"},
				&cli.Int64Flag{Name: "seed", Usage: "of a generated dataset"},
				&cli.IntFlag{Name: "shots", Usage: "worked examples before the question"},
			}, Action: act(1, runDatasetsShow)},
			datasetsCorpusCommand(act),
			datasetsVerifyCommand(asJSON, split), datasetsOverlapCommand(),
		},
	}
}

func datasetsOptionsOf(c *cli.Context, names int) (datasetsOptions, error) {
	o := datasetsOptions{Split: c.String("split"), Level: c.String("level"), Limit: c.Int("limit"), Seed: c.Int64("seed"),
		JSON: c.Bool("json"), Force: c.Bool("force")}
	if c.NArg() != names {
		wants := c.Command.ArgsUsage
		if names == 0 {
			wants = "no argument"
		}
		return o, exit.Usagef("datasets %s wants %s, got %d", c.Command.Name, wants, c.NArg())
	}
	o.Name, o.File = c.Args().Get(0), c.Args().Get(1)
	if o.Limit < 0 {
		return o, exit.Usagef("--limit is %d, want 0 or more", o.Limit)
	}
	o.Keep = registry.Entry{Reward: c.String("reward"), Prompt: c.String("prompt"), System: c.String("system"), Env: c.String("env")}
	switch tools := c.String("tools"); tools {
	case "":
	case "none":
		o.Keep.Tools = []string{}
	default:
		o.Keep.Tools = strings.FieldsFunc(tools, func(r rune) bool { return r == ',' || r == ' ' })
	}
	for _, err := range rollout.CheckEntry(o.Keep) { // whose field is the flag's name
		return o, exit.Usagef("--%w", err)
	}
	if c.IsSet("shots") {
		n := c.Int("shots")
		o.Shots = &n
	}
	for _, f := range c.StringSlice("field") {
		ours, theirs, ok := strings.Cut(f, "=")
		if !ok || ours == "" || theirs == "" && ours != "images" {
			return o, exit.Usagef("--field %q: want OURS=THEIRS, for example question=problem", f)
		}
		if o.Fields == nil {
			o.Fields = map[string]string{}
		}
		o.Fields[ours] = theirs
	}
	return o, nil
}

func (o datasetsOptions) open() datasets.Options {
	return datasets.Options{Split: o.Split, Level: o.Level, Limit: o.Limit, Seed: o.Seed, Shots: o.Shots, Fields: o.Fields,
		ObjectAnswers: rewards.TakesObjects}
}

func runDatasetsList(_ context.Context, o datasetsOptions, s console.Streams) error {
	list := datasets.List("", func(_ string, err error) { s.Say("left out: " + text.Line(err)) })
	if o.JSON {
		return console.WriteJSON(s.Out, list)
	}
	var rows [][]string
	for _, d := range list {
		if d.Replaces {
			s.Say(datasets.ReplacedNotice(d.Name, d.File))
		}
		n := "?"
		switch {
		case d.Problems > 0:
			n = fmt.Sprint(d.Problems)
		case d.Kind == "generated":
			n = "many"
		}
		here := "no"
		if d.Local {
			here = "yes"
		}
		rows = append(rows, []string{d.Name, d.Kind, n, d.Reward, here, d.About})
	}
	return report.Table(s.Out, "", []string{"NAME", "KIND", "PROBLEMS", "REWARD", "HERE", "ABOUT"}, rows)
}

func runDatasetsInfo(ctx context.Context, o datasetsOptions, s console.Streams) error {
	return data.WriteInfo(ctx, o.Name, o.open(), o.JSON, s)
}

func runDatasetsPull(ctx context.Context, o datasetsOptions, s console.Streams) error {
	h := hub.FromEnv()
	h.Notice = s.Say
	var last time.Time
	h.Progress = func(file string, done, total int64) {
		if !s.ErrTTY || time.Since(last) < 200*time.Millisecond && done != total {
			return
		}
		last = time.Now()
		fmt.Fprintf(s.Err, "\r%s  %.1f of %.1f MB ", file, float64(done)/1e6, float64(total)/1e6)
		if done == total {
			fmt.Fprintln(s.Err)
		}
	}
	files, err := datasets.Pull(ctx, o.Name, datasets.Options{Split: o.Split, Hub: h})
	if err != nil {
		return err
	}
	for _, f := range files {
		fmt.Fprintln(s.Out, f)
	}
	return nil
}

func runDatasetsImport(ctx context.Context, o datasetsOptions, s console.Streams) error {
	open := o.open()
	open.Replace = o.Force
	open.ObjectAnswers = func(own string) bool { return rewards.TakesObjects(cmp.Or(o.Keep.Reward, own)) }
	if k := o.Keep; k.Reward+k.Prompt+k.System+k.Env != "" || k.Tools != nil {
		open.Keep = &k
	}
	open.OnReplace = func(path string) {
		s.Say(fmt.Sprintf("%s was imported before: its rows in %s are replaced (--force)", o.Name, path))
	}
	n, path, err := datasets.Import(ctx, o.Name, o.File, open)
	if err != nil {
		return err
	}
	if want := datasets.Expected(o.Name); want > 0 && want != n && o.Split == "" {
		fmt.Fprintf(s.Err, "agentcli: %s has %s, and this file %d: is it the right one?\n", o.Name, text.Plural(want, "problem"), n)
	}
	fmt.Fprintf(s.Err, "agentcli: %s; now --dataset %s finds them\n", text.Plural(n, "row"), o.Name)
	fmt.Fprintln(s.Out, path)
	return nil
}

func runDatasetsShow(ctx context.Context, o datasetsOptions, s console.Streams) error {
	open := o.open()
	open.Notice = s.Say
	d, err := datasets.Open(ctx, o.Name, open)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(s.Out)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	for t, err := range d.Tasks(ctx) {
		if err != nil {
			return errors.Join(out.Flush(), err)
		}
		t.Messages = traj.WithoutFiles(t.Messages)
		if err := enc.Encode(t); err != nil {
			return err
		}
	}
	return out.Flush()
}
