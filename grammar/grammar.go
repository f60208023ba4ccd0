package grammar

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"agentcli/internal/text"
)

// Grammar is a language of texts. It never changes and is safe for concurrent use.
type Grammar struct {
	root    expr
	machine *machine
}

// Options say how JSON is written, and what a grammar may cost. The zero value has defaults.
type Options struct {
	// Compact has JSON without white space. Otherwise one space, or a line break and up to
	// MaxIndent spaces or tabs, may come after {, [, comma and colon, and before } and ].
	Compact bool
	// MaxIndent is how many spaces or tabs may follow a line break (default 32; negative: there
	// are no line breaks).
	MaxIndent int
	// MaxDigits bounds the digits of a number before and behind its point (default: no bound).
	MaxDigits int
	// OpenObjects has an object with properties take others where additionalProperties is
	// absent, and an array with prefixItems take more where items is, as JSON Schema says. By
	// default they do not, as in OpenAI's structured outputs.
	OpenObjects bool
	// MaxStates bounds the automata of a grammar (default 200,000 states).
	MaxStates int
}

const (
	defaultIndent = 32
	defaultStates = 200_000
	workPerState  = 100 // steps of a few nanoseconds
)

func (o Options) budget() *budget {
	n := min(o.MaxStates, 1<<30)
	if n <= 0 {
		n = defaultStates
	}
	return &budget{states: n, work: n * workPerState}
}

var (
	errNoText = errors.New("no finite text is in the language")
	errLeft   = errors.New("a part refers to itself before it writes anything")
	errUTF8   = errors.New("the text is not valid UTF-8")
)

// finish makes the grammar of an expression. why is a reason to give where no text is in it.
func finish(root expr, b *budget, why error) (*Grammar, error) {
	m, err := newMachine(root, b)
	if errors.Is(err, errNoText) && why != nil {
		err = why
	}
	if err != nil {
		return nil, err
	}
	return &Grammar{root: root, machine: m}, nil
}

// Choices is one of some texts.
func Choices(texts []string) (*Grammar, error) {
	if len(texts) == 0 {
		return nil, errors.New("there are no choices; give at least one")
	}
	b := Options{}.budget()
	p := altOf()
	for i, s := range texts {
		if !utf8.ValidString(s) {
			return nil, fmt.Errorf("choice %d: %w", i, errUTF8)
		}
		if !b.spend(0, len(s)) {
			return nil, errTooLarge
		}
		p.subs = append(p.subs, textOf(s))
	}
	return finish(b.compile(p), b, nil)
}

// specialOf is one special token, by its text in the vocabulary.
func specialOf(token string) *pattern {
	edge := bytesOf(specialByte, specialByte)
	return seqOf(edge, textOf(token), edge)
}

// firstMatch is the words of a terminal that do not begin with another one.
func firstMatch(t *terminal) *terminal {
	if t.begin == none {
		return t
	}
	first := &terminal{class: t.class, width: t.width, begin: t.begin, accept: t.accept, next: slices.Clone(t.next)}
	for q, yes := range t.accept {
		if yes {
			for c := range t.width {
				first.next[int32(q)*t.width+c] = none
			}
		}
	}
	return first.trim()
}

func anyText(b *budget) *terminal { return b.compile(starOf(runesOf(0, utf8.MaxRune))) }

// quoted shows a string of a user in an error.
func quoted(s string) string { return strconv.Quote(text.Cut(s, 60)) }
