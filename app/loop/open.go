package loop

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"agentcli/app/models"
	"agentcli/app/rollout"
	"agentcli/app/rundir"
	"agentcli/app/train"
	"agentcli/datasets"
	"agentcli/internal/exit"
	"agentcli/internal/filesys"
	"agentcli/internal/setting"
	"agentcli/lossscale"
	"agentcli/policy"
	"agentcli/trainer/metrics"
)

// open sets everything up; files are made last.
func (l *run) open(ctx context.Context) error {
	pos, err := train.ReadPosition(l.o.Resume)
	if err != nil {
		return err
	}
	if err := l.check(ctx); err != nil {
		return err
	}
	if err := l.openModels(ctx, pos); err != nil {
		return err
	}
	if err := l.openFolder(); err != nil {
		return err
	}
	if pos.Step > 0 {
		if err := l.restore(ctx, pos); err != nil {
			return err
		}
	}
	// Settings that are refused leave the run those that it began with.
	if err := rundir.WriteSettings(filesys.OS, filepath.Join(l.dir, rundir.ConfigFile), l.o.Settings); err != nil {
		return err
	}
	if l.log, err = metrics.Open(l.dir, l.done, time.Now()); err != nil || pos.Step > 0 {
		return err
	}
	return l.draw.begin(ctx)
}

// check refuses what can be refused before a model is opened.
func (l *run) check(ctx context.Context) error {
	o := l.o
	if o.Resume != "" && rundir.Exists(filepath.Join(o.Resume, rundir.InputsFile)) { // older runs have none
		if _, err := rundir.ReadInputs(o.Resume); err != nil {
			return err
		}
	}
	if err := rundir.CheckOutput(o.Output, "loop", o.Resume != ""); err != nil {
		return err
	}
	if o.Rollout.Cuts() {
		why := fmt.Sprintf("%s, %s, %s or %s cut the distribution that is trained, and the gradient is biased",
			setting.Name("TopP"), setting.Name("TopK"), setting.Name("MinP"), setting.Name("Grammar"))
		if err := exit.Override(o.Train.Force, l.note, train.ErrCut, why, fmt.Sprintf(" (leave them out, or add %s)",
			setting.Name("Force"))); err != nil {
			return err
		}
	}
	if path, known := o.Train.StartsFrom(ctx); known {
		if err := o.Train.CheckLoRA(path); err != nil {
			return err
		}
	}
	return nil
}

// openModels opens what samples, what is trained and what it is measured on.
func (l *run) openModels(ctx context.Context, pos train.Position) (err error) {
	o := l.o
	served := o.Serves()
	if served {
		if l.path, err = l.trainedModel(ctx); err != nil {
			return err
		}
		m := &o.Rollout.Model
		m.Model, m.Trained, m.Answered = "", l.path, pos.Step > 0
	}
	if l.x, err = rollout.SetUp(ctx, o.Rollout, l.s); err != nil {
		return err
	}
	if !served {
		l.path = l.x.Source.Name
	}
	if err := o.Train.CheckLoRA(l.path); err != nil { // a model that the hub had
		return err
	}
	if pos.Step > 0 && pos.Model != l.path {
		return exit.Usagef("%s %s: the run began with %s, not with %s", setting.Name("Resume"), o.Resume, pos.Model, l.path)
	}
	l.tasks.data = l.x.Data
	if l.tasks, l.eval, err = openEvaluation(ctx, o, l.tasks, l.note); err != nil {
		return err
	}
	if o.Train.TrainedOn, err = models.ReadTrainedOn(l.path); err != nil {
		return err
	}
	o.Train.TrainedOn = models.TrainedOnDataset(o.Train.TrainedOn, l.x.Data)
	l.o.Train.TrainedOn = o.Train.TrainedOn
	models.WarnOfTestSplits(o.Train.TrainedOn, l.note)
	if l.demos, err = train.DemonstrationsOf(o.Train.Config.Demonstration); err != nil {
		return err
	}
	how := o.Train
	// The reference is the model as it was before the first step, not as it is.
	shared := how.Config.KLCoef > 0 && how.Ref == "" && train.NewAdapters(l.path, how)
	if how.Config.KLCoef > 0 && how.Ref == "" && !shared {
		how.Ref = l.path
	}
	if !served { // the sampler's keys and values, which take their memory as they come
		cache, err := policy.ParseCache(setting.Name("KVCache"), o.Rollout.Model.KVCache)
		if err != nil {
			return err
		}
		how.Reserved = cmp.Or(cache.Bytes, policy.DefaultCacheBytes)
	}
	m, err := train.OpenModels(ctx, l.path, how, false, l.note)
	if err != nil {
		return err
	}
	l.m = m // to be closed
	l.m.SharedRef = shared
	if !served {
		l.draw = &localSampler{o.Train.Backend, l.x.Model, l.m.Actor}
		return nil
	}
	s, err := newServers(ctx, l)
	if err == nil {
		l.draw = s
	}
	return err
}

// trainedModel is the path of the model that servers sample and this process trains.
func (l *run) trainedModel(ctx context.Context) (string, error) {
	path, err := models.Find(ctx, l.o.Train.Model, true, func(text string) { l.note("%s", text) })
	if err != nil {
		return "", setting.Errorf("%s: %w", setting.Name("Model"), err)
	}
	if _, err := os.Stat(path); err != nil {
		return "", train.ErrNoModel(path)
	}
	return filepath.Abs(path)
}

// openFolder makes the run's folder, or takes that of the run that goes on.
func (l *run) openFolder() error {
	o := l.o
	l.dir = o.Output
	if l.dir == "" {
		l.dir = filepath.Join("runs", "loop-"+time.Now().Format("20060102-150405"))
	}
	// Again: another loop may have begun in the folder meanwhile.
	if err := rundir.CheckOutput(l.dir, "loop", o.Resume != ""); err != nil {
		return err
	}
	if err := rundir.CheckRoom(l.dir, rundir.FreeBytes(l.dir), l.m.Parameters(), o.Train.Save, l.note); err != nil {
		return err
	}
	if err := rundir.MakeFolder(filesys.OS, filepath.Join(l.dir, RolloutsFolder)); err != nil {
		return err
	}
	if o.Resume == "" { // before config.yaml, which makes it a run that can be gone on with
		if err := rundir.WriteInputs(filesys.OS, l.dir, l.reads()); err != nil {
			return err
		}
	}
	return nil
}

// restore takes up a run where its newest checkpoint left it.
func (l *run) restore(ctx context.Context, pos train.Position) error {
	o := l.o
	var state state
	if err := json.Unmarshal(pos.Loop, &state); err != nil || train.FixedPart(pos.Config) != train.FixedPart(o.Train.Config) ||
		pos.LoRA != train.AdapterText(o.Train) {
		return exit.Usagef("%s %s: the settings are not those that the run began with", setting.Name("Resume"), o.Resume)
	}
	if state.Holdout != o.Train.Held.Part {
		return exit.Usagef(
			"%s %s: %s is not the one that the run began with, so tasks that it trained on would be held out; leave it as it was",
			setting.Name("Resume"), o.Resume, setting.Name("Held.Part"))
	}
	if _, err := l.m.LoadState(pos.Folder); err != nil {
		return err
	}
	l.done, l.state = pos.Step, state
	if err := l.draw.adopt(ctx, int64(l.done)); err != nil {
		return err
	}
	l.note("going on after step %d of the run in %s", l.done, l.dir)
	return nil
}

// reads are the files that a loop takes tasks, demonstrations and rules from, by the flag
// that names them.
func (l *run) reads() map[string][]string {
	var data []string
	opened := []*datasets.Dataset{l.x.Data}
	if l.eval != nil {
		opened = append(opened, l.eval.data)
	}
	for _, d := range opened {
		if slices.Contains(data, d.Source) {
			continue
		}
		if st, err := os.Stat(d.Source); err == nil && st.Mode().IsRegular() {
			data = append(data, d.Source)
		}
	}
	c := l.o.Train.Config
	return map[string][]string{"dataset": data, "demonstration": train.DemonstrationFile(c.Demonstration),
		"loss-scale": lossscale.Files(c.LossScale), "chat-template": models.TemplateFile(l.o.Train.Open.ChatTemplate)}
}

func (l *run) close() {
	if l.draw != nil {
		l.draw.close()
	}
	if l.x != nil {
		l.x.Close()
	}
	if l.m != nil {
		l.m.Close()
	}
	if l.log != nil {
		_ = l.log.Close()
	}
}
