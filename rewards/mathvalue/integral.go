package mathvalue

import (
	"errors"
	"math/big"
	"sync"

	"agentcli/rewards/mathexpr"
)

// Integrals are approximated by the double exponential rule (Takahasi and Mori 1974): the
// trapezoidal rule after a substitution by which the integrand falls as exp(-exp |t|) at both
// ends. An integrand that does not fall so far is not integrated: the integral may be infinite.
//
//	[a, b]   x = a + (b - a) / (1 + exp(-π sinh t))
//	[a, ∞)   x = a + exp(π/2 sinh t)
//	(-∞, ∞)  x = sinh(π/2 sinh t)
//
// What the last two steps differ by is the radius.
const (
	integralGrid  = 32 // points of the finest step in a unit of t
	firstStep     = 4  // of the grid; each next step is half of it
	leastRange    = 48 // of the grid: an integrand may be 0 in the middle
	smallTerms    = 3  // in a row end the sum
	termBits      = 50 // a small term is so far below the largest
	agreementBits = 44
)

// abscissa is a point of the rule: the place x on the unit range, and dx/dt.
type abscissa struct {
	place, weight real
	fromEnd       bool // place is the distance from the upper end
}

// abscissas are those of t = k/integralGrid, for k from -n to n.
type abscissas []abscissa

func (a abscissas) at(k int) abscissa { return a[len(a)/2+k] }

// table works abscissas out for |t| ≤ units.
func table(units int, at func(a *complexArithmetic, sinh, cosh real) abscissa) func() abscissas {
	return sync.OnceValue(func() abscissas {
		a := &complexArithmetic{arithmetic{precision: firstPrecision, budget: NewBudget(1 << 60)}}
		half := a.rational(big.NewRat(1, 2))
		var out abscissas
		for k := -units * integralGrid; k <= units*integralGrid; k++ {
			p := a.exponential(a.rational(big.NewRat(int64(k), integralGrid)))
			q := a.divide(a.integer(1), p)
			point := at(a, a.multiply(a.subtract(p, q), half), a.multiply(a.add(p, q), half))
			point.place.r = radius() // the rule is that of the point itself
			out = append(out, point)
		}
		return out
	})
}

var finiteRange = table(5, func(a *complexArithmetic, sinh, cosh real) abscissa {
	s := a.multiply(a.pi(), sinh)
	fromEnd := s.m.Sign() > 0
	if fromEnd {
		s = a.negate(s)
	}
	e := a.exponential(s) // below 1
	share := a.divide(e, a.add(a.integer(1), e))
	return abscissa{share, a.multiply(a.multiply(a.pi(), cosh), a.divide(share, a.add(a.integer(1), e))), fromEnd}
})

var halfRange = table(6, func(a *complexArithmetic, sinh, cosh real) abscissa {
	quarter := a.multiply(a.pi(), a.rational(big.NewRat(1, 2)))
	x := a.exponential(a.multiply(quarter, sinh))
	return abscissa{place: x, weight: a.multiply(a.multiply(quarter, cosh), x)}
})

var wholeRange = table(6, func(a *complexArithmetic, sinh, cosh real) abscissa {
	half := a.rational(big.NewRat(1, 2))
	quarter := a.multiply(a.pi(), half)
	p := a.exponential(a.multiply(quarter, sinh))
	q := a.divide(a.integer(1), p)
	return abscissa{place: a.multiply(a.subtract(p, q), half),
		weight: a.multiply(a.multiply(quarter, cosh), a.multiply(a.add(p, q), half))}
})

// integrals integrates.
type integrals struct{ *evaluator }

// definite is an integral between two limits, of which either may be infinite.
func (e integrals) definite(n *mathexpr.Node) value {
	if n.Args[1] == nil {
		panic(errNoValue)
	}
	var points abscissas
	var place func(abscissa) real
	scale := e.integer(1)
	low, high := infinite(n.Args[1]), infinite(n.Args[2])
	switch {
	case low == 0 && high == 0:
		a, b := e.limitOf(n.Args[1]), e.limitOf(n.Args[2])
		points, scale = finiteRange(), e.subtract(b, a)
		place = func(p abscissa) real {
			if p.fromEnd {
				return e.subtract(b, e.multiply(scale, p.place))
			}
			return e.add(a, e.multiply(scale, p.place))
		}
	case low == 0 && high > 0:
		a := e.limitOf(n.Args[1])
		points, place = halfRange(), func(p abscissa) real { return e.add(a, p.place) }
	case low < 0 && high == 0:
		b := e.limitOf(n.Args[2])
		points, place = halfRange(), func(p abscissa) real { return e.subtract(b, p.place) }
	case low < 0 && high > 0:
		points, place = wholeRange(), func(p abscissa) real { return p.place }
	default:
		panic(errNoValue)
	}
	e.approximated(40)
	return inexact(e.times(e.trapezoids(points, func(p abscissa) number {
		x := place(p)
		x.r = radius()
		return e.times(e.integrand(n, x), realNumber(p.weight))
	}), realNumber(scale)))
}

func (e integrals) limitOf(n *mathexpr.Node) real {
	z := e.interval(e.eval(n))
	if !z.isReal() {
		panic(errNoValue)
	}
	return z.re
}

// infinite is 1 for ∞, -1 for -∞, 0 for another formula.
func infinite(n *mathexpr.Node) int {
	switch {
	case !isInfinite(n):
		return 0
	case n.Kind == mathexpr.Negative:
		return -infinite(n.Args[0])
	}
	return 1
}

// integrand is the body at x. Where it has no value the integral is not known to have none.
func (e integrals) integrand(n *mathexpr.Node, x real) number {
	defer func() {
		if r := recover(); r != nil {
			if err, ok := r.(error); ok && (errors.Is(err, errUndefined) || errors.Is(err, errPrecision)) {
				panic(errNoValue)
			}
			panic(r)
		}
	}()
	return e.interval(e.with(n.Args[0].Name, inexact(realNumber(x)), n.Args[3]))
}

// trapezoids adds terms of the rule until two steps agree.
func (e integrals) trapezoids(points abscissas, term func(abscissa) number) number {
	sum := term(points.at(0))
	largest := high(e.modulus(sum))
	end := func(direction int) int {
		small := 0
		for k := firstStep; k <= len(points)/2; k += firstStep {
			z := term(points.at(direction * k))
			sum = e.plus(sum, z)
			size := high(e.modulus(z))
			if size.Cmp(largest) > 0 {
				largest = size
			}
			limit := radius().SetMantExp(largest, -termBits)
			if size.Cmp(limit) > 0 {
				small = 0
			} else if small++; small >= smallTerms && k >= leastRange {
				return k
			}
		}
		panic(errNoValue)
	}
	low, top := -end(-1), end(1)
	scaled := func(step int) number {
		return e.times(sum, realNumber(e.rational(big.NewRat(int64(step), integralGrid))))
	}
	before := scaled(firstStep)
	for step := firstStep / 2; ; step /= 2 {
		for k := low + step; k < top; k += 2 * step {
			sum = e.plus(sum, term(points.at(k)))
		}
		now := scaled(step)
		d := high(e.modulus(e.plus(now, e.minus(before))))
		agree := radius().SetMantExp(high(e.modulus(now)), -agreementBits)
		if step == 1 || d.Cmp(agree) <= 0 {
			cut := radius().SetMantExp(largest, 2-termBits) // what is left out at the ends
			now.re.r = radius().Add(now.re.r, cut)
			return e.interval(between(e.evaluator, now, before))
		}
		before = now
	}
}
