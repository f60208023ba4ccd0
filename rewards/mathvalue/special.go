package mathvalue

import (
	"math/big"
	"strings"

	"agentcli/rewards/mathexpr"
)

// special evaluates what is more than arithmetic.
func (x *exact) special(n *mathexpr.Node) fraction {
	switch n.Kind {
	case mathexpr.Factorial, mathexpr.DoubleFactorial:
		return x.factorial(n)
	case mathexpr.Binomial:
		return x.binomial(n)
	case mathexpr.Modulo:
		a, b := x.eval(n.Args[0]), x.eval(n.Args[1])
		if p, ok := a.isRational(); ok {
			if q, ok := b.isRational(); ok {
				if q.Sign() == 0 {
					panic(errUndefined)
				}
				return whole(constant(remainder(p, q)))
			}
		}
		return x.opaque("mod " + x.key(a) + x.key(b))
	case mathexpr.Function:
		return x.function(n)
	case mathexpr.Application:
		if n.Name == "base" {
			v, ok := InBase(n)
			if !ok {
				panic(errNoValue)
			}
			return whole(constant(v))
		}
		if n.Name == "cases" {
			panic(errNoValue)
		}
		var b strings.Builder
		b.WriteString("app " + n.Name)
		for _, a := range n.Args {
			b.WriteString(x.key(x.eval(a)))
		}
		return x.opaque(b.String())
	case mathexpr.Repeated:
		return x.repeated(n)
	}
	panic(errNoValue)
}

// remainder is p mod q, of q's sign.
func remainder(p, q *big.Rat) *big.Rat {
	r := new(big.Rat).Quo(p, q)
	return new(big.Rat).Sub(p, new(big.Rat).Mul(q, new(big.Rat).SetInt(floor(r))))
}

func floor(r *big.Rat) *big.Int {
	m := new(big.Int)
	q, _ := new(big.Int).DivMod(r.Num(), r.Denom(), m)
	return q
}

// InBase is the value of digits with a base: 101_2 is 5.
func InBase(n *mathexpr.Node) (*big.Rat, bool) {
	if n.Kind != mathexpr.Application || n.Name != "base" || n.Args[0].Kind != mathexpr.Number || n.Args[1].Kind != mathexpr.Number {
		return nil, false
	}
	digits, base := n.Args[0].Value, n.Args[1].Value
	if !digits.IsInt() || digits.Sign() < 0 || !base.IsInt() || !base.Num().IsInt64() || base.Num().Int64() < 2 || base.Num().Int64() > 36 ||
		digits.Num().BitLen() > 4000 {
		return nil, false
	}
	v, ok := new(big.Int).SetString(digits.Num().String(), int(base.Num().Int64()))
	if !ok {
		return nil, false
	}
	return new(big.Rat).SetInt(v), true
}

func (x *exact) factorial(n *mathexpr.Node) fraction {
	f := x.eval(n.Args[0])
	step, name := int64(1), "fact "
	if n.Kind == mathexpr.DoubleFactorial {
		step, name = 2, "fact2 "
	}
	v, ok := f.isRational()
	if !ok || !v.IsInt() {
		return x.opaque(name + x.key(f))
	}
	if v.Sign() < 0 {
		panic(errUndefined)
	}
	k := v.Num()
	if !k.IsInt64() || k.Int64() > maxFact {
		return x.opaque(name + x.key(f))
	}
	if !x.budget.Spend(200 + k.Int64()*k.Int64()/10) {
		panic(errBudget)
	}
	if step == 1 {
		return whole(constant(new(big.Rat).SetInt(new(big.Int).MulRange(1, k.Int64()))))
	}
	p, m := big.NewInt(1), new(big.Int)
	for i := k.Int64(); i > 1; i -= step {
		p.Mul(p, m.SetInt64(i))
	}
	return whole(constant(new(big.Rat).SetInt(p)))
}

func (x *exact) binomial(n *mathexpr.Node) fraction {
	a, b := x.eval(n.Args[0]), x.eval(n.Args[1])
	k, ok := b.isRational()
	if !ok || !k.IsInt() || !k.Num().IsInt64() {
		return x.opaque("binom " + x.key(a) + x.key(b))
	}
	if k.Sign() < 0 {
		return whole(nil)
	}
	choose := k.Num().Int64()
	if m, ok := a.isRational(); ok && m.IsInt() && m.Num().IsInt64() {
		v := m.Num().Int64()
		if v >= 0 && choose > v {
			return whole(nil)
		}
		if v >= 0 {
			choose = min(choose, v-choose)
			size := int64(m.Num().BitLen())
			if choose > maxFact || size*choose > maxBits {
				return x.opaque("binom " + x.key(a) + x.key(b))
			}
			if w := size * choose / 64; !x.budget.Spend(500 + choose*200 + w*w*4) {
				panic(errBudget)
			}
			return whole(constant(new(big.Rat).SetInt(new(big.Int).Binomial(v, choose))))
		}
	}
	if choose > 40 {
		return x.opaque("binom " + x.key(a) + x.key(b))
	}
	out := whole(constant(one))
	for i := range choose { // a (a-1) … / (1 · 2 …)
		out = x.times(out, x.sum(a, whole(constant(big.NewRat(-i, 1)))))
		out = x.times(out, whole(constant(big.NewRat(1, i+1))))
	}
	return out
}

// function evaluates functions that have rational values; the others are atoms.
func (x *exact) function(n *mathexpr.Node) fraction {
	args := make([]fraction, len(n.Args))
	values := make([]*big.Rat, len(n.Args))
	rational := true
	for i, a := range n.Args {
		args[i] = x.eval(a)
		var ok bool
		if values[i], ok = args[i].isRational(); !ok {
			rational = false
		}
	}
	if rational && len(args) > 0 {
		if v := rationalFunction(n.Name, values); v != nil {
			return whole(constant(v))
		}
	}
	name := n.Name
	switch {
	case name == "lg", name == "log" && len(args) == 1 && !x.natural:
		name = "log"
		args = append(args[:1:1], whole(constant(big.NewRat(10, 1))))
	case name == "log" && len(args) == 1:
		name = "ln"
	}
	var b strings.Builder
	b.WriteString("fn " + name)
	for _, a := range args {
		b.WriteString(x.key(a))
	}
	return x.opaque(b.String())
}

// rationalFunction is the rational value of a function of rationals, or nil.
func rationalFunction(name string, v []*big.Rat) *big.Rat {
	switch name {
	case "abs":
		return new(big.Rat).Abs(v[0])
	case "sign":
		return new(big.Rat).SetInt64(int64(v[0].Sign()))
	case "floor":
		return new(big.Rat).SetInt(floor(v[0]))
	case "ceil":
		f := floor(new(big.Rat).Neg(v[0]))
		return new(big.Rat).SetInt(f.Neg(f))
	case "Re":
		return v[0]
	case "Im":
		return new(big.Rat)
	case "max", "min":
		best := v[0]
		for _, w := range v[1:] {
			if c := w.Cmp(best); c > 0 && name == "max" || c < 0 && name == "min" {
				best = w
			}
		}
		return best
	case "gcd", "lcm":
		var g *big.Int
		for _, w := range v {
			if !w.IsInt() || w.Num().BitLen() > 4096 || w.Sign() == 0 && name == "lcm" {
				return nil
			}
			a := new(big.Int).Abs(w.Num())
			switch {
			case g == nil:
				g = a
			case name == "gcd":
				g = new(big.Int).GCD(nil, nil, g, a)
			default:
				d := new(big.Int).GCD(nil, nil, g, a)
				g = new(big.Int).Mul(g, a.Div(a, d))
				if g.BitLen() > 8192 {
					return nil
				}
			}
		}
		return new(big.Rat).SetInt(g)
	}
	return nil
}

// repeated evaluates sums and products between whole numbers, and integrals of
// polynomials.
func (x *exact) repeated(n *mathexpr.Node) fraction {
	variable, body := n.Args[0].Name, n.Args[3]
	if n.Name == "int" {
		return x.integral(n)
	}
	if n.Name != "sum" && n.Name != "prod" {
		panic(errNoValue)
	}
	if n.Args[2].Kind == mathexpr.Constant && n.Args[2].Name == "inf" {
		panic(errNoValue)
	}
	from, ok := x.eval(n.Args[1]).isRational()
	to, okTo := x.eval(n.Args[2]).isRational()
	if !ok || !okTo || !from.IsInt() || !to.IsInt() {
		panic(errNoValue)
	}
	count := new(big.Rat).Sub(to, from)
	if count.Cmp(big.NewRat(1e6, 1)) > 0 {
		panic(errTooLarge)
	}
	if x.bound == nil {
		x.bound = map[string]*big.Rat{}
	}
	outer, shadowed := x.bound[variable]
	total := whole(nil)
	if n.Name == "prod" {
		total = whole(constant(one))
	}
	for k := new(big.Rat).Set(from); k.Cmp(to) <= 0; k = new(big.Rat).Add(k, one) {
		x.bound[variable] = k
		if n.Name == "sum" {
			total = x.sum(total, x.eval(body))
		} else {
			total = x.times(total, x.eval(body))
		}
	}
	delete(x.bound, variable)
	if shadowed {
		x.bound[variable] = outer
	}
	return total
}

// integral integrates polynomials in the variable.
func (x *exact) integral(n *mathexpr.Node) fraction {
	v := x.eval(n.Args[0])
	f := x.eval(n.Args[3])
	if len(v.num) != 1 || len(v.num[0].factors) != 1 {
		panic(errNoValue)
	}
	if d, ok := f.den.isConstant(); !ok || !isOne(d) {
		panic(errNoValue)
	}
	id := v.num[0].factors[0].atom
	if x.dependent { // an atom may be a function of the variable
		panic(errNoValue)
	}
	at := func(point fraction) fraction {
		total := whole(nil)
		for _, t := range f.num {
			e := int64(0)
			rest := make([]factor, 0, len(t.factors))
			for _, g := range t.factors {
				if g.atom == id {
					e = int64(g.exponent)
				} else {
					rest = append(rest, g)
				}
			}
			c := new(big.Rat).Quo(t.coefficient, big.NewRat(e+1, 1))
			piece := whole(polynomial{{c, rest}})
			total = x.sum(total, x.times(piece, fraction{x.power(point.num, e+1), x.power(point.den, e+1)}))
		}
		return total
	}
	if n.Args[1] == nil {
		return at(v)
	}
	low := at(x.eval(n.Args[1]))
	return x.sum(at(x.eval(n.Args[2])), fraction{x.negate(low.num), low.den})
}
