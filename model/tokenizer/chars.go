package tokenizer

import (
	"sync"
	"unicode"
	"unicode/utf8"
)

// class is the kind of a character as most patterns see it: they tell letters,
// numbers, white space and the rest apart.
type class uint8

const (
	other class = iota
	letter
	number
	space
)

// charBits are the further properties that patterns ask for, one bit each.
type charBits uint8

const (
	bitLetter charBits = 1 << iota // \p{L}
	bitNumber                      // \p{N}
	bitSpace                       // \s
	bitUpper                       // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
	bitLower                       // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
	bitMark                        // \p{M}
	bitPunct                       // [\p{P}\p{S}]
	bitKana                        // DeepSeek's range of Han characters and kana
)

var (
	ascii   [128]class
	charTab = sync.OnceValue(func() *[1 << 16]charBits {
		var tab [1 << 16]charBits
		for i := range tab {
			tab[i] = bitsOf(rune(i))
		}
		return &tab
	})
)

func init() {
	for i := range ascii {
		ascii[i] = classify(rune(i))
	}
}

func classify(r rune) class {
	switch {
	case unicode.IsLetter(r):
		return letter
	case unicode.IsNumber(r):
		return number
	case unicode.IsSpace(r):
		return space
	}
	return other
}

func bitsOf(r rune) (b charBits) {
	switch {
	case unicode.Is(unicode.Ll, r):
		b = bitLetter | bitLower
	case unicode.Is(unicode.Lu, r), unicode.Is(unicode.Lt, r):
		b = bitLetter | bitUpper
	case unicode.Is(unicode.L, r):
		b = bitLetter | bitUpper | bitLower
	case unicode.Is(unicode.M, r):
		b = bitMark | bitUpper | bitLower
	case unicode.Is(unicode.N, r):
		b = bitNumber
	case unicode.IsSpace(r):
		b = bitSpace
	case unicode.Is(unicode.P, r), unicode.Is(unicode.S, r):
		b = bitPunct
	}
	if r >= 0x4e00 && r <= 0x9fa5 || r >= 0x3040 && r <= 0x30ff {
		b |= bitKana
	}
	return b
}

// bitsAt gives the properties and the width of the character at the start of s;
// width 0 at the end.
func bitsAt(tab *[1 << 16]charBits, s string) (charBits, int) {
	if s == "" {
		return 0, 0
	}
	if c := s[0]; c < utf8.RuneSelf {
		return tab[c], 1
	}
	r, n := utf8.DecodeRuneInString(s)
	if r < 1<<16 {
		return tab[r], n
	}
	return bitsOf(r), n
}

// bitRun is the length of the run of characters at the start of s that have one
// of the properties.
func bitRun(tab *[1 << 16]charBits, s string, any charBits) int {
	i := 0
	for i < len(s) {
		b, n := bitsAt(tab, s[i:])
		if b&any == 0 {
			break
		}
		i += n
	}
	return i
}

// restRun is the length of the run of characters at the start of s that have
// none of the properties.
func restRun(tab *[1 << 16]charBits, s string, not charBits) int {
	i := 0
	for i < len(s) {
		b, n := bitsAt(tab, s[i:])
		if b&not != 0 {
			break
		}
		i += n
	}
	return i
}

// at gives the class and the width of the character at the start of s; width 0
// at the end.
func at(s string) (class, int) {
	if s == "" {
		return other, 0
	}
	if c := s[0]; c < utf8.RuneSelf {
		return ascii[c], 1
	}
	b, n := bitsAt(charTab(), s)
	switch {
	case b&bitLetter != 0:
		return letter, n
	case b&bitNumber != 0:
		return number, n
	case b&bitSpace != 0:
		return space, n
	}
	return other, n
}

// run is the length of the run of class c at the start of s.
func run(s string, c class) int {
	i := 0
	for i < len(s) {
		k, n := at(s[i:])
		if k != c {
			break
		}
		i += n
	}
	return i
}

// isWord is \w of Rust's regex.
func isWord(r rune) bool {
	return r == '_' || unicode.IsLetter(r) || unicode.IsMark(r) || unicode.Is(unicode.Nd, r) || unicode.Is(unicode.Pc, r) ||
		unicode.Is(unicode.Nl, r) || unicode.Is(unicode.Join_Control, r) || unicode.Is(unicode.Other_Alphabetic, r)
}

// isPunct is the tokenizers library's is_bert_punc: ASCII punctuation, which
// has some symbols, and Unicode's.
func isPunct(r rune) bool {
	return r < utf8.RuneSelf && r > ' ' && r != 0x7f && !unicode.IsLetter(r) && !unicode.IsDigit(r) || unicode.IsPunct(r)
}
