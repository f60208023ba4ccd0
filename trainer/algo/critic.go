package algo

import "math"

// Value is the critic's loss of one token, ½·(V − R)², and with clip > 0 the
// larger of it and ½·(clip(V, V_old ± clip) − R)² (Schulman et al. 2016; the clip
// as in OpenAI's baselines). grad is dLoss/dV.
func Value(v, old, ret, clip float64) (loss, grad float64, clipped bool) {
	loss, grad = (v-ret)*(v-ret)/2, v-ret
	if clip <= 0 {
		return loss, grad, false
	}
	c := math.Max(old-clip, math.Min(old+clip, v))
	if l := (c - ret) * (c - ret) / 2; l > loss {
		// Beyond the bounds the clipped value is a constant; within, both are one.
		return l, 0, true
	}
	return loss, grad, false
}

// ExplainedVariance is 1 − Var(R − V)/Var(R): 1 for a perfect critic, 0 for a
// constant one. NaN where the returns have no spread.
func ExplainedVariance(value, ret []float64) float64 {
	if len(ret) < 2 {
		return math.NaN()
	}
	diff := make([]float64, len(ret))
	for i := range ret {
		diff[i] = ret[i] - value[i]
	}
	_, sr := meanStd(ret)
	_, sd := meanStd(diff)
	if sr == 0 {
		return math.NaN()
	}
	return 1 - sd*sd/(sr*sr)
}
