package chat

import (
	"bytes"
	"unicode"
	"unicode/utf8"
)

// shown is a text of which a part has been given. Spaces at its end are held back, since they
// may be trimmed, and so is a character that is not complete.
type shown struct {
	space func(rune) bool
	lead  bool   // spaces at the beginning are dropped
	held  []byte // not given yet
	blank int    // how many bytes at the beginning of held are spaces
	text  []byte // given
	taken int    // of text, by take
}

func lineFeed(r rune) bool { return r == '\n' }

func newShown(space func(rune) bool) shown { return shown{space: space} }

// push adds text. Its cost does not depend on what is held.
func (w *shown) push(text string) {
	w.held = append(w.held, text...)
	n := len(w.held) - incomplete(w.held)
	if w.lead {
		cut := n - len(bytes.TrimLeftFunc(w.held[:n], w.space))
		w.held = append(w.held[:0], w.held[cut:]...)
		if n -= cut; n == 0 {
			return
		}
		w.lead = false
	}
	end := w.blank + len(bytes.TrimRightFunc(w.held[w.blank:n], w.space))
	if end == w.blank {
		w.blank = n
		return
	}
	w.text = append(w.text, w.held[:end]...)
	w.held = append(w.held[:0], w.held[end:]...)
	w.blank = n - end
}

// end gives what is held but for the spaces: nothing follows that they could stand before.
func (w *shown) end() {
	w.text = append(w.text, bytes.TrimRightFunc(w.held, w.space)...)
	w.drop()
}

func (w *shown) drop() { w.held, w.blank, w.lead = w.held[:0], 0, false }

// take is what was given since the last take.
func (w *shown) take() string {
	out := string(w.text[w.taken:])
	w.taken = len(w.text)
	return out
}

// rest is what of the whole text was not given. A whole that begins otherwise has none.
func (w *shown) rest(whole string) string {
	if !bytes.HasPrefix([]byte(whole), w.text) {
		return ""
	}
	return whole[len(w.text):]
}

func (w *shown) all() string { return string(w.text) + string(w.held) }

// incomplete is how many bytes at the end may be the beginning of a character.
func incomplete(b []byte) int {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if c := b[len(b)-i]; utf8.RuneStart(c) {
			if utf8.FullRune(b[len(b)-i:]) {
				return 0
			}
			return i
		}
	}
	return 0
}

var contentSpace = unicode.IsSpace
