package train

import (
	"fmt"

	"agentcli/internal/setting"
	"agentcli/trainer/metrics"
)

// Where a number of a run becomes a bad sign. A first step of Adam at a rate that
// learns well clips up to half of the tokens and moves the policy by up to 1.4
// nats a token, and says nothing.
const (
	manyAlike    = .5  // share of groups without spread
	manyCut      = .5  // share of replies at their length limit
	farKL        = 2   // nats a token, old to new
	manyClipped  = .6  // share of tokens
	farRatio     = 1e4 // new to old probability of one token
	collapsed    = .1  // entropy of the last step, as a share of the first one's
	manyToolFail = .5  // share of tool calls
	moreToolFail = .1  // by which that share grew from the first third of a run to its last
)

// WarningSigns names, in plain words, the known signs that a run goes wrong.
func WarningSigns(curves map[string]*metrics.Curve) (signs []string) {
	say := func(format string, a ...any) { signs = append(signs, fmt.Sprintf(format, a...)) }
	series := func(key string) []float64 { // of the steps that measured it
		if c := curves[key]; c != nil {
			return c.Y
		}
		return nil
	}
	mean := func(key string) float64 { return average(series(key)) }
	most := func(key string) (x float64) {
		for _, v := range series(key) {
			x = max(x, v)
		}
		return x
	}
	if z := mean("frac_reward_zero_std"); z > manyAlike {
		say("in %.0f %% of the groups all attempts have the same reward; they teach nothing (sample tasks of middling difficulty)", 100*z)
	}
	if c := mean("response_length/clip_ratio"); c > manyCut {
		say("%.0f %% of the replies were cut off at their length limit (raise %s where they are sampled)", 100*c, setting.Name("MaxTokens"))
	}
	if f := mean("tool_error_rate"); f > manyToolFail {
		say("%.0f %% of the tool calls failed (inspect shows what the model was told)", 100*f)
	}
	if f := series("tool_error_rate"); len(f) >= 3 {
		third := len(f) / 3
		before, after := average(f[:third]), average(f[len(f)-third:])
		alike := series("frac_reward_zero_std")
		if alike = alike[len(alike)-min(third, len(alike)):]; after > before+moreToolFail && average(alike) > manyAlike {
			say("ever more tool calls fail (%.0f %%, then %.0f %%) while %.0f %% of the groups teach nothing: the few that do "+
				"move the policy by whole steps (lower %s, or sample more tasks a step)", 100*before, 100*after, 100*average(alike), setting.Name("LR"))
		}
	}
	kl, clipped, ratio := most("actor/ppo_kl"), most("actor/pg_clipfrac"), most("actor/ratio/max")
	if kl > farKL || clipped > manyClipped || ratio > farRatio {
		say("the policy has moved far from the one that sampled: KL up to %.2g nats a token, %.0f %% of the tokens clipped, "+
			"one token %.2g times as probable (lower %s or %s; %s ends such a run early)", kl, 100*clipped,
			ratio, setting.Name("LR"), setting.Name("Epochs"), setting.Name("TargetKL"))
	}
	if e := series("actor/entropy"); len(e) > 1 && e[0] > 0 && e[len(e)-1] < collapsed*e[0] {
		say("the entropy fell from %.2g to %.2g nats a token: attempts of one task will hardly differ any more, "+
			"and there will be nothing to compare (stop here if the model is good enough; else lower %s, or give %s)",
			e[0], e[len(e)-1], setting.Name("LR"), setting.Name("EntropyCoef"))
	}
	return signs
}

// average of no numbers is 0.
func average(numbers []float64) float64 {
	sum := 0.0
	for _, v := range numbers {
		sum += v
	}
	return sum / float64(max(len(numbers), 1))
}
