package grammar

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// maxExponent bounds the exponents of numbers in a schema: beyond, they have no float64.
const maxExponent = 400

// rational is a number of JSON exactly; false: its exponent is out of bounds.
func rational(text string) (*big.Rat, bool) {
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		if e, err := strconv.Atoi(text[i+1:]); err != nil || e < -maxExponent || e > maxExponent {
			return nil, false
		}
	}
	if len(text) > 2*maxExponent {
		return nil, false
	}
	return new(big.Rat).SetString(text)
}

// bound is one end of a range.
type bound struct {
	at   *big.Rat
	open bool // the end itself is not in the range
}

// tighter is the one of two lower bounds (sign 1) or upper bounds (sign -1) that excludes more.
func tighter(a, b *bound, sign int) *bound {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	switch c := a.at.Cmp(b.at) * sign; {
	case c > 0, c == 0 && a.open:
		return a
	}
	return b
}

// numberRange are the numbers between two bounds (nil: none), without exponents. fraction is
// the largest number of digits behind the point: 0 for integers, -1 for any. -0 is not written.
func (w *writer) numberRange(low, high *bound, fraction int) (*terminal, error) {
	zero := &bound{at: new(big.Rat)}
	var parts []*pattern
	// The numbers from 0 on.
	if high == nil || high.at.Sign() > 0 || high.at.Sign() == 0 && !high.open {
		t, err := w.magnitudes(tighter(low, zero, 1), high, fraction)
		if err != nil {
			return nil, err
		}
		parts = append(parts, dfaOf(t))
	}
	// The numbers below 0: their magnitudes are between the negated bounds.
	if low == nil || low.at.Sign() < 0 {
		least := &bound{at: new(big.Rat), open: true}
		if high != nil && high.at.Sign() <= 0 {
			least = tighter(least, &bound{new(big.Rat).Neg(high.at), high.open}, 1)
		}
		var most *bound
		if low != nil {
			most = &bound{new(big.Rat).Neg(low.at), low.open}
		}
		t, err := w.magnitudes(least, most, fraction)
		if err != nil {
			return nil, err
		}
		parts = append(parts, seqOf(textOf("-"), dfaOf(t)))
	}
	return w.compile(altOf(parts...)), nil
}

// magnitudes are the numbers without a sign from low, which is at least 0, to high.
func (w *writer) magnitudes(low, high *bound, fraction int) (*terminal, error) {
	whole := wholeOf(w.MaxDigits)
	p := whole
	switch {
	case fraction < 0:
		p = seqOf(whole, optionOf(seqOf(textOf("."), digits(1, w.MaxDigits))))
	case fraction > 0:
		p = seqOf(whole, optionOf(seqOf(textOf("."), digits(1, fraction))))
	}
	t := w.compile(p)
	if low != nil && (low.at.Sign() > 0 || low.open) {
		q, err := atLeast(low)
		if err != nil {
			return nil, err
		}
		t = w.budget.product(t, w.compile(q), false)
	}
	if high != nil {
		q, err := atMost(high)
		if err != nil {
			return nil, err
		}
		t = w.budget.product(t, w.compile(q), false)
	}
	return t, nil
}

// decimals are the digits of a number that is not negative, before and behind the point.
func decimals(r *big.Rat) (whole, fraction string, err error) {
	n, exact := r.FloatPrec()
	if !exact || n > maxExponent {
		return "", "", fmt.Errorf("%s has no finite decimal form", r)
	}
	whole, fraction, _ = strings.Cut(r.FloatString(n), ".")
	return whole, strings.TrimRight(fraction, "0"), nil
}

// anyFraction are digits behind a point, or nothing.
func anyFraction() *pattern { return optionOf(seqOf(textOf("."), digits(1, 0))) }

// atLeast are texts of digits, without zeros in front, of a bound and above it.
func atLeast(low *bound) (*pattern, error) {
	whole, fraction, err := decimals(low.at)
	if err != nil {
		return nil, err
	}
	p := altOf()
	p.subs = append(p.subs, seqOf(bytesOf('1', '9'), repeatOf(bytesOf('0', '9'), len(whole), -1), anyFraction())) // more digits
	for i := range len(whole) {
		if whole[i] < '9' {
			p.subs = append(p.subs, seqOf(textOf(whole[:i]), bytesOf(whole[i]+1, '9'),
				repeatOf(bytesOf('0', '9'), len(whole)-i-1, len(whole)-i-1), anyFraction()))
		}
	}
	same := seqOf(textOf(whole), textOf("."))
	for i := range len(fraction) {
		if fraction[i] < '9' {
			p.subs = append(p.subs, seqOf(same, textOf(fraction[:i]), bytesOf(fraction[i]+1, '9'), digits(0, 0)))
		}
	}
	more := digits(0, 0)
	if low.open {
		more = seqOf(digits(0, 0), bytesOf('1', '9'), digits(0, 0))
	}
	p.subs = append(p.subs, seqOf(same, textOf(fraction), more))
	if fraction == "" && !low.open {
		p.subs = append(p.subs, textOf(whole))
	}
	return p, nil
}

// atMost are texts of digits, without zeros in front, of a bound and below it.
func atMost(high *bound) (*pattern, error) {
	if high.at.Sign() < 0 {
		return altOf(), nil
	}
	whole, fraction, err := decimals(high.at)
	if err != nil {
		return nil, err
	}
	p := altOf()
	if len(whole) > 1 {
		p.subs = append(p.subs, seqOf(repeatOf(bytesOf('0', '9'), 1, len(whole)-1), anyFraction())) // fewer digits
	}
	for i := range len(whole) {
		if whole[i] > '0' {
			p.subs = append(p.subs, seqOf(textOf(whole[:i]), bytesOf('0', whole[i]-1),
				repeatOf(bytesOf('0', '9'), len(whole)-i-1, len(whole)-i-1), anyFraction()))
		}
	}
	same := seqOf(textOf(whole), textOf("."))
	for i := range len(fraction) {
		if fraction[i] > '0' {
			p.subs = append(p.subs, seqOf(same, textOf(fraction[:i]), bytesOf('0', fraction[i]-1), digits(0, 0)))
		}
		if i > 0 {
			p.subs = append(p.subs, seqOf(same, textOf(fraction[:i]))) // the digits that are left out are not all 0
		}
	}
	if fraction != "" {
		p.subs = append(p.subs, textOf(whole))
	}
	if !high.open {
		p.subs = append(p.subs, textOf(whole), seqOf(same, textOf(fraction), starOf(textOf("0"))))
	}
	return p, nil
}

// maxMultiple is the largest multipleOf of integers: its automaton has a state for each remainder.
const maxMultiple = 2000

// multiples are integers that m divides, and any text of digits besides: what no product with
// an automaton of integers keeps.
func (w *writer) multiples(m int) *terminal {
	t := &terminal{width: 12, begin: int32(m)}
	for c := range 256 {
		t.class[c] = 11
		switch {
		case c >= '0' && c <= '9':
			t.class[c] = uint8(c - '0')
		case c == '-':
			t.class[c] = 10
		}
	}
	for q := range m + 1 { // m: nothing is written
		for d := range 10 {
			t.next = append(t.next, int32((q%m*10+d)%m))
		}
		sign := none
		if q == m {
			sign = int32(m)
		}
		t.next = append(t.next, sign, none)
		t.accept = append(t.accept, q == 0)
	}
	w.budget.spend(m, 12*m)
	return t.trim()
}
