package main

import (
	"context"
	"slices"
	"strings"

	"agentcli/trainer"
	"agentcli/trainer/algo"
	"agentcli/weights"

	"github.com/urfave/cli/v2"
)

// idle are flags, with blanks between them, that have an effect only where acts is
// true. why goes behind "has no effect".
type idle struct {
	flags string
	acts  bool
	why   string
}

// idleNames are those flags of train and loop that name a file or a model: they are
// refused wherever they come from. A file of settings has the others in any case, as
// --print-config writes it.
func (o trainOptions) idleNames() []idle {
	g := o.Config
	noRewards := "with --algo " + g.Algo + ", which takes no rewards; leave it out"
	return []idle{
		{"critic", g.Algo == trainer.AlgoPPO && !g.SharedCritic, "without --algo ppo, nor with --shared-critic"},
		{"teacher", g.Loss == "opd", "without --loss opd"},
		{"reward-model", !g.IsSupervised(), noRewards},
		{"reward", !g.IsSupervised() || g.TakesPairs(), noRewards},
		{"ptx", !g.IsSupervised(), "with --algo " + g.Algo + ": it is added to policy gradients"},
		{"ref", g.KLCoef != 0 || g.Algo == trainer.AlgoDPO, "without --kl-coef; give that too, for example --kl-coef 0.01"},
		{"greedy", g.Advantage == remax, "without --advantage remax"},
	}
}

// idleSettings are those that set how something is computed.
func (o trainOptions) idleSettings() []idle {
	g := o.Config
	loss, ok := algo.LossByName(g.Loss)
	trustRegion := ok && loss.Rollout
	policy, critic := !g.IsSupervised(), g.Algo == trainer.AlgoPPO
	is := func(name string, any ...string) bool { return slices.Contains(any, name) }
	noPolicy := "with --algo " + g.Algo + ": it is of policy gradients; leave it out"
	// What a teacher says stands in the place of rewards, unless groups are left out by them.
	rewarded := policy && (g.Loss != "opd" || critic || g.DropZeroStd)
	noRewarded := noPolicy
	if policy {
		noRewarded = "with --loss opd, whose advantages are a teacher's; leave it out"
	}
	return []idle{
		{"loss old-logprobs off-policy target-kl", policy, noPolicy},
		{"drop-zero-std", policy && !critic, "with --algo " + g.Algo + ", which compares no attempts; leave it out"},
		{"advantage reward-clip overlong-buffer length-penalty", rewarded, noRewarded},
		{"overlong-filter", policy, noPolicy},
		{"overlong-limit overlong-factor", g.OverlongBuffer > 0, "without --overlong-buffer; give that too, or leave it out"},
		{"aggregation", policy || g.Algo == trainer.AlgoSFT, "with --algo " + g.Algo + ", which has a mean of its own; leave it out"},
		{"max-length", (policy || g.Algo == trainer.AlgoSFT) && g.Aggregation == algo.SeqMeanTokenSumNorm, "without --aggregation " + string(algo.SeqMeanTokenSumNorm) + "; give that too, or leave it out"},
		{"loss-scale", !is(g.Algo, trainer.AlgoRM, trainer.AlgoPRM), "with --algo " + g.Algo + "; leave it out"},
		{"clip-low clip-high", policy && is(g.Loss, "ppo", "gspo", "cispo", "gmpo"), "without --loss ppo, gspo, cispo or gmpo; leave it out"},
		{"clip-dual", policy && is(g.Loss, "ppo", "gspo"), "without --loss ppo or gspo; leave it out"},
		{"sapo-pos sapo-neg", policy && g.Loss == "sapo", "without --loss sapo; give that too, or leave it out"},
		{"threshold rollout-kl", policy && trustRegion, "without --loss dppo, ipo or opd; leave it out"},
		{"off-policy-low off-policy-high", policy && g.OffPolicy.Kind != algo.NoCorrection, "without --off-policy; give that too, for example --off-policy tis"},
		{"kl kl-in", policy && g.KLCoef != 0, "without --kl-coef; give that too, for example --kl-coef 0.01"},
		{"gamma", policy && is(g.Advantage, "reinforce", "reinforce++", "gae"), "without --advantage reinforce, reinforce++ or gae; leave it out"},
		{"lambda", policy && critic, "without --algo ppo; leave it out"},
		{"part-weights", policy && g.Advantage == "gdpo", "without --advantage gdpo; give that too, or leave it out"},
		{"critic-warmup value-clip", critic, "without --algo ppo; give that too, or leave it out"},
		{"critic-lr", critic && !g.SharedCritic, "without --algo ppo, nor with --shared-critic; leave it out"},
		{"value-coef", critic && g.SharedCritic, "without --shared-critic; give that too, or leave it out"},
		{"dpo-beta dpo-loss label-smoothing", g.Algo == trainer.AlgoDPO, "without --algo dpo; leave it out"},
		{"pairs", g.TakesPairs(), "without --algo dpo or rm; leave it out"},
		{"rm-loss", g.Algo == trainer.AlgoRM, "without --algo rm; leave it out"},
		{"prm-token prm-tokens", g.Algo == trainer.AlgoPRM, "without --algo prm; leave it out"},
		{"ptx-coef", o.PTX != "", "without --ptx; name its file too, or leave it out"},
	}
}

// idleSettings are those of train and the one of a loop. switched: --kl-target is given,
// and whoever switches it off himself knows what that leaves without effect, as with
// --eval-every 0.
func (o loopOptions) idleSettings(switched bool) []idle {
	return append(o.train.idleSettings(), idle{"kl-horizon", switched || o.KLTarget > 0, "without --kl-target; give that too, or leave it out"})
}

// givenFlags are the flags that the command line, before any file was applied, asks
// something by: one that switches off what is off by default asks for nothing.
func givenFlags(c *cli.Context) map[string]bool {
	given := map[string]bool{}
	for _, f := range c.Command.Flags {
		name := f.Names()[0]
		given[name] = slices.ContainsFunc(f.Names(), c.IsSet) && !(isOff(c.Value(name)) && isOff(defaultOf(f)))
	}
	return given
}

func isOff(v any) bool {
	switch v {
	case 0, int64(0), 0., "", false:
		return true
	}
	return false
}

// defaultOf is what a flag is where nobody sets it; nil of a kind that trains nothing.
func defaultOf(f cli.Flag) any {
	switch f := f.(type) {
	case *cli.StringFlag:
		return f.Value
	case *cli.BoolFlag:
		return f.Value
	case *cli.IntFlag:
		return f.Value
	case *cli.Int64Flag:
		return f.Value
	case *cli.Float64Flag:
		return f.Value
	}
	return nil
}

// refuseIdle refuses the first of the flags that is given and has no effect: whoever
// gives it expects one. named gives the value of one that names something.
func refuseIdle(list []idle, given func(flag string) (value string, ok bool)) error {
	for _, x := range list {
		if x.acts {
			continue
		}
		for flag := range strings.FieldsSeq(x.flags) {
			if value, ok := given(flag); ok {
				return usagef("--%s has no effect %s", strings.TrimSpace(flag+" "+value), x.why)
			}
		}
	}
	return nil
}

// refuseIdleNames is for what the run would use, wherever it was named.
func (o trainOptions) refuseIdleNames() error {
	names := map[string]string{"critic": o.Critic, "teacher": o.Teacher, "reward-model": o.RewardModel, "reward": o.Reward, "ptx": o.PTX, "ref": o.Ref, "greedy": o.Greedy}
	return refuseIdle(o.idleNames(), func(flag string) (string, bool) { return names[flag], names[flag] != "" })
}

// refuseIdleGiven is for what the command line gives.
func refuseIdleGiven(list []idle, given map[string]bool) error {
	return refuseIdle(list, func(flag string) (string, bool) { return "", given[flag] })
}

// refuseIdleLoRA refuses settings of adapters for a run that trains none: path is the
// model that it starts from.
func (o trainOptions) refuseIdleLoRA(path string) error {
	l := o.Open.LoRA
	acts := l.Rank > 0 || weights.IsAdapter(path)
	set := map[string]bool{"lora-alpha": l.Alpha != 0, "lora-targets": len(l.Targets) > 0, "lora-dropout": l.Dropout != 0}
	return refuseIdleGiven([]idle{{"lora-alpha lora-targets lora-dropout", acts, "without --lora-rank, for " + path + " is no adapter; give the rank too, for example --lora-rank 16"}}, set)
}

// startsFrom is the path of the model that a loop will start from, as far as it is
// known without asking the hub.
func (o trainOptions) startsFrom(ctx context.Context) (string, bool) {
	if o.Model == "" {
		return defaultModelPath(), true
	}
	return cachedModel(ctx, o.Model)
}
