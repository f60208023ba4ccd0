package mathvalue

import (
	"errors"
	"math/big"
	"slices"

	"agentcli/internal/splitmix"
	"agentcli/rewards/mathexpr"
)

// Comparer compares formulas. Its budget is shared by all of its comparisons.
type Comparer struct {
	Budget *Budget
	// Natural reads log without a base as the natural logarithm; without it, the base is 10.
	Natural bool
	// Tolerance > 0 takes numbers for equal that differ by at most so much of the larger one.
	Tolerance float64
}

// Precisions of the intervals, in bits. A number is only taken for zero at the last.
const (
	firstPrecision = 192
	lastPrecision  = 768
	mostPrecision  = 2400 // of constants with numbers of more than half of lastPrecision
)

// pointsAgreed is at how many points two functions must agree to be equal.
const pointsAgreed = 5

// Equal compares two formulas, of which neither is a set, a tuple or a relation.
func (c *Comparer) Equal(a, b *mathexpr.Node) Verdict {
	if v, done := c.equalExactly(a, b); done {
		return v
	}
	return c.equalByIntervals(a, b)
}

func (c *Comparer) equalExactly(a, b *mathexpr.Node) (v Verdict, done bool) {
	budget := c.Budget.part(c.Budget.left / 3)
	defer func() { c.Budget.settle(budget) }()
	x := newExact(budget, c.Natural)
	f, errF := x.rational(a)
	g, errG := x.rational(b)
	if errors.Is(errF, errUndefined) || errors.Is(errG, errUndefined) {
		return Unequal, true
	}
	if errF != nil || errG != nil {
		return Unknown, false
	}
	zero, err := x.difference(f, g)
	switch {
	case err != nil:
		return Unknown, false
	case zero:
		return Equal, true
	case c.Tolerance > 0:
		p, okP := f.isRational()
		q, okQ := g.isRational()
		if okP && okQ {
			return verdict(c.near(p, q)), true
		}
		return Unknown, false
	}
	return Unequal, !x.dependent
}

func verdict(equal bool) Verdict {
	if equal {
		return Equal
	}
	return Unequal
}

func (c *Comparer) near(p, q *big.Rat) bool {
	larger := new(big.Rat).Abs(p)
	if other := new(big.Rat).Abs(q); other.Cmp(larger) > 0 {
		larger = other
	}
	limit, d := new(big.Rat).SetFloat64(c.Tolerance), new(big.Rat).Sub(p, q)
	return limit != nil && d.Abs(d).Cmp(larger.Mul(larger, limit)) <= 0
}

// Rational is the exact value of a formula that has one.
func (c *Comparer) Rational(n *mathexpr.Node) (*big.Rat, bool) {
	if n.Kind == mathexpr.Number {
		return n.Value, true
	}
	x := newExact(c.Budget, c.Natural)
	f, err := x.rational(n)
	if err != nil {
		return nil, false
	}
	return f.isRational()
}

// Variables are the free variables of formulas, sorted.
func Variables(nodes ...*mathexpr.Node) []string {
	found := map[string]bool{}
	for _, n := range nodes {
		variables(n, found, nil)
	}
	var names []string
	for name := range found {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func variables(n *mathexpr.Node, found map[string]bool, bound []string) {
	if n == nil {
		return
	}
	if n.Kind == mathexpr.Variable && !slices.Contains(bound, n.Name) {
		found[n.Name] = true
	}
	if n.Kind == mathexpr.Repeated && n.Name != "diff" {
		bound = append(slices.Clip(bound), n.Args[0].Name)
	}
	for _, a := range n.Args {
		variables(a, found, bound)
	}
}

// contains reports whether a kind of node is in a formula.
func contains(n *mathexpr.Node, is func(*mathexpr.Node) bool) bool {
	if n == nil {
		return false
	}
	return is(n) || slices.ContainsFunc(n.Args, func(a *mathexpr.Node) bool { return contains(a, is) })
}

func isImaginaryUnit(n *mathexpr.Node) bool {
	return n.Kind == mathexpr.Constant && n.Name == "i"
}

// wantsIntegers reports whether a formula has a value at whole numbers only, as far
// as this package knows.
func wantsIntegers(n *mathexpr.Node) bool {
	switch n.Kind {
	case mathexpr.Factorial, mathexpr.DoubleFactorial, mathexpr.Binomial, mathexpr.Modulo:
		return true
	case mathexpr.Repeated:
		return n.Name == "sum" || n.Name == "prod"
	case mathexpr.Function:
		return n.Name == "gcd" || n.Name == "lcm"
	}
	return false
}

// ranges are where the variables of the k-th point lie.
var ranges = [...][2]int64{{1, 3}, {0, 1}, {2, 9}, {-3, 0}, {-1, 1}, {1, 2}, {5, 40}, {-9, 9}, {0, 3}, {0, 1}, {1, 4}, {-2, 2}}

// point gives each variable a value of its own, the same for a name in every run.
func point(names []string, k int, integers bool) map[string]value {
	at := make(map[string]value, len(names))
	for _, name := range names {
		seed := uint64(k)*0x9e3779b97f4a7c15 + 1
		for i := range len(name) {
			seed = seed*1099511628211 ^ uint64(name[i])
		}
		h := splitmix.Mix(seed)
		if integers {
			at[name] = exactly(big.NewRat(int64(4+h%uint64(6+3*k)), 1))
			continue
		}
		const grid = 1 << 20
		r := ranges[k%len(ranges)]
		at[name] = exactly(big.NewRat(r[0]*grid+int64(h%uint64((r[1]-r[0])*grid))|1, grid))
	}
	return at
}

func (c *Comparer) equalByIntervals(a, b *mathexpr.Node) Verdict {
	names := Variables(a, b)
	if len(names) == 0 {
		return c.equalConstants(a, b)
	}
	integers := contains(a, wantsIntegers) || contains(b, wantsIntegers)
	imaginary := contains(a, isImaginaryUnit) || contains(b, isImaginaryUnit)
	agreed := 0
	for _, complexToo := range []bool{imaginary, true} {
		for k := range 2 * len(ranges) {
			v, defined := c.equalAt(a, b, point(names, k, integers), complexToo)
			if c.Budget.left < 0 {
				return Unknown
			}
			switch {
			case !defined:
			case v == Unequal:
				return Unequal
			case v == Equal:
				if agreed++; agreed == pointsAgreed {
					return Equal
				}
			}
		}
		if imaginary || agreed > 0 {
			break // agreed only at a few of the points where it is defined
		}
	}
	return Unknown
}

func (c *Comparer) evaluator(precision uint, at map[string]value) *evaluator {
	return &evaluator{complexArithmetic: complexArithmetic{arithmetic{precision: precision, budget: c.Budget}}, point: at, natural: c.Natural}
}

// equalAt compares at one point; defined tells whether both have a value there.
func (c *Comparer) equalAt(a, b *mathexpr.Node, at map[string]value, complexToo bool) (v Verdict, defined bool) {
	for _, precision := range []uint{firstPrecision, lastPrecision} {
		e := c.evaluator(precision, at)
		x, errX := e.at(a)
		y, errY := e.at(b)
		if errors.Is(errX, errPrecision) || errors.Is(errY, errPrecision) {
			continue
		}
		if errX != nil || errY != nil || e.imaginaryCame && !complexToo {
			return Unknown, false
		}
		switch v := e.compare(x, y); {
		case v == Equal || v == Unequal && !e.approximate:
			return v, true
		case e.approximate:
			return Unknown, true
		}
	}
	return Unknown, true
}

// equalConstants compares numbers: at the last precision before they are equal.
func (c *Comparer) equalConstants(a, b *mathexpr.Node) Verdict {
	for _, precision := range []uint{firstPrecision, lastPrecision, mostPrecision} {
		e := c.evaluator(precision, map[string]value{})
		x, errX := e.at(a)
		y, errY := e.at(b)
		switch {
		case errors.Is(errX, errUndefined) || errors.Is(errY, errUndefined):
			return Unequal
		case errors.Is(errX, errPrecision) || errors.Is(errY, errPrecision):
			continue
		case errX != nil || errY != nil:
			return Unknown
		}
		v := e.compare(x, y)
		if c.Tolerance > 0 && v == Unequal && x.isReal() && y.isReal() {
			p, _ := x.re.m.Rat(nil)
			q, _ := y.re.m.Rat(nil)
			return verdict(c.near(p, q))
		}
		switch {
		case v == Unequal && e.approximate:
			return Unknown
		case v == Unequal, v == Equal && (precision >= lastPrecision || e.approximate || e.limited):
			return v
		}
	}
	return Unknown
}

// Compare is the order of two real constants: -1, 0, 1.
func (c *Comparer) Compare(a, b *mathexpr.Node) (order int, ok bool) {
	if p, ok := c.Rational(a); ok {
		if q, ok := c.Rational(b); ok {
			return p.Cmp(q), true
		}
	}
	if len(Variables(a, b)) > 0 {
		return 0, false
	}
	if c.Equal(a, b) == Equal {
		return 0, true
	}
	e := c.evaluator(lastPrecision, map[string]value{})
	d, err := e.at(&mathexpr.Node{Kind: mathexpr.Sum, Args: []*mathexpr.Node{a, {Kind: mathexpr.Negative, Args: []*mathexpr.Node{b}}}})
	if err != nil || !d.isReal() || sign(d.re) == 0 {
		return 0, false
	}
	return sign(d.re), true
}

// Proportional reports whether a = r·b for a constant r that is not zero, and r's
// sign. Of equations a = 0 and b = 0 denominators do not count.
func (c *Comparer) Proportional(a, b *mathexpr.Node, equations bool) (ratioSign int, v Verdict) {
	x := newExact(c.Budget, c.Natural)
	f, errF := x.rational(a)
	g, errG := x.rational(b)
	if errF == nil && errG == nil {
		_, constF := f.den.isConstant()
		_, constG := g.den.isConstant()
		if equations || constF && constG {
			p, q := f.num, g.num
			if len(p) == 0 || len(q) == 0 {
				return 1, verdict(len(p) == len(q))
			}
			r := new(big.Rat).Quo(p[0].coefficient, q[0].coefficient)
			if scaled, err := x.scaled(q, r); err == nil && samePolynomial(p, scaled) {
				return r.Sign(), Equal
			}
			if !x.dependent {
				return 0, Unequal
			}
		}
	}
	return c.proportionalByIntervals(a, b)
}

func (c *Comparer) proportionalByIntervals(a, b *mathexpr.Node) (ratioSign int, v Verdict) {
	names := Variables(a, b)
	quotient := &mathexpr.Node{Kind: mathexpr.Quotient, Args: []*mathexpr.Node{a, b}}
	var first number
	agreed := 0
	for k := range 2 * len(ranges) {
		e := c.evaluator(firstPrecision, point(names, k, false))
		r, err := e.at(quotient)
		if c.Budget.left < 0 {
			return 0, Unknown
		}
		if err != nil || !r.isReal() || e.imaginaryCame || sign(r.re) == 0 {
			continue
		}
		if agreed == 0 {
			first = r
		} else if v := e.compare(first, r); v != Equal {
			return 0, v
		}
		if agreed++; agreed == pointsAgreed {
			return sign(first.re), Equal
		}
	}
	return 0, Unknown
}

// Value is a rational close to a real constant: the constant itself where it is
// rational.
func (c *Comparer) Value(n *mathexpr.Node) (*big.Rat, bool) {
	if q, ok := c.Rational(n); ok {
		return q, true
	}
	if len(Variables(n)) > 0 {
		return nil, false
	}
	e := c.evaluator(firstPrecision, map[string]value{})
	z, err := e.at(n)
	if err != nil || !z.isReal() {
		return nil, false
	}
	q, _ := z.re.m.Rat(nil)
	return q, q != nil
}

// Linear reads a formula as slope·variable + offset with rational numbers.
func (c *Comparer) Linear(n *mathexpr.Node, variable string) (slope, offset *big.Rat, ok bool) {
	x := newExact(c.Budget, c.Natural)
	v, err := variableOf(x, variable)
	if err != nil {
		return nil, nil, false
	}
	f, err := x.rational(n)
	if err != nil || x.dependent {
		return nil, nil, false
	}
	if d, isConstant := f.den.isConstant(); !isConstant || !isOne(d) {
		return nil, nil, false
	}
	slope, offset = new(big.Rat), new(big.Rat)
	for _, t := range f.num {
		switch {
		case len(t.factors) == 0:
			offset = t.coefficient
		case len(t.factors) == 1 && t.factors[0] == v:
			slope = t.coefficient
		default:
			return nil, nil, false
		}
	}
	return slope, offset, true
}
