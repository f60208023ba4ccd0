package tokenizer

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"agentcli/internal/malformed"

	"github.com/dlclark/regexp2"
)

// cutter cuts a text into pieces; what it leaves out is gone.
type cutter func(s string, emit func(string))

// finder gives a text piece by piece and says which of them the pattern matched.
type finder func(s string, emit func(piece string, matched bool))

// pattern is the field of Split and Replace.
type pattern struct {
	Regex  *string `json:"Regex"`
	String *string `json:"String"`
}

// text is the pattern for the hash.
func (p pattern) text() string {
	switch {
	case p.String != nil:
		return fmt.Sprintf("%q", *p.String)
	case p.Regex != nil:
		return *p.Regex
	}
	return ""
}

func (p pattern) finder() (finder, error) {
	switch {
	case p.String != nil:
		return literal(*p.String), nil
	case p.Regex == nil:
		return nil, malformed.Errorf(malformed.Missing, "no pattern: neither String nor Regex")
	}
	if f, ok := families[*p.Regex]; ok {
		return f.finder(), nil
	}
	f, err := regex(*p.Regex)
	if err != nil {
		return nil, malformed.Errorf(malformed.Syntax, "pattern %q: %s", *p.Regex, strings.ReplaceAll(err.Error(), "\n", " "))
	}
	return f, nil
}

// splitStep gives what a Split does, its name for the hash and one for people.
func splitStep(s step) (cut cutter, name, label string, err error) {
	if s.Pattern.Regex != nil {
		f, known := families[*s.Pattern.Regex]
		// With these each match stands alone.
		if known && (s.Behavior == "Isolated" && !s.Invert || s.Behavior == "Removed" && s.Invert && f.total) {
			name = f.name
			if name != "GPT2" && name != "Qwen2" && name != "Llama3" { // hashes of before these had matchers
				name = fmt.Sprintf("Split(%s,%s,%v)", *s.Pattern.Regex, s.Behavior, s.Invert)
			}
			return f.isolated(), name, f.name, nil
		}
	}
	find, err := s.Pattern.finder()
	if err != nil {
		return nil, "", "", err
	}
	if s.Pattern.String != nil {
		name = fmt.Sprintf("Split(%q,%s)", *s.Pattern.String, s.Behavior)
		if s.Invert {
			name = fmt.Sprintf("Split(%q,%s,%v)", *s.Pattern.String, s.Behavior, s.Invert)
		}
	} else {
		name = fmt.Sprintf("Split(%s,%s,%v)", *s.Pattern.Regex, s.Behavior, s.Invert)
	}
	cut, err = general(find, s.Behavior, s.Invert)
	return cut, name, name, err
}

// general builds a splitter for any pattern, with the five behaviours of
// Hugging Face's Split. `matched` is what the pattern (or, inverted, what lies
// between its matches) covers.
func general(find finder, behavior string, invert bool) (cutter, error) {
	switch behavior {
	case "Removed", "Isolated", "Contiguous", "MergedWithPrevious", "MergedWithNext":
	default:
		return nil, malformed.Errorf(malformed.Range, "unknown Split behavior %q", behavior)
	}
	return func(s string, emit func(string)) {
		// Pieces lie side by side in s, so joining two is widening a window.
		start, end, open, prev := 0, 0, false, false
		flush := func() {
			if open {
				emit(s[start:end])
			}
			open = false
		}
		pos := 0
		find(s, func(p string, m bool) {
			if p == "" {
				return
			}
			m = m != invert
			join := false
			switch behavior {
			case "Removed":
				if m {
					flush()
					pos += len(p)
					return
				}
			case "Contiguous":
				join = open && prev == m
			case "MergedWithPrevious":
				join = open && m && !prev
			case "MergedWithNext":
				join = open && prev && !m
			}
			if !join {
				flush()
				start, open = pos, true
			}
			pos += len(p)
			end, prev = pos, m
		})
		flush()
	}, nil
}

// regex makes a finder from an Oniguruma pattern.
func regex(pattern string) (finder, error) {
	if len(pattern) > maxPattern {
		return nil, fmt.Errorf("it has %d bytes; at most %d are taken", len(pattern), maxPattern)
	}
	translated, err := fromOniguruma(pattern)
	if err != nil {
		return nil, err
	}
	re, err := regexp2.Compile(translated, regexp2.None)
	if err != nil {
		return nil, err
	}
	re.MatchTimeout = matchLimit / 5
	if err := tryPattern(re, pattern); err != nil {
		return nil, err
	}
	re.MatchTimeout = matchLimit
	var slow atomic.Bool // it ran into the limit once
	return func(s string, emit func(string, bool)) {
		runes := []rune(s)
		// Rune positions grow steadily, so byte positions are kept alongside.
		pos, bytePos := 0, 0
		to := func(r int) string {
			start := bytePos
			for ; pos < r; pos++ {
				bytePos += utf8.RuneLen(runes[pos])
			}
			return s[start:bytePos]
		}
		// A match that takes too long after all leaves the rest in one piece, and so it
		// goes with every later text: its ids decode to the same text.
		if slow.Load() {
			emit(s, false)
			return
		}
		m, err := re.FindRunesMatch(runes)
		for err == nil && m != nil {
			emit(to(m.Index), false)
			emit(to(m.Index+m.Length), true)
			m, err = re.FindNextMatch(m)
		}
		if err != nil {
			slow.Store(true)
		}
		emit(to(len(runes)), false)
	}, nil
}

// maxPattern bounds the patterns of a file; the longest in use has some 600 bytes.
const maxPattern = 1 << 14

// matchLimit is how long one match of a pattern may take. A backtracking pattern
// from a file may take for ever: (a+)+$. When a file is opened each pattern is
// tried with a fifth of it; all trials together may take twice as long as one match, a
// hundred times what patterns in use take on a processor that has nothing else to do.
var matchLimit = 2 * time.Second // a test shortens it

// tryPattern finds patterns that take too long on runs of one character: common
// ones, and those that the pattern itself has.
func tryPattern(re *regexp2.Regexp, pattern string) error {
	seen := map[rune]bool{}
	start := time.Now()
	for _, r := range "aA1 \n'.é中" + pattern {
		if seen[r] {
			continue
		}
		seen[r] = true
		for _, end := range []string{"", "\x00", "!", " "} {
			_, err := re.FindStringMatch(strings.Repeat(string(r), 256) + end)
			if err != nil || time.Since(start) > 2*matchLimit {
				return fmt.Errorf("it takes too long for runs of %q", r)
			}
		}
	}
	return nil
}

// literal finds a fixed string.
func literal(pat string) finder {
	return func(s string, emit func(string, bool)) {
		for pat != "" {
			i := strings.Index(s, pat)
			if i < 0 {
				break
			}
			emit(s[:i], false)
			emit(pat, true)
			s = s[i+len(pat):]
		}
		emit(s, false)
	}
}

// runes finds single characters of a kind.
func runes(is func(rune) bool) finder {
	return func(s string, emit func(string, bool)) {
		start := 0
		for i, r := range s {
			if is(r) {
				n := i + utf8.RuneLen(r)
				emit(s[start:i], false)
				emit(s[i:n], true)
				start = n
			}
		}
		emit(s[start:], false)
	}
}

// digits splits numbers off, one by one or run by run.
func digits(each bool) cutter {
	return func(s string, emit func(string)) {
		start := 0
		for i := 0; i < len(s); {
			c, n := at(s[i:])
			if c != number {
				i += n
				continue
			}
			if start < i {
				emit(s[start:i])
			}
			if !each {
				n = run(s[i:], number)
			}
			emit(s[i : i+n])
			i += n
			start = i
		}
		if start < len(s) {
			emit(s[start:])
		}
	}
}
