package loop

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"agentcli/app/console"
	"agentcli/app/rollout"
	"agentcli/app/train"
	"agentcli/internal/exit"
	"agentcli/internal/filesys"
	"agentcli/internal/safego"
	"agentcli/internal/setting"
	"agentcli/internal/text"
	"agentcli/journal"
	"agentcli/parquet"
	"agentcli/trainer"
	"agentcli/trainer/algo"
	"agentcli/trainer/rows"
	"agentcli/traj"
)

// stepRollout is what one step sampled.
type stepRollout struct {
	path    string
	seconds float64
	err     error
}

// rollout plays one step's tasks, or takes what an interrupted run has of them.
func (l *run) rollout(ctx context.Context, step int, version int64) (r stepRollout) {
	r.path = filepath.Join(l.dir, RolloutsFolder, fmt.Sprintf("%06d.parquet", step))
	start := time.Now()
	defer func() { r.seconds = time.Since(start).Seconds() }()
	if f, err := parquet.Open(r.path); err == nil { // written whole or not at all
		f.Close()
		return r
	}
	name := fmt.Sprintf("%s.%d", l.x.Identity()[:8], step)
	j, path, err := l.journal(step, fmt.Sprintf("%s %d", l.x.Identity(), version))
	if err != nil {
		r.err = err
		return r
	}
	defer j.Close()
	meta, err := l.x.Metadata()
	if err != nil {
		r.err = err
		return r
	}
	w, err := parquet.CreateFile(r.path, meta, l.x.FileConfig())
	if err != nil {
		r.err = err
		return r
	}
	// in order: sums of floats depend on it
	sum, err := l.x.PlayPart(ctx, rollout.Part{Name: name, Tasks: l.tasks.ofStep(ctx, step, l.o.Tasks),
		Total: l.o.Tasks, Samples: l.o.Rollout.Samples, Seed: l.o.Rollout.Seed + int64(step), Journal: j, Ordered: true}, w.Write)
	if err == nil && sum.Interrupted {
		err = trainer.ErrInterrupted
	}
	if err != nil {
		w.Abort() // the journal has it
		r.err = err
		return r
	}
	if r.err = w.Close(); r.err == nil {
		r.err = os.Remove(path)
	}
	return r
}

// journal of one step's rollout; that of an interrupted one is gone on with.
func (l *run) journal(step int, id string) (*journal.Journal, string, error) {
	path := filepath.Join(l.dir, RolloutsFolder, fmt.Sprintf("%06d.journal", step))
	if _, err := os.Stat(path); err == nil {
		j, err := journal.Open(filesys.OS, path, journal.Header{Config: id}, l.x.Notice)
		if err == nil || !errors.Is(err, journal.ErrOtherRun) {
			return j, path, err
		}
		if err := os.Remove(path); err != nil { // by another policy: an --async run went back a step
			return nil, "", err
		}
	}
	j, err := journal.Create(filesys.OS, path, journal.Header{Config: id}, l.x.Notice)
	return j, path, err
}

// load reads what a step sampled. Where nothing of it can be trained on, the step is
// rolled out again when the run is resumed.
func (l *run) load(ctx context.Context, step int, path string) (*rows.Data, error) {
	data, err := trainer.LoadFor(ctx, []string{path}, l.o.Train.Config,
		rows.Sources{Demonstrations: l.demos, Observations: train.Observations(ctx, l.path, l.o.Train.Open.ChatTemplate, l.note),
			Vocabulary: train.Vocabulary(ctx, l.path, l.note), Images: train.Images(ctx, l.path, l.note)})
	if err == nil {
		err = trainer.DropUnfit(data, l.m.Actor.Window(), l.o.Train.Config)
	}
	switch {
	case errors.Is(err, rows.ErrNoRows):
		aside := strings.TrimSuffix(path, ".parquet") + ".unusable.parquet"
		if err := os.Rename(path, aside); err != nil {
			return nil, err
		}
		return nil, setting.Errorf("step %d: %w; the file is %s now: fix that and go on with agentcli loop %s %s, which rolls the step out again",
			step, err, filepath.Base(aside), setting.Name("Resume"), text.ShellWord(l.dir))
	case err != nil:
		return nil, err
	case data.Skipped.Rows > 0:
		l.note("warning: step %d: %d rows take no part: %s", step, data.Skipped.Rows, data.Skipped.String())
	}
	return data, nil
}

// train takes the updates of one step and gives its metrics.
func (l *run) train(ctx context.Context, step int, r stepRollout) (map[string]float64, error) {
	start := time.Now()
	data, err := l.load(ctx, step, r.path)
	if err != nil {
		return nil, err
	}
	if err := trainer.CheckParts(data, l.o.Train.Config); err != nil {
		return nil, exit.UsageError{Err: err}
	}
	if step == l.done+1 {
		train.NoteLossScale(data, l.note)
	}
	if note := trainer.Tempering(data, l.o.Train.Config); note != "" && step == l.done+1 {
		l.note("%s", note)
	}
	o := l.o.Train
	o.Config.LR, o.Config.CriticLR = l.state.rates(o.Config, step, l.o.Steps)
	o.Config.EntropyCoef = trainer.EntropyCoefAt(o.Config, step, l.o.Steps)
	o.Config.EntropySchedule = trainer.Constant
	o.Config.Schedule, o.Config.WarmupSteps, o.Config.SaveEvery, o.Config.KLCoef = trainer.Constant, 0, 0, l.state.KLCoef
	o.Config.Seed += int64(step)
	s := l.m.Trainer(o, data)
	s.Release, s.Updates, s.Unvalued, s.Version = nil, l.state.Updates, l.state.Unvalued, int64(step-1)
	if s.Baseline = maps.Clone(l.state.Roles); s.Baseline == nil {
		s.Baseline = map[string]float64{}
	}
	show := train.NewMeter(l.s)
	s.OnProgress = show.Progress
	s.OnSkip = func(err error) { show.Close(); l.note("warning: %v: this update is left out", err) }
	var all []trainer.Metrics
	s.OnStep = func(m trainer.Metrics) error { all = append(all, m); return nil }
	// The first ^C ends the step; what it changed is not kept.
	own, cancel := context.WithCancel(ctx)
	defer cancel()
	stop, over := console.StopRequested(ctx), make(chan struct{})
	go func() {
		defer safego.Catch(nil)
		select {
		case <-stop:
			cancel()
		case <-over:
		}
	}()
	err = s.Run(own)
	close(over)
	show.Close()
	values := trainer.Join(all)
	switch {
	case errors.Is(err, trainer.ErrNothingToLearn):
		values["actor/skipped_step"] = 1
	case err != nil:
		return nil, err
	}
	l.state.Updates, l.state.Unvalued, l.state.Roles = s.Updates, s.Unvalued, s.Baseline
	if o.Config.HasCritic() && s.Updates <= o.Config.CriticWarmup {
		l.state.CriticOnly++
	}
	if l.o.KLTarget > 0 && len(all) > 0 {
		k := algo.KLController{Beta: l.state.KLCoef, Target: l.o.KLTarget, Horizon: l.o.KLHorizon}
		k.Update(s.RefKL, s.RefKLRows)
		l.state.KLCoef = k.Beta
	}
	p := trainer.Scores(data)
	values["critic/score/mean"], values["critic/score/stderr"] = p.Reward, p.StdErr
	if len(all) == 0 { // else of the rewards as they were learned from
		values["frac_reward_zero_std"] = float64(p.Flat) / float64(p.Groups)
	}
	if l.saved > 0 {
		values["timing_s/save_checkpoint"], l.saved = l.saved.Seconds(), 0
	}
	train.AddPeakMemory(values, l.o.Train)
	train.AddUtilisation(values, l.o.Train, l.m)
	values["timing_s/rollout"], values["timing_s/train"] = r.seconds, time.Since(start).Seconds()
	values["training/updates"] = float64(l.state.Updates)
	return values, nil
}

// evaluate measures the policy, and keeps the model that is the best on held-out tasks.
func (l *run) evaluate(ctx context.Context, step int, values map[string]float64) error {
	reward, n := map[string]float64{}, map[string]float64{}
	sum, err := l.x.PlayPart(ctx, rollout.Part{Name: fmt.Sprintf("%s.test.%d", l.x.Identity()[:8], step),
		Tasks: l.eval.tasks(ctx), Total: l.o.EvalTasks, Samples: l.o.EvalTries, Seed: l.o.Rollout.Seed, Distinct: true},
		func(t *traj.Trajectory) error {
			if t.Reward != nil {
				reward[t.Task.ID] += *t.Reward
				n[t.Task.ID]++
			}
			return nil
		})
	if err == nil && sum.Interrupted {
		err = trainer.ErrInterrupted
	}
	if err != nil {
		return err
	}
	if len(n) == 0 {
		return errors.New("no attempt of the evaluation has a reward: " + sum.FirstError)
	}
	scores := byTask{}
	for k := range n {
		scores[k] = reward[k] / n[k]
	}
	mean, stderr := scores.mean()
	if step == 0 {
		l.state.Before = scores
	}
	l.state.Last = scores
	values[l.eval.metric("reward")], values[l.eval.metric("stderr")] = mean, stderr
	if !l.eval.held {
		return nil
	}
	if step > 0 && (l.state.BestStep == 0 || mean > l.state.Best) {
		l.state.Best, l.state.BestErr, l.state.BestStep = mean, stderr, step
		return l.m.Save(l.outputOf(filepath.Join(l.dir, train.BestFolder)))
	}
	return nil
}
