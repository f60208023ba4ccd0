package algo

import (
	"fmt"
	"math"
	"sort"
)

// Estimator turns the scores of one group into advantages, one a member.
type Estimator func(score_G []float64) ([]float64, error)

// Estimators by the names that --advantage takes.
var Estimators = map[string]Estimator{
	"grpo":    func(s []float64) ([]float64, error) { return GRPO(s), nil },
	"dr_grpo": func(s []float64) ([]float64, error) { return DrGRPO(s), nil },
	"rloo":    RLOO,
}

// EstimatorNames lists the names, sorted.
func EstimatorNames() []string {
	var names []string
	for n := range Estimators {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

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

// GAE is the generalised advantage estimate (Schulman et al. 2016, equation 16)
// over the sequence of sampled tokens only: a token that the policy did not
// sample is no action, so both the next value and the running sum are carried
// past it unchanged. returns = advantages + values. Entries where the mask is
// false are 0 in both.
func GAE(reward_T, value_T []float64, mask_T []bool, gamma, lambda float64) (adv_T, return_T []float64, err error) {
	if len(reward_T) != len(mask_T) || len(value_T) != len(mask_T) {
		return nil, nil, fmt.Errorf("gae: %d rewards, %d values and %d mask entries; the three must be of one length", len(reward_T), len(value_T), len(mask_T))
	}
	adv_T, return_T = make([]float64, len(mask_T)), make([]float64, len(mask_T))
	next, running := 0.0, 0.0
	for t := len(mask_T) - 1; t >= 0; t-- {
		if !mask_T[t] {
			continue
		}
		delta := reward_T[t] + gamma*next - value_T[t]
		running = delta + gamma*lambda*running
		next = value_T[t]
		adv_T[t], return_T[t] = running, running+value_T[t]
	}
	return adv_T, return_T, nil
}

// Returns is R_t = r_t + γ·R_{t+1} over the sampled tokens; 0 where the mask is
// false.
func Returns(reward_T []float64, mask_T []bool, gamma float64) ([]float64, error) {
	if len(reward_T) != len(mask_T) {
		return nil, fmt.Errorf("returns: %d rewards and %d mask entries", len(reward_T), len(mask_T))
	}
	out := make([]float64, len(mask_T))
	running := 0.0
	for t := len(mask_T) - 1; t >= 0; t-- {
		if mask_T[t] {
			running = reward_T[t] + gamma*running
			out[t] = running
		}
	}
	return out, nil
}
