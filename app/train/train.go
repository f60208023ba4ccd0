package train

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"agentcli/app/console"
	"agentcli/app/models"
	"agentcli/app/rundir"
	"agentcli/internal/exit"
	"agentcli/internal/filesys"
	"agentcli/internal/setting"
	"agentcli/lossscale"
	"agentcli/media/album"
	"agentcli/trainer"
	"agentcli/trainer/metrics"
)

// Run trains a model from trajectory files, text or preferences, and writes the name of
// the model's folder to stdout. With o.DryRun it prints what it would do.
func Run(ctx context.Context, o Options, s console.Streams) error {
	if err := o.Backend.Available(); err != nil {
		return fmt.Errorf("cannot train: %w", err)
	}
	album.AllowPixels(o.MaxImagePixels)
	x := &run{o: o, s: s.Shared()}
	defer x.close()
	// The files first: opening a model takes longer, and most mistakes are here.
	if err := x.openRows(ctx); err != nil {
		return err
	}
	if err := x.openModels(ctx); err != nil {
		return err
	}
	if o.DryRun {
		return dryRun(x.rows.data, x.m, x.path, x.o, s)
	}
	return x.train(ctx)
}

// run is one training run.
type run struct {
	o    Options
	s    console.Streams
	pos  Position // of the checkpoint that it goes on from
	rows *inputRows
	path string // of the model that it starts from
	m    *Models
}

func (x *run) note(format string, a ...any) { x.s.Say(fmt.Sprintf(format, a...)) }

func (x *run) close() {
	if x.m != nil {
		x.m.Close()
	}
	if x.rows != nil {
		x.rows.close()
	}
}

// openRows reads the files, and refuses what cannot be trained on, or not so.
func (x *run) openRows(ctx context.Context) (err error) {
	if x.pos, err = ReadPosition(x.o.Resume); err != nil {
		return err
	}
	if err := x.o.continueFrom(x.pos); err != nil {
		return err
	}
	rows, err := loadRows(ctx, x.o, x.pos.Folder, x.note)
	if err != nil {
		return err
	}
	x.rows = rows // to be closed
	o, data := x.o, x.rows.data
	NoteLossScale(data, x.note)
	if err := checkSampled(data, o, x.note); err != nil {
		return err
	}
	if text := trainer.Tempering(data, o.Config); text != "" {
		x.note("%s", text)
	}
	if err := checkRows(data, o, x.note); err != nil {
		return err
	}
	if err := trainer.CheckParts(data, o.Config); err != nil {
		return exit.UsageError{Err: err}
	}
	if o.Greedy != "" {
		if err := data.CompareWithGreedy(ctx, o.Greedy); err != nil {
			return err
		}
	}
	return checkOutput(data, o)
}

// openModels opens the models, and looks whether the rows mean to them what they meant
// to the one that sampled them.
func (x *run) openModels(ctx context.Context) (err error) {
	data, ptx := x.rows.data, x.rows.ptx
	if x.path, err = startingModel(ctx, data, x.o, func(m string) { x.note("%s", m) }); err != nil {
		return err
	}
	if err := x.o.CheckLoRA(x.path); err != nil {
		return err
	}
	m, err := OpenModels(ctx, x.path, x.o, x.pos.Step > 0, x.note)
	if err != nil {
		return err
	}
	x.m = m // to be closed
	if err := checkTokens(data, x.o.Config, x.m.Actor, x.path, x.o, x.note); err != nil {
		return err
	}
	if ptx != nil {
		if err := checkTokens(ptx, trainer.Config{Algo: trainer.AlgoSFT}, x.m.Actor, x.path, x.o, x.note); err != nil {
			return err
		}
	}
	if x.rows.eval != nil {
		if err := checkTokens(x.rows.eval, x.o.Config, x.m.Actor, x.path, x.o, x.note); err != nil {
			return setting.Errorf("%s: %w", setting.Name("Held.Dataset"), err)
		}
	}
	if err := x.rows.holdOut(x.o, x.note); err != nil {
		return err
	}
	if x.o.TrainedOn, err = TrainedOnFiles(data, x.path); err != nil {
		return err
	}
	models.WarnOfTestSplits(x.o.TrainedOn, x.note)
	if data.Unmarked > 0 {
		x.note("warning: in %d rows the tool output was not found among their tokens; %s learns nothing from them",
			data.Unmarked, setting.Name("Echo"))
	}
	if data.Skipped.Rows > 0 {
		x.note("%d rows take no part: %s", data.Skipped.Rows, data.Skipped.String())
	}
	return nil
}

// openFolder makes the folder of a new run, with what --resume needs to know.
func (x *run) openFolder() error {
	if x.o.Output == "" {
		x.o.Output = filepath.Join("runs", "train-"+time.Now().Format("20060102-150405"))
	}
	o := x.o
	if err := rundir.CheckRoom(o.Output, rundir.FreeBytes(o.Output), x.m.Parameters(), o.Save, x.note); err != nil {
		return err
	}
	if x.pos.Step > 0 {
		return nil
	}
	read := map[string][]string{"": x.rows.data.Files, "demonstration": DemonstrationFile(o.Config.Demonstration),
		"loss-scale": lossscale.Files(o.Config.LossScale), "chat-template": models.TemplateFile(o.Open.ChatTemplate)}
	if x.rows.ptx != nil {
		read["ptx"] = x.rows.ptx.Files
	}
	if o.Held.Dataset != "" {
		read["eval-dataset"] = x.rows.eval.Files
	}
	if o.Greedy != "" {
		read["greedy"] = []string{o.Greedy}
	}
	return prepareOutput(o, read)
}

// train updates the model until its last step, with checkpoints on the way, and writes it.
func (x *run) train(ctx context.Context) (end error) {
	if err := x.openFolder(); err != nil {
		return err
	}
	o, m, data, note := x.o, x.m, x.rows.data, x.note
	var history []trainer.Metrics
	defer func() {
		if end != nil && o.Resume == "" && len(history) == 0 && !errors.As(end, new(exit.InterruptedError)) {
			rundir.ClearUnused(o.Output) // for the corrected command to take
		}
	}()
	log, err := metrics.Open(o.Output, x.pos.Step, time.Now())
	if err != nil {
		return err
	}
	defer log.Close()

	run := m.Trainer(o, data)
	if x.rows.ptx != nil {
		run.PTX = x.rows.ptx.Episodes
	}
	run.Done = x.pos.Step
	if x.pos.Step > 0 {
		if run.Frozen, err = m.LoadState(x.pos.Folder); err != nil {
			return err
		}
		note("going on after step %d of the run in %s", x.pos.Step, o.Output)
	}
	note("training %s (%.0f M parameters, %s) on %d %s in %s → %s", x.path, float64(m.Actor.Parameters())/1e6, m.Actor.DType(),
		len(data.Episodes), rowsName(o.Config), strings.Join(data.Files, ", "), o.Output)

	show := NewMeter(x.s)
	best := &bestSoFar{dir: o.Output, save: func(dir string) error { held := o; held.Output = dir; return m.Save(held) }}
	if x.rows.eval != nil {
		best.watch(run, x.rows.eval, o.Held.Every, log)
	}
	run.OnSkip = func(err error) { show.Close(); note("warning: %v: this step is left out", err) }
	run.OnDrop = func(rows int) {
		note("%d of the %d trajectories are left out: all attempts of their group scored the same (%s)",
			rows, len(data.Episodes), setting.Name("DropZeroStd"))
	}
	run.OnProgress = show.Progress
	warned := false
	run.OnStep = func(step trainer.Metrics) error {
		if d := step.Values["rollout_logprobs_diff_mean"]; !warned && d > farApart {
			warned = true
			show.Close()
			note("warning: the file's log-probs are %.2g apart from those of %s on average: "+
				"was the file sampled by another model, or with another tokenizer or chat template?", d, x.path)
		}
		AddPeakMemory(step.Values, o)
		AddUtilisation(step.Values, o, m)
		history = append(history, step)
		show.Step(step)
		return log.Write(step.Step, step.Values, time.Now())
	}
	run.Checkpoint = x.checkpoint
	started := time.Now()
	err = run.Run(ctx)
	show.Close()
	if errors.Is(err, trainer.ErrInterrupted) {
		return exit.InterruptedError{
			Message: fmt.Sprintf("interrupted between two optimiser steps; go on with: agentcli train %s ", setting.Name("Resume")) + o.Output}
	}
	if err != nil {
		return err
	}
	if err := x.finish(); err != nil {
		return err
	}
	if o.Config.IsSupervised() {
		summariseSupervised(note, history, time.Since(started))
		best.summarise(note)
	} else {
		summarise(note, o.Output, data, history, time.Since(started))
	}
	// The one datum of this command: where the model is.
	_, err = fmt.Fprintln(x.s.Out, o.Output)
	return err
}

// checkpoint writes one after so many optimiser steps.
func (x *run) checkpoint(done int, f *trainer.Frozen) error {
	o := x.o
	err := SaveCheckpoint(x.m, f, o.Output, Position{Step: done, Model: rundir.Absolute(x.path), DType: x.m.Actor.DType(),
		Ref: rundir.Absolute(o.Ref), Critic: rundir.Absolute(o.Critic), Teacher: rundir.Absolute(o.Teacher),
		Reward: rundir.Absolute(o.RewardModel), PTX: rundir.Absolute(o.PTX),
		Config: FixedPart(o.Config), LoRA: AdapterText(o)}, o.Keep)
	if !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	// The steps so far are worth more than the checkpoint: the model is
	// smaller, and may still fit at the end.
	x.note("warning: the disk of %s is full: no checkpoint after step %d, the run goes on without; free some room, or it will be lost",
		o.Output, done)
	return dropUnfinished(o.Output)
}

// finish writes the model and the curves, and removes the checkpoints.
func (x *run) finish() error {
	dir := x.o.Output
	if err := x.m.Save(x.o); err != nil {
		if errors.Is(err, syscall.ENOSPC) {
			err = setting.Errorf("the disk is full, so the model could not be written; free some room and go on from the last checkpoint, "+
				"if there is one, with: agentcli train %s %s", setting.Name("Resume"), dir)
		}
		return fmt.Errorf("%s: %w", dir, err)
	}
	if err := filesys.WriteFile(filesys.OS, filepath.Join(dir, rundir.CurveFile), drawCurves(dir), rundir.FileMode); err != nil {
		return err
	}
	return DropCheckpoints(dir)
}
