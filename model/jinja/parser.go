package jinja

import (
	"fmt"
	"slices"
)

// stream gives the tokens one by one.
type stream struct {
	tokens []token
	at     int
	depth  int
}

// exprParser reads expressions (parse_expr.go), parser statements. They follow
// jinja2/parser.py.
type exprParser struct {
	stream
	names []map[string]bool // the names that each open macro uses
	// Jinja refuses a filter that is not known, but in a branch only when it is
	// reached: soft says that the parser is in one, unknown has the others.
	soft    bool
	unknown []*Error
}

type parser struct {
	exprParser
	loops int // open for loops
}

func (p *parser) template() (body []stmt, err error) {
	defer func() {
		if x := recover(); x != nil {
			body, err = nil, thrown(x)
		}
	}()
	body = p.until()
	if len(p.unknown) > 0 {
		return nil, p.unknown[0]
	}
	return body, nil
}

// branch says whether what is read now is in a branch; the caller calls what it returns.
func (p *exprParser) branch(soft bool) func() {
	outer := p.soft
	p.soft = soft
	return func() { p.soft = outer }
}

// isKnown takes note of a filter or a test that is not known.
func (p *exprParser) isKnown(known bool, line int, what, name string) {
	if !known && !p.soft {
		p.unknown = append(p.unknown, &Error{ErrSyntax, line, fmt.Sprintf("there is no %s %q", what, name)})
	}
}

func (p *stream) fail(line int, format string, a ...any) {
	panic(&Error{ErrSyntax, line, fmt.Sprintf(format, a...)})
}

func (p *stream) cur() token { return p.tokens[p.at] }

func (p *stream) next() token {
	t := p.tokens[p.at]
	if t.kind != tokEOF {
		p.at++
	}
	return t
}

func (p *stream) look() token { return p.tokens[min(p.at+1, len(p.tokens)-1)] }

func (p *stream) isOp(ops ...string) bool {
	return p.cur().kind == tokOp && slices.Contains(ops, p.cur().text)
}

func (p *stream) isName(names ...string) bool {
	return p.cur().kind == tokName && slices.Contains(names, p.cur().text)
}

func (p *stream) skipOp(op string) bool {
	if p.isOp(op) {
		p.at++
		return true
	}
	return false
}

func (p *stream) skipName(name string) bool {
	if p.isName(name) {
		p.at++
		return true
	}
	return false
}

func (p *stream) expectOp(op string) {
	if !p.skipOp(op) {
		p.fail(p.cur().line, "expected %q, found %s", op, p.cur())
	}
}

func (p *stream) expectName() string {
	if p.cur().kind != tokName {
		p.fail(p.cur().line, "expected a name, found %s", p.cur())
	}
	return p.next().text
}

func (p *stream) expect(k kind) {
	if p.cur().kind != k {
		p.fail(p.cur().line, "unexpected %s in a tag", p.cur())
	}
	p.next()
}

// deeper counts nesting; the caller defers the result.
func (p *stream) deeper() func() {
	p.depth++
	if p.depth > maxNesting {
		panic(&Error{ErrLimit, p.cur().line, fmt.Sprintf("nested more than %d deep", maxNesting)})
	}
	return func() { p.depth-- }
}

// until reads statements up to one of the tags, which is left as the next token;
// without tags up to the end.
func (p *parser) until(ends ...string) []stmt {
	defer p.deeper()()
	var out []stmt
	for {
		t := p.next()
		switch t.kind {
		case tokEOF:
			if len(ends) > 0 {
				p.fail(t.line, "unexpected end of the template; expected %q", ends)
			}
			return out
		case tokData:
			out = append(out, dataStmt{Text(t.text)})
		case tokPrint:
			out = append(out, printStmt{t.line, p.tuple(true, nil, false)})
			p.expect(tokPrintEnd)
		case tokBlock:
			if p.isName(ends...) {
				return out
			}
			if s := p.statement(); s != nil {
				out = append(out, s)
			}
			p.expect(tokBlockEnd)
		default:
			p.fail(t.line, "unexpected %s", t)
		}
	}
}

// body reads a tag's body up to one of the ends, whose name it skips and returns.
func (p *parser) body(ends ...string) ([]stmt, string) {
	p.skipOp(":")
	p.expect(tokBlockEnd)
	out := p.until(ends...)
	return out, p.next().text
}

func (p *parser) statement() stmt {
	t := p.cur()
	if t.kind != tokName {
		p.fail(t.line, "expected the name of a tag, found %s", t)
	}
	p.next()
	switch t.text {
	case "if":
		return p.ifTag(t.line)
	case "for":
		return p.forTag(t.line)
	case "set":
		return p.setTag(t.line)
	case "macro":
		name := p.expectName()
		sig := p.params()
		body := p.macroBody(&sig, "endmacro")
		return macroStmt{t.line, name, sig, body}
	case "call":
		var sig signature
		if p.isOp("(") {
			sig = p.params()
		}
		call, ok := p.expression(true).(callExpr)
		if !ok {
			p.fail(t.line, "expected a call in the tag call")
		}
		return callBlock{t.line, sig, call, p.macroBody(&sig, "endcall")}
	case "filter":
		f := p.filter(nil, true)
		body, _ := p.body("endfilter")
		return filterBlock{t.line, f, body}
	case "generation":
		var sig signature
		return generationStmt{t.line, p.macroBody(&sig, "endgeneration")}
	case "with":
		return p.withTag(t.line)
	case "autoescape":
		p.expression(true)
		body, _ := p.body("endautoescape")
		return scopeStmt{body}
	case "block":
		name := p.expectName()
		p.skipName("scoped")
		p.skipName("required")
		body, _ := p.body("endblock")
		p.skipName(name)
		return scopeStmt{body}
	case "break", "continue":
		if p.loops == 0 {
			p.fail(t.line, "%s outside of a loop", t.text)
		}
		if t.text == "break" {
			return breakStmt{}
		}
		return continueStmt{}
	case "print":
		return printStmt{t.line, p.tuple(true, nil, false)}
	case "include", "import", "from", "extends":
		p.fail(t.line, "the tag %s needs other templates; a chat template is alone", t.text)
	}
	p.fail(t.line, "unknown tag %q", t.text)
	return nil
}

func (p *parser) ifTag(line int) stmt {
	defer p.deeper()()
	defer p.branch(true)()
	test := p.tuple(false, nil, false)
	then, end := p.body("elif", "else", "endif")
	out := ifStmt{line: line, test: test, then: then}
	switch end {
	case "elif":
		out.else_ = []stmt{p.ifTag(p.cur().line)}
	case "else":
		out.else_, _ = p.body("endif")
	}
	return out
}

func (p *parser) forTag(line int) stmt {
	out := forStmt{line: line, target: p.assignTarget(false)}
	if !p.skipName("in") {
		p.fail(p.cur().line, "expected in, found %s", p.cur())
	}
	out.over = p.tuple(false, []string{"recursive"}, false)
	if p.skipName("if") {
		out.when = p.expression(true)
	}
	if out.recursive = p.skipName("recursive"); out.recursive {
		p.fail(line, "recursive loops are not supported")
	}
	defer p.branch(false)()
	p.loops++
	body, end := p.body("endfor", "else")
	p.loops--
	out.body = body
	if end == "else" {
		out.else_, _ = p.body("endfor")
	}
	return out
}

func (p *parser) setTag(line int) stmt {
	to := p.assignTarget(true)
	if p.skipOp("=") {
		return setStmt{line, to, p.tuple(true, nil, false)}
	}
	var filter expr
	if p.isOp("|") {
		filter = p.filter(nil, false)
	}
	defer p.branch(false)()
	body, _ := p.body("endset")
	return setBlock{line, to, filter, body}
}

func (p *parser) withTag(line int) stmt {
	out := withStmt{line: line}
	for p.cur().kind != tokBlockEnd {
		if len(out.targets) > 0 {
			p.expectOp(",")
		}
		out.targets = append(out.targets, p.assignTarget(false))
		p.expectOp("=")
		out.values = append(out.values, p.expression(true))
	}
	out.body, _ = p.body("endwith")
	return out
}

// params reads a signature.
func (p *parser) params() (out signature) {
	p.expectOp("(")
	for !p.isOp(")") {
		if len(out.params) > 0 {
			p.expectOp(",")
		}
		name := p.expectName()
		if p.skipOp("=") {
			out.defaults = append(out.defaults, p.expression(true))
		} else if len(out.defaults) > 0 {
			p.fail(p.cur().line, "the parameter %s without a default follows one that has one", name)
		}
		out.params = append(out.params, name)
	}
	p.expectOp(")")
	return out
}

// macroBody reads the body of a macro, and finds whether it uses varargs, kwargs
// or caller.
func (p *parser) macroBody(sig *signature, end string) []stmt {
	defer p.branch(false)()
	p.names = append(p.names, map[string]bool{})
	loops := p.loops
	p.loops = 0
	body, _ := p.body(end)
	p.loops = loops
	used := p.names[len(p.names)-1]
	p.names = p.names[:len(p.names)-1]
	is := func(name string) bool { return used[name] && !slices.Contains(sig.params, name) }
	sig.varargs, sig.kwargs, sig.caller = is("varargs"), is("kwargs"), used["caller"]
	return body
}

// assignTarget reads what is assigned to.
func (p *parser) assignTarget(attrs bool) target {
	line := p.cur().line
	var parts []target
	comma := false
	for {
		if len(parts) > 0 || comma {
			if !p.skipOp(",") {
				break
			}
			comma = true
			if p.isName("in") || p.isOp(")", "=") || p.cur().kind == tokBlockEnd {
				break
			}
		}
		parts = append(parts, p.oneTarget(attrs))
		if p.isOp(",") {
			comma = true
		}
	}
	if !comma {
		return parts[0]
	}
	return target{parts: parts, tuple: true, line: line}
}

func (p *parser) oneTarget(attrs bool) target {
	defer p.deeper()()
	t := p.cur()
	if p.skipOp("(") {
		out := p.assignTarget(attrs)
		p.expectOp(")")
		return out
	}
	name := p.expectName()
	if slices.Contains([]string{"true", "false", "none", "True", "False", "None"}, name) {
		p.fail(t.line, "cannot assign to %s", name)
	}
	if attrs && p.skipOp(".") {
		return target{name: name, attr: p.expectName(), line: t.line}
	}
	return target{name: name, line: t.line}
}
