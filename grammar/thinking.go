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
	return finish(b.afterThinking(t, [2]*pattern{marker(opening), marker(closing)}, g.root), b, nil)
}

func (b *budget) afterThinking(t Thinking, tags [2]*pattern, reply expr) expr {
	if t == ThinkingNever {
		return reply
	}
	thought := firstMatch(b.compile(seqOf(dfaOf(anyText(b)), tags[1])))
	blank := b.compile(repeatOf(textOf("\n"), 0, 2))
	if t == ThinkingIsOpened {
		return sequence{thought, blank, reply}
	}
	return alternative{reply, sequence{b.compile(tags[0]), thought, blank, reply}}
}

// marker is a token's text: as a special token where the vocabulary has it as one, or letter by
// letter.
func marker(text string) *pattern { return altOf(textOf(text), specialOf(text)) }
