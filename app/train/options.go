package train

import (
	"context"

	"agentcli/app/models"
	"agentcli/app/rundir"
	"agentcli/internal/exit"
	"agentcli/internal/setting"
	"agentcli/lossscale"
	"agentcli/model/weights"
	"agentcli/rewards"
	"agentcli/trainer"
)

// Options are the settings of one training run. DefaultOptions has those that must not be
// zero.
type Options struct {
	Backend     models.Backend // that runs local models
	Files       []string
	Model       string
	Ref         string
	Critic      string
	Teacher     string
	RewardModel string   // a model that scores the trajectories
	Held        HeldOut  // rows that are measured and not trained on
	EvalFiles   []string // those that --eval-dataset named when the run began; nil: it begins
	TrainedOn   []models.TrainedOn
	PTX         string   // a file of text
	PTXFiles    []string // those that PTX named when the run began; nil: it begins
	Greedy      string
	Reward      string          // "": the file's
	Grader      rewards.Options // of Reward
	Judge       models.JudgeOptions
	ToolEnv     []string
	DryRun      bool
	Keep        int
	PeakTFLOPS  float64 // of the hardware, that perf/mfu is a share of; 0: not told
	Open        models.TrainableOptions
	Config      trainer.Config
	// FitMicroTokens: as many tokens are computed at once as the free memory holds, in place of
	// Config.MicroTokens; Reserved bytes of this machine's are another's, who will take them.
	FitMicroTokens bool
	Reserved       int64
	Output         string
	Resume         string
	Save           weights.DType
	Force          bool
	Settings       map[string]any // as given, for config.yaml; paths are absolute
	// MaxImagePixels raises the limit of width times height of the rows' images; 0, or less than
	// media.DefaultMaxPixels: that is the limit.
	MaxImagePixels int
}

// DefaultOptions are those of a training run of GRPO on trajectory files, into a folder. A
// model is named as the command's --model is.
func DefaultOptions(backend models.Backend, model, output string, files ...string) Options {
	return Options{Backend: backend, Files: files, Model: model, Config: trainer.DefaultConfig(), Output: output, Keep: 1, Save: weights.F32}
}

// MakeAbsolute makes the names of files within settings paths from anywhere, for a resumed run may
// stand in another folder: in the options, and in the settings that are kept.
func (o *Options) MakeAbsolute(kept map[string]any) {
	c := &o.Config
	if file := DemonstrationFile(c.Demonstration); file != nil {
		c.Demonstration = rundir.Absolute(file[0])
		kept["demonstration"] = c.Demonstration
	}
	if t := &o.Open.ChatTemplate; models.TemplateFile(*t) != nil {
		*t = rundir.Absolute(*t)
		kept["chat-template"] = *t
	}
	if len(lossscale.Files(c.LossScale)) > 0 {
		c.LossScale = lossscale.MapFiles(c.LossScale, rundir.Absolute)
		kept["loss-scale"] = c.LossScale
	}
}

// CheckTeacher refuses a run of opd that has nobody to learn from. --print-config
// shows its settings all the same.
func (o Options) CheckTeacher() error {
	if o.Teacher == "" && o.Config.NeedsTeacher() && o.Config.Demonstration == "" {
		return exit.Usagef("%s %s learns from a teacher; name one with %s DIR, or show the policy itself something with %s best",
			setting.Name("Loss"), o.Config.Loss, setting.Name("Teacher"), setting.Name("Demonstration"))
	}
	return nil
}

// StartsFrom is the path of the model that a loop will start from, as far as it is
// known without asking the hub.
func (o Options) StartsFrom(ctx context.Context) (string, bool) {
	if o.Model == "" {
		return models.DefaultPath(), true
	}
	return models.FindCached(ctx, o.Model)
}
