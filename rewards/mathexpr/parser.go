package mathexpr

import "strings"

// Parse reads one answer: an expression, a relation, a set, or a list of them.
// The error is ErrSyntax or ErrTooLarge.
func Parse(s string, o Options) (*Node, error) {
	tokens, err := lex(s, o)
	if err != nil {
		return nil, err
	}
	for len(tokens) > 1 { // what ends a sentence
		if t := tokens[len(tokens)-2]; t.kind != symbolToken || !strings.Contains(".,;:?\\\\", t.text) {
			break
		}
		tokens = append(tokens[:len(tokens)-2], token{})
	}
	p := &parser{tokens: tokens}
	if n := len(tokens); n > 1 && tokens[n-2].is("dollar") { // 18\$
		tokens[n-2] = token{}
		p.tokens = tokens[:n-1]
	}
	for p.take("=") || p.take("approx") || p.take(":") || p.take("->") || p.take("therefore") || p.take(",") { // "= 5"
	}
	n := parseList(p)
	if p.err == nil && p.peek().kind != endToken {
		p.fail(ErrSyntax)
	}
	if p.err != nil {
		return nil, p.err
	}
	return n, nil
}

type parser struct {
	tokens  []token
	i       int
	depth   int
	nodes   int
	noBar   int    // a | at an operator's place closes
	noColon int    // a : at an operator's place separates a set's condition
	inside  int    // integrals: d and a letter end the integrand
	joint   string // what joined the items that were read last: "and", "or"; "" for commas, or for both
	err     error
}

func (p *parser) fail(err error) *Node {
	if p.err == nil {
		p.err = err
	}
	p.i = len(p.tokens) - 1 // so that nothing more is read
	return nothing()
}

// nothing is what a failed step leaves; the error says why.
func nothing() *Node { return number(0) }

func (p *parser) peek() token { return p.tokens[p.i] }

// after is the k-th token behind the next one.
func (p *parser) after(k int) token {
	if p.i+k < len(p.tokens) {
		return p.tokens[p.i+k]
	}
	return token{}
}

func (p *parser) next() token {
	t := p.tokens[p.i]
	if p.i < len(p.tokens)-1 {
		p.i++
	}
	return t
}

func (p *parser) take(symbol string) bool {
	if p.peek().is(symbol) {
		p.next()
		return true
	}
	return false
}

func (p *parser) want(symbol string) {
	if !p.take(symbol) {
		p.fail(ErrSyntax)
	}
}

// enter counts the depth; the caller defers leave.
func (p *parser) enter() bool {
	if p.depth++; p.depth > maxDepth {
		p.fail(ErrTooLarge)
	}
	return p.err == nil
}

func (p *parser) leave() { p.depth-- }

func (p *parser) node(k Kind, args ...*Node) *Node {
	if p.nodes++; p.nodes > maxNodes {
		return p.fail(ErrTooLarge)
	}
	return &Node{Kind: k, Args: args}
}

func (p *parser) named(k Kind, name string, args ...*Node) *Node {
	n := p.node(k, args...)
	if p.err == nil {
		n.Name = name
	}
	return n
}

// parseList := relation ((',' | ';' | 'and' | 'or') relation)*
func parseList(p *parser) *Node {
	items, _ := parseItems(p)
	if len(items) == 1 {
		return items[0]
	}
	if p.err != nil {
		return nothing()
	}
	return p.named(List, jointOf(p, items), items...)
}

// jointOf is what joins inequalities that were read last: "and" or "or". It says nothing of
// other items, whose list is the same whatever joins them.
func jointOf(p *parser, items []*Node) string {
	for _, n := range items {
		if n.Kind != Relation || len(n.Names) == 0 || n.Names[0] == "=" {
			return ""
		}
	}
	return p.joint
}

// parseItems reads a list up to what cannot continue it.
func parseItems(p *parser) (items []*Node, separated bool) {
	and, or := false, false
	defer func() {
		switch p.joint = ""; {
		case and && !or:
			p.joint = "and"
		case or && !and:
			p.joint = "or"
		}
	}()
	for p.err == nil {
		if t := p.peek(); t.is(".") && p.after(1).kind == endToken {
			p.next()
		}
		items = append(items, parseRelation(p))
		joined := p.peek().is("and")
		and, or = and || joined, or || p.peek().is("or")
		if !takeSeparator(p) {
			break
		}
		separated = true
		for {
			and, or = and || p.peek().is("and"), or || p.peek().is("or")
			if !takeSeparator(p) {
				break
			}
		}
		if atClosing(p) {
			if joined {
				p.fail(ErrSyntax)
			}
			break // a comma at the end
		}
		if n := len(items); joined && n > 0 && items[n-1].Kind == Quantity { // 5 hours and 30 minutes
			if more := parseRelation(p); more.Kind == Quantity && partOf(more, items[n-1]) {
				items[n-1] = p.node(Sum, items[n-1], more)
			} else {
				items = append(items, more)
			}
			if !takeSeparator(p) {
				break
			}
		}
	}
	return items, separated
}

// partOf reports whether two quantities are of one dimension and of different units.
func partOf(a, b *Node) bool {
	u, v := UnitOf(a.Name), UnitOf(b.Name)
	return u.Dimension != "" && u.Dimension == v.Dimension && u.Factor.Cmp(v.Factor) < 0
}

func takeSeparator(p *parser) bool {
	return p.take(",") || p.take(";") || p.take("and") || p.take("or") || p.take(`\\`)
}

// atClosing reports whether the next token ends a bracket or the text.
func atClosing(p *parser) bool {
	t := p.peek()
	if t.kind == endToken || t.kind == endEnvToken {
		return true
	}
	return t.kind == symbolToken && (t.text == ")" || t.text == "]" || t.text == "}" || t.text == `\}` || t.text == "rangle")
}

var relations = map[string]string{"=": "=", "<": "<", "<=": "<=", ">": ">", ">=": ">=", "!=": "!=", "in": "in", "notin": "notin",
	"approx": "approx", "equiv": "equiv", "sim": "sim", "cong": "equiv", "sub": "sub", "sup": "sup", "propto": "propto", "->": "->",
	"parallel": "parallel", "perp": "perp", "iff": "iff"}

// parseRelation := union (relation sign union)*
func parseRelation(p *parser) *Node {
	if !p.enter() {
		return nothing()
	}
	defer p.leave()
	first := parseRatio(p)
	t := p.peek()
	op, ok := relations[t.text]
	if t.kind != symbolToken || !ok {
		return parseCongruence(p, first, nil)
	}
	n := p.node(Relation, first)
	for ok && p.err == nil && t.kind == symbolToken {
		p.next()
		n.Names = append(n.Names, op)
		n.Args = append(n.Args, parseRatio(p))
		t = p.peek()
		op, ok = relations[t.text]
	}
	return parseCongruence(p, n.Args[len(n.Args)-1], n)
}

// parseCongruence reads (mod m) behind a relation: the modulus is one more argument.
func parseCongruence(p *parser, last, chain *Node) *Node {
	var m *Node
	switch {
	case p.take("pmod"):
		m = parseArgument(p)
	case p.peek().is("(") && p.after(1).is("mod"):
		p.next()
		p.next()
		m = parseSum(p)
		p.want(")")
	}
	if m == nil && chain != nil && last.Kind == Modulo && len(chain.Names) == 1 && chain.Names[0] == "equiv" { // x ≡ 3 mod 5
		chain.Args[1], m = last.Args[0], last.Args[1]
	}
	switch {
	case m == nil && chain == nil:
		return last
	case m == nil:
		return chain
	case chain == nil:
		return p.node(Modulo, last, m)
	}
	chain.Args = append(chain.Args, m)
	return chain
}

// parseRatio := union (':' union)*
func parseRatio(p *parser) *Node {
	first := parseUnion(p)
	if p.noColon > 0 || !p.peek().is(":") || p.after(1).kind == endToken {
		return first
	}
	n := p.node(Ratio, first)
	for p.noColon == 0 && p.err == nil && p.take(":") {
		n.Args = append(n.Args, parseUnion(p))
	}
	return n
}

// parseUnion := sum (('∪' | '∩' | '∖') sum)*
func parseUnion(p *parser) *Node {
	left := parseSum(p)
	for p.err == nil {
		switch {
		case p.take("cup"):
			right := parseSum(p)
			if left.Kind == Union {
				left.Args = append(left.Args, right)
			} else {
				left = p.node(Union, left, right)
			}
		case p.take("cap"):
			left = p.node(Intersection, left, parseSum(p))
		case p.take("setminus"):
			left = p.node(Difference, left, parseSum(p))
		default:
			return left
		}
	}
	return left
}

// parseSum := ('+' | '-' | '±' | '∓')* term (('+' | '-' | '±' | '∓') term)*
func parseSum(p *parser) *Node {
	if !p.enter() {
		return nothing()
	}
	defer p.leave()
	first := parseSigned(p)
	var n *Node
	for p.err == nil {
		t := p.peek()
		var term *Node
		switch {
		case t.is("+"):
			p.next()
			term = parseSigned(p)
		case t.is("-"), t.is("±"), t.is("∓"):
			if term = parseSigned(p); t.is("-") && term.Kind == Modulo && term.Args[0].Kind == Negative { // 10 - 7 mod 3
				term.Args[0] = term.Args[0].Args[0]
				term = p.node(Negative, term)
			}
		case atFeetAndInches(p, first, n):
			term = parseSigned(p)
		default:
			if n != nil {
				return n
			}
			return first
		}
		if n == nil {
			n = p.node(Sum, first)
		}
		n.Args = append(n.Args, term)
	}
	return nothing()
}

// atFeetAndInches reports whether a quantity follows a quantity: 5 feet 3 inches.
func atFeetAndInches(p *parser, first, n *Node) bool {
	if n != nil {
		first = n.Args[len(n.Args)-1]
	}
	return first.Kind == Quantity && p.peek().kind == numberToken &&
		(p.after(1).kind == textToken || p.after(1).is("in") && p.after(2).kind == endToken)
}

// parseSigned := sign* product
func parseSigned(p *parser) *Node {
	signs := 0
	for p.err == nil {
		var k Kind
		switch {
		case p.take("+"):
			if p.peek().is("-") && p.after(1).is("-") { // "+--" and longer are no mathematics
				p.fail(ErrSyntax)
			}
			continue
		case p.take("-"):
			k = Negative
			if p.take("+") || p.take("/") && p.take("+") { // +/-
				p.fail(ErrSyntax)
			}
		case p.take("±"):
			k = PlusMinus
		case p.take("∓"):
			k = MinusPlus
		case p.take("dollar"):
			if signs++; signs > 8 {
				return p.fail(ErrTooLarge)
			}
			if !p.enter() {
				return nothing()
			}
			n := parseSigned(p)
			p.leave()
			if n.Kind == Quantity {
				return n
			}
			return p.named(Quantity, "dollars", n)
		default:
			return parseProduct(p)
		}
		if signs++; signs > 8 {
			return p.fail(ErrTooLarge)
		}
		if !p.enter() {
			return nothing()
		}
		bracket := p.peek().is("(")
		n := parseSigned(p)
		p.leave()
		if k == Negative && n.Kind == Modulo && !bracket { // -7 mod 3
			n.Args[0] = p.node(Negative, n.Args[0])
			return n
		}
		return p.node(k, n)
	}
	return nothing()
}

// parseProduct := factor (('*' | '/' | 'mod' | 'choose' | nothing) factor)* unit?
func parseProduct(p *parser) *Node {
	left := parseFactor(p)
	product := func(right *Node) {
		if left.Kind == Product {
			left.Args = append(left.Args, right)
			return
		}
		left = p.node(Product, left, right)
	}
	fresh := true // left is one factor, which may itself be a product in brackets
	for p.err == nil {
		t := p.peek()
		if left.Kind == Text { // words are no factor
			return left
		}
		switch {
		case t.is("*"):
			p.next()
			right := parseOperand(p)
			if fresh && left.Kind == Product {
				left = p.node(Product, left)
			}
			product(right)
			fresh = false
		case t.is("/"):
			p.next()
			left, fresh = p.node(Quotient, left, parseOperand(p)), true
		case t.is("mod"):
			p.next()
			left, fresh = p.node(Modulo, left, parseOperand(p)), true
		case t.is("choose"):
			p.next()
			left, fresh = p.node(Binomial, left, parseOperand(p)), true
		case t.kind == textToken, t.is("in") && (p.after(1).kind == endToken || p.after(1).is("^")):
			if p.inside > 0 && t.text == "d" {
				return left
			}
			unit, ok := parseUnit(p)
			if !ok {
				return left
			}
			return p.named(Quantity, unit, left)
		case beginsFactor(p, t):
			right := parseFactor(p)
			if fresh && left.Kind == Product {
				left = p.node(Product, left)
			}
			product(right)
			fresh = false
		default:
			return left
		}
	}
	return nothing()
}

// parseOperand is a factor with its signs: 2 * -3.
func parseOperand(p *parser) *Node {
	if p.take("-") {
		if !p.enter() {
			return nothing()
		}
		defer p.leave()
		return p.node(Negative, parseOperand(p))
	}
	if p.take("±") {
		return p.node(PlusMinus, parseFactor(p))
	}
	p.take("+")
	return parseFactor(p)
}

// beginsFactor reports whether a token, at the place of an operator, is a factor without
// a sign of multiplication.
func beginsFactor(p *parser, t token) bool {
	switch t.kind {
	case letterToken:
		if p.inside > 0 && t.text == "d" && p.after(1).kind == letterToken {
			return false
		}
		return true
	case constantToken, functionToken, beginToken:
		return true
	case commandToken:
		return true
	case numberToken:
		last := p.tokens[p.i-1]
		return last.kind != numberToken // "2 3" is no product
	case symbolToken:
		switch t.text {
		case "(":
			return !p.after(1).is("mod")
		case "[":
			return !closesHalfOpen(p.after(1))
		case "{", "lfloor", "lceil", "langle":
			return true
		case "|", "norm":
			return p.noBar == 0
		}
	}
	return false
}

// closesHalfOpen reports whether [ before a token closes an interval: [0, 1[.
func closesHalfOpen(behind token) bool {
	return behind.kind == endToken || behind.is("cup") || behind.is("cap") || behind.is("setminus")
}

// parseUnit reads the words behind a value. Words that join or compare are none.
func parseUnit(p *parser) (string, bool) {
	var words []string
	start := p.i
	for {
		t := p.peek()
		switch {
		case t.kind == textToken:
			words = append(words, t.text)
			p.next()
		case t.is("/") && len(words) > 0 && (p.after(1).kind == textToken || p.after(1).kind == letterToken):
			p.next()
			words[len(words)-1] += "/" + p.next().text
		case t.is("^") && len(words) > 0:
			p.next()
			n := parseArgument(p)
			switch {
			case n.Is(2):
				words[len(words)-1] += "^2"
			case n.Is(3):
				words[len(words)-1] += "^3"
			default:
				p.fail(ErrSyntax)
				return "", false
			}
		case t.is(".") && len(words) > 0 && p.after(1).kind == endToken:
			p.next()
		case t.is("in") && (p.after(1).kind == endToken || p.after(1).is("^")): // inches
			words = append(words, "in")
			p.next()
		default:
			s := strings.Join(words, " ")
			if !unitLike(words) {
				p.i = start
				return "", false
			}
			return s, true
		}
	}
}

// unitLike reports whether words may be a unit: not ones that say something.
func unitLike(words []string) bool {
	for _, w := range words {
		for _, f := range strings.Fields(strings.ToLower(w)) {
			switch strings.Trim(f, ",.") {
			case "if", "when", "where", "for", "is", "with", "otherwise", "not", "no", "none", "all", "any", "but", "such", "that", "are", "from",
				"to", "and", "or", "than", "then", "given", "real", "positive", "negative", "even", "odd":
				return false
			}
		}
	}
	return len(words) > 0 && len(words) <= 6
}
