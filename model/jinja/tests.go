package jinja

import (
	"math/big"
	"strings"
)

type test func(r *run, v any, a args) bool

// tests are those of Jinja's environment.
var tests map[string]test

func init() {
	compare := func(op string) test {
		return func(r *run, v any, a args) bool { return isOrdered(r, op, v, needArg(r, a, 0, "")) }
	}
	equal := func(r *run, v any, a args) bool { return equalValues(r, v, needArg(r, a, 0, "")) }
	unequal := func(r *run, v any, a args) bool { return !equalValues(r, v, needArg(r, a, 0, "")) }
	divides := func(r *run, v any, by any) bool { return equalValues(r, arithmetic(r, "%", v, by), int64(0)) }
	tests = map[string]test{
		"defined":   func(_ *run, v any, _ args) bool { _, u := v.(undefined); return !u },
		"undefined": func(_ *run, v any, _ args) bool { _, u := v.(undefined); return u },
		"none":      func(_ *run, v any, _ args) bool { return v == nil },
		"boolean":   func(_ *run, v any, _ args) bool { _, ok := v.(bool); return ok },
		"true":      func(_ *run, v any, _ args) bool { return v == true },
		"false":     func(_ *run, v any, _ args) bool { return v == false },
		"integer": func(_ *run, v any, _ args) bool {
			switch v.(type) {
			case int64, *big.Int:
				return true
			}
			return false
		},
		"float":       func(_ *run, v any, _ args) bool { _, ok := v.(float64); return ok },
		"number":      func(_ *run, v any, _ args) bool { return isNumber(v) },
		"string":      func(_ *run, v any, _ args) bool { _, ok := v.(Str); return ok },
		"mapping":     func(_ *run, v any, _ args) bool { _, ok := v.(*Dict); return ok },
		"sequence":    isSequence,
		"iterable":    isIterable,
		"callable":    func(_ *run, v any, _ args) bool { _, ok := v.(*function); return ok },
		"escaped":     func(_ *run, v any, _ args) bool { s, ok := v.(Str); return ok && s.safe },
		"lower":       func(r *run, v any, _ args) bool { return strMethods["islower"](r, textOf(r, v), args{}) == true },
		"upper":       func(r *run, v any, _ args) bool { return strMethods["isupper"](r, textOf(r, v), args{}) == true },
		"even":        func(r *run, v any, _ args) bool { return divides(r, v, int64(2)) },
		"odd":         func(r *run, v any, _ args) bool { return equalValues(r, arithmetic(r, "%", v, int64(2)), int64(1)) },
		"divisibleby": func(r *run, v any, a args) bool { return divides(r, v, needArg(r, a, 0, "num")) },
		"sameas":      func(r *run, v any, a args) bool { return same(r, v, needArg(r, a, 0, "other")) },
		"in":          func(r *run, v any, a args) bool { return containsValue(r, needArg(r, a, 0, "seq"), v) },
		"filter":      func(r *run, v any, _ args) bool { return filters[textOf(r, v).s] != nil },
		"test":        func(r *run, v any, _ args) bool { return tests[textOf(r, v).s] != nil },
		"eq":          equal, "==": equal, "equalto": equal,
		"ne": unequal, "!=": unequal,
		"lt": compare("<"), "<": compare("<"), "lessthan": compare("<"),
		"le": compare("<="), "<=": compare("<="),
		"gt": compare(">"), ">": compare(">"), "greaterthan": compare(">"),
		"ge": compare(">="), ">=": compare(">="),
	}
}

// isSequence: it has a length and elements. Undefined has both by Python's names.
func isSequence(_ *run, v any, _ args) bool {
	switch v := v.(type) {
	case undefined, Str, *Dict:
		return true
	case *List:
		return v.kind != isView && v.kind != isIterator
	}
	return false
}

func isIterable(_ *run, v any, _ args) bool {
	switch v.(type) {
	case undefined, Str, *Dict, *List, *loop:
		return true
	}
	return false
}

// same is Python's is, as far as values have an identity.
func same(r *run, x, y any) bool {
	switch x.(type) {
	case *List, *Dict, *namespace, *function, *loop:
		return x == y
	}
	return typeName(x) == typeName(y) && equalValues(r, x, y)
}

// globals are what every template sees.
func globals() *scope {
	g := newScope(nil)
	def := func(name string, f func(r *run, a args) any) { g.vars[name] = &function{name, f} }
	def("raise_exception", func(r *run, a args) any {
		panic(&Error{ErrRaised, r.line, textOf(r, needArg(r, a, 0, "message")).s})
	})
	def("strftime_now", func(r *run, a args) any {
		format := needTextArg(r, a, 0, "format")
		r.charge(16 * len(format.s))
		return Text(strftime(r.now(), format.s))
	})
	def("range", rangeOf)
	def("dict", func(r *run, a args) any { return makeDict(r, a) })
	def("namespace", func(r *run, a args) any {
		d := makeDict(r, a)
		for _, k := range d.keys {
			if s, ok := k.(Str); ok && strings.HasPrefix(s.s, "_") {
				r.fail("the attribute %q of a namespace begins with an underscore", s.s)
			}
		}
		return &namespace{d}
	})
	return g
}

// makeDict is Python's dict(…).
func makeDict(r *run, a args) *Dict {
	noMoreThan(r, args{pos: a.pos}, 1)
	out := NewDict()
	if len(a.pos) == 1 {
		if d, ok := a.pos[0].(*Dict); ok {
			r.charge(2 * bytesPerItem * d.Len())
			out = d.copy()
		} else {
			for _, v := range r.iterate(a.pos[0]) {
				pair := r.iterate(v)
				if len(pair) != 2 || !out.put(pair[0], pair[1]) {
					r.fail("a dict is made of pairs")
				}
				r.charge(2 * bytesPerItem)
			}
		}
	}
	if a.kw != nil {
		for i, k := range a.kw.keys {
			out.put(k, a.kw.vals[i])
		}
	}
	return out
}

// maxRange is the sandbox's MAX_RANGE.
const maxRange = 100_000

func rangeOf(r *run, a args) any {
	if len(a.pos) < 1 || len(a.pos) > 3 {
		r.fail("range takes one to three arguments")
	}
	n := make([]int, len(a.pos))
	for i, v := range a.pos {
		n[i] = boundOf(r, r.use(v))
	}
	from, to, step := 0, n[0], 1
	if len(n) > 1 {
		from, to = n[0], n[1]
	}
	if len(n) > 2 {
		step = n[2]
	}
	if step == 0 {
		r.fail("the step of range is zero")
	}
	out := &List{kind: isRange}
	for i := from; step > 0 && i < to || step < 0 && i > to; i += step {
		if len(out.items) == maxRange {
			r.limit("a range of more than %d numbers", maxRange)
		}
		out.items = append(out.items, int64(i))
	}
	r.charge(bytesPerItem * len(out.items))
	return out
}
