package grammar

import (
	"errors"
	"unicode/utf8"
)

// Thinking says whether reasoning comes before the rest of a reply.
type Thinking uint8

// The kinds.
const (
	ThinkingNever    Thinking = iota
	ThinkingMay               // the reply may begin with reasoning between its tags
	ThinkingIsOpened          // the prompt has the opening tag: the reply begins with reasoning, and closes it
)

// AfterThinking is a grammar's texts after reasoning, which is any text up to its closing tag. A
// tag may be a special token or its letters, as the vocabulary has it.
func AfterThinking(g *Grammar, t Thinking, opening, closing string) (*Grammar, error) {
	if opening == "" || closing == "" || !utf8.ValidString(opening) || !utf8.ValidString(closing) {
		return nil, errors.New("the tags of reasoning must be text in UTF-8")
	}
	b := Options{}.budget()
	return finish(b.afterThinking(t, marker(opening), b.thought(marker(closing)), g.root), b, nil)
}

// thought is any text up to and with a closing tag.
func (b *budget) thought(closing *pattern) *terminal {
	return firstMatch(b.compile(seqOf(dfaOf(anyText(b)), closing)))
}

func (b *budget) afterThinking(t Thinking, opening *pattern, thought *terminal, reply expr) expr {
	blank := b.compile(repeatOf(textOf("\n"), 0, 2))
	switch t {
	case ThinkingMay:
		return alternative{reply, sequence{b.compile(opening), thought, blank, reply}}
	case ThinkingIsOpened:
		return sequence{thought, blank, reply}
	}
	return reply
}

// marker is a token's text: as a special token where the vocabulary has it as one, or letter by
// letter.
func marker(text string) *pattern { return altOf(textOf(text), specialOf(text)) }
