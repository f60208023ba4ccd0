// Package grammar says, token after token, what a language model may write next so that the
// whole text is in a language: the JSON of a schema, the matches of a regular expression, one
// of some choices, calls of tools in a family's syntax.
//
// A Grammar is a language of bytes. It is compiled for no tokenizer in particular. A
// Vocabulary is what a tokenizer's tokens write. A Matcher follows one text: Fill says which
// tokens may be next, Accept takes the one that was drawn.
//
// # Automata
//
// A grammar has two layers, as compilers have. Terminals are deterministic automata over bytes:
// a brace, the name of a property with its colon, a string, a number in a range, a run of white
// space. They are made from regular expressions (pattern.go: Thompson's construction, subsets,
// Moore's minimisation), and by intersection and difference (terminal.go). States from which
// no word ends are removed.
// Above them is a push-down automaton (machine.go): its states stand between terminals, a rule
// that may contain itself is called with the state to return to on a stack. States from which
// no text ends are removed there too, so that every text that has been begun can be finished:
// a Matcher has no dead ends as long as the vocabulary can write each byte.
//
// A position in a text is a set of ways: a state of a terminal, the machine's state after that
// terminal, and a stack. Several ways exist where alternatives begin alike. Ways that differ
// only in their stacks are one way with a set of stacks. Such a set is a tree with shared
// branches, as in generalised LR parsing (Tomita, 1985), and equal sets are one object, so
// that nested alternatives do not multiply.
//
// # Masks
//
// Fill must be quick for vocabularies of 150,000 tokens. A token that stays within one terminal
// is allowed whatever is around the terminal. So the tokens that stay within are found once for
// each state of a terminal, by one walk of the vocabulary's trie, and kept as a bit mask. In a
// string they are nearly all tokens. A token that leaves its terminal in the middle, as `", "`
// does, depends on what follows. Those tokens are kept as a trie of what they have left, which
// is walked from the position after the terminal; most branches end at their first byte. The
// method is that of XGrammar (Dong et al., 2024), with terminals in place of its rules.
//
// States share a mask where no word as long as the longest token tells them apart. That
// keeps a string of at most 5,000 characters, whose automaton has states for each count, at a
// few masks. Its states are not even stored: they are computed from the count (counted).
//
// # Special tokens
//
// A special token is written as its text between two bytes 0xff, which UTF-8 does not have. So
// text never allows a special token, and a grammar can name one (Special).
//
// # Schemas
//
// A schema becomes a conjunction of schemas: $ref and allOf add to it, anyOf and oneOf multiply
// it out. What is left is merged keyword by keyword into one expression for each type.
// Conjunctions that have a $ref are rules, known by the set of their schemas; that ends the
// recursion. docs/grammars.md has the keywords and what is decided where JSON Schema and habit
// differ. All work is counted against Options.MaxStates, because schemas come from strangers.
//
// The package is in layer 1: of this module it imports model/tokenizer and internal/text.
package grammar
