package mathgrade

import (
	"math/big"
	"slices"
	"strings"

	"agentcli/rewards/mathexpr"
	"agentcli/rewards/mathvalue"
)

// inverseWork is what a step of inverses costs beside its comparisons.
const inverseWork = 5000

// inverses solves conditions step by step.
type inverses struct{ realSets }

// undone solves f(x) < c, f(x) = c, … where c is a constant and x is in one place of
// f, whose steps all have an inverse: 2^x < 8, \ln(x-1) >= 0, 3\sqrt{x} != 6.
func (g inverses) undone(left *node, op string, right *node, variable string) (realSet, bool) {
	if g.depth++; g.depth > maxDepth || !g.budget.Spend(inverseWork) {
		return nil, false
	}
	defer func() { g.depth-- }()
	if isConstant(left) {
		left, right, op = right, left, turned(op)
	}
	if isConstant(left) || !isConstant(right) || infinity(right) != 0 {
		return nil, false
	}
	switch left.Kind {
	case mathexpr.Negative:
		return g.solvedPair(left.Args[0], turned(op), negative(right), variable)
	case mathexpr.Sum:
		part, rest, ok := onlyPart(left)
		if !ok {
			return nil, false
		}
		return g.solvedPair(part, op, minus(right, rest), variable)
	case mathexpr.Product:
		part, rest, ok := onlyPart(left)
		if !ok {
			return nil, false
		}
		return g.solvedScaled(part, rest, op, quotient(right, rest), variable)
	case mathexpr.Quotient:
		if !isConstant(left.Args[1]) {
			return nil, false
		}
		return g.solvedScaled(left.Args[0], left.Args[1], op, product(right, left.Args[1]), variable)
	case mathexpr.Power:
		if isConstant(left.Args[0]) {
			return g.solvedExponential(left.Args[0], left.Args[1], op, right, variable)
		}
		n, root, ok := g.exponent(left.Args[1])
		if !ok {
			return nil, false
		}
		if root {
			return g.solvedRoot(left.Args[0], n, op, right, variable)
		}
		return g.solvedPower(left.Args[0], n, op, right, variable)
	case mathexpr.Root:
		n, root, ok := g.exponent(left.Args[1])
		if !ok || root {
			return nil, false
		}
		return g.solvedRoot(left.Args[0], n, op, right, variable)
	case mathexpr.Function:
		if base := g.baseOf(left); base != nil {
			return g.solvedLogarithm(left.Args[0], base, op, right, variable)
		}
	}
	return nil, false
}

// isConstant reports whether a node has no variable.
func isConstant(n *node) bool { return len(mathvalue.Variables(n)) == 0 }

func negative(n *node) *node    { return &node{Kind: mathexpr.Negative, Args: []*node{n}} }
func quotient(a, b *node) *node { return &node{Kind: mathexpr.Quotient, Args: []*node{a, b}} }
func power(a, b *node) *node    { return &node{Kind: mathexpr.Power, Args: []*node{a, b}} }
func naturalLog(n *node) *node  { return &node{Kind: mathexpr.Function, Name: "ln", Args: []*node{n}} }
func whole(n int64) *node       { return &node{Kind: mathexpr.Number, Value: new(big.Rat).SetInt64(n)} }

// onlyPart is the one part of a sum or product that has a variable, and the sum or product of
// the others.
func onlyPart(n *node) (part, rest *node, ok bool) {
	others := &node{Kind: n.Kind}
	for _, a := range n.Args {
		switch {
		case isConstant(a):
			others.Args = append(others.Args, a)
		case part != nil:
			return nil, nil, false
		default:
			part = a
		}
	}
	return part, others, part != nil && len(others.Args) > 0
}

// exponent reads n, or 1/n as a root, for n from 1 to 1000.
func (g inverses) exponent(n *node) (value int64, root, ok bool) {
	q, ok := g.numbers.Rational(n)
	if !ok {
		return 0, false, false
	}
	up, down := q.Num(), q.Denom()
	if up.Cmp(big.NewInt(1)) == 0 && down.Cmp(big.NewInt(1)) > 0 {
		up, root = down, true
	} else if !q.IsInt() {
		return 0, false, false
	}
	if up.Sign() <= 0 || up.Cmp(big.NewInt(1000)) > 0 {
		return 0, false, false
	}
	return up.Int64(), root, true
}

// baseOf is the base of a logarithm; nil of what is none.
func (g inverses) baseOf(n *node) *node {
	switch {
	case n.Name == "ln" && len(n.Args) == 1, n.Name == "log" && len(n.Args) == 1 && g.numbers.Natural:
		return &node{Kind: mathexpr.Constant, Name: "e"}
	case (n.Name == "log" || n.Name == "lg") && len(n.Args) == 1:
		return whole(10)
	case n.Name == "log" && len(n.Args) == 2 && isConstant(n.Args[1]):
		return n.Args[1]
	}
	return nil
}

// solvedScaled solves part·factor op c, given what c is behind the division by the factor.
func (g inverses) solvedScaled(part, factor *node, op string, right *node, variable string) (realSet, bool) {
	s, ok := g.numbers.Compare(factor, whole(0))
	if !ok || s == 0 {
		return nil, false
	}
	if s < 0 {
		op = turned(op)
	}
	return g.solvedPair(part, op, right, variable)
}

// direction is 1 for a base above 1 and -1 for one between 0 and 1.
func (g inverses) direction(base *node) (int, bool) {
	if s, ok := g.numbers.Compare(base, whole(0)); !ok || s <= 0 {
		return 0, false
	}
	d, ok := g.numbers.Compare(base, whole(1))
	return d, ok && d != 0
}

// solvedExponential solves base^u op c.
func (g inverses) solvedExponential(base, u *node, op string, c *node, variable string) (realSet, bool) {
	d, ok := g.direction(base)
	s, okC := g.numbers.Compare(c, whole(0))
	if !ok || !okC {
		return nil, false
	}
	if s <= 0 {
		return g.belowRange(u, op, variable)
	}
	if d < 0 {
		op = turned(op)
	}
	return g.solvedPair(u, op, quotient(naturalLog(c), naturalLog(base)), variable)
}

// belowRange solves f(u) op c where c is below every value of f: nothing, or wherever u is a
// real number.
func (g inverses) belowRange(u *node, op, variable string) (realSet, bool) {
	if strings.HasPrefix(op, "<") || op == "=" {
		return realSet{}, true
	}
	return g.domain(u, variable)
}

// solvedLogarithm solves log u op c.
func (g inverses) solvedLogarithm(u, base *node, op string, c *node, variable string) (realSet, bool) {
	d, ok := g.direction(base)
	if !ok {
		return nil, false
	}
	if d < 0 {
		op = turned(op)
	}
	return g.solvedAbove(u, ">", op, power(base, c), variable)
}

// solvedRoot solves the n-th root of u op c.
func (g inverses) solvedRoot(u *node, n int64, op string, c *node, variable string) (realSet, bool) {
	if n%2 == 1 {
		return g.solvedPair(u, op, power(c, whole(n)), variable)
	}
	s, ok := g.numbers.Compare(c, whole(0))
	switch {
	case !ok:
		return nil, false
	case s >= 0:
		return g.solvedAbove(u, ">=", op, power(c, whole(n)), variable)
	case strings.HasPrefix(op, "<"), op == "=":
		return realSet{}, true
	}
	return g.solvedPair(u, ">=", whole(0), variable)
}

// solvedAbove solves u op c where u is above 0, or not below it, and so is c.
func (g inverses) solvedAbove(u *node, above, op string, c *node, variable string) (realSet, bool) {
	s, ok := g.solvedPair(u, op, c, variable)
	if !ok || strings.HasPrefix(op, ">") || op == "=" {
		return s, ok
	}
	t, ok := g.solvedPair(u, above, whole(0), variable)
	if !ok {
		return nil, false
	}
	return g.intersected(s, t)
}

// solvedPower solves u^n op c.
func (g inverses) solvedPower(u *node, n int64, op string, c *node, variable string) (realSet, bool) {
	root := &node{Kind: mathexpr.Root, Args: []*node{c, whole(n)}}
	if n == 1 {
		root = c
	}
	if n%2 == 1 {
		return g.solvedPair(u, op, root, variable)
	}
	s, ok := g.numbers.Compare(c, whole(0))
	switch {
	case !ok:
		return nil, false
	case s < 0:
		return g.belowRange(u, op, variable)
	}
	return g.solvedModulus(u, op, root, variable)
}

// domain is where an expression has a real value.
func (g inverses) domain(n *node, variable string) (realSet, bool) {
	if !g.budget.Spend(inverseWork) {
		return nil, false
	}
	if isConstant(n) {
		return everything, true
	}
	parts := n.Args
	var more *node // another condition: it is not 0, or above it
	op := ""
	switch n.Kind {
	case mathexpr.Variable, mathexpr.Sum, mathexpr.Product, mathexpr.Negative:
	case mathexpr.Quotient:
		more, op = n.Args[1], "!="
	case mathexpr.Power, mathexpr.Root:
		d, okBase := 0, false
		if n.Kind == mathexpr.Power && isConstant(n.Args[0]) {
			d, okBase = g.direction(n.Args[0])
		}
		e, root, ok := g.exponent(n.Args[1])
		switch {
		case okBase && d != 0:
		case !ok:
			return nil, false
		case (root || n.Kind == mathexpr.Root) && e%2 == 0:
			more, op = n.Args[0], ">="
		}
	case mathexpr.Function:
		switch {
		case g.baseOf(n) != nil:
			more, op = n.Args[0], ">"
		case !slices.Contains([]string{"abs", "sin", "cos", "arctan", "sinh", "cosh", "tanh"}, n.Name):
			return nil, false
		}
	default:
		return nil, false
	}
	s := everything
	if more != nil {
		var ok bool
		if s, ok = g.solvedPair(more, op, whole(0), variable); !ok {
			return nil, false
		}
	}
	for _, a := range parts {
		t, ok := g.domain(a, variable)
		if !ok {
			return nil, false
		}
		if s, ok = g.intersected(s, t); !ok {
			return nil, false
		}
	}
	return s, true
}
