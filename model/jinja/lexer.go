package jinja

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

type kind uint8

const (
	tokEOF kind = iota
	tokData
	tokName
	tokString
	tokInt
	tokFloat
	tokOp
	tokBlock    // {%
	tokBlockEnd // %}
	tokPrint    // {{
	tokPrintEnd // }}
)

type token struct {
	kind kind
	text string // of data, names, strings (without escapes) and operators
	num  any    // int64, *big.Int or float64
	line int
}

func (t token) String() string {
	switch t.kind {
	case tokEOF:
		return "the end of the template"
	case tokBlockEnd:
		return `"%}"`
	case tokPrintEnd:
		return `"}}"`
	case tokInt, tokFloat:
		return fmt.Sprint(t.num)
	}
	return fmt.Sprintf("%.40q", t.text)
}

// lexer follows jinja2/lexer.py with trim_blocks and lstrip_blocks.
type lexer struct {
	src    string
	at     int
	line   int
	fresh  bool // what was read last ended with a line break, or nothing was read yet
	tokens []token
}

func lex(source string) (tokens []token, err error) {
	source = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(source)
	source = strings.TrimSuffix(source, "\n")
	l := &lexer{src: source, line: 1, fresh: true}
	defer func() {
		if x := recover(); x != nil {
			tokens, err = nil, thrown(x)
		}
	}()
	for l.at < len(l.src) {
		l.root()
	}
	l.emit(token{kind: tokEOF})
	return l.tokens, nil
}

func (l *lexer) fail(format string, a ...any) {
	panic(&Error{ErrSyntax, l.line, fmt.Sprintf(format, a...)})
}

func (l *lexer) emit(t token) {
	t.line = l.line
	l.tokens = append(l.tokens, t)
}

// skip goes on by n bytes.
func (l *lexer) skip(n int) {
	if n > 0 {
		l.line += strings.Count(l.src[l.at:l.at+n], "\n")
		l.at += n
		l.fresh = l.src[l.at-1] == '\n'
	}
}

// root reads text up to the next tag, and the tag.
func (l *lexer) root() {
	tag := -1
	for i := l.at; i+1 < len(l.src); i++ {
		if l.src[i] == '{' && (l.src[i+1] == '{' || l.src[i+1] == '%' || l.src[i+1] == '#') {
			tag = i
			break
		}
	}
	if tag < 0 {
		l.emit(token{kind: tokData, text: l.src[l.at:]})
		l.skip(len(l.src) - l.at)
		return
	}
	kind, sign := l.src[tag+1], byte(0)
	if tag+2 < len(l.src) && (l.src[tag+2] == '-' || l.src[tag+2] == '+') {
		sign = l.src[tag+2]
	}
	l.data(tag, sign, kind == '{')
	n := 2
	if sign != 0 {
		n = 3
	}
	if kind == '%' {
		if k := l.rawTag(tag + n); k > 0 {
			l.skip(k - tag)
			l.raw()
			return
		}
	}
	l.skip(n)
	switch kind {
	case '#':
		l.comment()
	case '%':
		l.emit(token{kind: tokBlock})
		l.tag("%}", tokBlockEnd)
	default:
		l.emit(token{kind: tokPrint})
		l.tag("}}", tokPrintEnd)
	}
}

// data emits the text before a tag, without the blanks that the tag's sign or
// lstrip_blocks removes.
func (l *lexer) data(end int, sign byte, prints bool) {
	text := l.src[l.at:end]
	keep := text
	switch {
	case sign == '-':
		keep = strings.TrimRightFunc(text, isSpace)
	case sign != '+' && !prints:
		begin := strings.LastIndexByte(text, '\n') + 1
		if (begin > 0 || l.fresh) && strings.TrimFunc(text[begin:], isSpace) == "" {
			keep = text[:begin]
		}
	}
	if keep != "" {
		l.emit(token{kind: tokData, text: keep})
	}
	l.skip(len(text))
}

// rawTag is the end of "raw %}" at a position, or 0.
func (l *lexer) rawTag(at int) int {
	rest := strings.TrimLeftFunc(l.src[at:], isSpace)
	rest, ok := strings.CutPrefix(rest, "raw")
	if !ok {
		return 0
	}
	rest = strings.TrimLeftFunc(rest, isSpace)
	if after, ok := strings.CutPrefix(rest, "-%}"); ok {
		return len(l.src) - len(strings.TrimLeftFunc(after, isSpace))
	}
	if after, ok := strings.CutPrefix(rest, "%}"); ok {
		return len(l.src) - len(after)
	}
	return 0
}

// raw reads up to {% endraw %}.
func (l *lexer) raw() {
	for i := l.at; ; i++ {
		k := strings.Index(l.src[i:], "{%")
		if k < 0 {
			l.fail("there is no {%% endraw %%}")
		}
		i += k
		sign := byte(0)
		rest := l.src[i+2:]
		if rest != "" && (rest[0] == '-' || rest[0] == '+') {
			sign, rest = rest[0], rest[1:]
		}
		rest, ok := strings.CutPrefix(strings.TrimLeftFunc(rest, isSpace), "endraw")
		if !ok {
			continue
		}
		end := len(l.src) - len(strings.TrimLeftFunc(rest, isSpace))
		if n := l.closing(end, "%}", true); n > 0 {
			l.data(i, sign, false)
			l.skip(end + n - i)
			return
		}
	}
}

// closing is the length of a tag's end at a position with the blanks that it
// removes, or 0.
func (l *lexer) closing(at int, end string, trims bool) int {
	rest := l.src[at:]
	if after, ok := strings.CutPrefix(rest, "-"+end); ok {
		return len(rest) - len(strings.TrimLeftFunc(after, isSpace))
	}
	if trims && strings.HasPrefix(rest, "+"+end) {
		return 1 + len(end)
	}
	if after, ok := strings.CutPrefix(rest, end); ok {
		if trims && strings.HasPrefix(after, "\n") {
			return len(end) + 1
		}
		return len(end)
	}
	return 0
}

func (l *lexer) comment() {
	k := strings.Index(l.src[l.at:], "#}")
	if k < 0 {
		l.fail("there is no end of the comment")
	}
	end := l.at + k
	if k > 0 && (l.src[end-1] == '-' || l.src[end-1] == '+') {
		end--
	}
	l.skip(end + l.closing(end, "#}", true) - l.at)
}

// operators, the longer ones first.
var operators = strings.Fields("** // == != >= <= + - * / % ~ [ ] ( ) { } > < = . : | , ;")

var closes = map[string]string{"(": ")", "[": "]", "{": "}"}

// tag reads what is between a tag's ends.
func (l *lexer) tag(end string, kind kind) {
	var open []string
	for {
		if l.at >= len(l.src) {
			l.fail("there is no %s that ends the tag", end)
		}
		if len(open) == 0 {
			if n := l.closing(l.at, end, kind == tokBlockEnd); n > 0 {
				l.emit(token{kind: kind})
				l.skip(n)
				return
			}
		}
		rest := l.src[l.at:]
		c, w := utf8.DecodeRuneInString(rest)
		switch {
		case isSpace(c):
			l.skip(w)
		case c >= '0' && c <= '9':
			l.number(rest)
		case c == '_' || unicode.IsLetter(c):
			n := strings.IndexFunc(rest, func(c rune) bool {
				return c != '_' && !unicode.IsLetter(c) && !unicode.IsDigit(c) && !unicode.Is(unicode.M, c)
			})
			if n < 0 {
				n = len(rest)
			}
			l.emit(token{kind: tokName, text: rest[:n]})
			l.skip(n)
		case c == '\'' || c == '"':
			l.quoted(rest)
		default:
			op := l.operator(rest)
			if to := closes[op]; to != "" {
				open = append(open, to)
			} else if op == ")" || op == "]" || op == "}" {
				if len(open) == 0 || open[len(open)-1] != op {
					l.fail("unexpected %q", op)
				}
				open = open[:len(open)-1]
			}
		}
	}
}

func (l *lexer) operator(rest string) string {
	for _, op := range operators {
		if strings.HasPrefix(rest, op) {
			l.emit(token{kind: tokOp, text: op})
			l.skip(len(op))
			return op
		}
	}
	c, _ := utf8.DecodeRuneInString(rest)
	l.fail("unexpected character %q", c)
	return ""
}

// digits is the end of digits at a position, '_' between two of them allowed.
func digits(s string, at int, of string) int {
	for at < len(s) {
		if strings.IndexByte(of, s[at]) >= 0 {
			at++
		} else if s[at] == '_' && at+1 < len(s) && at > 0 && strings.IndexByte(of, s[at+1]) >= 0 {
			at += 2
		} else {
			break
		}
	}
	return at
}

const decimal = "0123456789"

func (l *lexer) number(rest string) {
	n := digits(rest, 0, decimal)
	after, afterDot := l.tokens[len(l.tokens)-1], false
	if after.kind == tokOp && after.text == "." {
		afterDot = true // x.0.1 is no float
	}
	end := n
	if end+1 < len(rest) && rest[end] == '.' && rest[end+1] >= '0' && rest[end+1] <= '9' {
		end = digits(rest, end+1, decimal)
	}
	if end < len(rest) && (rest[end] == 'e' || rest[end] == 'E') {
		k := end + 1
		if k < len(rest) && (rest[k] == '+' || rest[k] == '-') {
			k++
		}
		if k < len(rest) && rest[k] >= '0' && rest[k] <= '9' {
			end = digits(rest, k, decimal)
		}
	}
	if end > n && !afterDot {
		f, err := strconv.ParseFloat(strings.ReplaceAll(rest[:end], "_", ""), 64)
		if err != nil && f == 0 {
			l.fail("%.40q is no number", rest[:end])
		}
		l.emit(token{kind: tokFloat, num: f})
		l.skip(end)
		return
	}
	if len(rest) > 2 && rest[0] == '0' {
		if of := map[byte]string{'x': "0123456789abcdefABCDEF", 'o': "01234567", 'b': "01"}[rest[1]|0x20]; of != "" {
			if k := digits(rest, 2, of); k > 2 {
				n = k
			}
		}
	}
	text := strings.ReplaceAll(rest[:n], "_", "")
	if len(text) > 1 && text[0] == '0' && text[1] <= '9' {
		if strings.Trim(text, "0") != "" { // 007 is 0, then 07: two numbers side by side
			n = len(text) - len(strings.TrimLeft(text, "0"))
		}
		text = "0"
	}
	i, ok := new(big.Int).SetString(text, 0)
	if !ok || len(text) > 4300 {
		l.fail("%.40q is no number", rest[:n])
	}
	l.emit(token{kind: tokInt, num: whole(i)})
	l.skip(n)
}

// quoted reads a string literal.
func (l *lexer) quoted(rest string) {
	quote := rest[0]
	i := 1
	for i < len(rest) && rest[i] != quote {
		if rest[i] == '\\' {
			i++
		}
		i++
	}
	if i >= len(rest) {
		l.fail("unexpected character %q: a string without its end", quote)
	}
	l.emit(token{kind: tokString, text: l.unescape(rest[1:i])})
	l.skip(i + 1)
}

var escapes = map[byte]string{'n': "\n", 't': "\t", 'r': "\r", 'a': "\a", 'b': "\b", 'f': "\f", 'v': "\v",
	'\\': `\`, '\'': `'`, '"': `"`, '\n': ""}

// unescape is Python's unicode-escape.
func (l *lexer) unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 >= len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		c := s[i]
		if to, ok := escapes[c]; ok {
			b.WriteString(to)
			continue
		}
		n, of, base := 0, "0123456789abcdefABCDEF", 16
		switch {
		case c == 'x':
			n = 2
		case c == 'u':
			n = 4
		case c == 'U':
			n = 8
		case c >= '0' && c <= '7':
			end := i
			for end < len(s) && end < i+3 && s[end] >= '0' && s[end] <= '7' {
				end++
			}
			v, _ := strconv.ParseUint(s[i:end], 8, 32)
			b.WriteRune(rune(v))
			i = end - 1
			continue
		case c == 'N':
			l.fail(`\N{…} in a string is not supported`)
		default:
			b.WriteByte('\\')
			b.WriteByte(c)
			continue
		}
		if i+n >= len(s) && i+n != len(s)-1 || digits(s[:min(i+1+n, len(s))], i+1, of) != i+1+n {
			l.fail("a string has a truncated escape \\%c", c)
		}
		v, _ := strconv.ParseUint(s[i+1:i+1+n], base, 64)
		if v > unicode.MaxRune {
			l.fail("a string has a character beyond Unicode")
		}
		b.WriteRune(rune(v))
		i += n
	}
	return b.String()
}
