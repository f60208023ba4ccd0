package grammar

import (
	"net/url"
	"slices"
	"strings"
)

// references finds what schemas refer to, and what two of them have in common.
type references struct {
	*compilation
	joined map[*value]uint8 // schemas that acyclic has been to
}

// acyclic has an error where a schema joins itself, so that no value would ever decide it.
func (c *references) acyclic(s *value) bool {
	const open, done = 1, 2
	switch {
	case s.kind != '{' || c.joined[s] == done:
		return true
	case c.joined[s] == open:
		c.fail(s, "the schema refers to itself without a property or an item between")
		return false
	}
	c.joined[s] = open
	if s.get("$ref") != nil {
		if to := c.resolve(s); to == nil || !c.acyclic(to) {
			return false
		}
	}
	for _, name := range []string{"allOf", "anyOf", "oneOf"} {
		if list := s.get(name); list != nil {
			for _, sub := range list.items {
				if !c.acyclic(sub) {
					return false
				}
			}
		}
	}
	c.joined[s] = done
	return true
}

// resolve is what $ref refers to, within the schema.
func (c *references) resolve(s *value) *value {
	ref := s.get("$ref")
	if ref.kind != '"' {
		c.fail(ref, "it must be a string")
		return nil
	}
	pointer, ok := strings.CutPrefix(ref.text, "#")
	if decoded, err := url.PathUnescape(pointer); err == nil {
		pointer = decoded
	}
	at := c.root
	if ok && pointer != "" {
		if !strings.HasPrefix(pointer, "/") {
			ok = false
		}
		for _, name := range strings.Split(pointer, "/")[1:] {
			name = strings.ReplaceAll(strings.ReplaceAll(name, "~1", "/"), "~0", "~")
			at = at.child(name)
			if at == nil {
				c.fail(ref, "%s is not in the schema", quoted(ref.text))
				return nil
			}
		}
	}
	if !ok {
		c.fail(ref, "%s is not supported; references are JSON pointers into the same schema, as #/$defs/name", quoted(ref.text))
		return nil
	}
	return at
}

func (v *value) child(name string) *value {
	for _, x := range v.items {
		if x.name == name {
			return x
		}
	}
	return v.get(name)
}

// checkDisjoint has an error where two branches of oneOf may both hold: a grammar of their
// union would then write what oneOf forbids.
func (c *references) checkDisjoint(list *value) {
	for i, a := range list.items {
		for j, b := range list.items[:i] {
			if !c.disjoint(a, b, 0) {
				c.fail(list, "branches %d and %d may both hold, or differ in nothing that can be proved; write anyOf", j, i)
				return
			}
		}
	}
}

// disjoint reports whether no value meets both: their types, their constants or those of a
// property that both require differ.
func (c *references) disjoint(a, b *value, depth int) bool {
	a, b = c.follow(a), c.follow(b)
	if a == nil || b == nil || depth > 4 || !c.w.budget.spend(0, 1000) {
		return false
	}
	if a.kind == 'f' || b.kind == 'f' {
		return true
	}
	// What is written of one must not be valid for the other, whose keywords of one type allow
	// all values of the others.
	if typesOf(a)&allowedTypes(b) == 0 && typesOf(b)&allowedTypes(a) == 0 {
		return true
	}
	if x, y := constants(a), constants(b); x != nil && y != nil {
		return !slices.ContainsFunc(x, func(p *value) bool { return slices.ContainsFunc(y, p.equal) })
	}
	if typesOf(a)|typesOf(b) != typeObject {
		return false
	}
	for _, name := range names(a.get("required")) {
		if !slices.Contains(names(b.get("required")), name) {
			continue
		}
		p, q := a.get("properties"), b.get("properties")
		if p == nil || q == nil || p.get(name) == nil || q.get(name) == nil {
			continue
		}
		if c.disjoint(p.get(name), q.get(name), depth+1) {
			return true
		}
	}
	return false
}

// follow is what a chain of references ends at.
func (c *references) follow(s *value) *value {
	for range 20 {
		if s == nil || s.kind != '{' || s.get("$ref") == nil {
			return s
		}
		s = c.resolve(s)
	}
	return s
}

// constants are the values that a schema lists, nil where it lists none.
func constants(s *value) []*value {
	if k := s.get("const"); k != nil {
		return []*value{k}
	}
	if e := s.get("enum"); e != nil && e.kind == '[' {
		return append([]*value{}, e.items...)
	}
	return nil
}

// names are the strings of a list.
func names(list *value) []string {
	var out []string
	if list != nil {
		for _, x := range list.items {
			if x.kind == '"' {
				out = append(out, x.text)
			}
		}
	}
	return out
}
