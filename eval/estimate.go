package eval

import (
	"math"
	"math/rand/v2"
	"sort"
)

// Estimate is a number and its standard error over problems; nil where it
// cannot be told (no problem is complete; fewer than two).
type Estimate struct {
	Value    *float64 `json:"value"`
	StdErr   *float64 `json:"stderr"`
	Problems int      `json:"problems"` // that it is taken over
}

// Mean is the mean of values, one a problem, and its standard error by the
// central limit theorem: √(Σ(v − mean)² / (n−1) / n) (Miller 2024, "Adding Error
// Bars to Evals", section 2). Attempts at one problem are not independent, so
// they are averaged first: the problem is the cluster.
func Mean(values []float64) Estimate {
	e := Estimate{Problems: len(values)}
	if len(values) == 0 {
		return e
	}
	mean := 0.0
	for _, v := range values {
		mean += v
	}
	mean /= float64(len(values))
	e.Value = &mean
	if n := float64(len(values)); n > 1 {
		sq := 0.0
		for _, v := range values {
			sq += (v - mean) * (v - mean)
		}
		se := math.Sqrt(sq / (n - 1) / n)
		e.StdErr = &se
	}
	return e
}

// Ks are the k of pass@k: 1, 2, 4, 8 … and k itself.
func Ks(k int) []int {
	var all []int
	for i := 1; i < k; i *= 2 {
		all = append(all, i)
	}
	return append(all, k)
}

// PassAtK is the unbiased estimate 1 − C(n−c,k)/C(n,k) of the chance that at
// least one of k attempts is correct, from c correct ones of n ≥ k (Chen et al.
// 2021, "Evaluating Large Language Models Trained on Code", equation 1), as a
// product that neither overflows nor cancels.
func PassAtK(n, c, k int) float64 {
	if n-c < k {
		return 1
	}
	q := 1.0
	for i := n - c + 1; i <= n; i++ {
		q *= 1 - float64(k)/float64(i)
	}
	return 1 - q
}

// PassHatK is C(c,k)/C(n,k), the unbiased estimate of the chance that all of k
// attempts are correct (pass^k of Yao et al. 2024, "τ-bench").
func PassHatK(n, c, k int) float64 {
	q := 1.0
	for i := range k {
		q *= float64(c-i) / float64(n-i)
		if q <= 0 {
			return 0
		}
	}
	return q
}

// majSubsets is how many random subsets maj@k is averaged over where there are
// more than k attempts.
const majSubsets = 400

// majAtK is the chance that the most frequent answer of k attempts is correct
// (maj@k of Lewkowycz et al. 2022, "Solving Quantitative Reasoning Problems with
// Language Models"; the vote is self-consistency, Wang et al. 2023), where what
// the reward takes for the same is one answer; a tie is broken at random, and an
// attempt without an answer has no vote.
func (p *Problem) majAtK(k int) float64 {
	sort.Slice(p.attempts, func(i, j int) bool { return p.attempts[i].attempt < p.attempts[j].attempt })
	if len(p.attempts) == k {
		return majority(p.attempts)
	}
	rng := rand.New(rand.NewPCG(1, uint64(len(p.attempts))))
	pick := append([]graded(nil), p.attempts...)
	sum := 0.0
	for range majSubsets {
		for i := range k { // the first k of a Fisher–Yates shuffle
			j := i + rng.IntN(len(pick)-i)
			pick[i], pick[j] = pick[j], pick[i]
		}
		sum += majority(pick[:k])
	}
	return sum / majSubsets
}

func majority(attempts []graded) float64 {
	votes, right := map[string]int{}, map[string]bool{}
	most := 0
	for _, a := range attempts {
		if a.none {
			continue
		}
		votes[a.answer]++
		right[a.answer] = right[a.answer] || a.correct
		most = max(most, votes[a.answer])
	}
	tied, good := 0, 0
	for answer, n := range votes {
		if n == most {
			tied++
			if right[answer] {
				good++
			}
		}
	}
	if tied == 0 {
		return 0
	}
	return float64(good) / float64(tied)
}

// graded is one attempt that counts.
type graded struct {
	attempt int
	answer  string // as it counts in a vote
	none    bool
	correct bool
}
