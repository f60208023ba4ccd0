package trainer

import (
	"fmt"
	"strings"

	"agentcli/internal/setting"
	"agentcli/trainer/algo"
)

// Applicability is a group of flags, with blanks between them, that have an effect only where
// Acts is true. Why completes "--flag has no effect …".
type Applicability struct {
	Flags string
	Acts  bool
	Why   string
}

// Applicability are those of the configuration's flags whose effect depends on the others,
// by the columns of algo.Losses and algo.Estimators.
func (c Config) Applicability() []Applicability {
	loss, ok := algo.LossByName(c.Loss)
	if !ok {
		loss = &algo.Loss{}
	}
	est, ok := algo.EstimatorByName(c.Advantage)
	if !ok {
		est = &algo.Estimator{}
	}
	policy, critic := !c.IsSupervised(), c.HasCritic()
	with := func(which setting.Name, value string) string { return fmt.Sprintf("with %s %s", which, value) }
	reads := func(any algo.Constant) bool { return policy && loss.Reads&any != 0 }
	noPolicy := with(setting.Name("Algo"), c.Algo) + ": it is of policy gradients; leave it out"
	// What a teacher says replaces rewards.
	rewarded := policy && (loss.ReadsAdvantage() || critic)
	noReward, noShape := noPolicy, noPolicy
	if policy {
		noReward = with(setting.Name("Loss"), c.Loss) + ", whose advantages are a teacher's; leave it out"
		noShape = noReward
	}
	if rewarded {
		noShape = with(setting.Name("Advantage"), c.Advantage) + ", which reads the reward's components and not the reward; leave it out"
	}
	negative := rewarded && est.Negative()
	low := algo.ClipLow
	if negative {
		low |= algo.ClipLowOfNegative
	}
	without := func(which setting.Name, names []string, then string) string {
		return fmt.Sprintf("without %s %s%s", which, oneOf(names), then)
	}
	noNegative := func(why string) string {
		if policy && !negative {
			return with(setting.Name("Advantage"), c.Advantage) + ", whose advantages are never negative; leave it out"
		}
		return why
	}
	leave, give := "; leave it out", "; give that too, or leave it out"
	clips := without(setting.Name("Loss"), algo.LossesReading(algo.ClipHigh), leave)
	noLow := clips
	if reads(algo.ClipLowOfNegative) {
		noLow = noNegative(clips)
	}
	noDual := without(setting.Name("Loss"), algo.LossesReading(algo.ClipDual), leave)
	if reads(algo.ClipDual) {
		noDual = noNegative(noDual)
	}
	noGate := without(setting.Name("Loss"), algo.LossesReading(algo.GateTemperatures), give)
	noGateNegative := noGate
	if reads(algo.GateTemperatures) {
		noGateNegative = noNegative(noGate)
	}
	noOld := noPolicy
	if policy {
		noOld = with(setting.Name("Loss"), c.Loss) + ", which does not read the log-probs before the update; leave it out"
	}
	noCorrection := noPolicy
	if policy {
		noCorrection = with(setting.Name("Loss"), c.Loss) + ", whose ratio is to the log-probs recorded at sampling already; leave it out"
	}
	settings := []Applicability{
		{"loss target-kl max-staleness drop-zero-std router-replay", policy, noPolicy},
		{"old-logprobs", policy && c.readsOld(), noOld},
		{"off-policy", policy && loss.CorrectionAllowed(), noCorrection},
		{"advantage", rewarded, noReward},
		{"reward-clip overlong-buffer length-penalty", rewarded && est.ReadsScore(), noShape},
		{"overlong-filter", policy, noPolicy},
		{"overlong-limit overlong-factor", policy && c.OverlongBuffer > 0,
			fmt.Sprintf("without %s; give that too, or leave it out", setting.Name("OverlongBuffer"))},
		{"aggregation", c.traits().aggregated, with(setting.Name("Algo"), c.Algo) + ", which has a mean of its own; leave it out"},
		{"max-length", c.traits().aggregated && c.Aggregation == algo.SeqMeanTokenSumNorm,
			without(setting.Name("Aggregation"), []string{string(algo.SeqMeanTokenSumNorm)}, give)},
		{"loss-scale", c.traits().layOut == nil, with(setting.Name("Algo"), c.Algo) + "; leave it out"},
		{"clip-low", reads(low), noLow},
		{"clip-high", reads(algo.ClipHigh), clips},
		{"clip-dual", reads(algo.ClipDual) && negative, noDual},
		{"sapo-pos", reads(algo.GateTemperatures), noGate},
		{"sapo-neg", reads(algo.GateTemperatures) && negative, noGateNegative},
		{"threshold rollout-kl", reads(algo.TrustRegion), without(setting.Name("Loss"), algo.LossesReading(algo.TrustRegion), leave)},
		{"off-policy-low off-policy-high", policy && c.OffPolicy.Kind != algo.NoCorrection, missing(setting.Name("OffPolicy"), "tis")},
		{"entropy-schedule", policy && c.EntropyCoef != 0, missing(setting.Name("EntropyCoef"), "0.01")},
		{"kl kl-in", policy && c.KLCoef != 0, missing(setting.Name("KLCoef"), "0.01")},
		{"gamma", rewarded && est.Discounts, without(setting.Name("Advantage"),
			algo.EstimatorsWith(func(e *algo.Estimator) bool { return e.Discounts }), leave)},
		{"lambda", critic, "without " + withCritic() + leave},
		{"part-weights", rewarded && est.Parts,
			without(setting.Name("Advantage"), algo.EstimatorsWith(func(e *algo.Estimator) bool { return e.Parts }), give)},
		{"value-clip", critic, "without " + withCritic() + give},
		{"critic-lr critic-warmup", critic && !c.SharedCritic,
			"without " + withCritic() + fmt.Sprintf(", nor with %s", setting.Name("SharedCritic")) + leave},
		{"value-coef", critic && c.SharedCritic, fmt.Sprintf("without %s; give that too, or leave it out", setting.Name("SharedCritic"))},
		{"pairs", c.TakesPairs(), without(setting.Name("Algo"), algorithms(func(a traits) bool { return a.pairs }), leave)},
	}
	for _, a := range registry {
		if a.flags != nil {
			settings = append(
				settings, Applicability{strings.Join(a.flags, " "), c.Algo == a.name, without(setting.Name("Algo"), []string{a.name}, leave)})
		}
	}
	return settings
}

// missing is why a setting has no effect where another, which has no default, is not given.
func missing(which setting.Name, example string) string {
	return fmt.Sprintf("without %s; give that too, for example %s %s", which, which, example)
}

// oneOf lists names for a sentence: a, b or c.
func oneOf(names []string) string {
	n := len(names)
	if n < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:n-1], ", ") + " or " + names[n-1]
}
