package tokenizer

import "unicode/utf8"

// wordPiece cuts a word greedily into the longest tokens from the left; those
// within the word are written with a prefix.
type wordPiece struct {
	ids      map[string]int32
	unk      int32
	prefix   string
	maxChars int
	longest  int            // bytes of the longest token
	skip     map[int32]bool // tokens that must not be made
}

func (m *wordPiece) ordinary(v *vocabulary) model {
	c := *m
	c.skip = v.special
	return &c
}

func (m *wordPiece) encode(out []int32, s string) []int32 {
	if utf8.RuneCountInString(s) > m.maxChars {
		return append(out, m.unk)
	}
	n := len(out)
	for start := 0; start < len(s); {
		end := min(len(s), start+m.longest)
		for ; end > start; end-- {
			if end < len(s) && !utf8.RuneStart(s[end]) {
				continue
			}
			piece := s[start:end]
			if start > 0 {
				piece = m.prefix + piece
			}
			if id, ok := m.ids[piece]; ok && !m.skip[id] {
				out = append(out, id)
				break
			}
		}
		if end == start {
			return append(out[:n], m.unk)
		}
		start = end
	}
	return out
}

// wordLevel knows whole words only.
type wordLevel struct {
	ids  map[string]int32
	unk  int32
	skip map[int32]bool
}

func (m *wordLevel) ordinary(v *vocabulary) model {
	c := *m
	c.skip = v.special
	return &c
}

func (m *wordLevel) encode(out []int32, s string) []int32 {
	if id, ok := m.ids[s]; ok && !m.skip[id] {
		return append(out, id)
	}
	return append(out, m.unk)
}
