package jinja

import (
	"math"
	"math/big"
	"strings"
)

// equalValues is Python's ==.
func equalValues(r *run, x, y any) bool {
	r.step(1)
	switch a := x.(type) {
	case nil:
		return y == nil
	case undefined:
		_, ok := y.(undefined)
		return ok
	case Str:
		b, ok := y.(Str)
		r.step(min(len(a.s), len(b.s)) / 64)
		return ok && a.s == b.s
	case *List:
		b, ok := y.(*List)
		if !ok || a.kind != b.kind || a.kind == isView || a.kind == isIterator {
			return a == y
		}
		if a == b {
			return true
		}
		if len(a.items) != len(b.items) {
			return false
		}
		defer r.deeper()()
		for i := range a.items {
			if !equalValues(r, a.items[i], b.items[i]) {
				return false
			}
		}
		return true
	case *Dict:
		b, ok := y.(*Dict)
		if !ok || a.Len() != b.Len() {
			return false
		}
		defer r.deeper()()
		for i, k := range a.keys {
			v, ok := b.get(k)
			if !ok || !equalValues(r, a.vals[i], v) {
				return false
			}
		}
		return true
	}
	if isNumber(x) && isNumber(y) {
		return compareNumbers(x, y) == 0
	}
	return x == y
}

// unordered is what compareNumbers gives for a NaN.
const unordered = 2

func compareNumbers(x, y any) int {
	a, xf := x.(float64)
	b, yf := y.(float64)
	switch {
	case !xf && !yf:
		return bigOf(x).Cmp(bigOf(y))
	case xf && math.IsNaN(a), yf && math.IsNaN(b):
		return unordered
	}
	exact := func(v any) *big.Float {
		if f, ok := v.(float64); ok {
			return new(big.Float).SetFloat64(f)
		}
		return new(big.Float).SetInt(bigOf(v))
	}
	return exact(x).Cmp(exact(y))
}

// isOrdered is x op y for <, <=, > and >=.
func isOrdered(r *run, op string, x, y any) bool {
	c := orderOf(r, x, y, op)
	if c == unordered {
		return false
	}
	switch op {
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0
	}
	return c >= 0
}

// orderOf is -1, 0 or 1, or unordered.
func orderOf(r *run, x, y any, op string) int {
	r.step(1)
	r.use(x)
	r.use(y)
	if isNumber(x) && isNumber(y) {
		return compareNumbers(x, y)
	}
	switch a := x.(type) {
	case Str:
		if b, ok := y.(Str); ok {
			r.step(min(len(a.s), len(b.s)) / 64)
			return strings.Compare(a.s, b.s)
		}
	case *List:
		b, ok := y.(*List)
		if !ok || a.kind != b.kind || a.kind > isTuple {
			break
		}
		defer r.deeper()()
		for i := range min(len(a.items), len(b.items)) {
			if !equalValues(r, a.items[i], b.items[i]) {
				return orderOf(r, a.items[i], b.items[i], op)
			}
		}
		return compareNumbers(int64(len(a.items)), int64(len(b.items)))
	}
	r.fail("%s is not supported between %s and %s", op, typeName(x), typeName(y))
	return 0
}

// containsValue is x in set.
func containsValue(r *run, set, x any) bool {
	switch c := set.(type) {
	case Str:
		s, ok := x.(Str)
		if !ok {
			r.fail("in a string only a string is looked for, not a value of type %s", typeName(x))
		}
		r.step(len(c.s) / 64)
		return strings.Contains(c.s, s.s)
	case *Dict:
		if _, ok := hashKey(x); !ok {
			if _, ok := x.(undefined); ok {
				return false
			}
			r.fail("unhashable type: %s", typeName(x))
		}
		_, ok := c.get(x)
		return ok
	}
	for _, v := range r.iterate(set) {
		if equalValues(r, v, x) {
			return true
		}
	}
	return false
}

// signedValue is -x or +x.
func signedValue(r *run, op string, x any) any {
	r.use(x)
	if f, ok := x.(float64); ok {
		if op == "-" {
			return -f
		}
		return f
	}
	if !isInt(x) {
		r.fail("bad operand type for unary %s: %s", op, typeName(x))
	}
	if op == "-" {
		return whole(new(big.Int).Neg(bigOf(x)))
	}
	return whole(bigOf(x))
}

// arithmetic is x op y.
func arithmetic(r *run, op string, x, y any) any {
	r.use(x)
	if a, ok := x.(Str); ok && op == "%" {
		return r.built(percentFormat(r, a, y))
	}
	r.use(y)
	switch {
	case isInt(x) && isInt(y):
		return integerOp(r, op, x, y)
	case isNumber(x) && isNumber(y):
		return floatOp(r, op, floatOf(x), floatOf(y))
	case op == "+":
		if v, ok := joinedValues(r, x, y); ok {
			return v
		}
	case op == "*" && isInt(x):
		if v, ok := repeatedValue(r, y, x); ok {
			return v
		}
	case op == "*" && isInt(y):
		if v, ok := repeatedValue(r, x, y); ok {
			return v
		}
	}
	r.fail("%s is not supported between %s and %s", op, typeName(x), typeName(y))
	return nil
}

// joinedValues is x + y of strings or lists.
func joinedValues(r *run, x, y any) (any, bool) {
	switch a := x.(type) {
	case Str:
		b, ok := y.(Str)
		if !ok {
			return nil, false
		}
		if a.safe != b.safe { // Markup escapes what is added to it
			if a.safe {
				b = escape(b)
			} else {
				a = escape(a)
			}
		}
		var j builder
		j.add(a)
		j.add(b)
		out := j.str()
		out.safe = a.safe || b.safe
		return r.built(out), true
	case *List:
		b, ok := y.(*List)
		if !ok || a.kind != b.kind || a.kind > isTuple {
			return nil, false
		}
		r.charge(bytesPerItem * (len(a.items) + len(b.items)))
		return &List{items: append(append(make([]any, 0, len(a.items)+len(b.items)), a.items...), b.items...), kind: a.kind}, true
	}
	return nil, false
}

// repeatedValue is x * n of a string or a list.
func repeatedValue(r *run, x, times any) (any, bool) {
	n := max(boundOf(r, times), 0)
	switch a := x.(type) {
	case Str:
		r.charge(n)
		if len(a.s) > 0 {
			r.charge(n * len(a.s))
		}
		var b builder
		for range n {
			b.add(a)
		}
		return b.str(), true
	case *List:
		if a.kind > isTuple {
			return nil, false
		}
		r.charge(n)
		r.charge(bytesPerItem * n * len(a.items))
		out := &List{kind: a.kind}
		for range n {
			out.items = append(out.items, a.items...)
		}
		return out, true
	}
	return nil, false
}

// maxBits is the size of a whole number.
const maxBits = 1 << 16

func integerOp(r *run, op string, x, y any) any {
	a, b := bigOf(x), bigOf(y)
	r.step(1 + (a.BitLen()+b.BitLen())/64)
	zero := func() {
		if b.Sign() == 0 {
			r.fail("division by zero")
		}
	}
	out := new(big.Int)
	switch op {
	case "+":
		out.Add(a, b)
	case "-":
		out.Sub(a, b)
	case "*":
		out.Mul(a, b)
	case "/":
		zero()
		q, _ := new(big.Rat).SetFrac(a, b).Float64()
		if math.IsInf(q, 0) {
			r.fail("the result of / is too large for a float")
		}
		return q
	case "//", "%":
		zero()
		// Python rounds down; the rest has the divisor's sign.
		q, m := new(big.Int).QuoRem(a, b, new(big.Int))
		if m.Sign() != 0 && m.Sign() != b.Sign() {
			q.Sub(q, big.NewInt(1))
			m.Add(m, b)
		}
		if out = q; op == "%" {
			out = m
		}
	case "**":
		if b.Sign() < 0 {
			return floatOp(r, op, floatOf(x), floatOf(y))
		}
		if a.BitLen() > 1 && (!b.IsInt64() || b.Int64() > maxBits || int64(a.BitLen())*b.Int64() > maxBits) {
			r.limit("a number of more than %d bits", maxBits)
		}
		if a.BitLen() <= 1 { // 0, 1 or -1, whose power depends on whether b is even
			b = new(big.Int).And(b, big.NewInt(1))
			if bigOf(y).Sign() > 0 && b.Sign() == 0 {
				b = big.NewInt(2)
			}
		}
		out.Exp(a, b, nil)
	}
	if out.BitLen() > maxBits {
		r.limit("a number of more than %d bits", maxBits)
	}
	return whole(out)
}

func floatOp(r *run, op string, a, b float64) any {
	if b == 0 && (op == "/" || op == "//" || op == "%") {
		r.fail("float division by zero")
	}
	switch op {
	case "+":
		return a + b
	case "-":
		return a - b
	case "*":
		return a * b
	case "/":
		return a / b
	case "//":
		return math.Floor(a / b)
	case "%":
		m := math.Mod(a, b)
		if m != 0 && (m < 0) != (b < 0) {
			m += b
		}
		return m
	}
	p := math.Pow(a, b)
	switch {
	case a == 0 && b < 0:
		r.fail("0.0 cannot be raised to a negative power")
	case math.IsInf(p, 0) && !math.IsInf(a, 0) && !math.IsInf(b, 0):
		r.fail("the result of ** is too large for a float")
	case math.IsNaN(p) && !math.IsNaN(a) && !math.IsNaN(b):
		r.fail("the result of ** is no real number")
	}
	return p
}

// escape is Markup's: for HTML.
func escape(s Str) Str {
	if s.safe {
		return s
	}
	for _, p := range [][2]string{{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {`"`, "&#34;"}, {"'", "&#39;"}} {
		if strings.Contains(s.s, p[0]) {
			s = s.replace(p[0], s.like(p[1]), -1)
		}
	}
	s.safe = true
	return s
}
