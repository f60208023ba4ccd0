package trainer

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"agentcli/trainer/algo"
	"agentcli/trainer/episode"
	"agentcli/trainer/rows"
)

// weighedRun is a run of one step whose gradient and metrics are looked at.
type weighedRun struct {
	name     string
	linear   bool // its loss is linear in the weights
	episodes func() []*episode.Episode
	run      func(t *testing.T, episodes []*episode.Episode) (gradient []float64, m Metrics)
}

// weighedRuns are all losses, aggregations and terms that have weights of tokens.
func weighedRuns() (all []weighedRun) {
	sampled := func() []*episode.Episode {
		episodes := corpus()
		record(.2, newBigram(vocab, 1), episodes)
		for _, e := range episodes {
			for i := range e.Sequences {
				e.Sequences[i].Weights = nil
			}
		}
		return episodes
	}
	policyRun := func(c Config) func(t *testing.T, episodes []*episode.Episode) ([]float64, Metrics) {
		return func(t *testing.T, episodes []*episode.Episode) ([]float64, Metrics) {
			actor, critic := newBigram(vocab, 1), newCritic(4)
			frozen := func(s *Trainer) { s.Ref, s.Teacher = newBigram(vocab, 2), newBigram(vocab, 3) }
			if c.Algo != AlgoPPO {
				m := train(t, actor, c, episodes, frozen)
				return actor.steps[0], m[0]
			}
			if c.SharedCritic {
				actor.values, actor.valueGrad = critic.values, critic.valueGrad
				m := trainPPO(t, actor, nil, c, episodes, frozen)
				return slices.Concat(actor.steps[0], actor.valueSteps[0]), m[0]
			}
			m := trainPPO(t, actor, critic, c, episodes, frozen)
			return slices.Concat(actor.steps[0], critic.valueSteps[0]), m[0]
		}
	}
	policyGradient := func(name string, change func(c *Config)) {
		c := config()
		c.Advantage, c.OldLogprobs = "dr_grpo", OldFile
		c.Clip = algo.Clip{Low: .9, High: 9}
		change(&c)
		all = append(all, weighedRun{name, true, sampled, policyRun(c)})
	}
	for _, loss := range algo.LossNames() {
		for _, a := range algo.Aggregations {
			policyGradient(fmt.Sprint(loss, " ", a), func(c *Config) { c.Loss, c.Aggregation = loss, a })
		}
	}
	policyGradient("entropy", func(c *Config) { c.EntropyCoef = .3 })
	policyGradient("kl in the loss", func(c *Config) { c.KLCoef = .2 })
	policyGradient("tis", func(c *Config) { c.OldLogprobs, c.OffPolicy = OldRecompute, algo.NewCorrection(algo.TIS) })
	policyGradient("tis-seq", func(c *Config) { c.OldLogprobs, c.OffPolicy = OldRecompute, algo.NewCorrection(algo.TISSequence) })
	policyGradient("whitened", func(c *Config) { c.Advantage = "reinforce++" })
	policyGradient("ppo, own critic", func(c *Config) { c.Algo, c.Advantage = AlgoPPO, "gae" })
	policyGradient("ppo, shared critic", func(c *Config) { c.Algo, c.Advantage, c.SharedCritic = AlgoPPO, "gae", true })
	supervised := func(name string, linear bool, d func() *rows.Data, change func(c *Config)) {
		c := config()
		change(&c)
		data := d()
		all = append(all, weighedRun{name, linear, func() []*episode.Episode {
			data = d()
			for _, e := range data.Episodes {
				for i := range e.Sequences {
					e.Sequences[i].Weights = nil
				}
			}
			return data.Episodes
		}, func(t *testing.T, _ []*episode.Episode) ([]float64, Metrics) {
			model := newBigram(vocab, 1)
			m := learn(t, model, c, data, func(s *Trainer) { s.Ref = newBigram(vocab, 8) })
			return model.steps[0], m[0]
		}})
	}
	for _, a := range algo.Aggregations {
		supervised(fmt.Sprint("sft ", a), true, text, func(c *Config) { c.Algo, c.Aggregation = AlgoSFT, a })
	}
	for _, loss := range []algo.DPOKind{algo.DPOSigmoid, algo.DPOIPO, algo.DPOHinge} {
		supervised(fmt.Sprint("dpo ", loss), false, preferences, func(c *Config) { c.Algo, c.Supervised.DPOLoss = AlgoDPO, string(loss) })
	}
	return all
}

// weigh gives each token of each sequence a weight.
func weigh(episodes []*episode.Episode, weight func(n int) float64) {
	n := 0
	for _, e := range episodes {
		for i := range e.Sequences {
			s := &e.Sequences[i]
			s.Weights = make([]float64, len(s.TokenIDs))
			for t := range s.Weights {
				s.Weights[t] = weight(n)
				n++
			}
		}
	}
}

func mixed(n int) float64 { return []float64{1, .25, 3, .5, 7}[n%5] }

func TestWeightsOfOneAreNone(t *testing.T) {
	for _, x := range weighedRuns() {
		want, metrics := x.run(t, x.episodes())
		episodes := x.episodes()
		weigh(episodes, func(int) float64 { return 1 })
		got, with := x.run(t, episodes)
		if !slices.Equal(got, want) {
			t.Errorf("%s: weights of 1 change the gradient by %v", x.name, gap(got, want))
		}
		if !maps.Equal(with.Values, metrics.Values) || !maps.Equal(with.Over, metrics.Over) {
			t.Errorf("%s: weights of 1 change the metrics: %v, %v", x.name, with, metrics)
		}
	}
}

// A token of weight 0 is in no sum and no count: the gradient has the bits of one in which
// the token was not sampled.
func TestATokenOfWeightZeroIsNoAction(t *testing.T) {
	for _, x := range weighedRuns() {
		skip := func(e *episode.Episode) (i, at int) { // the second sampled token: the prompt stays as long
			s := e.Sequences[0].LossMask
			first := slices.Index(s, true)
			return 0, first + 1 + slices.Index(s[first+1:], true)
		}
		run := func(change func(e *episode.Episode, i, at int)) ([]float64, Metrics) {
			episodes := x.episodes()
			weigh(episodes, mixed)
			i, at := skip(episodes[0])
			change(episodes[0], i, at)
			return x.run(t, episodes)
		}
		want, metrics := run(func(e *episode.Episode, i, at int) { e.Sequences[i].LossMask[at] = false })
		got, with := run(func(e *episode.Episode, i, at int) { e.Sequences[i].Weights[at] = 0 })
		if !slices.Equal(got, want) {
			t.Errorf("%s: a token of weight 0 changes the gradient by %v", x.name, gap(got, want))
		}
		all, _ := run(func(*episode.Episode, int, int) {})
		if slices.Equal(got, all) {
			t.Errorf("%s: the token has no gradient anyway", x.name)
		}
		for key, v := range metrics.Values {
			if strings.HasPrefix(key, "response_length") || strings.HasPrefix(key, "observation") || strings.HasPrefix(key, "perf") {
				continue // of what was sampled
			}
			if with.Values[key] != v {
				t.Errorf("%s: %s is %v, without the token %v", x.name, key, with.Values[key], v)
			}
		}
	}
}

// Denominators are counts of tokens and sequences: twice the weight is twice the gradient and
// twice the loss, and the same mean of everything that is measured.
func TestTwiceTheWeightIsTwiceTheLoss(t *testing.T) {
	doubled := []string{"actor/pg_loss", "actor/kl_loss", "critic/vf_loss", "train/loss"}
	follow := []string{"actor/grad_norm", "critic/grad_norm"}
	for _, x := range weighedRuns() {
		if !x.linear {
			continue
		}
		run := func(factor float64) ([]float64, Metrics) {
			episodes := x.episodes()
			weigh(episodes, func(n int) float64 { return factor * mixed(n) })
			return x.run(t, episodes)
		}
		one, metrics := run(1)
		two, with := run(2)
		for i := range one {
			if two[i] != 2*one[i] {
				t.Fatalf("%s: entry %d of the gradient is %v, with twice the weights %v", x.name, i, one[i], two[i])
			}
		}
		for key, v := range metrics.Values {
			want := v
			if slices.Contains(doubled, key) {
				want = 2 * v
			}
			if with.Values[key] != want && !slices.Contains(follow, key) {
				t.Errorf("%s: %s is %v, with twice the weights %v, want %v", x.name, key, v, with.Values[key], want)
			}
		}
	}
}

// A token's weight multiplies its own loss and no other's: the gradient is linear in it. Of a
// loss with one ratio for a whole trajectory that holds of the loss alone (gspo) or not at all
// (gmpo, a mean over the tokens).
func TestATokensWeightMultipliesItsLoss(t *testing.T) {
	for _, x := range weighedRuns() {
		if !x.linear || strings.HasPrefix(x.name, "gmpo") {
			continue
		}
		weighing := func(w float64) []float64 {
			episodes := x.episodes()
			weigh(episodes, func(int) float64 { return 1 })
			s := &episodes[0].Sequences[0]
			s.Weights[slices.Index(s.LossMask, true)] = w
			g, _ := x.run(t, episodes)
			return g
		}
		one, two, three := weighing(1), weighing(2), weighing(3)
		moved := false
		for i := range one {
			if d := (three[i] - two[i]) - (two[i] - one[i]); math.Abs(d) > 1e-12 {
				t.Errorf("%s: entry %d: %v, %v, %v", x.name, i, one[i], two[i], three[i])
			}
			moved = moved || two[i] != one[i]
		}
		if !moved {
			t.Errorf("%s: a weight of 2 changes nothing", x.name)
		}
	}
}

// The gradient with weights is that of the loss that is reported with them. That of gspo is not
// meant to be: it is of each token's own ratio (equation 17), not of the trajectory's.
func TestWeightsAreInTheGradientAsInTheLoss(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"ppo": func(*Config) {}, "gmpo": func(c *Config) { c.Loss = "gmpo" },
		"dppo":    func(c *Config) { c.Loss, c.Threshold, c.RolloutKL = "dppo", 9, .2 },
		"entropy": func(c *Config) { c.EntropyCoef = .3 }, "kl": func(c *Config) { c.KLCoef, c.KL = .2, algo.KLK2 },
	} {
		c := config()
		c.OldLogprobs, c.Clip = OldFile, algo.Clip{Low: .9, High: 9}
		change(&c)
		run := func(actor *bigram) float64 {
			episodes := corpus()
			record(.2, newBigram(vocab, 1), episodes)
			weigh(episodes, mixed)
			m := train(t, actor, c, episodes, func(s *Trainer) { s.Ref = newBigram(vocab, 2) })[0]
			v := m.Values
			// The mean entropy is over the weights, its term in the loss over the tokens.
			entropy := v["actor/entropy"] * m.Over["actor/entropy"] / m.Over["actor/pg_loss"]
			return v["actor/pg_loss"] + c.KLCoef*v["actor/kl_loss"] - c.EntropyCoef*entropy
		}
		model := newBigram(vocab, 1)
		start := model.copy()
		run(model)
		const h = 1e-5
		worst := 0.0
		for i := range start.logits {
			at := func(d float64) float64 {
				moved := start.copy()
				moved.logits[i] += d
				return run(moved)
			}
			worst = math.Max(worst, math.Abs((at(h)-at(-h))/(2*h)-model.steps[0][i]))
		}
		if worst > 1e-7 {
			t.Errorf("%s: the gradient is %v off that of the reported loss", name, worst)
		}
	}
}
