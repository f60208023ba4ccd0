package trainer

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"agentcli/lossscale"
	"agentcli/trainer/algo"
	"agentcli/trainer/episode"
	"agentcli/trainer/rows"
	"agentcli/traj"
)

// changes give each setting whose effect depends on others another value than the
// walk below has.
var changes = map[string]func(*Config){
	"loss": func(c *Config) {
		if c.Loss = "cispo"; c.OffPolicy.Kind != algo.NoCorrection || c.klInReward() {
			c.Loss = "sapo"
		}
	},
	"target-kl":     func(c *Config) { c.TargetKL = 1e-9 },
	"max-staleness": func(c *Config) { c.MaxStaleness = 1 },
	"router-replay": func(c *Config) { c.RouterReplay = true },
	"old-logprobs":  func(c *Config) { c.OldLogprobs = OldFile },
	"off-policy": func(c *Config) {
		if c.OffPolicy = (algo.Correction{Kind: algo.IcePop, Low: .6, High: 1.3}); true {
			c.OldLogprobs = OldRecompute
		}
	},
	"drop-zero-std": func(c *Config) { c.DropZeroStd = true },
	"advantage": func(c *Config) {
		if c.Algo != AlgoPPO { // which takes gae alone
			c.Advantage = map[bool]string{true: "rloo", false: "grpo"}[c.Advantage == "grpo"]
		}
	},
	"reward-clip":      func(c *Config) { c.RewardClip = .4 },
	"overlong-buffer":  func(c *Config) { c.OverlongBuffer, c.OverlongLimit = 2, 5 },
	"length-penalty":   func(c *Config) { c.LengthPenalty = ".5,0,0" },
	"overlong-filter":  func(c *Config) { c.OverlongFilter = true },
	"overlong-limit":   func(c *Config) { c.OverlongLimit = 7 },
	"overlong-factor":  func(c *Config) { c.OverlongFactor = .5 },
	"aggregation":      func(c *Config) { c.Aggregation = algo.SeqMeanTokenSum },
	"max-length":       func(c *Config) { c.MaxLength = 31 },
	"loss-scale":       func(c *Config) { c.LossScale = lossscale.LastRound },
	"clip-low":         func(c *Config) { c.Clip.Low = .01 },
	"clip-high":        func(c *Config) { c.Clip.High = .01 },
	"clip-dual":        func(c *Config) { c.Clip.Dual = 1.01 },
	"sapo-pos":         func(c *Config) { c.SAPOPos = 3 },
	"sapo-neg":         func(c *Config) { c.SAPONeg = 3 },
	"threshold":        func(c *Config) { c.Threshold = .01 },
	"rollout-kl":       func(c *Config) { c.RolloutKL = .1 },
	"off-policy-low":   func(c *Config) { c.OffPolicy.Low = .95 },
	"off-policy-high":  func(c *Config) { c.OffPolicy.High = 1.05 },
	"entropy-schedule": func(c *Config) { c.EntropySchedule = "linear" },
	"kl":               func(c *Config) { c.KL = algo.KLK2 },
	"kl-in":            func(c *Config) { c.KLIn = map[string]string{KLInLoss: KLInReward, KLInReward: KLInLoss}[c.KLIn] },
	"gamma":            func(c *Config) { c.Gamma = .5 },
	"lambda":           func(c *Config) { c.Lambda = .5 },
	"part-weights":     func(c *Config) { c.PartWeights = "3,1" },
	"critic-lr":        func(c *Config) { c.CriticLR = .01 },
	"critic-warmup":    func(c *Config) { c.CriticWarmup = 1 },
	"value-clip":       func(c *Config) { c.ValueClip = .01 },
	"value-coef":       func(c *Config) { c.ValueCoef = 2 },
	"dpo-beta":         func(c *Config) { c.Supervised.DPOBeta = 3 },
	"dpo-loss":         func(c *Config) { c.Supervised.DPOLoss = "hinge" },
	"label-smoothing":  func(c *Config) { c.Supervised.LabelSmoothing = .1 },
	"pairs":            func(c *Config) { c.Supervised.Pairs = rows.PairsAll },
	"rm-loss":          func(c *Config) { c.Supervised.RMLoss = RMLogExp },
	"prm-token":        func(c *Config) { c.Supervised.PRMToken = "x" },
	"prm-tokens":       func(c *Config) { c.Supervised.PRMTokens = "a,b" },
}

// few are the tokens of these corpora.
const few = 5

// drawn is a corpus by a seed: groups of rows over few tokens, so that they share
// transitions, one of them without spread, with every column that a setting reads.
func drawn(seed uint64) []*episode.Episode {
	r := rand.New(rand.NewPCG(seed, 5))
	text := func() string {
		b := []byte("ab")
		for range 2 + r.IntN(6) {
			b = append(b, "CDEcd"[r.IntN(5)])
		}
		return string(append(b, "CDE"[r.IntN(3)]))
	}
	start := newBigram(few, 1)
	var episodes []*episode.Episode
	for g, scores := range [][]float64{{1, 0, .5}, {1, 1}, {3, .25, -1}} {
		for i, score := range scores {
			texts := []string{text()}
			if i == 0 {
				texts = append(texts, text())
			}
			e := attempt(fmt.Sprint(g), score, texts...)
			e.ID = fmt.Sprint(len(episodes))
			e.Parts = []traj.Part{{Name: "a", Value: float64((g + i) % 3)}, {Name: "b", Value: score * score}}
			if g == 1 {
				e.Parts = []traj.Part{{Name: "a", Value: 1}, {Name: "b", Value: 2}}
			}
			e.LastRound = len(e.Sequences[len(e.Sequences)-1].TokenIDs) - 1
			greedy := .3
			e.GreedyScore = &greedy
			// Tokens are apart from the recorded ones in both directions, and so are whole rows.
			apart(start, e, r.NormFloat64()/3, r.NormFloat64()/3, r.NormFloat64()/9)
			episodes = append(episodes, e)
		}
	}
	episodes[2].Termination = traj.TurnLength
	for _, e := range episodes[3:] {
		e.PolicyVersion = 5 // those before are of version 0, but for two of the first group
	}
	episodes[0].PolicyVersion, episodes[1].PolicyVersion = 4, 4
	return episodes
}

// walked trains on a drawn corpus and gives all gradients of all steps.
func walked(t *testing.T, c Config, seed uint64) []float64 {
	t.Helper()
	episodes, actor := drawn(seed), newBigram(few, 1)
	c.LR = []float64{1, 3, .3}[seed%3]
	if seed%4 == 3 { // something that also makes likelier what is rewarded less
		c.EntropyCoef = .3
	}
	actor.sgd = true
	data := &rows.Data{Episodes: episodes}
	if err := DropUnfit(data, 1<<20, c); err != nil {
		t.Fatal(err)
	}
	s := Trainer{Models: Models{Actor: actor, Ref: newBigram(few, 2), Teacher: newBigram(few, 3)}, Config: c, Data: data, Clock: still}
	var critic *bigram
	if c.Algo == AlgoPPO {
		critic = newBigram(few, 4)
		critic.values, critic.valueGrad = []float64{.3, -.2, .5, 1, -.7}, make([]float64, few)
		if c.SharedCritic {
			actor.values, actor.valueGrad = critic.values, critic.valueGrad
		} else {
			s.Critic = critic
		}
	}
	if err := s.Run(context.Background()); err != nil {
		t.Fatalf("%+v: %v", c, err)
	}
	var all []float64
	for _, m := range []*bigram{actor, critic} {
		if m == nil {
			continue
		}
		for i := range m.steps {
			all = append(all, m.steps[i]...)
			if m.valueSteps != nil {
				all = append(all, m.valueSteps[i]...)
			}
		}
	}
	return all
}

// sameGradients: every gradient of every step, but for rounding.
func sameGradients(a, b []float64) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, math.IsNaN) && gap(a, b) < 1e-12
}

// The table of losses and estimators is what is true: every setting that a combination
// accepts changes a gradient, and every one that it refuses would have changed none.
func TestEverySettingThatACombinationTakesChangesAGradient(t *testing.T) {
	for _, loss := range algo.LossNames() {
		t.Run(loss, func(t *testing.T) {
			t.Parallel()
			walkLoss(t, loss)
		})
	}
}

func walkLoss(t *testing.T, loss string) {
	combinations := 0
	for _, est := range algo.EstimatorNames() {
		for _, off := range algo.Corrections {
			for _, kl := range []string{"", KLInLoss, KLInReward} {
				for _, shared := range []bool{false, true} {
					c := config()
					c.Loss, c.Advantage, c.Gamma = loss, est, .9
					c.Epochs = 3
					c.Clip, c.Aggregation, c.OverlongFactor = algo.Clip{Low: .2, High: .3}, algo.SeqMeanTokenSumNorm, 1
					if off != algo.NoCorrection {
						c.OffPolicy = algo.Correction{Kind: off, Low: .8, High: 1.2}
					}
					if kl != "" {
						c.KLCoef, c.KLIn, c.KL = .3, kl, algo.KLK1
					}
					if est == "gae" {
						c.Algo, c.Lambda, c.CriticLR, c.ValueClip, c.SharedCritic = AlgoPPO, .8, .5, .2, shared
					} else if shared {
						continue
					}
					if c.Validate() != nil {
						continue
					}
					combinations++
					if combinations%walkEvery != 0 {
						continue
					}
					walk(t, combinations, c, fmt.Sprintf("--algo %s --loss %s --advantage %s --off-policy %s --kl-in %q --shared-critic=%v",
						c.Algo, loss, est, off, kl, c.SharedCritic))
				}
			}
		}
	}
	if combinations < 16 {
		t.Errorf("only %d combinations were walked", combinations)
	}
}

func walk(t *testing.T, n int, c Config, name string) {
	t.Helper()
	var base [seeds][]float64
	moves := func(with Config, seed int) bool {
		if base[seed] == nil {
			base[seed] = walked(t, c, uint64(seed))
		}
		return !sameGradients(base[seed], walked(t, with, uint64(seed)))
	}
	for _, x := range c.Applicability() {
		for flag := range strings.FieldsSeq(x.Flags) {
			change, ok := changes[flag]
			if !ok {
				t.Fatalf("--%s is walked nowhere", flag)
			}
			with := c
			change(&with)
			if with.Validate() != nil || with == c {
				continue // refused in so many words
			}
			if !x.Acts {
				if n%7 != 0 {
					continue // most of them are refused for the same reason everywhere
				}
				meant := flag == "advantage" // refused for what they mean, not for having no effect
				if !meant && moves(with, 0) {
					t.Errorf("%s: --%s is refused %q and changes a gradient", name, flag, x.Why)
				}
				continue
			}
			if flag == "target-kl" || flag == "router-replay" {
				continue // one ends a run and is in no gradient, the other acts within a model that has experts
			}
			seed := 0
			for seed < seeds && !moves(with, seed) {
				seed++
			}
			if seed == seeds {
				t.Errorf("%s: --%s is accepted and changes no gradient", name, flag)
			}
		}
	}
}

// seeds is how many corpora a setting may take to show what it does: a bound, for
// example, acts only where something is beyond it.
const seeds = 24
