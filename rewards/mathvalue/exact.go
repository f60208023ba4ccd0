package mathvalue

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"agentcli/internal/arith"
	"agentcli/rewards/mathexpr"
)

// Limits of the exact layer. What is beyond them is compared by intervals.
const (
	maxBits     = 70000 // of a numerator or a denominator: 20,000 digits
	maxTerms    = 1500
	maxExponent = 4000
	maxFact     = 3000 // largest number whose factorial is worked out
)

// atom is what polynomials are in.
type atom struct {
	// period > 0: the period-th power is the rational power. A square root of 2 has
	// the period 2 and the power 2, i the period 2 and the power -1.
	period int32
	power  *big.Rat
}

// exact turns trees into rational functions of atoms. It panics with an error of
// this package where it cannot; rational recovers.
type exact struct {
	algebra
	ids map[string]int32
	// dependent is set where atoms may depend on one another, so that a polynomial
	// that is not zero may still have the value zero.
	dependent bool
	natural   bool // log is the natural logarithm
	bound     map[string]*big.Rat
	depth     int
}

func newExact(b *Budget, natural bool) *exact {
	return &exact{algebra: algebra{budget: b}, natural: natural}
}

// rational is the rational function of a tree.
func (x *exact) rational(n *mathexpr.Node) (f fraction, err error) {
	defer caught(&err)
	return x.eval(n), nil
}

// variableOf is the factor that stands for a variable.
func variableOf(x *exact, name string) (f factor, err error) {
	defer caught(&err)
	return x.atom("v "+name, 0, nil).num[0].factors[0], nil
}

// caught, deferred, makes an error of what is thrown for want of budget, value or precision.
func caught(err *error) {
	if r := recover(); r != nil {
		e, ok := r.(error)
		if !ok || !isOurs(e) {
			panic(r)
		}
		*err = e
	}
}

func (x *exact) atom(key string, period int32, power *big.Rat) fraction {
	id, ok := x.ids[key]
	if !ok {
		if x.ids == nil {
			x.ids = map[string]int32{}
		}
		id = int32(len(x.atoms))
		x.ids[key] = id
		x.atoms = append(x.atoms, atom{period, power})
	}
	if !x.budget.Spend(200) {
		panic(errBudget)
	}
	return whole(polynomial{{one, []factor{{id, 1}}}})
}

// opaque is an atom of which only the spelling is known.
func (x *exact) opaque(key string) fraction {
	x.dependent = true
	if len(key) > 4000 {
		panic(errTooLarge)
	}
	return x.atom(key, 0, nil)
}

// key is a way to write a function; equal keys are equal functions.
func (x *exact) key(f fraction) string {
	var b strings.Builder
	writePolynomial(&b, f.num)
	if d, ok := f.den.isConstant(); !ok || !isOne(d) {
		b.WriteByte('/')
		writePolynomial(&b, f.den)
	}
	if !x.budget.Spend(int64(b.Len()) * 20) {
		panic(errBudget)
	}
	return b.String()
}

func writePolynomial(b *strings.Builder, p polynomial) {
	b.WriteByte('(')
	for _, t := range p {
		b.WriteByte('+')
		b.WriteString(t.coefficient.RatString())
		for _, f := range t.factors {
			fmt.Fprintf(b, "*%d^%d", f.atom, f.exponent)
		}
		if b.Len() > 5000 {
			panic(errTooLarge)
		}
	}
	b.WriteByte(')')
}

func (x *exact) eval(n *mathexpr.Node) fraction {
	if x.depth++; x.depth > 400 {
		panic(errTooLarge)
	}
	defer func() { x.depth-- }()
	if !x.budget.Spend(100) {
		panic(errBudget)
	}
	switch n.Kind {
	case mathexpr.Number:
		return whole(constant(n.Value))
	case mathexpr.Variable:
		if r, ok := x.bound[n.Name]; ok {
			return whole(constant(r))
		}
		if n.Name == "..." {
			panic(errNoValue)
		}
		return x.atom("v "+n.Name, 0, nil)
	case mathexpr.Constant:
		switch n.Name {
		case "i":
			if r, ok := x.bound["i"]; ok {
				return whole(constant(r))
			}
			return x.atom("i", 2, minusOne)
		case "inf":
			panic(errNoValue)
		}
		return x.atom("c "+n.Name, 0, nil)
	case mathexpr.Sum:
		f := x.eval(n.Args[0])
		for _, a := range n.Args[1:] {
			f = x.sum(f, x.eval(a))
		}
		return f
	case mathexpr.Product:
		f := x.eval(n.Args[0])
		for _, a := range n.Args[1:] {
			f = x.times(f, x.eval(a))
		}
		return f
	case mathexpr.Negative:
		f := x.eval(n.Args[0])
		return fraction{x.negate(f.num), f.den}
	case mathexpr.Quotient:
		return x.over(x.eval(n.Args[0]), x.eval(n.Args[1]))
	case mathexpr.Ratio:
		if len(n.Args) != 2 {
			panic(errNoValue)
		}
		return x.over(x.eval(n.Args[0]), x.eval(n.Args[1]))
	case mathexpr.Percent:
		return x.times(x.eval(n.Args[0]), whole(constant(big.NewRat(1, 100))))
	case mathexpr.Degrees:
		return x.times(x.times(x.eval(n.Args[0]), whole(constant(big.NewRat(1, 180)))), x.atom("c pi", 0, nil))
	case mathexpr.Quantity:
		return x.times(x.eval(n.Args[0]), whole(constant(mathexpr.UnitOf(n.Name).Factor)))
	case mathexpr.Power:
		return x.raise(n.Args[0], n.Args[1])
	case mathexpr.Root:
		return x.root(n.Args[0], n.Args[1])
	case mathexpr.Matrix:
		if n.Name == "det" {
			return x.determinant(n)
		}
	}
	return x.special(n)
}

// raise is a power.
func (x *exact) raise(base, exponent *mathexpr.Node) fraction {
	e := x.eval(exponent)
	r, constantExponent := e.isRational()
	if !constantExponent {
		b := x.eval(base)
		if c, ok := b.isRational(); ok && isOne(c) {
			return b
		}
		return x.opaque("pow " + x.key(b) + x.key(e))
	}
	b := x.eval(base)
	if r.IsInt() {
		if !r.Num().IsInt64() {
			if c, ok := b.isRational(); ok && c.IsInt() && c.Num().IsInt64() && c.Num().Int64()*c.Num().Int64() <= 1 {
				return whole(constant(x.rationalPower(c, 2-int64(r.Num().Bit(0)))))
			}
			return x.opaque("pow " + x.key(b) + x.key(e))
		}
		return x.integerPower(b, e, r.Num().Int64())
	}
	if c, ok := b.isRational(); ok && r.Num().IsInt64() && r.Denom().IsInt64() && r.Denom().Int64() <= 64 {
		p := r.Num().Int64()
		if c.Sign() == 0 {
			if p < 0 {
				panic(errUndefined)
			}
			return whole(nil)
		}
		if p > -64 && p < 64 {
			return x.rationalRoot(x.rationalPower(c, p), r.Denom().Int64(), p%2 == 0)
		}
	}
	return x.opaque("pow " + x.key(b) + x.key(e))
}

// integerPower is b to the n-th; one that is too large is an atom.
func (x *exact) integerPower(b, e fraction, n int64) (f fraction) {
	defer func() {
		r := recover()
		if thrown, ok := r.(error); ok && errors.Is(thrown, errTooLarge) {
			f = x.opaque("pow " + x.key(b) + x.key(e))
		} else if r != nil {
			panic(r)
		}
	}()
	if n >= 0 {
		return fraction{x.power(b.num, n), x.power(b.den, n)}
	}
	if len(b.num) == 0 {
		panic(errUndefined)
	}
	return x.tidy(fraction{x.power(b.den, -n), x.power(b.num, -n)})
}

// root is a root; one of a rational is a product of roots of primes.
func (x *exact) root(n, degree *mathexpr.Node) fraction {
	d := x.eval(degree)
	k, ok := d.isRational()
	f := x.eval(n)
	if ok && k.IsInt() && k.Num().IsInt64() && k.Num().Int64() >= 2 && k.Num().Int64() <= 64 {
		if c, ok := f.isRational(); ok {
			return x.rationalRoot(c, k.Num().Int64(), false)
		}
	}
	return x.opaque("root " + x.key(f) + x.key(d))
}

// rationalRoot is the k-th root of c: the real one of a negative number where k is
// odd, and i times the root of -c where k is 2. squared tells that c is a square of
// a number whose sign is lost.
func (x *exact) rationalRoot(c *big.Rat, k int64, squared bool) fraction {
	if c.Sign() == 0 {
		return whole(nil)
	}
	out := term{coefficient: one}
	if c.Sign() < 0 {
		c = new(big.Rat).Neg(c)
		switch {
		case k%2 == 1 && !squared:
			out.coefficient = minusOne
		case k == 2:
			out = x.withRoot(out, x.atom("i", 2, minusOne), 1)
		default:
			return x.opaque(fmt.Sprintf("root -%s %d", c.RatString(), k))
		}
	}
	// The root of a/b is the root of a·b^(k-1), over b.
	if bits(c)*k > maxBits/4 {
		return whole(polynomial{x.withRoot(out, x.opaque(fmt.Sprintf("root %s %d", c.RatString(), k)), 1)})
	}
	radicand, factor := c.Num(), one
	if !c.IsInt() {
		radicand = new(big.Int).Exp(c.Denom(), big.NewInt(k-1), nil)
		radicand.Mul(radicand, c.Num())
		factor = new(big.Rat).SetFrac(big.NewInt(1), c.Denom())
	}
	primes, exponents, rest := x.factorise(radicand)
	if rest != nil {
		if r, ok := integerRoot(rest, k); ok {
			factor = arith.Product(factor, new(big.Rat).SetInt(r))
		} else {
			x.dependent = true
			out = x.withRoot(out, x.atom(fmt.Sprintf("root %s %d", rest, k), int32(k), new(big.Rat).SetInt(rest)), 1)
		}
	}
	if k != 2 {
		x.dependent = true
	}
	for i, p := range primes {
		q := new(big.Rat).SetInt64(p)
		if n := exponents[i] / k; n > 0 {
			factor = arith.Product(factor, x.rationalPower(q, n))
		}
		if n := exponents[i] % k; n > 0 {
			out = x.withRoot(out, x.atom("root "+strconv.FormatInt(p, 10)+" "+strconv.FormatInt(k, 10), int32(k), q), int32(n))
		}
	}
	if !isOne(factor) {
		x.pay(out.coefficient, factor)
		out.coefficient = arith.Product(out.coefficient, factor)
	}
	return whole(polynomial{out})
}

// withRoot is t times a power of an atom that t does not have.
func (x *exact) withRoot(t term, root fraction, exponent int32) term {
	if len(t.factors) > 0 {
		x.pay(t.coefficient, one)
	}
	f := factor{root.num[0].factors[0].atom, exponent}
	at, _ := slices.BinarySearchFunc(t.factors, f, func(a, b factor) int { return int(a.atom - b.atom) })
	t.factors = slices.Insert(t.factors, at, f)
	return t
}

// factorise finds the primes below 10,000 of n, and what is left if it is not 1: a
// prime below 10^8 is among the primes.
func (x *exact) factorise(n *big.Int) (primes, exponents []int64, rest *big.Int) {
	if n.IsInt64() {
		v := n.Int64()
		for p := int64(2); p < 10000 && p*p <= v; p += 1 + p&1 {
			e := int64(0)
			for v%p == 0 {
				v /= p
				e++
			}
			if e > 0 {
				primes, exponents = append(primes, p), append(exponents, e)
			}
			if p%64 == 1 && !x.budget.Spend(100) {
				panic(errBudget)
			}
		}
		switch {
		case v == 1:
		case v < 1e8:
			primes, exponents = append(primes, v), append(exponents, 1)
		default:
			rest = big.NewInt(v)
		}
		return primes, exponents, rest
	}
	v, q, m, divisor := new(big.Int).Set(n), new(big.Int), new(big.Int), new(big.Int)
	words := int64(len(n.Bits()))
	for p := int64(2); p < 1000; p += 1 + p&1 {
		e := int64(0)
		for {
			if !x.budget.Spend(30 + 4*words) {
				panic(errBudget)
			}
			if q.QuoRem(v, divisor.SetInt64(p), m); m.Sign() != 0 {
				break
			}
			v.Set(q)
			e++
		}
		if e > 0 {
			primes, exponents = append(primes, p), append(exponents, e)
		}
	}
	if v.IsInt64() && v.Int64() < 1e6 {
		if v.Int64() > 1 {
			primes, exponents = append(primes, v.Int64()), append(exponents, 1)
		}
		return primes, exponents, nil
	}
	return primes, exponents, v
}

// integerRoot is the k-th root of n where it is whole.
func integerRoot(n *big.Int, k int64) (*big.Int, bool) {
	if k == 2 {
		r := new(big.Int).Sqrt(n)
		return r, new(big.Int).Mul(r, r).Cmp(n) == 0
	}
	if n.BitLen() > 4000 {
		return nil, false
	}
	low, high := big.NewInt(1), new(big.Int).Lsh(big.NewInt(1), uint(int64(n.BitLen())/k+1))
	e := big.NewInt(k)
	for low.Cmp(high) < 0 {
		middle := new(big.Int).Add(low, high)
		middle.Rsh(middle, 1)
		switch c := new(big.Int).Exp(middle, e, nil).Cmp(n); {
		case c == 0:
			return middle, true
		case c < 0:
			low.Add(middle, big.NewInt(1))
		default:
			high = middle
		}
	}
	return low, new(big.Int).Exp(low, e, nil).Cmp(n) == 0
}

// determinant expands along the first row.
func (x *exact) determinant(n *mathexpr.Node) fraction {
	size := n.Columns
	if size*size != len(n.Args) || size > 6 {
		panic(errNoValue)
	}
	cells := make([]fraction, len(n.Args))
	for i, a := range n.Args {
		cells[i] = x.eval(a)
	}
	columns := make([]int, size)
	for i := range columns {
		columns[i] = i
	}
	return x.minor(cells, size, 0, columns)
}

func (x *exact) minor(cells []fraction, size, row int, columns []int) fraction {
	if len(columns) == 1 {
		return cells[row*size+columns[0]]
	}
	total := whole(nil)
	for i, c := range columns {
		rest := make([]int, 0, len(columns)-1)
		rest = append(append(rest, columns[:i]...), columns[i+1:]...)
		t := x.times(cells[row*size+c], x.minor(cells, size, row+1, rest))
		if i%2 == 1 {
			t = fraction{x.negate(t.num), t.den}
		}
		total = x.sum(total, t)
	}
	return total
}
