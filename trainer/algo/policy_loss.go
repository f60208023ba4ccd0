package algo

import (
	"fmt"
	"math"
	"slices"
)

// LossConfig are the constants of the policy losses. Each loss reads those that
// its formula names.
type LossConfig struct {
	Clip      Clip
	SAPO      [2]float64 // temperatures where A > 0 and elsewhere
	Threshold float64    // of the dppo losses, on the difference of probabilities
	RolloutKL float64    // τ of (lp − roll)², of the dppo losses
}

// Span is one trajectory's sampled tokens as a loss sees them; all slices are of
// one length.
type Span struct {
	LP              []float64 // log-probs of the policy that is trained
	Old             []float64 // of the policy before the update
	RolloutLogprobs []float64 // as recorded at sampling; nil where no loss or correction asks
	Adv             []float64
	Teacher         []float64 // of the teacher; opd only
	Weight          []float64 // what each token's loss weighs in the step's: aggregation × ActionWeight × correction
	ActionWeight    []float64 // of each token by itself, above 0, which a mean over the tokens takes; nil: 1
}

// share is what token t counts in a mean over the tokens.
func (s Span) share(t int) float64 {
	if s.ActionWeight == nil {
		return 1
	}
	return s.ActionWeight[t]
}

// Cut is the span of tokens lo to hi alone.
func (s Span) Cut(lo, hi int) Span {
	cut := func(x []float64) []float64 {
		if x == nil {
			return nil
		}
		return x[lo:hi]
	}
	return Span{cut(s.LP), cut(s.Old), cut(s.RolloutLogprobs), cut(s.Adv), cut(s.Teacher), cut(s.Weight), cut(s.ActionWeight)}
}

// Result is what a loss makes of a span, one entry a token.
type Result struct {
	Loss    []float64 // before weighting
	Grad    []float64 // d(Σ_t weight_t·loss_t)/d lp_t
	Clipped []bool    // the token's gradient is cut off by the loss
	Dual    []bool    // by the dual clip
}

// Loss is a policy loss. Every one of them is a function of the log-probs of the
// sampled tokens alone, given here with its derivative.
type Loss struct {
	Name    string
	Aliases []string // further names, which LossByName takes and LossNames does not list
	Formula string
	Ratio   Ratio    // which log-probs it divides by
	Reads   Constant // the constants in its formula
	// Aggregation is what the paper aggregates with; "" where it is the common
	// token-mean.
	Aggregation   Aggregation
	Teacher       bool // it needs the teacher's log-probs, in place of advantages
	SequenceLevel bool // one ratio is the whole trajectory's: At must be given all its tokens at once
	apply         func(s Span, c LossConfig, out *Result)
}

// At computes the loss of one trajectory.
func (l *Loss) At(s Span, c LossConfig) (Result, error) {
	n := len(s.LP)
	if len(s.Old) != n || len(s.Adv) != n || len(s.Weight) != n || s.ActionWeight != nil && len(s.ActionWeight) != n ||
		(l.NeedsRollout() && len(s.RolloutLogprobs) != n) ||
		(l.Teacher && len(s.Teacher) != n) {
		return Result{}, fmt.Errorf("loss %s: %d log-probs, %d old, %d of the rollout, %d advantages and %d weights",
			l.Name, n, len(s.Old), len(s.RolloutLogprobs), len(s.Adv), len(s.Weight))
	}
	out := Result{Loss: make([]float64, n), Grad: make([]float64, n), Clipped: make([]bool, n), Dual: make([]bool, n)}
	if n > 0 {
		l.apply(s, c, &out)
	}
	return out, nil
}

// DefaultLoss is that of a bare `train`.
const DefaultLoss = "ppo"

// Losses are those that --loss takes. Their columns decide what they may be combined
// with (table.go).
var Losses = []*Loss{
	{Name: "ppo", Formula: "max(−Aρ, −A·clip(ρ,1−ε_l,1+ε_h))", Ratio: RatioOld, Reads: ClipLowOfNegative | ClipHigh | ClipDual,
		apply: tokenwise(func(lp, old, adv float64, c LossConfig) TokenLoss { return PPO(lp, old, adv, c.Clip) })},
	{Name: "gspo", Formula: "ppo with the trajectory's ratio exp(mean(lp−old))", Ratio: RatioOld,
		Reads: ClipLowOfNegative | ClipHigh | ClipDual, Aggregation: SeqMeanTokenMean, SequenceLevel: true, apply: gspo},
	{Name: "cispo", Formula: "−clip(ρ)·A·lp, the ratio a constant", Ratio: RatioOld, Reads: ClipLow | ClipHigh, apply: tokenwise(CISPO)},
	{Name: "sapo", Formula: "−A·σ(τ(ρ−1))·4/τ", Ratio: RatioOld, Reads: GateTemperatures,
		Aggregation: SeqMeanTokenMean, apply: tokenwise(SAPO)},
	{Name: "gmpo", Formula: "−A·geometric mean of the clipped ratios", Ratio: RatioOld,
		Reads: ClipLowOfNegative | ClipHigh, Aggregation: SeqMeanTokenMean, SequenceLevel: true, apply: gmpo},
	{Name: "reinforce", Aliases: []string{"gpg"}, Formula: "−A·lp", apply: tokenwise(REINFORCE)},
	{Name: "dppo", Formula: "−Aρ where the probability moved < .2 in A's direction, + τ(lp−roll)²",
		Ratio: RatioRollout, Reads: TrustRegion, apply: trustRegion(false)},
	{Name: "dppo-two-sided", Aliases: []string{"ipo"}, Formula: "−Aρ where the probability moved < .2, + τ(lp−roll)²",
		Ratio: RatioRollout, Reads: TrustRegion, apply: trustRegion(true)},
	{Name: "opd", Formula: "dppo with A = teacher − lp, a constant: on-policy distillation", Ratio: RatioRollout,
		Reads: TrustRegion, Teacher: true, apply: distil},
}

// LossByName finds a loss by its name or an alias.
func LossByName(name string) (*Loss, bool) {
	i := slices.IndexFunc(Losses, func(l *Loss) bool { return l.Name == name || slices.Contains(l.Aliases, name) })
	if i < 0 {
		return nil, false
	}
	return Losses[i], true
}

// LossNames lists the names.
func LossNames() []string {
	names := make([]string, len(Losses))
	for i, l := range Losses {
		names[i] = l.Name
	}
	return names
}

func tokenwise(f func(lp, old, adv float64, c LossConfig) TokenLoss) func(Span, LossConfig, *Result) {
	return func(s Span, c LossConfig, out *Result) {
		for t := range s.LP {
			l := f(s.LP[t], s.Old[t], s.Adv[t], c)
			out.Loss[t], out.Grad[t], out.Clipped[t], out.Dual[t] = l.Loss, s.Weight[t]*l.Grad, l.Clipped, l.Dual
		}
	}
}

// ratio is exp(d) with |d| ≤ 20, and whether d was beyond: there it is constant.
func ratio(d float64) (r float64, saturated bool) {
	return math.Exp(math.Max(-maxLogRatio, math.Min(maxLogRatio, d))), math.Abs(d) > maxLogRatio
}

// maxLogRatio bounds a log-ratio before exp: beyond e^20 a ratio says nothing
// more and would overflow sums.
const maxLogRatio = 20

// Clip are the bounds of the PPO surrogate.
type Clip struct {
	Low, High float64 // the ratio is clipped to [1−Low, 1+High]; clip-higher is High > Low (Yu et al. 2025, DAPO)
	Dual      float64 // > 1: where A < 0 the loss is at most −A·Dual (Ye et al. 2020); 0: off
}

// TokenLoss is one token's part of a policy loss.
type TokenLoss struct {
	Loss    float64
	Grad    float64 // dLoss/dlogprob
	Clipped bool    // the clipped branch was taken: no gradient
	Dual    bool    // the dual clip was taken: no gradient
}

// PPO is the clipped surrogate of one token,
// max(−A·ρ, −A·clip(ρ, 1−ε_l, 1+ε_h)) with ρ = exp(lp − old)
// (Schulman et al. 2017, equation 7), and its dual clip.
func PPO(lp, old, adv float64, c Clip) TokenLoss {
	d := lp - old
	saturated := math.Abs(d) > maxLogRatio
	ratio := math.Exp(math.Max(-maxLogRatio, math.Min(maxLogRatio, d)))
	var t TokenLoss
	plain := -adv * ratio
	clipped := -adv * math.Max(1-c.Low, math.Min(1+c.High, ratio))
	t.Loss, t.Grad = plain, plain // d(−Aρ)/dlp = −Aρ
	if clipped > plain {
		t.Loss, t.Grad, t.Clipped = clipped, 0, true
	}
	if c.Dual > 1 && adv < 0 && t.Loss > -adv*c.Dual {
		t.Loss, t.Grad, t.Clipped, t.Dual = -adv*c.Dual, 0, false, true
	}
	if saturated {
		t.Grad = 0
	}
	return t
}

// CISPO is −sg(clip(ρ, 1−ε_l, 1+ε_h))·A·lp: the ratio is a clipped weight, and no
// token's gradient is cut off (MiniMax 2025, MiniMax-M1, equation 4).
func CISPO(lp, old, adv float64, c LossConfig) TokenLoss {
	r, _ := ratio(lp - old)
	w := math.Max(1-c.Clip.Low, math.Min(1+c.Clip.High, r))
	return TokenLoss{Loss: -w * adv * lp, Grad: -w * adv}
}

// SAPO is −A·σ(τ(ρ−1))·4/τ: a soft gate for the hard clip, of slope 1 at ρ = 1
// (Gao et al. 2025, soft adaptive policy optimisation, equation 5).
func SAPO(lp, old, adv float64, c LossConfig) TokenLoss {
	tau := c.SAPO[1]
	if adv > 0 {
		tau = c.SAPO[0]
	}
	r, saturated := ratio(lp - old)
	gate := 1 / (1 + math.Exp(-tau*(r-1)))
	t := TokenLoss{Loss: -adv * gate * 4 / tau, Grad: -adv * 4 * gate * (1 - gate) * r}
	if saturated {
		t.Grad = 0
	}
	return t
}

// REINFORCE is −A·lp (Williams 1992), without a ratio: for tokens of the policy
// itself.
func REINFORCE(lp, _, adv float64, _ LossConfig) TokenLoss {
	return TokenLoss{Loss: -adv * lp, Grad: -adv}
}

// gspo takes one ratio for the whole trajectory, s = exp(mean_t(lp − old)), with the
// gradient through each token's own log-prob: s_t = sg(s)·exp(lp_t − sg(lp_t))
// (Zheng et al. 2025, GSPO-token, equation 17).
func gspo(s Span, c LossConfig, out *Result) {
	mean := 0.0
	for t := range s.LP {
		mean += (s.LP[t] - s.Old[t]) / float64(len(s.LP))
	}
	for t := range s.LP {
		l := PPO(mean, 0, s.Adv[t], c.Clip)
		out.Loss[t], out.Grad[t], out.Clipped[t], out.Dual[t] = l.Loss, s.Weight[t]*l.Grad, l.Clipped, l.Dual
	}
}

// gmpo is −A·exp(mean_t d_t), d_t = lp − old clipped on the side where A pushes
// it (Zhao et al. 2025, geometric-mean policy optimisation, equation 4). The
// bounds ε are of the log-ratio. A token counts in the means as it weighs: one of weight 2
// as two tokens.
func gmpo(s Span, c LossConfig, out *Result) {
	n, mean, adv, weight := 0.0, 0.0, 0.0, 0.0
	for t := range s.LP {
		n += s.share(t)
	}
	for t := range s.LP {
		d := s.LP[t] - s.Old[t]
		clipped := math.Max(-c.Clip.Low, math.Min(c.Clip.High, d))
		sign := 1.0
		if s.Adv[t] < 0 {
			sign = -1
		}
		kept := sign * math.Min(sign*d, sign*clipped)
		out.Clipped[t] = kept != d
		mean += s.share(t) * kept / n
		adv += s.share(t) * s.Adv[t] / n
		weight += s.Weight[t]
	}
	g, saturated := ratio(mean)
	for t := range s.LP {
		out.Loss[t] = -adv * g
		if !out.Clipped[t] && !saturated {
			out.Grad[t] = -adv * g * weight * s.share(t) / n
		}
	}
}

// trustRegion is dppo and dppo-two-sided: no clip of the ratio ρ = exp(lp − roll); a
// token whose probability has moved by more than the threshold, in the direction of A or
// in either, leaves the policy term. τ·(lp − roll)² holds all of them back (arXiv
// 2602.04879 for the mask, DPPO-Binary-TV, 2602.02276 for the second term). The two-sided
// mask is prime-rl's importance policy optimisation, which it calls IPO; that name is
// also a preference loss's (DPOIPO).
func trustRegion(both bool) func(Span, LossConfig, *Result) {
	return func(s Span, c LossConfig, out *Result) {
		for t, lp := range s.LP {
			d := lp - s.RolloutLogprobs[t]
			r, saturated := ratio(d)
			moved := math.Exp(lp) - math.Exp(s.RolloutLogprobs[t])
			switch {
			case both:
				out.Clipped[t] = math.Abs(moved) > c.Threshold
			case s.Adv[t] > 0:
				out.Clipped[t] = moved > c.Threshold
			case s.Adv[t] < 0:
				out.Clipped[t] = moved < -c.Threshold
			}
			out.Loss[t] = c.RolloutKL * d * d
			grad := 2 * c.RolloutKL * d
			if !out.Clipped[t] {
				out.Loss[t] -= s.Adv[t] * r
				if !saturated {
					grad -= s.Adv[t] * r
				}
			}
			out.Grad[t] = s.Weight[t] * grad
		}
	}
}

// distil is on-policy distillation (Agarwal et al. 2024, GKD; Lu et al. 2025):
// the policy samples, and the teacher's log-prob of each token, less the policy's
// own, is its advantage. A token whose probability has fallen by more than the
// threshold since it was sampled leaves the policy term.
func distil(s Span, c LossConfig, out *Result) {
	for t, lp := range s.LP {
		d := lp - s.RolloutLogprobs[t]
		r, saturated := ratio(d)
		adv := s.Teacher[t] - lp
		out.Clipped[t] = math.Exp(lp)-math.Exp(s.RolloutLogprobs[t]) < -c.Threshold
		out.Loss[t] = c.RolloutKL * d * d
		grad := 2 * c.RolloutKL * d
		if !out.Clipped[t] {
			out.Loss[t] -= adv * r
			if !saturated {
				grad -= adv * r
			}
		}
		out.Grad[t] = s.Weight[t] * grad
	}
}

// Aggregation says how token losses become one number.
type Aggregation string

// The aggregation modes. N is the number of tokens and B of sequences of the
// whole optimiser step, over all its micro-batches.
const (
	TokenMean           Aggregation = "token-mean"              // Σ l / N
	SeqMeanTokenSum     Aggregation = "seq-mean-token-sum"      // Σ_i Σ_t l / B
	SeqMeanTokenMean    Aggregation = "seq-mean-token-mean"     // Σ_i (Σ_t l / len_i) / B
	SeqMeanTokenSumNorm Aggregation = "seq-mean-token-sum-norm" // Σ_i Σ_t l / (B·L), L a constant length (Dr. GRPO)
)

// Aggregations lists the modes.
var Aggregations = []Aggregation{TokenMean, SeqMeanTokenSum, SeqMeanTokenMean, SeqMeanTokenSumNorm}

// Counts are the global denominators of one optimiser step.
type Counts struct {
	Tokens    int
	Sequences int
	MaxLength float64 // L of seq-mean-token-sum-norm
}

// Weight is the factor of every token loss of a sequence with `length` sampled
// tokens. All modes are linear in the token losses, so that the gradient does
// not depend on how a step is split into micro-batches.
func (a Aggregation) Weight(length int, c Counts) (float64, error) {
	switch {
	case c.Tokens <= 0 || c.Sequences <= 0:
		return 0, fmt.Errorf("aggregation %s over %d tokens of %d sequences", a, c.Tokens, c.Sequences)
	case a == TokenMean:
		return 1 / float64(c.Tokens), nil
	case a == SeqMeanTokenSum:
		return 1 / float64(c.Sequences), nil
	case a == SeqMeanTokenMean:
		return 1 / float64(c.Sequences) / float64(max(length, 1)), nil
	case a == SeqMeanTokenSumNorm:
		if c.MaxLength <= 0 {
			return 0, fmt.Errorf("aggregation %s needs a length to divide by", a)
		}
		return 1 / float64(c.Sequences) / c.MaxLength, nil
	}
	return 0, fmt.Errorf("unknown aggregation %q; it is one of %v", a, Aggregations)
}
