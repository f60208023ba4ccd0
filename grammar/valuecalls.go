package grammar

import (
	"regexp"
	"slices"
)

// Calls whose arguments are spelled otherwise than JSON, and those of gpt-oss.

var pythonWord = regexp.MustCompile(`^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$`)

func pythonName(name string) bool { return pythonWord.MatchString(name) && len(name) <= maxName }

// pythonArguments are a tool's parameters by name, a=1, b="x", in the schema's order.
func pythonArguments(w *writer, t Tool) (compiled, error) {
	c, properties, err := parametersOf(w, t, func(name string) bool { return pythonName(name) && !slices.Contains([]byte(name), '.') })
	if err != nil {
		return compiled{}, err
	}
	out := &byName{separator: w.compile(seqOf(textOf(","), optionOf(textOf(" "))))}
	for _, p := range properties {
		out.pairs = append(out.pairs, pair{w.literal(p.name + "="), c.conjunction(p.schemas, 1)})
		out.required = append(out.required, p.required)
	}
	return c.result(out)
}

// byName is values by name, with separators between.
type byName struct {
	separator *terminal
	pairs     []pair
	required  []bool
}

func (n *byName) build(b *builder, next int32) int32 {
	separate := func(to int32) int32 { return n.separator.build(b, to) }
	return inOrder(b, n.pairs, n.required, sequence{}, separate, next, next)
}

// pythonCalls are f(a=1) for each tool.
func (c *callWriter) pythonCalls() expr {
	var calls alternative
	for i, t := range c.tools {
		calls = append(calls, sequence{c.literal(t.Name + "("), c.args[i], c.literal(")")})
	}
	return &rule{calls}
}

// lfm2Calls follow <|tool_call_start|>.
func lfm2Calls(c *callWriter) expr {
	call := c.pythonCalls()
	return sequence{c.literal("["), call, c.further(seqOf(textOf(","), optionOf(textOf(" "))), call), c.literal("]"),
		c.compile(marker("<|tool_call_end|>"))}
}

// olmo3Calls follow <function_calls>: one call a line.
func olmo3Calls(c *callWriter) expr {
	call := c.pythonCalls()
	line := c.compile(optionOf(textOf("\n")))
	return sequence{line, call, c.further(textOf("\n"), call), line, c.compile(marker("</function_calls>"))}
}

var gemmaWord = regexp.MustCompile(`^[A-Za-z_][\w.\-]*$`)

func gemmaName(name string) bool { return gemmaWord.MatchString(name) && len(name) <= maxName }

// gemma4Calls follow <|tool_call>.
func gemma4Calls(c *callWriter) expr {
	var calls alternative
	for i, t := range c.tools {
		calls = append(calls, sequence{c.literal("call:" + t.Name), c.args[i]})
	}
	call := &rule{sequence{calls, c.compile(marker("<tool_call|>"))}}
	return sequence{call, c.further(marker("<|tool_call>"), call)}
}

// harmony are the tokens of gpt-oss's messages, which no text of a message spells.
var harmony = []string{"<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>", "<|return|>"}

func harmonyText() *terminal {
	return sharedTerminal("text of a message", func(b *budget) *terminal { return textWithout(b, harmony...) })
}

// afterChannels is a reply that ends with one of some messages, behind reasoning and words for
// the user before a call. The prompt has opened the first message: <|start|>assistant.
func afterChannels(b *budget, last ...expr) expr {
	before := seqOf(marker("<|channel|>"), altOf(textOf("analysis"), textOf("commentary")), marker("<|message|>"),
		dfaOf(harmonyText()), marker("<|end|>"), marker("<|start|>"), textOf("assistant"))
	return sequence{&repeated{&rule{b.compile(before)}}, alternative(last)}
}

// final is the header of what the user is told.
func final(b *budget) expr {
	return b.compile(seqOf(marker("<|channel|>"), textOf("final"), marker("<|message|>")))
}

// harmonyCall is the message of a call: its address stands before its channel or behind. The
// reply ends with it, since a stop token does.
func harmonyCall(c *callWriter) expr {
	channel := seqOf(marker("<|channel|>"), altOf(textOf("commentary"), textOf("analysis")))
	kind := optionOf(seqOf(optionOf(textOf(" ")), optionOf(marker("<|constrain|>")), textOf("json")))
	var calls alternative
	for i, t := range c.tools {
		to := textOf(" to=functions." + t.Name)
		calls = append(calls, sequence{c.compile(seqOf(altOf(seqOf(channel, to), seqOf(to, channel)), kind, marker("<|message|>"))), c.args[i]})
	}
	return calls
}

// InChannels is a grammar's texts as what gpt-oss tells the user, behind its reasoning.
func InChannels(g *Grammar) (*Grammar, error) {
	b := Options{}.budget()
	return finish(afterChannels(b, sequence{final(b), g.root}), b, nil)
}
