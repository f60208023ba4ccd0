package mathvalue

import (
	"math/big"

	"agentcli/rewards/mathexpr"
)

// Bounds on the polynomials whose roots are written down.
const (
	maxRootDegree = 12
	maxRootBits   = 64 // of a coefficient
)

// Root is a real root of a rational function's numerator or denominator.
type Root struct {
	At   *mathexpr.Node // the root as a formula
	Odd  bool           // the function changes its sign
	Pole bool           // the function has no value
}

// Roots finds all real roots of a formula as a rational function of a variable with
// rational coefficients, in no order; sign is the function's for large values. ok is false
// where it is no such function, where it is constant, and where a root cannot be written
// with rationals and one radical.
func (c *Comparer) Roots(n *mathexpr.Node, variable string) (roots []Root, sign int, ok bool) {
	x := newExact(c.Budget, c.Natural)
	v, err := variableOf(x, variable)
	if err != nil {
		return nil, 0, false
	}
	f, err := x.rational(n)
	if err != nil || x.dependent {
		return nil, 0, false
	}
	num, okNum := univariateOf(f.num, v.atom)
	den, okDen := univariateOf(f.den, v.atom)
	if !okNum || !okDen || num.degree()+den.degree() < 1 || num.degree() < 0 {
		return nil, 0, false
	}
	sign = num[num.degree()].Sign() * den[den.degree()].Sign()
	for _, part := range []struct {
		p    univariate
		pole bool
	}{{num, false}, {den, true}} {
		for i, factor := range c.squareFree(part.p) {
			at, ok := c.simpleRoots(factor)
			if !ok {
				return nil, 0, false
			}
			for _, r := range at {
				roots = append(roots, Root{r, i%2 == 0, part.pole})
			}
		}
	}
	return roots, sign, c.Budget.left >= 0
}

// univariate is a polynomial in one variable, the constant first. The last coefficient is
// not zero; zero has none.
type univariate []*big.Rat

func (p univariate) degree() int { return len(p) - 1 }

// univariateOf reads a polynomial in one atom.
func univariateOf(p polynomial, atom int32) (univariate, bool) {
	var out univariate
	for _, t := range p {
		e := 0
		switch {
		case len(t.factors) == 1 && t.factors[0].atom == atom && t.factors[0].exponent <= maxRootDegree:
			e = int(t.factors[0].exponent)
		case len(t.factors) > 0:
			return nil, false
		}
		if bits(t.coefficient) > 2*maxRootBits {
			return nil, false
		}
		for len(out) <= e {
			out = append(out, new(big.Rat))
		}
		out[e] = t.coefficient
	}
	return out, true
}

func (p univariate) trimmed() univariate {
	for len(p) > 0 && p[len(p)-1].Sign() == 0 {
		p = p[:len(p)-1]
	}
	return p
}

func (p univariate) derivative() univariate {
	var out univariate
	for i := 1; i < len(p); i++ {
		out = append(out, new(big.Rat).Mul(p[i], big.NewRat(int64(i), 1)))
	}
	return out
}

func (p univariate) at(x *big.Rat) *big.Rat {
	v := new(big.Rat)
	for i := len(p) - 1; i >= 0; i-- {
		v.Mul(v, x).Add(v, p[i])
	}
	return v
}

// over divides with remainder.
func (p univariate) over(q univariate) (quotient, rest univariate) {
	rest = make(univariate, len(p))
	for i := range p {
		rest[i] = new(big.Rat).Set(p[i])
	}
	quotient = make(univariate, max(0, len(p)-len(q)+1))
	for i := len(quotient) - 1; i >= 0; i-- {
		quotient[i] = new(big.Rat).Quo(rest[i+len(q)-1], q[len(q)-1])
		for j := range q {
			rest[i+j].Sub(rest[i+j], new(big.Rat).Mul(quotient[i], q[j]))
		}
	}
	return quotient.trimmed(), rest.trimmed()
}

// commonDivisor is the monic greatest common divisor (Euclid's algorithm).
func commonDivisor(p, q univariate) univariate {
	for len(q) > 0 {
		_, rest := p.over(q)
		p, q = q, rest
	}
	out := make(univariate, len(p))
	for i := range p {
		out[i] = new(big.Rat).Quo(p[i], p[len(p)-1])
	}
	return out
}

// squareFree splits a polynomial by the multiplicity of its roots: those of the i-th factor
// have multiplicity i + 1 (Yun's algorithm, without its savings).
func (c *Comparer) squareFree(p univariate) (factors []univariate) {
	for p.degree() > 0 {
		if !c.Budget.Spend(int64(len(p)*len(p)) * 20_000) {
			return factors
		}
		repeated := commonDivisor(p, p.derivative())   // of multiplicity m: m - 1 times
		distinct, _ := p.over(repeated)                // each once
		still := commonDivisor(distinct, repeated)     // those of multiplicity 2 and more, once
		simple, _ := distinct.over(still)              // those of multiplicity 1
		factors, p = append(factors, simple), repeated // the next round counts one higher
	}
	return factors
}

// simpleRoots are the real roots of a polynomial without repeated ones: rational ones, then
// those of a quadratic or of a·xⁿ + b that is left. Another rest is told by ok.
func (c *Comparer) simpleRoots(p univariate) (roots []*mathexpr.Node, ok bool) {
	if p.degree() < 1 {
		return nil, true
	}
	found, ok := c.rationalRoots(p)
	if !ok {
		return nil, false
	}
	for _, r := range found {
		roots = append(roots, numeral(r))
		p, _ = p.over(univariate{new(big.Rat).Neg(r), one})
	}
	switch n := p.degree(); {
	case n < 1:
		return roots, true
	case n == 2:
		d := new(big.Rat).Mul(p[1], p[1])
		if d.Sub(d, new(big.Rat).Mul(big.NewRat(4, 1), new(big.Rat).Mul(p[0], p[2]))); d.Sign() < 0 {
			return roots, true
		}
		half := new(big.Rat).Inv(new(big.Rat).Mul(big.NewRat(2, 1), p[2]))
		middle := new(big.Rat).Neg(new(big.Rat).Mul(p[1], half))
		for _, s := range []*big.Rat{half, new(big.Rat).Neg(half)} {
			roots = append(roots, &mathexpr.Node{Kind: mathexpr.Sum, Args: []*mathexpr.Node{numeral(middle),
				{Kind: mathexpr.Product, Args: []*mathexpr.Node{numeral(s), radical(d, 2)}}}})
		}
		return roots, true
	case p.isBinomial():
		q := new(big.Rat).Quo(p[0], p[n])
		q.Neg(q)
		if n%2 == 1 {
			return append(roots, radical(q, n)), true
		}
		if q.Sign() > 0 {
			r := radical(q, n)
			roots = append(roots, r, &mathexpr.Node{Kind: mathexpr.Negative, Args: []*mathexpr.Node{r}})
		}
		return roots, true
	}
	return nil, false
}

// isBinomial reports whether a polynomial is a·xⁿ + b.
func (p univariate) isBinomial() bool {
	for _, c := range p[1 : len(p)-1] {
		if c.Sign() != 0 {
			return false
		}
	}
	return true
}

func numeral(q *big.Rat) *mathexpr.Node { return &mathexpr.Node{Kind: mathexpr.Number, Value: q} }

func radical(q *big.Rat, degree int) *mathexpr.Node {
	return &mathexpr.Node{Kind: mathexpr.Root, Args: []*mathexpr.Node{numeral(q), numeral(big.NewRat(int64(degree), 1))}}
}

// rationalRoots tries the fractions of divisors of the first and the last coefficient. ok
// is false where these are too large.
func (c *Comparer) rationalRoots(p univariate) (roots []*big.Rat, ok bool) {
	scale := big.NewInt(1)
	for _, q := range p {
		scale.Mul(scale, new(big.Int).Div(q.Denom(), new(big.Int).GCD(nil, nil, scale, q.Denom())))
	}
	whole := func(q *big.Rat) *big.Int {
		return new(big.Int).Abs(new(big.Rat).Mul(q, new(big.Rat).SetInt(scale)).Num())
	}
	low := 0
	for p[low].Sign() == 0 {
		low++
	}
	if low > 0 {
		roots = append(roots, new(big.Rat))
	}
	tops, okTops := divisors(whole(p[low]))
	bottoms, okBottoms := divisors(whole(p[p.degree()]))
	if !okTops || !okBottoms || !c.Budget.Spend(int64(len(tops)*len(bottoms)*len(p))*2000) {
		return nil, false
	}
	for _, a := range tops {
		for _, b := range bottoms {
			if new(big.Int).GCD(nil, nil, big.NewInt(a), big.NewInt(b)).Int64() != 1 {
				continue
			}
			for _, r := range []*big.Rat{big.NewRat(a, b), big.NewRat(-a, b)} {
				if p.at(r).Sign() == 0 {
					roots = append(roots, r)
				}
			}
		}
	}
	return roots, true
}

// divisors lists those of 1 to 10^8.
func divisors(n *big.Int) (all []int64, ok bool) {
	if !n.IsInt64() || n.Int64() > 1e8 {
		return nil, false
	}
	for d, v := int64(1), n.Int64(); d*d <= v; d++ {
		if v%d == 0 {
			if all = append(all, d); d*d != v {
				all = append(all, v/d)
			}
		}
	}
	return all, true
}
