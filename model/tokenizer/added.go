package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// addedToken is a token that is looked for in a text before it is cut into words.
type addedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// matcher finds added tokens in a text: leftmost, then longest.
type matcher struct {
	first [256]bool
	nodes []trieNode
}

type trieNode struct {
	next map[byte]int32
	tok  *addedToken
}

func newMatcher(toks []addedToken, text func(string) string) *matcher {
	m := &matcher{nodes: []trieNode{{next: map[byte]int32{}}}}
	for i := range toks {
		s := text(toks[i].Content)
		if s == "" {
			continue
		}
		m.first[s[0]] = true
		at := int32(0)
		for j := 0; j < len(s); j++ {
			n, ok := m.nodes[at].next[s[j]]
			if !ok {
				n = int32(len(m.nodes))
				m.nodes = append(m.nodes, trieNode{next: map[byte]int32{}})
				m.nodes[at].next[s[j]] = n
			}
			at = n
		}
		m.nodes[at].tok = &toks[i]
	}
	return m
}

func (m *matcher) longest(s string) (tok *addedToken, n int) {
	at := int32(0)
	for j := 0; j < len(s); j++ {
		next, ok := m.nodes[at].next[s[j]]
		if !ok {
			break
		}
		at = next
		if t := m.nodes[at].tok; t != nil {
			tok, n = t, j+1
		}
	}
	return tok, n
}

// split hands out the text piece by piece: id -1 for text between tokens. It
// follows the order of checks in Hugging Face's AddedVocabulary.find_matches,
// where a rejected match is passed over whole.
func (m *matcher) split(s string, skip func(int32) bool, emit func(piece string, id int32)) {
	done := 0
	if len(m.nodes) > 1 {
		for i := 0; i < len(s); {
			if !m.first[s[i]] {
				i++
				continue
			}
			tok, n := m.longest(s[i:])
			if tok == nil {
				i++
				continue
			}
			start, stop := i, i+n
			i = stop
			if skip(tok.ID) {
				continue
			}
			if tok.SingleWord && (wordBefore(s[:start]) || wordAfter(s[stop:])) {
				continue
			}
			if tok.LStrip {
				start = max(trimRight(s[:start]), done)
			}
			if tok.RStrip {
				stop += leadingSpace(s[stop:])
			}
			if done < start {
				emit(s[done:start], -1)
			}
			emit(s[start:stop], tok.ID)
			done = stop
		}
	}
	if done < len(s) {
		emit(s[done:], -1)
	}
}

func wordBefore(s string) bool {
	r, n := utf8.DecodeLastRuneInString(s)
	return n > 0 && isWord(r)
}

func wordAfter(s string) bool {
	r, n := utf8.DecodeRuneInString(s)
	return n > 0 && isWord(r)
}

func trimRight(s string) int {
	for len(s) > 0 {
		r, n := utf8.DecodeLastRuneInString(s)
		if !unicode.IsSpace(r) {
			break
		}
		s = s[:len(s)-n]
	}
	return len(s)
}

func leadingSpace(s string) int {
	i := 0
	for i < len(s) {
		r, n := utf8.DecodeRuneInString(s[i:])
		if !unicode.IsSpace(r) {
			break
		}
		i += n
	}
	return i
}
