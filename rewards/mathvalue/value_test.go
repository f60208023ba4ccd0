package mathvalue

import (
	"math"
	"math/big"
	"testing"

	"agentcli/rewards/mathexpr"
)

func parsed(t *testing.T, s string) *mathexpr.Node {
	t.Helper()
	n, err := mathexpr.Parse(s, mathexpr.Options{})
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return n
}

func comparer() *Comparer { return &Comparer{Budget: NewBudget(100_000_000)} }

// TestIntervalsHoldTheValue: the interval of each function holds the value that
// package math gives, and is narrow.
func TestIntervalsHoldTheValue(t *testing.T) {
	for s, want := range map[string]float64{
		`\pi`: math.Pi, "e": math.E, `\ln 2`: math.Ln2, `\sqrt{2}`: math.Sqrt2, `\sin 1`: math.Sin(1), `\cos 100`: math.Cos(100),
		`\tan(-2)`: math.Tan(-2), `\arctan 10`: math.Atan(10), `\arcsin(0.3)`: math.Asin(.3), `\arccos(-0.7)`: math.Acos(-.7),
		`\sinh 2`: math.Sinh(2), `\tanh(0.1)`: math.Tanh(.1), "e^{-20}": math.Exp(-20), `\ln(10^{-30})`: math.Log(1e-30),
		`2^{0.3}`: math.Pow(2, .3), `\sqrt[5]{7}`: math.Pow(7, .2), `\log_3 7`: math.Log(7) / math.Log(3),
		`\operatorname{arsinh}(3)`:    math.Asinh(3),
		`\sum_{k=1}^{10} \frac{1}{k}`: 7381. / 2520,
	} {
		for _, precision := range []uint{firstPrecision, lastPrecision, mostPrecision} {
			e := comparer().evaluator(precision, map[string]value{})
			z, err := e.at(parsed(t, s))
			if err != nil || !z.isReal() {
				t.Errorf("%s at %d bits: %v", s, precision, err)
				continue
			}
			got, _ := z.re.m.Float64()
			if math.Abs(got-want) > 4e-15*math.Max(1, math.Abs(want)) {
				t.Errorf("%s: %g, want %g", s, got, want)
			}
			if width, _ := z.re.r.Float64(); precision == firstPrecision && width > 1e-40*math.Max(1, math.Abs(want)) {
				t.Errorf("%s: ± %g", s, width)
			}
		}
	}
}

// TestIntervalsAgreeBetweenPrecisions: the interval of few bits holds the middle of the
// one of many.
func TestIntervalsAgreeBetweenPrecisions(t *testing.T) {
	for _, s := range []string{`\sin(\sqrt{2}+\ln 7)`, `e^{\pi}-\pi`, `\arctan(\sqrt{3}-1)`, `\ln(\ln(\ln 100))`, `\cos(e^{5})^{7}`,
		`\sqrt{\sqrt{5}-\sqrt{3}}`, `\tan(1.5707)`, `(1+\sqrt2)^{50}`, `\ln(1+10^{-20})`} {
		few, many := comparer().evaluator(firstPrecision, map[string]value{}), comparer().evaluator(mostPrecision, map[string]value{})
		x, errX := few.at(parsed(t, s))
		y, errY := many.at(parsed(t, s))
		if errX != nil || errY != nil {
			t.Fatalf("%s: %v, %v", s, errX, errY)
		}
		d := new(big.Float).SetPrec(mostPrecision).Sub(x.re.m, y.re.m)
		if d.Abs(d).Cmp(new(big.Float).SetPrec(mostPrecision).Add(x.re.r, y.re.r)) > 0 {
			t.Errorf("%s: %s ± %s and %s", s, x.re.m.Text('g', 70), x.re.r.Text('g', 5), y.re.m.Text('g', 70))
		}
	}
}

func TestEqual(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want Verdict
	}{
		{`\sqrt2\sqrt3`, `\sqrt6`, Equal}, {`\sqrt2+\sqrt3`, `\sqrt5`, Unequal}, {`e^{\pi\sqrt{163}}`, "640320^3+744", Unequal},
		{`\sqrt{2^{5000}+1}`, "2^{2500}", Unknown}, // they differ in digit 1505, beyond the last precision
		{"(x+y)^{20}", "(y+x)^{20}", Equal}, {`\frac{x^2-1}{x-1}`, "x+1", Equal}, {"1/0", "1/0", Unequal}, {"x^x", "x^{x}", Equal},
		{`\sin^2 x+\cos^2 x`, "1", Equal}, {`\sin x`, "x", Unequal}, {"(x-1)(x-2)(x-3)(x-4)(x-5)", "0", Unequal},
		{`\sin(10^9 x)`, `\sin(10^9 x)+10^{-30}`, Unequal}, {`\sqrt{x^2}`, "x", Unequal}, {`\sum_{k=1}^\infty \frac{1}{k^2}`,
			`\frac{\pi^2}{6}`, Equal},
		{"9^{9^{9^9}}", "9^{9^{9^9}}", Equal}, {"9^{9^{9^9}}", "1", Unknown},
	} {
		if got := comparer().Equal(parsed(t, tc.a), parsed(t, tc.b)); got != tc.want {
			t.Errorf("%s and %s: %d, want %d", tc.a, tc.b, got, tc.want)
		}
	}
}

// TestTheBudgetEndsTheWork: without a budget nothing is decided but what is written
// alike.
func TestTheBudgetEndsTheWork(t *testing.T) {
	for _, units := range []int64{0, 1000, 100_000} {
		c := &Comparer{Budget: NewBudget(units)}
		if v := c.Equal(parsed(t, `\sum_{k=1}^{9999}\sin k`), parsed(t, `\sum_{k=1}^{9999}\cos k`)); v != Unknown {
			t.Errorf("%d units: %d", units, v)
		}
	}
}

func TestCompareOrdersConstants(t *testing.T) {
	c := comparer()
	for _, tc := range []struct {
		a, b string
		want int
	}{{`\sqrt2`, "1.5", -1}, {`\pi`, "3", 1}, {"1/2", "0.5", 0}, {`\sqrt{8}`, `2\sqrt2`, 0}} {
		if got, ok := c.Compare(parsed(t, tc.a), parsed(t, tc.b)); !ok || got != tc.want {
			t.Errorf("%s and %s: %d, %v", tc.a, tc.b, got, ok)
		}
	}
	if _, ok := c.Compare(parsed(t, "x"), parsed(t, "1")); ok {
		t.Error("a variable has an order")
	}
}
