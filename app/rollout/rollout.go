package rollout

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"agentcli/app/console"
	"agentcli/app/models"
	"agentcli/app/rundir"
	"agentcli/datasets"
	"agentcli/internal/cachedir"
	"agentcli/internal/exit"
	"agentcli/internal/setting"
	"agentcli/internal/text"
	"agentcli/traj"
)

// FileOptions are the settings of a rollout into a file.
type FileOptions struct {
	Options
	File string // -o; "" is stdout, or the folder of --output
	Feed *Feed  // gives the tasks in place of a dataset; nil: the dataset does
}

// Rollout plays tasks and writes their trajectories as Parquet: to stdout, a file, or the
// run's folder.
func Rollout(ctx context.Context, o FileOptions, s console.Streams) error {
	o.Command = "rollout"
	if o.Samples < 1 {
		return exit.Usagef("%s is %d; a task needs at least one attempt", setting.Name("Samples"), o.Samples)
	}
	if o.File != "" && o.Output != "" {
		return exit.Usagef("%s names a file and %s a folder; give one of them", setting.Name("File"), setting.Name("Output"))
	}
	if o.fed = o.Feed != nil; o.fed {
		if o.Dataset, o.Samples = datasets.RequestsName, 1; o.File == "" && o.Output == "" && o.Resume == "" {
			return exit.Usagef("a run of requests keeps its trajectories: name a file by %s, or a folder by %s", setting.Name("File"),
				setting.Name("Output"))
		}
	}
	scratch := o.Resume == "" && o.Output == ""
	inCache := o.Resume != "" && rundir.IsWithin(cachedir.Path("runs"), o.Resume)
	toStdout := o.File == "" && (scratch || inCache)
	if toStdout && s.OutTTY {
		return exit.Usagef("stdout is a terminal and Parquet is not for reading: add > traj.parquet, -o FILE, or %s DIR", setting.Name("Output"))
	}
	if toStdout && o.ImageFiles == ImageFiles[1] {
		return exit.Usagef("%s %s has no file on stdout to be beside: add -o FILE, or %s DIR", setting.Name("ImageFiles"), o.ImageFiles,
			setting.Name("Output"))
	}
	if o.File != "" {
		if err := rundir.CheckFile(o.File); err != nil {
			return err
		}
	}
	x, err := Open(ctx, o.Options, s)
	if err != nil {
		return err
	}
	defer x.Close()
	if err := keepInputs(x.Data.Files, o.File); err != nil {
		return err
	}
	models.WarnOfTestSplits(models.TrainedOnDataset(nil, x.Data),
		func(format string, a ...any) { x.Notice(fmt.Sprintf(format, a...)) })
	path := o.File
	if !toStdout && path == "" {
		path = filepath.Join(x.dir, rundir.TrajectoriesFile)
	}
	file := newTrajectoryFile(x, path)
	before, noFile := os.Stat(path)
	play := x.Play
	if o.Feed != nil {
		play = o.Feed.play(x)
	}
	sum, err := play(ctx, file.write)
	var saved, rest string
	switch {
	case toStdout:
		saved, rest = " and on stdout", "> traj.parquet"
	case o.File != "":
		saved, rest = " and in "+o.File, setting.Name("File").String()+" "+text.ShellWord(o.File)
	default:
		saved = " and in " + path
	}
	nothing := sum.Done == sum.Errors // went well
	if errors.Is(err, traj.ErrFatal) && nothing {
		file.abort()
	} else if o.File != "" && noFile == nil && before.Mode().IsRegular() && nothing && sum.Done > 0 {
		file.abort()
		x.Notice(fmt.Sprintf("%s is left as it was", o.File))
		saved = ""
	} else if cerr := file.close(); cerr != nil && err == nil {
		err = cerr
	}
	if o.Feed != nil {
		rest = strings.TrimSpace(rest + " " + o.Feed.Rest)
	}
	if o.Feed == nil || err != nil || sum.BudgetSpent { // what was asked for and failed, the one who asked knows
		err = x.ending(sum, err, saved, rest)
	} else {
		fedEnding(x, sum, saved, rest)
	}
	var interrupted exit.InterruptedError
	stopped := errors.As(err, &interrupted) && sum.Done == sum.Errors // ending says that nothing is kept
	if useless := errors.Is(err,
		traj.ErrFatal) && sum.Done == sum.Errors || sum.Done == 0 && o.Feed == nil || stopped; !x.keepDir && (err == nil || useless) {
		x.Close()
		_ = os.RemoveAll(x.dir)
	}
	if err == nil && path != "" && sum.Done > 0 {
		s.Log().Info("wrote "+path, "file", path)
	}
	return err
}
