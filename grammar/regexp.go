package grammar

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// errTooLarge says that a grammar needs more than its bounds allow.
var errTooLarge = errors.New("it needs too many states; make its repetitions and choices fewer, or raise Options.MaxStates")

// Regexp is the language of a regular expression of RE2's syntax: the whole text matches, so
// that anchors at its ends change nothing. Anchors elsewhere and word boundaries are errors.
func Regexp(pattern string) (*Grammar, error) {
	b := Options{}.budget()
	p, err := parseRegexp(pattern, plainRunes{})
	if err != nil {
		return nil, fmt.Errorf("regular expression %s: %w", quoted(pattern), err)
	}
	g, err := finish(b.compile(p.whole), b, nil)
	if err != nil {
		return nil, fmt.Errorf("regular expression %s: %w", quoted(pattern), err)
	}
	return g, nil
}

// runeWriter says how the characters of a regular expression are written.
type runeWriter interface {
	runes(lo, hi rune) *pattern
}

// plainRunes are written as UTF-8.
type plainRunes struct{}

func (plainRunes) runes(lo, hi rune) *pattern { return runesOf(lo, hi) }

// parsed is a regular expression as patterns.
type parsed struct {
	whole  *pattern // texts that it matches from the beginning to the end
	search *pattern // texts that have a match anywhere, as JSON Schema has it
}

// maxPattern is the longest regular expression, in bytes.
const maxPattern = 1 << 16

func parseRegexp(text string, w runeWriter) (parsed, error) {
	if len(text) > maxPattern {
		return parsed{}, fmt.Errorf("it has %d bytes; at most %d are supported", len(text), maxPattern)
	}
	tree, err := syntax.Parse(hexEscapes(text), syntax.Perl)
	if err != nil {
		return parsed{}, err
	}
	c := regexpCompiler{write: w, classes: map[string]*pattern{}}
	any := starOf(c.class([]rune{0, unicode.MaxRune}))
	var out parsed
	var whole, search []*pattern
	for _, branch := range branches(tree) {
		p, start, end, err := c.anchored(branch)
		if err != nil {
			return out, err
		}
		whole = append(whole, p)
		s := seqOf(p)
		if !start {
			s.subs = append([]*pattern{any}, s.subs...)
		}
		if !end {
			s.subs = append(s.subs, any)
		}
		search = append(search, s)
	}
	return parsed{altOf(whole...), altOf(search...)}, nil
}

// hexEscapes writes JavaScript's \u1234 as RE2's \x{1234}.
func hexEscapes(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			b.WriteByte(text[i])
			continue
		}
		if text[i+1] == 'u' && i+6 <= len(text) && isHex(text[i+2:i+6]) {
			b.WriteString(`\x{` + text[i+2:i+6] + `}`)
			i += 5
			continue
		}
		b.WriteString(text[i : i+2])
		i++
	}
	return b.String()
}

func isHex(s string) bool {
	return strings.Trim(s, "0123456789abcdefABCDEF") == ""
}

// branches are the alternatives at the top, each of which may have anchors of its own.
func branches(tree *syntax.Regexp) []*syntax.Regexp {
	switch tree.Op {
	case syntax.OpCapture:
		return branches(tree.Sub[0])
	case syntax.OpAlternate:
		var out []*syntax.Regexp
		for _, sub := range tree.Sub {
			out = append(out, branches(sub)...)
		}
		return out
	}
	return []*syntax.Regexp{tree}
}

type regexpCompiler struct {
	write   runeWriter
	classes map[string]*pattern
}

// anchored compiles a branch without the anchors at its ends.
func (c *regexpCompiler) anchored(tree *syntax.Regexp) (p *pattern, start, end bool, err error) {
	subs := []*syntax.Regexp{tree}
	for len(subs) == 1 && (subs[0].Op == syntax.OpConcat || subs[0].Op == syntax.OpCapture && hasAnchor(subs[0])) {
		subs = subs[0].Sub
	}
	for len(subs) > 0 && subs[0].Op == syntax.OpBeginText {
		subs, start = subs[1:], true
	}
	for len(subs) > 0 && subs[len(subs)-1].Op == syntax.OpEndText {
		subs, end = subs[:len(subs)-1], true
	}
	p = seqOf()
	for _, sub := range subs {
		q, err := c.compile(sub)
		if err != nil {
			return nil, false, false, err
		}
		p.subs = append(p.subs, q)
	}
	return p, start, end, nil
}

func hasAnchor(tree *syntax.Regexp) bool {
	return tree.Op == syntax.OpBeginText || tree.Op == syntax.OpEndText || slices.ContainsFunc(tree.Sub, hasAnchor)
}

func (c *regexpCompiler) compile(tree *syntax.Regexp) (*pattern, error) {
	var subs []*pattern
	for _, sub := range tree.Sub {
		p, err := c.compile(sub)
		if err != nil {
			return nil, err
		}
		subs = append(subs, p)
	}
	switch tree.Op {
	case syntax.OpNoMatch:
		return altOf(), nil
	case syntax.OpEmptyMatch:
		return seqOf(), nil
	case syntax.OpLiteral:
		return c.literal(tree), nil
	case syntax.OpCharClass:
		return c.class(tree.Rune), nil
	case syntax.OpAnyCharNotNL:
		return c.class([]rune{0, '\n' - 1, '\n' + 1, unicode.MaxRune}), nil
	case syntax.OpAnyChar:
		return c.class([]rune{0, unicode.MaxRune}), nil
	case syntax.OpCapture:
		return subs[0], nil
	case syntax.OpConcat:
		return seqOf(subs...), nil
	case syntax.OpAlternate:
		return altOf(subs...), nil
	case syntax.OpStar:
		return starOf(subs[0]), nil
	case syntax.OpPlus:
		return repeatOf(subs[0], 1, -1), nil
	case syntax.OpQuest:
		return optionOf(subs[0]), nil
	case syntax.OpRepeat:
		return repeatOf(subs[0], tree.Min, tree.Max), nil
	case syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return nil, fmt.Errorf(`word boundaries (\b, \B) are not supported; write the characters that may be there`)
	}
	return nil, fmt.Errorf("anchors are supported at the beginning and the end only, not %s inside", tree)
}

func (c *regexpCompiler) literal(tree *syntax.Regexp) *pattern {
	out := seqOf()
	for _, r := range tree.Rune {
		pairs := []rune{r, r}
		if tree.Flags&syntax.FoldCase != 0 {
			for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
				pairs = append(pairs, f, f)
			}
		}
		out.subs = append(out.subs, c.class(pairs))
	}
	return out
}

// class are characters of ranges, each two numbers. Equal classes are one automaton, made once.
func (c *regexpCompiler) class(ranges []rune) *pattern {
	key := string(fmt.Append(nil, ranges))
	if p, ok := c.classes[key]; ok {
		return p
	}
	p := altOf()
	for i := 0; i < len(ranges); i += 2 {
		p.subs = append(p.subs, c.write.runes(max(ranges[i], 0), min(ranges[i+1], utf8.MaxRune)))
	}
	if len(ranges) > 2 || len(ranges) == 2 && ranges[0] != ranges[1] {
		p = dfaOf((&budget{states: 1 << 16, work: 1 << 24}).compile(p))
	}
	c.classes[key] = p
	return p
}
