package eval

import (
	"errors"
	"fmt"
	"math"
	"testing"
)

func outcomes(pairs ...int) Outcomes {
	o := Outcomes{}
	for i := 0; i < len(pairs); i += 2 {
		o[fmt.Sprint("p", i/2)] = Outcome{C: pairs[i], N: pairs[i+1]}
	}
	return o
}

// The p-values are scipy's: scipy.stats.permutation_test((d,), sum, permutation_type
// "samples", alternative "two-sided", n_resamples inf); with one attempt a problem it is
// McNemar's exact test, scipy.stats.binomtest(min(b, c), b + c).
func TestCompareIsPairedByProblem(t *testing.T) {
	// ten problems: two gained, none lost: binomtest(0, 2) = .5
	a, b := outcomes(1, 1, 0, 1, 0, 1, 1, 1, 1, 1, 0, 1, 0, 1, 1, 1, 0, 1, 0, 1),
		outcomes(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 0, 1, 1, 1, 0, 1, 0, 1)
	b["other"] = Outcome{N: 1, C: 1}
	c, err := Compare(a, b)
	if err != nil {
		t.Fatal(err)
	}
	if c.Problems != 10 || c.OnlyFirst != 0 || c.OnlySecond != 1 || len(c.Gained) != 2 || len(c.Lost) != 0 || c.Gained[0].ID != "p1" {
		t.Errorf("%+v", c)
	}
	if *c.First.Value != .4 || *c.Second.Value != .6 || math.Abs(*c.Difference.Value-.2) > 1e-12 || *c.P != .5 {
		t.Errorf("%v, %v, %v, p %v", *c.First.Value, *c.Second.Value, *c.Difference.Value, *c.P)
	}
	if want := math.Sqrt((2*.8*.8 + 8*.2*.2) / 9 / 10); math.Abs(*c.Difference.StdErr-want) > 1e-12 {
		t.Errorf("error %v, want %v", *c.Difference.StdErr, want)
	}
	back, err := Compare(b, a)
	if err != nil || len(back.Lost) != 2 || *back.P != *c.P || *back.Difference.Value != -*c.Difference.Value {
		t.Errorf("the other way round: %+v, %v", back, err)
	}
}

func TestSignFlip(t *testing.T) {
	for _, x := range []struct {
		d    []float64
		want float64
	}{
		{[]float64{.25, .5, -.125, .75, .5, 0, .25}, .0625}, // scipy: 4 of 64
		{[]float64{1, 1, 1, 1, 1, 1, 1, -1}, .0703125},      // binomtest(1, 8)
		{[]float64{1}, 1},
	} {
		if got := signFlip(x.d); math.Abs(*got-x.want) > 1e-12 {
			t.Errorf("%v: %v, want %v", x.d, *got, x.want)
		}
	}
	if signFlip([]float64{0, 0}) != nil {
		t.Error("a p-value of no difference")
	}
	// Above exactFlips signs are drawn: binomtest(10, 40) = .00221.
	var d []float64
	for i := range 40 {
		d = append(d, []float64{1, 1, 1, -1}[i%4])
	}
	if got := *signFlip(d); got < .0012 || got > .0034 {
		t.Errorf("drawn: %v", got)
	}
}

func TestRunsOfOtherProblemsAreNotCompared(t *testing.T) {
	if _, err := Compare(Outcomes{"a": {N: 1}}, Outcomes{"b": {N: 1}}); !errors.Is(err, ErrNothingShared) {
		t.Error(err)
	}
}

// The mean of sets counts each once, however many problems it has.
func TestTheAverageOfSetsCountsEachOnce(t *testing.T) {
	at := func(v, err float64, n int) Estimate { return Estimate{Value: &v, StdErr: &err, Problems: n} }
	got := Average([]Estimate{at(.2, .03, 1000), at(.6, .04, 10)})
	if *got.Value != .4 || math.Abs(*got.StdErr-.025) > 1e-15 || got.Problems != 1010 {
		t.Errorf("%v ± %v of %d", *got.Value, *got.StdErr, got.Problems)
	}
	one := at(.5, 0, 1)
	one.StdErr = nil
	if got := Average([]Estimate{at(.1, .1, 2), one}); got.StdErr != nil || *got.Value != .3 {
		t.Errorf("%+v", got)
	}
	if got := Average([]Estimate{at(.1, .1, 2), {}}); got.Value != nil {
		t.Errorf("%+v", got)
	}
	// A run without a mistake is no certainty: √(12/14 · 2/14 / 14) of 10 problems.
	right, wrong := at(1, 0, 10), at(0, 0, 10)
	right.Bound, wrong.Bound = Bound(1, 10), Bound(0, 10)
	ac := math.Sqrt(12. / 14 * 2 / 14 / 14)
	for _, x := range []struct {
		got  Estimate
		want float64
	}{
		{Average([]Estimate{right, at(.5, .1, 100)}), math.Hypot(ac, .1) / 2},
		{Average([]Estimate{right, wrong}), math.Hypot(ac, ac) / 2},
		{Average([]Estimate{right, right}), 0}, // it has a bound
	} {
		if math.Abs(*x.got.StdErr-x.want) > 1e-12 || (x.got.Bound != nil) != (x.want == 0) {
			t.Errorf("%+v: ± %v, want %v", x.got, *x.got.StdErr, x.want)
		}
	}
	none, all := Average([]Estimate{at(0, 0, 100), at(0, 0, 10)}), Average([]Estimate{at(1, 0, 100), at(1, 0, 10)})
	if want := *Bound(0, 10) / 2; none.Bound == nil || *none.Bound != want || all.Bound == nil || *all.Bound != 1-want {
		t.Errorf("%+v, %+v, want the bound %v", none, all, want)
	}
	if got := Average(nil); got.Value != nil {
		t.Errorf("%+v", got)
	}
}
