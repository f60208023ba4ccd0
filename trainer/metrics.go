package trainer

import (
	"maps"
	"math"
	"slices"
	"strings"

	"agentcli/trainer/algo"
	"agentcli/traj"
)

// Metrics are the numbers of one optimiser step, by the names that verl's users
// know. Keys that do not apply are absent, never 0.
type Metrics struct {
	Step   int
	Total  int
	Values map[string]float64
}

// metrics gathers a step's numbers.
type metrics struct {
	unscored bool // rows of the step have no reward

	Metrics
	score, adv, length, prompt, turns, calls series
	ratio                                    series // of new to old probability
	tokens, observed, packedTokens           int
	loss, clipped, dual, kl, entropy, refKL  float64
	ceLoss                                   float64
	correction                               []float64 // off-policy weights
	vfLoss                                   float64
	vfClipped                                int
	values, returns                          []float64
	trained                                  int // tokens that were computed: those of episodes with an advantage, or all under a KL term
	terminations                             map[traj.Termination]int
	ended                                    int // episodes whose termination is known
	callErrors, callCount                    int
	hasRef                                   bool
	means                                    map[string]*series // of what an algorithm measures by itself
}

type series struct {
	n             int
	sum, min, max float64
}

func (s *series) add(x float64) {
	if s.n == 0 || x < s.min {
		s.min = x
	}
	if s.n == 0 || x > s.max {
		s.max = x
	}
	s.n++
	s.sum += x
}

func newMetrics(step, total, epoch int, d *Data, compared [][]*Episode) *metrics {
	m := &metrics{Metrics: Metrics{Step: step, Total: total, Values: map[string]float64{}}, terminations: map[traj.Termination]int{}}
	m.set("training/epoch", float64(epoch))
	zero := 0
	for _, g := range compared {
		if g[0].flat {
			zero++
		}
	}
	m.set("frac_reward_zero_std", float64(zero)/float64(len(compared)))
	m.set("data/skipped_rows", float64(d.Skipped.Rows))
	return m
}

func (m *metrics) set(key string, v float64) { m.Values[key] = v }

func (m *metrics) stats(key string, s series) {
	if s.n > 0 {
		m.set(key+"/mean", s.sum/float64(s.n))
		m.set(key+"/min", s.min)
		m.set(key+"/max", s.max)
	}
}

// episode counts one episode of the step's minibatch.
func (m *metrics) episode(e *Episode) {
	m.score.add(e.Score)
	e.each(func(_ int, s *Stream, t int) { m.adv.add(s.Adv[t]) })
	m.length.add(float64(e.Sampled))
	if e.Turns > 0 { // else the file has no steps: not known
		m.turns.add(float64(e.Turns))
		m.calls.add(float64(e.ToolCalls))
		m.callCount += e.ToolCalls
		m.callErrors += e.ToolErrors
	}
	if e.Termination != "" {
		m.ended++
		m.terminations[e.Termination]++
	}
	m.tokens += e.Sampled
	for i := range e.Sequences {
		s := &e.Sequences[i]
		first := 0
		for first < len(s.LossMask) && !s.LossMask[first] {
			first++
		}
		if i == 0 {
			m.prompt.add(float64(first))
		}
		for _, sampled := range s.LossMask[first:] {
			if !sampled {
				m.observed++
			}
		}
	}
}

// withoutRewards leaves out what a step would say of rewards that its rows do not have.
func (m *metrics) withoutRewards() {
	maps.DeleteFunc(m.Values, func(key string, _ float64) bool {
		return key == "frac_reward_zero_std" || slices.ContainsFunc([]string{"critic/score/", "critic/rewards/", "critic/advantages/"}, func(p string) bool { return strings.HasPrefix(key, p) })
	})
}

// token counts one trained token: its weighted loss, and kl = old − lp.
func (m *metrics) token(loss float64, clipped, dual bool, kl, entropy float64) {
	m.trained++
	m.loss += loss
	if dual {
		m.dual++
	} else if clipped {
		m.clipped++
	}
	m.kl += kl
	m.ratio.add(math.Exp(-kl))
	m.entropy += entropy
}

// crossEntropy adds an observation token's weighted loss.
func (m *metrics) crossEntropy(l float64) { m.ceLoss += l }

// corrected counts one off-policy weight.
func (m *metrics) corrected(w float64) { m.correction = append(m.correction, w) }

// value counts one value of the critic.
func (m *metrics) value(loss, v, ret float64, clipped bool) {
	m.vfLoss += loss
	if clipped {
		m.vfClipped++
	}
	m.values, m.returns = append(m.values, v), append(m.returns, ret)
}

// toReference adds a token's weighted KL to the reference.
func (m *metrics) toReference(kl float64) { m.refKL, m.hasRef = m.refKL+kl, true }

func (m *metrics) packed(n int) { m.packedTokens += n }

// add counts one measurement of a number whose mean over the step is shown.
func (m *metrics) add(key string, x float64) {
	if m.means == nil {
		m.means = map[string]*series{}
	}
	if m.means[key] == nil {
		m.means[key] = &series{}
	}
	m.means[key].add(x)
}

func (m *metrics) finish() Metrics {
	if m.unscored {
		defer m.withoutRewards()
	}
	for key, s := range m.means {
		m.set(key, s.sum/float64(s.n))
	}
	m.stats("critic/score", m.score)
	m.stats("critic/rewards", m.score)
	m.stats("critic/advantages", m.adv)
	m.stats("response_length", m.length)
	m.stats("prompt_length", m.prompt)
	m.stats("num_turns", m.turns)
	m.stats("tool_calls", m.calls)
	if m.callCount > 0 {
		m.set("tool_error_rate", float64(m.callErrors)/float64(m.callCount))
	}
	clipped := 0
	for t, c := range m.terminations {
		m.set("termination/"+string(t), float64(c)/float64(m.ended))
		if t == traj.TurnLength || t == traj.MaxTokens {
			clipped += c
		}
	}
	if m.ended > 0 {
		m.set("response_length/clip_ratio", float64(clipped)/float64(m.ended))
	}
	if m.score.n > 0 && m.tokens+m.observed > 0 {
		m.set("observation_token_share", float64(m.observed)/float64(m.tokens+m.observed))
	}
	if m.trained > 0 {
		p := float64(m.trained)
		m.set("actor/pg_loss", m.loss)
		m.set("actor/pg_clipfrac", m.clipped/p)
		m.set("actor/pg_clipfrac_lower", m.dual/p)
		m.set("actor/ppo_kl", m.kl/p)
		m.set("actor/entropy", m.entropy/p)
		m.set("actor/ratio/min", m.ratio.min)
		m.set("actor/ratio/max", m.ratio.max)
		if m.hasRef {
			m.set("actor/kl_loss", m.refKL)
		}
	}
	if m.ceLoss != 0 {
		m.set("actor/echo_loss", m.ceLoss)
	}
	if n := len(m.correction); n > 0 {
		var w series
		for _, x := range m.correction {
			w.add(x)
		}
		m.stats("rollout_corr/weight", w)
		m.set("rollout_corr/weight_ess", algo.EffectiveSampleSize(m.correction))
	}
	if n := len(m.values); n > 0 {
		var v, r series
		for i := range m.values {
			v.add(m.values[i])
			r.add(m.returns[i])
		}
		m.stats("critic/values", v)
		m.stats("critic/returns", r)
		m.set("critic/vf_loss", m.vfLoss)
		m.set("critic/vf_clipfrac", float64(m.vfClipped)/float64(n))
		if x := algo.ExplainedVariance(m.values, m.returns); !math.IsNaN(x) {
			m.set("critic/vf_explained_var", x)
		}
	}
	if s := m.Values["timing_s/update_actor"] + m.Values["timing_s/update_critic"]; s > 0 {
		m.set("timing_s/step", s)
		if m.packedTokens > 0 { // else no model was asked for anything
			m.set("perf/throughput", float64(m.tokens+m.observed)/s)
			m.set("perf/packed_tokens_per_s", float64(m.packedTokens)/s)
		}
	}
	return m.Metrics
}

// RolloutDiff compares the log-probs recorded at sampling with those of the
// model in training before its first update: the same weights in another
// precision, or another program. All fields are sums or maxima over Tokens.
type RolloutDiff struct {
	Tokens       int
	Abs, Max     float64 // of probabilities
	LPAbs, LPMax float64
	K1, K3       float64 // KL(rollout‖training) estimates: roll − lp, and k3
	Weights, Sq  float64
}

// add takes the tokens whose weight is not 0.
func (d *RolloutDiff) add(lp, roll, weight []float64) {
	for t := range lp {
		if weight[t] <= 0 {
			continue
		}
		p := math.Abs(math.Exp(lp[t]) - math.Exp(roll[t]))
		d.Tokens++
		d.Abs += p
		d.Max = math.Max(d.Max, p)
		l := math.Abs(lp[t] - roll[t])
		d.LPAbs += l
		d.LPMax = math.Max(d.LPMax, l)
		d.K1 += algo.K1(roll[t], lp[t])
		d.K3 += algo.K3(roll[t], lp[t])
		w := math.Exp(math.Max(-20, math.Min(20, lp[t]-roll[t])))
		d.Weights += w
		d.Sq += w * w
	}
}

func (d *RolloutDiff) into(m *metrics) {
	if d.Tokens == 0 {
		return
	}
	n := float64(d.Tokens)
	m.set("rollout_probs_diff_mean", d.Abs/n)
	m.set("rollout_probs_diff_max", d.Max)
	m.set("rollout_logprobs_diff_mean", d.LPAbs/n)
	m.set("rollout_logprobs_diff_max", d.LPMax)
	m.set("rollout_corr/tokens", n)
	m.set("rollout_corr/kl", d.K1/n)
	m.set("rollout_corr/k3", d.K3/n)
	// Effective sample size of the importance weights, as a share: 1/mean((w/mean w)²).
	m.set("rollout_corr/ess", d.Weights*d.Weights/(n*d.Sq))
}
