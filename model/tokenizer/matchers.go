package tokenizer

import "strings"

// The patterns that have a hand-written matcher; anything else goes through
// regexp2, which is some ten times slower.
const (
	patternGPT2   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	patternGPT2b  = `'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	foldedSuffix  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`
	tailLlama     = ` ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternQwen2  = foldedSuffix + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|` + tailLlama
	patternLlama3 = foldedSuffix + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|` + tailLlama
	patternQwen35 = foldedSuffix + `|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternSeed   = foldedSuffix + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+`

	lowWord       = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+`
	upWord        = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*`
	tailO200k     = ` ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternO200k  = lowWord + foldedSuffix + `?|` + upWord + foldedSuffix + `?|\p{N}{1,3}|` + tailO200k
	patternTekken = lowWord + `|` + upWord + `|\p{N}|` + tailO200k

	patternDigits3 = `\p{N}{1,3}`
	patternDigit   = `\p{N}`
	patternKana    = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
	// DeepSeek's file has the line ends themselves in its classes.
	patternDeepSeek = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|" +
		" ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
)

// family is a known pattern. next gives the length of the match at the start of
// a text that is not empty; 0 where there is none.
type family struct {
	name string
	next func(string) int
	// total: every character is matched, so that nothing lies between matches.
	total bool
}

var families = map[string]family{
	patternGPT2:     {"GPT2", nextGPT2, true},
	patternGPT2b:    {"GPT2", nextGPT2, true},
	patternQwen2:    {"Qwen2", func(s string) int { return nextLlama3(s, 1, "\r\n") }, true},
	patternLlama3:   {"Llama3", func(s string) int { return nextLlama3(s, 3, "\r\n") }, true},
	patternQwen35:   {"Qwen3.5", nextQwen35, true},
	patternSeed:     {"Seed-Coder", func(s string) int { return nextLlama3(s, 1, "") }, true},
	patternO200k:    {"o200k", func(s string) int { return nextO200k(s, 3, true) }, true},
	patternTekken:   {"tekken", func(s string) int { return nextO200k(s, 1, false) }, true},
	patternDigits3:  {"digits≤3", func(s string) int { return nextDigits(s, 3) }, false},
	patternDigit:    {"digit", func(s string) int { return nextDigits(s, 1) }, false},
	patternKana:     {"Han", func(s string) int { return bitRun(charTab(), s, bitKana) }, false},
	patternDeepSeek: {"DeepSeek", nextDeepSeek, false},
}

// finder gives a total pattern's matches one after the other, any other's with
// what lies between them.
func (f family) finder() finder {
	return func(s string, emit func(string, bool)) {
		gap := 0
		for i := 0; i < len(s); {
			n := f.next(s[i:])
			if n == 0 {
				_, n = at(s[i:])
				i += n
				continue
			}
			if gap < i {
				emit(s[gap:i], false)
			}
			emit(s[i:i+n], true)
			i += n
			gap = i
		}
		if gap < len(s) {
			emit(s[gap:], false)
		}
	}
}

// isolated cuts a text into matches and what lies between them.
func (f family) isolated() cutter {
	if f.total {
		return func(s string, emit func(string)) { scan(s, f.next, emit) }
	}
	find := f.finder()
	return func(s string, emit func(string)) { find(s, func(p string, _ bool) { emit(p) }) }
}

func scan(s string, next func(string) int, emit func(string)) {
	for s != "" {
		n := next(s)
		emit(s[:n])
		s = s[n:]
	}
}

// contraction is the length of 's 't 're 've 'm 'll 'd at the start of s.
func contraction(s string, fold bool) int {
	if len(s) < 2 || s[0] != '\'' {
		return 0
	}
	a, b := s[1], byte(0)
	if len(s) > 2 {
		b = s[2]
	}
	if fold {
		if strings.HasPrefix(s[1:], "ſ") {
			return 1 + len("ſ")
		}
		a, b = lower(a), lower(b)
	}
	switch a {
	case 's', 't', 'm', 'd':
		return 2
	case 'r', 'v':
		if b == 'e' {
			return 3
		}
	case 'l':
		if b == 'l' {
			return 3
		}
	}
	return 0
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// spaces is the match of `\s+(?!\S)|\s+` at the start of s, which is white: the
// last space of a run goes with what follows it.
func spaces(s string) int {
	end, last := 0, 0
	for end < len(s) {
		k, n := at(s[end:])
		if k != space {
			break
		}
		end, last = end+n, n
	}
	if end == len(s) || end == last {
		return end
	}
	return end - last
}

// white is the match of `\s*[\r\n]+|\s+(?!\S)|\s+` at the start of s; 0 where
// s does not begin with white space.
func white(s string) int {
	w := s[:run(s, space)]
	if j := strings.LastIndexAny(w, "\r\n"); j >= 0 {
		return j + 1
	}
	return spaces(s)
}

// lineEnds is the length of the run of the given characters at the start of s.
func lineEnds(s, of string) int {
	i := 0
	for i < len(s) && strings.IndexByte(of, s[i]) >= 0 {
		i++
	}
	return i
}

func nextGPT2(s string) int {
	if n := contraction(s, false); n > 0 {
		return n
	}
	i := 0
	if s[0] == ' ' {
		i = 1
	}
	c, n := at(s[i:])
	if n == 0 || c == space {
		return spaces(s)
	}
	return i + run(s[i:], c)
}

// nextLlama3 is the pattern of Llama 3 and those beside it: so many digits are together, and a run of signs
// takes the line ends behind it with it.
func nextLlama3(s string, digits int, ends string) int {
	if n := contraction(s, true); n > 0 {
		return n
	}
	c, n := at(s)
	switch {
	case c == letter:
		return run(s, letter)
	case c == number:
		return nextDigits(s, digits)
	case s[0] != '\r' && s[0] != '\n':
		if k := run(s[n:], letter); k > 0 {
			return n + k
		}
	}
	i := 0
	if s[0] == ' ' {
		i = 1
	}
	if k := run(s[i:], other); k > 0 {
		i += k
		return i + lineEnds(s[i:], ends)
	}
	return white(s)
}

func nextQwen35(s string) int {
	if n := contraction(s, true); n > 0 {
		return n
	}
	tab := charTab()
	b, n := bitsAt(tab, s)
	switch {
	case b&(bitLetter|bitMark) != 0:
		return bitRun(tab, s, bitLetter|bitMark)
	case b&bitNumber != 0:
		return n
	case s[0] != '\r' && s[0] != '\n':
		if k := bitRun(tab, s[n:], bitLetter|bitMark); k > 0 {
			return n + k
		}
	}
	i := 0
	if s[0] == ' ' {
		i = 1
	}
	if k := restRun(tab, s[i:], bitSpace|bitLetter|bitMark|bitNumber); k > 0 {
		i += k
		return i + lineEnds(s[i:], "\r\n")
	}
	return white(s)
}

// nextO200k is the pattern of GPT-4o and, without contractions and with single
// digits, of tekken: words begin anew at a capital.
func nextO200k(s string, digits int, contractions bool) int {
	tab := charTab()
	b, n := bitsAt(tab, s)
	end := 0
	prefix := b&(bitLetter|bitNumber) == 0 && s[0] != '\r' && s[0] != '\n'
	if prefix {
		if k := lowEnd(tab, s[n:]); k > 0 {
			end = n + k
		}
	}
	if end == 0 {
		end = lowEnd(tab, s)
	}
	if end == 0 && prefix {
		if k := bitRun(tab, s[n:], bitUpper); k > 0 {
			end = n + k // no lower-case letter follows, or lowEnd would have matched
		}
	}
	if end == 0 {
		end = bitRun(tab, s, bitUpper)
	}
	if end > 0 {
		if contractions {
			end += contraction(s[end:], true)
		}
		return end
	}
	if b&bitNumber != 0 {
		return nextDigits(s, digits)
	}
	i := 0
	if s[0] == ' ' {
		i = 1
	}
	if k := restRun(tab, s[i:], bitSpace|bitLetter|bitNumber); k > 0 {
		i += k
		return i + lineEnds(s[i:], "\r\n/")
	}
	return white(s)
}

// lowEnd is the match of `[upper]*[lower]+`, where letters without case are in
// both: as the greedy run of the first gives characters back until the second
// matches.
func lowEnd(tab *[1 << 16]charBits, s string) int {
	end, both := 0, 0 // both: the end of the last character that is in both classes
	for {
		b, n := bitsAt(tab, s[end:])
		if n == 0 || b&bitUpper == 0 {
			break
		}
		end += n
		if b&bitLower != 0 {
			both = end
		}
	}
	if k := bitRun(tab, s[end:], bitLower); k > 0 {
		return end + k
	}
	return both
}

func nextDigits(s string, limit int) int {
	n := 0
	for range limit {
		k, m := at(s[n:])
		if k != number || m == 0 {
			break
		}
		n += m
	}
	return n
}

func nextDeepSeek(s string) int {
	tab := charTab()
	c := s[0]
	if c < 0x80 && isPunct(rune(c)) {
		i := 1
		for i < len(s) && lower(s[i]) >= 'a' && lower(s[i]) <= 'z' {
			i++
		}
		if i > 1 {
			return i
		}
	}
	b, n := bitsAt(tab, s)
	if b&(bitLetter|bitPunct) == 0 && c != '\r' && c != '\n' {
		if k := bitRun(tab, s[n:], bitLetter|bitMark); k > 0 {
			return n + k
		}
	}
	if b&(bitLetter|bitMark) != 0 {
		return bitRun(tab, s, bitLetter|bitMark)
	}
	i := 0
	if c == ' ' {
		i = 1
	}
	if k := bitRun(tab, s[i:], bitPunct); k > 0 {
		i += k
		return i + lineEnds(s[i:], "\r\n")
	}
	return white(s)
}
