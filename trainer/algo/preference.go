package algo

import (
	"fmt"
	"math"
)

// softplus is log(1 + e^x) without overflow.
func softplus(x float64) float64 {
	if x > 0 {
		return x + math.Log1p(math.Exp(-x))
	}
	return math.Log1p(math.Exp(x))
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// Pairwise is −log σ(chosen − rejected − margin), the loss of a reward model
// (Bradley & Terry 1952; Ouyang et al. 2022, equation 1; the margin as in Llama 2,
// equation 2). The gradient with respect to rejected is the negative of grad.
func Pairwise(chosen, rejected, margin float64) (loss, grad float64) {
	d := chosen - rejected - margin
	return softplus(-d), -sigmoid(-d)
}

// LogExp is log(1 + e^{rejected − chosen}): Pairwise without a margin, by its
// other name (OpenRLHF's LogExpLoss).
func LogExp(chosen, rejected float64) (loss, grad float64) { return Pairwise(chosen, rejected, 0) }

// DPOKind is a loss on the difference of two implicit rewards.
type DPOKind string

// The kinds of --dpo-loss.
const (
	DPOSigmoid DPOKind = "sigmoid" // Rafailov et al. 2023, equation 7
	DPOIPO     DPOKind = "ipo"     // Azar et al. 2023, equation 17
	DPOHinge   DPOKind = "hinge"   // Zhao et al. 2023, SLiC
)

// DPO is the direct preference loss of one pair: h = (chosen − refChosen) −
// (rejected − refRejected), each the log-prob of a whole reply (with ipo: the
// mean over its tokens). grad is the derivative with respect to chosen; with
// respect to rejected it is the negative. smoothing is the share of labels taken
// to be wrong.
func DPO(kind DPOKind, chosen, rejected, refChosen, refRejected, beta, smoothing float64) (loss, grad float64, err error) {
	h := (chosen - refChosen) - (rejected - refRejected)
	switch kind {
	case DPOSigmoid:
		loss = (1-smoothing)*softplus(-beta*h) + smoothing*softplus(beta*h)
		return loss, beta * (-(1-smoothing)*sigmoid(-beta*h) + smoothing*sigmoid(beta*h)), nil
	case DPOIPO:
		d := h - 1/(2*beta)
		return d * d, 2 * d, nil
	case DPOHinge:
		if 1-beta*h > 0 {
			return 1 - beta*h, -beta, nil
		}
		return 0, 0, nil
	}
	return 0, 0, fmt.Errorf("unknown preference loss %q; it is sigmoid, ipo or hinge", kind)
}

// Restricted is the cross-entropy −Σ y·log p of p = softmax(lp), where lp are the
// log-probs of some tokens of a vocabulary and y is a distribution over them; a
// single token has its log-prob as it is. grad is with respect to lp.
func Restricted(lp, y []float64) (loss float64, grad []float64) {
	if len(lp) == 1 {
		return -y[0] * lp[0], []float64{-y[0]}
	}
	top, sum, mass := math.Inf(-1), 0.0, 0.0
	for _, x := range lp {
		top = math.Max(top, x)
	}
	for i, x := range lp {
		sum += math.Exp(x - top)
		mass += y[i]
	}
	grad = make([]float64, len(lp))
	for i, x := range lp {
		log := x - top - math.Log(sum)
		loss -= y[i] * log
		grad[i] = mass*math.Exp(log) - y[i]
	}
	return loss, grad
}
