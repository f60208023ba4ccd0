package mathgrade

import (
	"math/big"
	"slices"
	"strings"

	"agentcli/rewards/mathexpr"
	"agentcli/rewards/mathvalue"
)

// bound is an end of an interval; at is nil for an infinite one.
type bound struct {
	at     *node
	closed bool
}

// interval is a range of real numbers.
type interval struct{ low, high bound }

// realSet is a union of intervals that neither overlap nor touch, in order.
type realSet []interval

var everything = realSet{{}}

// realSets compares sets of real numbers.
type realSets struct{ *grader }

// sameSets compares sets of numbers: intervals, unions, finite sets in them, named
// sets and inequalities of one variable. ok is false where neither side is one.
func (g realSets) sameSets(a, b *node) (v Verdict, ok bool) {
	if !isSetLike(a) && !isSetLike(b) {
		return Wrong, false
	}
	if a.Kind == mathexpr.NamedSet && b.Kind == mathexpr.NamedSet {
		return verdict(setName(a) == setName(b)), true
	}
	if a.Kind == mathexpr.Relation && b.Kind == mathexpr.Relation && variableOf(a) != variableOf(b) {
		return Wrong, false
	}
	x, okX := g.realSet(a, isSetLike(b))
	y, okY := g.realSet(b, isSetLike(a))
	if okX && okY {
		return g.sameRealSets(x, y), true
	}
	a, b = unwrapped(a), unwrapped(b)
	if !isSetLike(a) && !isSetLike(b) && a.Kind != mathexpr.Relation && b.Kind != mathexpr.Relation { // x ∈ {1, 2}
		return g.same(a, b), true
	}
	switch {
	case a.Kind == mathexpr.Relation || b.Kind == mathexpr.Relation:
		return Wrong, false
	case a.Kind == mathexpr.SetBuilder && b.Kind == mathexpr.SetBuilder:
		return g.sameBuilders(a, b), true
	case a.Kind == b.Kind && (a.Kind == mathexpr.Union || a.Kind == mathexpr.Intersection):
		return collections(g).unordered(a.Args, b.Args, true), true
	case a.Kind == b.Kind && a.Kind == mathexpr.Difference:
		return collections(g).inOrder(a.Args, b.Args), true
	case a.Kind == mathexpr.Union || b.Kind == mathexpr.Union:
		if a.Kind == mathexpr.List || b.Kind == mathexpr.List {
			return collections(g).unordered(a.Args, b.Args, true), true
		}
	}
	if g.budget.Left() < 0 || a.Kind == mathexpr.SetBuilder || b.Kind == mathexpr.SetBuilder { // conditions that are not solved
		return Undecided, true
	}
	return Wrong, true
}

// isSetLike reports whether a node can only be a set of numbers.
func isSetLike(n *node) bool {
	switch n.Kind {
	case mathexpr.Union, mathexpr.Intersection, mathexpr.Difference, mathexpr.NamedSet, mathexpr.SetBuilder:
		return true
	case mathexpr.Relation:
		if len(n.Names) == 1 && (n.Names[0] == "in" || n.Names[0] == "notin") {
			return n.Args[0].Kind == mathexpr.Variable
		}
		return variableOf(n) != ""
	case mathexpr.Tuple: // an interval with an infinite or half-open end
		return len(n.Args) == 2 && n.Open != '<' && (infinity(n.Args[0]) < 0 || infinity(n.Args[1]) > 0 || (n.Open == '(') != (n.Close == ')'))
	case mathexpr.List: // x < 1 or x > 2
		return len(n.Args) > 1 && !slices.ContainsFunc(n.Args, func(a *node) bool {
			return a.Kind != mathexpr.Relation && a.Kind != mathexpr.Tuple || !isSetLike(a)
		})
	}
	return false
}

// unwrapped drops the variable of x ∈ S.
func unwrapped(n *node) *node {
	if n.Kind == mathexpr.Relation && len(n.Names) == 1 && n.Names[0] == "in" && n.Args[0].Kind == mathexpr.Variable {
		return n.Args[1]
	}
	return n
}

// setName is one name for each named set.
func setName(n *node) string {
	switch n.Name {
	case "Z+":
		return "N+"
	case "N*":
		return "N+"
	}
	return n.Name
}

// variableOf is the variable that a chain of inequalities is about; "" where it is
// not about one.
func variableOf(n *node) string {
	if n.Kind != mathexpr.Relation || len(n.Args) != len(n.Names)+1 {
		return ""
	}
	if len(n.Names) == 1 && n.Names[0] == "in" && n.Args[0].Kind == mathexpr.Variable {
		return n.Args[0].Name
	}
	for _, op := range n.Names {
		if !strings.Contains("<=>=!=", op) || op == "=" {
			return ""
		}
	}
	if names := mathvalue.Variables(n.Args...); len(names) == 1 {
		return names[0]
	}
	return ""
}

// realSet is the set of reals that a node stands for. Tuples are intervals where the
// other side is a set.
func (g realSets) realSet(n *node, tuples bool) (realSet, bool) {
	if g.depth++; g.depth > maxDepth || !g.budget.Spend(500) {
		return nil, false
	}
	defer func() { g.depth-- }()
	switch n.Kind {
	case mathexpr.NamedSet:
		zero := &node{Kind: mathexpr.Number, Value: new(big.Rat)}
		switch n.Name {
		case "R":
			return everything, true
		case "R+":
			return realSet{{low: bound{zero, false}}}, true
		case "R0+":
			return realSet{{low: bound{zero, true}}}, true
		case "R-":
			return realSet{{high: bound{zero, false}}}, true
		case "R*":
			return realSet{{high: bound{zero, false}}, {low: bound{zero, false}}}, true
		case "empty":
			return realSet{}, true
		}
		return nil, false
	case mathexpr.Tuple:
		if !tuples && !isSetLike(n) || len(n.Args) != 2 || n.Open == '<' {
			return nil, false
		}
		i := interval{bound{n.Args[0], n.Open == '['}, bound{n.Args[1], n.Close == ']'}}
		if infinity(n.Args[0]) < 0 {
			i.low = bound{}
		}
		if infinity(n.Args[1]) > 0 {
			i.high = bound{}
		}
		if infinity(n.Args[0]) > 0 || infinity(n.Args[1]) < 0 {
			return nil, false
		}
		return g.united(realSet{i})
	case mathexpr.Set:
		var s realSet
		for _, a := range n.Args {
			s = append(s, interval{bound{a, true}, bound{a, true}})
		}
		return g.united(s)
	case mathexpr.Union, mathexpr.List:
		var s realSet
		for _, a := range n.Args {
			t, ok := g.realSet(a, true)
			if !ok {
				return nil, false
			}
			s = append(s, t...)
		}
		if n.Kind == mathexpr.List {
			if !sameVariable(n.Args) {
				return nil, false
			}
			return g.joined(n, s)
		}
		return g.united(s)
	case mathexpr.Intersection:
		for i, part := range n.Args {
			if isIntegers(part) && len(n.Args) == 2 {
				t, ok := g.realSet(n.Args[1-i], true)
				if !ok {
					return nil, false
				}
				return g.integersIn(t, setName(part))
			}
		}
		return g.two(n, g.intersected)
	case mathexpr.Difference:
		return g.two(n, func(s, t realSet) (realSet, bool) {
			rest, ok := g.complement(t)
			if !ok {
				return nil, false
			}
			return g.intersected(s, rest)
		})
	case mathexpr.SetBuilder:
		return g.built(n)
	case mathexpr.Relation:
		if len(n.Names) == 1 && n.Names[0] == "in" && n.Args[0].Kind == mathexpr.Variable {
			return g.realSet(n.Args[1], true)
		}
		if v := variableOf(n); v != "" {
			return g.solved(n, v)
		}
	}
	return nil, false
}

// joined is the set of a list of inequalities; s are the sets of all of them. "and" intersects
// them, "or" unites them. A comma does what says something: x > 0, x < 5 is both, since one of
// the two holds for every number.
func (g realSets) joined(n *node, s realSet) (realSet, bool) {
	union, ok := g.united(s)
	inequalities := n.Args[0].Kind == mathexpr.Relation && n.Args[0].Names[0] != "in"
	if !ok || !inequalities || n.Name == "or" || n.Name == "" && !(len(union) == 1 && union[0] == interval{}) {
		return union, ok
	}
	both := everything
	for _, a := range n.Args {
		t, ok := g.realSet(a, true)
		if !ok {
			return nil, false
		}
		if both, ok = g.intersected(both, t); !ok {
			return nil, false
		}
	}
	if len(both) == 0 && n.Name == "and" { // x < 0 and x > 1 lists two parts
		return union, true
	}
	return both, true
}

// sameVariable reports whether a list of inequalities, joined by or, is about one variable.
func sameVariable(list []*node) bool {
	for _, n := range list[1:] {
		if (n.Kind == mathexpr.Relation) != (list[0].Kind == mathexpr.Relation) || variableOf(n) != variableOf(list[0]) {
			return false
		}
	}
	return true
}

func (g realSets) two(n *node, f func(s, t realSet) (realSet, bool)) (realSet, bool) {
	s, ok := g.realSet(n.Args[0], true)
	t, okT := g.realSet(n.Args[1], true)
	if !ok || !okT {
		return nil, false
	}
	return f(s, t)
}

// built is the set of a set-builder of one variable: its conditions all hold.
func (g realSets) built(n *node) (realSet, bool) {
	head := n.Args[0]
	s := everything
	integers := ""
	if head.Kind == mathexpr.Relation && len(head.Names) == 1 && head.Names[0] == "in" { // x ∈ ℝ
		if base := head.Args[1]; isIntegers(base) {
			integers = setName(base)
		} else if t, ok := g.realSet(base, true); ok {
			s = t
		} else {
			return nil, false
		}
		head = head.Args[0]
	}
	if head.Kind != mathexpr.Variable {
		return nil, false
	}
	var either realSet
	for _, c := range n.Args[1:] {
		if c.Kind != mathexpr.Relation || variableOf(c) != head.Name && !isEquation(c, head.Name) {
			return nil, false
		}
		t, ok := g.condition(c, head.Name)
		if !ok {
			return nil, false
		}
		if n.Name == "or" {
			either = append(either, t...)
		} else if s, ok = g.intersected(s, t); !ok {
			return nil, false
		}
	}
	if n.Name == "or" {
		t, ok := g.united(either)
		if !ok {
			return nil, false
		}
		if s, ok = g.intersected(s, t); !ok {
			return nil, false
		}
	}
	if integers != "" {
		return g.integersIn(s, integers)
	}
	return s, true
}

// condition is the set of a condition on a variable.
func (g realSets) condition(c *node, variable string) (realSet, bool) {
	if isEquation(c, variable) {
		return g.solved(c, variable)
	}
	return g.realSet(c, true)
}

// isEquation reports whether a chain of equations is about one variable.
func isEquation(n *node, variable string) bool {
	names := mathvalue.Variables(n.Args...)
	return len(n.Args) == len(n.Names)+1 && equalities(n) && len(names) == 1 && names[0] == variable
}

// sameBuilders compares set-builders that are no sets of reals, by their parts.
func (g realSets) sameBuilders(a, b *node) Verdict {
	if len(a.Args) != len(b.Args) {
		return Wrong
	}
	if g.same(a.Args[0], b.Args[0]) != Right {
		return Undecided // perhaps another name of the variable
	}
	if v := (collections(g)).unordered(a.Args[1:], b.Args[1:], true); v == Right {
		return Right
	}
	return Undecided
}

// solved is the set of the solutions of a chain of inequalities and equations.
func (g realSets) solved(n *node, variable string) (realSet, bool) {
	s := everything
	for i, op := range n.Names {
		t, ok := g.solvedPair(n.Args[i], op, n.Args[i+1], variable)
		if !ok {
			return nil, false
		}
		if s, ok = g.intersected(s, t); !ok {
			return nil, false
		}
	}
	return s, true
}

func (g realSets) solvedPair(left *node, op string, right *node, variable string) (realSet, bool) {
	if right.Kind == mathexpr.Variable && right.Name == variable {
		left, right, op = right, left, turned(op)
	}
	if left.Kind == mathexpr.Function && left.Name == "abs" && len(left.Args) == 1 && len(mathvalue.Variables(right)) == 0 {
		return g.solvedModulus(left.Args[0], op, right, variable)
	}
	at := right
	if left.Kind != mathexpr.Variable || len(mathvalue.Variables(right)) > 0 {
		slope, offset, ok := g.numbers.Linear(minus(left, right), variable)
		if !ok {
			if s, ok := g.solvedByRoots(minus(left, right), op, variable); ok {
				return s, true
			}
			return inverses{g}.undone(left, op, right, variable)
		}
		if slope.Sign() == 0 {
			return nil, false
		}
		at = &node{Kind: mathexpr.Number, Value: new(big.Rat).Neg(new(big.Rat).Quo(offset, slope))}
		if slope.Sign() < 0 {
			op = turned(op)
		}
	}
	if infinity(at) != 0 {
		return everything, infinity(at) > 0 == strings.HasPrefix(op, "<")
	}
	switch op {
	case "<", "<=":
		return realSet{{high: bound{at, op == "<="}}}, true
	case ">", ">=":
		return realSet{{low: bound{at, op == ">="}}}, true
	case "!=":
		return realSet{{high: bound{at, false}}, {low: bound{at, false}}}, true
	case "=":
		return realSet{{bound{at, true}, bound{at, true}}}, true
	}
	return nil, false
}

// solvedModulus solves |x| < a.
func (g realSets) solvedModulus(inner *node, op string, right *node, variable string) (realSet, bool) {
	opposite := negative(right)
	switch op {
	case "=", "!=":
		sign, ok := g.numbers.Compare(right, whole(0))
		if !ok {
			return nil, false
		}
		if sign < 0 {
			return inverses{g}.belowRange(inner, op, variable)
		}
		s, ok := g.solvedPair(inner, op, right, variable)
		t, okT := g.solvedPair(inner, op, opposite, variable)
		if !ok || !okT {
			return nil, false
		}
		if op == "!=" {
			return g.intersected(s, t)
		}
		return g.united(append(slices.Clone(s), t...))
	case "<", "<=":
		s, ok := g.solvedPair(inner, op, right, variable)
		t, okT := g.solvedPair(inner, turned(op), opposite, variable)
		if !ok || !okT {
			return nil, false
		}
		return g.intersected(s, t)
	case ">", ">=":
		s, ok := g.solvedPair(inner, op, right, variable)
		t, okT := g.solvedPair(inner, turned(op), opposite, variable)
		if !ok || !okT {
			return nil, false
		}
		return g.united(append(slices.Clone(s), t...))
	}
	return nil, false
}

// order compares two ends: low ends with side -1, high ends with side 1. An open low
// end lies above a closed one at the same place, an open high end below.
func (g realSets) order(a bound, sideA int, b bound, sideB int) (int, bool) {
	switch {
	case a.at == nil && b.at == nil:
		return sideA - sideB, true
	case a.at == nil:
		return sideA, true
	case b.at == nil:
		return -sideB, true
	}
	if c, ok := g.numbers.Compare(a.at, b.at); !ok || c != 0 {
		return c, ok
	}
	shift := func(x bound, side int) int { // just below, at, or just above the place
		if x.closed {
			return 0
		}
		return -side
	}
	return shift(a, sideA) - shift(b, sideB), true
}

// united sorts intervals and joins those that overlap or touch; empty ones go.
func (g realSets) united(s realSet) (realSet, bool) {
	if len(s) > 500 {
		return nil, false
	}
	ok := true
	s = slices.DeleteFunc(slices.Clone(s), func(i interval) bool {
		c, known := g.order(i.low, -1, i.high, 1)
		ok = ok && known
		return c > 0
	})
	slices.SortStableFunc(s, func(a, b interval) int {
		c, known := g.order(a.low, -1, b.low, -1)
		ok = ok && known
		return c
	})
	var out realSet
	for _, i := range s {
		if !ok {
			return nil, false
		}
		if n := len(out); n > 0 {
			c, known := g.order(i.low, -1, out[n-1].high, 1)
			ok = ok && known
			touch := c <= 0
			if c > 0 && i.low.at != nil && out[n-1].high.at != nil && (i.low.closed || out[n-1].high.closed) {
				d, known := g.numbers.Compare(i.low.at, out[n-1].high.at)
				ok = ok && known
				touch = d == 0 // [1,2) and [2,3]
			}
			if touch {
				c, known := g.order(i.high, 1, out[n-1].high, 1)
				if ok = ok && known; c > 0 {
					out[n-1].high = i.high
				}
				continue
			}
		}
		out = append(out, i)
	}
	return out, ok
}

func (g realSets) intersected(s, t realSet) (realSet, bool) {
	if len(s)*len(t) > 2000 {
		return nil, false
	}
	var out realSet
	for _, a := range s {
		for _, b := range t {
			i := a
			if c, ok := g.order(b.low, -1, a.low, -1); !ok {
				return nil, false
			} else if c > 0 {
				i.low = b.low
			}
			if c, ok := g.order(b.high, 1, a.high, 1); !ok {
				return nil, false
			} else if c < 0 {
				i.high = b.high
			}
			out = append(out, i)
		}
	}
	return g.united(out)
}

func (g realSets) complement(s realSet) (realSet, bool) {
	out := everything
	for _, i := range s {
		var rest realSet
		if i.low.at != nil {
			rest = append(rest, interval{high: bound{i.low.at, !i.low.closed}})
		}
		if i.high.at != nil {
			rest = append(rest, interval{low: bound{i.high.at, !i.high.closed}})
		}
		var ok bool
		if out, ok = g.intersected(out, rest); !ok {
			return nil, false
		}
	}
	return out, true
}

func (g realSets) sameRealSets(s, t realSet) Verdict {
	if len(s) != len(t) {
		return Wrong
	}
	for i := range s {
		for _, pair := range [...][2]bound{{s[i].low, t[i].low}, {s[i].high, t[i].high}} {
			a, b := pair[0], pair[1]
			if (a.at == nil) != (b.at == nil) || a.at != nil && a.closed != b.closed {
				return Wrong
			}
			if a.at == nil {
				continue
			}
			if v := g.sameScalars(a.at, b.at); v != Right {
				return v
			}
		}
	}
	return Right
}
