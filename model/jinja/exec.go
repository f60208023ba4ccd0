package jinja

import "slices"

// flow is how a statement ended.
type flow uint8

const (
	flowNext flow = iota
	flowBreak
	flowContinue
)

// block runs statements until one leaves the loop's body.
func (r *run) block(s *scope, body []stmt) flow {
	for _, st := range body {
		r.step(1)
		if f := st.exec(r, s); f != flowNext {
			return f
		}
	}
	return flowNext
}

func (n dataStmt) exec(r *run, _ *scope) flow {
	r.print(n.text)
	return flowNext
}

func (n printStmt) exec(r *run, s *scope) flow {
	r.line = n.line
	v := n.x.eval(r, s)
	r.print(textOf(r, v))
	return flowNext
}

func (n ifStmt) exec(r *run, s *scope) flow {
	r.line = n.line
	if truth(n.test.eval(r, s)) {
		return r.block(s, n.then)
	}
	return r.block(s, n.else_)
}

func (n setStmt) exec(r *run, s *scope) flow {
	r.line = n.line
	r.assign(s, n.target, n.x.eval(r, s))
	return flowNext
}

func (n setBlock) exec(r *run, s *scope) flow {
	var v any = r.capture(func() { r.block(newScope(s), n.body) })
	if n.filter != nil {
		v = filterChain(r, s, n.filter, v)
	}
	r.assign(s, n.target, v)
	return flowNext
}

func (n withStmt) exec(r *run, s *scope) flow {
	r.line = n.line
	in := newScope(s)
	for i, t := range n.targets {
		r.assign(in, t, n.values[i].eval(r, s))
	}
	return r.block(in, n.body)
}

func (n filterBlock) exec(r *run, s *scope) flow {
	text := r.capture(func() { r.block(newScope(s), n.body) })
	r.line = n.line
	r.print(textOf(r, filterChain(r, s, n.filter, text)))
	return flowNext
}

// filterChain is a chain of filters whose innermost value is v.
func filterChain(r *run, s *scope, f expr, v any) any {
	chain, ok := f.(filterExpr)
	if !ok {
		return v
	}
	if chain.x != nil {
		v = filterChain(r, s, chain.x, v)
	}
	return r.filter(chain.line, chain.name, v, r.args(s, chain.args))
}

func (n generationStmt) exec(r *run, s *scope) flow {
	text := r.capture(func() { r.block(newScope(s), n.body) })
	from := r.root.len()
	r.generation = append(r.generation, [2]int{from, from + len(text.s)})
	r.charge(bytesPerItem)
	r.print(text)
	return flowNext
}

func (n scopeStmt) exec(r *run, s *scope) flow {
	return r.block(newScope(s), n.body)
}

func (breakStmt) exec(*run, *scope) flow    { return flowBreak }
func (continueStmt) exec(*run, *scope) flow { return flowContinue }

// assign binds a target: a name in this scope, an attribute of a namespace, or several.
func (r *run) assign(s *scope, t target, v any) {
	r.charge(bytesPerItem)
	switch {
	case t.tuple:
		items := r.iterate(v)
		if len(items) != len(t.parts) {
			r.fail("%d values for %d names", len(items), len(t.parts))
		}
		for i, p := range t.parts {
			r.assign(s, p, items[i])
		}
	case t.attr != "":
		to, _ := s.get(t.name)
		ns, ok := to.(*namespace)
		if !ok {
			r.fail("cannot assign attribute %q of %s, which is no namespace", t.attr, t.name)
		}
		if t.attr[0] == '_' {
			r.fail("the attribute %q of a namespace begins with an underscore", t.attr)
		}
		ns.put(Text(t.attr), v)
	default:
		s.vars[t.name] = v
	}
}

func (n forStmt) exec(r *run, s *scope) flow {
	r.line = n.line
	items := r.iterate(n.over.eval(r, s))
	if n.when != nil {
		items = slices.Clone(items)
		kept := items[:0]
		for _, v := range items {
			r.step(1)
			in := newScope(s)
			r.assign(in, n.target, v)
			if truth(n.when.eval(r, in)) {
				kept = append(kept, v)
			}
		}
		items = kept
	}
	if len(items) == 0 {
		return r.block(newScope(s), n.else_)
	}
	l := &loop{items: items, depth: 1}
	if outer, ok := s.get("loop"); ok {
		if o, ok := outer.(*loop); ok {
			l.depth = o.depth + 1
		}
	}
	for i, v := range items {
		r.step(1)
		l.at = i
		in := newScope(s)
		in.vars["loop"] = l
		r.assign(in, n.target, v)
		if r.block(in, n.body) == flowBreak {
			break
		}
	}
	return flowNext
}

// loop is the variable of that name.
type loop struct {
	items   []any
	at      int
	depth   int
	changed []any // the last arguments of loop.changed
	asked   bool
}

// attr is an attribute of the loop; false where there is none.
func (l *loop) attr(name string) (any, bool) {
	n := len(l.items)
	switch name {
	case "index":
		return int64(l.at + 1), true
	case "index0":
		return int64(l.at), true
	case "revindex":
		return int64(n - l.at), true
	case "revindex0":
		return int64(n - l.at - 1), true
	case "first":
		return l.at == 0, true
	case "last":
		return l.at == n-1, true
	case "length":
		return int64(n), true
	case "depth":
		return int64(1), true // of recursive loops only
	case "depth0":
		return int64(0), true
	case "previtem":
		if l.at == 0 {
			return undefined{"there is no previous item"}, true
		}
		return l.items[l.at-1], true
	case "nextitem":
		if l.at == n-1 {
			return undefined{"there is no next item"}, true
		}
		return l.items[l.at+1], true
	case "cycle":
		return &function{"cycle", func(r *run, a args) any {
			if len(a.pos) == 0 {
				r.fail("no items for cycling given")
			}
			return a.pos[l.at%len(a.pos)]
		}}, true
	case "changed":
		return &function{"changed", func(r *run, a args) any {
			same := l.asked && equalValues(r, NewList(l.changed...), NewList(a.pos...))
			l.asked, l.changed = true, a.pos
			return !same
		}}, true
	}
	return nil, false
}

func (n macroStmt) exec(r *run, s *scope) flow {
	s.vars[n.name] = &function{n.name, func(r *run, a args) any {
		return r.invoke(n.name, n.signature, n.body, s, a)
	}}
	return flowNext
}

func (n callBlock) exec(r *run, s *scope) flow {
	r.line = n.line
	a := r.args(s, n.call.args)
	if a.kw == nil {
		a.kw = NewDict()
	}
	a.kw.Set("caller", &function{"caller", func(r *run, a args) any {
		return r.invoke("caller", n.signature, n.body, s, a)
	}})
	r.print(textOf(r, r.call(n.call.f.eval(r, s), a)))
	return flowNext
}

// invoke runs a macro's body in the scope where it was defined.
func (r *run) invoke(name string, sig signature, body []stmt, s *scope, a args) any {
	defer r.deeper()()
	in := newScope(s)
	for i, param := range sig.params {
		k := i - (len(sig.params) - len(sig.defaults))
		switch v, ok := a.arg(i, param); {
		case ok && i < len(a.pos):
			if a.kw != nil {
				if _, twice := a.kw.Get(param); twice {
					r.fail("the macro %s got the argument %s twice", name, param)
				}
			}
			in.vars[param] = v
		case ok:
			in.vars[param] = v
		case k >= 0:
			in.vars[param] = sig.defaults[k].eval(r, in)
		default:
			in.vars[param] = undefined{"parameter " + param + " was not provided"}
		}
	}
	if len(a.pos) > len(sig.params) && !sig.varargs {
		r.fail("the macro %s takes %d arguments, not %d", name, len(sig.params), len(a.pos))
	}
	if sig.varargs {
		in.vars["varargs"] = tuple(a.pos[min(len(sig.params), len(a.pos)):]...)
	}
	if sig.caller {
		in.vars["caller"] = undefined{"no caller was given"}
	}
	rest := NewDict()
	if a.kw != nil {
		for i, k := range a.kw.keys {
			key, _ := k.(Str)
			switch {
			case slices.Contains(sig.params, key.s):
			case key.s == "caller" && sig.caller:
				in.vars["caller"] = a.kw.vals[i]
			case sig.kwargs:
				rest.put(k, a.kw.vals[i])
			default:
				r.fail("the macro %s takes no argument %s", name, key.s)
			}
		}
	}
	if sig.kwargs {
		in.vars["kwargs"] = rest
	}
	return r.capture(func() { r.block(in, body) })
}
