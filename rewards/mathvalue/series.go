package mathvalue

import (
	"math"
	"math/big"
	"sync"

	"agentcli/rewards/mathexpr"
)

// Infinite sums of rational functions, Σ p(k)/q(k), and alternating ones. The first terms are
// added. Behind them p/q is a power series in 1/k, Σ c_j k^(-d-j), so that the rest is
// Σ c_j ζ(d+j, N) with Hurwitz's zeta function. All that is left out is bounded:
//
//   - with all roots of q below R in size, |c_j| ≤ M (2R)^j, by Cauchy's estimate on |u| = 1/2R;
//   - ζ(s, N) is Euler and Maclaurin's sum, whose rest is below the first term left out, since
//     all derivatives of x^-s have one sign each (Graham, Knuth and Patashnik, Concrete
//     Mathematics, 9.5).
const (
	seriesTerms  = 48   // c_j: 16^-48 is 2^-192
	mostAdded    = 3000 // terms
	leastStart   = 128  // N
	bernoulliMax = 26
)

// sums adds infinitely many terms.
type sums struct{ *evaluator }

// summed is an infinite sum of a rational function of the variable, with alternating signs or
// without; ok is false where the body is none. A sum that does not converge has no value.
func (e sums) summed(variable string, from int64, body *mathexpr.Node) (v value, ok bool) {
	signs := [2]*mathexpr.Node{}
	alternates := false
	for i := range signs {
		n, found := e.withSign(body, variable, from+int64(i))
		signs[i], alternates = n, alternates || found
	}
	if !alternates {
		p, q, ok := e.rationalIn(body, variable, 1, 0)
		if !ok {
			return value{}, false
		}
		return e.sumOf(p, q, from, 2), true
	}
	// The terms of from, from + 2, … and those between them; a pair is one term.
	var num, den [2]univariate
	for i, n := range signs {
		if num[i], den[i], ok = e.rationalIn(n, variable, 2, from+int64(i)); !ok {
			return value{}, false
		}
		if len(num[i]) >= len(den[i]) { // the terms do not fall to 0
			panic(errNoValue)
		}
	}
	pairs := plusUnivariate(timesUnivariate(num[0], den[1]), timesUnivariate(num[1], den[0]))
	return e.sumOf(pairs, timesUnivariate(den[0], den[1]), 0, 2), true
}

// withSign puts 1 or -1 in the place of powers of -1 whose exponent is an integer linear
// function of the variable, for the variable's values of one parity.
func (e sums) withSign(n *mathexpr.Node, variable string, at int64) (out *mathexpr.Node, found bool) {
	if n == nil {
		return nil, false
	}
	if n.Kind == mathexpr.Power && (n.Args[0].Is(-1) || n.Args[0].Kind == mathexpr.Negative && n.Args[0].Args[0].Is(1)) {
		p, q, ok := e.rationalIn(n.Args[1], variable, 1, 0)
		if ok && len(p) == 2 && len(q) == 1 && q[0].Cmp(one) == 0 && p[0].IsInt() && p[1].IsInt() {
			v := p.at(big.NewRat(at&1, 1))
			if v.Num().Bit(0) == 1 {
				return numeral(minusOne), true
			}
			return numeral(one), true
		}
	}
	if n.Kind == mathexpr.Repeated {
		return n, false
	}
	changed := *n
	changed.Args = make([]*mathexpr.Node, len(n.Args))
	for i, a := range n.Args {
		var f bool
		changed.Args[i], f = e.withSign(a, variable, at)
		found = found || f
	}
	if !found {
		return n, false
	}
	return &changed, true
}

// rationalIn reads a formula as a rational function p/q of k, with step·k + offset in the
// place of the variable.
func (e sums) rationalIn(n *mathexpr.Node, variable string, step, offset int64) (p, q univariate, ok bool) {
	const k = "\x00k"
	x := newExact(e.budget.part(e.budget.left/4), e.natural)
	defer func() { e.budget.settle(x.budget) }()
	x.bound = map[string]*big.Rat{}
	for name, v := range e.point {
		if r := v.exact.Rat(); r != nil && name != variable {
			x.bound[name] = r
		}
	}
	v, err := variableOf(x, k)
	if err != nil {
		return nil, nil, false
	}
	place := &mathexpr.Node{Kind: mathexpr.Sum, Args: []*mathexpr.Node{numeral(big.NewRat(offset, 1)),
		{Kind: mathexpr.Product, Args: []*mathexpr.Node{numeral(big.NewRat(step, 1)), {Kind: mathexpr.Variable, Name: k}}}}}
	f, err := x.rational(Replaced(n, variable, place))
	if err != nil || x.dependent {
		return nil, nil, false
	}
	p, okP := univariateOf(f.num, v.atom)
	q, okQ := univariateOf(f.den, v.atom)
	return p, q, okP && okQ && len(q) > 0
}

// Replaced puts a formula in the place of a variable.
func Replaced(n *mathexpr.Node, variable string, by *mathexpr.Node) *mathexpr.Node {
	if n == nil {
		return nil
	}
	if n.Name == variable && (n.Kind == mathexpr.Variable || n.Kind == mathexpr.Constant) {
		return by
	}
	if len(n.Args) == 0 || n.Kind == mathexpr.Repeated && n.Args[0].Name == variable {
		return n
	}
	out := *n
	out.Args = make([]*mathexpr.Node, len(n.Args))
	for i, a := range n.Args {
		out.Args[i] = Replaced(a, variable, by)
	}
	return &out
}

func plusUnivariate(p, q univariate) univariate {
	out := make(univariate, max(len(p), len(q)))
	for i := range out {
		out[i] = new(big.Rat)
		if i < len(p) {
			out[i].Add(out[i], p[i])
		}
		if i < len(q) {
			out[i].Add(out[i], q[i])
		}
	}
	return out.trimmed()
}

func timesUnivariate(p, q univariate) univariate {
	if len(p) == 0 || len(q) == 0 {
		return nil
	}
	out := make(univariate, len(p)+len(q)-1)
	for i := range out {
		out[i] = new(big.Rat)
	}
	for i := range p {
		for j := range q {
			out[i+j].Add(out[i+j], new(big.Rat).Mul(p[i], q[j]))
		}
	}
	return out
}

// rootBound is a whole number above the size of each root (Fujiwara's bound).
func (p univariate) rootBound() (int64, bool) {
	largest := 1.
	for i := range p.degree() {
		r, _ := new(big.Rat).Quo(p[i], p[p.degree()]).Float64()
		largest = max(largest, math.Pow(math.Abs(r), 1/float64(p.degree()-i)))
	}
	if !(largest < 1000) {
		return 0, false
	}
	return int64(2.001*largest) + 1, true
}

// sumOf is the sum of p(k)/q(k) for k from a number on, where the degree of q is larger than
// that of p by gap at least: else there is none.
func (e sums) sumOf(p, q univariate, from int64, gap int) value {
	if len(p) == 0 {
		return exactly(new(big.Rat))
	}
	bound, ok := q.rootBound()
	d := q.degree() - p.degree()
	if d < gap || !ok {
		panic(errNoValue)
	}
	start := max(from, leastStart, 32*bound)
	if start-from > mostAdded {
		panic(errTooLarge)
	}
	largest := e.largest // of the terms, numerators and denominators may be long
	total := e.integer(0)
	for k := from; k < start; k++ {
		if !e.budget.Spend(int64(len(p)+len(q)) * 400) {
			panic(errBudget)
		}
		at := big.NewRat(k, 1)
		bottom := q.at(at)
		if bottom.Sign() == 0 {
			panic(errUndefined)
		}
		total = e.add(total, e.rational(new(big.Rat).Quo(p.at(at), bottom)))
	}
	coefficients := e.inverseSeries(p, q)
	for j, c := range coefficients {
		total = e.add(total, e.multiply(e.rational(c), e.zeta(int64(d+j), start)))
	}
	total.r = radius().Add(total.r, seriesRest(p, q, bound, start))
	e.limited, e.largest = true, max(largest, exponentOf(total.m))
	return inexact(realNumber(total))
}

// inverseSeries are the first coefficients c_j of p(k)/q(k) = Σ c_j k^(-d-j).
func (e sums) inverseSeries(p, q univariate) []*big.Rat {
	top := func(u univariate, i int) *big.Rat { // coefficients from the highest power on
		if i < len(u) {
			return u[len(u)-1-i]
		}
		return new(big.Rat)
	}
	out := make([]*big.Rat, seriesTerms)
	for n := range out {
		c := new(big.Rat).Set(top(p, n))
		for i := 1; i <= n && i < len(q); i++ {
			size := (bits(out[n-i]) + 128) / 64
			if !e.budget.Spend(500 + size*size*8) {
				panic(errBudget)
			}
			c.Sub(c, new(big.Rat).Mul(top(q, i), out[n-i]))
		}
		out[n] = c.Quo(c, top(q, 0))
	}
	return out
}

// seriesRest bounds Σ |c_j| ζ(d+j, N) over the coefficients that are left out: by
// 4 M (2R/N)^J, since ζ(s, N) ≤ 2 N^(1-s) for s ≥ 2, and 2R/N ≤ 1/16.
func seriesRest(p, q univariate, bound, start int64) *big.Float {
	m := new(big.Rat)
	for _, c := range p {
		m.Add(m, new(big.Rat).Abs(c))
	}
	m.Quo(m, new(big.Rat).Abs(q[q.degree()]))
	rest := radius().SetRat(m)
	rest = radius().SetMantExp(rest, q.degree()+2)
	ratio := radius().SetRat(big.NewRat(2*bound, start))
	for range seriesTerms {
		rest = radius().Mul(rest, ratio)
	}
	return rest
}

// zeta is Hurwitz's ζ(s, n) = Σ_{k≥n} k^-s for whole s ≥ 2.
func (e sums) zeta(s, n int64) real {
	e.pay(1 + int(s)/8)
	power := e.rational(new(big.Rat).SetFrac(big.NewInt(1), new(big.Int).Exp(big.NewInt(n), big.NewInt(s), nil)))
	total := e.add(e.divide(e.multiply(power, e.integer(n)), e.integer(s-1)), e.divide(power, e.integer(2)))
	square := e.integer(n * n)
	term := e.divide(e.multiply(power, e.integer(s)), e.integer(n)) // s (s+1) … (s+2m-2) n^(-s-2m+1)
	small := radius().SetMantExp(high(power), -int(e.precision))
	for m, b := range bernoulli() {
		piece := e.multiply(term, e.rational(b))
		if size := high(piece); m == bernoulliMax-1 || size.Cmp(small) < 0 {
			total.r = radius().Add(total.r, size) // the first that is left out
			break
		}
		total = e.add(total, piece)
		k := s + 2*int64(m) + 1
		term = e.divide(e.multiply(term, e.integer(k*(k+1))), square)
	}
	return total
}

// bernoulli are B_2/2!, B_4/4!, …: the coefficients of x/(e^x - 1).
var bernoulli = sync.OnceValue(func() []*big.Rat {
	// With b_n = B_n/n!: Σ_{i≤n} b_i / (n+1-i)! = 0 for n ≥ 1.
	all := []*big.Rat{one}
	var even []*big.Rat
	for n := 1; len(even) < bernoulliMax; n++ {
		sum := new(big.Rat)
		for i, b := range all {
			sum.Sub(sum, new(big.Rat).Quo(b, new(big.Rat).SetInt(new(big.Int).MulRange(1, int64(n+1-i)))))
		}
		all = append(all, sum)
		if n%2 == 0 {
			even = append(even, sum)
		}
	}
	return even
})
