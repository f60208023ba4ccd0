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
	Problems int      `json:"problems"`          // that it is taken over
	Bound    *float64 `json:"bound95,omitempty"` // of a share that came out as exactly 0 or 1: see Bound
}

// Average is the mean of estimates over different problems, each of the same weight, with
// the standard error √(Σ stderr²)/n. It is nothing where one of them is, and its error where
// one's is. Of a share that came out as exactly 0 or 1, whose standard error of 0 would read
// as certainty, it takes the one of Agresti and Coull (see plusFour). Where all came out as 0,
// or all as 1, the bound is that of the smallest one, divided by their number: problems that
// would tell are the rarest there.
func Average(all []Estimate) Estimate {
	var sum, squares float64
	out := Estimate{}
	known := true
	for _, e := range all {
		if e.Value == nil {
			return Estimate{}
		}
		sum += *e.Value
		out.Problems += e.Problems
		if known = known && e.StdErr != nil; known {
			err := *e.StdErr
			if e.Bound != nil {
				err = plusFour(*e.Value, e.Problems)
			}
			squares += err * err
		}
	}
	if len(all) == 0 {
		return out
	}
	mean := sum / float64(len(all))
	out.Value = &mean
	if known {
		err := math.Sqrt(squares) / float64(len(all))
		if mean == 0 || mean == 1 {
			err = 0 // as of each; there is a bound
		}
		out.StdErr = &err
	}
	least := all[0].Problems
	for _, e := range all[1:] {
		least = min(least, e.Problems)
	}
	if mean == 0 || mean == 1 {
		if limit := Bound(0, least); limit != nil {
			b := *limit / float64(len(all))
			if mean == 1 {
				b = 1 - b
			}
			out.Bound = &b
		}
	}
	return out
}

// plusFour is the standard error of a share over n problems after two successes and two
// failures more: √(p(1−p)/(n+4)) at p = (n·share + 2)/(n+4) (Agresti and Coull 1998,
// "Approximate Is Better than Exact for Interval Estimation of Binomial Proportions").
func plusFour(share float64, n int) float64 {
	m := float64(n + 4)
	p := (float64(n)*share + 2) / m
	return math.Sqrt(p * (1 - p) / m)
}

// Bound is the one-sided 95 % limit of a share that came out as exactly 0 (an
// upper limit) or 1 (a lower one) over n problems, whose standard error of 0
// would read as certainty: the p at which n problems come out so with a chance
// of 5 %, 1 − 0.05^(1/n), and its mirror (the exact limit of Clopper and
// Pearson 1934, of which 3/n, the rule of three, is the approximation). nil
// for any other share, and over no problem. It holds for means of numbers from
// 0 to 1 too: a mean is at most the share of the problems that are not 0.
func Bound(value float64, n int) *float64 {
	if n < 1 || value != 0 && value != 1 {
		return nil
	}
	b := 1 - math.Pow(0.05, 1/float64(n))
	if value == 1 {
		b = 1 - b
	}
	return &b
}

// Share is Mean of numbers from 0 to 1.
func Share(values []float64) Estimate { return share(Mean(values)) }

func share(e Estimate) Estimate {
	if e.Value != nil {
		e.Bound = Bound(*e.Value, e.Problems)
	}
	return e
}

// Ratio is Σ sums / Σ counts with its standard error where the problem is the
// cluster: √(m/(m−1) · Σ (sum − ratio·count)²) / Σ count over m problems (Cochran
// 1977, "Sampling Techniques", section 6.4). Where every count is the same it is
// that of Mean. Problems of which nothing is counted are left out.
func Ratio(sums, counts []float64) Estimate {
	var r ratio
	for i, n := range counts {
		r.add(sums[i], n)
	}
	for i, n := range counts {
		r.again(sums[i], n)
	}
	return r.estimate()
}

// ratio is Ratio of numbers that come twice, in the same order: none is kept.
type ratio struct {
	problems int
	a, b, sq float64
}

func (r *ratio) add(sum, n float64) {
	if n > 0 {
		r.problems++
		r.a, r.b = r.a+sum, r.b+n
	}
}

func (r *ratio) again(sum, n float64) {
	if r.b != 0 {
		d := sum - r.a/r.b*n
		r.sq += d * d
	}
}

func (r *ratio) estimate() Estimate {
	e := Estimate{Problems: r.problems}
	if r.b == 0 {
		return e
	}
	v := r.a / r.b
	e.Value = &v
	if m := float64(r.problems); m > 1 {
		se := math.Sqrt(m/(m-1)*r.sq) / r.b
		e.StdErr = &se
	}
	return e
}

// Mean is the mean of values, one a problem, and its standard error by the
// central limit theorem: √(Σ(v − mean)² / (n−1) / n) (Miller 2024, "Adding Error
// Bars to Evals", section 2). Attempts at one problem are not independent, so
// they are averaged first: the problem is the cluster.
func Mean(values []float64) Estimate {
	var m mean
	for _, v := range values {
		m.add(v)
	}
	for _, v := range values {
		m.again(v)
	}
	return m.estimate()
}

// mean is Mean of numbers that come twice, in the same order: none is kept.
type mean struct {
	n       int
	sum, sq float64
}

func (m *mean) add(v float64) { m.n, m.sum = m.n+1, m.sum+v }

func (m *mean) again(v float64) {
	d := v - m.sum/float64(m.n)
	m.sq += d * d
}

func (m *mean) estimate() Estimate {
	e := Estimate{Problems: m.n}
	if m.n == 0 {
		return e
	}
	n := float64(m.n)
	v := m.sum / n
	e.Value = &v
	if m.n > 1 {
		se := math.Sqrt(m.sq / (n - 1) / n)
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
