package mathgrade

import (
	"math/big"
	"slices"

	"agentcli/rewards/mathexpr"
	"agentcli/rewards/mathvalue"
)

// solvedByRoots solves f < 0, f = 0, … for a rational function f of a variable: between its
// roots and poles the function keeps its sign.
func (g realSets) solvedByRoots(f *node, op, variable string) (realSet, bool) {
	roots, sign, ok := g.numbers.Roots(f, variable)
	if !ok {
		return nil, false
	}
	slices.SortFunc(roots, func(a, b mathvalue.Root) int {
		c, known := g.numbers.Compare(a.At, b.At)
		ok = ok && known
		return c
	})
	var places []mathvalue.Root // a root of both the numerator and the denominator once
	for _, r := range roots {
		if n := len(places); n > 0 {
			if c, known := g.numbers.Compare(places[n-1].At, r.At); !known {
				return nil, false
			} else if c == 0 {
				last := &places[n-1]
				last.Odd, last.Pole = last.Odd != r.Odd, last.Pole || r.Pole
				continue
			}
		}
		places = append(places, r)
	}
	if !ok {
		return nil, false
	}
	var s realSet
	high := bound{} // of the interval to the left of what was looked at
	for i := len(places) - 1; i >= -1; i-- {
		low := bound{}
		if i >= 0 {
			low = bound{places[i].At, false}
		}
		if holds(op, sign) {
			s = append(s, interval{low, high})
		}
		if i < 0 {
			break
		}
		if !places[i].Pole && holds(op, 0) {
			s = append(s, interval{bound{low.at, true}, bound{low.at, true}})
		}
		if places[i].Odd {
			sign = -sign
		}
		high = low
	}
	return g.united(s)
}

// holds reports whether a number of that sign is related to 0 so.
func holds(op string, sign int) bool {
	switch op {
	case "<":
		return sign < 0
	case "<=":
		return sign <= 0
	case ">":
		return sign > 0
	case ">=":
		return sign >= 0
	case "=":
		return sign == 0
	case "!=":
		return sign != 0
	}
	return false
}

// isIntegers reports whether a node names the whole numbers or the natural ones.
func isIntegers(n *node) bool {
	if n.Kind != mathexpr.NamedSet {
		return false
	}
	switch setName(n) {
	case "Z", "N", "N+":
		return true
	}
	return false
}

// maxIntegers bounds the whole numbers of one set that are written down.
const maxIntegers = 300

// integersIn are the whole numbers of a named set in a bounded set of reals. Whether 0 is a
// natural number is not known.
func (g realSets) integersIn(s realSet, set string) (realSet, bool) {
	var out realSet
	for _, i := range s {
		if i.low.at == nil || i.high.at == nil {
			return nil, false
		}
		low, okLow := g.numbers.Value(i.low.at)
		high, okHigh := g.numbers.Value(i.high.at)
		if !okLow || !okHigh || new(big.Rat).Sub(high, low).Cmp(big.NewRat(maxIntegers, 1)) > 0 {
			return nil, false
		}
		k := new(big.Int).Div(low.Num(), low.Denom())
		for k.Sub(k, big.NewInt(1)); new(big.Rat).SetInt(k).Cmp(new(big.Rat).Add(high, big.NewRat(1, 1))) <= 0; k.Add(k, big.NewInt(1)) {
			at := &node{Kind: mathexpr.Number, Value: new(big.Rat).SetInt(k)}
			c, okC := g.numbers.Compare(at, i.low.at)
			d, okD := g.numbers.Compare(at, i.high.at)
			switch {
			case !okC || !okD:
				return nil, false
			case c < 0 || c == 0 && !i.low.closed || d > 0 || d == 0 && !i.high.closed:
			case set != "Z" && k.Sign() < 0 || set == "N+" && k.Sign() == 0:
			case set == "N" && k.Sign() == 0:
				return nil, false
			default:
				out = append(out, interval{bound{at, true}, bound{at, true}})
			}
		}
	}
	return out, true
}
