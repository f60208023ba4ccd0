package mathgrade

import "agentcli/rewards/mathexpr"

// isPiecewise reports whether a node is a function by cases: rows of a value and a condition.
func isPiecewise(n *node) bool {
	return n.Kind == mathexpr.Application && n.Name == "cases" && n.Columns == 2 && len(n.Args) <= 40
}

// samePiecewise compares functions by cases: their rows, in any order. Conditions on one
// variable are sets; "otherwise" is what the others leave.
func (g realSets) samePiecewise(a, b *node) Verdict {
	if len(a.Args) != len(b.Args) {
		return Undecided // one may divide what the other has in one row
	}
	x, okX := g.conditions(a)
	y, okY := g.conditions(b)
	used := make([]bool, len(b.Args)/2)
	out := Right
	for i := 0; i < len(a.Args); i += 2 {
		found := 0
		for ; found < len(used); found++ {
			if used[found] {
				continue
			}
			if okX && okY && g.sameRealSets(x[i/2], y[found]) == Right || g.same(a.Args[i+1], b.Args[2*found+1]) == Right {
				break
			}
		}
		if found == len(used) {
			return Undecided
		}
		used[found] = true
		switch g.same(a.Args[i], b.Args[2*found]) {
		case Wrong:
			if out = Wrong; !okX || !okY {
				return Undecided
			}
		case Undecided:
			return Undecided
		}
	}
	return out
}

// conditions are the sets of the rows' conditions; ok is false where they are no sets of
// one variable.
func (g realSets) conditions(n *node) (sets []realSet, ok bool) {
	var all realSet
	otherwise, variable := -1, ""
	for i := 1; i < len(n.Args); i += 2 {
		c := n.Args[i]
		if c.Kind == mathexpr.Text && (c.Name == "otherwise" || c.Name == "else") && otherwise < 0 {
			otherwise, sets = i/2, append(sets, nil)
			continue
		}
		v := variableOf(c)
		if v == "" || variable != "" && v != variable {
			return nil, false
		}
		s, ok := g.realSet(c, true)
		if !ok {
			return nil, false
		}
		variable, sets, all = v, append(sets, s), append(all, s...)
	}
	if otherwise >= 0 {
		if all, ok = g.united(all); !ok {
			return nil, false
		}
		if sets[otherwise], ok = g.complement(all); !ok {
			return nil, false
		}
	}
	return sets, true
}
