package mathvalue

import (
	"encoding/binary"
	"errors"
	"math/big"
	"slices"

	"agentcli/internal/arith"
)

// factor is an atom (a variable, a constant, a root, a function) to a power.
type factor struct{ atom, exponent int32 }

// term is a coefficient times factors, which are sorted by atom.
type term struct {
	coefficient *big.Rat
	factors     []factor
}

// polynomial is a sum of terms with different factors, sorted; zero has none.
type polynomial []term

// algebra is arithmetic of polynomials and rational functions. It panics with an error
// of this package where the work or the size is beyond its limits.
type algebra struct {
	budget *Budget
	atoms  []atom
}

func constant(r *big.Rat) polynomial {
	if r.Sign() == 0 {
		return nil
	}
	return polynomial{{coefficient: r}}
}

var (
	one = big.NewRat(1, 1)
	// unit is the polynomial 1, which all denominators of polynomials share.
	unit = polynomial{{coefficient: one}}
)

// isOne is r.Cmp(one) == 0 without its products.
func isOne(r *big.Rat) bool {
	return r == one || r.IsInt() && r.Num().IsInt64() && r.Num().Int64() == 1
}

// isConstant is the polynomial's value if it has no atoms.
func (p polynomial) isConstant() (*big.Rat, bool) {
	switch {
	case len(p) == 0:
		return new(big.Rat), true
	case len(p) == 1 && len(p[0].factors) == 0:
		return p[0].coefficient, true
	}
	return nil, false
}

func compareFactors(a, b []factor) int {
	return slices.CompareFunc(a, b, func(x, y factor) int {
		if x.atom != y.atom {
			return int(x.atom - y.atom)
		}
		return int(y.exponent - x.exponent)
	})
}

func bits(r *big.Rat) int64 { return int64(r.Num().BitLen() + r.Denom().BitLen()) }

// pay charges an operation of two coefficients.
func (x *algebra) pay(a, b *big.Rat) {
	n := (bits(a) + bits(b)) / 64
	if !x.budget.Spend(300 + n*20 + n*n) {
		panic(errBudget)
	}
	if n > maxBits/64 {
		panic(errTooLarge)
	}
}

func (x *algebra) add(p, q polynomial) polynomial {
	if a, ok := p.isConstant(); ok {
		if b, ok := q.isConstant(); ok {
			x.pay(a, b)
			return constant(new(big.Rat).Add(a, b))
		}
	}
	out := make(polynomial, 0, len(p)+len(q))
	for len(p) > 0 && len(q) > 0 {
		switch c := compareFactors(p[0].factors, q[0].factors); {
		case c < 0:
			out, p = append(out, p[0]), p[1:]
		case c > 0:
			out, q = append(out, q[0]), q[1:]
		default:
			x.pay(p[0].coefficient, q[0].coefficient)
			if s := new(big.Rat).Add(p[0].coefficient, q[0].coefficient); s.Sign() != 0 {
				out = append(out, term{s, p[0].factors})
			}
			p, q = p[1:], q[1:]
		}
		if !x.budget.Spend(50) {
			panic(errBudget)
		}
	}
	out = append(append(out, p...), q...)
	if !x.budget.Spend(int64(len(out)) * 10) {
		panic(errBudget)
	}
	return out
}

func (x *algebra) scale(p polynomial, r *big.Rat) polynomial {
	if r.Sign() == 0 {
		return nil
	}
	if isOne(r) {
		return p
	}
	out := make(polynomial, len(p))
	for i, t := range p {
		x.pay(t.coefficient, r)
		out[i] = term{arith.Product(t.coefficient, r), t.factors}
	}
	return out
}

var minusOne = big.NewRat(-1, 1)

func (x *algebra) negate(p polynomial) polynomial { return x.scale(p, minusOne) }

func (x *algebra) multiply(p, q polynomial) polynomial {
	if a, ok := p.isConstant(); ok {
		return x.scale(q, a)
	}
	if b, ok := q.isConstant(); ok {
		return x.scale(p, b)
	}
	if len(p)*len(q) > maxTerms*20 {
		panic(errTooLarge)
	}
	sums := make(map[string]int, len(p)+len(q))
	var out polynomial
	var key []byte
	for _, s := range p {
		for _, t := range q {
			x.pay(s.coefficient, t.coefficient)
			product := x.product(s, t)
			key = key[:0]
			for _, f := range product.factors {
				key = binary.LittleEndian.AppendUint64(key, uint64(uint32(f.atom))<<32|uint64(uint32(f.exponent)))
			}
			if i, ok := sums[string(key)]; ok {
				x.pay(out[i].coefficient, product.coefficient)
				out[i].coefficient = new(big.Rat).Add(out[i].coefficient, product.coefficient)
				continue
			}
			if len(out) >= maxTerms {
				panic(errTooLarge)
			}
			sums[string(key)] = len(out)
			out = append(out, product)
		}
	}
	out = slices.DeleteFunc(out, func(t term) bool { return t.coefficient.Sign() == 0 })
	slices.SortFunc(out, func(a, b term) int { return compareFactors(a.factors, b.factors) })
	return out
}

// product multiplies two terms and reduces powers of atoms that have a rational power.
func (x *algebra) product(s, t term) term {
	c := arith.Product(s.coefficient, t.coefficient)
	factors := make([]factor, 0, len(s.factors)+len(t.factors))
	a, b := s.factors, t.factors
	for len(a) > 0 || len(b) > 0 {
		var f factor
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].atom < b[0].atom:
			f, a = a[0], a[1:]
		case len(a) == 0 || b[0].atom < a[0].atom:
			f, b = b[0], b[1:]
		default:
			f = factor{a[0].atom, a[0].exponent + b[0].exponent}
			a, b = a[1:], b[1:]
		}
		if f.exponent > maxExponent {
			panic(errTooLarge)
		}
		if at := &x.atoms[f.atom]; at.period > 0 && f.exponent >= at.period {
			// The period-th power of the atom is at.power.
			for n := f.exponent / at.period; n > 0; n-- {
				x.pay(c, at.power)
				c = arith.Product(c, at.power)
			}
			f.exponent %= at.period
		}
		if f.exponent != 0 {
			factors = append(factors, f)
		}
	}
	return term{c, factors}
}

// power is p to the n-th, n ≥ 0.
func (x *algebra) power(p polynomial, n int64) polynomial {
	if c, ok := p.isConstant(); ok {
		return constant(x.rationalPower(c, n))
	}
	if n > maxExponent {
		panic(errTooLarge)
	}
	out := unit
	for {
		if n&1 == 1 {
			out = x.multiply(out, p)
		}
		if n >>= 1; n == 0 {
			return out
		}
		p = x.multiply(p, p)
	}
}

// rationalPower is c to the n-th, n of any sign.
func (x *algebra) rationalPower(c *big.Rat, n int64) *big.Rat {
	abs := max(n, -n)
	if c.Sign() == 0 && n < 0 {
		panic(errUndefined)
	}
	isWhole := c.IsInt()
	if abs > 1 && !isUnit(c.Num()) || !isWhole {
		if size := max(c.Num().BitLen(), c.Denom().BitLen()); abs > maxBits || int64(size)*abs > maxBits {
			panic(errTooLarge)
		} else if w := int64(size) * abs / 64; !x.budget.Spend(500 + 2*w*w + 50*w) {
			panic(errBudget)
		}
	}
	if n == 1 {
		return c
	}
	if abs > 1 && isWhole && (c.Sign() == 0 || isUnit(c.Num())) {
		abs = 2 - abs%2 // 1 or -1 or 0
	}
	e := big.NewInt(abs)
	if isWhole {
		r := new(big.Rat).SetInt(new(big.Int).Exp(c.Num(), e, nil))
		if n < 0 {
			r.Inv(r)
		}
		return r
	}
	// c is in lowest terms, and so are its powers.
	r := arith.Lowest(new(big.Int).Exp(c.Num(), e, nil), new(big.Int).Exp(c.Denom(), e, nil))
	if n < 0 {
		r.Inv(r)
	}
	return r
}

// isUnit reports whether n is 1 or -1.
func isUnit(n *big.Int) bool { return len(n.Bits()) == 1 && n.Bits()[0] == 1 }

// fraction is a rational function; its denominator is not zero.
type fraction struct{ num, den polynomial }

func (f fraction) isRational() (*big.Rat, bool) {
	n, ok := f.num.isConstant()
	if !ok {
		return nil, false
	}
	d, ok := f.den.isConstant()
	if !ok {
		if n.Sign() == 0 {
			return n, true
		}
		return nil, false
	}
	if isOne(d) {
		return n, true
	}
	return new(big.Rat).Quo(n, d), true
}

func whole(p polynomial) fraction { return fraction{p, unit} }

func (x *algebra) sum(f, g fraction) fraction {
	if d, ok := f.den.isConstant(); ok && isOne(d) {
		if e, ok := g.den.isConstant(); ok && isOne(e) {
			return whole(x.add(f.num, g.num))
		}
	}
	if samePolynomial(f.den, g.den) {
		return x.tidy(fraction{x.add(f.num, g.num), f.den})
	}
	return x.tidy(fraction{x.add(x.multiply(f.num, g.den), x.multiply(g.num, f.den)), x.multiply(f.den, g.den)})
}

func samePolynomial(p, q polynomial) bool {
	return slices.EqualFunc(p, q, func(a, b term) bool {
		return slices.Equal(a.factors, b.factors) && a.coefficient.Cmp(b.coefficient) == 0
	})
}

func (x *algebra) times(f, g fraction) fraction {
	return x.tidy(fraction{x.multiply(f.num, g.num), x.multiply(f.den, g.den)})
}

func (x *algebra) over(f, g fraction) fraction {
	if x.isZero(g) {
		panic(errUndefined)
	}
	return x.tidy(fraction{x.multiply(f.num, g.den), x.multiply(f.den, g.num)})
}

// tidy moves the denominator's first coefficient into the numerator, and multiplies
// by what makes a single root or i in the denominator rational.
func (x *algebra) tidy(f fraction) fraction {
	if len(f.den) == 1 {
		for _, t := range f.den[0].factors {
			if at := x.atoms[t.atom]; at.period > 0 && t.exponent < at.period {
				m := polynomial{{one, []factor{{t.atom, at.period - t.exponent}}}}
				f = fraction{x.multiply(f.num, m), x.multiply(f.den, m)}
			}
		}
	}
	if len(f.den) > 0 {
		if c := f.den[0].coefficient; !isOne(c) {
			inverse := new(big.Rat).Inv(c)
			f = fraction{x.scale(f.num, inverse), x.scale(f.den, inverse)}
		}
	}
	return f
}

// isZero reports whether a function is the zero polynomial in its atoms. Whether it
// is zero in truth is more where atoms depend on one another.
func (x *algebra) isZero(f fraction) bool { return len(f.num) == 0 }

// difference reports whether f - g is zero as a function of its atoms.
func (x *algebra) difference(f, g fraction) (zero bool, err error) {
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(error)
			if !ok || !errors.Is(e, errBudget) && !errors.Is(e, errTooLarge) {
				panic(r)
			}
			err = e
		}
	}()
	if samePolynomial(f.den, g.den) {
		return samePolynomial(f.num, g.num), nil
	}
	return samePolynomial(x.multiply(f.num, g.den), x.multiply(g.num, f.den)), nil
}

func (x *algebra) scaled(p polynomial, r *big.Rat) (q polynomial, err error) {
	defer func() {
		if r := recover(); r != nil {
			if e, ok := r.(error); !ok || !isOurs(e) {
				panic(r)
			}
			err = errTooLarge
		}
	}()
	return x.scale(p, r), nil
}
