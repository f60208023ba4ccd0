package grammar

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Calls whose arguments are bare text, or a value where the schema has no string.

// textForm is how a family writes such calls.
type textForm struct {
	family   string
	function func(name string) *pattern // the beginning of a call of a tool, which follows its opening
	end      *pattern                   // of a call
	again    *pattern                   // opens a further call
	shut     *pattern                   // behind the last one
	open     func(name string, text bool) *pattern
	close    *pattern // of a parameter
	tag      string   // in close: no text has it
	kinds    bool     // open says whether a value is text, so that it may be either
	names    string   // what no name has
}

var nextCall = seqOf(repeatOf(textOf("\n"), 0, 2), marker("<tool_call>"))

// coderForm follows <tool_call>, as Qwen3-Coder and Qwen3.5 write it.
var coderForm = &textForm{
	family:   "qwen3-coder",
	function: func(name string) *pattern { return textOf("\n<function=" + name + ">\n") },
	end:      seqOf(textOf("</function>\n"), marker("</tool_call>")), again: nextCall, shut: seqOf(),
	open:  func(name string, _ bool) *pattern { return textOf("<parameter=" + name + ">\n") },
	close: textOf("\n</parameter>\n"), tag: "</parameter>", names: "<>\n",
}

// seedForm follows <seed:tool_call>.
var seedForm = &textForm{
	family:   "seed-oss",
	function: coderForm.function,
	end:      seqOf(textOf("</function>\n"), marker("</seed:tool_call>")), shut: seqOf(),
	again: seqOf(repeatOf(textOf("\n"), 0, 2), marker("<seed:tool_call>")),
	open:  func(name string, _ bool) *pattern { return textOf("<parameter=" + name + ">") },
	close: textOf("</parameter>\n"), tag: "</parameter>", names: "<>\n",
}

// glmForm follows <tool_call>, as GLM-4.5 and later write it: with line breaks or without.
var glmForm = &textForm{
	family:   "glm",
	function: textOf, end: seqOf(optionOf(textOf("\n")), marker("</tool_call>")), again: nextCall, shut: seqOf(),
	open: func(name string, _ bool) *pattern {
		line := optionOf(textOf("\n"))
		return seqOf(line, marker("<arg_key>"), textOf(name), marker("</arg_key>"), line, marker("<arg_value>"))
	},
	close: marker("</arg_value>"), tag: "</arg_value>", names: "<>\n{",
}

// minimaxForm follows <minimax:tool_call>.
var minimaxForm = &textForm{
	family:   "minimax",
	function: func(name string) *pattern { return textOf("\n<invoke name=\"" + name + "\">\n") },
	end:      textOf("</invoke>"), again: seqOf(), shut: seqOf(textOf("\n"), marker("</minimax:tool_call>")),
	open:  func(name string, _ bool) *pattern { return textOf("<parameter name=\"" + name + "\">") },
	close: textOf("</parameter>\n"), tag: "</parameter>", names: "<>\n\"'",
}

// dsml is a tag of DeepSeek V3.2's.
func dsml(before, after string) *pattern {
	return seqOf(textOf(before), marker("｜DSML｜"), textOf(after))
}

// dsmlForm follows <｜DSML｜function_calls>, as DeepSeek V3.2 writes it, or tool_calls, as V4 does.
var dsmlForm = &textForm{
	family:   "deepseek-v3.2",
	function: func(name string) *pattern { return seqOf(textOf("\n"), dsml("<", "invoke name=\""+name+"\">\n")) },
	end:      dsml("</", "invoke>"), again: seqOf(),
	shut: seqOf(textOf("\n"), altOf(dsml("</", "function_calls>"), dsml("</", "tool_calls>"))),
	open: func(name string, text bool) *pattern {
		kind := "false"
		if text {
			kind = "true"
		}
		return dsml("<", "parameter name=\""+name+"\" string=\""+kind+"\">")
	},
	close: seqOf(dsml("</", "parameter>"), textOf("\n")), tag: "</｜DSML｜parameter>", kinds: true, names: "<>\n\"'",
}

var dsmlFormat = func() callFormat {
	section := altOf(dsml("<", "function_calls>"), dsml("<", "tool_calls>"))
	return callFormat{opens: section, atStart: section, required: section, call: dsmlForm.calls, arguments: dsmlForm.arguments}
}()

// calls follow the opening of the first one.
func (f *textForm) calls(c *callWriter) expr {
	var functions alternative
	for i, t := range c.tools {
		functions = append(functions, sequence{c.compile(f.function(t.Name)), c.args[i]})
	}
	call := &rule{sequence{functions, c.compile(f.end)}}
	return sequence{call, c.further(f.again, call), c.compile(f.shut)}
}

func (f *textForm) writes(name string) bool {
	return name != "" && len(name) <= maxName && strings.TrimSpace(name) == name && !strings.ContainsAny(name, f.names)
}

// arguments are a tool's parameters, in the schema's order.
func (f *textForm) arguments(w *writer, t Tool) (compiled, error) {
	c, properties, err := parametersOf(w, t, f.writes)
	if err != nil {
		return compiled{}, err
	}
	text := textCompiler{c, f}
	var out sequence
	for _, p := range properties {
		one := text.parameter(p)
		if !p.required {
			one = alternative{one, sequence{}}
		}
		out = append(out, one)
	}
	return c.result(out)
}

// textCompiler turns the schemas of parameters into their form.
type textCompiler struct {
	*schemaCompiler
	*textForm
}

// parameter is a value between what opens and closes it. One that may be a string is always bare
// text where its reader cannot tell: it takes it for one.
func (c textCompiler) parameter(p *property) expr {
	types, choices, all := c.typesOf(p.schemas)
	value := func(schemas []*value) expr {
		return sequence{c.w.compile(c.open(p.name, false)), c.conjunction(schemas, 1), c.w.compile(c.close)}
	}
	if types&typeString == 0 {
		return value(p.schemas)
	}
	for _, branches := range choices {
		for _, s := range branches {
			if s = c.follow(s); s != nil && typesOf(s)&typeString != 0 && !bareString(s) {
				return c.fail(s, "strings with bounds in anyOf and oneOf are not supported in this format of calls")
			}
		}
	}
	text := sequence{c.w.compile(c.open(p.name, true)), c.bareText(all)}
	if !c.kinds || types&^typeString == 0 {
		return text
	}
	return alternative{text, value(append(slices.Clip(p.schemas), noString))}
}

// noString is the schema of any value that is no string.
var noString = func() *value {
	list := &value{kind: '['}
	for _, name := range []string{"null", "boolean", "number", "array", "object"} {
		list.items = append(list.items, &value{kind: '"', text: name})
	}
	return &value{kind: '{', members: []member{{"type", list}}}
}()

// typesOf are the types that some schemas leave, their choices, and what they say besides.
func (c textCompiler) typesOf(schemas []*value) (types typeSet, choices [][]*value, all []*value) {
	parts := make([]part, len(schemas))
	for i, s := range schemas {
		parts[i].schema = s
	}
	all, choices = c.flatten(parts, nil, nil, map[*value]bool{})
	types = typeAny
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
	return types, choices, all
}

// bareText is a string as bare text up to what closes it, which is not in the text.
func (c textCompiler) bareText(all []*value) expr {
	t := sharedTerminal("text of a parameter of "+c.family, func(b *budget) *terminal {
		tagless := b.compile(seqOf(dfaOf(textWithout(b, c.tag)), c.close))
		return b.product(b.thought(c.close), tagless, false)
	})
	keep := func(p *pattern) { t = c.w.budget.product(t, c.w.compile(seqOf(p, c.close)), false) }
	for _, s := range all {
		if !c.check(s) {
			return alternative{}
		}
		if list := constants(s); list != nil {
			texts := altOf()
			for _, x := range list {
				switch {
				case x.kind == '"':
					texts.subs = append(texts.subs, textOf(x.text))
				case x.kind == 'n' && !c.kinds:
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
	if least, most, at := c.counts(all, "minLength", "maxLength", maxTable); least > 0 || most >= 0 {
		if most == maxTable || least == maxTable {
			return c.fail(at, "lengths below %d are supported in this format of calls", maxTable)
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
