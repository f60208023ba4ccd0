package env

import (
	"fmt"
	"regexp"
	"sort"
	"strings"
	"unicode/utf8"
)

// clip bounds a result as the environment is told to.
func (e *ToolEnvironment) clip(s string) string {
	if e.tokens == 0 {
		return clip(s, e.maxObs)
	}
	count := e.count
	if count == nil {
		count = func(s string) int { return (len(s) + 3) / 4 }
	}
	return clipTokens(s, e.tokens, count)
}

// clip bounds a result to n characters: it keeps the beginning and the end,
// where a traceback says what went wrong, and says how much is missing.
func clip(s string, n int) string {
	s = strings.ToValidUTF8(s, "�")
	if n < 0 || len(s) <= n {
		return s
	}
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	r := []rune(s)
	return without(r, n, closing(s))
}

// clipTokens bounds a result to n tokens, the words that say what is missing
// included.
func clipTokens(s string, n int, count func(string) int) string {
	s = strings.ToValidUTF8(s, "�")
	if count(s) <= n {
		return s
	}
	r := []rune(s)
	end := closing(s)
	// The smallest number of kept characters that is too many. Counts grow with
	// the text but for a token here and there, so the last step looks again.
	keep := sort.Search(len(r), func(k int) bool { return count(without(r, k, end)) > n }) - 1
	for ; keep >= 0; keep-- {
		if short := without(r, keep, end); count(short) <= n {
			return short
		}
	}
	// No room for words: the tags alone, or nothing.
	if tags := string(r[len(r)-end:]); count(tags) <= n {
		return tags
	}
	return ""
}

// without is r with its middle left out: keep characters of it stay, a third of
// them at the end, or as many as its closing tags take.
func without(r []rune, keep, closing int) string {
	keep = max(keep, closing)
	tail := min(max(keep-keep*2/3, closing), len(r))
	head := min(max(keep-tail, 0), len(r)-tail)
	return string(r[:head]) + fmt.Sprintf("\n… [%d characters left out] …\n", len(r)-head-tail) + string(r[len(r)-tail:])
}

var closingTags = regexp.MustCompile(`(?:</[A-Za-z_][\w.:-]*>\s*)+$`)

// closing is how many characters the closing tags take that s ends with: a model
// that was trained to see </information> after every result must see it after
// one that was cut too (Search-R1).
func closing(s string) int {
	const window = 256 // tags are short
	if len(s) > window {
		s = s[len(s)-window:]
	}
	return utf8.RuneCountInString(closingTags.FindString(s))
}
