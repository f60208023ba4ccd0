package trainer

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"agentcli/internal/setting"
	"agentcli/lossscale"
	"agentcli/trainer/algo"
	"agentcli/trainer/rows"
)

// Config are the settings of a training run. Zero values mean the defaults of
// DefaultConfig only where a field's comment says so.
type Config struct {
	Algo            string           // one of the registry's, for example AlgoGRPO
	Advantage       string           // one of algo.Estimators
	Loss            string           // one of algo.Losses
	LossScale       string           // which replies are trained on, and what their parts weigh (package lossscale)
	Aggregation     algo.Aggregation // how token losses become one number
	MaxLength       float64          // divisor of seq-mean-token-sum-norm; 0: the files' limit, else the longest response of the data
	OldLogprobs     string           // OldFile or OldRecompute
	Clip            algo.Clip
	SAPOPos         float64 // temperatures of sapo, where A > 0 and elsewhere
	SAPONeg         float64
	Threshold       float64 // of the dppo losses and opd: how far a token's probability may have moved
	RolloutKL       float64 // τ of (lp − roll)² in the dppo losses and opd
	OffPolicy       algo.Correction
	KLCoef          float64     // β of the KL to the reference; 0: none
	KL              algo.KLKind // its estimate
	KLIn            string      // KLInLoss or KLInReward
	EntropyCoef     float64     // of an entropy bonus
	EntropySchedule string      // one of Schedules: how the bonus's weight changes over the steps
	// What the teacher of opd is shown behind the question: DemonstrateBest,
	// DemonstrateAnswer, a file's name, or nothing.
	Demonstration string
	Echo          float64 // weight of the cross-entropy of observation tokens
	TargetKL      float64 // the run ends once a step's KL to the old policy is over 1½ times this; 0: never

	Gamma          float64 // discount of a token's reward
	Lambda         float64 // of GAE
	PartWeights    string  // of gdpo, with commas between them; "": 1 each
	RewardClip     float64 // scores beyond ± this are cut; 0: none
	OverlongBuffer int     // tokens before OverlongLimit in which the punishment rises to OverlongFactor; 0: none
	OverlongLimit  int
	OverlongFactor float64
	OverlongFilter bool   // replies that were cut off at their limit leave the loss and its counts
	LengthPenalty  string // of output, observations and turns, with commas between them; "": none

	CriticLR     float64
	CriticWarmup int     // updates in which only the critic learns
	ValueClip    float64 // ε of the value loss; 0: none
	ValueCoef    float64 // weight of the value loss on a shared backbone
	SharedCritic bool
	EMA          float64 // share of the running mean of the policy that stays in a step; 0: none is kept

	Supervised Supervised // settings of the algorithms that learn from given replies
	PTXCoef    float64    // weight of the cross-entropy of Trainer.PTX in each policy step; 0: none
	// MaxStaleness leaves rows out that a policy of more versions ago sampled, as
	// policy_version counts; 0: none.
	MaxStaleness int
	// RouterReplay has the policy choose the experts again that were chosen when the tokens were
	// sampled (policy.Batch).
	RouterReplay bool
	DropZeroStd  bool // groups without spread leave the loss and its denominators (DAPO's dynamic sampling)

	Epochs      int
	Minibatch   int // episodes an optimiser step; whole groups; 0: all
	MicroTokens int // packed tokens a forward pass

	LR          float64
	Schedule    string // one of Schedules, after the warm-up
	WarmupSteps int
	Beta1       float64
	Beta2       float64
	AdamEps     float64
	WeightDecay float64
	MaxGradNorm float64 // 0: no clipping
	Seed        int64
	SkipBad     bool // a step whose loss or gradient is not finite is left out, in place of ending the run
	SaveEvery   int  // optimiser steps between checkpoints; 0: at the end and when interrupted only
}

// Supervised are the settings of the algorithms that learn from given replies.
type Supervised struct {
	DPOBeta        float64 // β
	DPOLoss        string  // one of algo.DPOKind
	LabelSmoothing float64 // share of the pairs taken to be the wrong way round
	Pairs          string  // rows.PairsBestWorst or PairsAll: which pairs a group of trajectories gives
	RMLoss         string  // RMPairwise or RMLogExp
	PRMToken       string  // the text of the token that ends a step
	PRMTokens      string  // the reward tokens, with commas between them; "": the whole vocabulary
}

// The losses of a reward model.
const (
	RMPairwise = "pairwise" // −log σ(c − r − margin)
	RMLogExp   = "log-exp"  // log(1 + e^(r − c)), without margins
)

// The two sources of old log-probs.
const (
	OldFile      = "file"      // as recorded when the tokens were sampled
	OldRecompute = "recompute" // by the model in training, before the first update
)

// Where the KL to the reference acts.
const (
	KLInLoss   = "loss"
	KLInReward = "reward"
)

// DefaultConfig are the settings of a bare `agentcli train`.
func DefaultConfig() Config {
	return Config{
		Algo: AlgoGRPO, Advantage: algo.DefaultEstimator, Loss: algo.DefaultLoss, LossScale: lossscale.Default,
		Aggregation: algo.TokenMean, OldLogprobs: OldRecompute,
		SAPOPos: 1, SAPONeg: 1.05, Threshold: .2, RolloutKL: 1e-3, OffPolicy: algo.NewCorrection(algo.NoCorrection),
		KL: algo.KLK3, KLIn: KLInLoss, Gamma: 1, Lambda: 1, OverlongFactor: 1, CriticLR: 9e-6, ValueClip: .2, ValueCoef: .5,
		Supervised: Supervised{DPOBeta: .1, DPOLoss: string(algo.DPOSigmoid), Pairs: rows.PairsBestWorst,
			RMLoss: RMPairwise, PRMToken: "\n", PRMTokens: "+,-"},
		Clip: algo.Clip{Low: .2, High: .2}, Epochs: 1, Minibatch: 64, MicroTokens: 4096,
		LR: 1e-5, Schedule: Constant, EntropySchedule: Constant, Beta1: .9, Beta2: .95, AdamEps: 1e-8, MaxGradNorm: 1,
	}
}

func positive(x float64) bool { return x > 0 && !math.IsInf(x, 0) }
func least0(x float64) bool   { return x >= 0 && !math.IsInf(x, 0) }
func within(x float64) bool   { return x >= 0 && x < 1 }

// badSetting makes the error of a setting that is wrong.
type badSetting = func(which setting.Name, v any, want string) error

// Validate names the first setting that is wrong, by its flag.
func (c Config) Validate() error {
	bad := func(which setting.Name, v any, want string) error {
		return setting.Errorf("%s %v: want %s", which, v, want)
	}
	est, ok := algo.EstimatorByName(c.Advantage)
	if !ok {
		return bad(setting.Name("Advantage"), c.Advantage, fmt.Sprintf("one of %v", algo.EstimatorNames()))
	}
	if _, ok := algo.LossByName(c.Loss); !ok {
		return bad(setting.Name("Loss"), c.Loss, fmt.Sprintf("one of %v", algo.LossNames()))
	}
	if err := c.OffPolicy.Validate(); err != nil {
		return setting.Errorf("%s: %w", setting.Name("OffPolicy"), err)
	}
	if err := c.KL.Known(); err != nil {
		return setting.Errorf("%s: %w", setting.Name("KL"), err)
	}
	if _, err := parseNumbers(setting.Name("PartWeights"), c.PartWeights); err != nil {
		return err
	}
	if _, _, _, err := lengthWeights(c.LengthPenalty); err != nil {
		return err
	}
	strategy, scaleRules := lossscale.Split(c.LossScale)
	if _, err := lossscale.Open(scaleRules); err != nil {
		return err
	}
	traits, criticAlgo := c.traits(), withCritic()
	switch {
	case traits.algorithm == nil:
		return bad(setting.Name("Algo"), c.Algo, oneOf(algorithms(isAny)))
	case traits.critic != est.Critic:
		return bad(setting.Name("Advantage"), c.Advantage,
			oneOf(algo.EstimatorsWith(func(e *algo.Estimator) bool { return e.Critic }))+" with "+criticAlgo+", and only there: it needs the critic")
	case strategy == lossscale.All && !c.IsSupervised() && (c.OldLogprobs == OldFile || c.needsRollout()):
		return bad(setting.Name("LossScale"), c.LossScale,
			fmt.Sprintf("%s recompute and no correction with it: tokens that were not sampled have no log-prob in the file",
				setting.Name("OldLogprobs")))
	case c.KLIn != KLInLoss && c.KLIn != KLInReward:
		return bad(setting.Name("KLIn"), c.KLIn, "loss or reward")
	case c.Clip.Dual != 0 && !(c.Clip.Dual > 1 && !math.IsInf(c.Clip.Dual, 0)):
		return bad(setting.Name("Clip.Dual"), c.Clip.Dual, "a number above 1, or 0 for none")
	case !positive(c.SAPOPos) || !positive(c.SAPONeg):
		return bad(setting.Name("SAPOPos"), fmt.Sprintf("%g,%g", c.SAPOPos, c.SAPONeg), "two positive numbers")
	case !positive(c.Threshold):
		return bad(setting.Name("Threshold"), c.Threshold, "a positive number")
	case !least0(c.RolloutKL):
		return bad(setting.Name("RolloutKL"), c.RolloutKL, "a number of at least 0")
	case math.IsNaN(c.EntropyCoef) || math.IsInf(c.EntropyCoef, 0):
		return bad(setting.Name("EntropyCoef"), c.EntropyCoef, "a number")
	case c.Demonstration != DemonstrateNothing && !c.NeedsTeacher():
		return bad(setting.Name("Demonstration"), c.Demonstration, fmt.Sprintf("%s %s with it: it is shown to the teacher", setting.Name("Loss"),
			oneOf(algo.LossesWith(func(l *algo.Loss) bool { return l.Teacher }))))
	case !least0(c.Echo):
		return bad(setting.Name("Echo"), c.Echo, "a number of at least 0")
	case !least0(c.TargetKL):
		return bad(setting.Name("TargetKL"), c.TargetKL, "a positive number, or 0 for none")
	case !(c.Gamma >= 0 && c.Gamma <= 1):
		return bad(setting.Name("Gamma"), c.Gamma, "a number from 0 to 1")
	case !(c.Lambda >= 0 && c.Lambda <= 1):
		return bad(setting.Name("Lambda"), c.Lambda, "a number from 0 to 1")
	case c.DropZeroStd && c.NeedsTeacher():
		return bad(setting.Name("DropZeroStd"), true,
			fmt.Sprintf("another loss with it: %s %s learns from a teacher, whatever the rewards are", setting.Name("Loss"), c.Loss))
	case !least0(c.RewardClip):
		return bad(setting.Name("RewardClip"), c.RewardClip, "a positive number, or 0 for none")
	case c.OverlongBuffer < 0 || c.OverlongLimit < 0 || (c.OverlongBuffer > 0 && c.OverlongLimit < c.OverlongBuffer):
		return bad(setting.Name("OverlongBuffer"), c.OverlongBuffer,
			fmt.Sprintf("a number of tokens up to %s, the length at which replies were cut off", setting.Name("OverlongLimit")))
	case !least0(c.OverlongFactor):
		return bad(setting.Name("OverlongFactor"), c.OverlongFactor, "a number of at least 0")
	case !positive(c.CriticLR):
		return bad(setting.Name("CriticLR"), c.CriticLR, "a positive number")
	case c.CriticWarmup < 0:
		return bad(setting.Name("CriticWarmup"), c.CriticWarmup, "a number of updates")
	case !least0(c.ValueClip):
		return bad(setting.Name("ValueClip"), c.ValueClip, "a positive number, or 0 for none")
	case !least0(c.ValueCoef):
		return bad(setting.Name("ValueCoef"), c.ValueCoef, "a number of at least 0")
	case c.SharedCritic && !traits.critic:
		return bad(setting.Name("SharedCritic"), c.SharedCritic, criticAlgo+" with it")
	case !within(c.EMA):
		return bad(setting.Name("EMA"), c.EMA, "a number from 0 to below 1")
	case !slices.Contains(algo.Aggregations, c.Aggregation):
		return bad(setting.Name("Aggregation"), c.Aggregation, fmt.Sprintf("one of %v", algo.Aggregations))
	case c.OldLogprobs != OldFile && c.OldLogprobs != OldRecompute:
		return bad(setting.Name("OldLogprobs"), c.OldLogprobs, "file or recompute")
	case !(c.Clip.Low >= 0 && c.Clip.Low <= 1): // 1: no bound
		return bad(setting.Name("Clip.Low"), c.Clip.Low, "a number from 0 to 1")
	case !least0(c.Clip.High):
		return bad(setting.Name("Clip.High"), c.Clip.High, "a number of at least 0")
	case !least0(c.KLCoef):
		return bad(setting.Name("KLCoef"), c.KLCoef, "a number of at least 0")
	case !least0(c.MaxLength):
		return bad(setting.Name("MaxLength"), c.MaxLength, "a number of tokens, or 0 for the longest response of the data")
	}
	if err := checkOptimiser(c, bad); err != nil {
		return err
	}
	return cmp.Or(c.validateTogether(bad), c.validateSupervised(bad))
}

// checkOptimiser refuses settings of the steps that mean nothing.
func checkOptimiser(c Config, bad badSetting) error {
	switch {
	case c.Epochs < 1:
		return bad(setting.Name("Epochs"), c.Epochs, "at least 1")
	case c.Minibatch < 0:
		return bad(setting.Name("Minibatch"), c.Minibatch, "a number of trajectories, or 0 for all")
	case c.MicroTokens < 1:
		return bad(setting.Name("MicroTokens"), c.MicroTokens, "at least 1")
	case !positive(c.LR):
		return bad(setting.Name("LR"), c.LR, "a positive number")
	case !slices.Contains(Schedules, c.Schedule):
		return bad(setting.Name("Schedule"), c.Schedule, oneOf(Schedules))
	case !slices.Contains(Schedules, c.EntropySchedule):
		return bad(setting.Name("EntropySchedule"), c.EntropySchedule, oneOf(Schedules))
	case c.WarmupSteps < 0:
		return bad(setting.Name("WarmupSteps"), c.WarmupSteps, "at least 0")
	case !within(c.Beta1) || !within(c.Beta2):
		return bad(setting.Name("Beta1"), fmt.Sprintf("%g,%g", c.Beta1, c.Beta2), "two numbers from 0 to below 1")
	case !positive(c.AdamEps):
		return bad(setting.Name("AdamEps"), c.AdamEps, "a positive number")
	case !least0(c.WeightDecay):
		return bad(setting.Name("WeightDecay"), c.WeightDecay, "at least 0")
	case !least0(c.MaxGradNorm):
		return bad(setting.Name("MaxGradNorm"), c.MaxGradNorm, "a positive number, or 0 for no clipping")
	case c.MaxStaleness < 0:
		return bad(setting.Name("MaxStaleness"), c.MaxStaleness, "a number of versions, or 0 for any")
	case c.SaveEvery < 0:
		return bad(setting.Name("SaveEvery"), c.SaveEvery, "at least 0")
	case !least0(c.PTXCoef):
		return bad(setting.Name("PTXCoef"), c.PTXCoef, "a number of at least 0")
	}
	return nil
}

// Constant is the schedule that keeps a weight as it is.
const Constant = "constant"

// Schedules are how a weight changes over the steps; linear and cosine end at 0.
var Schedules = []string{Constant, "linear", "cosine"}

// Rate is the learning rate of step number `step` (from 1) of `total`: a linear warm-up from
// peak/warmup to peak, then the schedule down to 0.
func (c Config) Rate(peak float64, step, total int) float64 {
	if step <= c.WarmupSteps {
		return peak * float64(step) / float64(c.WarmupSteps)
	}
	left := total - c.WarmupSteps
	if left <= 0 {
		return peak
	}
	return peak * decay(c.Schedule, float64(step-1-c.WarmupSteps)/float64(left))
}

// EntropyCoefAt is the weight of the entropy bonus in step number `step` (from 1) of `total`.
func EntropyCoefAt(c Config, step, total int) float64 {
	return c.EntropyCoef * decay(c.EntropySchedule, float64(step-1)/float64(total))
}

// decay is the factor of a schedule when a share of its steps is done.
func decay(schedule string, done float64) float64 {
	switch schedule {
	case "linear":
		return 1 - done
	case "cosine":
		return (1 + math.Cos(math.Pi*done)) / 2
	}
	return 1
}

// loss are the constants of the policy loss.
func (c Config) loss() algo.LossConfig {
	return algo.LossConfig{Clip: c.Clip, SAPO: [2]float64{c.SAPOPos, c.SAPONeg}, Threshold: c.Threshold, RolloutKL: c.RolloutKL}
}

// ComparesGroups reports whether an attempt is compared with the others of its
// group: then a file without groups teaches nothing.
func (c Config) ComparesGroups() bool {
	est, ok := algo.EstimatorByName(c.Advantage)
	return ok && est.Relative && !c.NeedsTeacher() && !c.IsSupervised()
}

// rewarded reports whether rewards decide anything: distillation learns from a teacher
// alone, unless what it is shown, or which groups are left out, hangs on them.
func (c Config) rewarded() bool {
	return !c.NeedsTeacher() || c.HasCritic() || c.DropZeroStd || c.Demonstration == DemonstrateBest
}

// needsRollout reports whether the file's own log-probs enter the loss.
func (c Config) needsRollout() bool {
	loss, ok := algo.LossByName(c.Loss)
	return ok && loss.NeedsRollout() || c.OffPolicy.Kind != algo.NoCorrection
}

// readsOld reports whether log-probs of the policy before the update decide anything.
func (c Config) readsOld() bool {
	loss, ok := algo.LossByName(c.Loss)
	return ok && loss.NeedsOld() || c.OffPolicy.Kind != algo.NoCorrection || c.klInReward() || c.TargetKL > 0
}

func (c Config) klInReward() bool { return c.KLCoef > 0 && c.KLIn == KLInReward }
func (c Config) klInLoss() bool   { return c.KLCoef > 0 && c.KLIn == KLInLoss }

// validateTogether refuses settings of policy gradients that contradict each other, or
// of which one would be ignored. They may come from a preset or a file.
func (c Config) validateTogether(bad badSetting) error {
	if c.IsSupervised() {
		return nil
	}
	loss, _ := algo.LossByName(c.Loss)
	est, _ := algo.EstimatorByName(c.Advantage)
	inReward := c.klInReward()
	if !est.ReadsScore() && loss.ReadsAdvantage() {
		for _, x := range []struct {
			which setting.Name
			v     any
			set   bool
		}{
			{setting.Name("RewardClip"), c.RewardClip, c.RewardClip > 0}, {setting.Name("OverlongBuffer"), c.OverlongBuffer, c.OverlongBuffer > 0},
			{setting.Name("LengthPenalty"), c.LengthPenalty, shapesByLength(c.LengthPenalty)}, {setting.Name("KLIn"), c.KLIn, inReward},
		} {
			if x.set {
				return bad(x.which, x.v, fmt.Sprintf("another %s with it: %s reads the reward's components, which it does not change",
					setting.Name("Advantage"), c.Advantage))
			}
		}
	}
	switch {
	case c.OffPolicy.Kind != algo.NoCorrection && !loss.CorrectionAllowed():
		return bad(setting.Name("OffPolicy"), c.OffPolicy.Kind,
			fmt.Sprintf("none with %s %s: its ratio is to the log-probs recorded at sampling, so the importance weight would be applied twice",
				setting.Name("Loss"), c.Loss))
	case c.OffPolicy.Kind != algo.NoCorrection && c.OldLogprobs == OldFile:
		return setting.Errorf("%s %s weighs the old log-probs against the file's, and with %s file they are the same; leave one of them out",
			setting.Name("OffPolicy"), c.OffPolicy.Kind, setting.Name("OldLogprobs"))
	case inReward && !loss.ReadsAdvantage() && !c.HasCritic():
		return bad(setting.Name("KLIn"), c.KLIn, fmt.Sprintf("loss with %s %s, which reads no reward", setting.Name("Loss"), c.Loss))
	case inReward && c.KL.Straight():
		return bad(
			setting.Name("KL"), c.KL, fmt.Sprintf("k1, k2 or k3 with %s reward: the others differ from them in the gradient only, "+
				"and none flows through a reward", setting.Name("KLIn")))
	case c.SharedCritic && c.CriticWarmup > 0:
		return bad(setting.Name("CriticWarmup"), c.CriticWarmup,
			fmt.Sprintf("no %s with it: an update of the head alone would move the policy's backbone", setting.Name("SharedCritic")))
	}
	return nil
}

// shapesByLength reports whether a length penalty has a weight that is not 0.
func shapesByLength(penalty string) bool {
	w, err := parseNumbers(setting.Name("LengthPenalty"), penalty)
	return err == nil && slices.ContainsFunc(w, func(x float64) bool { return x != 0 })
}

// validateSupervised names the first setting of Supervised that is wrong.
func (c Config) validateSupervised(bad badSetting) error {
	s := c.Supervised
	switch {
	case !(s.DPOBeta > 0) || math.IsInf(s.DPOBeta, 0):
		return bad(setting.Name("DPOBeta"), s.DPOBeta, "a positive number")
	case !(s.LabelSmoothing >= 0 && s.LabelSmoothing < .5):
		return bad(setting.Name("LabelSmoothing"), s.LabelSmoothing, "a number from 0 to below 0.5")
	case s.LabelSmoothing > 0 && s.DPOLoss != string(algo.DPOSigmoid):
		return bad(setting.Name("LabelSmoothing"), s.LabelSmoothing,
			fmt.Sprintf("%s sigmoid with it: the others know no smoothing", setting.Name("DPOLoss")))
	case s.Pairs != rows.PairsBestWorst && s.Pairs != rows.PairsAll:
		return bad(setting.Name("Pairs"), s.Pairs, "best-worst or all")
	case s.RMLoss != RMPairwise && s.RMLoss != RMLogExp:
		return bad(setting.Name("RMLoss"), s.RMLoss, "pairwise")
	}
	if _, _, err := algo.DPO(algo.DPOKind(s.DPOLoss), 0, 0, 0, 0, 1, 0); err != nil {
		return bad(setting.Name("DPOLoss"), s.DPOLoss, "sigmoid, ipo or hinge")
	}
	if !c.IsSupervised() {
		return nil
	}
	for _, x := range []struct {
		which setting.Name
		v     float64
	}{{setting.Name("KLCoef"), c.KLCoef}, {setting.Name("EntropyCoef"), c.EntropyCoef},
		{setting.Name("Echo"), c.Echo}, {setting.Name("PTXCoef"), c.PTXCoef}} {
		if x.v != 0 {
			return bad(x.which, x.v, fmt.Sprintf("no %s %s with it: that is a term of policy gradients", setting.Name("Algo"), c.Algo))
		}
	}
	return nil
}
