package train

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"agentcli/app/console"
	"agentcli/app/models"
	"agentcli/app/report"
	"agentcli/eval"
	"agentcli/internal/exit"
	"agentcli/internal/setting"
	"agentcli/model/tokenizer"
	"agentcli/policy"
	"agentcli/trainer"
	"agentcli/trainer/rows"
)

// ErrNoModel is the error of a model folder that is not there.
func ErrNoModel(name string) error {
	return exit.Usagef("%s %s: there is no such model folder or .gguf", setting.Name("Model"), name)
}

// namedModel is the model to start from, as the user or the file names it.
func namedModel(d *rows.Data, o Options) string {
	if o.Model == "" && len(d.Policies) > 0 {
		return d.Policies[0].Name
	}
	return o.Model
}

// startingModel is --model, else the policy that the file names, else what
// set-up fetched.
func startingModel(ctx context.Context, d *rows.Data, o Options, notice func(string)) (string, error) {
	if o.Model != "" {
		path, err := models.Find(ctx, o.Model, true, notice)
		if err != nil {
			return "", setting.Errorf("%s: %w", setting.Name("Model"), err)
		}
		if _, err := os.Stat(path); err != nil {
			return "", ErrNoModel(path)
		}
		return path, nil
	}
	name := namedModel(d, o)
	if name == "" {
		return "", setting.Errorf("%s does not say which model sampled it; name the model to start from with %s", d.Files[0],
			setting.Name("Model"))
	}
	// Nobody asked for a download: the name is a server's, and may mean anything.
	path, ok := models.FindCached(ctx, name)
	if !ok {
		return "", setting.Errorf("%s was sampled by %q, which is not a model folder or .gguf here; "+
			"name the model's own folder, or org/name on the hub, with %s", d.Files[0], name, setting.Name("Model"))
	}
	notice("no model is named: starting from the one that sampled the file, " + path)
	return path, nil
}

// Models are the models of one training run.
type Models struct {
	Actor   models.Trainable
	critic  models.Trainable   // nil: none, or a head on the actor
	ref     models.FrozenModel // nil: none, or the actor as it is before its first update
	teacher models.FrozenModel
	// The reference is what lies under the actor's adapters.
	SharedRef bool
	tok       *tokenizer.Tokenizer // where the teacher is shown demonstrations
	reward    models.FrozenModel   // a model that scores the trajectories; nil: none
	micro     int                  // tokens that are computed at once, where memory decides it; 0: as the settings say
}

// Within the output folder, beside the model's own files.
const (
	criticFolder = "critic"
	emaFolder    = "ema"
)

// OpenModels opens what the settings ask for. A resumed run has in its checkpoint
// what the frozen models said.
func OpenModels(ctx context.Context, path string, o Options, resumed bool, note func(string, ...any)) (m *Models, err error) {
	m = &Models{}
	defer func() {
		if err != nil {
			m.Close()
		}
	}()
	open := func(which setting.Name, name, head string) (models.Trainable, error) {
		found, err := models.Find(ctx, name, true, func(text string) { note("%s", text) })
		if err != nil {
			return nil, setting.Errorf("%s: %w", which, err)
		}
		how := o.Open
		how.Head = head
		if head == "" {
			how.Frozen, how.LoRA = true, policy.LoRA{}
		}
		x, err := o.Backend.OpenTrainable(found, how)
		if err != nil {
			return nil, setting.Errorf("%s: %w", which, err)
		}
		if x.TokenizerHash() != m.Actor.TokenizerHash() {
			why := fmt.Sprintf("%s %s has another tokenizer than %s: the same ids mean other words to it", which, name, path)
			if err := exit.Override(o.Force, note, models.ErrOtherTokens, why, fmt.Sprintf(" (%s takes it all the same)",
				setting.Name("Force"))); err != nil {
				x.Close()
				return nil, err
			}
		}
		return x, nil
	}
	var free int64
	if o.FitMicroTokens {
		if free, err = freeMemory(o); err != nil {
			return nil, err
		}
	}
	how := o.Open
	if o.Config.SharedCritic {
		how.Head = string(policy.HeadBoth)
	}
	if o.Config.HasScoreHead() {
		how.Head = string(policy.HeadScore)
	}
	if m.Actor, err = o.Backend.OpenTrainable(path, how); err != nil {
		return m, err
	}
	if text := models.DeviceNote(how.Device); text != "" {
		note("%s", text)
	}
	if o.Config.Demonstration != "" {
		if m.tok, err = models.OpenTokenizer(path); err != nil {
			return m, err
		}
	}
	if o.Config.EMA > 0 {
		if err = m.Actor.KeepAverage(); err != nil {
			return m, err
		}
	}
	if o.Config.HasCritic() && !o.Config.SharedCritic {
		start := o.Critic
		if start == "" {
			start = path
		}
		if m.critic, err = open(setting.Name("Critic"), start, string(policy.HeadScore)); err != nil {
			return m, err
		}
	}
	// With --old-logprobs recompute the actor is asked before its first update anyway.
	m.SharedRef = o.Config.KLCoef > 0 && o.Ref == "" && NewAdapters(path, o) && o.Config.OldLogprobs == trainer.OldFile
	if !resumed {
		if err = m.openFrozen(ctx, path, o, open, note); err != nil {
			return m, err
		}
	}
	if o.FitMicroTokens {
		err = m.fitMicroTokens(path, o, free, note)
	}
	return m, err
}

// openFrozen opens the models that are asked before the first update only. The reference
// and the teacher may be models of a server.
func (m *Models) openFrozen(ctx context.Context, path string, o Options,
	open func(which setting.Name, name, head string) (models.Trainable, error), note func(string, ...any)) error {
	frozen := func(which setting.Name, name string) (models.FrozenModel, error) {
		if !models.IsServer(name) {
			x, err := open(which, name, "")
			if err != nil {
				return nil, err // no interface that holds a nil
			}
			return x, nil
		}
		tok, err := models.OpenTokenizer(path)
		if err == nil {
			var x *models.Remote
			if x, err = models.OpenRemote(ctx, name, tok, o.Force, note); err == nil {
				return x, nil
			}
		}
		return nil, setting.Errorf("%s: %w", which, err)
	}
	var err error
	if o.Config.ReadsReference() && o.Ref != "" {
		if m.ref, err = frozen(setting.Name("Ref"), o.Ref); err != nil {
			return err
		}
	}
	if o.Teacher != "" {
		if m.teacher, err = frozen(setting.Name("Teacher"), o.Teacher); err != nil {
			return err
		}
	}
	if o.RewardModel == "" {
		return nil
	}
	if err := scores(ctx, o.RewardModel); err != nil {
		return err
	}
	x, err := open(setting.Name("RewardModel"), o.RewardModel, string(policy.HeadScore))
	if err != nil {
		return err
	}
	m.reward = x
	return nil
}

// config are the settings with what the models decided.
func (m *Models) config(o Options) trainer.Config {
	c := o.Config
	if m.micro > 0 {
		c.MicroTokens = m.micro
	}
	return c
}

// Close frees all of them.
func (m *Models) Close() {
	m.release()
	for _, x := range []models.Trainable{m.Actor, m.critic} {
		if x != nil {
			x.Close()
		}
	}
}

// release frees the models that are asked before the first update only.
func (m *Models) release() {
	for _, x := range []*models.FrozenModel{&m.ref, &m.teacher, &m.reward} {
		if *x != nil {
			(*x).Close()
			*x = nil
		}
	}
}

// Parameters that have masters and moments.
func (m *Models) Parameters() int64 {
	n := m.Actor.Parameters()
	if m.critic != nil {
		n += m.critic.Parameters()
	}
	return n
}

// Trainer is a run of these models.
func (m *Models) Trainer(o Options, data *rows.Data) *trainer.Trainer {
	s := trainer.New(m.config(o), trainer.Models{Actor: m.Actor, Release: m.release}, data)
	if m.critic != nil {
		s.Critic = m.critic
	}
	switch {
	case m.ref != nil:
		s.Ref = m.ref
	case m.SharedRef:
		s.Ref = m.Actor.Base()
	case o.Config.KLCoef > 0:
		s.Ref = m.Actor // as it is before its first update
	}
	switch {
	case m.teacher != nil:
		s.Teacher = m.teacher
	case o.Config.Demonstration != "":
		s.Teacher = m.Actor // as it is before its first update
	}
	if o.Config.Demonstration != "" {
		s.Demonstrator = demonstrationRenderer{m.tok}
	}
	if m.reward != nil {
		s.Reward = m.reward
	}
	return s
}

// LoadState reads the checkpoint in a folder.
func (m *Models) LoadState(at string) (*trainer.Frozen, error) {
	if err := m.Actor.LoadState(filepath.Join(at, stateName)); err != nil {
		return nil, err
	}
	if m.critic != nil {
		if err := m.critic.LoadState(filepath.Join(at, criticStateName)); err != nil {
			return nil, err
		}
	}
	return trainer.ReadFrozen(filepath.Join(at, frozenName))
}

// Save writes the policy, and beside it what else was trained. The policy is
// last: with its config.json the folder is a model.
func (m *Models) Save(o Options) error {
	for _, dir := range []string{o.Output, filepath.Join(o.Output, emaFolder)} {
		if dir == o.Output || o.Config.EMA > 0 {
			if err := models.WriteTrainedOn(dir, o.TrainedOn); err != nil {
				return err
			}
		}
	}
	if m.critic != nil {
		if err := m.critic.Save(filepath.Join(o.Output, criticFolder), o.Save); err != nil {
			return err
		}
	}
	if o.Config.EMA > 0 {
		if err := m.Actor.SaveAverage(filepath.Join(o.Output, emaFolder), o.Save); err != nil {
			return err
		}
	}
	return m.Actor.Save(o.Output, o.Save)
}

// dryRun says what would be trained and what it takes.
func dryRun(data *rows.Data, m *Models, path string, o Options, s console.Streams) error {
	p, err := trainer.MakePlan(data, m.config(o))
	if err != nil {
		return err
	}
	w := s.Out
	showPlan := func() {
		if p.Unscored > 0 {
			fmt.Fprintf(w, "trajectories     %d in %d groups; %d without a reward, which %s %s does not ask for\n",
				p.Episodes, p.Groups, p.Unscored, setting.Name("Loss"), o.Config.Loss)
			return
		}
		fmt.Fprintf(w, "trajectories     %d in %d groups; in %d of them all scored the same\n", p.Episodes, p.Groups, p.Flat)
		if p.Dropped > 0 {
			fmt.Fprintf(w, "left out         %d trajectories: all attempts of their group scored the same (%s)\n",
				p.Dropped, setting.Name("DropZeroStd"))
		}
		fmt.Fprintf(w, "reward           %.3f%s\n", p.Reward, report.Certainty(&p.Reward, &p.StdErr, eval.Bound(p.Reward, p.Groups), 3))
	}
	if p.Nothing != nil { // the run would end so, too
		showPlan()
		return p.Nothing
	}
	start := time.Now()
	tokens, err := p.Probe(m.Actor)
	if err != nil {
		return err
	}
	perToken := time.Since(start).Seconds() / float64(max(tokens, 1))
	// A backward pass takes about twice a forward pass; what is recomputed and
	// scored beforehand one more.
	passes := float64(3 * o.Config.Epochs)
	if p.AsksOld {
		passes++
	}
	if m.ref != nil || o.Config.IsSupervised() && o.Config.ReadsReference() {
		passes++
	}
	factor := 1.0
	if m.critic != nil {
		factor = 2
	}
	memory, err := m.need(path, o)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "model            %s, %.0f M parameters trained, %s\n", path, float64(m.Parameters())/1e6, m.Actor.DType())
	if o.Config.IsSupervised() {
		showRows(w, p, data, o.Config)
	} else {
		showPlan()
	}
	fmt.Fprintf(w, "tokens           %d, %d of them trained on; %d once shared prompts are computed once\n", p.Tokens, p.Actions, p.Packed)
	fmt.Fprintf(w, "optimiser steps  %d of %s\n", p.Steps, perStep(o.Config.Minibatch))
	fmt.Fprintf(w, "memory           %s\n", memory.text(p.AtOnce))
	fmt.Fprintf(w, "time             about %s (one forward pass over %d tokens took %.1f s)\n",
		(time.Duration(perToken*passes*factor*float64(p.Packed)*1e9) * time.Nanosecond).Round(time.Second), tokens, perToken*float64(tokens))
	return nil
}

func perStep(minibatch int) string {
	if minibatch == 0 {
		return "all trajectories"
	}
	return fmt.Sprintf("%d trajectories or more, in whole groups", minibatch)
}
