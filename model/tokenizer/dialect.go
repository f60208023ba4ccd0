package tokenizer

import (
	"errors"
	"strings"
)

// wordClass is \w of Oniguruma within a class of characters: Alphabetic, marks,
// decimal digits and connector punctuation. That of regexp2 lacks circled letters
// and has the zero-width joiner. Outside of classes Oniguruma takes six numbers
// of Latin-1 too.
const (
	wordClass  = `\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}Ⓐ-ⓩ🄰-🅉🅐-🅩🅰-🆉`
	wordLatin1 = `²³¹¼½¾`
)

// unfolded spells out the case folding of foldedSuffix: Oniguruma folds U+017F
// (long s) with s, regexp2 does not.
const unfolded = `(?:'[sS\u017F]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])`

// fromOniguruma rewrites a pattern of the tokenizers library's dialect for
// regexp2: word characters, hexadecimal digits, and possessive quantifiers,
// which become atomic groups. Classes within classes, which regexp2 does not
// have, are an error.
func fromOniguruma(pattern string) (string, error) {
	pattern = strings.ReplaceAll(pattern, foldedSuffix, unfolded)
	var out strings.Builder
	var groups []int // where the open groups begin in out
	atom, class := -1, 0
	for i := 0; i < len(pattern); {
		c := pattern[i]
		switch {
		case c == '\\' && i+1 < len(pattern):
			if class == 0 {
				atom = out.Len()
			}
			n := 2
			if strings.IndexByte("pPxu", pattern[i+1]) >= 0 && i+2 < len(pattern) && pattern[i+2] == '{' {
				if j := strings.IndexByte(pattern[i:], '}'); j > 0 {
					n = j + 1
				}
			}
			out.WriteString(escape(pattern[i:i+n], class > 0))
			i += n
			continue
		case class > 0:
			if c == '[' || strings.HasPrefix(pattern[i:], "&&") {
				return "", errors.New("classes of characters within classes are not supported")
			}
			if c == ']' {
				class--
			}
		case c == '[':
			class++
			atom = out.Len()
			// A bracket that comes first stands for itself.
			for i+1 < len(pattern) && (pattern[i+1] == '^' || pattern[i+1] == ']') {
				out.WriteByte(c)
				i++
				if c = pattern[i]; c == ']' {
					break
				}
			}
		case c == '(':
			groups = append(groups, out.Len())
		case c == ')' && len(groups) > 0:
			atom = groups[len(groups)-1]
			groups = groups[:len(groups)-1]
		case strings.IndexByte("*+?", c) >= 0 && atom >= 0:
			out.WriteByte(c)
			i++
			if i < len(pattern) && pattern[i] == '+' {
				s := out.String()
				out.Reset()
				out.WriteString(s[:atom] + "(?>" + s[atom:] + ")")
				i++
			}
			continue
		case c != '|' && c != '{' && c != '}' && c != '^' && c != '$':
			if c < 0x80 || c >= 0xc0 { // the first byte of a character
				atom = out.Len()
			}
		}
		out.WriteByte(c)
		i++
	}
	return out.String(), nil
}

// escape is one escape sequence, within a class of characters or outside.
func escape(s string, class bool) string {
	open, negated, end, latin1 := "[", "[^", "]", wordLatin1
	if class {
		open, end, latin1 = "", "", ""
	}
	switch {
	case s == `\w`:
		return open + wordClass + latin1 + end
	case s == `\W` && !class:
		return negated + wordClass + latin1 + end
	case s == `\h`:
		return open + "0-9a-fA-F" + end
	case s == `\H` && !class:
		return negated + "0-9a-fA-F" + end
	}
	return s
}
