package algo

import (
	"math"
	"math/rand/v2"
	"testing"
)

func near(t *testing.T, what string, got, want, tol float64) {
	t.Helper()
	if math.IsNaN(got) || math.Abs(got-want) > tol {
		t.Errorf("%s = %.8f, want %.8f", what, got, want)
	}
}

// The inputs and results of the golden numbers were computed with TRL and
// OpenRLHF themselves (shared reference, rl-algorithms).
var (
	goldenLP   = [][]float64{{-1, -2, -.5}, {-.3, -.7, -1.2}}
	goldenOld  = [][]float64{{-1.2, -1.5, -.5}, {-.6, -.7, -2.0}}
	goldenAdv  = [][]float64{{1, 1, 1}, {-1, -1, -1}}
	goldenMask = [][]bool{{true, true, false}, {true, true, true}}
)

// aggregate sums f over the golden tokens with the weights of a mode.
func aggregate(t *testing.T, a Aggregation, maxLength float64, f func(i, j int) float64) float64 {
	t.Helper()
	c := Counts{Tokens: 5, Sequences: 2, MaxLength: maxLength}
	total := 0.0
	for i := range goldenMask {
		n := 0
		for _, m := range goldenMask[i] {
			if m {
				n++
			}
		}
		w, err := a.Weight(n, c)
		if err != nil {
			t.Fatal(err)
		}
		for j, m := range goldenMask[i] {
			if m {
				total += w * f(i, j)
			}
		}
	}
	return total
}

func TestPPOLossEqualsTRL(t *testing.T) {
	ppo := func(c Clip) func(i, j int) float64 {
		return func(i, j int) float64 { return PPO(goldenLP[i][j], goldenOld[i][j], goldenAdv[i][j], c).Loss }
	}
	sym := Clip{Low: .2, High: .2}
	near(t, "token-mean", aggregate(t, TokenMean, 0, ppo(sym)), 0.553774, 1e-6)
	near(t, "dual clip 3", aggregate(t, TokenMean, 0, ppo(Clip{.2, .2, 3})), 0.553774, 1e-6)
	near(t, "clip-higher", aggregate(t, TokenMean, 0, ppo(Clip{Low: .2, High: .28})), 0.549493, 1e-6)
	near(t, "seq-mean", aggregate(t, SeqMeanTokenMean, 0, ppo(sym)), 0.310934, 1e-6)
	near(t, "dr_grpo, L=8", aggregate(t, SeqMeanTokenSumNorm, 8, ppo(sym)), 0.173054, 1e-6)
	near(t, "clip fraction", aggregate(t, TokenMean, 0, func(i, j int) float64 {
		if PPO(goldenLP[i][j], goldenOld[i][j], goldenAdv[i][j], sym).Clipped {
			return 1
		}
		return 0
	}), .2, 1e-12)
	near(t, "ppo_kl", aggregate(t, TokenMean, 0, func(i, j int) float64 { return K1(goldenOld[i][j], goldenLP[i][j]) }), -.16, 1e-9)
	near(t, "dapo with β=.04", aggregate(t, TokenMean, 0, func(i, j int) float64 {
		return PPO(goldenLP[i][j], goldenOld[i][j], goldenAdv[i][j], sym).Loss + .04*K3(goldenLP[i][j], goldenOld[i][j])
	}), 0.557434, 1e-6)
}

func TestKLEstimatesEqualOpenRLHF(t *testing.T) {
	for _, c := range []struct{ lp, ref, k1, k2, k3 float64 }{
		{-1, -1.2, .2, .02, .01873076}, {-2, -1.5, -.5, .125, .14872122}, {-.3, -.6, .3, .045, .04081821},
		{-.7, -.7, 0, 0, 0}, {-1.2, -2, .8, .32, .24932897},
	} {
		near(t, "k1", K1(c.lp, c.ref), c.k1, 1e-8)
		near(t, "k2", K2(c.lp, c.ref), c.k2, 1e-8)
		near(t, "k3", K3(c.lp, c.ref), c.k3, 1e-7) // theirs is float32
	}
}

func TestAdvantagesEqualTRL(t *testing.T) {
	equal := func(name string, got, want []float64, tol float64) {
		t.Helper()
		if len(got) != len(want) {
			t.Fatalf("%s: %d advantages for %d scores", name, len(got), len(want))
		}
		for i := range want {
			near(t, name, got[i], want[i], tol)
		}
	}
	equal("grpo", GRPO([]float64{1, 0, 0, 0}), []float64{1.499997, -.499999, -.499999, -.499999}, 1e-6)
	// R=[[1,0],[0,1],[1,1],[0,0]], w=[1,.5]
	group := []float64{1, .5, 1.5, 0}
	// TRL adds 1e-4 to the deviation where the paper's code and verl add 1e-6.
	equal("grpo weighted", GRPO(group), []float64{.3872, -.3872, 1.1617, -1.1617}, 3e-4)
	batch, _ := EstimatorByName("grpo_batch")
	two := make([][]Row, 2)
	for i, x := range append(group, .5, .5, .5, .5) {
		two[i/4] = append(two[i/4], Row{Reward_T: []float64{x}})
	}
	of, err := estimateAll(batch, two, EstimatorOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var got []float64
	for _, g := range of.Adv {
		for _, adv_T := range g {
			got = append(got, adv_T...)
		}
	}
	equal("the batch's std", got, []float64{.5639, -.5639, 1.6918, -1.6918, 0, 0, 0, 0}, 5e-4) // with 1e-4 again
	equal("no std", DrGRPO(group), []float64{.25, -.25, .75, -.75}, 1e-12)
	rloo, err := RLOO(group)
	if err != nil {
		t.Fatal(err)
	}
	equal("rloo", rloo, []float64{.3333, -.3333, 1, -1}, 1e-4)
	equal("a group without spread", GRPO([]float64{.25, .25, .25, .25}), []float64{0, 0, 0, 0}, 0)
	equal("a group of one", GRPO([]float64{2}), []float64{2 / (1 + 1e-6)}, 1e-12)
	if _, err := RLOO([]float64{1}); err == nil {
		t.Error("rloo took a group of one")
	}
}

func TestGAEIsTheDiscountedSumOfItsErrors(t *testing.T) {
	value := []float64{.5, .4, .3, .2}
	reward := []float64{0, 0, 0, 1}
	for lambda, want := range map[float64][]float64{1: {.5, .6, .7, .8}, .95: {.4006, .527, .66, .8}} {
		adv, ret, err := GAE(reward, value, 1, lambda)
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			near(t, "advantage", adv[i], want[i], 1e-4)
			near(t, "return", ret[i], want[i]+value[i], 1e-4)
		}
	}
	if _, _, err := GAE(reward[:2], value, 1, 1); err == nil {
		t.Error("unequal lengths were taken")
	}
}

func TestReturnsAreOfTheRewardsToCome(t *testing.T) {
	for i, got := range ReturnsOf([]float64{0, 0, 2}, .5) {
		near(t, "return", got, []float64{.5, 1, 2}[i], 1e-12)
	}
}

func TestGradientsEqualFiniteDifferences(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const h = 1e-6
	for range 2000 {
		lp, old, adv := -3*r.Float64(), -3*r.Float64(), 4*r.Float64()-2
		c := Clip{Low: .2, High: .28}
		if r.IntN(2) == 0 {
			c.Dual = 3
		}
		up, down := PPO(lp+h, old, adv, c), PPO(lp-h, old, adv, c)
		if up.Clipped == down.Clipped && up.Dual == down.Dual {
			near(t, "dPPO/dlp", PPO(lp, old, adv, c).Grad, (up.Loss-down.Loss)/(2*h), 1e-5*(1+math.Abs(up.Loss)))
		}
		near(t, "dK3/dlp", K3Grad(lp, old), (K3(lp+h, old)-K3(lp-h, old))/(2*h), 1e-5*(1+K3(lp, old)))
	}
}

func TestGradientAtRatioOneIsReinforce(t *testing.T) {
	for _, adv := range []float64{-2, -.5, 0, .5, 2} {
		if g := PPO(-1.25, -1.25, adv, Clip{Low: .2, High: .2}).Grad; g != -adv {
			t.Errorf("at ratio 1 the gradient is %v, REINFORCE's is %v", g, -adv)
		}
	}
}

func TestExtremeRatiosStayFinite(t *testing.T) {
	for _, d := range []float64{-1e4, -50, 50, 1e4} {
		l := PPO(d, 0, -1, Clip{Low: .2, High: .2})
		if math.IsInf(l.Loss, 0) || math.IsNaN(l.Loss) || math.IsInf(K3(d, 0), 0) {
			t.Errorf("log-ratio %v gives loss %v and k3 %v", d, l.Loss, K3(d, 0))
		}
	}
}

func TestWhitenGivesZeroMeanUnitVariance(t *testing.T) {
	whitened := func(x ...float64) []float64 {
		var w Whitening
		for pass := range Passes {
			w.AddAll(pass, x)
		}
		w.Whiten(x)
		return x
	}
	for i, got := range whitened(1, 2, 3) {
		near(t, "whitened", got, []float64{-1, 0, 1}[i], 1e-7)
	}
	for _, alone := range [][]float64{{3}, {2, 2}} { // one number, and equal ones
		for _, got := range whitened(alone...) {
			near(t, "whitened", got, 0, 0)
		}
	}
}
