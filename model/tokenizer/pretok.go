package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"agentcli/internal/malformed"
)

// splitter is one step of a pre-tokenizer: it changes a piece, cuts it and
// changes the parts. Each of the three may be nil.
type splitter struct {
	before func(s string, start bool) string // start: s begins the text
	cut    cutter
	after  func(string) string
}

// preTokenizer cuts a text into words, by its steps in order.
type preTokenizer struct {
	name  string // of its steps, for the hash: "Digit+GPT2"
	label string // and for people
	steps []splitter
	// byteLevel: the last step is ByteLevel, and its letters were left out: a BPE over
	// bytes does not need them.
	byteLevel bool
}

// parsePreTokenizer reads the field of tokenizer.json. With bytes a ByteLevel
// step at the end leaves the bytes as they are.
func parsePreTokenizer(raw json.RawMessage, bytes bool) (p preTokenizer, err error) {
	if isNull(raw) {
		return p, nil
	}
	var s step
	if err := json.Unmarshal(raw, &s); err != nil {
		return p, err
	}
	flat, err := flatten(s, nil)
	if err != nil {
		return p, err
	}
	var names, labels []string
	var grows growth
	for i, s := range flat {
		last := i == len(flat)-1
		p.byteLevel = s.Type == "ByteLevel" && last && bytes
		sp, name, label, err := s.splitter()
		if err == nil {
			err = grows.by(growthOf(s))
		}
		if err != nil {
			return p, err
		}
		if p.byteLevel {
			sp.after = nil
		}
		// A ByteLevel step that does nothing but spell bytes has no name of its own.
		if name != "" {
			names, labels = append(names, name), append(labels, label)
		}
		if sp.before != nil || sp.cut != nil || sp.after != nil {
			p.steps = append(p.steps, sp)
		}
	}
	p.name, p.label = strings.Join(names, "+"), strings.Join(labels, "+")
	return p, nil
}

// maxSteps bounds the steps of a file; each may hold a pattern that is tried.
const maxSteps = 64

// flatten gives the steps of sequences within sequences one after the other.
func flatten(s step, out []step) ([]step, error) {
	if s.Type != "Sequence" {
		if len(out) == maxSteps {
			return nil, malformed.Errorf(malformed.Range, "more than %d steps", maxSteps)
		}
		return append(out, s), nil
	}
	var err error
	for _, inner := range s.Pretokenizers {
		if out, err = flatten(inner, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// splitter is what a component of the file does, its name for the hash and one
// for people.
func (s step) splitter() (sp splitter, name, label string, err error) {
	name = s.Type
	of := func(find finder, behavior string) cutter {
		cut, e := general(find, behavior, false)
		if e != nil {
			err = e
		}
		return cut
	}
	switch s.Type {
	case "ByteLevel":
		name = s.byteLevel(&sp)
	case "Digits":
		sp.cut = digits(s.IndividualDigits)
		if s.IndividualDigits {
			name = "Digit"
		}
	case "Split":
		sp.cut, name, label, err = splitStep(s)
		return sp, name, label, err
	case "Metaspace":
		name, err = s.metaspace(&sp)
	case "Whitespace":
		sp.cut = cutWords
	case "WhitespaceSplit":
		sp.cut = of(runes(unicode.IsSpace), "Removed")
	case "BertPreTokenizer":
		outer, inner := of(runes(unicode.IsSpace), "Removed"), of(runes(isPunct), "Isolated")
		sp.cut = func(s string, emit func(string)) { outer(s, func(p string) { inner(p, emit) }) }
	case "Punctuation":
		behavior := s.Behavior
		if behavior == "" {
			behavior = "Isolated"
		}
		sp.cut, name = of(runes(isPunct), behavior), "Punctuation("+behavior+")"
	case "CharDelimiterSplit", "Delimiter":
		r, n := utf8.DecodeRuneInString(s.Delimiter)
		if n == 0 || n != len(s.Delimiter) {
			return sp, "", "", malformed.Errorf(malformed.Range, "delimiter %q is not one character", s.Delimiter)
		}
		sp.cut, name = of(runes(func(x rune) bool { return x == r }), "Removed"), fmt.Sprintf("Delimiter(%q)", r)
	case "UnicodeScripts":
		sp.cut = scripts
	case "FixedLength":
		if s.Length == nil || *s.Length < 1 {
			return sp, "", "", malformed.Errorf(malformed.Range, "FixedLength without a length above 0")
		}
		sp.cut, name = fixedLength(*s.Length), fmt.Sprintf("FixedLength(%d)", *s.Length)
	default:
		err = unknownType(s.Type, "pre-tokenizer")
	}
	return sp, name, name, err
}

// byteLevel sets the step of that name, and returns its name.
func (s step) byteLevel(sp *splitter) (name string) {
	if s.AddPrefixSpace == nil || *s.AddPrefixSpace {
		name = "ByteLevel"
		sp.before = func(s string, _ bool) string {
			if strings.HasPrefix(s, " ") {
				return s
			}
			return " " + s
		}
	}
	if s.UseRegex == nil || *s.UseRegex {
		sp.cut, name = families[patternGPT2].isolated(), "GPT2"
	}
	sp.after = byteLetters
	return name
}

// metaspace sets the step of that name: spaces become ▁, one more is put in
// front, and the text is cut before each.
func (s step) metaspace(sp *splitter) (name string, err error) {
	mark, n := utf8.DecodeRuneInString(s.Replacement)
	if n == 0 || n != len(s.Replacement) {
		return "", malformed.Errorf(malformed.Range, "Metaspace: replacement %q is not one character", s.Replacement)
	}
	scheme, err := s.prependScheme()
	if err != nil {
		return "", err
	}
	sp.before = func(t string, start bool) string {
		t = strings.ReplaceAll(t, " ", s.Replacement)
		if scheme == "never" || scheme == "first" && !start || strings.HasPrefix(t, s.Replacement) {
			return t
		}
		return s.Replacement + t
	}
	split := s.Split == nil || *s.Split
	if split {
		sp.cut, err = general(runes(func(r rune) bool { return r == mark }), "MergedWithNext", false)
	}
	return fmt.Sprintf("Metaspace(%q,%s,%v)", s.Replacement, scheme, split), err
}

// prependScheme is always, first or never; older files have add_prefix_space.
func (s step) prependScheme() (string, error) {
	switch s.PrependScheme {
	case "always", "first", "never":
		return s.PrependScheme, nil
	case "":
		if s.AddPrefixSpace != nil && !*s.AddPrefixSpace {
			return "never", nil
		}
		return "always", nil
	}
	return "", malformed.Errorf(malformed.Range, "Metaspace: prepend_scheme %q is none of always, first, never", s.PrependScheme)
}

// cutWords is `\w+|[^\w\s]+`; white space is dropped.
func cutWords(s string, emit func(string)) {
	kind := func(r rune) int {
		switch {
		case isWord(r):
			return 1
		case unicode.IsSpace(r):
			return 0
		}
		return 2
	}
	start, last := 0, 0
	for i, r := range s {
		k := kind(r)
		if k == last {
			continue
		}
		if last != 0 {
			emit(s[start:i])
		}
		start, last = i, k
	}
	if last != 0 {
		emit(s[start:])
	}
}

func fixedLength(n int) cutter {
	return func(s string, emit func(string)) {
		start, k := 0, 0
		for i := range s {
			if k == n {
				emit(s[start:i])
				start, k = i, 0
			}
			k++
		}
		if start < len(s) {
			emit(s[start:])
		}
	}
}

// scripts cuts where the writing changes. Spaces go with what is before them;
// those at the start of a text are dropped.
func scripts(s string, emit func(string)) {
	start, last := -1, ""
	for i, r := range s {
		script := scriptOf(r)
		if script == anyScript {
			continue
		}
		if script != last {
			if start >= 0 {
				emit(s[start:i])
			}
			start, last = i, script
		}
	}
	if start >= 0 {
		emit(s[start:])
	}
}

// anyScript is the script of a space, which goes with any other.
const anyScript = "Any"

// scriptOf is the script of a character, where SentencePiece takes kana for Han.
func scriptOf(r rune) string {
	switch {
	case r == ' ':
		return anyScript
	case r == 0x30fc, unicode.In(r, unicode.Hiragana, unicode.Katakana):
		return "Han"
	}
	for name, tab := range unicode.Scripts {
		if unicode.Is(tab, r) {
			return name
		}
	}
	return anyScript
}
