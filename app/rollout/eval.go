package rollout

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"agentcli/app/console"
	"agentcli/app/models"
	"agentcli/app/report"
	"agentcli/app/rundir"
	"agentcli/datasets"
	"agentcli/eval"
	"agentcli/internal/exit"
	"agentcli/internal/filesys"
	"agentcli/internal/scratch"
	"agentcli/internal/setting"
	"agentcli/rewards"
	"agentcli/traj"
)

// EvalOptions are the settings of eval.
type EvalOptions struct {
	Options
	PassK    int
	Format   string
	Problems bool // a row for each problem, too
}

// Eval measures a model on a dataset. The report goes to stdout and, with trajectories
// and settings, into the run's folder.
func Eval(ctx context.Context, o EvalOptions, s console.Streams) error {
	o.Command = "eval"
	if o.Samples == 0 {
		o.Samples = o.PassK
	}
	switch {
	case o.Dataset == "":
		return exit.Usagef("which dataset? %s NAME; `agentcli datasets list` shows the names, and a file's path works too",
			setting.Name("Dataset"))
	case o.PassK < 1:
		return exit.Usagef("%s is %d; it must be at least 1", setting.Name("PassK"), o.PassK)
	case o.Samples < o.PassK:
		return exit.Usagef("%s %d is less than %s %d: pass@%d needs at least %d attempts a problem",
			setting.Name("Samples"), o.Samples, setting.Name("PassK"), o.PassK, o.PassK, o.PassK)
	case !slices.Contains(report.Formats, o.Format):
		return exit.Usagef("%s %q is unknown; it is one of %s", setting.Name("Format"), o.Format, strings.Join(report.Formats, ", "))
	}
	x, err := Open(ctx, o.Options, s)
	if err != nil {
		return err
	}
	defer x.Close()
	if err := warnOfTraining(x.Source, x.Data, x.Notice); err != nil {
		return err
	}
	file := newTrajectoryFile(x, filepath.Join(x.dir, rundir.TrajectoriesFile))
	score := eval.New(eval.Config{Dataset: x.Data.Name, Split: x.Data.Split, Model: x.Source.Name,
		BaseURL: x.Source.BaseURL, Samples: o.Samples, PassK: o.PassK,
		Vote:        func(t *traj.Trajectory) string { return rewards.Vote(x.rewardOf(t), *t.Extracted) },
		ReadsAnswer: func(t *traj.Trajectory) bool { return rewards.ReadsAnswers(x.rewardOf(t)) },
		Same:        func(t *traj.Trajectory, a, b string) bool { return rewards.SameVote(x.rewardOf(t), a, b, x.o.Grader) },
		Spool:       func() (eval.Spool, error) { return openSpool(&x.closers) }, Notice: x.Notice})
	sum, err := x.Play(ctx, func(t *traj.Trajectory) error {
		score.Add(t)
		return file.write(t)
	})
	if err != nil && sum.Done == sum.Errors {
		file.abort()
		if o.Output == "" && o.Resume == "" { // a folder of our own making, with nothing in it
			x.Close()
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
			err := report.Print(s.Out, r, o.Format)
			if err == nil && o.Problems {
				err = report.PrintProblems(s.Out, r, o.Format)
			}
			if err != nil {
				return fmt.Errorf("cannot write the report to stdout (%w); it is in %s", rundir.StripPath(err), filepath.Join(x.dir, rundir.ReportFile))
			}
		}
		s.Log().Info("the run is in "+x.dir, "dir", x.dir)
	}
	return x.ending(sum, err, " and in "+x.dir, "")
}

// openSpool gives the report of a long evaluation a temporary file.
func openSpool(closers *[]io.Closer) (eval.Spool, error) {
	f, err := scratch.New("agentcli-eval-*")
	if err != nil {
		return nil, spoolError(err)
	}
	*closers = append(*closers, f)
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

// warnOfTraining warns where a local model is evaluated on what it was trained on.
func warnOfTraining(model models.Source, d *datasets.Dataset, notice func(string)) error {
	if model.Kind != "local" {
		return nil
	}
	all, err := models.ReadTrainedOn(model.Name)
	if err != nil {
		return err
	}
	for _, at := range models.TrainedOnDataset(nil, d) {
		if !slices.ContainsFunc(all, at.MayBe) {
			continue
		}
		notice(fmt.Sprintf("warning: %s was trained on %s (%s says so): the result says how well it remembers, not how well it does on new tasks",
			model.Name, at, models.TrainedOnFile))
	}
	return nil
}
