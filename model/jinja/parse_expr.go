package jinja

import (
	"slices"
	"strings"
)

// expression reads one; without cond no "x if y else z" at its outermost.
func (p *exprParser) expression(cond bool) expr {
	defer p.deeper()()
	if !cond {
		return p.or()
	}
	unknown := len(p.unknown)
	x := p.or()
	for p.isName("if") {
		p.unknown = p.unknown[:unknown]
		leave := p.branch(true)
		line := p.next().line
		out := condExpr{line: line, then: x, test: p.or()}
		if p.skipName("else") {
			out.else_ = p.expression(true)
		}
		leave()
		x = out
	}
	return x
}

// tuple reads an expression, or several with commas between.
func (p *exprParser) tuple(cond bool, ends []string, parens bool) expr {
	line := p.cur().line
	var items []expr
	is := false
	for {
		if len(items) > 0 {
			p.expectOp(",")
		}
		if k := p.cur().kind; k == tokPrintEnd || k == tokBlockEnd || p.isOp(")") || p.isName(ends...) {
			break
		}
		items = append(items, p.expression(cond))
		if !p.isOp(",") {
			break
		}
		is = true
	}
	if !is {
		if len(items) > 0 {
			return items[0]
		}
		if !parens {
			p.fail(line, "expected an expression, found %s", p.cur())
		}
	}
	return listExpr{items, true}
}

func (p *exprParser) or() expr {
	x := p.and()
	for p.isName("or") {
		line := p.next().line
		x = binaryExpr{line, "or", x, p.and()}
	}
	return x
}

func (p *exprParser) and() expr {
	x := p.not()
	for p.isName("and") {
		line := p.next().line
		x = binaryExpr{line, "and", x, p.not()}
	}
	return x
}

func (p *exprParser) not() expr {
	if p.isName("not") {
		defer p.deeper()()
		line := p.next().line
		return unaryExpr{line, "not", p.not()}
	}
	return p.compare()
}

func (p *exprParser) compare() expr {
	out := compareExpr{line: p.cur().line, x: p.sum()}
	for {
		switch {
		case p.isOp("==", "!=", "<", "<=", ">", ">="):
			out.ops = append(out.ops, p.next().text)
		case p.isName("in"):
			p.next()
			out.ops = append(out.ops, "in")
		case p.isName("not") && p.look().kind == tokName && p.look().text == "in":
			p.next()
			p.next()
			out.ops = append(out.ops, "not in")
		default:
			if len(out.ops) == 0 {
				return out.x
			}
			return out
		}
		out.ys = append(out.ys, p.sum())
	}
}

// operations reads operands of the next level with operators between, from the left.
func (p *exprParser) operations(operand func() expr, ops ...string) expr {
	x := operand()
	for p.isOp(ops...) {
		t := p.next()
		x = binaryExpr{t.line, t.text, x, operand()}
	}
	return x
}

func (p *exprParser) sum() expr { return p.operations(p.concat, "+", "-") }

func (p *exprParser) concat() expr {
	items := []expr{p.product()}
	for p.skipOp("~") {
		items = append(items, p.product())
	}
	if len(items) == 1 {
		return items[0]
	}
	return concatExpr{items}
}

func (p *exprParser) product() expr { return p.operations(p.power, "*", "/", "//", "%") }

func (p *exprParser) power() expr {
	return p.operations(func() expr { return p.unary(true) }, "**")
}

func (p *exprParser) unary(filters bool) expr {
	defer p.deeper()()
	var x expr
	if t := p.cur(); p.isOp("-", "+") {
		p.next()
		x = unaryExpr{t.line, t.text, p.unary(false)}
	} else {
		x = p.primary()
	}
	x = p.postfix(x)
	if !filters {
		return x
	}
	for {
		switch {
		case p.isOp("|"):
			x = p.filter(x, false)
		case p.isName("is"):
			x = p.test(x)
		case p.isOp("("):
			x = p.call(x)
		default:
			return x
		}
	}
}

func (p *exprParser) primary() expr {
	t := p.next()
	switch t.kind {
	case tokName:
		switch t.text {
		case "true", "True":
			return constExpr{true}
		case "false", "False":
			return constExpr{false}
		case "none", "None":
			return constExpr{nil}
		}
		for _, names := range p.names {
			names[t.text] = true
		}
		return nameExpr{t.line, t.text}
	case tokString:
		text := []string{t.text}
		for p.cur().kind == tokString {
			text = append(text, p.next().text)
		}
		return constExpr{Text(strings.Join(text, ""))}
	case tokInt, tokFloat:
		return constExpr{t.num}
	case tokOp:
		switch t.text {
		case "(":
			x := p.tuple(true, nil, true)
			p.expectOp(")")
			return x
		case "[":
			var items []expr
			for !p.isOp("]") {
				if len(items) > 0 {
					p.expectOp(",")
					if p.isOp("]") {
						break
					}
				}
				items = append(items, p.expression(true))
			}
			p.expectOp("]")
			return listExpr{items, false}
		case "{":
			return readDict(p, t.line)
		}
	}
	p.fail(t.line, "unexpected %s", t)
	return nil
}

func readDict(p *exprParser, line int) expr {
	out := dictExpr{line: line}
	for !p.isOp("}") {
		if len(out.keys) > 0 {
			p.expectOp(",")
			if p.isOp("}") {
				break
			}
		}
		out.keys = append(out.keys, p.expression(true))
		p.expectOp(":")
		out.vals = append(out.vals, p.expression(true))
	}
	p.expectOp("}")
	return out
}

func (p *exprParser) postfix(x expr) expr {
	for {
		t := p.cur()
		switch {
		case p.skipOp("."):
			n := p.next()
			switch n.kind {
			case tokName:
				x = attrExpr{t.line, x, n.text}
			case tokInt:
				x = itemExpr{t.line, x, constExpr{n.num}}
			default:
				p.fail(n.line, "expected a name or a number after the dot, found %s", n)
			}
		case p.skipOp("["):
			x = readSubscript(p, t.line, x)
		case p.isOp("("):
			x = p.call(x)
		default:
			return x
		}
	}
}

func readSubscript(p *exprParser, line int, x expr) expr {
	var parts [3]expr
	slice := false
	n := 0
	for !p.isOp("]") {
		if p.skipOp(":") {
			slice = true
			if n++; n > 2 {
				p.fail(line, "a slice has three parts at most")
			}
			continue
		}
		if p.isOp(",") || parts[n] != nil {
			p.fail(line, "a subscript of several parts is not supported")
		}
		parts[n] = p.expression(true)
	}
	p.expectOp("]")
	if slice {
		return sliceExpr{line, x, parts[0], parts[1], parts[2]}
	}
	if parts[0] == nil {
		p.fail(line, "expected an expression in the subscript")
	}
	return itemExpr{line, x, parts[0]}
}

func (p *exprParser) call(f expr) expr {
	line := p.cur().line
	return callExpr{line, f, p.callArgs()}
}

func (p *exprParser) callArgs() (out callArgs) {
	line := p.cur().line
	p.expectOp("(")
	bad := func(is bool) {
		if is {
			p.fail(line, "the arguments of a call are out of order")
		}
	}
	for first := true; !p.isOp(")"); first = false {
		if !first {
			p.expectOp(",")
			if p.isOp(")") {
				break
			}
		}
		switch {
		case p.skipOp("*"):
			bad(out.dynPos != nil || out.dynKeys != nil)
			out.dynPos = p.expression(true)
		case p.skipOp("**"):
			bad(out.dynKeys != nil)
			out.dynKeys = p.expression(true)
		case p.cur().kind == tokName && p.look().kind == tokOp && p.look().text == "=":
			bad(out.dynKeys != nil)
			name := p.next().text
			p.next()
			if slices.Contains(out.names, name) {
				p.fail(line, "the argument %s is given twice", name)
			}
			out.names, out.vals = append(out.names, name), append(out.vals, p.expression(true))
		default:
			bad(out.dynPos != nil || out.dynKeys != nil || len(out.names) > 0)
			out.pos = append(out.pos, p.expression(true))
		}
	}
	p.expectOp(")")
	return out
}

// filter reads filters behind x; inline: the first has no bar before it.
func (p *exprParser) filter(x expr, inline bool) expr {
	for p.isOp("|") || inline {
		if !inline {
			p.next()
		}
		inline = false
		line := p.cur().line
		name := p.dotted()
		var a callArgs
		if p.isOp("(") {
			a = p.callArgs()
		}
		p.isKnown(filters[name] != nil, line, "filter", name)
		x = filterExpr{line, x, name, a}
	}
	return x
}

func (p *stream) dotted() string {
	name := p.expectName()
	for p.skipOp(".") {
		name += "." + p.expectName()
	}
	return name
}

func (p *exprParser) test(x expr) expr {
	line := p.next().line
	negated := p.skipName("not")
	out := testExpr{line: line, x: x, name: p.dotted()}
	p.isKnown(tests[out.name] != nil, line, "test", out.name)
	switch t := p.cur(); {
	case p.isOp("("):
		out.args = p.callArgs()
	case p.isOp("[", "{"), t.kind == tokString, t.kind == tokInt, t.kind == tokFloat,
		t.kind == tokName && !slices.Contains([]string{"else", "or", "and"}, t.text):
		if p.isName("is") {
			p.fail(line, "tests cannot be chained with is")
		}
		// "x is string if …" ends the test; "x is divisibleby n" does not.
		if p.isName("if", "in", "not") {
			break
		}
		out.args.pos = []expr{p.postfix(p.primary())}
	}
	if negated {
		return unaryExpr{line, "not", out}
	}
	return out
}
