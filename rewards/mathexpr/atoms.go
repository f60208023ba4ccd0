package mathexpr

import (
	"math/big"
	"slices"
	"strings"
)

// parseFactor := mixed number | atom suffix*
func parseFactor(p *parser) *Node {
	var n *Node
	if p.peek().kind == numberToken {
		n = parseMixed(p)
	}
	if n == nil {
		n = parseAtom(p)
	}
	for p.err == nil {
		t := p.peek()
		switch {
		case t.is("!"):
			p.next()
			if p.take("!") {
				n = p.node(DoubleFactorial, n)
			} else {
				n = p.node(Factorial, n)
			}
		case t.is("^"):
			p.next()
			n = parseRaised(p, n)
		case t.is("%"):
			p.next()
			n = p.node(Percent, n)
		case t.is("°"):
			p.next()
			n = inDegrees(p, n)
		case t.is("_") && n.Kind == Number:
			p.next()
			n = p.named(Application, "base", n, parseArgument(p))
		default:
			return n
		}
	}
	return nothing()
}

func inDegrees(p *parser, n *Node) *Node {
	if t := p.peek(); t.kind == letterToken && (t.text == "C" || t.text == "F") {
		p.next()
		return p.named(Quantity, "°"+t.text, n)
	}
	return p.node(Degrees, n)
}

// parseMixed reads 3\frac{1}{2}, 3 1/2 and 3½; nil where there is none.
func parseMixed(p *parser) *Node {
	whole := p.peek()
	if !whole.value.IsInt() || whole.places >= 0 {
		return nil
	}
	from := p.i
	p.next()
	t := p.peek()
	var f *Node
	switch {
	case t.kind == numberToken && t.places < 0 && !t.value.IsInt():
		p.next()
		f = p.node(Number)
		f.Value, f.Places = t.value, -1
	case t.kind == numberToken && t.spaced && t.value.IsInt() && p.after(1).is("/") && p.after(2).kind == numberToken:
		num := parseNumeral(p)
		p.next()
		f = p.node(Quotient, num, parseNumeral(p))
	case t.kind == commandToken && t.text == "frac" && atProperFraction(p):
		p.next()
		num := parseArgument(p)
		f = p.node(Quotient, num, parseArgument(p))
	}
	if f == nil || f.Kind == Quotient && (p.err != nil || !isProper(f)) {
		p.i = from
		return nil
	}
	w := p.node(Number)
	w.Value, w.Places = whole.value, -1
	return p.node(Sum, w, f)
}

func isProper(f *Node) bool {
	a, b := f.Args[0], f.Args[1]
	return a.Kind == Number && b.Kind == Number && a.Value.IsInt() && b.Value.IsInt() && a.Value.Sign() > 0 && a.Value.Cmp(b.Value) < 0
}

// atProperFraction reports whether \frac and two numerals follow, the first smaller
// than the second, so that no other fraction is read twice.
func atProperFraction(p *parser) bool {
	i := p.i + 1
	var numerals [2]*big.Rat
	for k := range numerals {
		if i >= len(p.tokens) {
			return false
		}
		switch t := p.tokens[i]; {
		case t.kind == numberToken && k == 0 && len(t.text) == 2: // \frac12
			return isDigit(t.text[0]) && isDigit(t.text[1]) && t.text[0] > '0' && t.text[0] < t.text[1]
		case t.kind == numberToken:
			numerals[k] = t.value
			i++
		case t.is("{") && i+2 < len(p.tokens) && p.tokens[i+1].kind == numberToken && p.tokens[i+2].is("}"):
			numerals[k] = p.tokens[i+1].value
			i += 3
		default:
			return false
		}
	}
	return numerals[0].Cmp(numerals[1]) < 0
}

func parseNumeral(p *parser) *Node {
	t := p.next()
	n := p.node(Number)
	if p.err == nil {
		n.Value, n.Places = t.value, t.places
	}
	return n
}

// parseRaised reads an exponent, or what else stands in its place.
func parseRaised(p *parser, base *Node) *Node {
	if p.take("circ") || p.take("°") {
		return inDegrees(p, base)
	}
	if p.peek().is("'") {
		p.next()
		return base
	}
	if p.peek().is("{") {
		one := p.after(1)
		if p.after(2).is("}") {
			switch {
			case one.is("circ"), one.is("°"):
				p.next()
				p.next()
				p.next()
				return inDegrees(p, base)
			case one.kind == textToken && isOrdinal(one.text), one.is("'"):
				p.next()
				p.next()
				p.next()
				return base
			}
		}
	}
	if t := p.peek(); t.kind == textToken && isOrdinal(t.text) {
		p.next()
		return base
	}
	if !p.enter() {
		return nothing()
	}
	defer p.leave()
	return p.node(Power, base, parseExponent(p))
}

// parseExponent := sign? atom ('^' exponent)?
func parseExponent(p *parser) *Node {
	if !p.enter() {
		return nothing()
	}
	defer p.leave()
	if p.take("-") {
		return p.node(Negative, parseExponent(p))
	}
	p.take("+")
	n := parseAtom(p)
	if p.take("!") {
		n = p.node(Factorial, n)
	}
	if p.take("^") {
		return p.node(Power, n, parseExponent(p))
	}
	return n
}

// parseArgument reads the argument of a command: a group, or one token; of a numeral,
// one digit.
func parseArgument(p *parser) *Node {
	t := p.peek()
	if t.kind == numberToken && len(t.text) > 1 && strings.Trim(t.text, "0123456789") == "" {
		n := p.node(Number)
		rest := t
		rest.text = t.text[1:]
		rest.value, rest.spaced = decimal(rest.text, 0), false
		p.tokens[p.i] = rest
		if p.err == nil {
			n.Value, n.Places = decimal(t.text[:1], 0), -1
		}
		return n
	}
	return parseAtom(p)
}

func parseAtom(p *parser) *Node {
	if !p.enter() {
		return nothing()
	}
	defer p.leave()
	t := p.peek()
	switch t.kind {
	case numberToken:
		return parseNumeral(p)
	case letterToken:
		return parseVariable(p)
	case constantToken:
		p.next()
		if t.text == "e" || t.text == "i" {
			if p.peek().is("_") {
				return parseSubscripted(p, t.text)
			}
		}
		return p.named(Constant, t.text)
	case functionToken:
		return parseFunction(p)
	case commandToken:
		return parseCommand(p)
	case setToken:
		return parseNamedSet(p)
	case textToken:
		p.next()
		words := t.text
		for p.peek().kind == textToken {
			words += " " + p.next().text
		}
		return p.named(Text, words)
	case beginToken:
		return parseEnvironment(p)
	case symbolToken:
		return parseBracket(p, t.text)
	}
	return p.fail(ErrSyntax)
}

// parseBracket reads what an opening bracket begins.
func parseBracket(p *parser, open string) *Node {
	p.next()
	if open != "|" && open != "norm" {
		defer func(bar, colon, inside int) { p.noBar, p.noColon, p.inside = bar, colon, inside }(p.noBar, p.noColon, p.inside)
		p.noBar, p.noColon, p.inside = 0, 0, 0
	}
	switch open {
	case "(", "[", "]":
		return parseTuple(p, open)
	case "langle", "<":
		return parseAngle(p, open)
	case "{":
		return parseGroup(p)
	case `\{`:
		return parseSet(p)
	case "|", "norm":
		p.noBar++
		n := parseList(p)
		p.noBar--
		p.want(open)
		if n.Kind == Matrix {
			n.Name = "det"
			return n
		}
		return p.named(Function, "abs", n)
	case "lfloor":
		n := parseSum(p)
		p.want("rfloor")
		return p.named(Function, "floor", n)
	case "lceil":
		n := parseSum(p)
		p.want("rceil")
		return p.named(Function, "ceil", n)
	case "...":
		return p.named(Variable, "...")
	case "triangle", "angle":
		return parseFactor(p)
	}
	return p.fail(ErrSyntax)
}

// parseTuple reads ( … ), [ … ), ] … [: a value in brackets, a tuple or an interval.
func parseTuple(p *parser, open string) *Node {
	if p.peek().is(")") || p.peek().is("]") {
		return p.fail(ErrSyntax)
	}
	items, separated := parseItems(p)
	end := p.next()
	if !(end.is(")") || end.is("]") || end.is("[") && separated) || p.err != nil {
		return p.fail(ErrSyntax)
	}
	matched := open == "(" && end.text == ")" || open == "[" && end.text == "]"
	if !separated && len(items) == 1 {
		if !matched {
			return p.fail(ErrSyntax)
		}
		return items[0]
	}
	n := p.node(Tuple, items...)
	if p.err == nil {
		n.Open, n.Close = open[0], end.text[0]
		if open == "]" {
			n.Open = '('
		}
		if end.text == "[" {
			n.Close = ')'
		}
	}
	return n
}

// parseAngle reads ⟨1, 2⟩ and <1, 2>.
func parseAngle(p *parser, open string) *Node {
	if open == "<" {
		p.noBar++ // no relation inside: items of sums
		var items []*Node
		for p.err == nil {
			items = append(items, parseSum(p))
			if !p.take(",") {
				break
			}
		}
		p.noBar--
		p.want(">")
		return parseBracketed(p, '<', items)
	}
	items, _ := parseItems(p)
	p.want("rangle")
	return parseBracketed(p, '<', items)
}

func parseBracketed(p *parser, open byte, items []*Node) *Node {
	n := p.node(Tuple, items...)
	if p.err == nil {
		n.Open, n.Close = open, '>'
	}
	return n
}

// parseGroup reads {…}: a part of a formula, a fraction by \over, or, with commas, a set.
func parseGroup(p *parser) *Node {
	if p.take("}") {
		return p.fail(ErrSyntax)
	}
	items, separated := parseItems(p)
	if p.err != nil {
		return nothing()
	}
	if len(items) == 1 && !separated {
		switch {
		case p.take("over"):
			items[0] = p.node(Quotient, items[0], parseSum(p))
		}
		p.want("}")
		return items[0]
	}
	p.want("}")
	return p.node(Set, items...)
}

// parseSet reads \{ … \}: its elements, or what they have in common.
func parseSet(p *parser) *Node {
	if p.take(`\}`) {
		return p.named(NamedSet, "empty")
	}
	p.noBar++
	p.noColon++
	items, separated := parseItems(p)
	p.noBar--
	p.noColon--
	if p.err == nil && len(items) == 1 && !separated && (p.take("|") || p.take(":")) {
		conditions, _ := parseItems(p)
		joint := jointOf(p, conditions)
		p.want(`\}`)
		return p.named(SetBuilder, joint, append(items, conditions...)...)
	}
	p.want(`\}`)
	return p.node(Set, items...)
}

// parseNamedSet reads \mathbb{R}, \mathbb{R}^+, \mathbb{Z}_{>0}.
func parseNamedSet(p *parser) *Node {
	name := p.next().text
	for p.peek().is("^") || p.peek().is("_") {
		p.next()
		braces := p.take("{")
		t := p.next()
		switch {
		case t.is("+"), t.is(">") || t.is(">="):
			if t.is(">=") {
				name += "0"
			}
			name += "+"
			if t.text != "+" && !p.next().isNumber(0) {
				return p.fail(ErrSyntax)
			}
		case t.is("-"), t.is("<"):
			name += "-"
			if t.is("<") && !p.next().isNumber(0) {
				return p.fail(ErrSyntax)
			}
		case t.is("*"):
			name += "*"
		case t.kind == numberToken || t.kind == letterToken:
			name += "^" + t.text
		default:
			return p.fail(ErrSyntax)
		}
		if braces {
			p.want("}")
		}
	}
	if p.peek().is("*") && (p.after(1).kind == endToken || p.after(1).is(")")) {
		p.next()
		name += "*"
	}
	return p.named(NamedSet, name)
}

func (t token) isNumber(n int64) bool {
	return t.kind == numberToken && t.value.IsInt() && t.value.Num().IsInt64() && t.value.Num().Int64() == n
}

// parseVariable reads a letter with its subscript and primes, and, of a function, its
// arguments.
func parseVariable(p *parser) *Node {
	t := p.next()
	name := t.text
	n := parseSubscripted(p, name)
	for p.take("'") {
		n.Name += "'"
	}
	if (name == "f" || name == "g" || name == "h") && parseInverse(p) {
		n.Name += "^-1"
	}
	if !p.peek().is("(") {
		return n
	}
	switch name {
	case "f", "g", "h", "F", "G", "H":
	default:
		// P(x) = … defines a function; x(x+1) is a product.
		arg := p.after(1).kind
		if !(p.after(2).is(")") && p.after(3).is("=") && (arg == letterToken || arg == numberToken)) {
			return n
		}
	}
	p.next()
	args, _ := parseItems(p)
	p.want(")")
	return p.named(Application, n.Name, args...)
}

// parseInverse reads ^{-1} before the arguments of a function.
func parseInverse(p *parser) bool {
	if p.peek().is("^") && p.after(1).is("{") && p.after(2).is("-") && p.after(3).isNumber(1) && p.after(4).is("}") && p.after(5).is("(") {
		p.i += 5
		return true
	}
	return false
}

// parseSubscripted reads the subscript behind a name.
func parseSubscripted(p *parser, name string) *Node {
	if p.take("_") {
		var b strings.Builder
		if p.take("{") {
			for depth := 0; p.err == nil; {
				t := p.next()
				if t.kind == endToken {
					return p.fail(ErrSyntax)
				}
				if t.is("{") {
					depth++
				} else if t.is("}") {
					if depth--; depth < 0 {
						break
					}
				}
				b.WriteString(t.text)
			}
		} else {
			b.WriteString(p.next().text)
		}
		name += "_" + b.String()
	}
	return p.named(Variable, name)
}

// isOrdinal reports whether a text makes an ordinal of a number: 5th.
func isOrdinal(text string) bool { return slices.Contains([]string{"th", "st", "nd", "rd"}, text) }
