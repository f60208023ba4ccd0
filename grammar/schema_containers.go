package grammar

import (
	"slices"
	"unicode/utf8"
)

// Bounds of what is written out: items with their own places, and counted properties.
const maxUnrolled = 20_000

// array is the arrays that schemas allow.
func (c *schemaCompiler) array(all []*value, depth int) expr {
	least, most, at := c.counts(all, "minItems", "maxItems", 1<<30)
	if c.err != nil {
		return alternative{}
	}
	if most >= 0 && least > most {
		return c.never(at, "minItems is greater than maxItems")
	}
	longest, closed := 0, false
	for _, s := range all {
		prefix, _, shut := c.itemsOf(s)
		longest = max(longest, len(prefix))
		if shut {
			closed = true
		}
	}
	a := &arrayExpr{w: c.w, least: least, most: most}
	for i := range longest {
		schemas, forbidden := c.itemSchemas(all, i)
		if forbidden {
			a.most = i
			break
		}
		if a.most >= 0 && i >= a.most {
			break
		}
		a.prefix = append(a.prefix, c.conjunction(schemas, depth+1))
	}
	rest, forbidden := c.itemSchemas(all, longest)
	switch {
	case forbidden || closed && len(rest) == 0:
		if a.most < 0 || a.most > longest {
			a.most = longest
		}
	case a.most < 0 || a.most > len(a.prefix):
		a.rest = c.conjunction(rest, depth+1)
	}
	if a.most >= 0 && least > a.most {
		return c.never(at, "minItems is greater than the number of items that are allowed")
	}
	if least > maxUnrolled || a.rest != nil && a.most > maxUnrolled {
		return c.fail(at, "minItems and maxItems are supported up to %d", maxUnrolled)
	}
	return a
}

// itemsOf are a schema's items with places of their own, and the schema of the others (nil: not
// given). shut: there are no others.
func (c *schemaCompiler) itemsOf(s *value) (prefix []*value, rest *value, shut bool) {
	rest = s.get("items")
	list := s.get("prefixItems")
	if rest != nil && rest.kind == '[' { // before draft 2020-12
		list, rest = rest, s.get("additionalItems")
	}
	if list != nil {
		prefix = list.items
		shut = rest == nil && !c.w.OpenObjects
	}
	return prefix, rest, shut
}

// itemSchemas are the schemas of item i; forbidden: one of them is false.
func (c *schemaCompiler) itemSchemas(all []*value, i int) (out []*value, forbidden bool) {
	for _, s := range all {
		prefix, rest, _ := c.itemsOf(s)
		x := rest
		if i < len(prefix) {
			x = prefix[i]
		}
		if x != nil {
			out = append(out, x)
			forbidden = forbidden || x.kind == 'f'
		}
	}
	return out, forbidden
}

// property is one that some schema declares or requires.
type property struct {
	name     string
	required bool
	schemas  []*value
	false    bool // it is forbidden
}

// object is the objects that schemas allow.
func (c *schemaCompiler) object(all []*value, depth int) expr {
	declared := c.properties(all)
	allowed := c.propertyNames(all)
	rest, closed := c.restOf(all, declared, allowed, depth)
	if c.err != nil {
		return alternative{}
	}
	o := &objectExpr{w: c.w, most: int(none)}
	for _, p := range declared {
		p.false = p.false || allowed != nil && !matches(allowed, c.w.spelling.constant(p.name))
		switch {
		case p.false && p.required:
			return c.never(all[0], "property %s is required and forbidden", quoted(p.name))
		case p.false:
			continue
		}
		o.declared = append(o.declared, pair{c.w.key(p.name), c.conjunction(p.schemas, depth+1)})
		o.required = append(o.required, p.required)
	}
	if !closed {
		o.rest = rest
	}
	return c.countProperties(all, o)
}

// properties are those that schemas name, in the order in which they do, each with all that
// the schemas say about it.
func (c *schemaCompiler) properties(all []*value) []*property {
	var out []*property
	find := func(name string) *property {
		for _, p := range out {
			if p.name == name {
				return p
			}
		}
		p := &property{name: name}
		out = append(out, p)
		c.w.budget.spend(0, len(out))
		return p
	}
	for _, s := range all {
		if p := s.get("properties"); p != nil {
			for _, m := range p.members {
				find(m.name)
			}
		}
	}
	for _, s := range all {
		if list := s.get("required"); list != nil {
			for _, x := range list.items {
				if x.kind != '"' {
					c.fail(x, "required lists names of properties")
					return nil
				}
				find(x.text).required = true
			}
		}
	}
	for _, p := range out {
		for _, s := range all {
			p.add(c, s)
		}
	}
	return out
}

// add adds what one schema says about a property.
func (p *property) add(c *schemaCompiler, s *value) {
	said := false
	say := func(x *value) {
		said = true
		p.schemas = append(p.schemas, x)
		p.false = p.false || x.kind == 'f'
	}
	properties := s.get("properties")
	if properties != nil && properties.get(p.name) != nil {
		say(properties.get(p.name))
	}
	if patterns := s.get("patternProperties"); patterns != nil {
		for _, m := range patterns.members {
			t := c.pattern(&value{kind: '"', text: m.name, parent: patterns, name: m.name})
			if t != nil && matches(t, c.w.spelling.constant(p.name)) {
				say(m.value)
			}
		}
	}
	if x := s.get("additionalProperties"); x != nil && !said {
		say(x)
	}
}

// propertyNames are the names of properties that the keyword allows, nil: any.
func (c *schemaCompiler) propertyNames(all []*value) (out *terminal) {
	for _, s := range all {
		n := s.get("propertyNames")
		if n == nil || n.kind == 't' {
			continue
		}
		if n = c.follow(n); n == nil || n.kind != '{' || !c.check(n) {
			return out
		}
		var t *terminal
		if list := constants(n); list != nil {
			texts := altOf()
			for _, x := range list {
				if x.kind == '"' {
					texts.subs = append(texts.subs, c.w.spelling.constant(x.text))
				}
			}
			t = c.w.compile(texts)
		} else if joined := slices.ContainsFunc(n.members, func(m member) bool { return joins[m.name] }); joined {
			c.fail(n, "in propertyNames only pattern, format, lengths, enum and const are supported")
			return out
		} else if t, _ = c.text([]*value{n}).(*terminal); t == nil || typesOf(n)&typeString == 0 {
			t = &terminal{begin: none}
		}
		if out != nil {
			t = c.w.budget.product(out, t, false)
		}
		out = t
	}
	return out
}

// matches reports whether a terminal has a word of a pattern, which is one text.
func matches(t *terminal, p *pattern) bool {
	b := &budget{states: 1 << 20, work: 1 << 24}
	return b.product(b.compile(p), t, false).begin != none
}

// restOf are the properties that no schema names: those of each patternProperties, and others.
func (c *schemaCompiler) restOf(all []*value, declared []*property, allowed *terminal, depth int) (rest []pair, closed bool) {
	taken := altOf() // names, as keys are written
	for _, p := range declared {
		taken.subs = append(taken.subs, c.w.spelling.constant(p.name))
	}
	left := c.w.spelling.strings(c.w.budget, starOf(c.w.spelling.runes.runes(0, utf8.MaxRune)))
	if len(taken.subs) > 0 {
		left = c.w.budget.product(left, c.w.compile(taken), true)
	}
	if allowed != nil {
		left = c.w.budget.product(left, allowed, false)
	}
	type kind struct {
		keys    *terminal
		schemas []*value
	}
	// Names are sorted by the patterns that they match, one pattern after the other.
	kinds := []kind{{keys: left}}
	for _, s := range all {
		patterns := s.get("patternProperties")
		first := len(kinds)
		others := make([]bool, 0, first) // of each kind: no pattern of this schema matches
		for range kinds {
			others = append(others, true)
		}
		if patterns != nil {
			for _, m := range patterns.members {
				t := c.pattern(&value{kind: '"', text: m.name, parent: patterns, name: m.name})
				if t == nil {
					return nil, true
				}
				for i, k := range kinds {
					in, out := c.w.budget.product(k.keys, t, false), c.w.budget.product(k.keys, t, true)
					kinds[i].keys = out
					if in.begin != none {
						kinds = append(kinds, kind{in, append(slices.Clip(k.schemas), m.value)})
						others = append(others, false)
					}
				}
			}
		}
		if x := s.get("additionalProperties"); x != nil {
			for i := range kinds {
				if others[i] {
					kinds[i].schemas = append(slices.Clip(kinds[i].schemas), x)
				}
			}
		}
	}
	open := c.w.OpenObjects || !slices.ContainsFunc(all, func(s *value) bool {
		return (s.get("properties") != nil || s.get("patternProperties") != nil) && s.get("additionalProperties") == nil
	})
	for i, k := range kinds {
		if k.keys.begin == none || i == 0 && !open && len(k.schemas) == 0 {
			continue
		}
		if slices.ContainsFunc(k.schemas, func(s *value) bool { return s.kind == 'f' }) {
			continue
		}
		keys := c.w.spelling.anyKey()
		if i > 0 || len(taken.subs) > 0 || len(kinds) > 1 || allowed != nil {
			keys = c.w.compile(seqOf(dfaOf(k.keys), textOf(":")))
		}
		rest = append(rest, pair{keys, c.conjunction(k.schemas, depth+1)})
	}
	return rest, len(rest) == 0
}

// countProperties holds minProperties and maxProperties, where they can be held: names of
// other properties may come twice, and would then count once.
func (c *schemaCompiler) countProperties(all []*value, o *objectExpr) expr {
	least, most, at := c.counts(all, "minProperties", "maxProperties", 1<<30)
	required := 0
	for _, yes := range o.required {
		if yes {
			required++
		}
	}
	switch {
	case c.err != nil:
		return alternative{}
	case most >= 0 && least > most:
		return c.never(at, "minProperties is greater than maxProperties")
	case most >= 0 && required > most:
		return c.never(at, "more than maxProperties are required")
	}
	if least > required {
		optional := len(o.declared) - required
		if least > required+1 || optional > 0 || len(o.rest) == 0 {
			return c.fail(at, "minProperties %d is not supported here; list properties in required", least)
		}
		o.least = 1
	}
	if most >= 0 && (len(o.rest) > 0 || most < len(o.declared)) {
		if required < len(o.declared) {
			return c.fail(at, "maxProperties %d is not supported beside optional properties", most)
		}
		if o.most = most - required; o.most > maxUnrolled {
			return c.fail(at, "maxProperties is supported up to %d", maxUnrolled)
		}
		for i, p := range o.rest {
			o.rest[i].value = &rule{p.value}
		}
	}
	return o
}
