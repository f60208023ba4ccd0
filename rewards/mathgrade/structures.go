package mathgrade

import (
	"math/big"
	"slices"
	"strings"

	"agentcli/rewards/mathexpr"
	"agentcli/rewards/mathvalue"
)

type node = mathexpr.Node

// special compares what is no formula: dates, times, letters of choices.
func (g *grader) special(gold, answer *reading) (v Verdict, decided bool) {
	if strings.HasSuffix(gold.moment, orFraction) && strings.HasSuffix(answer.moment, orFraction) { // two fractions, perhaps
		return Wrong, false
	}
	if gold.moment != "" && answer.moment != "" && (!strings.HasSuffix(gold.moment, "?") || !strings.HasSuffix(answer.moment, "?") ||
		gold.node != nil && answer.node != nil) {
		return verdict(sameMoment(gold.moment, answer.moment)), true
	}
	if gold.choice != 0 && answer.choice != 0 && (gold.rest == "" || answer.rest == "") {
		return verdict(gold.choice == answer.choice), true
	}
	// (B) 12 is 12, too.
	for _, pair := range [...][2]*reading{{gold, answer}, {answer, gold}} {
		if labelled, other := pair[0], pair[1]; labelled.choice != 0 && labelled.rest != "" && other.choice == 0 && g.depth == 0 {
			g.depth++
			rest := read(labelled.rest, g.o)
			if g.equal(rest, other) == Right {
				return Right, true
			}
			g.depth--
		}
	}
	return Wrong, false
}

func verdict(equal bool) Verdict {
	if equal {
		return Right
	}
	return Wrong
}

// maxDepth bounds structures within structures.
const maxDepth = 100

// same compares two trees, structure by structure.
func (g *grader) same(a, b *node) Verdict {
	if g.depth++; g.depth > maxDepth || !g.budget.Spend(200) {
		return Undecided
	}
	defer func() { g.depth-- }()
	if identical(a, b) && !undefined(a) {
		return Right
	}
	if hasSigns(a) || hasSigns(b) {
		x, okX := expandSigns(a)
		y, okY := expandSigns(b)
		if !okX || !okY {
			return Undecided
		}
		return g.same(x, y)
	}
	a, b = hoisted(a), hoisted(b)
	if g.o.Profile == MathVerify {
		if v, ok := (mathVerify{g}).asMathVerify(a, b); ok {
			return v
		}
	}
	if a.Kind == mathexpr.Quantity || b.Kind == mathexpr.Quantity {
		return g.sameQuantities(a, b)
	}
	if a.Kind == mathexpr.Percent || b.Kind == mathexpr.Percent {
		return g.samePercents(a, b)
	}
	if a.Kind == mathexpr.Degrees || b.Kind == mathexpr.Degrees {
		return g.sameAngles(a, b)
	}
	if v, ok := (realSets{g}).sameSets(a, b); ok {
		return v
	}
	if a.Kind == mathexpr.Relation || b.Kind == mathexpr.Relation {
		return relations{g}.sameRelations(a, b)
	}
	if isCollection(a) || isCollection(b) {
		return collections{g}.sameCollections(a, b)
	}
	if v, ok := (collections{g}).sameMatrices(a, b); ok {
		return v
	}
	if a.Kind == mathexpr.Text || b.Kind == mathexpr.Text {
		return verdict(a.Kind == b.Kind && wordsOf(a.Name) == wordsOf(b.Name))
	}
	if isNumeral(a) && isNumeral(b) && identical(a.Args[1], b.Args[1]) { // one base: the digits decide
		return g.sameScalars(a.Args[0], b.Args[0])
	}
	if a.Kind == mathexpr.Ratio && b.Kind == mathexpr.Ratio {
		return g.sameRatios(a, b)
	}
	if x, y := infinity(a), infinity(b); x != 0 || y != 0 {
		return verdict(x == y)
	}
	if isPiecewise(a) && isPiecewise(b) {
		return realSets{g}.samePiecewise(a, b)
	}
	if v, ok := g.sameAntiderivatives(a, b); ok {
		return v
	}
	return g.sameScalars(a, b)
}

// hoisted takes the unit out of a negative quantity, percentage or angle: -(5°) is (-5)°. It
// gives each item of a list of congruences its modulus.
func hoisted(n *node) *node {
	if n.Kind == mathexpr.List {
		return congruences(n)
	}
	if n.Kind != mathexpr.Negative {
		return n
	}
	switch inner := n.Args[0]; inner.Kind {
	case mathexpr.Quantity, mathexpr.Percent, mathexpr.Degrees:
		out := *inner
		out.Args = []*node{{Kind: mathexpr.Negative, Args: inner.Args}}
		return &out
	}
	return n
}

// sameScalars compares numbers and functions.
func (g *grader) sameScalars(a, b *node) Verdict {
	if g.o.Rounding > 0 {
		x, okX := g.numbers.Value(a)
		y, okY := g.numbers.Value(b)
		if okX && okY {
			return verdict(x.FloatString(g.o.Rounding) == y.FloatString(g.o.Rounding))
		}
	}
	if a.Kind == mathexpr.Number && b.Kind == mathexpr.Number && g.o.Tolerance == 0 {
		return verdict(a.Value.Cmp(b.Value) == 0)
	}
	switch g.numbers.Equal(a, b) {
	case mathvalue.Equal:
		return Right
	case mathvalue.Unequal:
		// 3m and 5g are products, unless the letter is a unit behind the number.
		if v, ok := g.withoutLetter(a, b); ok {
			return v
		}
		return Wrong
	}
	return Undecided
}

// withoutLetter compares 5m with 5: the letter of a unit behind a number.
func (g *grader) withoutLetter(a, b *node) (Verdict, bool) {
	bare := func(n *node) (*node, bool) {
		if n.Kind == mathexpr.Product && len(n.Args) == 2 && n.Args[0].Kind == mathexpr.Number && n.Args[1].Kind == mathexpr.Variable &&
			len(n.Args[1].Name) == 1 && strings.Contains("mgshLlNJWVAKCF", n.Args[1].Name) {
			return n.Args[0], true
		}
		return n, false
	}
	x, isX := bare(a)
	y, isY := bare(b)
	if isX == isY || isX && y.Kind != mathexpr.Number || isY && x.Kind != mathexpr.Number {
		return Wrong, false
	}
	return verdict(x.Value.Cmp(y.Value) == 0), true
}

// sameQuantities compares values with units: units of one dimension are converted,
// a unit that only one side has or that is not known is dropped.
func (g *grader) sameQuantities(a, b *node) Verdict {
	if a.Kind == mathexpr.Quantity && b.Kind == mathexpr.Quantity {
		u, v := mathexpr.UnitOf(a.Name), mathexpr.UnitOf(b.Name)
		if u.Dimension != "" && v.Dimension != "" {
			if u.Dimension != v.Dimension {
				return Wrong
			}
			if u.Factor.Cmp(v.Factor) != 0 {
				return g.sameScalars(a, b)
			}
			return g.same(a.Args[0], b.Args[0])
		}
		return g.same(withoutUnit(a), withoutUnit(b))
	}
	if hasQuantity(a) && hasQuantity(b) { // 7 hours 30 minutes
		return g.sameScalars(a, b)
	}
	if a.Kind != mathexpr.Quantity {
		a, b = b, a
	}
	v := g.same(withoutUnit(a), b)
	if v == Wrong && withoutUnit(a) != a.Args[0] {
		return g.same(a.Args[0], b) // 2 million, where the question asks for millions
	}
	return v
}

// withoutUnit is the number of a quantity: 2 million people is 2,000,000.
func withoutUnit(n *node) *node {
	scale, _ := mathexpr.Scale(n.Name)
	if scale.Cmp(big.NewRat(1, 1)) == 0 {
		return n.Args[0]
	}
	return product(n.Args[0], &node{Kind: mathexpr.Number, Value: scale})
}

func hasQuantity(n *node) bool {
	return n != nil && (n.Kind == mathexpr.Quantity || slices.ContainsFunc(n.Args, hasQuantity))
}

var hundred = &node{Kind: mathexpr.Number, Value: big.NewRat(100, 1), Places: -1}

// samePercents compares percentages: 50% is written as 50 and as 0.5.
func (g *grader) samePercents(a, b *node) Verdict {
	if a.Kind == b.Kind {
		return g.same(a.Args[0], b.Args[0])
	}
	if b.Kind == mathexpr.Percent {
		a, b = b, a
	}
	v := g.same(a.Args[0], b)
	if v == Wrong && !isStructure(b) {
		return g.same(&node{Kind: mathexpr.Quotient, Args: []*node{a.Args[0], hundred}}, b)
	}
	return v
}

// sameAngles compares degrees: 90° is written as 90 and as π/2.
func (g *grader) sameAngles(a, b *node) Verdict {
	if a.Kind == b.Kind {
		return g.same(a.Args[0], b.Args[0])
	}
	if b.Kind == mathexpr.Degrees {
		a, b = b, a
	}
	v := g.same(a.Args[0], b)
	if v == Wrong && !isStructure(b) {
		return g.sameScalars(a, b)
	}
	return v
}

// isStructure reports whether a node is more than one number or function.
func isStructure(n *node) bool {
	switch n.Kind {
	case mathexpr.Tuple, mathexpr.Set, mathexpr.SetBuilder, mathexpr.NamedSet, mathexpr.Union, mathexpr.Intersection, mathexpr.Difference,
		mathexpr.Relation, mathexpr.List, mathexpr.Text:
		return true
	case mathexpr.Matrix:
		return n.Name != "det"
	}
	return false
}

// sameRatios compares 3:4 with 6:8.
func (g *grader) sameRatios(a, b *node) Verdict {
	if len(a.Args) != len(b.Args) {
		return Wrong
	}
	out := Right
	for i := 1; i < len(a.Args); i++ {
		v := g.sameScalars(product(a.Args[0], b.Args[i]), product(b.Args[0], a.Args[i]))
		if v == Wrong {
			return Wrong
		}
		if v == Undecided {
			out = Undecided
		}
	}
	return out
}

// isNumeral reports whether a node is digits with a base.
func isNumeral(n *node) bool { return n.Kind == mathexpr.Application && n.Name == "base" }

func product(a, b *node) *node { return &node{Kind: mathexpr.Product, Args: []*node{a, b}} }
func minus(a, b *node) *node {
	return &node{Kind: mathexpr.Sum, Args: []*node{a, {Kind: mathexpr.Negative, Args: []*node{b}}}}
}

// infinity is 1 for ∞, -1 for -∞, 0 for what is finite or not known.
func infinity(n *node) int {
	switch {
	case n.Kind == mathexpr.Constant && n.Name == "inf":
		return 1
	case n.Kind == mathexpr.Negative:
		return -infinity(n.Args[0])
	}
	return 0
}

// undefined reports whether a division by a numeral zero is in a formula.
func undefined(n *node) bool {
	if n == nil {
		return false
	}
	if n.Kind == mathexpr.Quotient && n.Args[1].Is(0) {
		return true
	}
	return slices.ContainsFunc(n.Args, undefined)
}

// identical reports whether two trees are the same.
func identical(a, b *node) bool {
	if a == nil || b == nil {
		return a == b
	}
	if a.Kind != b.Kind || a.Name != b.Name || len(a.Args) != len(b.Args) || a.Open != b.Open || a.Close != b.Close ||
		a.Columns != b.Columns ||
		!slices.Equal(a.Names, b.Names) {
		return false
	}
	if a.Kind == mathexpr.Number && a.Value.Cmp(b.Value) != 0 {
		return false
	}
	return slices.EqualFunc(a.Args, b.Args, identical)
}

func hasSigns(n *node) bool {
	if n == nil {
		return false
	}
	return n.Kind == mathexpr.PlusMinus || n.Kind == mathexpr.MinusPlus || slices.ContainsFunc(n.Args, hasSigns)
}

// maxSigns bounds the signs ± of one answer: each doubles it.
const maxSigns = 4

// expandSigns writes each item with ± as its values: a ± b as a+b, a-b.
func expandSigns(n *node) (*node, bool) {
	if !hasSigns(n) {
		return n, true
	}
	switch n.Kind {
	case mathexpr.List, mathexpr.Set:
		out := *n
		out.Args = nil
		for _, a := range n.Args {
			e, ok := expandSigns(a)
			if !ok || len(out.Args) > 2000 {
				return nil, false
			}
			if e.Kind == mathexpr.List {
				out.Args = append(out.Args, e.Args...)
			} else {
				out.Args = append(out.Args, e)
			}
		}
		return &out, true
	}
	signs, linked := countSigns(n)
	if signs > maxSigns {
		return nil, false
	}
	if linked {
		signs = 1
	}
	list := &node{Kind: mathexpr.List}
	for choice := range 1 << signs {
		k := 0
		list.Args = append(list.Args, withSigns(n, choice, linked, &k))
	}
	return list, true
}

// countSigns counts ± and ∓; linked tells that there is a ∓, so that all upper signs
// belong together.
func countSigns(n *node) (count int, linked bool) {
	if n == nil {
		return 0, false
	}
	if n.Kind == mathexpr.PlusMinus || n.Kind == mathexpr.MinusPlus {
		count++
		linked = n.Kind == mathexpr.MinusPlus
	}
	for _, a := range n.Args {
		c, l := countSigns(a)
		count, linked = count+c, linked || l
	}
	return count, linked
}

func withSigns(n *node, choice int, linked bool, k *int) *node {
	if !hasSigns(n) {
		return n
	}
	out := *n
	negative := false
	if n.Kind == mathexpr.PlusMinus || n.Kind == mathexpr.MinusPlus {
		negative = choice>>*k&1 == 1
		if linked {
			negative = choice&1 == 1
		} else {
			*k++
		}
		negative = negative != (n.Kind == mathexpr.MinusPlus)
	}
	out.Args = make([]*node, len(n.Args))
	for i, a := range n.Args {
		out.Args[i] = withSigns(a, choice, linked, k)
	}
	switch {
	case n.Kind != mathexpr.PlusMinus && n.Kind != mathexpr.MinusPlus:
		return &out
	case negative:
		return &node{Kind: mathexpr.Negative, Args: out.Args}
	}
	return out.Args[0]
}
