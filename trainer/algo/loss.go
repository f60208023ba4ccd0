package algo

import (
	"fmt"
	"math"
)

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
