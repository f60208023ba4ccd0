package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"agentcli/trainer"
	"agentcli/trainer/algo"
	"agentcli/trainer/metrics"
	"agentcli/weights"

	"github.com/goccy/go-yaml"
	"github.com/schollz/progressbar/v3"
	"github.com/urfave/cli/v2"
)

// trainable is the model that train works on.
type trainable interface {
	trainer.Actor
	trainer.Saver
	trainer.Stater
	TokenizerHash() string
	VocabSize() int
	DType() string
	Parameters() int64
	Close()
}

// trainableOptions is how a model is opened for training.
type trainableOptions struct {
	DType, Device string
	Threads       int
}

// openTrainable is nil in a binary without libtorch; local.go sets it.
var openTrainable func(path string, o trainableOptions) (trainable, error)

// trainOptions are the settings of one training run.
type trainOptions struct {
	Files    []string
	Model    string
	Ref      string
	Open     trainableOptions
	Config   trainer.Config
	Output   string
	Resume   string
	Save     weights.DType
	Force    bool
	Settings map[string]any
}

func trainCommand() *cli.Command {
	d := trainer.DefaultConfig()
	return &cli.Command{
		Name:      "train",
		Usage:     "make a better model from trajectory files (GRPO)",
		ArgsUsage: "FILE...",
		Description: "Reads trajectories in the schema of docs/format.md, whoever wrote them, compares the\n" +
			"attempts of each group, and updates the model. Only tokens that the policy sampled are\n" +
			"trained on. The output folder opens in transformers and vLLM and is taken by --model.",
		Flags: []cli.Flag{
			configFlag(),
			&cli.StringFlag{Name: "model", Aliases: []string{"m"}, Category: "model", Usage: "model folder, .gguf or org/name on the hub to start from (default: the policy that the file names)"},
			&cli.StringFlag{Name: "ref", Category: "model", Usage: "reference model of --kl-coef, named as --model is (default: the model before training)"},
			&cli.StringFlag{Name: "dtype", Category: "model", Usage: "of the computation: float32 or bfloat16 (default: the faster one); the weights that are updated are float32"},
			&cli.StringFlag{Name: "device", Category: "model", Usage: "cpu, cuda or cuda:N (default: cpu)"},
			&cli.IntFlag{Name: "threads", Category: "model", Usage: "of the computation (default: one a core)"},
			&cli.StringFlag{Name: "algo", Category: "algorithm", Value: "grpo", Usage: "grpo: group relative policy optimisation"},
			&cli.StringFlag{Name: "advantage", Category: "algorithm", Value: d.Advantage, Usage: "how scores of a group become advantages: " + strings.Join(algo.EstimatorNames(), ", ")},
			&cli.StringFlag{Name: "loss", Category: "algorithm", Value: "ppo", Usage: "ppo: the clipped ratio"},
			&cli.StringFlag{Name: "aggregation", Category: "algorithm", Value: string(d.Aggregation), Usage: "how token losses become one: token-mean, seq-mean-token-sum, seq-mean-token-mean or seq-mean-token-sum-norm"},
			&cli.StringFlag{Name: "old-logprobs", Category: "algorithm", Value: d.OldLogprobs, Usage: "recompute: by the model before its first update; file: as recorded at sampling; the difference of both is reported"},
			&cli.Float64Flag{Name: "clip-low", Category: "algorithm", Value: d.Clip.Low, Usage: "ε below: the ratio of new to old probability counts down to 1 − ε"},
			&cli.Float64Flag{Name: "clip-high", Category: "algorithm", Value: d.Clip.High, Usage: "ε above: the ratio counts up to 1 + ε"},
			&cli.Float64Flag{Name: "kl-coef", Category: "algorithm", Value: d.KLCoef, Usage: "weight of the KL to the reference in the loss"},
			&cli.BoolFlag{Name: "drop-zero-std", Category: "algorithm", Usage: "leave groups whose attempts all scored the same out of the loss's denominators too"},
			&cli.Float64Flag{Name: "lr", Category: "optimiser", Value: d.LR, Usage: "learning rate of AdamW, after the warm-up"},
			&cli.StringFlag{Name: "schedule", Category: "optimiser", Value: d.Schedule, Usage: "of the learning rate after the warm-up: constant, or down to 0 linear or cosine"},
			&cli.IntFlag{Name: "warmup-steps", Category: "optimiser", Value: d.WarmupSteps, Usage: "optimiser steps in which the learning rate rises"},
			&cli.StringFlag{Name: "betas", Category: "optimiser", Value: fmt.Sprintf("%g,%g", d.Beta1, d.Beta2), Usage: "AdamW's decay of the mean and of the square of the gradients"},
			&cli.Float64Flag{Name: "adam-eps", Category: "optimiser", Value: d.AdamEps, Usage: "added to AdamW's divisor"},
			&cli.Float64Flag{Name: "weight-decay", Category: "optimiser", Value: d.WeightDecay, Usage: "AdamW's, of the weight matrices; norms, biases and embeddings do not decay"},
			&cli.Float64Flag{Name: "max-grad-norm", Category: "optimiser", Value: d.MaxGradNorm, Usage: "a longer gradient is shortened to this norm; 0: no clipping"},
			&cli.IntFlag{Name: "epochs", Category: "optimiser", Value: d.Epochs, Usage: "how often each trajectory is trained on"},
			&cli.IntFlag{Name: "minibatch", Category: "optimiser", Value: d.Minibatch, Usage: "trajectories an optimiser step, in whole groups; 0: all"},
			&cli.IntFlag{Name: "micro-tokens", Category: "optimiser", Value: d.MicroTokens, Usage: "tokens computed at once; lower it where memory is short"},
			&cli.Int64Flag{Name: "seed", Category: "optimiser", Usage: "of the order of the groups"},
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Category: "run", Usage: "model `DIR` to write, new or empty (default: runs/train-TIME)"},
			&cli.StringFlag{Name: "resume", Category: "run", Usage: "go on with the interrupted run in `DIR`, with its own files and settings"},
			&cli.IntFlag{Name: "save-every", Category: "run", Usage: "optimiser steps between checkpoints (default: when interrupted only)"},
			&cli.StringFlag{Name: "save-dtype", Category: "run", Value: "f32", Usage: "of the written weights: f32 or bf16"},
			logFlag(),
			&cli.BoolFlag{Name: "force", Category: "run", Usage: "train though the file was sampled with another tokenizer, or not from the model's own distribution"},
		},
		Action: func(c *cli.Context) error {
			o, err := trainOptionsOf(c)
			if err != nil {
				return err
			}
			return runTrain(c.Context, o, streamsOf(c))
		},
	}
}

// mayChange are the flags that a resumed run may be given anew: how fast, how
// large, and how the result is stored. The others decide what is computed.
var mayChange = []string{"log-format", "resume", "output", "micro-tokens", "save-every", "threads", "device", "save-dtype", "force"}

const resumeHelp = "beside --resume only --micro-tokens, --save-every, --threads, --device, --save-dtype and --force may be given"

// sameAsBegun refuses a flag with another value than the run in dir began with.
func sameAsBegun(c *cli.Context, dir string) error {
	path := filepath.Join(dir, configName)
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	began := map[string]any{}
	if err := yaml.Unmarshal(data, &began); err != nil {
		return nil //nolint:nilerr // applyConfig says what is wrong with it
	}
	for _, f := range c.Command.Flags {
		name := f.Names()[0]
		if slices.Contains(mayChange, name) || !slices.ContainsFunc(f.Names(), c.IsSet) {
			continue
		}
		now, was := fmt.Sprint(c.Value(name)), "its default"
		if v, ok := began[name]; ok {
			was = fmt.Sprint(v)
		}
		if now != was && absolute(now) != was {
			return usagef("--%s %s: the run in %s began with %s; %s", name, now, dir, was, resumeHelp)
		}
	}
	return nil
}

// goOnFrom takes over what the checkpoint was written with.
func (o *trainOptions) goOnFrom(pos position) error {
	if pos.Step == 0 {
		return nil
	}
	if pos.Config != decisive(o.Config) {
		return usagef("--resume %s: the settings are not those that the run began with; %s", o.Resume, resumeHelp)
	}
	long := map[string]string{"f32": "float32", "fp32": "float32", "bf16": "bfloat16"}
	dtype := cmp.Or(long[o.Open.DType], o.Open.DType)
	if dtype == "" || dtype == "auto" {
		dtype = pos.DType // of the machine that it began on
	}
	if dtype != pos.DType {
		return usagef("--resume %s: --dtype is %s, but the run began with %s; %s", o.Resume, dtype, pos.DType, resumeHelp)
	}
	if absolute(o.Ref) != pos.Ref {
		return usagef("--resume %s: --ref is %q, but the run began with %q; %s", o.Resume, o.Ref, pos.Ref, resumeHelp)
	}
	o.Model, o.Open.DType = pos.Model, dtype
	return nil
}

func trainOptionsOf(c *cli.Context) (trainOptions, error) {
	files := c.Args().Slice()
	if dir := c.String("resume"); dir != "" {
		if c.String("config") != "" {
			return trainOptions{}, usagef("--resume takes the settings of the run in its folder; leave --config out")
		}
		if out := c.String("output"); out != "" && filepath.Clean(out) != filepath.Clean(dir) {
			return trainOptions{}, usagef("--resume goes on in its own folder; leave --output out")
		}
		path := filepath.Join(dir, configName)
		if _, err := os.Stat(path); err != nil {
			return trainOptions{}, usagef("--resume %s: there is no %s in that folder, so it holds no run", dir, configName)
		}
		if err := sameAsBegun(c, dir); err != nil {
			return trainOptions{}, err
		}
		if err := applyConfig(c, path); err != nil {
			return trainOptions{}, err
		}
	}
	if err := applyConfig(c, c.String("config")); err != nil {
		return trainOptions{}, err
	}
	if err := setLogFormat(c); err != nil {
		return trainOptions{}, err
	}
	o := trainOptions{Files: files, Model: c.String("model"), Ref: c.String("ref"), Output: c.String("output"), Resume: c.String("resume"),
		Open:  trainableOptions{DType: c.String("dtype"), Device: c.String("device"), Threads: c.Int("threads")},
		Force: c.Bool("force"), Settings: settings(c, "output", "resume", "o", "log-format")}
	if o.Resume != "" {
		var err error
		if o.Files, err = resumedFiles(o.Resume, files); err != nil {
			return o, err
		}
		o.Output = o.Resume
	}
	if len(o.Files) == 0 {
		return o, usagef("train needs a trajectory file: agentcli train traj.parquet (agentcli rollout > traj.parquet makes one)")
	}
	if a := c.String("algo"); a != "grpo" {
		return o, usagef("--algo %s: want grpo", a)
	}
	if l := c.String("loss"); l != "ppo" {
		return o, usagef("--loss %s: want ppo", l)
	}
	g := trainer.DefaultConfig()
	g.Advantage, g.Aggregation, g.OldLogprobs = c.String("advantage"), algo.Aggregation(c.String("aggregation")), c.String("old-logprobs")
	g.Clip.Low, g.Clip.High, g.KLCoef, g.DropZeroStd = c.Float64("clip-low"), c.Float64("clip-high"), c.Float64("kl-coef"), c.Bool("drop-zero-std")
	g.LR, g.Schedule, g.WarmupSteps = c.Float64("lr"), c.String("schedule"), c.Int("warmup-steps")
	g.AdamEps, g.WeightDecay, g.MaxGradNorm = c.Float64("adam-eps"), c.Float64("weight-decay"), c.Float64("max-grad-norm")
	g.Epochs, g.Minibatch, g.MicroTokens, g.Seed, g.SaveEvery = c.Int("epochs"), c.Int("minibatch"), c.Int("micro-tokens"), c.Int64("seed"), c.Int("save-every")
	if n, err := fmt.Sscanf(c.String("betas")+"\n", "%g,%g\n", &g.Beta1, &g.Beta2); n != 2 || err != nil {
		return o, usagef("--betas %q: want two numbers with a comma, for example .9,.95", c.String("betas"))
	}
	if err := g.Validate(); err != nil {
		return o, usageError{err}
	}
	if o.Ref != "" && g.KLCoef == 0 {
		return o, usagef("--ref %s has no effect without --kl-coef; give that too, for example --kl-coef 0.01", o.Ref)
	}
	o.Config = g
	switch c.String("save-dtype") {
	case "f32", "float32":
		o.Save = weights.F32
	case "bf16", "bfloat16":
		o.Save = weights.BF16
	default:
		return o, usagef("--save-dtype %s: want f32 or bf16", c.String("save-dtype"))
	}
	return o, nil
}

// Names within a training run's folder, beside the model's own files.
const (
	checkpointName = "checkpoint"        // a folder, while the run is not finished
	stateName      = "state.safetensors" // in it: masters and moments
	frozenName     = "logprobs.gob"      // in it: the log-probs from before the first update
	positionName   = "position.json"     // in it, written last: where the run stands
	trainFilesName = "train_files.json"
	curveName      = "curve.svg"
	fileMode       = 0o644
)

func resumedFiles(dir string, given []string) ([]string, error) {
	if len(given) > 0 {
		return nil, usagef("--resume takes the files of the run in its folder; leave %s out", given[0])
	}
	data, err := os.ReadFile(filepath.Join(dir, trainFilesName))
	if err != nil {
		return nil, usagef("--resume %s: %v", dir, err)
	}
	var files []string
	if err := json.Unmarshal(data, &files); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, trainFilesName), err)
	}
	return files, nil
}

func runTrain(ctx context.Context, o trainOptions, s streams) error {
	if openTrainable == nil {
		return errors.New("this binary was built without libtorch, so it cannot train; build the full one with `make build`")
	}
	note := func(format string, a ...any) { s.say(fmt.Sprintf(format, a...)) }

	// The files first: opening a model takes longer, and most mistakes are here.
	data, err := trainer.Load(ctx, o.Files)
	if err != nil {
		return err
	}
	if err := checkSampled(data, o); err != nil {
		return err
	}
	pos, err := readPosition(o.Resume)
	if err != nil {
		return err
	}
	if err := o.goOnFrom(pos); err != nil {
		return err
	}
	if err := checkRows(data, o, note); err != nil {
		return err
	}
	if err := checkOutput(data, o); err != nil {
		return err
	}
	say := func(m string) { note("%s", m) }
	path, err := startingModel(ctx, data, o, say)
	if err != nil {
		return err
	}
	actor, err := openTrainable(path, o.Open)
	if err != nil {
		return err
	}
	defer actor.Close()
	for i, r := range data.Runs {
		if want := r.Model.TokenizerHash; want != "" && want != actor.TokenizerHash() && !o.Force {
			return fmt.Errorf("%s was sampled with another tokenizer than that of %s; its ids mean other words there (name the right model with --model, or add --force)", data.Files[i], path)
		}
	}
	if err := data.CheckTokens(actor.VocabSize()); err != nil {
		return fmt.Errorf("%w; another model than %s sampled it: name the right one with --model", err, path)
	}
	if err := data.DropLong(actor.Window()); err != nil {
		return err
	}
	if data.Skipped.Rows > 0 {
		note("%d rows take no part: %s", data.Skipped.Rows, data.Skipped.String())
	}
	run := &trainer.GRPO{Actor: actor, Config: o.Config, Data: data, Done: pos.Step}
	if o.Config.KLCoef > 0 && pos.Step == 0 { // the checkpoint has the reference's log-probs
		ref := o.Ref
		if ref == "" {
			ref = path
		}
		if ref, err = findModel(ctx, ref, true, say); err != nil {
			return fmt.Errorf("--ref: %w", err)
		}
		frozen, err := openTrainable(ref, o.Open)
		if err != nil {
			return fmt.Errorf("--ref: %w", err)
		}
		defer frozen.Close()
		run.Ref = frozen
	}

	if o.Output == "" {
		o.Output = filepath.Join("runs", "train-"+time.Now().Format("20060102-150405"))
	}
	if err := checkRoom(o.Output, freeBytes(o.Output), actor.Parameters(), o.Save, note); err != nil {
		return err
	}
	if pos.Step == 0 {
		if err := prepareOutput(o, data.Files); err != nil {
			return err
		}
	}
	log, err := metrics.Open(o.Output, pos.Step, time.Now())
	if err != nil {
		return err
	}
	defer log.Close()
	if pos.Step > 0 {
		if err := actor.LoadState(filepath.Join(o.Output, checkpointName, stateName)); err != nil {
			return err
		}
		if run.Frozen, err = trainer.ReadFrozen(filepath.Join(o.Output, checkpointName, frozenName)); err != nil {
			return err
		}
		note("going on after step %d of the run in %s", pos.Step, o.Output)
	}
	note("training %s (%.0f M parameters, %s) on %d trajectories in %s → %s", path, float64(actor.Parameters())/1e6, actor.DType(),
		len(data.Episodes), strings.Join(data.Files, ", "), o.Output)

	show := newTrainMeter(s)
	run.OnProgress = show.progress
	history, warned := []trainer.Metrics{}, false
	run.OnStep = func(m trainer.Metrics) error {
		if d := m.Values["rollout_logprobs_diff_mean"]; !warned && d > farApart {
			warned = true
			show.close()
			note("warning: the file's log-probs are %.2g apart from those of %s on average: was the file sampled by another model, or with another tokenizer or chat template?", d, path)
		}
		history = append(history, m)
		show.step(m)
		return log.Write(m.Step, m.Values, time.Now())
	}
	start := absolute(path)
	run.Checkpoint = func(done int, f *trainer.Frozen) error {
		err := saveCheckpoint(actor, f, o.Output, position{done, start, actor.DType(), absolute(o.Ref), decisive(o.Config)})
		if !errors.Is(err, syscall.ENOSPC) {
			return err
		}
		// The steps so far are worth more than the checkpoint: the model is
		// smaller, and may still fit at the end.
		note("warning: the disk of %s is full: no checkpoint after step %d, the run goes on without; free some room, or it will be lost", o.Output, done)
		return os.RemoveAll(filepath.Join(o.Output, checkpointName+".new"))
	}
	started := time.Now()
	err = run.Run(ctx)
	show.close()
	if errors.Is(err, trainer.ErrInterrupted) {
		return interruptedError{"interrupted between two optimiser steps; go on with: agentcli train --resume " + o.Output}
	}
	if err != nil {
		return err
	}
	if err := actor.Save(o.Output, o.Save); err != nil {
		if errors.Is(err, syscall.ENOSPC) {
			err = fmt.Errorf("the disk is full, so the model could not be written; free some room and go on from the last checkpoint, if there is one, with: agentcli train --resume %s", o.Output)
		}
		return fmt.Errorf("%s: %w", o.Output, err)
	}
	if err := os.WriteFile(filepath.Join(o.Output, curveName), trainCurves(o.Output), fileMode); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(o.Output, checkpointName)); err != nil {
		return err
	}
	summarise(note, history, time.Since(started))
	// The one datum of this command: where the model is.
	_, err = fmt.Fprintln(s.out, o.Output)
	return err
}

// checkRoom refuses a disk that the model will not fit on, before the work is
// done, and warns of one that has no room for checkpoints: two at a time, of
// three float32 numbers a parameter. free < 0 is not known.
func checkRoom(dir string, free, parameters int64, save weights.DType, note func(string, ...any)) error {
	model := parameters * 4
	if save == weights.BF16 || save == weights.F16 {
		model = parameters * 2
	}
	switch gb := func(n int64) float64 { return float64(n) / 1e9 }; {
	case free < 0:
	case free < model+model/20:
		return fmt.Errorf("%s: %.2f GB are free there, and the trained model takes %.2f; free some room or choose another --output", dir, gb(free), gb(model))
	case free < model+24*parameters:
		note("warning: %.1f GB are free in %s; the model and its checkpoints take up to %.1f", gb(free), dir, gb(model+24*parameters))
	}
	return nil
}

// checkSampled refuses files whose tokens do not come from the model's own
// distribution: a policy gradient on them is biased.
func checkSampled(d *trainer.Data, o trainOptions) error {
	for i, r := range d.Runs {
		if how := r.Filtered(); how != "" && !o.Force {
			return fmt.Errorf("%s was sampled with %s: those tokens do not follow the model's own distribution, and the gradient would be biased (roll out with temperature 1 and nothing cut, or add --force)", d.Files[i], how)
		}
	}
	return nil
}

// farApart is a mean difference of log-probs that two precisions of one model do
// not explain.
const farApart = .05

// checkRows looks whether the rows of all files can be trained on together.
func checkRows(d *trainer.Data, o trainOptions, note func(string, ...any)) error {
	warning, err := d.CheckGroups()
	if err != nil {
		return err
	}
	if warning != "" {
		note("warning: %s", warning)
	}
	if p := d.Policies; len(p) > 1 {
		who := fmt.Sprintf("the rows were sampled by %d models, among them %s (%s) and %s (%s)", len(p), p[0].Name, p[0].File, p[1].Name, p[1].File)
		if o.Model == "" {
			return usagef("%s; name the one to train with --model", who)
		}
		note("warning: %s; all are trained on as if %s had sampled them", who, o.Model)
	}
	return nil
}

// namedModel is the model to start from, as the user or the file names it.
func namedModel(d *trainer.Data, o trainOptions) string {
	if o.Model == "" && len(d.Policies) > 0 {
		return d.Policies[0].Name
	}
	return o.Model
}

// startingModel is --model, else the policy that the file names, else what
// set-up fetched.
func startingModel(ctx context.Context, d *trainer.Data, o trainOptions, notice func(string)) (string, error) {
	if o.Model != "" {
		path, err := findModel(ctx, o.Model, true, notice)
		if err != nil {
			return "", fmt.Errorf("--model: %w", err)
		}
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("--model %s: there is no such model folder or .gguf", path)
		}
		return path, nil
	}
	name := namedModel(d, o)
	if name == "" {
		return "", fmt.Errorf("%s does not say which model sampled it; name the model to start from with --model", d.Files[0])
	}
	// Nobody asked for a download: the name is a server's, and may mean anything.
	path, ok := cachedModel(ctx, name)
	if !ok {
		return "", fmt.Errorf("%s was sampled by %q, which is not a model folder or .gguf here; name the model's own folder, or org/name on the hub, with --model", d.Files[0], name)
	}
	notice("no model is named: starting from the one that sampled the file, " + path)
	return path, nil
}

// checkOutput stops before something is written over, and before a model is
// opened for nothing.
func checkOutput(d *trainer.Data, o trainOptions) error {
	if o.Output == "" || o.Resume != "" {
		return nil
	}
	at, err := os.Stat(o.Output)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if m, err := os.Stat(namedModel(d, o)); err == nil && os.SameFile(at, m) {
		return usagef("--output %s is the folder of the model that is trained; take another", o.Output)
	}
	entries, err := os.ReadDir(o.Output)
	if err != nil {
		return usagef("--output %s is not a folder; take another name", o.Output)
	}
	if len(entries) > 0 {
		return usagef("--output %s is not empty (it holds %s); take another folder, or remove that one", o.Output, entries[0].Name())
	}
	return nil
}

// prepareOutput makes the run's folder, with what --resume needs to know.
func prepareOutput(o trainOptions, dataFiles []string) error {
	if err := os.MkdirAll(o.Output, 0o755); err != nil {
		return err
	}
	// A resumed run may stand in another folder, where new files may match a pattern.
	kept := maps.Clone(o.Settings)
	for _, k := range []string{"model", "ref"} {
		if p, ok := kept[k].(string); ok {
			kept[k] = absolute(p)
		}
	}
	if err := writeSettings(filepath.Join(o.Output, configName), kept); err != nil {
		return err
	}
	files := make([]string, len(dataFiles))
	for i, f := range dataFiles {
		files[i] = absolute(f)
	}
	data, err := json.Marshal(files)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.Output, trainFilesName), data, fileMode)
}

// absolute is the whole path of a file or folder that is there; other names,
// those of the hub, stay as they are.
func absolute(name string) string {
	if _, err := os.Stat(name); err != nil {
		return name
	}
	abs, err := filepath.Abs(name)
	if err != nil {
		return name
	}
	return abs
}

// trainCurves draws what a reader wants to see first, from metrics.jsonl, so
// that a resumed run shows all its steps.
func trainCurves(dir string) []byte {
	series := map[string]*metrics.Curve{}
	data, err := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
	if err == nil {
		for line := range strings.Lines(string(data)) {
			var v map[string]*float64
			if json.Unmarshal([]byte(line), &v) != nil || v["step"] == nil {
				continue
			}
			for k, y := range v {
				if y == nil {
					continue
				}
				if series[k] == nil {
					series[k] = &metrics.Curve{Name: k}
				}
				series[k].X, series[k].Y = append(series[k].X, *v["step"]), append(series[k].Y, *y)
			}
		}
	}
	var panels []metrics.Panel
	for _, p := range []struct{ title, key string }{
		{"Mean reward of the step's trajectories", "critic/score/mean"}, {"Policy loss", "actor/pg_loss"},
		{"Clipped share of tokens", "actor/pg_clipfrac"}, {"KL(old‖new), k1, nats a token", "actor/ppo_kl"},
		{"Entropy, nats a token", "actor/entropy"}, {"Gradient norm before clipping", "actor/grad_norm"},
	} {
		panel := metrics.Panel{Title: p.title, XLabel: "optimiser step"}
		if c := series[p.key]; c != nil {
			panel.Curves = []metrics.Curve{*c}
		}
		panels = append(panels, panel)
	}
	return metrics.SVG(filepath.Base(dir), panels, 3)
}

// summarise says in words how it went, and names the known bad signs.
func summarise(note func(string, ...any), h []trainer.Metrics, took time.Duration) {
	if len(h) == 0 {
		return
	}
	last := h[len(h)-1].Values
	how := fmt.Sprintf("%d optimiser steps in %s", len(h), took.Round(100*time.Millisecond))
	if kl, ok := last["actor/ppo_kl"]; ok { // else the last step had nothing to compare
		how += fmt.Sprintf("; last step: KL %.3g, clipped %.1f %%, entropy %.3g, gradient norm %.3g", kl, 100*last["actor/pg_clipfrac"], last["actor/entropy"], last["actor/grad_norm"])
	}
	note("%s", how)
	compared := slices.IndexFunc(h, func(m trainer.Metrics) bool { return m.Values["rollout_corr/tokens"] > 0 })
	if compared >= 0 {
		v := h[compared].Values
		note("log-probs in the file against recomputed ones of the starting model: |Δ| %.3g on average, %.3g at most, KL (k3) %.3g, over %.0f tokens",
			v["rollout_logprobs_diff_mean"], v["rollout_logprobs_diff_max"], v["rollout_corr/k3"], v["rollout_corr/tokens"])
	} else {
		note("the file has no log-probs to compare with the model's own")
	}
	mean := func(key string) float64 { // over the steps that measured it
		sum, n := 0.0, 0
		for _, m := range h {
			if v, ok := m.Values[key]; ok {
				sum, n = sum+v, n+1
			}
		}
		return sum / float64(max(n, 1))
	}
	if z := mean("frac_reward_zero_std"); z > .5 {
		note("warning: in %.0f %% of the groups all attempts have the same reward; they teach nothing (sample tasks of middling difficulty)", 100*z)
	}
	if c := mean("response_length/clip_ratio"); c > .5 {
		note("warning: %.0f %% of the replies were cut off at their length limit (raise --max-tokens in rollout)", 100*c)
	}
}

// trainMeter shows how far training is.
type trainMeter struct {
	s     streams
	bar   *progressbar.ProgressBar
	phase string
	last  time.Time
}

func newTrainMeter(s streams) *trainMeter { return &trainMeter{s: s, last: time.Now()} }

var phaseNames = map[string]string{"old_log_prob": "old log-probs", "ref": "reference log-probs", "update": "update"}

func (m *trainMeter) progress(p trainer.Progress) {
	name := phaseNames[p.Phase]
	if !m.s.errTTY || m.s.jsonLog() {
		if time.Since(m.last) >= plainEvery {
			m.last = time.Now()
			m.s.log().Info(fmt.Sprintf("%s: %d of %d sequences", name, p.Done, p.Total), "phase", p.Phase, "done", p.Done, "total", p.Total)
		}
		return
	}
	if m.bar == nil || m.phase != p.Phase {
		m.close()
		m.phase = p.Phase
		m.bar = progressbar.NewOptions(p.Total, progressbar.OptionSetWriter(m.s.err), progressbar.OptionShowCount(),
			progressbar.OptionSetDescription(name), progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionClearOnFinish(), progressbar.OptionFullWidth())
	}
	_ = m.bar.Set(p.Done)
}

// step leaves one line for each optimiser step.
func (m *trainMeter) step(x trainer.Metrics) {
	m.close()
	v := x.Values
	num := func(key, format string) string {
		if y, ok := v[key]; ok && !math.IsNaN(y) {
			return fmt.Sprintf(format, y)
		}
		return "–"
	}
	all := []any{"step", x.Step, "total", x.Total} // what metrics.jsonl has of the step, for programs
	for _, key := range slices.Sorted(maps.Keys(v)) {
		if y := v[key]; !math.IsNaN(y) && !math.IsInf(y, 0) {
			all = append(all, key, y)
		}
	}
	m.s.log().Info(fmt.Sprintf("step %d/%d  reward %s  loss %s  KL %s  clipped %s  entropy %s  grad %s  %s s", x.Step, x.Total,
		num("critic/score/mean", "%.3f"), num("actor/pg_loss", "%+.4f"), num("actor/ppo_kl", "%+.4f"), num("actor/pg_clipfrac", "%.3f"),
		num("actor/entropy", "%.3f"), num("actor/grad_norm", "%.2f"), num("timing_s/update_actor", "%.1f")), all...)
	m.last = time.Now()
}

func (m *trainMeter) close() {
	if m.bar != nil {
		_ = m.bar.Clear()
		m.bar = nil
	}
}
