package grammar

import (
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// Calls of Qwen3-Coder and Qwen3.5: values are bare text, or JSON where the schema has no string.

const coderClose = "\n</parameter>\n"

// coderCalls follow <tool_call>.
func coderCalls(c *callWriter) expr {
	var functions alternative
	for i, t := range c.tools {
		functions = append(functions, sequence{c.literal("\n<function=" + t.Name + ">\n"), c.args[i]})
	}
	call := &rule{sequence{functions, c.compile(seqOf(textOf("</function>\n"), marker("</tool_call>")))}}
	return sequence{call, c.further(seqOf(repeatOf(textOf("\n"), 0, 2), marker("<tool_call>")), call)}
}

// coderArguments are a tool's parameters, in the schema's order.
func coderArguments(w *writer, t Tool) (compiled, error) {
	text := t.Parameters
	if len(text) == 0 || string(text) == "null" {
		text = json.RawMessage(`{"type": "object", "properties": {}}`)
	}
	c, err := newSchemaCompiler(w, text)
	if err != nil {
		return compiled{}, err
	}
	if strings.ContainsAny(t.Name, "<>\n") || strings.TrimSpace(t.Name) != t.Name || t.Name == "" {
		c.fail(c.root, "the name of the tool cannot be written in this format")
	}
	return c.result(coderCompiler{c}.parameters())
}

// coderCompiler turns the schema of arguments into their form.
type coderCompiler struct{ *schemaCompiler }

func (c coderCompiler) parameters() expr {
	all, choices := c.flatten([]part{{schema: c.root}}, nil, nil, map[*value]bool{})
	for _, s := range all {
		if s.kind == 'f' || !c.check(s) {
			return c.never(s, "it is false")
		}
		if typesOf(s)&typeObject == 0 {
			return c.never(s, "arguments are an object")
		}
	}
	if len(choices) > 0 {
		return c.fail(c.root, "anyOf and oneOf of whole arguments are not supported in this format of calls")
	}
	var out sequence
	for _, p := range c.properties(all) {
		switch {
		case p.false && p.required:
			return c.never(c.root, "property %s is required and forbidden", quoted(p.name))
		case p.false:
			continue
		case strings.ContainsAny(p.name, "<>\n") || strings.TrimSpace(p.name) != p.name || p.name == "":
			return c.fail(c.root, "the property %s cannot be written in this format of calls", quoted(p.name))
		}
		one := expr(sequence{c.w.literal("<parameter=" + p.name + ">\n"), c.value(p.schemas)})
		if !p.required {
			one = alternative{one, sequence{}}
		}
		out = append(out, one)
	}
	return out
}

// value is a value and what closes it. One that may be a string is always bare text, since
// its reader takes it for one.
func (c coderCompiler) value(schemas []*value) expr {
	parts := make([]part, len(schemas))
	for i, s := range schemas {
		parts[i].schema = s
	}
	all, choices := c.flatten(parts, nil, nil, map[*value]bool{})
	types := typeSet(typeAny)
	for _, s := range all {
		types &= typesOf(s)
	}
	for _, branches := range choices {
		var some typeSet
		for _, s := range branches {
			if s = c.follow(s); s != nil {
				some |= typesOf(s)
			}
		}
		types &= some
	}
	if types&typeString == 0 {
		return sequence{c.conjunction(schemas, 1), c.w.literal(coderClose)}
	}
	for _, branches := range choices {
		for _, s := range branches {
			if s = c.follow(s); s != nil && typesOf(s)&typeString != 0 && !bareString(s) {
				return c.fail(s, "strings with bounds in anyOf and oneOf are not supported in this format of calls")
			}
		}
	}
	return c.bareText(all)
}

// bareText is a string as bare text up to what closes it, which is not in the text.
func (c coderCompiler) bareText(all []*value) expr {
	t := sharedTerminal("text of a parameter", func(b *budget) *terminal {
		free, tag := dfaOf(anyText(b)), textOf("</parameter>")
		tagless := dfaOf(b.product(free.dfa, b.compile(seqOf(free, tag, free)), true))
		return b.product(b.thought(textOf(coderClose)), b.compile(seqOf(tagless, textOf(coderClose))), false)
	})
	keep := func(p *pattern) { t = c.w.budget.product(t, c.w.compile(seqOf(p, textOf(coderClose))), false) }
	for _, s := range all {
		if !c.check(s) {
			return alternative{}
		}
		if list := constants(s); list != nil {
			texts := altOf()
			for _, x := range list {
				switch x.kind {
				case '"':
					texts.subs = append(texts.subs, textOf(x.text))
				case 'n':
					texts.subs = append(texts.subs, textOf("null"))
				}
			}
			keep(texts)
		}
		if p := s.get("pattern"); p != nil {
			tree, err := parseRegexp(p.text, plainRunes{})
			if err != nil {
				return c.fail(p, "pattern: %v", err)
			}
			keep(tree.search)
		}
		if f := s.get("format"); f != nil {
			if c.format(f) == nil {
				return alternative{}
			}
			tree, err := parseRegexp(formats[f.text], plainRunes{})
			if err != nil {
				return c.fail(f, "format: %v", err)
			}
			keep(tree.whole)
		}
	}
	if least, most, at := c.counts(all, "minLength", "maxLength", 1000); least > 0 || most >= 0 {
		if most == 1000 || least == 1000 {
			return c.fail(at, "lengths below 1000 are supported in this format of calls")
		}
		keep(repeatOf(dfaOf(c.w.compile(runesOf(0, utf8.MaxRune))), least, most))
	}
	if t.begin == none {
		return c.never(c.root, "no text meets a parameter's pattern, format and lengths")
	}
	return t
}

// bareString reports whether a schema says nothing about strings.
func bareString(s *value) bool {
	for _, m := range s.members {
		if t, known := keywordTypes[m.name]; known && m.name != "type" && m.name != "nullable" && (t == 0 || t&typeString != 0) {
			return false
		}
	}
	return true
}
