package grammar

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Tool is a function that a model may call.
type Tool struct {
	Name       string
	Parameters json.RawMessage // a JSON schema of an object; empty: any object
}

// Calls describes replies with calls of tools.
type Calls struct {
	Format   string // a format of model/chat: one of CallFormats
	Tools    []Tool
	Required bool // the reply is calls (tool_choice required, or one Tool: a named function); else text may come, and no call need
	Single   bool // at most one call
	Thinking Thinking
}

// callFormat is how a family writes calls.
type callFormat struct {
	think [2]*pattern // tags of reasoning
	// opens are texts that end in the opening of a call, which follow any other text. atStart:
	// the same at the beginning of a reply.
	opens, atStart *pattern
	// call is what follows an opening, all further calls included.
	call func(c *callWriter) expr
	// arguments are what a tool takes, as the family writes it; nil: a JSON object.
	arguments func(w *writer, t Tool) (compiled, error)
	// never is text that no reply has outside of calls.
	never *pattern
	// required is what comes first in a reply that must be calls.
	required *pattern
}

var callFormats = map[string]callFormat{
	"hermes": {
		think: [2]*pattern{marker("<think>"), marker("</think>")},
		opens: marker("<tool_call>"), atStart: marker("<tool_call>"), required: marker("<tool_call>"), call: hermesCalls,
	},
	"qwen3-coder": {
		think: [2]*pattern{marker("<think>"), marker("</think>")}, never: textOf("<function="),
		opens: marker("<tool_call>"), atStart: marker("<tool_call>"), required: marker("<tool_call>"),
		call: coderCalls, arguments: coderArguments,
	},
	"llama3-json":   llama3Format,
	"llama3-python": llama3Format,
	"mistral": {
		think: [2]*pattern{marker("[THINK]"), marker("[/THINK]")},
		opens: marker("[TOOL_CALLS]"), atStart: marker("[TOOL_CALLS]"), required: marker("[TOOL_CALLS]"), call: mistralCalls,
	},
}

var llama3Format = callFormat{
	think:    [2]*pattern{marker("<think>"), marker("</think>")},
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

// CallFormats are the formats of calls that ToolCalls has a grammar for.
func CallFormats() []string { return slices.Sorted(maps.Keys(callFormats)) }

// callWriter makes the grammar of the calls of some tools.
type callWriter struct {
	*writer
	tools  []Tool
	args   []expr // of each tool
	single bool
}

// ToolCalls is the replies of a family with calls of tools, whose arguments meet the tools'
// schemas. A reply that need not call may be any text, and once it has the opening of a call,
// the call is well-formed and nothing but calls follows.
func ToolCalls(calls Calls, o Options) (*Grammar, error) {
	format, ok := callFormats[calls.Format]
	switch {
	case !ok:
		return nil, fmt.Errorf("calls of the format %s have no grammar; there are %s", quoted(calls.Format), strings.Join(CallFormats(), ", "))
	case len(calls.Tools) == 0:
		return nil, errors.New("there are no tools")
	}
	c := &callWriter{writer: newWriter(o), tools: calls.Tools, single: calls.Single}
	arguments := format.arguments
	if arguments == nil {
		arguments = objectArguments
	}
	for _, tool := range calls.Tools {
		args, err := arguments(c.writer, tool)
		if err == nil { // a tool that could never be called is an error of its own
			_, err = finish(args.expr, c.budget, args.nothing)
		}
		if err != nil {
			return nil, fmt.Errorf("tool %s: %w", quoted(tool.Name), err)
		}
		c.args = append(c.args, args.expr)
	}
	call := &rule{format.call(c)}
	reply := expr(sequence{c.compile(format.required), call})
	if !calls.Required {
		reply = alternative{
			sharedTerminal(calls.Format+" without calls", format.withoutCalls),
			sequence{sharedTerminal(calls.Format+" up to a call", format.upToCall), call},
		}
	}
	if calls.Thinking != ThinkingNever {
		thought := sharedTerminal(calls.Format+" reasoning", func(b *budget) *terminal { return b.thought(format.think[1]) })
		reply = c.budget.afterThinking(calls.Thinking, format.think[0], thought, reply)
	}
	g, err := finish(reply, c.budget, nil)
	if err != nil {
		return nil, fmt.Errorf("calls of tools: %w", err)
	}
	return g, nil
}

// free is text that may come before a call.
func (f callFormat) free(b *budget) *pattern {
	free := dfaOf(anyText(b))
	if f.never != nil {
		free = dfaOf(b.product(free.dfa, b.compile(seqOf(free, f.never, free)), true))
	}
	return free
}

func (f callFormat) opened(b *budget) *pattern { return altOf(f.atStart, seqOf(f.free(b), f.opens)) }

// upToCall is any text up to and with the first opening of a call.
func (f callFormat) upToCall(b *budget) *terminal { return firstMatch(b.compile(f.opened(b))) }

// withoutCalls is any text that has no opening of a call.
func (f callFormat) withoutCalls(b *budget) *terminal {
	free := f.free(b)
	return b.product(free.dfa, b.compile(seqOf(f.opened(b), free)), true)
}

// objectArguments is the objects that a tool takes.
func objectArguments(w *writer, t Tool) (compiled, error) {
	if t.Name == "" || !utf8.ValidString(t.Name) {
		return compiled{}, errors.New("a tool needs a name in UTF-8")
	}
	if len(t.Parameters) == 0 || string(t.Parameters) == "null" {
		return compiled{expr: w.object}, nil
	}
	return compileSchema(w, t.Parameters, &value{kind: '{', members: []member{{"type", &value{kind: '"', text: "object"}}}})
}

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

// llama3Calls follow {"name".
func llama3Calls(c *callWriter) expr {
	call := &rule{c.named("parameters")}
	return sequence{call, c.further(seqOf(textOf(";"), optionOf(oneOfBytes(" \n")), textOf(`{"name"`)), call)}
}

// mistralCalls follow [TOOL_CALLS]: a list of objects, or a name, [ARGS] and the arguments.
func mistralCalls(c *callWriter) expr {
	var list alternative
	id := c.compile(seqOf(textOf(`"`), repeatOf(altOf(bytesOf('0', '9'), bytesOf('a', 'z'), bytesOf('A', 'Z')), 9, 9), textOf(`"`)))
	for i, t := range c.tools {
		list = append(list, &objectExpr{w: c.writer, most: int(none), required: []bool{true, true, false}, declared: []pair{
			{c.key("name"), c.compile(jsonText(t.Name))}, {c.key("arguments"), c.args[i]}, {c.key("id"), id}}})
	}
	most := -1
	if c.single {
		most = 1
	}
	objects := sequence{c.compile(optionOf(textOf(" "))), &arrayExpr{w: c.writer, rest: &rule{list}, least: 1, most: most}}
	var tagged alternative
	for i, t := range c.tools {
		if !strings.ContainsAny(t.Name, " \t\r\n[]{}\"") && len(t.Name) <= 200 {
			tagged = append(tagged, sequence{c.compile(seqOf(textOf(t.Name), marker("[ARGS]"))), c.args[i]})
		}
	}
	call := &rule{tagged}
	return alternative{objects, sequence{call, c.further(marker("[TOOL_CALLS]"), call)}}
}
