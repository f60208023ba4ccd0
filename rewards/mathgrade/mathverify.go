package mathgrade

import (
	"slices"

	"agentcli/rewards/mathexpr"
)

// mathVerifyPlaces are the decimals that Math-Verify rounds to where a decimal is
// compared (verify's float_rounding).
const mathVerifyPlaces = 6

// mathVerify has the rules of the profile math-verify.
type mathVerify struct{ *grader }

// asMathVerify compares what Math-Verify 0.9 compares by a rule of its own, with a the
// gold answer; ok is false where the rules are the usual ones. The profile is not
// symmetric: Math-Verify says so of itself.
func (g mathVerify) asMathVerify(a, b *node) (v Verdict, ok bool) {
	switch {
	case a.Kind == mathexpr.Quantity: // units go before anything is read
		return g.same(a.Args[0], b), true
	case b.Kind == mathexpr.Quantity:
		return g.same(a, b.Args[0]), true
	case a.Kind == mathexpr.Degrees:
		return g.same(a.Args[0], b), true
	case b.Kind == mathexpr.Degrees:
		return g.same(a, b.Args[0]), true
	case a.Kind == mathexpr.Percent || b.Kind == mathexpr.Percent:
		return g.mathVerifyPercents(a, b), true
	case a.Kind == mathexpr.Ratio && len(a.Args) > 2, isNumeral(a) != isNumeral(b) && !isBaseTen(a) && !isBaseTen(b),
		a.Kind == mathexpr.Modulo, b.Kind == mathexpr.Modulo:
		return Wrong, true
	case isNumeral(a) && isNumeral(b): // a subscript is a part of a name
		return Right, identical(a.Args[0], b.Args[0])
	}
	if v, ok := g.mathVerifyRelations(a, b); ok {
		return v, true
	}
	if a.Kind == mathexpr.Matrix && b.Kind == mathexpr.Tuple || b.Kind == mathexpr.Matrix && a.Kind == mathexpr.Tuple {
		return Wrong, true
	}
	if isDecimal(a) || isDecimal(b) {
		x, okX := g.numbers.Value(a)
		y, okY := g.numbers.Value(b)
		if okX && okY {
			if !isDecimal(a) && x.IsInt() || !isDecimal(b) && y.IsInt() { // sympy rounds no whole number
				return verdict(x.Cmp(y) == 0), true
			}
			return verdict(x.FloatString(mathVerifyPlaces) == y.FloatString(mathVerifyPlaces)), true
		}
	}
	return Wrong, false
}

func isBaseTen(n *node) bool { return isNumeral(n) && n.Args[1].Is(10) }

// isDecimal reports whether a node is a number that was written with a point.
func isDecimal(n *node) bool {
	if n.Kind == mathexpr.Negative || n.Kind == mathexpr.Percent {
		n = n.Args[0]
	}
	return n.Kind == mathexpr.Number && n.Places > 0
}

// onlyVariables reports whether a formula has variables and operators only.
func onlyVariables(n *node) bool {
	if n == nil { // a limit of an integral that has none
		return false
	}
	return n.Kind == mathexpr.Variable || len(n.Args) > 0 && !slices.ContainsFunc(n.Args, func(a *node) bool { return !onlyVariables(a) })
}

// mathVerifyPercents compares percentages: of whole numbers the sign % does not count,
// else it divides by 100.
func (g mathVerify) mathVerifyPercents(a, b *node) Verdict {
	inner := func(n *node) *node {
		if n.Kind == mathexpr.Percent {
			return n.Args[0]
		}
		return n
	}
	p, okP := g.numbers.Rational(inner(a))
	q, okQ := g.numbers.Rational(inner(b))
	if okP && okQ && p.IsInt() && q.IsInt() && !isDecimal(inner(a)) && !isDecimal(inner(b)) {
		return verdict(p.Cmp(q) == 0)
	}
	x, okX := g.numbers.Value(a)
	y, okY := g.numbers.Value(b)
	if okX && okY {
		return verdict(x.FloatString(mathVerifyPlaces) == y.FloatString(mathVerifyPlaces))
	}
	return g.sameScalars(a, b)
}

// mathVerifyRelations: an equation as the answer counts as its right side where the
// gold answer is none, and an inequality as the answer is no set.
func (g mathVerify) mathVerifyRelations(a, b *node) (Verdict, bool) {
	if b.Kind == mathexpr.Relation && a.Kind != mathexpr.Relation {
		if equalities(b) && len(b.Args) == len(b.Names)+1 {
			return g.same(a, b.Args[len(b.Args)-1]), true
		}
		if b.Names[0] != "in" && isSetLike(b) {
			return Wrong, true
		}
	}
	if a.Kind == mathexpr.Relation && b.Kind != mathexpr.Relation && equalities(a) && len(a.Args) == len(a.Names)+1 && !isSetLike(b) &&
		onlyVariables(a.Args[0]) {
		return g.same(a.Args[len(a.Args)-1], b), true // x + y = 5 gives x + y a value
	}
	if a.Kind == mathexpr.Relation && b.Kind == mathexpr.Relation && len(a.Names) == 1 && len(b.Names) == 1 {
		if (a.Names[0] == "in") != (b.Names[0] == "in") {
			return Wrong, true
		}
		if a.Names[0] == "=" && (a.Args[0].Kind == mathexpr.Application) != (b.Args[0].Kind == mathexpr.Application) {
			return Wrong, true
		}
	}
	return Wrong, false
}
