package mathexpr

import "strings"

// parseFunction reads \sin x, \sin^2 x, \log_2 8, \max(1, 2).
func parseFunction(p *parser) *Node {
	name := p.next().text
	var base, power *Node
	for p.err == nil && (p.peek().is("_") || p.peek().is("^")) {
		if p.next().text == "_" {
			base = parseArgument(p)
		} else {
			power = parseExponent(p)
		}
	}
	if power != nil && (power.Is(-1) || power.Kind == Negative && power.Args[0].Is(1)) && inverses[name] != "" {
		name, power = inverses[name], nil
	}
	var n *Node
	switch name {
	case "max", "min", "gcd", "lcm":
		if p.take(`\{`) || p.take("{") || p.take("(") || p.take("[") {
			items, _ := parseItems(p)
			end := p.next()
			if !end.is(`\}`) && !end.is("}") && !end.is(")") && !end.is("]") {
				return p.fail(ErrSyntax)
			}
			n = p.named(Function, name, items...)
		} else {
			return p.fail(ErrSyntax)
		}
	case "cis": // cos + i sin
		angle := parseFunctionArgument(p)
		n = p.node(Power, p.named(Constant, "e"), p.node(Product, p.named(Constant, "i"), angle))
	case "exp":
		n = p.node(Power, p.named(Constant, "e"), parseFunctionArgument(p))
	case "det":
		if n = parseFunctionArgument(p); n.Kind == Matrix {
			n.Name = "det"
		}
	default:
		n = p.named(Function, name, parseFunctionArgument(p))
		if base != nil {
			n.Args = append(n.Args, base)
		}
	}
	if power != nil {
		return p.node(Power, n, power)
	}
	return n
}

var inverses = map[string]string{"sin": "arcsin", "cos": "arccos", "tan": "arctan", "cot": "arccot", "sinh": "arsinh", "cosh": "arcosh",
	"tanh": "artanh"}

// parseFunctionArgument reads one bracket or group, or the factors up to the next sign,
// parseBracket or function: \sin 2x \cos x is a product of two functions.
func parseFunctionArgument(p *parser) *Node {
	t := p.peek()
	if t.is("(") || t.is("[") || t.is("{") || t.is("|") {
		n := parseAtom(p)
		if t.is("{") && p.err == nil {
			return n
		}
		if p.peek().is("°") || p.peek().is("^") && (p.after(1).is("circ") || p.after(1).is("{") && p.after(2).is("circ")) {
			p.next()
			p.take("{")
			p.take("circ")
			p.take("}")
			return p.node(Degrees, n)
		}
		return n
	}
	if p.take("-") {
		return p.node(Negative, parseFunctionArgument(p))
	}
	n := parseFactor(p)
	for p.err == nil {
		t := p.peek()
		if t.kind != letterToken && t.kind != constantToken && (t.kind != numberToken || p.tokens[p.i-1].kind == numberToken) ||
			p.inside > 0 && t.text == "d" {
			if t.kind == commandToken && (t.text == "sqrt" || t.text == "frac") && n.Kind == Number {
				n = p.node(Product, n, parseFactor(p))
				continue
			}
			return n
		}
		n = p.node(Product, n, parseFactor(p))
	}
	return n
}

// parseCommand reads a command with its arguments.
func parseCommand(p *parser) *Node {
	t := p.next()
	switch t.text {
	case "frac":
		if p.peek().is("(") { // frac(1, 2)
			if items, _ := parseBracketItems(p); len(items) == 2 {
				return p.node(Quotient, items[0], items[1])
			}
			return p.fail(ErrSyntax)
		}
		a := parseArgument(p)
		b := parseArgument(p)
		if isName(a, "d") && b.Kind == Product && len(b.Args) == 2 && isName(b.Args[0], "d") && b.Args[1].Kind == Variable && p.err == nil {
			return p.named(Repeated, "diff", b.Args[1], nil, nil, parseProduct(p)) // \frac{d}{dx} x^2
		}
		return p.node(Quotient, a, b)
	case "binom":
		if p.peek().is("(") {
			if items, _ := parseBracketItems(p); len(items) == 2 {
				return p.node(Binomial, items[0], items[1])
			}
			return p.fail(ErrSyntax)
		}
		a := parseArgument(p)
		return p.node(Binomial, a, parseArgument(p))
	case "sqrt":
		degree := number(2)
		if p.take("[") {
			degree = parseSum(p)
			p.want("]")
		}
		return p.node(Root, parseAtom(p), degree)
	case "cbrt":
		return p.node(Root, parseAtom(p), number(3))
	case "sum", "prod":
		return parseRepeated(p, t.text)
	case "lim":
		return parseLimit(p)
	case "int":
		return parseIntegral(p)
	}
	return p.fail(ErrSyntax)
}

func isName(n *Node, name string) bool { return n.Kind == Variable && n.Name == name }

func parseBracketItems(p *parser) ([]*Node, bool) {
	p.next()
	items, ok := parseItems(p)
	p.want(")")
	return items, ok
}

// parseRepeated reads \sum_{k=1}^{n} body.
func parseRepeated(p *parser, name string) *Node {
	var variable, from, to *Node
	for p.err == nil && (p.peek().is("_") || p.peek().is("^")) {
		if p.next().text == "^" {
			to = parseExponent(p)
			continue
		}
		bound := parseArgument(p)
		if bound.Kind != Relation || len(bound.Args) != 2 || bound.Names[0] != "=" {
			return p.fail(ErrSyntax)
		}
		variable, from = bound.Args[0], bound.Args[1]
		if variable.Kind == Constant && (variable.Name == "i" || variable.Name == "e") { // \sum_{i=1}
			variable = &Node{Kind: Constant, Name: variable.Name}
		} else if variable.Kind != Variable {
			return p.fail(ErrSyntax)
		}
	}
	if variable == nil || to == nil {
		return p.fail(ErrSyntax)
	}
	body := parseSigned(p)
	return p.named(Repeated, name, variable, from, to, body)
}

// parseLimit reads \lim_{x \to 0} body.
func parseLimit(p *parser) *Node {
	if !p.take("_") {
		return p.fail(ErrSyntax)
	}
	bound := parseArgument(p)
	if bound.Kind != Relation || len(bound.Args) != 2 || bound.Names[0] != "->" || bound.Args[0].Kind != Variable {
		return p.fail(ErrSyntax)
	}
	body := parseSigned(p)
	return p.named(Repeated, "lim", bound.Args[0], bound.Args[1], nil, body)
}

// parseIntegral reads \int_a^b body dx.
func parseIntegral(p *parser) *Node {
	var from, to *Node
	for p.err == nil && (p.peek().is("_") || p.peek().is("^")) {
		if p.next().text == "^" {
			to = parseExponent(p)
		} else if p.take("-") {
			from = p.node(Negative, parseArgument(p))
		} else {
			from = parseArgument(p)
		}
	}
	p.inside++
	body := number(1)
	if t := p.peek(); !(t.kind == letterToken || t.kind == textToken) || t.text != "d" {
		body = parseSum(p)
	}
	p.inside--
	if t := p.next(); t.text != "d" || t.kind != letterToken && t.kind != textToken {
		return p.fail(ErrSyntax)
	}
	variable := parseAtom(p)
	if variable.Kind != Variable || (from == nil) != (to == nil) {
		return p.fail(ErrSyntax)
	}
	return p.named(Repeated, "int", variable, from, to, body)
}

// parseEnvironment reads \begin{…} … \end{…}: a matrix, or a list of lines.
func parseEnvironment(p *parser) *Node {
	name := p.next().text
	defer func(bar, colon, inside int) { p.noBar, p.noColon, p.inside = bar, colon, inside }(p.noBar, p.noColon, p.inside)
	p.noBar, p.noColon, p.inside = 0, 0, 0
	isMatrix := strings.HasSuffix(name, "matrix") || name == "array"
	var cells []*Node
	columns, width, rows := 0, 0, 0
	endRow := func() {
		if rows++; rows == 1 {
			columns = width
		} else if columns != width {
			p.fail(ErrSyntax)
		}
		width = 0
	}
	for p.err == nil {
		if p.peek().kind == endEnvToken {
			if width > 0 {
				endRow()
			}
			break
		}
		if !isMatrix && p.take("&") {
			continue
		}
		if p.take(`\\`) {
			if width > 0 {
				endRow()
			}
			continue
		}
		if t := p.peek(); name == "cases" && t.kind == textToken && isConditional(t.text) {
			p.next()
		}
		words := ""
		if name == "cases" && width == 1 {
			words = wordsOfCell(p)
		}
		if words != "" {
			cells = append(cells, p.named(Text, words))
		} else {
			cells = append(cells, parseRelation(p))
		}
		width++
		t := p.peek()
		switch {
		case t.is("&"):
			p.next()
		case t.is(",") && !isMatrix:
			p.next()
		case t.is(`\\`), t.kind == endEnvToken:
		default:
			p.fail(ErrSyntax)
		}
	}
	if end := p.next(); p.err != nil || end.kind != endEnvToken || end.text != name || len(cells) == 0 {
		return p.fail(ErrSyntax)
	}
	if !isMatrix {
		if columns > 1 {
			n := p.named(Application, name, cells...)
			if p.err == nil {
				n.Columns = columns
			}
			return n
		}
		if len(cells) == 1 {
			return cells[0]
		}
		return p.node(List, cells...)
	}
	n := p.node(Matrix, cells...)
	if p.err == nil {
		n.Columns = columns
		if name == "vmatrix" {
			n.Name = "det"
		}
	}
	return n
}

// isConditional reports whether a word begins a condition: if x > 0.
func isConditional(word string) bool {
	switch strings.Trim(strings.ToLower(word), " ,") {
	case "if", "when", "for", "where":
		return true
	}
	return false
}

// wordsOfCell reads a condition in words, up to the end of its row: n is even. It reads nothing
// and is "" where the cell has no words.
func wordsOfCell(p *parser) string {
	end, worded := p.i, false
	for ; end < len(p.tokens); end++ {
		t := p.tokens[end]
		if t.kind == endToken || t.kind == endEnvToken || t.is(`\\`) || t.is("&") {
			break
		}
		worded = worded || t.kind == textToken
	}
	if !worded || end-p.i > 50 {
		return ""
	}
	var words []string
	for _, t := range p.tokens[p.i:end] {
		words = append(words, t.text)
	}
	p.i = end
	return strings.TrimRight(strings.Join(words, " "), " ,.;")
}
