package jinja

import "slices"

func (n constExpr) eval(*run, *scope) any { return n.v }

func (n nameExpr) eval(r *run, s *scope) any {
	r.step(1)
	r.line = n.line
	if v, ok := s.get(n.name); ok {
		return v
	}
	return undefined{n.name + " is undefined"}
}

func (n listExpr) eval(r *run, s *scope) any {
	r.charge(bytesPerItem * (1 + len(n.items)))
	out := &List{items: make([]any, len(n.items))}
	if n.tuple {
		out.kind = isTuple
	}
	for i, x := range n.items {
		out.items[i] = x.eval(r, s)
	}
	return out
}

func (n dictExpr) eval(r *run, s *scope) any {
	out := NewDict()
	for i, k := range n.keys {
		r.charge(2 * bytesPerItem)
		key := k.eval(r, s)
		if !out.put(key, n.vals[i].eval(r, s)) {
			r.fail("unhashable type: %s", typeName(key))
		}
	}
	return out
}

func (n condExpr) eval(r *run, s *scope) any {
	r.step(1)
	if truth(n.test.eval(r, s)) {
		return n.then.eval(r, s)
	}
	if n.else_ == nil {
		return undefined{"the inline if is false and has no else"}
	}
	return n.else_.eval(r, s)
}

func (n unaryExpr) eval(r *run, s *scope) any {
	r.step(1)
	v := n.x.eval(r, s)
	r.line = n.line
	if n.op == "not" {
		return !truth(v)
	}
	return signedValue(r, n.op, v)
}

func (n binaryExpr) eval(r *run, s *scope) any {
	r.step(1)
	x := n.x.eval(r, s)
	switch {
	case n.op == "and" && !truth(x), n.op == "or" && truth(x):
		return x
	case n.op == "and", n.op == "or":
		return n.y.eval(r, s)
	}
	y := n.y.eval(r, s)
	r.line = n.line
	return arithmetic(r, n.op, x, y)
}

func (n concatExpr) eval(r *run, s *scope) any {
	var b builder
	for _, x := range n.items {
		r.step(1)
		b.add(textOf(r, x.eval(r, s)))
	}
	return r.built(b.str())
}

func (n compareExpr) eval(r *run, s *scope) any {
	x := n.x.eval(r, s)
	for i, op := range n.ops {
		r.step(1)
		y := n.ys[i].eval(r, s)
		r.line = n.line
		var is bool
		switch op {
		case "==":
			is = equalValues(r, x, y)
		case "!=":
			is = !equalValues(r, x, y)
		case "in":
			is = containsValue(r, y, x)
		case "not in":
			is = !containsValue(r, y, x)
		default:
			is = isOrdered(r, op, x, y)
		}
		if !is {
			return false
		}
		x = y
	}
	return true
}

func (n attrExpr) eval(r *run, s *scope) any {
	r.step(1)
	x := n.x.eval(r, s)
	r.line = n.line
	return r.attr(x, n.name)
}

func (n itemExpr) eval(r *run, s *scope) any {
	r.step(1)
	x, at := n.x.eval(r, s), n.at.eval(r, s)
	r.line = n.line
	return r.item(x, at)
}

func (n sliceExpr) eval(r *run, s *scope) any {
	r.step(1)
	x := n.x.eval(r, s)
	var parts [3]any
	for i, p := range []expr{n.from, n.to, n.step} {
		if p != nil {
			parts[i] = p.eval(r, s)
		}
	}
	r.line = n.line
	return sliceOf(r, x, parts)
}

func (n callExpr) eval(r *run, s *scope) any {
	r.step(1)
	f := n.f.eval(r, s)
	a := r.args(s, n.args)
	r.line = n.line
	return r.call(f, a)
}

func (n filterExpr) eval(r *run, s *scope) any {
	r.step(1)
	v := n.x.eval(r, s)
	a := r.args(s, n.args)
	return r.filter(n.line, n.name, v, a)
}

func (n testExpr) eval(r *run, s *scope) any {
	r.step(1)
	v := n.x.eval(r, s)
	a := r.args(s, n.args)
	r.line = n.line
	return r.test(n.name, v, a)
}

func (r *run) filter(line int, name string, v any, a args) any {
	r.line = line
	f := filters[name]
	if f == nil {
		r.fail("there is no filter %q", name)
	}
	return f(r, v, a)
}

func (r *run) test(name string, v any, a args) bool {
	f := tests[name]
	if f == nil {
		r.fail("there is no test %q", name)
	}
	return f(r, v, a)
}

// args evaluates a call's arguments.
func (r *run) args(s *scope, n callArgs) args {
	var a args
	for _, x := range n.pos {
		a.pos = append(a.pos, x.eval(r, s))
	}
	if n.dynPos != nil {
		a.pos = append(slices.Clone(a.pos), r.iterate(n.dynPos.eval(r, s))...)
	}
	if len(n.names) > 0 {
		a.kw = NewDict()
		for i, name := range n.names {
			a.kw.Set(name, n.vals[i].eval(r, s))
		}
	}
	if n.dynKeys != nil {
		d, ok := n.dynKeys.eval(r, s).(*Dict)
		if !ok {
			r.fail("the argument after ** is no dict")
		}
		if a.kw == nil {
			a.kw = NewDict()
		}
		for i, k := range d.keys {
			if _, ok := k.(Str); !ok {
				r.fail("keywords must be strings")
			}
			r.charge(2 * bytesPerItem)
			a.kw.put(k, d.vals[i])
		}
	}
	r.charge(bytesPerItem * len(a.pos))
	return a
}

func (r *run) call(f any, a args) any {
	switch f := f.(type) {
	case *function:
		return f.call(r, a)
	case undefined:
		r.fail("%s", f.hint)
	}
	r.fail("a value of type %s is not callable", typeName(f))
	return nil
}

// use is an error where v is undefined.
func (r *run) use(v any) any {
	if u, ok := v.(undefined); ok {
		r.fail("%s", u.hint)
	}
	return v
}

// attr is x.name: a method before an element, as in Python.
func (r *run) attr(x any, name string) any {
	r.use(x)
	if v, ok := methodOf(x, name); ok {
		return v
	}
	if d, ok := x.(*Dict); ok {
		if v, ok := d.Get(name); ok {
			return v
		}
	}
	return undefined{"a value of type " + typeName(x) + " has no attribute " + name}
}

// item is x[at]: an element before a method.
func (r *run) item(x, at any) any {
	r.use(x)
	switch c := x.(type) {
	case *Dict:
		if v, ok := c.get(at); ok {
			return v
		}
	case *List:
		if c.kind != isView && c.kind != isIterator && isInt(at) {
			if i, ok := indexOf(at, len(c.items)); ok {
				return c.items[i]
			}
		}
	case Str:
		if isInt(at) {
			off := c.offsets()
			if off == nil {
				if i, ok := indexOf(at, len(c.s)); ok {
					return c.slice(i, i+1)
				}
				break
			}
			r.step(len(off) / 16)
			if i, ok := indexOf(at, len(off)-1); ok {
				return c.slice(off[i], off[i+1])
			}
		}
	}
	if name, ok := at.(Str); ok {
		if v, ok := methodOf(x, name.s); ok {
			return v
		}
		return undefined{"a value of type " + typeName(x) + " has no attribute " + name.s}
	}
	return undefined{"a value of type " + typeName(x) + " has no such element"}
}

// indexOf is a place in n elements, negative ones counted from the end.
func indexOf(at any, n int) (int, bool) {
	b := bigOf(at)
	if !b.IsInt64() {
		return 0, false
	}
	i := b.Int64()
	if i < 0 {
		i += int64(n)
	}
	return int(i), i >= 0 && i < int64(n)
}

// sliceOf is x[from:to:step].
func sliceOf(r *run, x any, parts [3]any) any {
	r.use(x)
	step := 1
	if parts[2] != nil {
		if step = boundOf(r, parts[2]); step == 0 {
			r.fail("slice step cannot be zero")
		}
	}
	switch c := x.(type) {
	case Str:
		off := c.offsets()
		n := len(c.s)
		if off != nil {
			r.step(len(off) / 16)
			n = len(off) - 1
		}
		at := func(i int) int {
			if off == nil {
				return i
			}
			return off[i]
		}
		from, to := sliceBounds(r, parts, n, step)
		if step == 1 {
			return r.built(c.slice(at(from), at(max(from, to))))
		}
		var b builder
		for i := from; step > 0 && i < to || step < 0 && i > to; i += step {
			r.step(1)
			b.add(c.slice(at(i), at(i+1)))
		}
		return r.built(b.str())
	case *List:
		if c.kind == isView || c.kind == isIterator {
			break
		}
		from, to := sliceBounds(r, parts, len(c.items), step)
		out := &List{kind: c.kind}
		for i := from; step > 0 && i < to || step < 0 && i > to; i += step {
			r.charge(bytesPerItem)
			out.items = append(out.items, c.items[i])
		}
		return out
	}
	// As a subscript that fails: Jinja answers Undefined.
	return undefined{"a value of type " + typeName(x) + " has no slices"}
}

// boundOf is a part of a slice, cut to what an int holds.
func boundOf(r *run, v any) int {
	const most = 1 << 40
	if !isInt(v) {
		r.fail("slice indices must be integers or None, not %s", typeName(v))
	}
	b := bigOf(v)
	switch {
	case b.IsInt64():
		return int(max(min(b.Int64(), most), -most))
	case b.Sign() < 0:
		return -most
	}
	return most
}

// sliceBounds are Python's slice.indices.
func sliceBounds(r *run, parts [3]any, n, step int) (from, to int) {
	low, high := 0, n
	if step < 0 {
		low, high = -1, n-1
	}
	clip := func(v any, def int) int {
		if v == nil {
			return def
		}
		i := boundOf(r, v)
		if i < 0 {
			i += n
		}
		return max(low, min(i, high))
	}
	if step < 0 {
		return clip(parts[0], high), clip(parts[1], low)
	}
	return clip(parts[0], low), clip(parts[1], high)
}

// iterate gives the elements of what a loop goes over.
func (r *run) iterate(v any) []any {
	switch v := v.(type) {
	case undefined:
		return nil
	case *List:
		items := v.items
		if v.kind == isIterator {
			v.items = nil
		}
		return items
	case *Dict:
		return v.keys
	case Str:
		r.charge(bytesPerItem * len(v.s))
		var out []any
		for i, c := range v.s {
			w := len(string(c))
			if c == '\uFFFD' && v.s[i] != 0xEF {
				w = 1
			}
			out = append(out, v.slice(i, i+w))
		}
		return out
	}
	r.fail("a value of type %s is not iterable", typeName(v))
	return nil
}
