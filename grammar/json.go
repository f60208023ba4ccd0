package grammar

import (
	"encoding/json"
	"sync"
	"unicode/utf8"
)

// jsonRunes are characters within a JSON string, in their shortest form: " and \ after a
// backslash, control characters as \n or \u001f, all others as they are.
type jsonRunes struct{}

func (jsonRunes) runes(lo, hi rune) *pattern {
	p := altOf()
	for r := lo; r <= min(hi, '\\'); r++ {
		switch {
		case r < ' ':
			p.subs = append(p.subs, controlOf(byte(r)))
		case r == '"' || r == '\\':
			p.subs = append(p.subs, textOf(`\`+string(r)))
		}
	}
	for _, part := range [...][2]rune{{' ', '!'}, {'#', '['}, {']', utf8.MaxRune}} {
		if a, b := max(lo, part[0]), min(hi, part[1]); a <= b {
			p.subs = append(p.subs, runesOf(a, b))
		}
	}
	return p
}

// controlOf is a control character's short form where it has one, and its long one.
func controlOf(c byte) *pattern {
	long := seqOf(textOf(`\u00`), hexDigit(c>>4), hexDigit(c&15))
	short := map[byte]string{'\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`}[c]
	if short == "" {
		return long
	}
	return altOf(textOf(short), long)
}

func hexDigit(n byte) *pattern {
	const lower, upper = "0123456789abcdef", "0123456789ABCDEF"
	return altOf(bytesOf(lower[n], lower[n]), bytesOf(upper[n], upper[n]))
}

// oneOfBytes is one of the bytes of a string.
func oneOfBytes(chars string) *pattern {
	p := altOf()
	for i := range len(chars) {
		p.subs = append(p.subs, bytesOf(chars[i], chars[i]))
	}
	return p
}

const hexDigits = "0123456789abcdefABCDEF"

// common are the automata that every grammar of JSON has.
var common = sync.OnceValue(func() *commonTerminals {
	b := &budget{states: 1 << 20, work: 1 << 28}
	share := func(p *pattern) *terminal {
		t := b.compile(p)
		t.shared = true
		return t
	}
	c := &commonTerminals{unit: b.compile(characterOf()), literals: map[string]*terminal{}}
	c.text = newCounted(c.unit)
	c.number = share(numberOf(0))
	c.integer = share(integerOf(0))
	c.space = share(spaceOf(defaultIndent))
	c.anyKey = share(seqOf(textOf(`"`), starOf(jsonRunes{}.runes(0, utf8.MaxRune)), textOf(`":`)))
	for _, s := range []string{"{", "}", "[", "]", ",", ":", "true", "false", "null"} {
		c.literals[s] = share(textOf(s))
	}
	return c
})

type commonTerminals struct {
	unit                          *terminal
	text, number, integer, anyKey *terminal
	space                         *terminal
	literals                      map[string]*terminal
}

// sharedTerminals are automata that depend on no schema, by name; their masks are kept with
// the vocabulary.
var sharedTerminals sync.Map

func sharedTerminal(name string, compile func(b *budget) *terminal) *terminal {
	if t, ok := sharedTerminals.Load(name); ok {
		return t.(*terminal)
	}
	t := compile(&budget{states: 1 << 20, work: 1 << 28})
	t.shared = true
	first, _ := sharedTerminals.LoadOrStore(name, t)
	return first.(*terminal)
}

// characterOf is one character of a JSON string in any of its forms. A surrogate comes in a
// pair only, and the pair is one character.
func characterOf() *pattern {
	hex := oneOfBytes(hexDigits)
	escape := textOf(`\u`)
	return altOf(
		runesOf(' ', '!'), runesOf('#', '['), runesOf(']', utf8.MaxRune),
		seqOf(textOf(`\`), oneOfBytes(`"\/bfnrt`)),
		seqOf(escape, oneOfBytes("0123456789abcefABCEF"), hex, hex, hex),
		seqOf(escape, oneOfBytes("dD"), oneOfBytes("01234567"), hex, hex),
		seqOf(escape, oneOfBytes("dD"), oneOfBytes("89abAB"), hex, hex, escape, oneOfBytes("dD"), oneOfBytes("cdefCDEF"), hex, hex),
	)
}

// spaceOf is one space, or a line break and an indent, or nothing.
func spaceOf(indent int) *pattern {
	p := altOf(seqOf(), textOf(" "))
	if indent >= 0 {
		p.subs = append(p.subs, seqOf(textOf("\n"), repeatOf(oneOfBytes(" \t"), 0, indent)))
	}
	return p
}

func digits(least, most int) *pattern {
	if most <= 0 {
		return repeatOf(bytesOf('0', '9'), least, -1)
	}
	return repeatOf(bytesOf('0', '9'), min(least, most), most)
}

// wholeOf are the digits of a whole number: no 0 in front. most 0: no bound.
func wholeOf(most int) *pattern {
	more := digits(0, -1)
	if most > 0 {
		more = repeatOf(bytesOf('0', '9'), 0, most-1)
	}
	return altOf(textOf("0"), seqOf(bytesOf('1', '9'), more))
}

func integerOf(most int) *pattern {
	return seqOf(optionOf(textOf("-")), wholeOf(most))
}

// numberOf has exponents of at most two digits, so that what reads it can hold it.
func numberOf(most int) *pattern {
	return seqOf(integerOf(most), optionOf(seqOf(textOf("."), digits(1, most))),
		optionOf(seqOf(oneOfBytes("eE"), optionOf(oneOfBytes("+-")), digits(1, 2))))
}

// jsonText is a string as a JSON value in its shortest form, with its quotes.
func jsonText(s string) *pattern {
	p := seqOf(textOf(`"`))
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' {
			p.subs = append(p.subs, jsonRunes{}.runes(rune(c), rune(c)))
		} else {
			p.subs = append(p.subs, bytesOf(c, c))
		}
	}
	p.subs = append(p.subs, textOf(`"`))
	return p
}

// writer makes the parts of JSON as Options say.
type writer struct {
	Options
	budget   *budget
	spelling *spelling
	space    expr
	literals map[string]*terminal
	value    *rule // any value
	object   *rule // any object
	array    *rule
}

func newWriter(o Options, s *spelling) *writer {
	o.MaxDigits = min(o.MaxDigits, 1000)
	w := &writer{Options: o, budget: o.budget(), spelling: s, literals: map[string]*terminal{}}
	switch {
	case o.Compact:
		w.space = sequence{}
	case o.MaxIndent == 0 || o.MaxIndent == defaultIndent:
		w.space = common().space
	default:
		w.space = w.budget.compile(spaceOf(min(o.MaxIndent, 1<<12)))
	}
	value, object, array := &rule{}, &rule{}, &rule{}
	w.value, w.object, w.array = value, object, array
	value.body = alternative{s.any(), w.number(), w.literal(s.word("true")), w.literal(s.word("false")), w.literal(s.word("null")),
		object, array}
	object.body = &objectExpr{w: w, rest: []pair{{s.anyKey(), value}}, most: -1}
	array.body = &arrayExpr{w: w, rest: value, most: -1}
	return w
}

func (w *writer) number() expr {
	if w.MaxDigits > 0 {
		return w.budget.compile(numberOf(w.MaxDigits))
	}
	return common().number
}

// literal is text that is written as it is.
func (w *writer) literal(s string) *terminal {
	if t := common().literals[s]; t != nil {
		return t
	}
	t := w.literals[s]
	if t == nil {
		t = w.budget.compile(textOf(s))
		w.literals[s] = t
	}
	return t
}

// key is the name of a property, with its colon.
func (w *writer) key(name string) *terminal {
	quoted, _ := json.Marshal(name)
	id := "key " + string(quoted)
	t := w.literals[id]
	if t == nil {
		text := w.spelling.constant(name)
		if w.spelling.bare != nil && w.spelling.bare(name) {
			text = textOf(name)
		}
		t = w.budget.compile(seqOf(text, textOf(":")))
		w.literals[id] = t
	}
	return t
}

// JSONObject is any JSON object (response_format json_object).
func JSONObject(o Options) *Grammar {
	o.MaxStates = max(o.MaxStates, defaultStates) // what it needs does not depend on a caller's text
	w := newWriter(o, asJSON)
	g, err := finish(w.object, w.budget, nil)
	if err != nil {
		panic(err) // it takes no input that could be wrong
	}
	return g
}

func (w *writer) compile(p *pattern) *terminal { return w.budget.compile(p) }

// write is the grammar of one value as it is.
func (w *writer) write(v *value) expr {
	switch v.kind {
	case '"':
		return w.compile(w.spelling.constant(v.text))
	case '0':
		return w.literal(v.text)
	case 't':
		return w.literal(w.spelling.word("true"))
	case 'f':
		return w.literal(w.spelling.word("false"))
	case 'n':
		return w.literal(w.spelling.word("null"))
	case '[':
		a := &arrayExpr{w: w, least: len(v.items), most: len(v.items)}
		for _, x := range v.items {
			a.prefix = append(a.prefix, w.write(x))
		}
		return a
	}
	o := &objectExpr{w: w, most: int(none)}
	for _, m := range v.members {
		o.declared = append(o.declared, pair{w.key(m.name), w.write(m.value)})
		o.required = append(o.required, true)
	}
	return o
}
