package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Str is a string that knows which of its bytes came from data.
type Str struct {
	s    string
	data []Span // sorted, apart from each other, not empty
	safe bool   // Python's Markup: adding to it escapes what is added
}

// Span is the bytes from From to To.
type Span struct{ From, To int }

// Text is a string of the template's own.
func Text(s string) Str { return Str{s: s} }

// Data is a string that came from a message.
func Data(s string) Str {
	if s == "" {
		return Str{}
	}
	return Str{s: s, data: []Span{{0, len(s)}}}
}

// String is the string without its marks.
func (s Str) String() string { return s.s }

// Data gives the bytes that came from data. The caller must not change it.
func (s Str) Data() []Span { return s.data }

// sliceOf is the bytes from i to j.
func (s Str) slice(i, j int) Str {
	out := Str{s: s.s[i:j], safe: s.safe}
	for _, d := range s.data {
		if from, to := max(d.From, i), min(d.To, j); from < to {
			out.data = append(out.data, Span{from - i, to - i})
		}
	}
	return out
}

// like is a string made of s in a way that does not keep places: all of it came
// from data if some of s did.
func (s Str) like(text string) Str {
	out := Text(text)
	if len(s.data) > 0 {
		out = Data(text)
	}
	out.safe = s.safe
	return out
}

// builder joins strings with their marks.
type builder struct {
	b    strings.Builder
	data []Span
}

func (b *builder) add(s Str) {
	n := b.b.Len()
	b.b.WriteString(s.s)
	for _, d := range s.data {
		d = Span{d.From + n, d.To + n}
		if k := len(b.data) - 1; k >= 0 && b.data[k].To == d.From {
			b.data[k].To = d.To
			continue
		}
		b.data = append(b.data, d)
	}
}

func (b *builder) text(s string) { b.b.WriteString(s) }
func (b *builder) len() int      { return b.b.Len() }
func (b *builder) str() Str      { return Str{s: b.b.String(), data: b.data} }

// isSpace is Python's str.isspace of one character.
func isSpace(c rune) bool { return unicode.IsSpace(c) || c >= 0x1c && c <= 0x1f }

// trim is Python's strip, lstrip and rstrip: of blanks where set is nil.
func (s Str) trim(set *string, left, right bool) Str {
	cut := isSpace
	if set != nil {
		cut = func(c rune) bool { return strings.ContainsRune(*set, c) }
	}
	i, j := 0, len(s.s)
	if left {
		i = j - len(strings.TrimLeftFunc(s.s, cut))
	}
	if right {
		j = i + len(strings.TrimRightFunc(s.s[i:], cut))
	}
	return s.slice(i, j)
}

// runes is the length in characters.
func (s Str) runes() int { return utf8.RuneCountInString(s.s) }

// offsets are the places of the characters in bytes, and the length; nil for ASCII,
// where each is its own number.
func (s Str) offsets() []int {
	if s.runes() == len(s.s) {
		return nil
	}
	out := make([]int, 0, len(s.s)+1)
	for i := range s.s {
		out = append(out, i)
	}
	return append(out, len(s.s))
}

// replace is Python's str.replace; n < 0 is all.
func (s Str) replace(old string, with Str, n int) Str {
	var b builder
	at := 0
	if old == "" {
		for i, c := range s.s {
			if n == 0 {
				break
			}
			b.add(with)
			at = i + utf8.RuneLen(c)
			if c == utf8.RuneError {
				_, w := utf8.DecodeRuneInString(s.s[i:])
				at = i + w
			}
			b.add(s.slice(i, at))
			n--
		}
		if n != 0 && at == len(s.s) {
			b.add(with)
		}
		b.add(s.slice(at, len(s.s)))
		return b.str()
	}
	for ; n != 0; n-- {
		i := strings.Index(s.s[at:], old)
		if i < 0 {
			break
		}
		b.add(s.slice(at, at+i))
		b.add(with)
		at += i + len(old)
	}
	b.add(s.slice(at, len(s.s)))
	return b.str()
}

// split is Python's str.split with a separator; n < 0 is no limit.
func (s Str) split(sep string, n int) []Str {
	var out []Str
	at := 0
	for ; n != 0; n-- {
		i := strings.Index(s.s[at:], sep)
		if i < 0 {
			break
		}
		out = append(out, s.slice(at, at+i))
		at += i + len(sep)
	}
	return append(out, s.slice(at, len(s.s)))
}

// rsplit splits from the right.
func (s Str) rsplit(sep string, n int) []Str {
	var out []Str
	end := len(s.s)
	for ; n != 0; n-- {
		i := strings.LastIndex(s.s[:end], sep)
		if i < 0 {
			break
		}
		out = append(out, s.slice(i+len(sep), end))
		end = i
	}
	out = append(out, s.slice(0, end))
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out
}

// fields is Python's str.split without a separator.
func (s Str) fields(n int) []Str {
	var out []Str
	rest := s.trim(nil, true, false)
	for rest.s != "" {
		i := strings.IndexFunc(rest.s, isSpace)
		if n == 0 || i < 0 {
			if n == 0 {
				out = append(out, rest)
			} else {
				out = append(out, rest.trim(nil, false, true))
			}
			return out
		}
		out = append(out, rest.slice(0, i))
		rest = rest.slice(i, len(rest.s)).trim(nil, true, false)
		n--
	}
	return out
}

// lineEnds are what Python's splitlines breaks at, besides "\r\n".
const lineEnds = "\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029"

// lines is Python's str.splitlines.
func (s Str) lines(keep bool) []Str {
	var out []Str
	at := 0
	for at < len(s.s) {
		i := strings.IndexAny(s.s[at:], lineEnds)
		if i < 0 {
			break
		}
		_, w := utf8.DecodeRuneInString(s.s[at+i:])
		if strings.HasPrefix(s.s[at+i:], "\r\n") {
			w = 2
		}
		end := at + i
		if keep {
			end += w
		}
		out = append(out, s.slice(at, end))
		at += i + w
	}
	if at < len(s.s) {
		out = append(out, s.slice(at, len(s.s)))
	}
	return out
}

// Slice is the bytes from i to j.
func (s Str) Slice(i, j int) Str { return s.slice(i, j) }

// Concat joins strings; each byte keeps its mark.
func Concat(parts ...Str) Str {
	var b builder
	for _, p := range parts {
		b.add(p)
	}
	return b.str()
}
