package algo

import (
	"fmt"
	"math"
)

// groupEpsilon keeps a group without spread from dividing by zero.
const groupEpsilon = 1e-6

// GRPO is (s − μ)/(σ + 1e-6) with the unbiased σ of the group (Shao et al. 2024,
// DeepSeekMath, section 4.1.1; the epsilon as in verl). A group of one has no
// baseline: μ = 0 and σ = 1.
func GRPO(score_G []float64) []float64 {
	mean, std := 0.0, 1.0
	if len(score_G) > 1 {
		mean, std = meanStd(score_G)
	}
	adv_G := make([]float64, len(score_G))
	for i, s := range score_G {
		adv_G[i] = (s - mean) / (std + groupEpsilon)
	}
	return adv_G
}

// DrGRPO is s − μ, without the division by σ that favours groups of little
// spread (Liu et al. 2025, "Understanding R1-Zero-Like Training"). A group of
// one has μ = 0.
func DrGRPO(score_G []float64) []float64 {
	mean := 0.0
	if len(score_G) > 1 {
		mean, _ = meanStd(score_G)
	}
	adv_G := make([]float64, len(score_G))
	for i, s := range score_G {
		adv_G[i] = s - mean
	}
	return adv_G
}

// RLOO is s minus the mean of the others, (s − μ)·n/(n−1) (Ahmadian et al. 2024,
// "Back to Basics", equation 8). A group of one is an error.
func RLOO(score_G []float64) ([]float64, error) {
	n := float64(len(score_G))
	if n < 2 {
		return nil, fmt.Errorf("rloo needs at least 2 attempts in a group, this one has %d", len(score_G))
	}
	mean, _ := meanStd(score_G)
	adv_G := make([]float64, len(score_G))
	for i, s := range score_G {
		adv_G[i] = (s - mean) * n / (n - 1)
	}
	return adv_G, nil
}

// meanStd gives the mean and the unbiased standard deviation of 2 or more numbers.
func meanStd(x []float64) (mean, std float64) {
	for _, v := range x {
		mean += v
	}
	mean /= float64(len(x))
	ss := 0.0
	for _, v := range x {
		ss += (v - mean) * (v - mean)
	}
	return mean, math.Sqrt(ss / float64(len(x)-1))
}

// ZeroSpread reports whether all scores of a group are equal: it teaches
// nothing.
func ZeroSpread(score_G []float64) bool {
	for _, s := range score_G {
		if s != score_G[0] {
			return false
		}
	}
	return true
}

// OPO is s − Σ len·s / Σ len: the optimal baseline of a policy gradient whose
// size grows with the length (Hao et al. 2025, "On-Policy RL with Optimal Reward
// Baseline", equation 6). A group of one has no baseline.
func OPO(score_G []float64, tokens_G []int) []float64 {
	sum, n := 0.0, 0.0
	for i, s := range score_G {
		sum += float64(tokens_G[i]) * s
		n += float64(tokens_G[i])
	}
	baseline := 0.0
	if len(score_G) > 1 && n > 0 {
		baseline = sum / n
	}
	adv_G := make([]float64, len(score_G))
	for i, s := range score_G {
		adv_G[i] = s - baseline
	}
	return adv_G
}

// PassK gives the best of a group what it is better by than the second best,
// over σ + 1e-6, and the others 0 (verl's grpo_passk, after
// Chen et al. 2025, "Pass@k Training"). A group of one is an error.
func PassK(score_G []float64) ([]float64, error) {
	if len(score_G) < 2 {
		return nil, fmt.Errorf("grpo_passk needs at least 2 attempts in a group, this one has %d", len(score_G))
	}
	best := 0
	for i, s := range score_G {
		if s > score_G[best] {
			best = i
		}
	}
	second := math.Inf(-1)
	for i, s := range score_G {
		if i != best {
			second = math.Max(second, s)
		}
	}
	adv_G := make([]float64, len(score_G))
	adv_G[best] = score_G[best] - second
	_, std := meanStd(score_G)
	adv_G[best] /= std + groupEpsilon
	return adv_G, nil
}

// MaxRL is (s − μ)/μ, 0 where μ ≤ 0: maximum-likelihood reinforcement learning
// weighs a task by how seldom it is solved (arXiv 2602.02710).
func MaxRL(score_G []float64) []float64 {
	adv_G := make([]float64, len(score_G))
	mean := 0.0
	for _, s := range score_G {
		mean += s / float64(len(score_G))
	}
	if mean <= 0 {
		return adv_G
	}
	for i, s := range score_G {
		adv_G[i] = (s - mean) / mean
	}
	return adv_G
}

// RAE is s − b, with b the exponential average of its role's earlier scores
// (role-conditioned advantage estimation, Liu et al. 2025, SPIRAL, arXiv
// 2506.24119): b is used before it takes the score in.
type RAE struct {
	Decay    float64            // of the average; SPIRAL takes .95
	Baseline map[string]float64 // b of each role so far
}

// Next is the advantage of the next score of a role; the first is compared with 0.
func (r *RAE) Next(role string, score float64) float64 {
	if r.Baseline == nil {
		r.Baseline = map[string]float64{}
	}
	b := r.Baseline[role]
	r.Baseline[role] = r.Decay*b + (1-r.Decay)*score
	return score - b
}
