package algo

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Row is one trajectory as an estimator sees it. Its tokens are those that the
// policy sampled, over all turns, and no others: an observation is no action.
type Row struct {
	Reward_T []float64 // one a token; their sum is the trajectory's score
	Value_T  []float64 // of the critic, one a token; gae only
	Parts    []float64 // the reward's components; gdpo only
	Role     string    // whose trajectory it is; rae only
	Greedy   *float64  // score of the greedy attempt at the same task; remax only
}

// Score is Σ_t r_t.
func (r *Row) Score() float64 {
	sum := 0.0
	for _, x := range r.Reward_T {
		sum += x
	}
	return sum
}

// EstimatorOptions are the constants of the estimators.
type EstimatorOptions struct {
	Gamma       float64   // discount of a token's reward
	Lambda      float64   // of gae
	PartWeights []float64 // of gdpo; nil: 1 each
	Decay       float64   // of rae; 0: .95
}

// Advantages are what an estimator gives: one number a token for each row of
// each group, and with gae the returns that the critic is fitted to.
type Advantages struct {
	Adv    [][][]float64 // group, row, token
	Return [][][]float64 // gae only
}

// Estimator turns groups of rows into advantages. An error names what the rows
// lack.
type Estimator struct {
	Name    string
	Formula string // in a few words, for the help text
	// Relative says that a group whose rows all score the same gets 0: it can
	// teach nothing and need not be computed.
	Relative bool
	Batch    bool // looks beyond the group: all groups must be given at once
	estimate func(groups [][]Row, o EstimatorOptions) (Advantages, error)
}

// Estimate computes the advantages. A row without tokens takes no part in its
// group's baseline and has none.
func (e *Estimator) Estimate(groups [][]Row, o EstimatorOptions) (Advantages, error) {
	for _, g := range groups {
		for i := range g {
			if len(g[i].Reward_T) == 0 {
				return Advantages{}, fmt.Errorf("%s: a row has no sampled token", e.Name)
			}
		}
	}
	return e.estimate(groups, o)
}

// Estimators are those that --advantage takes.
var Estimators = []*Estimator{
	{"grpo", "(s−μ)/(σ+1e-6)", true, false, perScore(func(s []float64) ([]float64, error) { return GRPO(s), nil })},
	{"dr_grpo", "s−μ", true, false, perScore(func(s []float64) ([]float64, error) { return DrGRPO(s), nil })},
	{"rloo", "s − mean of the others", true, false, perScore(RLOO)},
	{"grpo_passk", "the best of a group: (r₁−r₂)/(σ+1e-6)", true, false, perScore(func(s []float64) ([]float64, error) { return PassK(s, true) })},
	{"max_rl", "(s−μ)/μ", true, false, perScore(func(s []float64) ([]float64, error) { return MaxRL(s), nil })},
	{"opo", "s − Σ len·s/Σ len", true, false, opo},
	{"gpg", "(B/#scores that are not 0)·(s−μ)", true, true, gpg},
	{"gdpo", "whiten(Σ wₖ·grpo(rₖ)) over the reward's parts", true, true, gdpo},
	{"rae", "s − running mean of the role", false, true, rae},
	{"remax", "return − score of the greedy attempt", false, false, remax},
	{"reinforce", "whiten(R_t), R_t = r_t + γ·R_t+1", false, true, reinforce},
	{"reinforce++", "whiten(R_t) over the batch", false, true, reinforce},
	{"reinforce++-baseline", "whiten(s−μ) over the batch's tokens", true, true, reinforceBaseline},
	{"gae", "Σ (γλ)^k·δ_t+k, whitened; needs a critic (--algo ppo)", false, true, gae},
}

// EstimatorByName finds an estimator.
func EstimatorByName(name string) (*Estimator, bool) {
	i := slices.IndexFunc(Estimators, func(e *Estimator) bool { return e.Name == name })
	if i < 0 {
		return nil, false
	}
	return Estimators[i], true
}

// EstimatorNames lists the names.
func EstimatorNames() []string {
	names := make([]string, len(Estimators))
	for i, e := range Estimators {
		names[i] = e.Name
	}
	return names
}

// perScore makes an estimator of a function from the scores of a group to one
// advantage a member, the same for all its tokens.
func perScore(f func(score_G []float64) ([]float64, error)) func([][]Row, EstimatorOptions) (Advantages, error) {
	return perGroup(func(g []Row, score_G []float64, _ EstimatorOptions) ([]float64, error) { return f(score_G) })
}

// perGroup is perScore for functions that look at more than the scores. Equal
// scores give 0 exactly, not the rounding error of their mean.
func perGroup(f func(g []Row, score_G []float64, o EstimatorOptions) ([]float64, error)) func([][]Row, EstimatorOptions) (Advantages, error) {
	return func(groups [][]Row, o EstimatorOptions) (Advantages, error) {
		var a Advantages
		for _, g := range groups {
			score_G := scores(g)
			adv_G, err := f(g, score_G, o)
			if err != nil {
				return a, err
			}
			if len(g) > 1 && ZeroSpread(score_G) {
				clear(adv_G)
			}
			a.Adv = append(a.Adv, spread(g, adv_G))
		}
		return a, nil
	}
}

func scores(g []Row) []float64 {
	score_G := make([]float64, len(g))
	for i := range g {
		score_G[i] = g[i].Score()
	}
	return score_G
}

// spread gives every token of a row the row's advantage.
func spread(g []Row, adv_G []float64) [][]float64 {
	out := make([][]float64, len(g))
	for i := range g {
		out[i] = slices.Repeat([]float64{adv_G[i]}, len(g[i].Reward_T))
	}
	return out
}

var opo = perGroup(func(g []Row, score_G []float64, _ EstimatorOptions) ([]float64, error) {
	tokens_G := make([]int, len(g))
	for i := range g {
		tokens_G[i] = len(g[i].Reward_T)
	}
	return OPO(score_G, tokens_G), nil
})

// gpg scales s − μ by the share of rows with a score that is not 0: α =
// B/max(#nonzero s, 1), as verl does. The paper (Chu et al. 2025, GPG, equation
// 8) counts the rows whose group has spread; for 0/1 rewards verl's α is 1 over
// the mean score.
func gpg(groups [][]Row, o EstimatorOptions) (Advantages, error) {
	a, err := perScore(func(s []float64) ([]float64, error) { return DrGRPO(s), nil })(groups, o)
	if err != nil {
		return a, err
	}
	rows, nonzero := 0, 0
	for _, g := range groups {
		for _, s := range scores(g) {
			rows++
			if s != 0 {
				nonzero++
			}
		}
	}
	scale := float64(rows) / float64(max(nonzero, 1))
	a.each(func(_, _ int, adv_T []float64) {
		for t := range adv_T {
			adv_T[t] *= scale
		}
	})
	return a, nil
}

// gdpo normalises every component of the reward by itself before it adds them,
// so that one of large spread does not drown the others (Liu et al. 2026, GDPO),
// and whitens the sum over the batch's rows.
func gdpo(groups [][]Row, o EstimatorOptions) (Advantages, error) {
	if len(groups) == 0 || len(groups[0]) == 0 {
		return Advantages{}, nil
	}
	k := len(groups[0][0].Parts)
	if k == 0 {
		return Advantages{}, fmt.Errorf("gdpo needs the reward's components (reward_parts), and the rows have none; take another --advantage")
	}
	if o.PartWeights != nil && len(o.PartWeights) != k {
		return Advantages{}, fmt.Errorf("gdpo: %d weights for %d components of the reward", len(o.PartWeights), k)
	}
	var sums [][]float64
	for _, g := range groups {
		sum_G := make([]float64, len(g))
		for part := range k {
			part_G := make([]float64, len(g))
			for i := range g {
				if len(g[i].Parts) != k {
					return Advantages{}, fmt.Errorf("gdpo: one row has %d components of the reward, another %d", k, len(g[i].Parts))
				}
				part_G[i] = g[i].Parts[part]
			}
			if len(g) > 1 && ZeroSpread(part_G) {
				continue
			}
			w := 1.0
			if o.PartWeights != nil {
				w = o.PartWeights[part]
			}
			for i, x := range GRPO(part_G) {
				sum_G[i] += w * x
			}
		}
		sums = append(sums, sum_G)
	}
	var a Advantages
	white := whiten(slices.Concat(sums...))
	for _, g := range groups {
		a.Adv = append(a.Adv, spread(g, white[:len(g)]))
		white = white[len(g):]
	}
	return a, nil
}

func rae(groups [][]Row, o EstimatorOptions) (Advantages, error) {
	var a Advantages
	r := RAE{Decay: cmp.Or(o.Decay, .95)}
	for _, g := range groups {
		adv_G := make([]float64, len(g))
		for i := range g {
			adv_G[i] = r.Next(g[i].Role, g[i].Score())
		}
		a.Adv = append(a.Adv, spread(g, adv_G))
	}
	return a, nil
}

// remax is the reward still to come less the score of the greedy attempt (Li et
// al. 2024, ReMax, algorithm 1).
func remax(groups [][]Row, _ EstimatorOptions) (Advantages, error) {
	var a Advantages
	for _, g := range groups {
		rows := make([][]float64, len(g))
		for i := range g {
			if g[i].Greedy == nil {
				return a, fmt.Errorf("remax needs a greedy attempt in every group")
			}
			rows[i] = ReturnsOf(g[i].Reward_T, 1)
			for t := range rows[i] {
				rows[i][t] -= *g[i].Greedy
			}
		}
		a.Adv = append(a.Adv, rows)
	}
	return a, nil
}

// reinforce is the discounted reward to come, whitened over the batch (Williams
// 1992; Hu 2025, REINFORCE++).
func reinforce(groups [][]Row, o EstimatorOptions) (Advantages, error) {
	var a Advantages
	for _, g := range groups {
		rows := make([][]float64, len(g))
		for i := range g {
			rows[i] = ReturnsOf(g[i].Reward_T, o.Gamma)
		}
		a.Adv = append(a.Adv, rows)
	}
	a.whiten()
	return a, nil
}

func reinforceBaseline(groups [][]Row, o EstimatorOptions) (Advantages, error) {
	a, err := perScore(func(s []float64) ([]float64, error) { return DrGRPO(s), nil })(groups, o)
	if err == nil {
		a.whiten()
	}
	return a, err
}

func gae(groups [][]Row, o EstimatorOptions) (Advantages, error) {
	var a Advantages
	for _, g := range groups {
		adv, ret := make([][]float64, len(g)), make([][]float64, len(g))
		for i := range g {
			all := slices.Repeat([]bool{true}, len(g[i].Reward_T))
			var err error
			if adv[i], ret[i], err = GAE(g[i].Reward_T, g[i].Value_T, all, o.Gamma, o.Lambda); err != nil {
				return a, err
			}
		}
		a.Adv, a.Return = append(a.Adv, adv), append(a.Return, ret)
	}
	a.whiten()
	return a, nil
}

func (a *Advantages) each(f func(group, row int, adv_T []float64)) {
	for g := range a.Adv {
		for i := range a.Adv[g] {
			f(g, i, a.Adv[g][i])
		}
	}
}

// whiten makes the advantages of all tokens of the batch have mean 0 and
// variance 1.
func (a *Advantages) whiten() {
	var all []float64
	a.each(func(_, _ int, adv_T []float64) { all = append(all, adv_T...) })
	white := whiten(all)
	a.each(func(_, _ int, adv_T []float64) { white = white[copy(adv_T, white):] })
}

// whiten is MaskedWhiten of everything; equal numbers, and one alone, become 0
// exactly.
func whiten(x []float64) []float64 {
	if len(x) < 2 || ZeroSpread(x) {
		return make([]float64, len(x))
	}
	mean, std := meanStd(x)
	out := make([]float64, len(x))
	inv := 1 / math.Sqrt(std*std+1e-8)
	for i, v := range x {
		out[i] = (v - mean) * inv
	}
	return out
}
