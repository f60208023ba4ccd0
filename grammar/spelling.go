package grammar

import (
	"strings"
	"unicode/utf8"
)

// spelling is how a family writes values in its calls.
type spelling struct {
	any      func() *terminal          // any string
	constant func(s string) *pattern   // one string in its shortest form
	between  func(p *pattern) *pattern // strings by their characters, which runes wrote
	runes    runeWriter
	anyKey   func() *terminal  // any name of a property, and its colon
	bare     func(string) bool // whether a name in the schema stands without quotes; nil: none does
	words    map[string]string // of true, false and null; nil: as they are
	inner    func() *terminal  // strings that a reader takes whole, where not all are; nil: all
}

func inQuotes(p *pattern) *pattern { return seqOf(textOf(`"`), p, textOf(`"`)) }

var asJSON = &spelling{any: func() *terminal { return common().text }, constant: jsonText, between: inQuotes, runes: jsonRunes{},
	anyKey: func() *terminal { return common().anyKey }}

// asPython is literals as Python prints them, in JSON's quotes. Python reads JSON's escapes, but
// for \/ and the two halves of a character beyond U+FFFF.
var asPython = &spelling{any: pythonText, constant: jsonText, between: inQuotes, runes: jsonRunes{},
	anyKey: func() *terminal { return common().anyKey }, words: map[string]string{"true": "True", "false": "False", "null": "None"}}

func pythonText() *terminal {
	return sharedTerminal("string of Python", func(b *budget) *terminal {
		hex := oneOfBytes(hexDigits)
		return newCounted(b.compile(altOf(
			runesOf(' ', '!'), runesOf('#', '['), runesOf(']', utf8.MaxRune), seqOf(textOf(`\`), oneOfBytes(`"\bfnrt`)),
			seqOf(textOf(`\u`), oneOfBytes("0123456789abcefABCEF"), hex, hex, hex))))
	})
}

// asGemma is values as Gemma 4 writes them: texts between <|"|>, names without quotes.
var asGemma = &spelling{any: gemmaText, inner: gemmaText, between: inGemmaQuotes, runes: plainRunes{},
	constant: func(s string) *pattern {
		if strings.Contains(s, gemmaQuote) {
			return altOf()
		}
		return inGemmaQuotes(textOf(s))
	},
	anyKey: func() *terminal {
		return sharedTerminal("name in Gemma's quotes", func(b *budget) *terminal { return b.compile(seqOf(dfaOf(gemmaText()), textOf(":"))) })
	},
	bare: func(s string) bool { return s != "" && strings.TrimSpace(s) == s && !strings.ContainsAny(s, ",:[]{}<") },
}

const gemmaQuote = `<|"|>`

func inGemmaQuotes(p *pattern) *pattern { return seqOf(marker(gemmaQuote), p, marker(gemmaQuote)) }

func gemmaText() *terminal {
	return sharedTerminal("text in Gemma's quotes", func(b *budget) *terminal {
		return b.compile(inGemmaQuotes(dfaOf(textWithout(b, gemmaQuote))))
	})
}

// textWithout is any text that has none of some parts.
func textWithout(b *budget, parts ...string) *terminal {
	free, none := dfaOf(anyText(b)), altOf()
	for _, p := range parts {
		none.subs = append(none.subs, textOf(p))
	}
	return b.product(free.dfa, b.compile(seqOf(free, none, free)), true)
}

// strings are those whose characters are of a pattern.
func (s *spelling) strings(b *budget, p *pattern) *terminal {
	t := b.compile(s.between(p))
	if s.inner != nil {
		t = b.product(t, s.inner(), false)
	}
	return t
}

// maxTable is the longest string with bounds whose characters a table counts.
const maxTable = 1000

// lengths is any strings of least to most characters (most none: no bound); false: there are too many.
func (s *spelling) lengths(b *budget, least, most int) (*terminal, bool) {
	if any := s.any(); any.counted != nil {
		return any.counted.bounded(int32(least), int32(most)), true
	}
	if least >= maxTable || most >= maxTable {
		return nil, false
	}
	return s.strings(b, repeatOf(dfaOf(b.compile(s.runes.runes(0, utf8.MaxRune))), least, most)), true
}

// word is true, false or null.
func (s *spelling) word(name string) string {
	if other, ok := s.words[name]; ok {
		return other
	}
	return name
}
