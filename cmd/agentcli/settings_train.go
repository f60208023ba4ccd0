package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"agentcli/internal/exit"
	"agentcli/lossscale"
	"agentcli/model/weights"
	"agentcli/policy"
	"agentcli/trainer"
	"agentcli/trainer/algo"
	"agentcli/trainer/rows"

	"github.com/urfave/cli/v2"
)

// The settings of the commands that train. Those of the algorithm are fields of
// trainer.Config, whose defaults and Validate they have.

const (
	groupLoop       = "loop"
	groupAlgorithm  = "algorithm"
	groupLoss       = "policy loss"
	groupShaping    = "reward"
	groupCritic     = "critic (--algo ppo)"
	groupSupervised = "supervised (--algo sft, dpo, rm, prm)"
	groupOptimiser  = "optimiser"
	groupAdapters   = "adapters and memory"
	groupEvaluation = "evaluation (--algo sft, dpo, rm, prm)"
)

// groups are the groups in the order of the help.
var groups = []string{groupLoop, groupData, groupAlgorithm, groupOptimiser, groupLoss, groupShaping, groupCritic, groupSupervised,
	groupAdapters, groupEvaluation, groupSampling, groupTools, groupLimits, groupModel, groupServer,
	groupRun, groupBudget, groupFolder, groupServe, groupShow, groupInfo}

// config are the settings of the algorithm.
func (o *options) config() *trainer.Config { return &o.loop.Train.Config }

// unless gives the reason where a setting does not act.
func unless(acts func() bool, why func() string) func(*cli.Context) string {
	return func(*cli.Context) string {
		if acts() {
			return ""
		}
		return why()
	}
}

func because(why string) func() string { return func() string { return why } }

func (o *options) takesNoRewards() string {
	return "with --algo " + o.config().Algo + ", which takes no rewards; leave it out"
}

func loopSettings(o *options) []row {
	l := &o.loop
	ownRatio := strings.Join(algo.LossesReading(algo.TrustRegion), ", ")
	return section(row{group: groupLoop, free: forLoop}, []row{
		{name: "steps", field: &l.Steps, value: 20, basic: forLoop, help: "number of rollouts, each trained on before the next"},
		{name: "tasks", field: &l.Tasks, value: 16, basic: forLoop, help: "tasks per rollout"},
		{name: "async", field: &l.Async, basic: forLoop,
			help: "1: sample the next step's trajectories with a policy one step old, while this step is trained; " +
				"--off-policy then defaults to tis, except with --loss " + ownRatio},
		{name: "eval-tasks", field: &l.EvalTasks, value: 64, help: "tasks per evaluation"},
		{name: "eval-samples", field: &l.EvalTries, value: 2, help: "attempts at each task of an evaluation"},
		{name: "kl-target", field: &l.KLTarget, help: "target KL to which --kl-coef is adapted (with --kl-in reward); 0: no adaptation"},
		{name: "kl-horizon", field: &l.KLHorizon, value: 10000., help: "number of trajectories over which --kl-coef is adapted",
			// Whoever switches --kl-target off himself knows what that leaves without effect.
			idle: func(c *cli.Context) string {
				if c.IsSet("kl-target") || l.KLTarget > 0 {
					return ""
				}
				return "without --kl-target; give that too, or leave it out"
			}},
	})
}

// estimator is the one of a name; of another, which Validate refuses, one without traits.
func estimator(name string) *algo.Estimator {
	if e, ok := algo.EstimatorByName(name); ok {
		return e
	}
	return &algo.Estimator{}
}

func algorithmSettings(o *options) []row {
	g := o.config()
	forLoops := algo.EstimatorsWith(func(e *algo.Estimator) bool { return !e.Greedy })
	const advantageHelp = "how scores become advantages: %s (default: grpo; gae with --algo ppo)"
	return section(row{group: groupAlgorithm, fixed: trainLoop}, []row{
		{name: "preset", value: "", kind: optional, basic: trainLoop, always: true, read: ignored,
			help: "predefined settings: " + strings.Join(slices.Sorted(maps.Keys(presets)), ", ") +
				" (--print-config prints them; other flags override them)"},
		{name: "algo", field: &g.Algo, basic: trainLoop, always: true,
			help: "grpo: advantages within a group of attempts; ppo: from a critic; sft: supervised fine-tuning; " +
				"dpo: preferred against rejected replies; rm: reward model from such pairs; prm: process reward model from labelled steps",
			but: []variant{{in: forLoop, help: "grpo: advantages within a group of attempts; ppo: from a critic"}}},
		{name: "advantage", value: "", field: &g.Advantage, basic: trainLoop,
			help: fmt.Sprintf(advantageHelp, strings.Join(algo.EstimatorNames(), ", ")),
			but:  []variant{{in: forLoop, help: fmt.Sprintf(advantageHelp, strings.Join(forLoops, ", "))}},
			read: func(c *cli.Context) error {
				switch {
				case c.String("advantage") != "":
					g.Advantage = c.String("advantage")
				case g.Algo == trainer.AlgoPPO:
					g.Advantage = "gae"
				}
				return nil
			}},
		{name: "loss", field: &g.Loss, basic: trainLoop, help: "policy loss: " + strings.Join(algo.LossNames(), ", ")},
		{name: "aggregation", value: "", field: &g.Aggregation,
			help: "aggregation of token losses: token-mean, seq-mean-token-sum, seq-mean-token-mean or seq-mean-token-sum-norm " +
				"(default: token-mean; with --loss " + strings.Join(sequenceMeans(), ", ") + " seq-mean-token-mean)",
			read: func(c *cli.Context) error {
				if g.Aggregation = algo.Aggregation(c.String("aggregation")); g.Aggregation == "" {
					g.Aggregation = algo.TokenMean
					if l, ok := algo.LossByName(g.Loss); ok {
						g.Aggregation = l.DefaultAggregation()
					}
				}
				return nil
			}},
		{name: "max-length", field: &g.MaxLength,
			help: "divisor of seq-mean-token-sum-norm, in tokens (default: maximum tokens that a trajectory can sample, or the longest response)"},
		{name: "loss-scale", field: &g.LossScale,
			help: "[default|last_round|all][+RULE…]: replies that are trained on, and rules that weigh their parts: " +
				strings.Join(lossscale.Names(), ", ") + ", or a JSON file (docs/training.md#loss-scale)"},
		{name: "kl-coef", field: &g.KLCoef, basic: trainLoop, always: true, // or Validate refuses it
			help: "weight of the KL to the reference model"},
		{name: "kl-in", field: &g.KLIn, help: "place of the KL to the reference: loss, or reward (of each token)"},
		{name: "kl", value: "", field: &g.KL,
			help: "estimator of the KL: k1, k2, k3, k1+ or k3+ (value of k1 or k3, gradient of k2) (default: k3; k1 with --kl-in reward)",
			read: func(c *cli.Context) error {
				if g.KL = algo.KLKind(c.String("kl")); g.KL == "" {
					g.KL = algo.DefaultKL(g.KLIn == trainer.KLInReward)
				}
				return nil
			}},
		{name: "target-kl", field: &g.TargetKL, help: "end the run when a step's KL to the old policy exceeds 1.5 times this value"},
		{name: "gamma", field: &g.Gamma, help: "discount of a token's reward (reinforce++, gae)"},
		{name: "lambda", field: &g.Lambda, help: "λ of gae"},
		{name: "drop-zero-std", field: &g.DropZeroStd,
			help: "leave out groups whose attempts all have the same score, also from means, whitening and " +
				"the critic's training (dynamic sampling)"},
		{name: "router-replay", field: []any{&o.loop.Rollout.Model.RouterReplay, &g.RouterReplay}, fixed: trainLoop | forRollout,
			help: "mixture of experts: choose for each token the experts that were chosen when it was sampled",
			but: []variant{{in: forRollout, group: groupModel,
				help: "mixture of experts: keep which experts are chosen for each token, for train --router-replay"}}},
		{name: "max-staleness", field: &g.MaxStaleness, fixed: forTrain, refused: forLoop,
			help: "maximum age of rows, in policy versions before the newest (policy_version; a loop counts its steps); older rows are left out"},
	})
}

// sequenceMeans are the losses whose default aggregation is not the token mean.
func sequenceMeans() (names []string) {
	for _, l := range algo.Losses {
		if l.DefaultAggregation() != algo.TokenMean {
			names = append(names, l.Name)
		}
	}
	return names
}

func lossSettings(o *options) []row {
	g := o.config()
	trust := strings.Join(algo.LossesReading(algo.TrustRegion), ", ")
	const bounds = " (default: by --off-policy: 0 to 2 of tis and tis-seq, .5 to 5 of icepop and seq-mask-tis, .999 to 1.001 of seq-mask)"
	bound := func(name string, at *float64) func(c *cli.Context) error {
		return func(c *cli.Context) error {
			if c.IsSet(name) {
				*at = c.Float64(name)
			}
			return nil
		}
	}
	return section(row{group: groupLoss, fixed: trainLoop}, []row{
		{name: "clip-low", field: &g.Clip.Low, help: "ε_low: the probability ratio is clipped at 1 − ε_low"},
		{name: "clip-high", field: &g.Clip.High, help: "ε_high: the probability ratio is clipped at 1 + ε_high"},
		{name: "clip-dual", field: &g.Clip.Dual,
			help: "upper bound of the loss where the advantage A is negative, as a multiple of −A, for example 3 (dual clip)"},
		{name: "sapo-pos", field: &g.SAPOPos, help: "temperature of sapo where the advantage is positive"},
		{name: "sapo-neg", field: &g.SAPONeg, help: "temperature of sapo elsewhere"},
		{name: "threshold", field: &g.Threshold, help: "maximum change of a token's probability from the sampled one (" + trust + ")"},
		{name: "rollout-kl", field: &g.RolloutKL, help: "weight of (log-prob − sampled log-prob)² (" + trust + ")"},
		{name: "old-logprobs", field: &g.OldLogprobs,
			help: "old log-probs: recompute (by the model before its first update) or file (as recorded at sampling)"},
		{name: "off-policy", value: g.OffPolicy.Kind, field: &g.OffPolicy.Kind,
			help: "off-policy correction with the rollout log-probs: " + strings.Join(algo.Corrections, ", "),
			read: func(c *cli.Context) error { g.OffPolicy = algo.NewCorrection(c.String("off-policy")); return nil }},
		{name: "off-policy-low", value: 0., field: &g.OffPolicy.Low, read: bound("off-policy-low", &g.OffPolicy.Low),
			help: "lower bound of the correction's weights" + bounds},
		{name: "off-policy-high", value: 0., field: &g.OffPolicy.High, read: bound("off-policy-high", &g.OffPolicy.High),
			help: "upper bound of the correction's weights" + bounds},
		{name: "entropy-coef", field: &g.EntropyCoef, always: true, // or Validate refuses it
			help: "weight of the entropy bonus"},
		{name: "entropy-schedule", field: &g.EntropySchedule,
			help: "weight of the entropy bonus over the steps: constant, linear or cosine (both down to 0)"},
		{name: "echo", field: &g.Echo, always: true, // or Validate refuses it
			help: "weight of the cross-entropy of tool output in the policy loss"},
		{name: "ptx-coef", value: .05, field: &g.PTXCoef, fixed: forTrain, refused: forLoop,
			help: "weight of the cross-entropy of --ptx in each policy step",
			read: func(c *cli.Context) error {
				if c.String("ptx") != "" && !g.IsSupervised() { // which refuse --ptx itself
					g.PTXCoef = c.Float64("ptx-coef")
				}
				return nil
			},
			idle: unless(func() bool { return o.loop.Train.PTX != "" }, because("without --ptx; name its file too, or leave it out"))},
		{name: "demonstration", value: "", always: true, // or Validate refuses it
			help: "demonstration that the teacher of --loss opd gets after the question: best (the best other attempt of the group), " +
				"answer (the task's), or a .jsonl file of task_id or question and demonstration; " +
				"without --teacher the policy before its first update is the teacher",
			read: func(c *cli.Context) error { g.Demonstration = c.String("demonstration"); return nil }},
	})
}

func shapingSettings(o *options) []row {
	g := o.config()
	return section(row{group: groupShaping, fixed: trainLoop}, []row{
		{name: "part-weights", field: &g.PartWeights, help: "comma-separated weights of the reward's components for gdpo"},
		{name: "reward-clip", field: &g.RewardClip, help: "clip scores to ± this value"},
		{name: "overlong-buffer", field: &g.OverlongBuffer, help: "tokens before --overlong-limit where the length penalty starts"},
		{name: "overlong-limit", field: &g.OverlongLimit, help: "length in sampled tokens at which the length penalty is full"},
		{name: "overlong-factor", field: &g.OverlongFactor, help: "full length penalty"},
		{name: "overlong-filter", field: &g.OverlongFilter, help: "leave replies that were cut off at their limit out of the loss"},
		{name: "length-penalty", field: &g.LengthPenalty,
			help: "penalties for output tokens, observation tokens and turns, relative to the group's longest, for example .2,0,0"},
	})
}

func criticSettings(o *options) []row {
	g := o.config()
	return section(row{group: groupCritic, fixed: trainLoop}, []row{
		{name: "critic-lr", field: &g.CriticLR, help: "learning rate of the critic"},
		{name: "critic-warmup", field: &g.CriticWarmup, help: "number of first updates that train only the critic"},
		{name: "value-clip", field: &g.ValueClip, help: "ε of the clipped value loss; 0: no clipping"},
		{name: "shared-critic", field: &g.SharedCritic, always: true, // or Validate refuses it
			help: "use a value head on the policy's backbone in place of a second model"},
		{name: "value-coef", field: &g.ValueCoef, help: "weight of the value loss with --shared-critic"},
	})
}

func supervisedSettings(o *options) []row {
	s := &o.config().Supervised
	return section(row{group: groupSupervised, fixed: forTrain, refused: forLoop}, []row{
		{name: "dpo-beta", field: &s.DPOBeta, help: "β of dpo: strength of the constraint to the reference"},
		{name: "dpo-loss", field: &s.DPOLoss, help: "loss of dpo: sigmoid, ipo or hinge"},
		{name: "label-smoothing", field: &s.LabelSmoothing, help: "share of dpo's pairs assumed to be labelled wrongly"},
		{name: "pairs", field: &s.Pairs,
			help: "pairs of dpo and rm from a group of trajectories: best-worst (one pair) or all (each two of unequal reward)"},
		{name: "rm-loss", field: &s.RMLoss, help: "loss of rm: pairwise, with the margins that rows have"},
		{name: "prm-token", field: &s.PRMToken, help: "token that ends a step (prm)"},
		{name: "prm-tokens", field: &s.PRMTokens,
			help: "reward tokens (prm), first the token of a right step; '': the whole vocabulary, with tokens as labels"},
	})
}

func optimiserSettings(o *options) []row {
	g := o.config()
	return section(row{group: groupOptimiser, fixed: trainLoop, always: true}, []row{
		{name: "lr", field: &g.LR, basic: trainLoop, help: "learning rate of AdamW after the warm-up"},
		{name: "schedule", field: &g.Schedule, help: "learning rate after the warm-up: constant, linear or cosine (both down to 0)"},
		{name: "warmup-steps", field: &g.WarmupSteps, help: "optimiser steps in which the learning rate rises"},
		{name: "betas", value: fmt.Sprintf("%g,%g", g.Beta1, g.Beta2),
			help: "AdamW's decay rates of the mean and of the square of the gradients",
			read: func(c *cli.Context) error {
				if n, err := fmt.Sscanf(c.String("betas")+"\n", "%g,%g\n", &g.Beta1, &g.Beta2); n != 2 || err != nil {
					return exit.Usagef("--betas %q: want two numbers with a comma, for example .9,.95", c.String("betas"))
				}
				return nil
			}},
		{name: "adam-eps", field: &g.AdamEps, help: "ε in AdamW's divisor"},
		{name: "weight-decay", field: &g.WeightDecay, help: "AdamW's weight decay of matrices; norms, biases and embeddings do not decay"},
		{name: "max-grad-norm", field: &g.MaxGradNorm, help: "norm that gradients are clipped to; 0: no clipping"},
		{name: "ema", field: &g.EMA,
			help: "decay of an exponential moving average of the policy, for example .992; the average is written to ema/"},
		{name: "epochs", field: &g.Epochs, basic: forTrain, help: "passes over the trajectories"},
		{name: "minibatch", field: &g.Minibatch, basic: trainLoop, help: "trajectories per optimiser step, in whole groups; 0: all"},
		{name: "micro-tokens", value: strconv.Itoa(g.MicroTokens), free: trainLoop, basic: trainLoop,
			help: "maximum tokens per forward and backward pass; lower it to save memory; auto: what the free memory holds",
			read: func(c *cli.Context) (err error) {
				text := c.String("micro-tokens")
				if t := &o.loop.Train; text == autoMicroTokens {
					t.FitMicroTokens = true
					return nil
				}
				if g.MicroTokens, err = strconv.Atoi(text); err != nil {
					return exit.Usagef("--micro-tokens %q: want a number of tokens, or %s", text, autoMicroTokens)
				}
				return nil
			}},
		{name: "skip-bad-steps", field: &g.SkipBad,
			help: "skip a step whose loss or gradient is NaN or infinite and name its rows (default: end the run)"},
	})
}

const noVision = "none"

// autoMicroTokens leaves the number of tokens to the memory.
const autoMicroTokens = "auto"

func adapterSettings(o *options) []row {
	open := &o.loop.Train.Open
	l := &open.LoRA
	return section(row{group: groupAdapters, fixed: trainLoop, always: true}, []row{
		{name: "lora-rank", field: &l.Rank, basic: trainLoop,
			help: "train low-rank adapters of this rank, for example 16, and freeze the weights; 0: train the weights, or the adapters of --model"},
		{name: "lora-alpha", field: &l.Alpha, // or refuseIdleLoRA refuses it
			help: "scale of the adapters is alpha/rank (default: twice the rank)"},
		{name: "lora-targets", value: "", kind: optional,
			help: "matrices with an adapter: all-linear (of the text model, those of experts left out), experts, vision (the encoder of images), " +
				"or some of q,k,v,o,gate,up,down (default: all-linear)",
			read: func(c *cli.Context) (err error) {
				if text := c.String("lora-targets"); text != "" {
					if l.Targets, err = policy.ParseTargets(text); err != nil {
						return exit.Usagef("--lora-targets: %v", err)
					}
				}
				return nil
			}},
		{name: "lora-dropout", field: &l.Dropout, help: "share of an adapter's inputs that is dropped in training"},
		{name: "train-vision", value: noVision, kind: optional,
			help: "part of the encoder of images that is trained: none, merger or all (docs/training.md#images)",
			read: func(c *cli.Context) error {
				switch part := c.String("train-vision"); part {
				case noVision:
					open.Vision = policy.VisionFrozen
				case string(policy.VisionMerger), string(policy.VisionAll):
					open.Vision = policy.VisionTraining(part)
				default:
					return exit.Usagef("--train-vision %q is unknown; it is none, merger or all", part)
				}
				return nil
			}},
		{name: "grad-checkpoint", field: &open.Checkpoint, free: trainLoop, basic: forTrain,
			help: "keep only each layer's input and recompute the layer in the backward pass: less memory, more time, the same result"},
	})
}

// evaluationSettings are of train and, with other words, of loop.
func evaluationSettings(o *options) []row {
	h := &o.loop.Train.Held
	const holdout = "hold out this many prompts, or this share of them, and measure on those: `N|SHARE`"
	return section(row{group: groupEvaluation, fixed: trainLoop, always: true}, []row{
		{name: "eval-dataset", field: &h.Dataset, kind: path, basic: trainLoop, help: "`FILE` of rows to evaluate on; they are not trained on",
			but: []variant{{in: forLoop, group: groupLoop,
				help: "dataset to evaluate on: a `NAME` or a file, as for --dataset (default: the test split of --dataset; else the training rows)"}}},
		{name: "eval-split", field: &h.Split, kind: optional,
			help: "evaluate on the text rows with this value in the column split, of --eval-dataset or of FILE; " +
				"such rows of FILE are not trained on",
			but: []variant{{in: forLoop, group: groupLoop, help: "split to evaluate on, of --eval-dataset or of --dataset"}}},
		{name: "holdout", value: "", kind: optional, basic: trainLoop, help: holdout, but: []variant{{in: forLoop, group: groupLoop}},
			read: func(c *cli.Context) (err error) {
				if h.Part, err = rows.ParseHoldout(c.String("holdout")); err != nil {
					return exit.UsageError{Err: err}
				}
				return nil
			}},
		{name: "eval-every", field: []any{&h.Every, &o.loop.EvalEvery}, value: 10, fixed: forTrain, free: forLoop, basic: forLoop,
			help: "optimiser steps between evaluations on held-out rows; 0: only before the first step and after the last",
			but: []variant{{in: forLoop, group: groupLoop, value: 5,
				help: "steps between evaluations, on held-out tasks where there are any; 0: no evaluation"}}},
	})
}

func modelSettings(o *options) []row {
	m, t := &o.loop.Rollout.Model, &o.loop.Train
	return section(row{group: groupModel, free: allFour, always: true}, []row{
		{name: "model", short: "m", field: []any{&m.Model, &t.Model}, kind: path, fixed: allFour, basic: allFour,
			help: "a model folder, a .gguf, org/name on the hub, or the name of a server's model",
			but: []variant{
				{in: forTrain, help: "model folder, .gguf or org/name on the hub to start from (default: the policy that the file names)"},
				{in: forLoop, help: "model folder, .gguf or org/name on the hub to start from (default: the small one that make setup fetches)"}}},
		{name: "device", field: []any{&m.Device, &t.Open.Device}, kind: optional, basic: evalRollout | forTrain,
			help: "device of a local model: auto, cpu, cuda or cuda:N (default: auto, a CUDA device where there is one)"},
		{name: "dtype", field: []any{&m.DType, &t.Open.DType}, kind: optional, fixed: evalRollout | forTrain, free: forLoop, basic: forTrain,
			help: "data type of a local model: float32 or bfloat16 (default: the faster one)",
			but: []variant{{in: trainLoop,
				help: "data type of the computation: float32 or bfloat16; weights that are updated are float32 (default: the faster one)"}}},
		{name: "threads", field: []any{&m.Threads, &t.Open.Threads}, help: "CPU threads of a local model (default: one per core)"},
		{name: "max-context", field: []any{&m.MaxContext, &t.Open.MaxContext},
			help: "longest text of a local model in tokens, prompt and replies together (default: the model's context)"},
		{name: "kv-cache", field: &m.KVCache, kind: optional, free: evalRolloutLoop,
			idle: unless(func() bool { return !o.loop.Serves() }, because("with --base-url: the servers have caches of their own")),
			help: "memory for keys and values of a local model: a SIZE such as 8GB, or a SHARE of what is free such as 0.5 " +
				"(default: 2GB; on CUDA 0.5)"},
		{name: "kv-host", field: &m.KVHost, kind: optional, free: evalRolloutLoop,
			idle: unless(func() bool { return !o.loop.Serves() }, because("with --base-url: the servers have caches of their own")),
			help: "memory of the host for keys and values that a GPU's cache has no room for: a SIZE or a SHARE, as for --kv-cache (default: none)"},
		{name: "weights-as-stored", field: &m.AsStored, fixed: evalRollout,
			help: "multiply the matrices of a .gguf in 4 and 8 bits as they are: less memory, faster for few replies at once"},
		{name: "deterministic", field: &t.Open.Deterministic, free: trainLoop,
			help: "use only reproducible CUDA algorithms, which need more time and memory; " +
				"CPU results are reproducible for the same --threads"},
	})
}

// roleSettings are the other models and files of a training run.
func roleSettings(o *options) []row {
	g, t := o.config(), &o.loop.Train
	const remote = ", named as --model is, or `URL`[#MODEL] of a vLLM or SGLang server"
	const score = "reward model that scores the trajectories, at their last token, in place of "
	return section(row{group: groupModel, fixed: forTrain, free: forLoop}, []row{
		{name: "ref", field: &t.Ref, kind: path | address, basic: forTrain,
			help: "reference model of --kl-coef and --algo dpo" + remote + " (default: the model before training)",
			but:  []variant{{in: forLoop, help: "reference model of --kl-coef" + remote + " (default: the model before the first step)"}},
			idle: unless(func() bool { return g.KLCoef != 0 || g.Algo == trainer.AlgoDPO },
				because("without --kl-coef; give that too, for example --kl-coef 0.01"))},
		{name: "critic", field: &t.Critic, kind: path,
			help: "critic of --algo ppo to start from: a model folder, with a value head or without (default: --model with a new head)",
			idle: unless(func() bool { return g.Algo == trainer.AlgoPPO && !g.SharedCritic },
				because("without --algo ppo, nor with --shared-critic"))},
		{name: "teacher", field: &t.Teacher, kind: path | address, basic: forTrain,
			help: "teacher of --loss opd" + remote + "; its tokenizer must be the same",
			idle: unless(g.NeedsTeacher, because("without --loss opd"))},
		{name: "reward-model", field: &t.RewardModel, kind: path | address, help: score + "the rewards in the file (--algo rm makes one)",
			but:  []variant{{in: forLoop, help: score + "the dataset's reward (train --algo rm makes one)"}},
			idle: unless(func() bool { return !g.IsSupervised() }, o.takesNoRewards)},
		{name: "ptx", field: &t.PTX, kind: path, fixed: forTrain, refused: forLoop,
			help: "second `FILE` of text or trajectories, as for --algo sft; its cross-entropy is added to each policy step",
			idle: unless(func() bool { return !g.IsSupervised() },
				func() string { return "with --algo " + g.Algo + ": it is added to policy gradients" })},
		{name: "greedy", field: &t.Greedy, kind: path, fixed: forTrain, refused: forLoop,
			help: "file of greedy attempts (rollout --temperature 0) at the same tasks; their scores are the baseline of --advantage remax",
			idle: unless(func() bool { return estimator(g.Advantage).Greedy }, because("without --advantage remax"))},
	})
}

// folderSettings say where a run is and what is written there.
func folderSettings(o *options) []row {
	run, t, l := &o.loop.Rollout, &o.loop.Train, &o.loop
	return section(row{group: groupFolder, free: trainLoop, always: true}, []row{
		{name: "config", value: "", kind: path, once: allFour, basic: allFour, read: ignored,
			help: "read settings from a YAML `FILE` with the names of the flags; flags override them"},
		{name: "out", short: "o", field: &o.file, once: forRollout, basic: forRollout, help: "write the Parquet file to `FILE`"},
		{name: "output", field: []any{&run.Output, &t.Output, &l.Output}, once: allFour, basic: allFour, help: "`DIR` for everything of the run",
			but: []variant{{in: forTrain, short: "o", help: "`DIR` to write the model to, new or empty (default: runs/train-TIME)"},
				{in: forLoop, short: "o", help: "`DIR` for everything of the run, the model too, new or empty (default: runs/loop-TIME)"}}},
		{name: "resume", field: []any{&run.Resume, &t.Resume, &l.Resume}, once: allFour, basic: allFour, help: "continue the run in `DIR`",
			but: []variant{{in: forTrain, help: "continue the interrupted run in `DIR`, with its own files and settings"},
				{in: forLoop, help: "continue the interrupted run in `DIR`, with its own settings"}}},
		{name: "save-every", field: &o.config().SaveEvery, basic: forTrain,
			help: "optimiser steps between checkpoints (default: only when interrupted)",
			but:  []variant{{in: forLoop, help: "steps between checkpoints (default: 1)"}}},
		{name: "keep", field: &t.Keep, value: 1, help: "number of checkpoints that are kept until the end", check: positive},
		{name: "save-dtype", value: "f32",
			help: "data type of the written weights: f32 or bf16", check: oneOf([]string{"f32", "bf16"}, "float32", "bfloat16"),
			read: func(c *cli.Context) error {
				if t.Save = weights.F32; strings.HasPrefix(c.String("save-dtype"), "b") {
					t.Save = weights.BF16
				}
				return nil
			}},
		{name: "force", field: &t.Force,
			help: "train on files that were sampled with another tokenizer, or not from the model's own distribution",
			but: []variant{{in: forLoop,
				help: "train with --top-p, --top-k or --min-p, or with a --ref, --teacher or --critic of another tokenizer"}}},
		{name: "peak-tflops", field: &t.PeakTFLOPS,
			help: "peak of the hardware in TFLOP/s, for perf/mfu in metrics.jsonl (default: unknown, no perf/mfu)", check: notNegative},
	})
}
