package grammar

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// JSONSchema is the JSON that a schema (draft 2020-12, and what of older drafts means the same)
// allows; docs/grammars.md has the keywords. An unsupported keyword is an error that
// names it, and so is a schema that no value meets; both are a SchemaError.
func JSONSchema(schema json.RawMessage, o Options) (*Grammar, error) {
	w := newWriter(o, asJSON)
	root, err := compileSchema(w, schema)
	if err != nil {
		return nil, fmt.Errorf("JSON schema: %w", err)
	}
	g, err := finish(root.expr, w.budget, root.nothing)
	if err != nil {
		return nil, fmt.Errorf("JSON schema: %w", err)
	}
	return g, nil
}

// compiled is a schema's expression, and why it has no value if it has none.
type compiled struct {
	expr    expr
	nothing error
}

// compileSchema compiles a schema's text; values meet the other schemas too.
func compileSchema(w *writer, text json.RawMessage, also ...*value) (compiled, error) {
	c, err := newSchemaCompiler(w, text)
	if err != nil {
		return compiled{}, err
	}
	return c.result(c.conjunction(append(also, c.root), 0))
}

func newSchemaCompiler(w *writer, text json.RawMessage) (*schemaCompiler, error) {
	root, err := readValue(text)
	if err != nil {
		return nil, err
	}
	shared := &compilation{w: w, root: root}
	return &schemaCompiler{compilation: shared, references: references{shared, map[*value]uint8{}},
		scalars: scalars{shared, map[string]*terminal{}}, rules: map[string]*rule{}, numbers: map[*value]int{}}, nil
}

// result is an expression with what went wrong on the way.
func (c *compilation) result(e expr) (compiled, error) {
	switch {
	case c.w.budget.exhausted():
		return compiled{}, errTooLarge
	case c.err != nil:
		return compiled{}, c.err
	case c.nothing == nil:
		c.nothing = &SchemaError{Path: c.root.path(), NoValue: true, reason: "each value has another of its kind within it"}
	}
	return compiled{e, c.nothing}, nil
}

// compilation is what the parts of a compiler share. The first error ends it.
type compilation struct {
	w       *writer
	root    *value
	err     error
	nothing error // the first reason why some part has no value
}

// schemaCompiler turns schemas into expressions.
type schemaCompiler struct {
	*compilation
	references
	scalars
	rules   map[string]*rule // of conjunctions that have a $ref
	numbers map[*value]int   // names of schemas in the keys of rules
}

const (
	maxInline = 200  // depth of schemas in each other, references followed
	joinWork  = 1000 // steps that a conjunction costs: it bounds their number
)

// SchemaError is what is wrong with a schema, and where.
type SchemaError struct {
	Path    string // of the schema or keyword, as a JSON pointer with # before
	NoValue bool   // the schema is one that no value meets; otherwise it is wrong or not supported
	reason  string
}

func (e *SchemaError) Error() string {
	if e.NoValue {
		return e.Path + ": no value meets it: " + e.reason
	}
	return e.Path + ": " + e.reason
}

func (c *compilation) fail(at *value, format string, args ...any) expr {
	if c.err == nil {
		c.err = &SchemaError{Path: at.path(), reason: fmt.Sprintf(format, args...)}
	}
	return alternative{}
}

// never is a part that has no value, for a reason.
func (c *compilation) never(at *value, format string, args ...any) expr {
	if c.nothing == nil {
		c.nothing = &SchemaError{Path: at.path(), NoValue: true, reason: fmt.Sprintf(format, args...)}
	}
	return alternative{}
}

// part is a schema of a conjunction. Of its keywords that join others ($ref, allOf, anyOf, oneOf),
// those of a bare part have been followed.
type part struct {
	schema *value
	any    []*value // in place of a schema: one of these
	bare   bool
}

// conjunction is the values that meet all of some schemas.
func (c *schemaCompiler) conjunction(all []*value, depth int) expr {
	parts := make([]part, len(all))
	refers := false
	for i, s := range all {
		parts[i].schema = s
		refers = refers || s.kind == '{' && s.get("$ref") != nil
	}
	if !refers {
		return c.join(parts, depth)
	}
	key := c.key(all)
	r, ok := c.rules[key]
	if !ok {
		r = &rule{}
		c.rules[key] = r
		r.body = c.join(parts, depth)
	}
	return r
}

// key names a set of schemas.
func (c *schemaCompiler) key(all []*value) string {
	var ids []int
	for _, s := range all {
		id, ok := c.numbers[s]
		if !ok {
			id = len(c.numbers)
			c.numbers[s] = id
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return fmt.Sprint(slices.Compact(ids))
}

// join follows the keywords that join schemas: it is the union over the branches of every
// anyOf and oneOf of what all the schemas of a branch say.
func (c *schemaCompiler) join(parts []part, depth int) expr {
	if c.err != nil || !c.w.budget.spend(1, joinWork) {
		return alternative{}
	}
	if depth > maxInline {
		return c.fail(last(parts), "schemas are nested more than %d deep", maxInline)
	}
	// A schema that is one reference is that reference's own rule.
	if len(parts) == 1 && !parts[0].bare && onlyRef(parts[0].schema) {
		to := c.resolve(parts[0].schema)
		if to == nil || !c.acyclic(parts[0].schema) {
			return alternative{}
		}
		return c.target(to, depth)
	}
	flat, choices := c.flatten(parts, nil, nil, map[*value]bool{})
	if c.err != nil {
		return alternative{}
	}
	if len(choices) == 0 {
		return c.plain(flat, depth)
	}
	var out alternative
	for _, branch := range choices[0] {
		next := make([]part, 0, len(flat)+len(choices))
		for _, s := range flat {
			next = append(next, part{schema: s, bare: true})
		}
		for _, more := range choices[1:] {
			next = append(next, part{any: more})
		}
		if next = append(next, part{schema: branch}); len(next) == 1 || vacuous(flat) && len(choices) == 1 {
			out = append(out, c.conjunction([]*value{branch}, depth+1))
			continue
		}
		out = append(out, c.join(next, depth+1))
	}
	return out
}

// target is the rule of what a reference refers to.
func (c *schemaCompiler) target(to *value, depth int) expr {
	key := "→" + c.key([]*value{to})
	r, ok := c.rules[key]
	if !ok {
		r = &rule{}
		c.rules[key] = r
		r.body = c.join([]part{{schema: to}}, depth+1)
	}
	return r
}

func last(parts []part) *value {
	for _, p := range slices.Backward(parts) {
		if p.schema != nil {
			return p.schema
		}
	}
	return nil
}

// annotations are keywords that allow and forbid nothing here.
var annotations = map[string]bool{
	"title": true, "description": true, "default": true, "examples": true, "example": true, "deprecated": true, "readOnly": true,
	"writeOnly": true, "$schema": true, "$id": true, "id": true, "$comment": true, "$defs": true, "definitions": true, "$anchor": true,
	"discriminator": true, "strict": true, "externalDocs": true, "xml": true, "contentMediaType": true, "contentEncoding": true,
	"$vocabulary": true,
}

func annotation(name string) bool { return annotations[name] || strings.HasPrefix(name, "x-") }

func onlyRef(s *value) bool {
	if s.kind != '{' || s.get("$ref") == nil {
		return false
	}
	for _, m := range s.members {
		if m.name != "$ref" && !annotation(m.name) {
			return false
		}
	}
	return true
}

// vacuous reports whether schemas without their joining keywords say nothing.
func vacuous(all []*value) bool {
	for _, s := range all {
		for _, m := range s.members {
			if !annotation(m.name) && !joins[m.name] {
				return false
			}
		}
	}
	return true
}

var joins = map[string]bool{"$ref": true, "allOf": true, "anyOf": true, "oneOf": true}

// flatten follows $ref and allOf, and collects the choices of anyOf and oneOf.
func (c *schemaCompiler) flatten(parts []part, flat []*value, choices [][]*value, seen map[*value]bool) ([]*value, [][]*value) {
	for _, p := range parts {
		if c.err != nil || !c.w.budget.spend(0, 50) {
			return flat, choices
		}
		if p.any != nil {
			choices = append(choices, p.any)
			continue
		}
		s := p.schema
		if seen[s] {
			continue
		}
		seen[s] = true
		if !c.acyclic(s) {
			return flat, choices
		}
		if s.kind == 't' {
			continue
		}
		if s.kind != '{' && s.kind != 'f' {
			c.fail(s, "a schema is an object, true or false")
			return flat, choices
		}
		flat = append(flat, s)
		if p.bare || s.kind == 'f' {
			continue
		}
		if s.get("$ref") != nil {
			if to := c.resolve(s); to != nil {
				flat, choices = c.flatten([]part{{schema: to}}, flat, choices, seen)
			}
		}
		for _, name := range []string{"allOf", "anyOf", "oneOf"} {
			list := s.get(name)
			if list == nil {
				continue
			}
			if list.kind != '[' || len(list.items) == 0 {
				c.fail(list, "it must be a list of schemas with at least one")
				return flat, choices
			}
			if name == "allOf" {
				for _, sub := range list.items {
					flat, choices = c.flatten([]part{{schema: sub}}, flat, choices, seen)
				}
				continue
			}
			if name == "oneOf" {
				c.checkDisjoint(list)
			}
			choices = append(choices, list.items)
		}
	}
	return flat, choices
}
