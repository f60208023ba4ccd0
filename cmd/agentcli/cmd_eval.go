package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"agentcli/app/rundir"
	"agentcli/eval"
	"agentcli/internal/console"
	"agentcli/internal/exit"
	"agentcli/internal/filesys"
	"agentcli/internal/scratch"
	"agentcli/rewards"
	"agentcli/traj"

	"github.com/urfave/cli/v2"
)

// evalOptions are the settings of eval.
type evalOptions struct {
	runOptions
	PassK  int
	Format string
}

func evalCommand() *cli.Command {
	return &cli.Command{
		Name:  "eval",
		Usage: "measure a model on a dataset: pass@k, maj@k and pass^k with their standard errors",
		Description: "The report goes to stdout; report.json, the trajectories and the settings go into the run's folder.\n\n" +
			"  agentcli eval --dataset aime2024 --pass-k 8\n" +
			"  agentcli eval -d gsm8k --base-url http://localhost:8000/v1 --limit 100",
		Flags: append(runFlags(),
			&cli.IntFlag{Name: "pass-k", Aliases: []string{"k"}, Value: 1, Category: "run", Usage: "the k of pass@k"},
			&cli.IntFlag{Name: "samples", Aliases: []string{"n"}, Category: "run", Usage: "attempts at each problem, at least k (default: k)"},
			&cli.IntFlag{Name: "limit", Category: "data", Usage: "problems, 0 is all of them; a generated dataset has no end and needs a number (default: all)"},
			&cli.StringFlag{Name: "format", Value: "table", Category: "run", Usage: "of the report on stdout: " + strings.Join(reportFormats, ", ")},
		),
		Action: func(c *cli.Context) error {
			run, err := runOptionsOf(c)
			if err != nil {
				return err
			}
			return runEval(c.Context, evalOptions{runOptions: run, PassK: c.Int("pass-k"), Format: c.String("format")}, streamsOf(c))
		},
	}
}

func runEval(ctx context.Context, o evalOptions, s console.Streams) error {
	if o.Samples == 0 {
		o.Samples = o.PassK
	}
	switch {
	case o.Dataset == "":
		return exit.Usagef("which dataset? --dataset NAME; `agentcli datasets list` shows the names, and a file's path works too")
	case o.PassK < 1:
		return exit.Usagef("--pass-k is %d; it must be at least 1", o.PassK)
	case o.Samples < o.PassK:
		return exit.Usagef("--samples %d is less than --pass-k %d: pass@%d needs at least %d attempts a problem", o.Samples, o.PassK, o.PassK, o.PassK)
	case !slices.Contains(reportFormats, o.Format):
		return exit.Usagef("--format %q is unknown; it is one of %s", o.Format, strings.Join(reportFormats, ", "))
	}
	x, err := open(ctx, o.runOptions, s)
	if err != nil {
		return err
	}
	defer x.close()
	if err := x.sayTrainedOn(); err != nil {
		return err
	}
	file := newTrajectoryFile(x, filepath.Join(x.dir, rundir.TrajectoriesFile))
	score := eval.New(eval.Config{Dataset: x.data.Name, Split: x.data.Split, Model: x.info.Name, BaseURL: x.info.BaseURL, Samples: o.Samples, PassK: o.PassK,
		Vote:  func(t *traj.Trajectory) string { return rewards.Vote(x.rewardOf(t), *t.Extracted) },
		Spool: x.spool, Notice: x.notice})
	sum, err := x.play(ctx, func(t *traj.Trajectory) error {
		score.Add(t)
		return file.write(t)
	})
	if err != nil && sum.Done == sum.Errors {
		file.abort()
		if o.Output == "" && o.Resume == "" { // a folder of our own making, with nothing in it
			x.close()
			_ = os.RemoveAll(x.dir)
			_ = os.Remove(filepath.Dir(x.dir)) // runs/, if it is empty
		}
		return x.ending(sum, err, "", "")
	}
	if cerr := file.close(); cerr != nil && err == nil {
		err = cerr
	}
	if sum.Done > 0 {
		r, werr := score.Report()
		if werr == nil {
			werr = writeReport(filepath.Join(x.dir, rundir.ReportFile), r)
		}
		if werr != nil && err == nil {
			err = werr
		}
		// An interrupted run's numbers are of part of the data; they are in
		// the folder, and not shown as if they were the result.
		if err == nil && !sum.Interrupted {
			if err := printReport(s.Out, r, o.Format); err != nil {
				return fmt.Errorf("cannot write the report to stdout (%w); it is in %s", rundir.StripPath(err), filepath.Join(x.dir, rundir.ReportFile))
			}
		}
		s.Log().Info("the run is in "+x.dir, "dir", x.dir)
	}
	return x.ending(sum, err, " and in "+x.dir, "")
}

// spool gives the report of a long evaluation a temporary file.
func (x *session) spool() (eval.Spool, error) {
	f, err := scratch.New("agentcli-eval-*")
	if err != nil {
		return nil, spoolError(err)
	}
	x.closers = append(x.closers, f)
	return spoolFile{f}, nil
}

type spoolFile struct{ *scratch.File }

func (f spoolFile) WriteAt(b []byte, at int64) (int, error) {
	n, err := f.File.WriteAt(b, at)
	if err != nil {
		err = spoolError(err)
	}
	return n, err
}

func spoolError(err error) error {
	return scratch.Explain(err, "a file there would have them, at some 150 bytes each")
}

// writeReport replaces the file in one step.
func writeReport(path string, r *eval.Report) error {
	if err := filesys.Replace(filesys.OS, path, rundir.FileMode, r.WriteJSON); err != nil {
		return fmt.Errorf("cannot write the report %s: %w", path, rundir.StripPath(err))
	}
	return nil
}
