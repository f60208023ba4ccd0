package algo

import (
	"math"
	"slices"
	"testing"
)

// Truncated importance sampling is min(w, C): a floor would weigh tokens that the new
// policy has all but left several times too much.
func TestTruncatedWeightsHaveNoFloor(t *testing.T) {
	old, roll := make([]float64, 4), make([]float64, 4)
	for i, w := range []float64{.05, .1, .9, 3} {
		old[i] = math.Log(w)
	}
	for i, w := range NewCorrection(TIS).Weights(old, roll) {
		if want := []float64{.05, .1, .9, 2}[i]; math.Abs(w-want) > 1e-12 {
			t.Errorf("weight %d is %v, want %v", i, w, want)
		}
	}
	if w := NewCorrection(TISSequence).Weights([]float64{-3, -4}, []float64{0, 0})[0]; math.Abs(w-math.Exp(-7)) > 1e-15 {
		t.Errorf("the weight of the sequence is %v, want e^-7", w)
	}
}

// 200 tokens of half a nat each are far from what was sampled, and are masked.
func TestASequenceFarFromWhatWasSampledIsMasked(t *testing.T) {
	for kind, want := range map[string]float64{SequenceMask: 0, SequenceMaskIS: math.Exp(-.5)} {
		old, roll := make([]float64, 200), make([]float64, 200)
		for i := range old {
			old[i] = -.5
		}
		if w := NewCorrection(kind).Weights(old, roll)[0]; math.Abs(w-want) > 1e-12 {
			t.Errorf("%s: weight %v, want %v", kind, w, want)
		}
	}
	if w := NewCorrection(SequenceMask).Weights([]float64{.4, -.4}, []float64{0, 0})[0]; w != 1 {
		t.Errorf("a sequence whose geometric mean is 1 has the weight %v", w)
	}
}

// What the table says a loss reads is what its formula reads.
func TestALossReadsTheLogprobsOfItsRatioAlone(t *testing.T) {
	for _, l := range Losses {
		s := Span{LP: []float64{-1, -2}, Old: []float64{-1.1, -1.9}, RolloutLogprobs: []float64{-.9, -2.2},
			Adv: []float64{1, 1}, Teacher: []float64{-.5, -3}, Weight: []float64{1, 1}}
		grad := func(change func(*Span)) []float64 {
			x := Span{slices.Clone(s.LP), slices.Clone(s.Old), slices.Clone(s.RolloutLogprobs), slices.Clone(s.Adv),
				slices.Clone(s.Teacher), slices.Clone(s.Weight), nil}
			change(&x)
			r, err := l.At(x, LossConfig{Clip: Clip{Low: .9, High: 9}, SAPO: [2]float64{1, 1}, Threshold: 9, RolloutKL: .1})
			if err != nil {
				t.Fatal(err)
			}
			return r.Grad
		}
		base := grad(func(*Span) {})
		for name, x := range map[string]struct {
			reads  bool
			change func(*Span)
		}{
			"old":       {l.NeedsOld(), func(s *Span) { s.Old[0] -= .3 }},
			"rollout":   {l.NeedsRollout(), func(s *Span) { s.RolloutLogprobs[0] -= .3 }},
			"advantage": {l.ReadsAdvantage(), func(s *Span) { s.Adv[0], s.Adv[1] = .5, .5 }},
			"teacher":   {l.Teacher, func(s *Span) { s.Teacher[0] -= .3 }},
		} {
			if moved := !slices.Equal(base, grad(x.change)); moved != x.reads {
				t.Errorf("%s: the table says that it reads %s: %v; its gradient moves: %v", l.Name, name, x.reads, moved)
			}
		}
		if l.NeedsRollout() == l.CorrectionAllowed() {
			t.Errorf("%s has a ratio to the sampler, and a correction to it beside: %v", l.Name, l.CorrectionAllowed())
		}
	}
}

// Where the group's mean is below 0 a longer reply earns nothing by its length.
func TestALengthPenaltyIsNeverAPrize(t *testing.T) {
	got := LengthPenalty([]float64{-1, -1}, []int{10, 100}, []int{0, 0}, []int{1, 1}, .5, 0, 0)
	if !slices.Equal(got, []float64{-1, -1}) {
		t.Errorf("scores −1 and −1 become %v", got)
	}
}

// A default follows what it belongs to: the KL's estimate where it acts, a correction's
// bounds its kind, whether there is a correction, and the aggregation, the loss.
func TestDefaultsFollowWhatTheyBelongTo(t *testing.T) {
	// As a reward the estimate's policy gradient, Σ π·r·∇log π, is that of the reverse KL:
	// π_j·(log π_j/q_j − KL).
	p, q := []float64{.7, .2, .1}, []float64{.3, .3, .4}
	kl := 0.0
	for i := range p {
		kl += p[i] * math.Log(p[i]/q[i])
	}
	mean, values := 0.0, make([]float64, len(p))
	for i := range p {
		values[i], _ = DefaultKL(true).At(math.Log(p[i]), math.Log(q[i]))
		mean += p[i] * values[i]
	}
	for i := range p {
		if got, want := p[i]*(values[i]-mean), p[i]*(math.Log(p[i]/q[i])-kl); math.Abs(got-want) > 1e-12 {
			t.Errorf("%s in the reward has the gradient %v of logit %d, the reverse KL %v", DefaultKL(true), got, i, want)
		}
		if v, _ := DefaultKL(false).At(math.Log(p[i]), math.Log(q[i])); v < 0 {
			t.Errorf("%s in the loss is %v of token %d: below 0", DefaultKL(false), v, i)
		}
	}
	if in, out := DefaultKL(true), DefaultKL(false); in != KLK1 || out != KLK3 {
		t.Errorf("%s in the reward, %s in the loss", in, out)
	}
	for kind, want := range map[string][2]float64{NoCorrection: {}, TIS: {0, 2}, TISSequence: {0, 2},
		IcePop: {.5, 5}, SequenceMask: {.999, 1.001}, SequenceMaskIS: {.5, 5}} {
		if c := NewCorrection(kind); c != (Correction{Kind: kind, Low: want[0], High: want[1]}) {
			t.Errorf("%s: %+v", kind, c)
		}
	}
	for _, l := range Losses {
		wantKind := TIS
		if l.Ratio == RatioRollout {
			wantKind = NoCorrection
		}
		want := TokenMean
		if slices.Contains([]string{"gspo", "sapo", "gmpo"}, l.Name) {
			want = SeqMeanTokenMean
		}
		if kind, a := DefaultCorrection(l), l.DefaultAggregation(); kind != wantKind || a != want {
			t.Errorf("%s: correction %s, aggregation %s; want %s, %s", l.Name, kind, a, wantKind, want)
		}
	}
}

// A second name means the same loss or estimator, is listed nowhere, and is nobody
// else's name: --loss ipo of older settings files is not DPO's ipo.
func TestAliasesAreTakenAndNotListed(t *testing.T) {
	for alias, name := range map[string]string{"gpg": "reinforce", "ipo": "dppo-two-sided"} {
		l, ok := LossByName(alias)
		if !ok || l.Name != name || slices.Contains(LossNames(), alias) {
			t.Errorf("loss %s is %v", alias, l)
		}
	}
	if e, ok := EstimatorByName("reinforce"); !ok || e.Name != "reinforce++" || slices.Contains(EstimatorNames(), "reinforce") {
		t.Errorf("advantage reinforce is %v", e)
	}
	var names []string
	for _, l := range Losses {
		names = append(append(names, l.Name), l.Aliases...)
	}
	if slices.Sort(names); len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("a name stands for two losses: %v", names)
	}
}
