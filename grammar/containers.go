package grammar

// pair is a property: its name and colon, and its value.
type pair struct {
	key   *terminal
	value expr
}

// objectExpr is an object: declared properties in their order, then the rest in any order.
type objectExpr struct {
	w        *writer
	declared []pair
	required []bool
	rest     []pair // what a property that is not declared may be
	least    int    // of the rest
	most     int    // of the rest; none: no bound
}

func (o *objectExpr) build(b *builder, next int32) int32 {
	empty := o.w.literal("}").build(b, next) // white space has been written
	end := o.w.space.build(b, empty)
	// inside comes before a property where none is written yet, after where one is.
	inside, after := o.buildRest(b, empty, end)
	inside = inOrder(b, o.declared, o.required, o.w.space, func(next int32) int32 { return o.w.comma(b, next) }, inside, after)
	return o.w.literal("{").build(b, o.w.space.build(b, inside))
}

// inOrder builds pairs in their order before what follows them: inside where none is written,
// after where one is. space stands between key and value.
func inOrder(b *builder, pairs []pair, required []bool, space expr, comma func(next int32) int32, inside, after int32) int32 {
	for i := len(pairs) - 1; i >= 0 && !b.budget.exhausted(); i-- {
		p := pairs[i]
		key := p.key.build(b, space.build(b, p.value.build(b, after)))
		first := []int32{key}
		later := []int32{comma(key)}
		if !required[i] {
			first, later = append(first, inside), append(later, after)
		}
		inside, after = b.add(state{or: first}), b.add(state{or: later})
	}
	return inside
}

func (o *objectExpr) buildRest(b *builder, empty, end int32) (inside, after int32) {
	if len(o.rest) == 0 {
		if o.least > 0 {
			never := b.add(state{})
			return never, never
		}
		return empty, end
	}
	pairs := func(next int32) int32 {
		var or []int32
		for _, p := range o.rest {
			or = append(or, p.key.build(b, o.w.space.build(b, p.value.build(b, next))))
		}
		return b.add(state{or: or})
	}
	inside, after = o.w.repeat(b, pairs, o.least, o.most, end)
	if o.least == 0 {
		inside = b.add(state{or: []int32{inside, empty}})
	}
	return inside, after
}

// comma is a comma and white space.
func (w *writer) comma(b *builder, next int32) int32 {
	return w.literal(",").build(b, w.space.build(b, next))
}

// repeat builds least to most items (most none: no bound) with commas between, then end. item
// builds one. first is before the first item, after where other items have been written.
func (w *writer) repeat(b *builder, item func(next int32) int32, least, most int, end int32) (first, after int32) {
	first, after = b.add(state{}), end // no item
	top := most
	if most < 0 {
		top = least
		after = b.add(state{})
		first = item(after)
		b.states[after].or = []int32{end, w.comma(b, first)}
	}
	for k := top - 1; k >= 0 && !b.budget.exhausted(); k-- {
		first = item(after)
		or := []int32{w.comma(b, first)}
		if k >= least {
			or = append(or, end)
		}
		after = b.add(state{or: or})
	}
	return first, after
}

// arrayExpr is an array: items of their own, then any number of one kind.
type arrayExpr struct {
	w      *writer
	prefix []expr
	rest   expr // nil: no more items
	least  int
	most   int // none: no bound
}

func (a *arrayExpr) build(b *builder, next int32) int32 {
	empty := a.w.literal("]").build(b, next)
	end := a.w.space.build(b, empty)
	n := len(a.prefix)
	if a.most >= 0 {
		n = min(n, a.most)
	}
	first, after := b.add(state{}), end
	if a.rest != nil && (a.most < 0 || a.most > n) {
		rest := a.rest
		if max(a.least, a.most)-n > 1 { // built once, called many times
			rest = &rule{rest}
		}
		most := a.most
		if most >= 0 {
			most -= n
		}
		item := func(next int32) int32 { return rest.build(b, next) }
		first, after = a.w.repeat(b, item, max(a.least-n, 0), most, end)
	} else if a.least > n {
		after = first // too few
	}
	for k := n - 1; k >= 0 && !b.budget.exhausted(); k-- {
		first = a.prefix[k].build(b, after)
		or := []int32{a.w.comma(b, first)}
		if k >= a.least {
			or = append(or, end)
		}
		after = b.add(state{or: or})
	}
	begin := []int32{first}
	if a.least <= 0 {
		begin = append(begin, empty)
	}
	return a.w.literal("[").build(b, a.w.space.build(b, b.add(state{or: begin})))
}
