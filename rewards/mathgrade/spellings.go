package mathgrade

import (
	"math/big"
	"regexp"
	"strings"
)

var (
	ratioInWords = regexp.MustCompile(`^[0-9.]+(?:\s*(?:\\text\{\s*to\s*\}|to)\s*[0-9.]+)+$`)
	to           = regexp.MustCompile(`\s*(?:\\text\{\s*to\s*\}|to)\s*`)
	baseInWords  = regexp.MustCompile(`_\{?\\(?:text|mathrm|textrm)\{\s*([a-z]+)\s*\}\}?`)
	notRelation  = regexp.MustCompile(`\\not\s*(=|\\in\b)`)
	conjugate    = regexp.MustCompile(`\\(?:overline|bar)\{([-+./0-9\s]*[0-9+-]\s*i[-+./0-9\s]*)\}`)
	programmed   = regexp.MustCompile(`^0(?:[xX][0-9a-fA-F]+|[bB][01]+|[oO][0-7]+)$`)
)

var bases = map[string]string{"two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8", "nine": "9",
	"ten": "10", "eleven": "11", "twelve": "12", "sixteen": "16"}

// respelled writes a formula in the spelling that is parsed: 2 to 3 as 2:3, a base in words in
// digits, \not= as \ne, the conjugate of a number as a number, and 0x1F in digits.
func respelled(s string) string {
	if len(s) > 2000 {
		return s
	}
	if strings.Contains(s, "to") && len(s) < 100 && ratioInWords.MatchString(s) {
		return to.ReplaceAllString(s, ":")
	}
	if strings.Contains(s, "_") && strings.Contains(s, `\`) {
		s = baseInWords.ReplaceAllStringFunc(s, func(base string) string {
			if digits := bases[baseInWords.FindStringSubmatch(base)[1]]; digits != "" {
				return "_{" + digits + "}"
			}
			return base
		})
	}
	if strings.Contains(s, `\not`) {
		s = notRelation.ReplaceAllStringFunc(s, func(relation string) string {
			if strings.HasSuffix(relation, "=") {
				return `\ne `
			}
			return `\notin `
		})
	}
	if strings.Contains(s, `i`) && (strings.Contains(s, `\overline`) || strings.Contains(s, `\bar`)) {
		s = conjugate.ReplaceAllStringFunc(s, func(z string) string { // of a number: 3+4i
			return "(" + strings.ReplaceAll(conjugate.FindStringSubmatch(z)[1], "i", "(-i)") + ")"
		})
	}
	if len(s) > 2 && s[0] == '0' && len(s) < 70 && programmed.MatchString(s) {
		if n, ok := new(big.Int).SetString(s, 0); ok {
			return n.String()
		}
	}
	return s
}
