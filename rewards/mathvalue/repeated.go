package mathvalue

import (
	"math/big"

	"agentcli/rewards/mathexpr"
)

// with evaluates a tree with one more variable.
func (e *evaluator) with(variable string, v value, n *mathexpr.Node) value {
	outer, shadowed := e.point[variable]
	e.point[variable] = v
	out := e.eval(n)
	if delete(e.point, variable); shadowed {
		e.point[variable] = outer
	}
	return out
}

func isInfinite(n *mathexpr.Node) bool {
	return n != nil && (n.Kind == mathexpr.Constant && n.Name == "inf" || n.Kind == mathexpr.Negative && isInfinite(n.Args[0]))
}

// repeated evaluates sums, products, limits and integrals.
func (e *evaluator) repeated(n *mathexpr.Node) value {
	switch n.Name {
	case "lim":
		return e.limit(n)
	case "int":
		return integrals{e}.definite(n)
	case "diff":
		return e.derivative(n)
	}
	variable, body := n.Args[0].Name, n.Args[3]
	from := e.eval(n.Args[1]).exact.Rat()
	if from == nil || !from.IsInt() || !from.Num().IsInt64() {
		panic(errNoValue)
	}
	if isInfinite(n.Args[2]) && n.Args[2].Kind == mathexpr.Constant && n.Name == "sum" {
		return e.series(variable, from.Num().Int64(), body)
	}
	to := e.eval(n.Args[2]).exact.Rat()
	if to == nil || !to.IsInt() || !to.Num().IsInt64() || to.Num().Int64()-from.Num().Int64() > 20000 {
		panic(errNoValue)
	}
	total := exactly(new(big.Rat))
	if n.Name == "prod" {
		total = exactly(one)
	}
	for k := from.Num().Int64(); k <= to.Num().Int64(); k++ {
		v := e.with(variable, exactly(big.NewRat(k, 1)), body)
		if n.Name == "prod" {
			total = e.timesValues(total, v)
		} else {
			total = e.plusValues(total, v)
		}
	}
	return total
}

// series is an infinite sum of a rational function, or adds the terms of one whose terms
// fall at least as fast as .9^k; of another one nothing is known.
func (e *evaluator) series(variable string, from int64, body *mathexpr.Node) value {
	if v, ok := (sums{e}).summed(variable, from, body); ok {
		return v
	}
	total := realNumber(e.integer(0))
	var last *big.Float
	falling := 0
	small := radius().SetMantExp(radius().SetInt64(1), -int(e.precision)+16)
	for k := from; k < from+4000; k++ {
		z := e.interval(e.with(variable, exactly(big.NewRat(k, 1)), body))
		total = e.plus(total, z)
		size := high(e.modulus(z))
		if last != nil {
			if size.Cmp(radius().Mul(last, big.NewFloat(.9))) <= 0 {
				falling++
			} else if falling = 0; k > from+400 {
				panic(errNoValue)
			}
		}
		last = size
		if falling > 8 && size.Cmp(small) < 0 {
			e.approximated(int(e.precision) / 2)
			total.re.r = radius().Add(total.re.r, radius().Mul(size, big.NewFloat(16)))
			return inexact(total)
		}
	}
	panic(errNoValue)
}

// limit evaluates the body at two points close to the limit's; what they differ by
// is the radius.
func (e *evaluator) limit(n *mathexpr.Node) value {
	variable, body := n.Args[0].Name, n.Args[3]
	e.approximated(40)
	if !isInfinite(n.Args[1]) {
		at := e.eval(n.Args[1])
		near := func(shift uint) number {
			h := new(big.Rat).SetFrac(big.NewInt(1), new(big.Int).Lsh(big.NewInt(1), shift))
			return e.interval(e.with(variable, e.plusValues(at, exactly(h)), body))
		}
		return between(e, near(e.precision/3), near(e.precision/3-12))
	}
	far := func(shift uint) number {
		x := new(big.Rat).SetInt(new(big.Int).Lsh(big.NewInt(1), shift))
		if n.Args[1].Kind == mathexpr.Negative {
			x.Neg(x)
		}
		return e.interval(e.with(variable, exactly(x), body))
	}
	return between(e, far(e.precision/3), far(e.precision/3-12))
}

// derivative is the difference of the body at two points close to the variable's.
func (e *evaluator) derivative(n *mathexpr.Node) value {
	e.approximated(40)
	at := e.eval(n.Args[0])
	shift := e.precision / 3
	h := new(big.Rat).SetFrac(big.NewInt(1), new(big.Int).Lsh(big.NewInt(1), shift))
	near := func(h *big.Rat) number {
		return e.interval(e.with(n.Args[0].Name, e.plusValues(at, exactly(h)), n.Args[3]))
	}
	d := e.plus(near(h), e.minus(near(new(big.Rat).Neg(h))))
	return inexact(e.times(d, realNumber(e.rational(new(big.Rat).SetInt(new(big.Int).Lsh(big.NewInt(1), shift-1))))))
}

func between(e *evaluator, a, b number) value {
	d := e.modulus(e.plus(a, e.minus(b)))
	a.re.r = radius().Add(a.re.r, high(d))
	if !a.isReal() {
		a.im.r = radius().Add(a.im.r, high(d))
	}
	return inexact(a)
}
