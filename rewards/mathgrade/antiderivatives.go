package mathgrade

import (
	"slices"
	"strings"

	"agentcli/rewards/mathexpr"
	"agentcli/rewards/mathvalue"
)

// sameAntiderivatives compares formulas of which both have a constant of integration, + C:
// they may differ by a constant. An integral without limits has one, too. ok is false where
// the usual comparison decides.
//
// C is one only where it stands alone in a sum with a function of variables in lower case:
// A + B + C may be angles.
func (g *grader) sameAntiderivatives(a, b *node) (v Verdict, ok bool) {
	if g.o.Profile == MathVerify {
		return Wrong, false
	}
	f, c := withoutConstant(a)
	h, d := withoutConstant(b)
	if f == nil || h == nil || !strings.HasPrefix(c, "C") && !strings.HasPrefix(d, "C") {
		return Wrong, false
	}
	names := mathvalue.Variables(f, h)
	if len(names) == 0 || slices.ContainsFunc(names, func(s string) bool { return s[0] < 'a' }) {
		return Wrong, false
	}
	if g.sameScalars(f, h) == Right {
		return Right, true
	}
	return fromNumbers(g.numbers.Constant(minus(f, h))), true
}

// integral is the name of the constant that an integral without limits has.
const integral = "integral"

// withoutConstant is a sum without its constant of integration, and the constant's name; nil
// where it has none.
func withoutConstant(n *node) (rest *node, constant string) {
	if isIndefinite(n) {
		return n, integral
	}
	if n.Kind != mathexpr.Sum {
		return nil, ""
	}
	at := slices.IndexFunc(n.Args, func(t *node) bool {
		if t.Kind == mathexpr.Negative {
			t = t.Args[0]
		}
		return t.Kind == mathexpr.Variable && isConstantName(t.Name)
	})
	if at < 0 {
		if slices.ContainsFunc(n.Args, isIndefinite) {
			return n, integral
		}
		return nil, ""
	}
	constant = mathvalue.Variables(n.Args[at])[0]
	out := *n
	out.Args = slices.Delete(slices.Clone(n.Args), at, at+1)
	if len(out.Args) == 1 {
		return out.Args[0], constant
	}
	return &out, constant
}

func isConstantName(s string) bool {
	return s == "C" || s == "c" || s == "K" || s == "k" || strings.HasPrefix(s, "C_")
}

// isIndefinite reports whether a node is an integral without limits.
func isIndefinite(n *node) bool {
	return n.Kind == mathexpr.Repeated && n.Name == "int" && n.Args[1] == nil
}
