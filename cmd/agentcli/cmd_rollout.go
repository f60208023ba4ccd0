package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"agentcli/app/rundir"
	"agentcli/datasets"
	"agentcli/internal/cachedir"
	"agentcli/internal/console"
	"agentcli/internal/exit"
	"agentcli/internal/text"
	"agentcli/parquet"
	"agentcli/traj"

	"github.com/urfave/cli/v2"
)

// rolloutOptions are the settings of rollout.
type rolloutOptions struct {
	runOptions
	File string // -o; "" is stdout, or the folder of --output
}

// generatedTasks is how many tasks of a generated dataset, which is infinite, a rollout
// takes by default.
const generatedTasks = 32

func rolloutCommand() *cli.Command {
	return &cli.Command{
		Name:  "rollout",
		Usage: "play tasks and write the trajectories as Parquet to stdout, to -o FILE, or into --output DIR",
		Description: "With nothing configured: the dataset arith, the small model that set-up fetched.\n\n" +
			"  agentcli rollout > traj.parquet\n" +
			"  agentcli rollout --base-url http://localhost:8000/v1 -d aime2024 -n 8 -o traj.parquet",
		Flags: append(runFlags(),
			&cli.IntFlag{Name: "samples", Aliases: []string{"n"}, Value: 8, Category: "run", Usage: "attempts at each task"},
			&cli.IntFlag{Name: "limit", Category: "data", Usage: fmt.Sprintf("number of tasks; 0: all of them (default: all; of a generated dataset %d)", generatedTasks)},
			&cli.StringFlag{Name: "o", Aliases: []string{"out"}, Category: "run", Usage: "write the Parquet file to `FILE`"},
		),
		Action: func(c *cli.Context) error {
			run, err := runOptionsOf(c)
			if err != nil {
				return err
			}
			if run.Dataset == "" {
				run.Dataset = "arith"
			}
			if !c.IsSet("limit") && datasets.Generated(run.Dataset) {
				run.Limit = generatedTasks
			}
			run.chooseSplit(run.Resume != "", run.Settings)
			run.Sampling = ownDistribution(run.Sampling)
			return runRollout(c.Context, rolloutOptions{runOptions: run, File: c.String("o")}, streamsOf(c))
		},
	}
}

// ownDistribution fills what the user left open with sampling from the model
// itself: a server would take its own defaults, which often cut the tail, and
// tokens drawn so cannot be trained on.
func ownDistribution(s traj.Sampling) traj.Sampling {
	if s.Temperature == nil {
		one := 1.0
		s.Temperature = &one
	}
	if s.TopP == 0 {
		s.TopP = 1
	}
	if s.TopK == 0 {
		s.TopK = -1
	}
	s.Neutral = true
	return s
}

func runRollout(ctx context.Context, o rolloutOptions, s console.Streams) error {
	if o.Samples < 1 {
		return exit.Usagef("--samples is %d; a task needs at least one attempt", o.Samples)
	}
	if o.File != "" && o.Output != "" {
		return exit.Usagef("-o names a file and --output a folder; give one of them")
	}
	scratch := o.Resume == "" && o.Output == ""
	inCache := o.Resume != "" && rundir.IsWithin(cachedir.Path("runs"), o.Resume)
	toStdout := o.File == "" && (scratch || inCache)
	if toStdout && s.OutTTY {
		return exit.Usagef("stdout is a terminal and Parquet is not for reading: add > traj.parquet, -o FILE, or --output DIR")
	}
	if o.File != "" {
		if err := rundir.CheckFile(o.File); err != nil {
			return err
		}
	}
	x, err := open(ctx, o.runOptions, s)
	if err != nil {
		return err
	}
	defer x.close()
	sayTestSplits([]trainedOn{{x.data.Name, x.data.Split}}, func(format string, a ...any) { x.notice(fmt.Sprintf(format, a...)) })
	path := o.File
	if !toStdout && path == "" {
		path = filepath.Join(x.dir, rundir.TrajectoriesFile)
	}
	file := newTrajectoryFile(x, path)
	sum, err := x.play(ctx, file.write)
	var saved, rest string
	switch {
	case toStdout:
		saved, rest = " and on stdout", "> traj.parquet"
	case o.File != "":
		saved, rest = " and in "+o.File, "-o "+text.ShellWord(o.File)
	default:
		saved = " and in " + path
	}
	if errors.Is(err, traj.ErrFatal) && sum.Done == sum.Errors {
		file.abort()
	} else if cerr := file.close(); cerr != nil && err == nil {
		err = cerr
	}
	err = x.ending(sum, err, saved, rest)
	var interrupted exit.InterruptedError
	stopped := errors.As(err, &interrupted) && sum.Done == sum.Errors // ending says that nothing is kept
	if useless := errors.Is(err, traj.ErrFatal) && sum.Done == sum.Errors || sum.Done == 0 || stopped; !x.keepDir && (err == nil || useless) {
		x.close()
		_ = os.RemoveAll(x.dir)
	}
	if err == nil && path != "" {
		s.Log().Info("wrote "+path, "file", path)
	}
	return err
}

// trajectoryFile is the Parquet file of a run; it begins with the first
// trajectory, so that a run that never got that far leaves nothing behind.
type trajectoryFile struct {
	x    *session
	said bool
	path string // "" is stdout
	w    *parquet.Writer
}

func newTrajectoryFile(x *session, path string) *trajectoryFile {
	return &trajectoryFile{x: x, path: path}
}

func (f *trajectoryFile) write(t *traj.Trajectory) error {
	if f.w == nil {
		meta, err := f.x.metadata()
		if err != nil {
			return err
		}
		if f.path == "" {
			f.w, err = parquet.NewWriter(f.x.s.Out, meta, parquet.WriterConfig{})
		} else {
			f.w, err = parquet.CreateFile(f.path, meta, parquet.WriterConfig{})
		}
		if err != nil {
			f.w = nil
			return err
		}
	}
	if !f.said && len(t.Steps) > 0 && len(t.Sequences) == 0 {
		f.said = true
		f.x.notice("the server returns no token ids: these rows can be read and scored, but not trained on (vLLM and SGLang return them)")
	}
	return f.w.Write(t)
}

func (f *trajectoryFile) close() error {
	if f.w == nil {
		return nil
	}
	return f.w.Close()
}

func (f *trajectoryFile) abort() {
	if f.w != nil {
		f.w.Abort()
	}
}
