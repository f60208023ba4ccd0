package trainer

import (
	"maps"
	"math"
	"slices"
	"strings"

	"agentcli/policy"
	"agentcli/trainer/algo"
	"agentcli/trainer/episode"
	"agentcli/trainer/rows"
	"agentcli/traj"
)

// Metrics are the numbers of one optimiser step, by the names that verl's users
// know. Keys that do not apply are absent, never 0.
type Metrics struct {
	Step   int
	Total  int
	Values map[string]float64
	// Over is how many things each mean is taken over, by its key, or by the part
	// before its slash: episodes, tokens (each as often as it weighs), calls, seconds. A key
	// that is not here is of the step itself.
	Over map[string]float64
}

// metrics gathers a step's numbers.
type metrics struct {
	unscored bool // rows of the step have no reward
	// diff is being measured in this step, of the file's log-probs to the starting policy's;
	// nil: not in this one.
	diff *RolloutDiff

	Metrics
	version                                          int64  // of the policy in training; 0: not known
	stale                                            series // versions between it and that which sampled
	score, reward, adv, length, prompt, turns, calls series
	ratio                                            series // of new to old probability
	tokens, observed, packedTokens                   int
	actions, sequences                               int  // in the loss and its counts
	bySequence                                       bool // the loss is a mean over trajectories, not tokens
	loss, kl, entropy, refKL                         float64
	clipped, dual                                    int     // tokens
	weight, klWeight                                 float64 // of the tokens that were computed; of those whose old log-prob is known
	policy                                           bool    // the policy's loss was computed
	ceLoss                                           float64
	ceTokens                                         int
	correction                                       []float64 // off-policy weights
	vfLoss                                           float64
	vfClipped                                        int
	values, returns                                  []float64
	// tokens that were computed: those of episodes with an advantage, or all under a KL term
	trained               int
	terminations          map[traj.Termination]int
	ended                 int // episodes whose termination is known
	callErrors, callCount int
	read, malformed       int // calls of rows that say which were malformed, and those
	hasRef                bool
	means                 map[string]*mean // of what an algorithm measures by itself
	routing               policy.Routing   // of the experts that were recorded
}

// mean is a weighted mean in the making.
type mean struct{ sum, weight float64 }

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

func newMetrics(step, total, epoch int, d *rows.Data, compared [][]*episode.Episode) *metrics {
	m := &metrics{Metrics: Metrics{Step: step, Total: total, Values: map[string]float64{}, Over: map[string]float64{}},
		terminations: map[traj.Termination]int{}}
	m.set("training/epoch", float64(epoch))
	zero := 0
	for _, g := range compared {
		if g[0].ZeroStd {
			zero++
		}
	}
	m.share("frac_reward_zero_std", zero, len(compared))
	m.set("data/skipped_rows", float64(d.Skipped.Rows))
	return m
}

func (m *metrics) set(key string, v float64) { m.Values[key] = v }

// mean sets what is a mean over n things.
func (m *metrics) mean(key string, v float64, n int) {
	if n > 0 {
		m.set(key, v)
		m.Over[key] = float64(n)
	}
}

// weightedMean sets what is a mean over things of this weight together: over their number
// where each weighs 1.
func (m *metrics) weightedMean(key string, sum, weight float64) {
	m.set(key, sum/weight)
	m.Over[key] = weight
}

func (m *metrics) share(key string, count, n int) { m.mean(key, float64(count)/float64(n), n) }

func (m *metrics) stats(key string, s series) {
	if s.n > 0 {
		m.mean(key+"/mean", s.sum/float64(s.n), s.n)
		m.set(key+"/min", s.min)
		m.set(key+"/max", s.max)
	}
}

// episode counts one episode of the step's minibatch.
func (m *metrics) episode(e *episode.Episode) {
	m.score.add(e.Score)
	m.unscored = m.unscored || e.Unscored
	if m.version > 0 {
		m.stale.add(float64(m.version-e.PolicyVersion) - e.VersionsAhead.Mean)
	}
	m.reward.add(e.ShapedReward)
	e.EachAction(func(_ int, s *episode.TokenStream, t int) { m.adv.add(s.Advantages[t]) })
	m.length.add(float64(e.Sampled))
	if e.Turns > 0 { // else the file has no steps: not known
		m.turns.add(float64(e.Turns))
		m.calls.add(float64(e.ToolCalls))
		m.callCount += e.ToolCalls
		m.callErrors += e.ToolErrors
		if e.Malformed >= 0 {
			m.read += e.ToolCalls
			m.malformed += e.Malformed
		}
	}
	if e.Termination != "" {
		m.ended++
		m.terminations[e.Termination]++
	}
	m.tokens += e.Sampled
	if !e.Filtered {
		m.actions += e.Actions()
		m.sequences++
	}
	m.prompt.add(float64(max(slices.Index(e.Sequences[0].LossMask, true), 0)))
	m.observed += e.ObservedTokens()
}

// withoutRewards leaves out what a step would say of rewards that its rows do not have.
func (m *metrics) withoutRewards() {
	maps.DeleteFunc(m.Values, func(key string, _ float64) bool {
		return key == "frac_reward_zero_std" ||
			slices.ContainsFunc([]string{"critic/score/", "critic/rewards/", "critic/advantages/"},
				func(p string) bool { return strings.HasPrefix(key, p) })
	})
}

// token counts one trained token: its weighted loss, kl = old − lp, NaN where old is not
// known, its entropy, and what it weighs by itself.
func (m *metrics) token(loss float64, clipped, dual bool, kl, entropy, weight float64) {
	m.trained++
	m.weight += weight
	m.loss += loss
	if dual {
		m.dual++
	} else if clipped {
		m.clipped++
	}
	if !math.IsNaN(kl) {
		m.klWeight += weight
		m.kl += weight * kl
		m.ratio.add(math.Exp(-kl))
	}
	m.entropy += weight * entropy
}

// crossEntropy adds an observation token's weighted loss.
func (m *metrics) crossEntropy(l float64) { m.ceLoss, m.ceTokens = m.ceLoss+l, m.ceTokens+1 }

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

// routed counts what a micro-batch says of the experts that were recorded.
func (m *metrics) routed(r policy.Routing) {
	m.routing.Known += r.Known
	m.routing.Missed += r.Missed
}

// add counts one measurement of a number whose mean over the step is shown.
func (m *metrics) add(key string, x float64) { m.weigh(key, x, 1) }

// weigh is add of a measurement that counts as much as weight says in that mean.
func (m *metrics) weigh(key string, x, weight float64) {
	if m.means == nil {
		m.means = map[string]*mean{}
	}
	if m.means[key] == nil {
		m.means[key] = &mean{}
	}
	m.means[key].sum += weight * x
	m.means[key].weight += weight
}

// lossOver is what the loss is a mean over.
func (m *metrics) lossOver() int {
	if m.bySequence {
		return m.sequences
	}
	return m.actions
}

func (m *metrics) finish() Metrics {
	if m.unscored {
		defer m.withoutRewards()
	}
	for key, s := range m.means {
		m.weightedMean(key, s.sum, s.weight)
	}
	m.stats("critic/score", m.score)
	m.stats("staleness", m.stale)
	m.stats("critic/rewards", m.reward)
	m.stats("critic/advantages", m.adv)
	m.stats("response_length", m.length)
	m.stats("prompt_length", m.prompt)
	m.stats("num_turns", m.turns)
	m.stats("tool_calls", m.calls)
	m.share("tool_error_rate", m.callErrors, m.callCount)
	m.share("malformed_call_rate", m.malformed, m.read)
	clipped := 0
	for t, c := range m.terminations {
		m.set("termination/"+string(t), float64(c)/float64(m.ended))
		if t == traj.TurnLength || t == traj.MaxTokens {
			clipped += c
		}
	}
	if m.ended > 0 {
		m.Over["termination"] = float64(m.ended)
		m.share("response_length/clip_ratio", clipped, m.ended)
	}
	if m.score.n > 0 {
		m.share("observation_token_share", m.observed, m.tokens+m.observed)
	}
	if m.trained > 0 {
		m.mean("actor/pg_loss", m.loss, m.lossOver())
		// Tokens that are not computed have no advantage, and are not clipped.
		m.share("actor/pg_clipfrac", m.clipped, m.actions)
		m.share("actor/pg_clipfrac_lower", m.dual, m.actions)
		m.weightedMean("actor/entropy", m.entropy, m.weight)
		if m.klWeight > 0 {
			m.weightedMean("actor/ppo_kl", m.kl, m.klWeight)
			m.set("actor/ratio/min", m.ratio.min)
			m.set("actor/ratio/max", m.ratio.max)
		}
		if m.hasRef {
			m.mean("actor/kl_loss", m.refKL, m.lossOver())
		}
	}
	if m.routing.Known > 0 {
		m.weightedMean("actor/router_mismatch", m.routing.Missed, m.routing.Known)
	}
	if m.policy {
		m.share("actor/computed_token_share", m.trained, m.actions)
	}
	m.mean("actor/echo_loss", m.ceLoss, m.ceTokens)
	if n := len(m.correction); n > 0 {
		var w series
		for _, x := range m.correction {
			w.add(x)
		}
		m.stats("rollout_corr/weight", w)
		m.mean("rollout_corr/weight_ess", algo.EffectiveSampleSize(m.correction), n)
	}
	if n := len(m.values); n > 0 {
		var v, r series
		for i := range m.values {
			v.add(m.values[i])
			r.add(m.returns[i])
		}
		m.stats("critic/values", v)
		m.stats("critic/returns", r)
		m.mean("critic/vf_loss", m.vfLoss, m.lossOver())
		m.share("critic/vf_clipfrac", m.vfClipped, n)
		if x := algo.ExplainedVariance(m.values, m.returns); !math.IsNaN(x) {
			m.mean("critic/vf_explained_var", x, n)
		}
	}
	if s := m.Values["timing_s/update_actor"] + m.Values["timing_s/update_critic"]; s > 0 {
		m.set("timing_s/step", s)
		if m.packedTokens > 0 { // else no model was asked for anything
			m.set("perf/throughput", float64(m.tokens+m.observed)/s)
			m.set("perf/packed_tokens_per_s", float64(m.packedTokens)/s)
			m.Over["perf/throughput"], m.Over["perf/packed_tokens_per_s"] = s, s
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
	Perplexities float64 // of the model in training over that of the sampler, of each sequence
	Sequences    int
	Weights, Sq  float64
}

// add takes the tokens whose weight is not 0.
func (d *RolloutDiff) add(lp, roll, weight []float64) {
	sum, n := 0.0, 0
	defer func() {
		if n > 0 {
			d.Perplexities += math.Exp(sum / float64(n))
			d.Sequences++
		}
	}()
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
		sum, n = sum+roll[t]-lp[t], n+1
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
	if d.Sequences > 0 { // else of a checkpoint that did not know it
		m.set("rollout_corr/ppl_ratio", d.Perplexities/float64(d.Sequences))
	}
	// Effective sample size of the importance weights, as a share: 1/mean((w/mean w)²).
	m.set("rollout_corr/ess", d.Weights*d.Weights/(n*d.Sq))
}
