// Package text makes words fit for a line of ours, in error messages and log lines:
// foreign ones harmless and short, numbers with their noun, shell words quoted. It is
// in layer 0 and imports the standard library only.
package text

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// OneLine puts a space in place of every run of white space, line breaks
// included, and none at the ends.
func OneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// Line is an error's message in one line; "" for nil.
func Line(err error) string {
	if err == nil {
		return ""
	}
	return OneLine(err.Error())
}

// Cut is s, or its first n characters and an ellipsis where it has more.
func Cut(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}

// Name is a name from a file that may be hostile: it neither fills the screen
// (n bytes of it are shown) nor breaks the line.
func Name(s string, n int) string {
	if len(s) > n {
		s = s[:n] + "…"
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f || r == utf8.RuneError }) {
		return fmt.Sprintf("%q", s)
	}
	return s
}

// Harmless is s in its own lines, but unable to command a terminal or to turn the
// direction of what follows: every control character but line feed and tab, and
// every character that changes the direction of text, becomes U+FFFD.
func Harmless(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r < ' ', r >= 0x7f && r < 0xa0, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069, r == 0x200e, r == 0x200f, r == 0x061c:
			return utf8.RuneError
		}
		return r
	}, s)
}
