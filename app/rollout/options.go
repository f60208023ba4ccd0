package rollout

import (
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentcli/app/models"
	"agentcli/app/rundir"
	"agentcli/datasets"
	"agentcli/engine"
	"agentcli/env"
	"agentcli/internal/exit"
	"agentcli/internal/setting"
	"agentcli/media"
	"agentcli/rewards"
	"agentcli/traj"
)

// Options are the settings that Rollout, Eval and a loop share. DefaultOptions has those
// that must not be zero.
type Options struct {
	Command string // whose run it is: rollout, eval or loop
	Model   models.Options

	Dataset string
	Split   string
	Limit   int
	Select  datasets.Selection
	Shuffle bool // rows in an order that Seed decides
	// FailedOf is a run: only the problems that it solved in less than half of its attempts.
	FailedOf string
	Level    string
	Shots    *int
	Fields   map[string]string
	Images   datasets.ImageLimits

	ImageFiles           string // where a file of trajectories has its images: one of ImageFiles; "": the first
	BoxSpace             string // of the boxes that image_zoom_in_tool is given; "": env.BoxSeen
	MinPixels, MaxPixels int    // of an image as the model is shown it; 0: a local model's own, of a server Qwen2.5-VL's
	MaxImageTokens       int    // of an image of a tool's result; 0: no limit
	shown                *shownImages
	System               *string
	Prompt               *string
	Reward               string
	Grader               rewards.Options // the options of the reward
	Judge                models.JudgeOptions

	Samples  int
	Seed     int64
	Sampling traj.Sampling

	// Scheduler decides what follows a reply: one of scheduler.Names, exec:CMD or an address;
	// "": the engine's own loop. GymEnv is the environment of gym_scheduler.
	Scheduler, GymEnv string
	SchedulerTimeout  time.Duration // of one answer; 0: scheduler.DefaultTimeout

	Env           string   // one of Environments; "": the first
	Retriever     string   // address of the search server that the tool search asks
	RetrieverTopK int      // passages of a search; 0: env.DefaultSearchTopK
	Tools         []string // nil: the dataset's
	Added         ToolOptions
	BestEffort    bool
	Python        string // the interpreter; "": one in PATH
	Session       bool   // python keeps its variables within a trajectory
	MaxTurns      int

	FinalTurn                          bool
	ContinueReply                      bool
	MaxPromptTokens, MaxResponseTokens int
	MaxObservationTokens               int
	Budget                             engine.Budget
	Timeout, ToolTimeout               time.Duration
	RewardTimeout                      time.Duration
	FailOnError                        engine.ErrorLimit
	Parallel                           int
	Ordered                            bool // rows in the tasks' order

	MetricsAddr string
	OTLP        string
	Trace       string

	fed bool // the rows come from requests

	Output   string
	Resume   string
	Settings map[string]any // as given, for config.yaml
	Fixed    []string       // names of settings that Identity covers, to name the one that a resumed run changed
}

// imageSettings are those that decide which images a row has and what a box is of; without
// those that are not set.
func (o *Options) imageSettings() map[string]any {
	all := map[string]any{}
	for name, n := range map[string]int{"max_images": o.Images.MaxImages, "max_image_bytes": o.Images.MaxImageBytes,
		"max_image_pixels": o.Images.MaxImagePixels, "min_pixels": o.MinPixels, "max_pixels": o.MaxPixels,
		"max_image_tokens": o.MaxImageTokens} {
		if n != 0 {
			all[name] = n
		}
	}
	if o.BoxSpace != "" {
		all["bbox_space"] = o.BoxSpace
	}
	return all
}

// imageConfig bounds the images of tools' results as those of rows.
func (o *Options) imageConfig() env.ImageConfig {
	return env.ImageConfig{MaxImages: o.Images.MaxImages, MaxTokens: o.MaxImageTokens, Tokens: o.shown.tokens,
		Limits: media.Limits{Pixels: o.Images.MaxImagePixels, Bytes: o.Images.MaxImageBytes}}
}

// Limits that hold where the options name no others.
const (
	DefaultToolTimeout   = 10 * time.Second
	DefaultRewardTimeout = time.Minute
)

// DefaultOptions are those of a rollout of a dataset by a model, which it names as the
// command's --dataset and --model do. Of a generated dataset, which has no end, o.Limit is
// to be set too.
func DefaultOptions(backend models.Backend, model, dataset string) Options {
	return Options{Model: models.Options{Backend: backend, Model: model}, Dataset: dataset, Samples: 8,
		Sampling: OwnDistribution(traj.Sampling{}),
		Parallel: engine.DefaultParallel, ToolTimeout: DefaultToolTimeout, RewardTimeout: DefaultRewardTimeout}
}

// ImageFiles are where a file of trajectories has its images: in itself, or in
// parquet.ImageFolder beside it.
var ImageFiles = []string{"inline", "folder"}

// DefaultRetrieverTopK is the number of passages of a search.
const DefaultRetrieverTopK = env.DefaultSearchTopK

// DefaultSamples is how many attempts there are at each task.
const DefaultSamples = 8

// GeneratedTasks is how many tasks of a generated dataset, which is infinite, a rollout
// takes by default.
const GeneratedTasks = 32

// ChooseSplit takes a benchmark's split for training where a run begins: what it is
// measured on is not for training. The run's settings keep it. A run that goes on has the
// split that they name; older programs took the default one and did not write it down.
func (o *Options) ChooseSplit(resumed bool, settings map[string]any) {
	split := datasets.TrainSplit(o.Dataset)
	if resumed || o.Split != "" || split == "" {
		return
	}
	o.Split, settings["split"] = split, split
}

// Validate checks what needs neither files nor the network.
func (o *Options) Validate() error {
	for _, f := range []struct {
		name     setting.Name
		v        float64
		min, max float64
	}{
		{setting.Name("Limit"), float64(o.Limit), 0, math.MaxInt32}, {setting.Name("Samples"), float64(o.Samples), 0, 1e6},
		{setting.Name("Parallel"), float64(o.Parallel), 1, 1e6},
		{setting.Name("MaxTurns"), float64(o.MaxTurns), 0, 1e6}, {setting.Name("MaxTokens"), float64(o.Sampling.MaxTokens), 0, 1e9},
		{setting.Name("MaxPromptTokens"), float64(o.MaxPromptTokens), 0, 1e9},
		{setting.Name("MaxResponseTokens"), float64(o.MaxResponseTokens), 0, 1e9},
		{setting.Name("MaxObservationTokens"), float64(o.MaxObservationTokens), 0, 1e9},
		{setting.Name("MaxImageTokens"), float64(o.MaxImageTokens), 0, 1e9},
		{setting.Name("RetrieverTopK"), float64(o.RetrieverTopK), 0, 100},
		{setting.Name("Budget.Tokens"), float64(o.Budget.Tokens), 0, 1e15}, {setting.Name("Budget.Cost"), o.Budget.Cost, 0, 1e9},
		{setting.Name("Budget.PriceIn"), o.Budget.PriceIn, 0, 1e9}, {setting.Name("Budget.PriceOut"), o.Budget.PriceOut, 0, 1e9},
		{setting.Name("TopP"), o.Sampling.TopP, 0, 1}, {setting.Name("MinP"), o.Sampling.MinP, 0, 1},
		{setting.Name("TopK"), float64(o.Sampling.TopK), -1, 1e9},
	} {
		if !(f.v >= f.min && f.v <= f.max) {
			plain := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
			return exit.Usagef("%s is %s; it must be from %s to %s", f.name, plain(f.v), plain(f.min), plain(f.max))
		}
	}
	for _, f := range []struct {
		name   setting.Name
		v, min time.Duration
	}{
		{setting.Name("Timeout"), o.Timeout, 0}, {setting.Name("ToolTimeout"), o.ToolTimeout, 1},
		{setting.Name("RewardTimeout"), o.RewardTimeout, 1}, {setting.Name("SchedulerTimeout"), o.SchedulerTimeout, 0},
	} {
		if f.v < f.min {
			return exit.Usagef("%s is %v; it must be positive", f.name, f.v)
		}
	}
	if o.ImageFiles != "" && !slices.Contains(ImageFiles, o.ImageFiles) {
		return exit.Usagef("%s is %q; it is %s", setting.Name("ImageFiles"), o.ImageFiles, strings.Join(ImageFiles, " or "))
	}
	if t := o.Sampling.Temperature; t != nil && !(*t >= 0 && *t <= 100) {
		return exit.Usagef("%s is %v; it must be from 0 to 100", setting.Name("Temperature"), *t)
	}
	if o.Budget.Cost > 0 && o.Budget.PriceIn == 0 && o.Budget.PriceOut == 0 {
		return exit.Usagef("%s needs to know what tokens cost: %s and %s, in USD for a million",
			setting.Name("Budget.Cost"), setting.Name("Budget.PriceIn"), setting.Name("Budget.PriceOut"))
	}
	if o.Output != "" && o.Resume != "" && filepath.Clean(o.Output) != filepath.Clean(o.Resume) {
		return exit.Usagef("%s goes on in its own folder; leave %s out", setting.Name("Resume"), setting.Name("Output"))
	}
	return nil
}

// OwnDistribution fills what the user left open with sampling from the model
// itself: a server would take its own defaults, which often cut the tail, and
// tokens drawn so cannot be trained on.
func OwnDistribution(s traj.Sampling) traj.Sampling {
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

// Cuts reports whether the distribution that is sampled from is less than the model's.
func (o Options) Cuts() bool {
	return o.Sampling.TopP < 1 || o.Sampling.TopK > 0 || o.Sampling.MinP > 0 || o.Sampling.Grammar != nil
}

// stored are the settings as the run's folder keeps them.
func (o Options) stored() map[string]any {
	all := maps.Clone(o.Settings)
	if all == nil {
		all = map[string]any{}
	}
	all[rundir.CommandKey] = o.Command
	return all
}

// ParseStopIDs reads ids that are separated by commas, or given one by one.
func ParseStopIDs(list []string) ([]int32, error) {
	var ids []int32
	for _, s := range list {
		for _, one := range strings.Split(s, ",") {
			id, err := strconv.ParseInt(strings.TrimSpace(one), 10, 32)
			if err != nil || id < 0 {
				return nil, exit.Usagef("%s %q: %q is no token id; write them as 2,50", setting.Name("StopIDs"), s, one)
			}
			ids = append(ids, int32(id))
		}
	}
	return ids, nil
}
