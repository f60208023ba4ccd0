// Package loop rolls out and trains in turn: each step plays tasks with the policy as it
// is, keeps them, trains on them, and every few steps measures the policy on tasks that it
// is not trained on. What it does is what packages rollout and train do.
package loop

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"agentcli/app/console"
	"agentcli/app/rollout"
	"agentcli/app/rundir"
	"agentcli/app/train"
	"agentcli/internal/exit"
	"agentcli/internal/filesys"
	"agentcli/internal/safego"
	"agentcli/internal/setting"
	"agentcli/internal/text"
	"agentcli/trainer"
	"agentcli/trainer/metrics"
	"agentcli/trainer/rows"
	"agentcli/traj"
)

// Run rolls out and trains in turn, until o.Steps, and writes the name of the run's folder
// to stdout: its model is there, the best one in best/.
func Run(ctx context.Context, o Options, s console.Streams) error {
	if err := o.Train.Backend.Available(); err != nil {
		return fmt.Errorf("cannot train: %w", err)
	}
	l := newRun(o, s)
	defer l.close()
	err := l.open(ctx)
	opened := err == nil
	if opened {
		err = l.steps(ctx)
	}
	if dir := cmp.Or(l.dir, o.Resume); errors.Is(err, traj.ErrGone) && dir != "" {
		return exit.PartialError{Message: fmt.Sprintf("%v; what was sampled is kept; go on with: agentcli loop %s ", err,
			setting.Name("Resume")) + text.ShellWord(dir), Err: err}
	}
	if !opened {
		return err
	}
	if errors.Is(err, trainer.ErrInterrupted) || errors.Is(err, context.Canceled) {
		return exit.InterruptedError{Message: fmt.Sprintf("interrupted; what was sampled is kept; go on with: agentcli loop %s ",
			setting.Name("Resume")) + text.ShellWord(l.dir)}
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(s.Out, l.dir)
	return err
}

// run is a run of loop: one model that samples, one that is trained.
type run struct {
	o    Options
	s    console.Streams
	x    *rollout.Run // that plays
	draw sampler      // its model
	m    *train.Models
	log  *metrics.Log
	show *reporter
	dir  string
	path string // of the model that it starts from

	done  int // steps before this process
	state state
	tasks taskSource          // what is trained on
	eval  *evaluation         // what the policy is measured on; nil: it is not
	demos rows.Demonstrations // that a teacher is shown; nil: none
	saved time.Duration       // what the checkpoint after the step before took

	exchanged time.Duration // what it took to give the sampler weights, since the line of the step before
}

func newRun(o Options, s console.Streams) *run {
	o.Rollout.Command = "loop"
	s = s.Shared()
	l := &run{o: o, s: s, state: state{KLCoef: o.Train.Config.KLCoef, Holdout: o.Train.Held.Part}}
	l.show = &reporter{l: l}
	return l
}

func (l *run) note(format string, a ...any) { l.s.Say(fmt.Sprintf(format, a...)) }

// steps takes the steps that are left: each plays tasks with the policy, trains on what
// came of them, and every few steps measures the policy and writes a checkpoint.
//
//	sync:   rollout 1 → train 1 → rollout 2 → train 2 …
//	async:  rollout 1 → train 1 and rollout 2 → train 2 and rollout 3 …
func (l *run) steps(ctx context.Context) error {
	o := l.o
	if l.done == 0 && o.EvalEvery > 0 { // a curve begins with the model as it was
		values := map[string]float64{}
		if err := l.evaluate(ctx, 0, values); err != nil {
			return err
		}
		if err := l.log.Write(0, values, time.Now()); err != nil {
			return err
		}
		l.show.before(values)
	}
	rolled := make(chan stepRollout, 1)
	start := func(step int) { // by the weights as they are now
		if step > o.Steps {
			return
		}
		version := int64(step - 1 - o.Async)
		if o.Async == 0 || step == l.done+1 {
			version = int64(step - 1)
		}
		go func() {
			var r stepRollout
			defer func() { rolled <- r }()
			defer safego.Into(&r.err)
			r = l.rollout(ctx, step, version)
		}()
	}
	if l.done < o.Steps {
		start(l.done + 1)
	}
	for step := l.done + 1; step <= o.Steps; step++ {
		r := <-rolled
		if r.err != nil {
			return r.err
		}
		if o.Async > 0 && step < o.Steps {
			// The next tokens come from what this step began with.
			if err := l.adopt(ctx, int64(step-1)); err != nil {
				return err
			}
			start(step + 1)
		}
		values, err := l.train(ctx, step, r)
		if err != nil {
			if o.Async > 0 && step < o.Steps {
				<-rolled // its journal must be closed
			}
			return err
		}
		if o.Async == 0 {
			if err := l.adopt(ctx, int64(step)); err != nil {
				return err
			}
		}
		if o.EvalEvery > 0 && (step%o.EvalEvery == 0 || step == o.Steps) {
			if o.Async > 0 && step < o.Steps {
				// The sampler is at work with older weights: what it has sampled waits.
				next := <-rolled
				rolled <- next
				if next.err != nil {
					return next.err
				}
			}
			if o.Async > 0 {
				if err := l.adopt(ctx, int64(step)); err != nil {
					return err
				}
			}
			if err := l.evaluate(ctx, step, values); err != nil {
				return err
			}
		}
		if err := l.record(step, values); err != nil {
			return err
		}
		if step%o.Train.Config.SaveEvery == 0 || step == o.Steps {
			if o.Async > 0 && step < o.Steps {
				// What the next step learns from was sampled by weights that no checkpoint
				// has: a resumed run must find it whole. The next step waits for it anyway.
				next := <-rolled
				rolled <- next
				if next.err != nil {
					return next.err
				}
			}
			if err := l.save(step); err != nil {
				return err
			}
		}
		if o.Async == 0 {
			start(step + 1)
		}
	}
	if err := l.m.Save(l.outputOf(l.dir)); err != nil {
		return fmt.Errorf("%s: %w", l.dir, err)
	}
	if err := filesys.WriteFile(filesys.OS, filepath.Join(l.dir, rundir.CurveFile), drawCurves(l.dir), rundir.FileMode); err != nil {
		return err
	}
	l.show.summary(l.dir, l.note)
	return train.DropCheckpoints(l.dir)
}

// record writes and shows what a step came to.
func (l *run) record(step int, values map[string]float64) error {
	values["timing_s/update_weights"], l.exchanged = l.exchanged.Seconds(), 0
	if err := l.log.Write(step, values, time.Now()); err != nil {
		return err
	}
	l.show.step(step, values)
	return nil
}

func (l *run) outputOf(dir string) train.Options {
	o := l.o.Train
	o.Output = dir
	return o
}

// adopt gives the sampler the weights as they are now.
func (l *run) adopt(ctx context.Context, version int64) error {
	start := time.Now()
	defer func() { l.exchanged += time.Since(start) }()
	return l.draw.adopt(ctx, version)
}

// save writes the loop's checkpoint.
func (l *run) save(step int) error {
	at := train.Position{Step: step, Model: l.path, DType: l.m.Actor.DType(), Config: train.FixedPart(l.o.Train.Config),
		LoRA: train.AdapterText(l.o.Train)}
	var err error
	if at.Loop, err = json.Marshal(l.state); err != nil {
		return err
	}
	start := time.Now()
	defer func() { l.saved = time.Since(start) }()
	return train.SaveCheckpoint(l.m, &trainer.Frozen{}, l.dir, at, l.o.Train.Keep)
}
