package algo

import (
	"fmt"
	"math"
)

// GAE is the generalised advantage estimate (Schulman et al. 2016, equation 16)
// over the sequence of sampled tokens, without the observations between them:
//
//	δ_t = r_t + γ·V_{t+1} − V_t,  A_t = δ_t + γλ·A_{t+1},  return_t = A_t + V_t
//
// All slices are of one length, [sampled tokens].
func GAE(reward_T, value_T []float64, gamma, lambda float64) (adv_T, return_T []float64, err error) {
	if len(reward_T) != len(value_T) {
		return nil, nil, fmt.Errorf("gae: %d rewards and %d values; the two must be of one length", len(reward_T), len(value_T))
	}
	adv_T, return_T = make([]float64, len(value_T)), make([]float64, len(value_T))
	next, running := 0.0, 0.0
	for t := len(value_T) - 1; t >= 0; t-- {
		delta := reward_T[t] + gamma*next - value_T[t]
		running = delta + gamma*lambda*running
		next = value_T[t]
		adv_T[t], return_T[t] = running, running+value_T[t]
	}
	return adv_T, return_T, nil
}

// ReturnsOf is R_t = r_t + γ·R_{t+1} over the sampled tokens.
func ReturnsOf(reward_T []float64, gamma float64) []float64 {
	out := make([]float64, len(reward_T))
	running := 0.0
	for t := len(reward_T) - 1; t >= 0; t-- {
		running = reward_T[t] + gamma*running
		out[t] = running
	}
	return out
}

// Overlong is the soft punishment of a reply longer than limit − buffer tokens:
// from 0 there down to −factor at the limit (Yu et al. 2025, DAPO, equation 13).
func Overlong(length, limit, buffer int, factor float64) float64 {
	over := length - (limit - buffer)
	if over <= 0 || buffer <= 0 {
		return 0
	}
	return -math.Min(float64(over)/float64(buffer), 1) * factor
}

// LengthPenalty is s_i − μ·(w_out·out_i/max out + w_in·in_i/max in +
// w_turns·turns_i/max turns) for a group, before it is centred: only a group
// that is good can afford to be short (μ is the group's mean score, 0 where that is
// negative: it would make a prize of the penalty).
func LengthPenalty(score_G []float64, out_G, in_G, turns_G []int, wOut, wIn, wTurns float64) []float64 {
	share := func(x_G []int) []float64 {
		most := 0
		for _, x := range x_G {
			most = max(most, x)
		}
		f := make([]float64, len(score_G))
		for i := range x_G {
			f[i] = float64(x_G[i]) / float64(max(most, 1))
		}
		return f
	}
	mean := 0.0
	for _, s := range score_G {
		mean += s / float64(len(score_G))
	}
	mean = math.Max(mean, 0)
	out, in, turns := share(out_G), share(in_G), share(turns_G)
	got := make([]float64, len(score_G))
	for i, s := range score_G {
		got[i] = s - mean*(wOut*out[i]+wIn*in[i]+wTurns*turns[i])
	}
	return got
}

// KLController sets the β of a KL.
type KLController struct {
	Beta    float64
	Target  float64 // 0: Beta stays as it is
	Horizon float64 // number of trajectories over which Beta follows
}

// Update moves β towards the target: β·(1 + clip(kl/target − 1, ±.2)·n/horizon)
// (Ziegler et al. 2019, section 2.2), with kl the mean KL of a trajectory's
// sampled tokens and n the number of trajectories that it was measured on. Departure:
// the factor is at least .1, since n far above the horizon would make it negative, and
// a β of 0 would stay 0.
func (k *KLController) Update(kl float64, n int) {
	if k.Target <= 0 || n <= 0 {
		return
	}
	k.Beta *= math.Max(.1, 1+math.Max(-.2, math.Min(.2, kl/k.Target-1))*float64(n)/k.Horizon)
}
