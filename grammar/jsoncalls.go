package grammar

import (
	"strings"
)

// Calls whose arguments are a JSON object.

// named is one call as a JSON object, from its name on: what comes before the name's colon
// has been written. key is the name of the arguments.
func (c *callWriter) named(key string) expr {
	var out alternative
	for i, t := range c.tools {
		out = append(out, sequence{c.literal(":"), c.space, c.compile(jsonText(t.Name)), c.literal(","), c.space,
			c.key(key), c.space, c.args[i], c.space, c.literal("}")})
	}
	return out
}

// further is calls after the first one: each begins with a separator.
func (c *callWriter) further(separator *pattern, call expr) expr {
	if c.single {
		return sequence{}
	}
	more := &repeated{}
	more.body = sequence{c.compile(separator), call}
	return more
}

// repeated is any number of a part, which must not be empty.
type repeated struct{ body expr }

func (r *repeated) build(b *builder, next int32) int32 {
	loop := b.add(state{})
	b.states[loop].or = []int32{next}
	first := r.body.build(b, loop)
	b.states[loop].or = []int32{next, first}
	return loop
}

// hermesCalls follow <tool_call>.
func hermesCalls(c *callWriter) expr {
	line := c.compile(optionOf(textOf("\n")))
	call := &rule{sequence{line, c.literal("{"), c.space, c.literal(`"name"`), c.named("arguments"), line, c.compile(marker("</tool_call>"))}}
	return sequence{call, c.further(seqOf(repeatOf(textOf("\n"), 0, 2), marker("<tool_call>")), call)}
}

var llama3Format = callFormat{
	opens:    altOf(seqOf(textOf("\n"), llama3Name()), seqOf(specialOf(pythonTag), llama3Name())),
	atStart:  altOf(llama3Name(), seqOf(specialOf(pythonTag), llama3Name())),
	required: seqOf(optionOf(specialOf(pythonTag)), textOf(`{"name"`)),
	call:     llama3Calls,
}

const pythonTag = "<|python_tag|>"

// llama3Name is the beginning of a call, as it may be at the beginning of a line.
func llama3Name() *pattern {
	return seqOf(starOf(oneOfBytes(" \t")), textOf("{"), starOf(oneOfBytes(" \t\n")), textOf(`"name"`))
}

// llama3Calls follow {"name".
func llama3Calls(c *callWriter) expr {
	call := &rule{c.named("parameters")}
	return sequence{call, c.further(seqOf(textOf(";"), optionOf(oneOfBytes(" \n")), textOf(`{"name"`)), call)}
}

// mistralCalls follow [TOOL_CALLS]: a list of objects, or a name, [ARGS] and the arguments.
func mistralCalls(c *callWriter) expr {
	id := c.compile(seqOf(textOf(`"`), repeatOf(altOf(bytesOf('0', '9'), bytesOf('a', 'z'), bytesOf('A', 'Z')), 9, 9), textOf(`"`)))
	objects := sequence{c.compile(optionOf(textOf(" "))), c.list(c.function, pair{c.key("id"), id})}
	var tagged alternative
	for i, t := range c.tools {
		if !strings.ContainsAny(t.Name, " \t\r\n[]{}\"") && len(t.Name) <= maxName {
			tagged = append(tagged, sequence{c.compile(seqOf(textOf(t.Name), marker("[ARGS]"))), c.args[i]})
		}
	}
	call := &rule{tagged}
	return alternative{objects, sequence{call, c.further(marker("[TOOL_CALLS]"), call)}}
}

// list is a JSON list of calls, each an object of the properties of a tool, and of others that
// may be left out.
func (c *callWriter) list(properties func(tool int) []pair, optional ...pair) expr {
	var calls alternative
	for i := range c.tools {
		o := &objectExpr{w: c.writer, most: int(none)}
		for _, p := range properties(i) {
			o.declared, o.required = append(o.declared, p), append(o.required, true)
		}
		for _, p := range optional {
			o.declared, o.required = append(o.declared, p), append(o.required, false)
		}
		calls = append(calls, o)
	}
	most := -1
	if c.single {
		most = 1
	}
	return &arrayExpr{w: c.writer, rest: &rule{calls}, least: 1, most: most}
}

// function is the properties of a call: its name and its arguments.
func (c *callWriter) function(tool int) []pair {
	return []pair{{c.key("name"), c.compile(jsonText(c.tools[tool].Name))}, {c.key("arguments"), c.args[tool]}}
}

// graniteCalls follow <|tool_call|>. Phi-4-mini closes them, Granite does not.
func graniteCalls(c *callWriter) expr {
	return sequence{c.list(c.function), c.compile(optionOf(marker("<|/tool_call|>")))}
}

// nemotronCalls follow <TOOLCALL>.
func nemotronCalls(c *callWriter) expr {
	return sequence{c.list(c.function), c.compile(marker("</TOOLCALL>"))}
}

// objectsCalls follow <tool_calls>: a list, or one object a line.
func objectsCalls(c *callWriter) expr {
	call := &rule{sequence{c.literal("{"), c.space, c.literal(`"name"`), c.named("arguments")}}
	line := c.compile(optionOf(textOf("\n")))
	calls := alternative{c.list(c.function), sequence{call, c.further(textOf("\n"), call)}}
	return sequence{line, calls, line, c.compile(marker("</tool_calls>"))}
}

// apertusCalls follow <|tools_prefix|>: a list of {name: arguments}.
func apertusCalls(c *callWriter) expr {
	list := c.list(func(i int) []pair { return []pair{{c.key(c.tools[i].Name), c.args[i]}} })
	return sequence{list, c.compile(marker("<|tools_suffix|>"))}
}

// cohereCalls follow <|START_ACTION|>.
func cohereCalls(c *callWriter) expr {
	number := c.compile(seqOf(textOf(`"`), digits(1, 3), textOf(`"`)))
	list := c.list(func(i int) []pair {
		name := c.compile(jsonText(c.tools[i].Name))
		return []pair{{c.key("tool_call_id"), number}, {c.key("tool_name"), name}, {c.key("parameters"), c.args[i]}}
	})
	return sequence{list, c.compile(marker("<|END_ACTION|>"))}
}

// section is calls that each have an opening, the words before their arguments, and an end.
func (c *callWriter) section(open, shut *pattern, header func(name string) *pattern, between *pattern, end string) expr {
	var calls alternative
	for i, t := range c.tools {
		calls = append(calls, sequence{c.compile(header(t.Name)), c.args[i]})
	}
	call := &rule{sequence{calls, c.compile(shut)}}
	return sequence{c.compile(open), call, c.further(seqOf(between, open), call), c.compile(marker(end))}
}

// kimiCalls follow <|tool_calls_section_begin|>.
func kimiCalls(c *callWriter) expr {
	return c.section(marker("<|tool_call_begin|>"), marker("<|tool_call_end|>"), func(name string) *pattern {
		return seqOf(textOf("functions."+name+":"), digits(1, 3), marker("<|tool_call_argument_begin|>"))
	}, seqOf(), "<|tool_calls_section_end|>")
}

// deepseekCalls follow <｜tool▁calls▁begin｜>, as V3.1 writes them.
func deepseekCalls(c *callWriter) expr {
	return c.section(marker("<｜tool▁call▁begin｜>"), marker("<｜tool▁call▁end｜>"), func(name string) *pattern {
		return seqOf(textOf(name), marker("<｜tool▁sep｜>"))
	}, seqOf(), "<｜tool▁calls▁end｜>")
}

// deepseekR1Calls follow <｜tool▁calls▁begin｜>, as R1 and the first V3 write them.
func deepseekR1Calls(c *callWriter) expr {
	return c.section(marker("<｜tool▁call▁begin｜>"), seqOf(textOf("\n```"), marker("<｜tool▁call▁end｜>")), func(name string) *pattern {
		return seqOf(textOf("function"), marker("<｜tool▁sep｜>"), textOf(name+"\n```json\n"))
	}, optionOf(textOf("\n")), "<｜tool▁calls▁end｜>")
}

// plainName reports whether a name has none of the marks around it.
func plainName(name string) bool {
	return len(name) <= maxName && !strings.ContainsAny(name, " \t\r\n<>{}[]()|:`'\"=,")
}

const maxName = 200 // bytes of a tool's name that readers take
