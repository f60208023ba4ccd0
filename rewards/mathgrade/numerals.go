package mathgrade

import (
	"math/big"
	"regexp"
	"strconv"
	"strings"

	"agentcli/rewards/mathexpr"
)

// numerals are digits of a base above ten: 2A_{16}, \text{1F}_{16}.
var numerals = regexp.MustCompile(`^\(?(?:\\(?:text|mathrm|textrm)\{)?([0-9A-Za-z]{2,64})\}?\)?_\{?(1[1-9]|2[0-9]|3[0-6])\}?$`)

// numeralOf reads digits of a base above ten, of which one at least is a letter and one is
// none: A_{16} is a variable. FF_{16}, without digits of ten, is read in base 16 alone. nil: the
// text is none.
func numeralOf(s string) *node {
	if len(s) > 100 || strings.IndexByte(s, '_') < 0 {
		return nil
	}
	m := numerals.FindStringSubmatch(s)
	if m == nil || strings.Trim(m[1], "0123456789") == "" {
		return nil
	}
	if !strings.ContainsAny(m[1], "0123456789") && (m[2] != "16" || m[1] != strings.ToUpper(m[1])) {
		return nil
	}
	base, err := strconv.Atoi(m[2])
	if err != nil {
		return nil
	}
	v, ok := new(big.Int).SetString(m[1], base)
	if !ok {
		return nil
	}
	return &node{Kind: mathexpr.Number, Value: new(big.Rat).SetInt(v)}
}

// equalAsNumerals compares answers as numerals with letters. decided is false where neither
// is one, or where one may be a product: 2A_{16}.
func equalAsNumerals(g *grader, gold, answer *reading) (v Verdict, decided bool) {
	a, b := numeralOf(gold.text), numeralOf(answer.text)
	switch {
	case a != nil && b != nil:
		return g.same(a, b), true
	case a != nil && answer.node != nil:
		b = answer.node
	case b != nil && gold.node != nil:
		a = gold.node
	default:
		return Wrong, false
	}
	v = g.same(a, b)
	return v, v == Right
}
