package mathvalue

import (
	"errors"
	"math/big"
	"sync"

	"agentcli/internal/arith"
	"agentcli/rewards/mathexpr"
)

// bounds are those of the rationals that are kept exact among intervals.
var bounds = &arith.Bounds{Bits: 4096, Exponent: 2000, PowerBits: 8192, Factorial: 400, Strict: true}

// value is an exact rational, or an interval where that is none.
type value struct {
	exact arith.Number // exact.Rat() is nil for an interval
	z     number
}

// evaluator evaluates trees at a point. It panics with an error of this package
// where it cannot; at recovers.
type evaluator struct {
	complexArithmetic
	point   map[string]value // by name, with i among the names where it is bound
	natural bool
	// imaginary is set where a number that is not real came up without i being in the formula.
	imaginaryCame bool
	approximate   bool // a limit, an infinite sum or an integral was approximated
	rightBits     int  // of the worst approximation
	limited       bool // an infinite sum is no narrower at a higher precision
	depth         int
}

// factorials are those that bounds allow, from 0! on.
var factorials = sync.OnceValue(func() []arith.Number {
	f := big.NewInt(1)
	all := []arith.Number{arith.Int(1)}
	for k := int64(1); k <= bounds.Factorial; k++ {
		f = new(big.Int).Mul(f, big.NewInt(k))
		all = append(all, arith.Exact(new(big.Rat).SetInt(f)))
	}
	return all
})

// at is the value of a tree.
func (e *evaluator) at(n *mathexpr.Node) (z number, err error) {
	defer func() {
		if r := recover(); r != nil {
			switch r {
			case errBudget, errUndefined, errNoValue, errTooLarge, errPrecision:
				err = r.(error)
			default:
				if _, ok := r.(big.ErrNaN); !ok {
					panic(r)
				}
				err = errUndefined
			}
		}
	}()
	return e.interval(e.eval(n)), nil
}

// approximated notes that a value is right to so many bits only.
func (e *evaluator) approximated(bits int) {
	if !e.approximate || bits < e.rightBits {
		e.approximate, e.rightBits = true, bits
	}
}

func (e *evaluator) interval(v value) number {
	if q := v.exact.Rat(); q != nil {
		return realNumber(e.rational(q))
	}
	return v.z
}

func exactly(q *big.Rat) value { return value{exact: arith.Exact(q)} }

func inexact(z number) value { return value{z: z} }

// binary applies an operation: exact where both are exact and the bounds allow it.
func (e *evaluator) binary(x, y value, exact func(arith.Number, arith.Number) (arith.Number, error), approximate func(number,
	number) number) value {
	if p, q := x.exact.Rat(), y.exact.Rat(); p != nil && q != nil {
		if w := (bits(p) + bits(q)) / 64; !e.budget.Spend(300 + w*w) {
			panic(errBudget)
		}
		v, err := exact(x.exact, y.exact)
		if err == nil && v.Rat() != nil {
			return value{exact: v}
		}
		if errors.Is(err, arith.ErrZeroDivision) {
			panic(errUndefined)
		}
	}
	return inexact(approximate(e.interval(x), e.interval(y)))
}

func (e *evaluator) plusValues(x, y value) value  { return e.binary(x, y, bounds.Add, e.plus) }
func (e *evaluator) timesValues(x, y value) value { return e.binary(x, y, bounds.Mul, e.times) }
func (e *evaluator) overValues(x, y value) value  { return e.binary(x, y, bounds.Div, e.over) }

func (e *evaluator) eval(n *mathexpr.Node) value {
	if e.depth++; e.depth > 400 {
		panic(errTooLarge)
	}
	defer func() { e.depth-- }()
	if !e.budget.Spend(50) {
		panic(errBudget)
	}
	switch n.Kind {
	case mathexpr.Number:
		return exactly(n.Value)
	case mathexpr.Variable:
		if v, ok := e.point[n.Name]; ok {
			return v
		}
		panic(errNoValue)
	case mathexpr.Constant:
		return e.constant(n.Name)
	case mathexpr.Sum:
		v := e.eval(n.Args[0])
		for _, a := range n.Args[1:] {
			v = e.plusValues(v, e.eval(a))
		}
		return v
	case mathexpr.Product:
		v := e.eval(n.Args[0])
		for _, a := range n.Args[1:] {
			v = e.timesValues(v, e.eval(a))
		}
		return v
	case mathexpr.Negative:
		return e.timesValues(exactly(minusOne), e.eval(n.Args[0]))
	case mathexpr.Quotient:
		return e.overValues(e.eval(n.Args[0]), e.eval(n.Args[1]))
	case mathexpr.Ratio:
		if len(n.Args) != 2 {
			panic(errNoValue)
		}
		return e.overValues(e.eval(n.Args[0]), e.eval(n.Args[1]))
	case mathexpr.Percent:
		return e.timesValues(e.eval(n.Args[0]), exactly(big.NewRat(1, 100)))
	case mathexpr.Degrees:
		return e.timesValues(e.timesValues(e.eval(n.Args[0]), exactly(big.NewRat(1, 180))), inexact(realNumber(e.pi())))
	case mathexpr.Quantity:
		return e.timesValues(e.eval(n.Args[0]), exactly(mathexpr.UnitOf(n.Name).Factor))
	case mathexpr.Power:
		if base := n.Args[0]; base.Kind == mathexpr.Constant && base.Name == "e" {
			return inexact(e.exp(e.interval(e.eval(n.Args[1]))))
		}
		return e.power(e.eval(n.Args[0]), e.eval(n.Args[1]))
	case mathexpr.Root:
		return e.rootOf(e.eval(n.Args[0]), e.eval(n.Args[1]))
	case mathexpr.Factorial:
		v := e.eval(n.Args[0])
		if k, ok := v.exact.Int64(); ok && k >= 0 && k < int64(len(factorials())) {
			e.pay(20)
			return value{exact: factorials()[k]}
		}
		panic(errNoValue)
	case mathexpr.Function:
		return e.function(n)
	case mathexpr.Repeated:
		return e.repeated(n)
	}
	return e.byExact(n)
}

// byExact evaluates what only the exact layer knows, at the point.
func (e *evaluator) byExact(n *mathexpr.Node) value {
	x := newExact(e.budget, e.natural)
	x.bound = map[string]*big.Rat{}
	for name, v := range e.point {
		if q := v.exact.Rat(); q != nil {
			x.bound[name] = q
		}
	}
	f, err := x.rational(n)
	if err != nil {
		panic(err)
	}
	if q, ok := f.isRational(); ok {
		return exactly(q)
	}
	panic(errNoValue)
}

func (e *evaluator) constant(name string) value {
	switch name {
	case "pi":
		return inexact(realNumber(e.pi()))
	case "e":
		return inexact(realNumber(e.exponential(e.integer(1))))
	case "i":
		if v, ok := e.point["i"]; ok {
			return v
		}
		return inexact(number{e.integer(0), e.integer(1)})
	}
	panic(errNoValue)
}

// power is x^y: by multiplication for whole y, the real root of a negative number
// for y with an odd denominator, else by the exponential.
func (e *evaluator) power(x, y value) value {
	q := y.exact.Rat()
	if q != nil && q.IsInt() && q.Num().IsInt64() {
		n := q.Num().Int64()
		if x.exact.Rat() != nil {
			v, err := bounds.Pow(x.exact, y.exact)
			if err == nil && v.Rat() != nil {
				if !e.budget.Spend(2000) {
					panic(errBudget)
				}
				return value{exact: v}
			}
			if errors.Is(err, arith.ErrZeroDivision) {
				panic(errUndefined)
			}
		}
		if n > -5000 && n < 5000 {
			return inexact(e.integerPower(e.interval(x), n))
		}
	}
	z := e.interval(x)
	if x.exact.Rat() != nil && x.exact.Sign() == 0 {
		if y.exact.Rat() != nil && y.exact.Sign() > 0 {
			return x
		}
		panic(errUndefined)
	}
	if z.isReal() && sign(z.re) < 0 && q != nil {
		if q.Denom().Bit(0) == 1 { // an odd root is real
			v := e.exp(e.times(e.interval(y), e.log(e.minus(z))))
			if q.Num().Bit(0) == 1 {
				v = e.minus(v)
			}
			return inexact(v)
		}
		e.imaginaryCame = true
	}
	if q != nil && q.Denom().IsInt64() && q.Denom().Int64() == 2 && q.Num().IsInt64() && q.Num().Int64() > -1000 && q.Num().Int64() < 1000 {
		return inexact(e.integerPower(e.root(z), q.Num().Int64()))
	}
	if z.isReal() && sign(z.re) < 0 {
		e.imaginaryCame = true
	}
	return inexact(e.exp(e.times(e.interval(y), e.log(z))))
}

func (e *evaluator) rootOf(x, degree value) value {
	q := degree.exact.Rat()
	if q == nil || q.Sign() == 0 {
		if q == nil {
			return e.power(x, e.overValues(exactly(one), degree))
		}
		panic(errUndefined)
	}
	if q.IsInt() && q.Num().IsInt64() && q.Num().Int64() == 2 {
		if r, ok := x.exact.ExactSqrt(); ok {
			return value{exact: r}
		}
		z := e.interval(x)
		if z.isReal() && sign(z.re) < 0 {
			e.imaginaryCame = true
		}
		return inexact(e.root(z))
	}
	return e.power(x, exactly(new(big.Rat).Inv(q)))
}

// function evaluates a function.
func (e *evaluator) function(n *mathexpr.Node) value {
	args := make([]value, len(n.Args))
	rationals := make([]*big.Rat, len(n.Args))
	rational := true
	for i, a := range n.Args {
		args[i] = e.eval(a)
		if rationals[i] = args[i].exact.Rat(); rationals[i] == nil {
			rational = false
		}
	}
	if rational && len(args) > 0 {
		if q := rationalFunction(n.Name, rationals); q != nil {
			return exactly(q)
		}
	}
	if len(args) == 0 {
		panic(errNoValue)
	}
	z := e.interval(args[0])
	unit := realNumber(e.integer(1))
	switch n.Name {
	case "ln", "log", "lg":
		if z.isReal() && sign(z.re) < 0 {
			e.imaginaryCame = true
		}
		v := e.log(z)
		switch {
		case len(args) > 1:
			v = e.over(v, e.log(e.interval(args[1])))
		case n.Name == "lg" || n.Name == "log" && !e.natural:
			v = e.over(v, e.log(realNumber(e.integer(10))))
		}
		return inexact(v)
	case "abs":
		return inexact(realNumber(e.modulus(z)))
	case "sign":
		if z.isReal() && sign(z.re) != 0 {
			return exactly(new(big.Rat).SetInt64(int64(sign(z.re))))
		}
		panic(errPrecision)
	case "floor", "ceil":
		return rounded(e, z, n.Name == "ceil")
	case "Re":
		return inexact(realNumber(z.re))
	case "Im":
		return inexact(realNumber(e.imaginary(z)))
	case "arg":
		return inexact(realNumber(e.argument(z)))
	case "max", "min":
		return extreme(e, args, n.Name == "max")
	}
	if v, ok := e.trigonometric(n.Name, z, unit); ok {
		return inexact(v)
	}
	panic(errNoValue)
}

// rounded is the floor or the ceiling where the interval decides it.
func rounded(e *evaluator, z number, up bool) value {
	if !z.isReal() {
		panic(errNoValue)
	}
	if exponentOf(z.re.m) > int(e.precision)-8 {
		panic(errPrecision)
	}
	low := new(big.Float).SetPrec(e.precision+64).Sub(z.re.m, z.re.r)
	high := new(big.Float).SetPrec(e.precision+64).Add(z.re.m, z.re.r)
	if up {
		low, high = high.Neg(high), low.Neg(low)
	}
	a, b := floorFloat(low), floorFloat(high)
	if a.Cmp(b) != 0 {
		panic(errPrecision)
	}
	if up {
		a.Neg(a)
	}
	return exactly(new(big.Rat).SetInt(a))
}

func floorFloat(x *big.Float) *big.Int {
	v, accuracy := x.Int(nil)
	if accuracy == big.Above { // a negative number was cut towards 0
		v.Sub(v, big.NewInt(1))
	}
	return v
}

func extreme(e *evaluator, args []value, largest bool) value {
	best := args[0]
	for _, v := range args[1:] {
		d := e.plus(e.interval(v), e.minus(e.interval(best)))
		if !d.isReal() {
			panic(errNoValue)
		}
		if s := sign(d.re); s == 0 {
			panic(errPrecision)
		} else if s > 0 == largest {
			best = v
		}
	}
	return best
}

// compare tells two intervals apart, or takes them for equal where both are narrow.
func (e *evaluator) compare(x, y number) (v Verdict) {
	defer func() {
		if r := recover(); r != nil {
			if e, ok := r.(error); !ok || !isOurs(e) {
				panic(r)
			}
			v = Unknown
		}
	}()
	d := e.plus(x, e.minus(y))
	if sign(d.re) != 0 || !d.isReal() && sign(d.im) != 0 {
		return Unequal
	}
	bits := int(e.precision / 2)
	if e.approximate {
		bits = e.rightBits
	}
	size := radius().Add(high(x.re), high(y.re))
	if !x.isReal() {
		size.Add(size, high(x.im))
	}
	if !y.isReal() {
		size.Add(size, high(y.im))
	}
	if size.Sign() != 0 {
		size.SetMantExp(size, -bits)
	}
	floor := radius().SetMantExp(radius().SetInt64(1), -bits)
	if size.Cmp(floor) < 0 {
		size = floor
	}
	if e.largest > int(e.precision)/2 && !e.approximate {
		return Unknown
	}
	if d.re.r.Cmp(size) > 0 || !d.isReal() && d.im.r.Cmp(size) > 0 {
		return Unknown
	}
	return Equal
}
