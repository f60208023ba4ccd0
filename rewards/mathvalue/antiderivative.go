package mathvalue

import (
	"slices"

	"agentcli/rewards/mathexpr"
)

// has reports whether one of the variables is in a polynomial.
func (x *exact) has(p polynomial, names []string) bool {
	for _, name := range names {
		if id, ok := x.ids["v "+name]; ok && slices.ContainsFunc(p, func(t term) bool {
			return slices.ContainsFunc(t.factors, func(f factor) bool { return f.atom == id })
		}) {
			return true
		}
	}
	return false
}

// Constant reports whether a formula has the same value wherever it is defined as a
// function of x, or of its only variable; of several variables without an x, of all.
func (c *Comparer) Constant(n *mathexpr.Node) Verdict {
	x := newExact(c.Budget.part(c.Budget.left/3), c.Natural)
	f, err := x.rational(n)
	c.Budget.settle(x.budget)
	if err == nil {
		if _, ok := f.isRational(); ok {
			return Equal
		}
	}
	names := Variables(n)
	moving := names
	if slices.Contains(names, "x") {
		moving = []string{"x"}
	}
	if _, whole := f.den.isConstant(); err == nil && whole && !x.dependent && x.has(f.num, moving) {
		return Unequal
	}
	var first number
	agreed := 0
	for k := range 2 * len(ranges) {
		at := point(names, 0, false)
		for _, name := range moving {
			at[name] = point(moving, k, false)[name]
		}
		e := c.evaluator(firstPrecision, at)
		y, err := e.at(n)
		if c.Budget.left < 0 {
			return Unknown
		}
		if err != nil || e.imaginaryCame {
			continue
		}
		if agreed == 0 {
			first = y
		} else if v := e.compare(first, y); v == Unequal && e.approximate {
			return Unknown
		} else if v != Equal {
			return v
		}
		if agreed++; agreed > pointsAgreed {
			return Equal
		}
	}
	return Unknown
}
