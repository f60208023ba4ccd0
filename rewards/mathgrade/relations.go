package mathgrade

import (
	"slices"
	"strings"

	"agentcli/rewards/mathexpr"
	"agentcli/rewards/mathvalue"
)

// isAssignment reports whether a relation gives something a value: x = 5, f(x) = x²,
// AB = 5, 2 + 3 = 5, x ≈ 5.
func isAssignment(n *node) bool {
	if len(n.Args) != len(n.Names)+1 {
		return false
	}
	for _, op := range n.Names {
		if op != "=" && op != "approx" {
			return false
		}
	}
	for _, a := range n.Args[:len(n.Args)-1] {
		if isName(a) {
			return true
		}
	}
	// 10/2 = 5: the left side says nothing of its own.
	return len(mathvalue.Variables(n.Args[0])) == 0 && len(mathvalue.Variables(n.Args[len(n.Args)-1])) == 0
}

// isName reports whether a node names a quantity: a variable, f(x), AB, |AB|.
func isName(n *node) bool {
	switch n.Kind {
	case mathexpr.Variable, mathexpr.Application, mathexpr.Text:
		return true
	case mathexpr.Repeated: // ∫ 2x dx = x² + C
		return isIndefinite(n)
	case mathexpr.Function:
		return len(n.Args) == 1 && n.Name == "abs" && isName(n.Args[0]) && n.Args[0].Kind == mathexpr.Product
	case mathexpr.Tuple, mathexpr.Matrix: // (x, y) = (1, 2)
		return !slices.ContainsFunc(n.Args, func(a *node) bool { return a.Kind != mathexpr.Variable })
	case mathexpr.Product:
		return !slices.ContainsFunc(n.Args, func(a *node) bool {
			return a.Kind != mathexpr.Variable || len(a.Name) != 1 || a.Name[0] > 'Z'
		})
	}
	return false
}

// relations compares equations and inequalities.
type relations struct{ *grader }

// sameRelations compares relations with one another and with what they say: x = 5
// with 5.
func (g relations) sameRelations(a, b *node) Verdict {
	if a.Kind != mathexpr.Relation {
		a, b = b, a
	}
	if b.Kind != mathexpr.Relation {
		switch {
		case isAssignment(a):
			return g.same(a.Args[len(a.Args)-1], b)
		case len(a.Names) == 1 && a.Names[0] == "=" && isName(a.Args[1]): // 5 = x
			return g.same(a.Args[0], b)
		case len(a.Names) == 1 && a.Names[0] == "in":
			return g.same(a.Args[1], b)
		case len(a.Names) == 1 && a.Names[0] == "equiv" && len(a.Args) == 3: // x ≡ 3 (mod 5)
			return g.same(a.Args[1], b)
		case b.Kind == mathexpr.List && len(b.Args) == 1:
			return g.same(a, b.Args[0])
		}
		return Wrong
	}
	if v, ok := g.sameCongruences(a, b); ok {
		return v
	}
	if len(a.Names) == 1 && len(b.Names) == 1 {
		return g.samePairs(a, b)
	}
	// Chains: the last of a = b = c is what it says.
	if equalities(a) && equalities(b) {
		if isAssignment(a) && isAssignment(b) {
			if v := g.same(a.Args[0], b.Args[0]); v == Right || isName(a.Args[0]) != isName(b.Args[0]) {
				return g.same(a.Args[len(a.Args)-1], b.Args[len(b.Args)-1])
			}
		}
		return collections(g).unordered(a.Args, b.Args, true)
	}
	x, y := oriented(a), oriented(b)
	if slices.Equal(x.Names, y.Names) {
		return collections(g).inOrder(x.Args, y.Args)
	}
	return Wrong
}

func equalities(n *node) bool {
	return !slices.ContainsFunc(n.Names, func(op string) bool { return op != "=" })
}

// oriented turns a chain so that it goes up: 5 > x ≥ 2 is 2 ≤ x < 5.
func oriented(n *node) *node {
	if !strings.HasPrefix(n.Names[0], ">") {
		return n
	}
	out := *n
	out.Args, out.Names = slices.Clone(n.Args), nil
	slices.Reverse(out.Args)
	for i := len(n.Names) - 1; i >= 0; i-- {
		out.Names = append(out.Names, turned(n.Names[i]))
	}
	return &out
}

func turned(op string) string {
	switch op {
	case "<":
		return ">"
	case "<=":
		return ">="
	case ">":
		return "<"
	case ">=":
		return "<="
	}
	return op
}

// samePairs compares relations of two sides up to swapping and scaling.
func (g relations) samePairs(a, b *node) Verdict {
	op, other := a.Names[0], b.Names[0]
	if direct := g.sideBySide(a, b); direct != Wrong {
		return direct
	}
	switch op {
	case "=", "!=":
		if op != other {
			return Wrong
		}
		if right, ok := g.definition(a, b); ok && op == "=" {
			return g.same(a.Args[1], right)
		}
		// f(x) = x² and y = x² are one answer.
		if op == "=" && isAssignment(a) && isAssignment(b) && a.Args[0].Kind != b.Args[0].Kind && isName(a.Args[0]) && isName(b.Args[0]) &&
			(a.Args[0].Kind == mathexpr.Application || b.Args[0].Kind == mathexpr.Application) {
			return g.same(a.Args[1], b.Args[1])
		}
		if structured(a) || structured(b) {
			return Wrong
		}
		_, v := g.numbers.Proportional(minus(a.Args[0], a.Args[1]), minus(b.Args[0], b.Args[1]), true)
		return fromNumbers(v)
	case "<", "<=", ">", ">=":
		if structured(a) || structured(b) {
			return Wrong
		}
		x, y := oriented(a), oriented(b)
		strict := x.Names[0] == "<"
		if y.Names[0] != "<" && y.Names[0] != "<=" || strict != (y.Names[0] == "<") {
			return Wrong
		}
		s, v := g.numbers.Proportional(minus(x.Args[0], x.Args[1]), minus(y.Args[0], y.Args[1]), false)
		if v == mathvalue.Equal && s < 0 {
			return Wrong
		}
		return fromNumbers(v)
	}
	return Wrong
}

// definition is the right side of the definition of a function, in the variable in which
// another has the same function: f(t) = t² is f(x) = x².
func (g relations) definition(a, b *node) (right *node, ok bool) {
	l, r := a.Args[0], b.Args[0]
	if l.Kind != mathexpr.Application || r.Kind != mathexpr.Application || l.Name != r.Name || len(l.Args) != len(r.Args) {
		return nil, false
	}
	if g.same(l, r) == Right {
		return b.Args[1], true
	}
	if len(l.Args) != 1 || l.Args[0].Kind != mathexpr.Variable || r.Args[0].Kind != mathexpr.Variable {
		return nil, false
	}
	x, t := l.Args[0], r.Args[0].Name
	if names := mathvalue.Variables(b.Args[1]); slices.Contains(names, x.Name) || slices.Contains(mathvalue.Variables(a.Args[1]), t) {
		return nil, false // one is the other's parameter
	}
	return mathvalue.Replaced(b.Args[1], t, x), true
}

func structured(n *node) bool { return slices.ContainsFunc(n.Args, isStructure) }

func fromNumbers(v mathvalue.Verdict) Verdict {
	return map[mathvalue.Verdict]Verdict{mathvalue.Equal: Right, mathvalue.Unequal: Wrong, mathvalue.Unknown: Undecided}[v]
}

// sideBySide compares the sides as they stand, and swapped.
func (g relations) sideBySide(a, b *node) Verdict {
	try := func(x, y *node) Verdict {
		if v := g.same(a.Args[0], x); v != Right {
			return v
		}
		return g.same(a.Args[1], y)
	}
	if a.Names[0] == b.Names[0] || a.Names[0] == "approx" && b.Names[0] == "=" || a.Names[0] == "=" && b.Names[0] == "approx" {
		if v := try(b.Args[0], b.Args[1]); v == Right {
			return v
		}
	}
	if turned(a.Names[0]) == b.Names[0] && !slices.Contains([]string{"in", "sub", "sup", "->", "notin"}, b.Names[0]) {
		if v := try(b.Args[1], b.Args[0]); v == Right {
			return v
		}
	}
	return Wrong
}

// congruences are x ≡ 1 (mod 5) and x ≡ 4 (mod 5) for the list x ≡ 1, 4 (mod 5), and the list
// where it is none of congruences.
func congruences(n *node) *node {
	last := len(n.Args) - 1
	if last < 1 || n.Args[last].Kind != mathexpr.Modulo {
		return n
	}
	first, modulus := n.Args[0], n.Args[last].Args[1]
	if first.Kind != mathexpr.Relation || len(first.Names) != 1 || first.Names[0] != "equiv" || len(first.Args) != 2 {
		return n
	}
	out := *n
	out.Args = make([]*node, len(n.Args))
	for i, value := range n.Args {
		switch i {
		case 0:
			value = first.Args[1]
		case last:
			value = value.Args[0]
		}
		out.Args[i] = &node{Kind: mathexpr.Relation, Names: first.Names, Args: []*node{first.Args[0], value, modulus}}
	}
	return &out
}

// sameCongruences compares x ≡ 3 (mod 5) with x ≡ 8 (mod 5).
func (g relations) sameCongruences(a, b *node) (Verdict, bool) {
	if len(a.Args) != 3 || len(b.Args) != 3 || len(a.Names) != 1 || len(b.Names) != 1 {
		return Wrong, len(a.Args) != len(a.Names)+1 || len(b.Args) != len(b.Names)+1
	}
	m, ok := g.numbers.Rational(a.Args[2])
	n, okN := g.numbers.Rational(b.Args[2])
	if !ok || !okN || m.Sign() == 0 {
		return collections(g).inOrder(a.Args, b.Args), true
	}
	if m.Cmp(n) != 0 {
		return Wrong, true
	}
	congruent := func(x, y *node) bool {
		q, ok := g.numbers.Rational(&node{Kind: mathexpr.Quotient, Args: []*node{minus(x, y), a.Args[2]}})
		return ok && q.IsInt()
	}
	for _, side := range [...]int{0, 1} { // x ≡ 3 and 3 ≡ x
		if g.same(a.Args[0], b.Args[side]) == Right && congruent(a.Args[1], b.Args[1-side]) {
			return Right, true
		}
	}
	return Wrong, true
}
