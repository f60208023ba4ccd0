package train

import (
	"strings"
	"testing"

	"agentcli/trainer/metrics"
)

func TestBadSignsAreNamed(t *testing.T) {
	of := func(pairs ...any) map[string]*metrics.Curve {
		m := map[string]*metrics.Curve{}
		for i := 0; i < len(pairs); i += 2 {
			y, _ := pairs[i+1].([]float64)
			name, _ := pairs[i].(string)
			m[name] = &metrics.Curve{Y: y}
		}
		return m
	}
	for name, tc := range map[string]struct {
		curves map[string]*metrics.Curve
		want   string // "": nothing is said
	}{
		"a run that learns": {of("actor/ppo_kl", []float64{0, 1.4}, "actor/pg_clipfrac", []float64{0, .5}, "actor/ratio/max", []float64{1, 300},
			"actor/entropy", []float64{1, .2}, "frac_reward_zero_std", []float64{.3, .4}, "response_length/clip_ratio",
			[]float64{.1}, "tool_error_rate", []float64{.3}), ""},
		"nothing measured": {of(), ""},
		"zero spread":      {of("frac_reward_zero_std", []float64{.9, .7}), "in 80 % of the groups"},
		"all truncated":    {of("response_length/clip_ratio", []float64{1, .8}), "90 % of the replies were cut off"},
		"tools fail":       {of("tool_error_rate", []float64{.75}), "75 % of the tool calls failed"},
		"refused calls rise while few groups teach": {of("tool_error_rate", []float64{.02, .03, .05, .1, .2, .3},
			"frac_reward_zero_std", []float64{.1, .2, .3, .4, .7, .8}), "(2 %, then 25 %) while 75 % of the groups"},
		"refused calls rise and groups teach": {of("tool_error_rate", []float64{.02, .03, .05, .1, .2, .3},
			"frac_reward_zero_std", []float64{.1, .2, .1, .1, .2, .1}), ""},
		"few groups teach a model that calls well": {of("tool_error_rate", []float64{.05, .03, .05, .04, .02, .01},
			"frac_reward_zero_std", []float64{.1, .2, .3, .4, .7, .8}), ""},
		"far away":          {of("actor/ppo_kl", []float64{0, 3, 1}), "KL up to 3 nats"},
		"all clipped":       {of("actor/pg_clipfrac", []float64{.7}), "70 % of the tokens clipped"},
		"one ratio":         {of("actor/ratio/max", []float64{1, 2e5}), "one token 2e+05 times as probable"},
		"entropy collapse":  {of("actor/entropy", []float64{1.5, .4, .01}), "fell from 1.5 to 0.01"},
		"certain at once":   {of("actor/entropy", []float64{0, 0}), ""},
		"one step has none": {of("actor/entropy", []float64{.01}), ""},
	} {
		got := WarningSigns(tc.curves)
		if tc.want == "" && len(got) > 0 || tc.want != "" && (len(got) != 1 || !strings.Contains(got[0], tc.want)) {
			t.Errorf("%s: %q", name, got)
		}
	}
}
