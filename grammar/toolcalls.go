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
	Tags     [2]string // of the thinking; zero: <think> and </think>
}

// callFormat is how a family writes calls.
type callFormat struct {
	// opens are texts that end in the opening of a call, which follow any other text. atStart:
	// the same at the beginning of a reply.
	opens, atStart *pattern
	// required is what comes first in a reply that must be calls.
	required *pattern
	// call is what follows an opening, all further calls included.
	call func(c *callWriter) expr
	// arguments are what a tool takes, as the family writes it; nil: an object.
	arguments func(w *writer, t Tool) (compiled, error)
	spelling  *spelling // of values; nil: as JSON
	compact   bool      // there is no white space in them
	// never is text that no reply has outside of calls.
	never *pattern
	// outside are special tokens that a reply may have outside of calls.
	outside []string
	// name reports whether a tool's name can be written; nil: any can.
	name func(string) bool
	// channels: a reply is messages, each with a header, as gpt-oss writes it. Only call is
	// given, which is what such a message of a call is from its channel's token on.
	channels bool
}

// opened is a format of calls that one text opens.
func opened(opening string, f callFormat) callFormat {
	f.opens, f.atStart, f.required = marker(opening), marker(opening), marker(opening)
	return f
}

var callFormats = map[string]callFormat{
	"hermes":        opened("<tool_call>", callFormat{call: hermesCalls}),
	"hermes-text":   opened("<tool_call>", callFormat{call: hermesCalls}),
	"llama3-json":   llama3Format,
	"llama3-python": llama3Format,
	"mistral":       opened("[TOOL_CALLS]", callFormat{call: mistralCalls}),
	"granite":       opened("<|tool_call|>", callFormat{call: graniteCalls}),
	"nemotron":      opened("<TOOLCALL>", callFormat{call: nemotronCalls}),
	"tool-calls":    opened("<tool_calls>", callFormat{call: objectsCalls}),
	"apertus":       opened("<|tools_prefix|>", callFormat{call: apertusCalls}),
	"cohere": opened("<|START_ACTION|>", callFormat{call: cohereCalls,
		outside: []string{"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"}}),
	"kimi":        opened("<|tool_calls_section_begin|>", callFormat{call: kimiCalls, name: plainName}),
	"deepseek-v3": opened("<｜tool▁calls▁begin｜>", callFormat{call: deepseekCalls, name: plainName}),
	"deepseek-r1": opened("<｜tool▁calls▁begin｜>", callFormat{call: deepseekR1Calls, name: plainName}),
	"lfm2": opened("<|tool_call_start|>",
		callFormat{call: lfm2Calls, arguments: pythonArguments, spelling: asPython, name: pythonName}),
	"olmo3": opened("<function_calls>",
		callFormat{call: olmo3Calls, arguments: pythonArguments, spelling: asPython, name: pythonName}),
	"gemma4":  opened("<|tool_call>", callFormat{call: gemma4Calls, spelling: asGemma, compact: true, name: gemmaName}),
	"gpt-oss": {call: harmonyCall, name: plainName, channels: true},

	"qwen3-coder":   opened("<tool_call>", callFormat{call: coderForm.calls, arguments: coderForm.arguments, never: textOf("<function=")}),
	"seed-oss":      opened("<seed:tool_call>", callFormat{call: seedForm.calls, arguments: seedForm.arguments, spelling: asPython}),
	"glm":           opened("<tool_call>", callFormat{call: glmForm.calls, arguments: glmForm.arguments}),
	"minimax":       opened("<minimax:tool_call>", callFormat{call: minimaxForm.calls, arguments: minimaxForm.arguments}),
	"deepseek-v3.2": dsmlFormat,
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
	if format.compact {
		o.Compact = true
	}
	if format.spelling == nil {
		format.spelling = asJSON
	}
	if format.arguments == nil {
		format.arguments = objectArguments
	}
	c := &callWriter{writer: newWriter(o, format.spelling), tools: calls.Tools, single: calls.Single}
	for _, tool := range calls.Tools {
		args, err := format.argumentsOf(c.writer, tool)
		if err == nil { // a tool that could never be called is an error of its own
			_, err = finish(args.expr, c.budget, args.nothing)
		}
		if err != nil {
			return nil, fmt.Errorf("tool %s: %w", quoted(tool.Name), err)
		}
		c.args = append(c.args, args.expr)
	}
	g, err := finish(c.reply(format, calls), c.budget, nil)
	if err != nil {
		return nil, fmt.Errorf("calls of tools: %w", err)
	}
	return g, nil
}

// argumentsOf are what a tool takes.
func (f callFormat) argumentsOf(w *writer, t Tool) (compiled, error) {
	if t.Name == "" || !utf8.ValidString(t.Name) {
		return compiled{}, errors.New("a tool needs a name in UTF-8")
	}
	if f.name != nil && !f.name(t.Name) {
		return compiled{}, errName
	}
	return f.arguments(w, t)
}

var errName = errors.New("its name cannot be written in this format of calls")

// reply is what a whole reply may be.
func (c *callWriter) reply(format callFormat, calls Calls) expr {
	call := &rule{format.call(c)}
	if format.channels {
		if calls.Required {
			return afterChannels(c.budget, call)
		}
		return afterChannels(c.budget, call, sequence{final(c.budget), harmonyText()})
	}
	reply := expr(sequence{c.compile(format.required), call})
	if !calls.Required {
		reply = alternative{
			sharedTerminal(calls.Format+" without calls", format.withoutCalls),
			sequence{sharedTerminal(calls.Format+" up to a call", format.upToCall), call},
		}
	}
	if calls.Thinking == ThinkingNever {
		return reply
	}
	tags := calls.Tags
	if tags[0] == "" {
		tags = [2]string{"<think>", "</think>"}
	}
	thought := sharedTerminal("reasoning before "+tags[1], func(b *budget) *terminal { return b.thought(marker(tags[1])) })
	return c.budget.afterThinking(calls.Thinking, marker(tags[0]), thought, reply)
}

// free is text that may come before a call.
func (f callFormat) free(b *budget) *pattern {
	text := altOf(runesOf(0, utf8.MaxRune))
	for _, token := range f.outside {
		text.subs = append(text.subs, specialOf(token))
	}
	free := dfaOf(b.compile(starOf(text)))
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
	if len(t.Parameters) == 0 || string(t.Parameters) == "null" {
		return compiled{expr: w.object}, nil
	}
	return compileSchema(w, t.Parameters, &value{kind: '{', members: []member{{"type", &value{kind: '"', text: "object"}}}})
}

// parametersOf are the properties of a tool's arguments, for a format that has no object around
// them; writes says which names it has a way to write.
func parametersOf(w *writer, t Tool, writes func(name string) bool) (*schemaCompiler, []*property, error) {
	text := t.Parameters
	if len(text) == 0 || string(text) == "null" {
		text = json.RawMessage(`{"type": "object", "properties": {}}`)
	}
	if !writes(t.Name) {
		return nil, nil, errName
	}
	c, err := newSchemaCompiler(w, text)
	if err != nil {
		return nil, nil, err
	}
	all, choices := c.flatten([]part{{schema: c.root}}, nil, nil, map[*value]bool{})
	for _, s := range all {
		switch {
		case s.kind == 'f':
			c.never(s, "it is false")
		case c.check(s) && typesOf(s)&typeObject == 0:
			c.never(s, "arguments are an object")
		}
	}
	if len(choices) > 0 {
		c.fail(c.root, "anyOf and oneOf of whole arguments are not supported in this format of calls")
	}
	var out []*property
	for _, p := range c.properties(all) {
		switch {
		case p.false && p.required:
			c.never(c.root, "property %s is required and forbidden", quoted(p.name))
		case p.false:
			continue
		case !writes(p.name):
			c.fail(c.root, "the property %s cannot be written in this format of calls", quoted(p.name))
		}
		out = append(out, p)
	}
	if c.err == nil && c.nothing != nil {
		c.err = c.nothing
	}
	return c, out, c.err
}
