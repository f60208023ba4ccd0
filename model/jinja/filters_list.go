package jinja

import (
	"slices"
	"strconv"
	"strings"
)

// madeList charges for a list that a filter builds; kind is isIterator where Jinja's
// filter is a generator.
func madeList(r *run, kind listKind, items []any) any {
	r.charge(bytesPerItem * (1 + len(items)))
	return &List{items: items, kind: kind}
}

// getterOf reads an attribute "a.b.0" of each item.
func getterOf(r *run, attribute any, def any) func(any) any {
	if attribute == nil {
		return func(v any) any { return v }
	}
	var path []any
	if s, ok := attribute.(Str); ok {
		for _, p := range s.split(".", -1) {
			if i, err := strconv.ParseInt(p.s, 10, 64); err == nil && i >= 0 {
				path = append(path, i)
			} else {
				path = append(path, p)
			}
		}
	} else {
		path = []any{attribute}
	}
	return func(v any) any {
		for _, p := range path {
			r.step(1)
			v = r.item(v, p)
			if _, missing := v.(undefined); missing && def != nil {
				return def
			}
		}
		return v
	}
}

// folded is a string in lower case, anything else as it is.
func folded(v any) any {
	if s, ok := v.(Str); ok {
		return s.like(strings.ToLower(s.s))
	}
	return v
}

// sortKeyOf reads an attribute, and folds it unless case counts.
func sortKeyOf(r *run, a args, attribute, sensitive int) func(any) any {
	by, _ := a.arg(attribute, "attribute")
	cased, _ := a.arg(sensitive, "case_sensitive")
	get := getterOf(r, by, nil)
	if truth(cased) {
		return get
	}
	return func(v any) any { return folded(get(v)) }
}

func first(r *run, v any, _ args) any {
	if l, ok := v.(*List); ok && l.kind == isIterator && len(l.items) > 0 {
		out := l.items[0]
		l.items = l.items[1:]
		return out
	}
	if s, ok := v.(Str); ok && s.s != "" {
		return r.item(s, int64(0))
	}
	if items := r.iterate(v); len(items) > 0 {
		return items[0]
	}
	return undefined{"there is no first item, the sequence was empty"}
}

func last(r *run, v any, _ args) any {
	if s, ok := v.(Str); ok && s.s != "" {
		return r.item(s, int64(-1))
	}
	if l, ok := v.(*List); ok && l.kind == isIterator {
		r.fail("a generator has no last item")
	}
	if items := r.iterate(v); len(items) > 0 {
		return items[len(items)-1]
	}
	return undefined{"there is no last item, the sequence was empty"}
}

func listFilter(r *run, v any, _ args) any { return madeList(r, isList, slices.Clone(r.iterate(v))) }

func itemsFilter(r *run, v any, _ args) any {
	if _, missing := v.(undefined); missing {
		return madeList(r, isIterator, nil)
	}
	d, ok := v.(*Dict)
	if !ok {
		r.fail("only a mapping has items, not a value of type %s", typeName(v))
	}
	var out []any
	for i, k := range d.keys {
		out = append(out, tuple(k, d.vals[i]))
	}
	r.charge(2 * bytesPerItem * len(out))
	return madeList(r, isIterator, out)
}

func joinFilter(r *run, v any, a args) any {
	sep := Str{}
	if d, ok := a.arg(0, "d"); ok {
		sep = textOf(r, d)
	}
	by, _ := a.arg(1, "attribute")
	get := getterOf(r, by, nil)
	return joinTexts(r, sep, r.iterate(v), func(x any) Str { r.step(1); return textOf(r, get(x)) })
}

func reverse(r *run, v any, _ args) any {
	if s, ok := v.(Str); ok {
		return sliceOf(r, s, [3]any{nil, nil, int64(-1)})
	}
	if l, ok := v.(*List); ok && l.kind == isIterator {
		v = madeList(r, isList, r.iterate(l))
	}
	items := slices.Clone(r.iterate(v))
	slices.Reverse(items)
	return madeList(r, isIterator, items)
}

func sortFilter(r *run, v any, a args) any {
	items := slices.Clone(r.iterate(v))
	r.charge(2 * bytesPerItem * len(items))
	down, _ := a.arg(0, "reverse")
	by, _ := a.arg(2, "attribute")
	cased, _ := a.arg(1, "case_sensitive")
	var gets []func(any) any
	if s, ok := by.(Str); ok {
		for _, part := range s.split(",", -1) {
			gets = append(gets, getterOf(r, part, nil))
		}
	} else {
		gets = append(gets, getterOf(r, by, nil))
	}
	sortItems(r, items, func(v any) any {
		out := NewList()
		for _, get := range gets {
			x := get(v)
			if !truth(cased) {
				x = folded(x)
			}
			out.items = append(out.items, x)
		}
		if len(out.items) == 1 {
			return out.items[0]
		}
		return out
	}, truth(down))
	return madeList(r, isList, items)
}

func dictSort(r *run, v any, a args) any {
	d, ok := r.use(v).(*Dict)
	if !ok {
		r.fail("only a dict can be sorted by dictsort, not a value of type %s", typeName(v))
	}
	cased, _ := a.arg(0, "case_sensitive")
	down, _ := a.arg(2, "reverse")
	at := 0
	if by, ok := a.arg(1, "by"); ok {
		switch textOf(r, by).s {
		case "key":
		case "value":
			at = 1
		default:
			r.fail(`dictsort sorts by either "key" or "value"`)
		}
	}
	var items []any
	for i, k := range d.keys {
		items = append(items, tuple(k, d.vals[i]))
	}
	r.charge(4 * bytesPerItem * len(items))
	sortItems(r, items, func(v any) any {
		x := v.(*List).items[at]
		if !truth(cased) {
			x = folded(x)
		}
		return x
	}, truth(down))
	return madeList(r, isList, items)
}

func unique(r *run, v any, a args) any {
	key := sortKeyOf(r, a, 1, 0)
	seen := NewDict()
	var out []any
	for _, x := range r.iterate(v) {
		r.step(1)
		k := key(x)
		if _, ok := hashKey(k); !ok {
			r.fail("unhashable type: %s", typeName(k))
		}
		if _, ok := seen.get(k); !ok {
			seen.put(k, true)
			out = append(out, x)
		}
	}
	return madeList(r, isIterator, out)
}

func sum(r *run, v any, a args) any {
	by, _ := a.arg(0, "attribute")
	get := getterOf(r, by, nil)
	out, ok := a.arg(1, "start")
	if !ok {
		out = int64(0)
	}
	for _, x := range r.iterate(v) {
		r.step(1)
		out = arithmetic(r, "+", out, get(x))
	}
	return out
}

// extreme is min for "<" and max for ">".
func extreme(op string) filter {
	return func(r *run, v any, a args) any {
		key := sortKeyOf(r, a, 1, 0)
		items := r.iterate(v)
		if len(items) == 0 {
			return undefined{"no aggregated item, the sequence was empty"}
		}
		best := items[0]
		for _, x := range items[1:] {
			if isOrdered(r, op, key(x), key(best)) {
				best = x
			}
		}
		return best
	}
}

func groupBy(r *run, v any, a args) any {
	by := needArg(r, a, 0, "attribute")
	def, _ := a.arg(1, "default")
	cased, _ := a.arg(2, "case_sensitive")
	get := getterOf(r, by, def)
	key := func(v any) any {
		if truth(cased) {
			return get(v)
		}
		return folded(get(v))
	}
	items := slices.Clone(r.iterate(v))
	r.charge(4 * bytesPerItem * len(items))
	sortItems(r, items, key, false)
	var out []any
	for i := 0; i < len(items); {
		j := i + 1
		for j < len(items) && equalValues(r, key(items[i]), key(items[j])) {
			j++
		}
		out = append(out, tuple(get(items[i]), NewList(items[i:j]...)))
		i = j
	}
	return madeList(r, isList, out)
}

func batch(r *run, v any, a args) any {
	n := boundOf(r, r.use(needArg(r, a, 0, "linecount")))
	fill, _ := a.arg(1, "fill_with")
	if n < 1 {
		r.fail("batch needs a positive number")
	}
	items := r.iterate(v)
	r.charge(2 * bytesPerItem * len(items))
	var out []any
	for len(items) > 0 {
		k := min(n, len(items))
		part := slices.Clone(items[:k])
		items = items[k:]
		if fill != nil {
			r.charge(bytesPerItem * (n - k))
			for len(part) < n {
				part = append(part, fill)
			}
		}
		out = append(out, NewList(part...))
	}
	return madeList(r, isIterator, out)
}

func sliceFilter(r *run, v any, a args) any {
	n := boundOf(r, r.use(needArg(r, a, 0, "slices")))
	fill, _ := a.arg(1, "fill_with")
	items := r.iterate(v)
	if n < 1 {
		r.fail("slice needs a positive number")
	}
	r.charge(2 * bytesPerItem * (len(items) + n))
	per, extra := len(items)/n, len(items)%n
	var out []any
	for i, at := 0, 0; i < n; i++ {
		k := per
		if i < extra {
			k++
		}
		part := slices.Clone(items[at : at+k])
		at += k
		if fill != nil && i >= extra {
			part = append(part, fill)
		}
		out = append(out, NewList(part...))
	}
	return madeList(r, isIterator, out)
}

func mapFilter(r *run, v any, a args) any {
	if !truth(v) { // None too
		return madeList(r, isIterator, nil)
	}
	var f func(any) any
	if by, ok := a.arg(-1, "attribute"); ok && len(a.pos) == 0 {
		def, _ := a.arg(-1, "default")
		f = getterOf(r, by, def)
	} else {
		name := textOf(r, needArg(r, a, 0, "")).s
		inner := args{pos: a.pos[1:], kw: a.kw}
		f = func(x any) any { return r.filter(r.line, name, x, inner) }
	}
	var out []any
	for _, x := range r.iterate(v) {
		r.step(1)
		out = append(out, f(x))
	}
	return madeList(r, isIterator, out)
}

// selectFilter keeps the items, or those whose attribute, pass a test, or fail it.
func selectFilter(keep, attribute bool) filter {
	return func(r *run, v any, a args) any {
		if !truth(v) { // None too
			return madeList(r, isIterator, nil)
		}
		get := func(x any) any { return x }
		if attribute {
			get = getterOf(r, needArg(r, a, 0, ""), nil)
			a.pos = a.pos[1:]
		}
		passes := truth
		if len(a.pos) > 0 {
			name := textOf(r, a.pos[0]).s
			inner := args{pos: a.pos[1:], kw: a.kw}
			passes = func(x any) bool { return r.test(name, x, inner) }
		}
		var out []any
		for _, x := range r.iterate(v) {
			r.step(1)
			if passes(get(x)) == keep {
				out = append(out, x)
			}
		}
		return madeList(r, isIterator, out)
	}
}
