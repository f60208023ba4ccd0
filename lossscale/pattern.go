package lossscale

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"

	"agentcli/internal/malformed"
)

// What Python's \s, \d and \w match of a text, which is more than ASCII.
const (
	spaceRanges   = `\t-\r\x1c-\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}`
	noSpaceRanges = `\x00-\x08\x0e-\x1b\x21-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}` +
		`\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff}`
	wordRanges = `_\p{L}\p{N}`
)

// translate writes a regular expression of Python's module re, under DOTALL, for package
// regexp, which runs in time linear in the text. What that cannot express is
// malformed.Unsupported: lookarounds, backreferences, conditions, atomic groups and
// possessive repeats, $ (which Python also matches before a last newline), \b and \B (which
// know ASCII letters only there), and \W in a class.
func translate(pattern string) (string, error) {
	t := translation{rest: pattern}
	if !utf8.ValidString(pattern) {
		return "", malformed.Errorf(malformed.Syntax, "the pattern is not UTF-8")
	}
	if flags := wholeFlags.FindString(pattern); flags != "" { // Python takes them at the beginning alone
		t.take(len(flags))
	}
	for t.rest != "" {
		if err := t.next(); err != nil {
			return "", err
		}
	}
	parsed, err := syntax.Parse(t.out.String(), syntax.Perl|syntax.DotNL)
	if err != nil {
		return "", notExpression(err)
	}
	if canBeEmpty(parsed) {
		return "", malformed.Errorf(malformed.Range,
			"the pattern matches the empty text, which is everywhere; let it match at least one character")
	}
	return t.out.String(), nil
}

// notExpression is the error of a pattern that does not parse. It leaves out where: that would be
// the translation, which nobody wrote.
func notExpression(err error) error {
	if e := (*syntax.Error)(nil); errors.As(err, &e) {
		return malformed.Errorf(malformed.Syntax, "not a regular expression: %s", e.Code)
	}
	return malformed.Errorf(malformed.Syntax, "not a regular expression: %w", err)
}

// translation is a pattern that is being translated.
type translation struct {
	out  strings.Builder
	rest string
}

// take copies n bytes.
func (t *translation) take(n int) { t.replace(n, t.rest[:n]) }

// replace writes text in place of n bytes.
func (t *translation) replace(n int, text string) {
	t.out.WriteString(text)
	t.rest = t.rest[n:]
}

func unsupported(what, remedy string) error {
	return malformed.Errorf(malformed.Unsupported, "%s not supported; %s", what, remedy)
}

var (
	repeat     = regexp.MustCompile(`^\{(\d*)(,?)(\d*)\}`)
	scopeFlags = regexp.MustCompile(`^\(\?[ims]*(-[ims]+)?:`)
	wholeFlags = regexp.MustCompile(`^\(\?[ims]+\)`)
	named      = regexp.MustCompile(`^\(\?P<\w+>`)
)

// next translates what comes next outside a class.
func (t *translation) next() error {
	switch t.rest[0] {
	case '\\':
		return t.escape(false)
	case '[':
		return t.class()
	case '(':
		return t.group()
	case '$':
		return unsupported("$ is", `write \Z for the end of the reply`)
	case '*', '+', '?':
		t.take(1)
		return t.endRepeat()
	case '{':
		m := repeat.FindStringSubmatch(t.rest)
		if m == nil || m[1] == "" && m[2] == "" {
			t.replace(1, `\{`)
			return nil
		}
		low := m[1]
		if low == "" {
			low = "0"
		}
		t.replace(len(m[0]), "{"+low+m[2]+m[3]+"}")
		return t.endRepeat()
	}
	_, n := utf8.DecodeRuneInString(t.rest)
	t.take(n)
	return nil
}

// endRepeat is behind a repeat, which may be lazy.
func (t *translation) endRepeat() error {
	switch {
	case strings.HasPrefix(t.rest, "+"):
		return unsupported("a possessive repeat is", "leave its last + out")
	case strings.HasPrefix(t.rest, "?"):
		t.take(1)
	}
	return nil
}

// group is an opening parenthesis.
func (t *translation) group() error {
	has := func(prefix string) bool { return strings.HasPrefix(t.rest, prefix) }
	switch {
	case has("(?=") || has("(?!") || has("(?<=") || has("(?<!"):
		return unsupported("a lookaround is", "match the text around it too, or use two keywords")
	case has("(?P="):
		return unsupported("a backreference is", "write the text out")
	case has("(?>"):
		return unsupported("an atomic group is", "write (?:…)")
	case has("(?("):
		return unsupported("a condition is", "write two patterns")
	case has("(?#"):
		end := strings.IndexByte(t.rest, ')')
		if end < 0 {
			return malformed.Errorf(malformed.Syntax, "a comment is not closed")
		}
		t.replace(end+1, "")
		return nil
	case !has("(?"):
		t.take(1)
		return nil
	}
	for _, head := range []*regexp.Regexp{scopeFlags, named} {
		if n := len(head.FindString(t.rest)); n > 0 {
			t.take(n)
			return nil
		}
	}
	return unsupported(fmt.Sprintf("the group %.8q is", t.rest), "flags are i, m and s, written (?i:…)")
}

// class is a set of characters in brackets.
func (t *translation) class() error {
	t.take(1)
	if strings.HasPrefix(t.rest, "^") {
		t.take(1)
	}
	if strings.HasPrefix(t.rest, "]") {
		t.replace(1, `\]`)
	}
	for t.rest != "" {
		switch t.rest[0] {
		case ']':
			t.take(1)
			return nil
		case '[':
			t.replace(1, `\[`)
		case '\\':
			if err := t.escape(true); err != nil {
				return err
			}
		default:
			_, n := utf8.DecodeRuneInString(t.rest)
			t.take(n)
		}
	}
	return malformed.Errorf(malformed.Syntax, "a [ is not closed")
}

var (
	hexadecimal = regexp.MustCompile(`^\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})`)
	octal       = regexp.MustCompile(`^\\(0[0-7]{0,2}|[1-3][0-7]{2})`)
)

// escape is a backslash and what follows it.
func (t *translation) escape(class bool) error {
	if m := hexadecimal.FindString(t.rest); m != "" {
		t.replace(len(m), `\x{`+m[2:]+`}`)
		return nil
	}
	if m := octal.FindString(t.rest); m != "" {
		var r rune
		for _, digit := range m[1:] {
			r = 8*r + digit - '0'
		}
		t.replace(len(m), fmt.Sprintf(`\x{%x}`, r))
		return nil
	}
	r, n := utf8.DecodeRuneInString(t.rest[1:])
	if n == 0 {
		return malformed.Errorf(malformed.Syntax, `there is nothing behind the last \`)
	}
	sets := map[rune][2]string{ // outside and within a class
		'd': {`\p{Nd}`, `\p{Nd}`}, 'D': {`\P{Nd}`, `\P{Nd}`},
		's': {"[" + spaceRanges + "]", spaceRanges}, 'S': {"[^" + spaceRanges + "]", noSpaceRanges},
		'w': {"[" + wordRanges + "]", wordRanges}, 'W': {"[^" + wordRanges + "]", ""},
		'b': {"", `\x08`}, 'B': {}, 'A': {`\A`, ""}, 'Z': {`\z`, ""},
	}
	set, known := sets[r]
	within := 0
	if class {
		within = 1
	}
	switch {
	case known && set[within] != "":
		t.replace(1+n, set[within])
	case known:
		return unsupported(fmt.Sprintf(`\%c is`, r), "name the characters that are meant")
	case strings.ContainsRune("ntrfva", r):
		t.take(1 + n)
	case r >= '1' && r <= '9':
		return unsupported("a backreference is", "write the text out")
	case r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z':
		return malformed.Errorf(malformed.Syntax, `\%c is no escape of Python's`, r)
	case r < utf8.RuneSelf:
		t.take(1 + n)
	default:
		t.replace(1+n, string(r))
	}
	return nil
}

// canBeEmpty reports whether an expression can match a text of no character.
func canBeEmpty(x *syntax.Regexp) bool {
	switch x.Op {
	case syntax.OpLiteral:
		return len(x.Rune) == 0
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL, syntax.OpNoMatch:
		return false
	case syntax.OpCapture, syntax.OpPlus:
		return canBeEmpty(x.Sub[0])
	case syntax.OpRepeat:
		return x.Min == 0 || canBeEmpty(x.Sub[0])
	case syntax.OpConcat:
		for _, sub := range x.Sub {
			if !canBeEmpty(sub) {
				return false
			}
		}
	case syntax.OpAlternate:
		for _, sub := range x.Sub {
			if canBeEmpty(sub) {
				return true
			}
		}
		return false
	}
	return true
}
