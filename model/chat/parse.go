package chat

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"unicode"

	"agentcli/traj"
)

// Names that ParserFor takes besides those of the formats.
const (
	ParserNone = "none" // only reasoning is split off
	ParserAuto = "auto" // what AutoParser says, of no model: hermes
)

// maxCalls is how many calls of a reply are read, good ones and bad ones: a
// model that repeats itself for ever costs no more than that.
const maxCalls = 256

const openThink, closeThink = "<think>", "</think>"

// format is how one family writes tool calls into its replies.
type format struct {
	name string
	// find is where the next call begins in text from position at on, or -1.
	find func(r *reading, text string, at int) int
	// read reads the call, or calls, that find found at position at; it gives
	// what it found to r, and returns where the text goes on.
	read func(r *reading, text string, at int) int
	// finish, where there is one, has the last word on content and reasoning.
	finish func(r *reading)

	// What begins a call in a text that is not whole, for Stream: these texts, and what starts
	// finds at the beginning of a line or where the content has blanks alone before it. Where
	// find may find a call, one of the two must say so; they may say it more often.
	begins []string
	starts func(text string, line, blank bool) (what starting, n int)
	drops  []string // texts that finish leaves out of the content

	prompted *prompted // of a form that no template knows
	// intro is the system prompt of the tools, for a template that prints calls and shows no
	// tools; nil: none is known.
	intro   toolIntro
	mark    string    // in the calls of a template of this format, where another one reads them too
	written *written  // of a form that a template may expect in a reply's content
	think   [2]string // the tags around thinking; zero: <think> and </think>
	special bool      // made of special tokens
	paired  bool      // the prompt never opens the thinking: a closing tag alone is text
}

var formats = []format{hermes, qwen3Coder, deepseekR1, deepseekV3, llama3JSON, llama3Python, mistral, glm, kimi, gptOSS,
	gemma4, lfm2, granite, olmo3, minimax, deepseekDSML, cohere, seedOSS, nemotron, apertus, toolCallsList, hermesText,
	deepEyes, react, search}

// aliases are other names of the formats, most of them those of vLLM's
// --tool-call-parser.
var aliases = map[string]string{
	"qwen": "hermes", "qwen2.5": "hermes", "qwen3": "hermes", "qwen3-xml": "qwen3-coder",
	"deepseek": "deepseek-v3", "deepseek-v31": "deepseek-v3", "deepseek-v3.1": "deepseek-v3",
	"llama3": "llama3-json", "llama3.1": "llama3-json", "llama3.2": "llama3-json", "llama4-json": "llama3-json", "pythonic": "llama3-python",
	"glm45": "glm", "glm47": "glm", "glm4.5": "glm", "kimi-k2": "kimi", "openai": "gpt-oss", "harmony": "gpt-oss", "search-r1": "search",
	"phi4-mini-json": "granite", "phi4": "granite", "granite-20b-fc": "granite", "gemma-4": "gemma4",
	"minimax-m2": "minimax", "deepseek-v32": "deepseek-v3.2", "deepseek-v4": "deepseek-v3.2", "deepseekv32": "deepseek-v3.2",
	"cohere-command3": "cohere", "cohere-command4": "cohere", "seed": "seed-oss", "nemotron-nano-v2": "nemotron", "nemotron-json": "nemotron",
	"hunyuan-a13b": "tool-calls", "hunyuan": "tool-calls", "minimax-m1": "tool-calls", "ernie45": "hermes", "exaone4": "hermes",
	"llama4-pythonic": "llama3-python",
}

// Parsers lists the names of the formats that ParserFor takes, auto first and
// none last.
func Parsers() []string {
	out := []string{ParserAuto}
	for _, f := range formats {
		out = append(out, f.name)
	}
	return append(out, ParserNone)
}

// Parser reads replies of one format. It is safe for concurrent use.
type Parser struct {
	format
	tools toolSet

	offered []traj.ToolSpec        // that tools knows
	other   atomic.Pointer[Parser] // the last that For made
}

func newParser(f format, tools []traj.ToolSpec) *Parser {
	return &Parser{format: f, tools: newToolSet(tools), offered: tools}
}

// ParserFor makes the parser of a format. The tools matter where a format
// writes arguments without their types: their schemas say what a 5 is. Vendors'
// names (qwen3_coder, kimi_k2) are taken too.
func ParserFor(name string, tools []traj.ToolSpec) (*Parser, error) {
	key := strings.ReplaceAll(strings.ToLower(name), "_", "-")
	if to, ok := aliases[key]; ok {
		key = to
	}
	switch key {
	case ParserNone:
		return &Parser{format: format{name: ParserNone}}, nil
	case ParserAuto:
		key = AutoParser("")
	}
	for _, f := range formats {
		if f.name == key {
			return newParser(f, tools), nil
		}
	}
	return nil, fmt.Errorf("there is no format of tool calls %q; there are %s", name, strings.Join(Parsers(), ", "))
}

// For is the parser of the same format for other tools; for none it is p. The last one is
// kept: a run offers one list, in every request.
func (p *Parser) For(tools []traj.ToolSpec) *Parser {
	if len(tools) == 0 || sameList(tools, p.offered) {
		return p
	}
	if o := p.other.Load(); o != nil && sameList(tools, o.offered) {
		return o
	}
	o := newParser(p.format, tools)
	p.other.Store(o)
	return o
}

// sameList reports whether two lists that are not empty are one list in memory.
func sameList(a, b []traj.ToolSpec) bool { return len(a) == len(b) && &a[0] == &b[0] }

// toolIntro shows tools, as JSON, to a model in a system message.
type toolIntro func(tools []json.RawMessage) (string, error)

// prompted is a form of calls that only the prompt knows.
type prompted struct {
	intro  func(tools []traj.ToolSpec) string              // for the system prompt; nil: the question says it all
	listed func(system string, tools []traj.ToolSpec) bool // whether a system prompt needs no intro; nil: none does without
	call   func(traj.ToolCall) string
	result func(string) string
}

// InText writes a conversation with tools as one without, in the words of a
// form that no chat template knows (react, search); nil for the others, where
// the template or the server shows the tools.
func (p *Parser) InText() func(msgs []traj.Message, tools []traj.ToolSpec) []traj.Message {
	if p.prompted == nil {
		return nil
	}
	return func(msgs []traj.Message, tools []traj.ToolSpec) []traj.Message {
		return inText(msgs, tools, *p.prompted)
	}
}

// NeedsSpecial reports whether calls are made of special tokens, which servers
// leave out of their text unless they are told to keep them.
func (p *Parser) NeedsSpecial() bool { return p.special }

// Name is the format's name.
func (p *Parser) Name() string { return p.name }

// ParseReply reads a reply by the parser of that name, hermes where there is
// none, without the tools' schemas.
func ParseReply(parser, text string) (traj.Message, []traj.CallError) {
	p, err := ParserFor(parser, nil)
	if err != nil {
		p = &Parser{format: hermes}
	}
	return p.Parse(text)
}

// Parse reads a reply's text. Reasoning is split off, and no call is ever read
// out of it. A call has the id that its format writes (kimi), else none: whoever keeps
// the conversation gives it one. A call that cannot be read
// becomes a CallError, which says what is wrong and where, and stays in the
// content, as does what stands around calls.
func (p *Parser) Parse(text string) (traj.Message, []traj.CallError) {
	r := &reading{tools: p.tools}
	open, shut := openThink, closeThink
	if p.think[0] != "" && (strings.Contains(text, p.think[0]) || strings.Contains(text, p.think[1])) {
		open, shut = p.think[0], p.think[1]
	}
	at := 0
	thinks := strings.Index(text, open)
	if end := p.closing(text, shut); end >= 0 && (thinks < 0 || end < thinks) && !p.paired {
		// The prompt opened what this tag closes.
		r.thought(text[:end])
		at = skipBreaks(text, end+len(shut))
	}
	p.split(r, text, at, [2]string{open, shut})
	if len(r.msg.ToolCalls) > 0 {
		r.msg.Content = strings.TrimSpace(r.msg.Content)
	}
	return r.msg, r.errs
}

// ParseAfter is Parse for a reply whose prompt is known. open is the tag of thinking that the
// prompt leaves open; "" is none: a closing tag alone is text then, but one at the beginning of
// the reply, with which DeepSeek V3.2 says that it does not think, ends an empty thought. Of a format that has
// tags of its own, the first opening tag says whether those or <think> count. Nothing that it
// reads depends on what is still to come, but for calls: a Stream gives the same message piece
// by piece. So spaces before a content stay, with calls behind it, too.
func (p *Parser) ParseAfter(open, text string) (traj.Message, []traj.CallError) {
	r := &reading{tools: p.tools}
	tag, at := p.pair(open), 0
	if open == "" {
		first := len(text)
		for _, t := range p.tags() {
			if i := strings.Index(text, t[0]); i >= 0 && i < first {
				first, tag = i, t
			}
			if rest := strings.TrimLeftFunc(text, unicode.IsSpace); strings.HasPrefix(rest, t[1]) && !p.paired {
				r.thoughts = []string{""}
				at = skipBreaks(text, len(text)-len(rest)+len(t[1]))
			}
		}
	} else if text != "" && !strings.HasPrefix(strings.TrimSpace(text), open) {
		text = open + text
	}
	p.split(r, text, at, tag)
	switch {
	case len(r.msg.ToolCalls) == 0:
	case strings.TrimSpace(r.out.String()[:r.before]) != "":
		r.msg.Content = strings.TrimRightFunc(r.msg.Content, unicode.IsSpace)
	default:
		r.msg.Content = strings.TrimSpace(r.msg.Content)
	}
	return r.msg, r.errs
}

// tags are the pairs around thinking that the format knows.
func (p *Parser) tags() [][2]string {
	usual := [2]string{openThink, closeThink}
	if p.think[0] == "" {
		return [][2]string{usual}
	}
	return [][2]string{p.think, usual}
}

// pair is the one with that opening tag, or else the format's own.
func (p *Parser) pair(open string) [2]string {
	tags := p.tags()
	for _, t := range tags {
		if t[0] == open {
			return t
		}
	}
	return tags[0]
}

// split reads a text from a position on, with that pair of tags around thinking.
func (p *Parser) split(r *reading, text string, at int, tag [2]string) {
	r.msg.Role = traj.RoleAssistant
	open, shut := tag[0], tag[1]
	thinks := index(text, open, at)
	for at < len(text) {
		if thinks >= 0 && thinks < at {
			thinks = index(text, open, at)
		}
		call := -1
		if p.find != nil {
			call = p.find(r, text, at)
		}
		switch {
		case call >= 0 && len(r.msg.ToolCalls)+len(r.errs) >= maxCalls:
			r.bad(text[at:], fmt.Sprintf("the reply has more than %d calls; this and what follows was not read", maxCalls))
			at = len(text)
		case call >= 0 && (thinks < 0 || call < thinks):
			r.out.WriteString(text[at:call])
			if at = p.read(r, text, call); at <= call {
				r.out.WriteByte(text[call])
				at = call + 1
			}
		case thinks >= 0:
			r.out.WriteString(text[at:thinks])
			thought, rest, closed := strings.Cut(text[thinks+len(open):], shut)
			r.thought(thought)
			if at = len(text); closed {
				at = skipBreaks(text, len(text)-len(rest))
			}
		default:
			r.out.WriteString(text[at:])
			at = len(text)
		}
	}
	r.msg.Content = r.out.String()
	if len(r.thoughts) > 0 && strings.TrimSpace(r.msg.Content) == "" {
		r.msg.Content = ""
	}
	if p.finish != nil {
		p.finish(r)
	}
	r.msg.Reasoning = strings.Join(r.thoughts, "\n")
}

// closing is where the first closing tag of thinking is that no call has in its arguments; -1:
// there is none.
func (p *Parser) closing(text, shut string) int {
	end := strings.Index(text, shut)
	if end < 0 || p.find == nil {
		return end
	}
	r := &reading{tools: p.tools} // for a look ahead
	for at := 0; len(r.msg.ToolCalls)+len(r.errs) < maxCalls; {
		call := p.find(r, text, at)
		if call < 0 || call > end {
			break
		}
		calls := len(r.msg.ToolCalls)
		if at = p.read(r, text, call); at <= call {
			at = call + 1
		}
		if at > end && len(r.msg.ToolCalls) > calls {
			if end = index(text, shut, at); end < 0 {
				break
			}
		}
	}
	return end
}

// reading collects what a reply is made of. The formats' own functions fill it.
type reading struct {
	tools    toolSet
	msg      traj.Message
	errs     []traj.CallError
	out      strings.Builder // the content
	thoughts []string
	before   int // bytes of the content before the first call
	tries    int // llama3: places that looked like a call and were none
}

func (r *reading) thought(s string) { r.thoughts = append(r.thoughts, strings.Trim(s, "\n")) }

func (r *reading) call(name, args string) {
	if len(r.msg.ToolCalls) == 0 {
		r.before = r.out.Len()
	}
	r.msg.ToolCalls = append(r.msg.ToolCalls, traj.ToolCall{Name: name, Arguments: args})
}

// bad takes note of a call that cannot be read; it stays in the content.
func (r *reading) bad(raw, reason string) {
	r.errs = append(r.errs, traj.CallError{Raw: raw, Reason: reason})
	r.out.WriteString(raw)
}

// result is call or bad, by whether there is a reason.
func (r *reading) result(name, args, raw, reason string) {
	if reason != "" {
		r.bad(raw, reason)
		return
	}
	r.call(name, args)
}

// index is strings.Index from a position on.
func index(text, s string, at int) int {
	if i := strings.Index(text[at:], s); i >= 0 {
		return at + i
	}
	return -1
}

const blanks = " \t\r\n"

func skipBlanks(text string, at int) int { return len(text) - len(strings.TrimLeft(text[at:], blanks)) }
func skipBreaks(text string, at int) int { return len(text) - len(strings.TrimLeft(text[at:], "\n")) }

// skipAny skips the first of these that text has at a position.
func skipAny(text string, at int, parts ...string) int {
	for _, p := range parts {
		if strings.HasPrefix(text[at:], p) {
			return at + len(p)
		}
	}
	return at
}

// extent is where a call that cannot be read ends, from a position behind its
// opening tag: with its closing tag, or before the next call, or with the text.
func extent(text string, at int, open, shut string) int {
	end, next := index(text, shut, at), index(text, open, at)
	switch {
	case end >= 0 && (next < 0 || end < next):
		return end + len(shut)
	case next >= 0:
		return next
	}
	return len(text)
}

// ParseInText is Parse for a server that may have been shown the tools by
// InText: where a reply has no call of the format's own, calls of the Hermes form
// are read, in which InText asks for them.
func (p *Parser) ParseInText(text string) (traj.Message, []traj.CallError) {
	m, errs := p.Parse(text)
	if p.name == ParserNone || p.prompted != nil || len(m.ToolCalls)+len(errs) > 0 || !strings.Contains(m.Content, openCall) {
		return m, errs
	}
	again, errs := (&Parser{format: hermes, tools: p.tools}).Parse(m.Content)
	if m.Reasoning != "" && again.Reasoning != "" {
		m.Reasoning += "\n"
	}
	again.Reasoning = m.Reasoning + again.Reasoning
	return again, errs
}
