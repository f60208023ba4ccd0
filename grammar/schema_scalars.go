package grammar

import (
	"cmp"
	"math/big"
)

// scalars compiles strings and numbers.
type scalars struct {
	*compilation
	strings map[string]*terminal // by pattern or format
}

// count is the value of a keyword that counts, at most a limit.
func (c *compilation) count(s *value, name string, limit int) int {
	v := s.get(name)
	r, ok := rational(v.text)
	if !ok || !r.IsInt() || r.Sign() < 0 {
		c.fail(v, "%s must be a whole number from 0 on", name)
		return 0
	}
	if r.Cmp(new(big.Rat).SetInt64(int64(limit))) > 0 {
		return limit
	}
	return int(r.Num().Int64())
}

// counts are the tightest bounds of two keywords; most -1: no bound.
func (c *compilation) counts(all []*value, minimum, maximum string, limit int) (least, most int, at *value) {
	most = -1
	for _, s := range all {
		if s.get(minimum) != nil {
			if n := c.count(s, minimum, limit); n > least {
				least, at = n, s
			}
		}
		if s.get(maximum) != nil {
			if n := c.count(s, maximum, limit); most < 0 || n < most {
				most = n
			}
			at = cmp.Or(at, s)
		}
	}
	if at == nil {
		at = c.root
	}
	return least, most, at
}

// number is the numbers that schemas allow.
func (c *scalars) number(all []*value, types typeSet) expr {
	var low, high *bound
	var steps []*value
	fraction := -1
	if types&typeFractional == 0 {
		fraction = 0
	}
	at := c.root
	for _, s := range all {
		at = s
		lows, highs := c.bounds(s)
		low, high = tighter(low, lows, 1), tighter(high, highs, -1)
		if m := s.get("multipleOf"); m != nil {
			steps = append(steps, m)
		}
	}
	if c.err != nil {
		return alternative{}
	}
	var wholes []int
	for _, m := range steps {
		n, places, ok := step(m)
		switch {
		case !ok:
			return c.fail(m, "multipleOf %s is not supported; whole numbers up to %d and 0.1, 0.01, … are", quoted(m.text), maxMultiple)
		case n > 0:
			wholes, fraction = append(wholes, n), 0
		case fraction < 0 || places < fraction:
			fraction = places
		}
	}
	if low == nil && high == nil && fraction < 0 {
		return c.w.number()
	}
	var t *terminal
	var err error
	if low == nil && high == nil && fraction == 0 {
		if t = common().integer; c.w.MaxDigits > 0 {
			t = c.w.compile(integerOf(c.w.MaxDigits))
		}
	} else if t, err = c.w.numberRange(low, high, fraction); err != nil {
		return c.fail(at, "a bound of numbers is not supported: %v", err)
	}
	for _, m := range wholes {
		t = c.w.budget.product(t, c.w.multiples(m), false)
	}
	if t.begin == none {
		return c.never(at, "no number is between its bounds")
	}
	return t
}

// bounds are those of one schema, in the drafts' forms: exclusiveMinimum is a number, or, in
// draft 4, a boolean that says what minimum is.
func (c *scalars) bounds(s *value) (low, high *bound) {
	read := func(inclusive, exclusive string, sign int) *bound {
		var out *bound
		for _, name := range []string{inclusive, exclusive} {
			v := s.get(name)
			if v == nil || v.kind != '0' {
				continue
			}
			r, ok := rational(v.text)
			if !ok {
				c.fail(v, "the number is out of range")
				return nil
			}
			draft4 := s.get(exclusive) != nil && s.get(exclusive).kind == 't'
			out = tighter(out, &bound{r, name == exclusive || draft4}, sign)
		}
		return out
	}
	return read("minimum", "exclusiveMinimum", 1), read("maximum", "exclusiveMaximum", -1)
}

// step reads multipleOf: a whole number n, or 1 of so many decimal places.
func step(m *value) (n, places int, ok bool) {
	r, ok := rational(m.text)
	if !ok || r.Sign() <= 0 {
		return 0, 0, false
	}
	if r.IsInt() {
		n := r.Num()
		return int(n.Int64()), 0, n.IsInt64() && n.Int64() <= maxMultiple
	}
	power := big.NewRat(1, 1)
	for places := 1; places <= 30; places++ {
		if power.Mul(power, big.NewRat(1, 10)); r.Cmp(power) == 0 {
			return 0, places, true
		}
	}
	return 0, 0, false
}

// text is the strings that schemas allow.
func (c *scalars) text(all []*value) expr {
	least, most, at := c.counts(all, "minLength", "maxLength", maxCounted)
	var parts []*terminal
	for _, s := range all {
		if f := s.get("format"); f != nil {
			t := c.format(f)
			if t == nil {
				return alternative{}
			}
			parts = append(parts, t)
		}
		if p := s.get("pattern"); p != nil {
			t := c.pattern(p)
			if t == nil {
				return alternative{}
			}
			parts = append(parts, t)
		}
	}
	if c.err != nil {
		return alternative{}
	}
	if most >= 0 && least > most {
		return c.never(at, "minLength is greater than maxLength")
	}
	if least == 0 && most < 0 && len(parts) == 0 {
		return c.w.spelling.any()
	}
	if most < 0 {
		most = int(none)
	}
	t, ok := c.w.spelling.lengths(c.w.budget, least, most)
	if !ok {
		return c.fail(at, "lengths below %d are supported in this format of calls", maxTable)
	}
	if len(parts) > 0 {
		first := parts[0]
		for _, p := range parts[1:] {
			first = c.w.budget.product(first, p, false)
		}
		if least > 0 || most >= 0 {
			first = c.w.budget.product(first, t, false)
		}
		t = first
	}
	if t.begin == none {
		return c.never(at, "no string meets its pattern, format and length")
	}
	return t
}

// pattern is the JSON strings that have a match of a regular expression.
func (c *scalars) pattern(p *value) *terminal {
	key := "pattern " + p.text
	if t := c.strings[key]; t != nil {
		return t
	}
	tree, err := parseRegexp(p.text, c.w.spelling.runes)
	if err != nil {
		c.fail(p, "pattern: %v", err)
		return nil
	}
	t := c.w.spelling.strings(c.w.budget, tree.search)
	if c.w.budget.exhausted() {
		c.fail(p, "pattern: %v", errTooLarge)
	}
	c.strings[key] = t
	return t
}
