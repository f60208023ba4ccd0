package trainer

import (
	"fmt"
	"math"

	"agentcli/trainer/algo"
)

// Config are the settings of a training run. Zero values mean the defaults of
// DefaultConfig only where a field's comment says so.
type Config struct {
	Advantage   string           // an estimator of algo.Estimators
	Aggregation algo.Aggregation // how token losses become one number
	MaxLength   float64          // divisor of seq-mean-token-sum-norm; 0: the longest response of the data
	OldLogprobs string           // OldFile or OldRecompute
	Clip        algo.Clip
	KLCoef      float64 // β of the k3 loss against the reference; 0: none
	DropZeroStd bool    // groups without spread leave the loss and its denominators (DAPO's dynamic sampling)

	Epochs      int
	Minibatch   int // episodes an optimiser step; whole groups; 0: all
	MicroTokens int // packed tokens a forward pass

	LR          float64
	Schedule    string // constant, linear or cosine, after the warm-up
	WarmupSteps int
	Beta1       float64
	Beta2       float64
	AdamEps     float64
	WeightDecay float64
	MaxGradNorm float64 // 0: no clipping
	Seed        int64
	SaveEvery   int // optimiser steps between checkpoints; 0: at the end and when interrupted only
}

// The two sources of old log-probs.
const (
	OldFile      = "file"      // as recorded when the tokens were sampled
	OldRecompute = "recompute" // by the model in training, before the first update
)

// DefaultConfig are the settings of a bare `agentcli train`.
func DefaultConfig() Config {
	return Config{
		Advantage: "grpo", Aggregation: algo.TokenMean, OldLogprobs: OldRecompute,
		Clip: algo.Clip{Low: .2, High: .2}, Epochs: 1, Minibatch: 64, MicroTokens: 4096,
		LR: 1e-5, Schedule: "constant", Beta1: .9, Beta2: .95, AdamEps: 1e-8, MaxGradNorm: 1,
	}
}

// Validate names the first setting that is wrong, by its flag.
func (c Config) Validate() error {
	bad := func(flag string, v any, want string) error {
		return fmt.Errorf("--%s %v: want %s", flag, v, want)
	}
	if _, ok := algo.Estimators[c.Advantage]; !ok {
		return bad("advantage", c.Advantage, fmt.Sprintf("one of %v", algo.EstimatorNames()))
	}
	known := false
	for _, a := range algo.Aggregations {
		known = known || a == c.Aggregation
	}
	positive := func(x float64) bool { return x > 0 && !math.IsInf(x, 0) }
	within := func(x float64) bool { return x >= 0 && x < 1 }
	least0 := func(x float64) bool { return x >= 0 && !math.IsInf(x, 0) }
	switch {
	case !known:
		return bad("aggregation", c.Aggregation, fmt.Sprintf("one of %v", algo.Aggregations))
	case c.OldLogprobs != OldFile && c.OldLogprobs != OldRecompute:
		return bad("old-logprobs", c.OldLogprobs, "file or recompute")
	case !within(c.Clip.Low):
		return bad("clip-low", c.Clip.Low, "a number from 0 to below 1")
	case !least0(c.Clip.High):
		return bad("clip-high", c.Clip.High, "a number of at least 0")
	case !least0(c.KLCoef):
		return bad("kl-coef", c.KLCoef, "a number of at least 0")
	case !least0(c.MaxLength):
		return bad("max-length", c.MaxLength, "a number of tokens, or 0 for the longest response of the data")
	case c.Epochs < 1:
		return bad("epochs", c.Epochs, "at least 1")
	case c.Minibatch < 0:
		return bad("minibatch", c.Minibatch, "a number of trajectories, or 0 for all")
	case c.MicroTokens < 1:
		return bad("micro-tokens", c.MicroTokens, "at least 1")
	case !positive(c.LR):
		return bad("lr", c.LR, "a positive number")
	case c.Schedule != "constant" && c.Schedule != "linear" && c.Schedule != "cosine":
		return bad("schedule", c.Schedule, "constant, linear or cosine")
	case c.WarmupSteps < 0:
		return bad("warmup-steps", c.WarmupSteps, "at least 0")
	case !within(c.Beta1) || !within(c.Beta2):
		return bad("betas", fmt.Sprintf("%g,%g", c.Beta1, c.Beta2), "two numbers from 0 to below 1")
	case !positive(c.AdamEps):
		return bad("adam-eps", c.AdamEps, "a positive number")
	case !least0(c.WeightDecay):
		return bad("weight-decay", c.WeightDecay, "at least 0")
	case !least0(c.MaxGradNorm):
		return bad("max-grad-norm", c.MaxGradNorm, "a positive number, or 0 for no clipping")
	case c.SaveEvery < 0:
		return bad("save-every", c.SaveEvery, "at least 0")
	}
	return nil
}

// lr is the learning rate of optimiser step number `step` (from 1) of `total`:
// a linear warm-up from LR/warmup to LR, then the schedule down to 0.
func (c Config) lr(step, total int) float64 {
	if step <= c.WarmupSteps {
		return c.LR * float64(step) / float64(c.WarmupSteps)
	}
	left := total - c.WarmupSteps
	if left <= 0 {
		return c.LR
	}
	done := float64(step-1-c.WarmupSteps) / float64(left)
	switch c.Schedule {
	case "linear":
		return c.LR * (1 - done)
	case "cosine":
		return c.LR * (1 + math.Cos(math.Pi*done)) / 2
	}
	return c.LR
}
