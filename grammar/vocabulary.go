package grammar

import (
	"bytes"
	"slices"

	"agentcli/model/tokenizer"
)

// Vocabulary is what each token of a tokenizer writes. It is made once and shared by all
// grammars; it keeps the masks of JSON's own automata. It is safe for concurrent use.
type Vocabulary struct {
	tokens  [][]byte // as the trie has them: special ones between two specialByte
	ends    []int32
	isEnd   []bool
	tokenAt trie
	longest int
	masks   *maskCache
}

// specialByte is around the text of a special token. No UTF-8 text has it, so text cannot
// write a special token, nor the other way round.
const specialByte = 0xff

// NewVocabulary makes a vocabulary of what tokens write. A token that is nil, empty or longer
// than 32 KiB is never allowed. A special token is allowed only where a grammar names it (Special). The ids of ends
// are allowed where the text may end, and nowhere else.
func NewVocabulary(tokens [][]byte, special []bool, ends []int32) *Vocabulary {
	v := &Vocabulary{tokens: make([][]byte, len(tokens)), isEnd: make([]bool, len(tokens)), masks: newMaskCache()}
	for _, id := range ends {
		if id >= 0 && int(id) < len(tokens) && !v.isEnd[id] {
			v.isEnd[id] = true
			v.ends = append(v.ends, id)
		}
	}
	var entries []entry
	for id, text := range tokens {
		switch {
		case len(text) == 0 || len(text) > maxToken || v.isEnd[id] || bytes.IndexByte(text, specialByte) >= 0:
			continue
		case id < len(special) && special[id]:
			text = slices.Concat([]byte{specialByte}, text, []byte{specialByte})
		}
		v.tokens[id] = text
		v.longest = max(v.longest, len(text))
		entries = append(entries, entry{text, int32(id)})
	}
	v.tokenAt = newTrie(entries)
	return v
}

// OfTokenizer is the vocabulary of a tokenizer. size is the number of rows of the model's
// output matrix; ids beyond the tokenizer's are never allowed.
func OfTokenizer(t *tokenizer.Tokenizer, size int, ends []int32) *Vocabulary {
	tokens, special := make([][]byte, size), make([]bool, size)
	for id := range min(size, t.VocabSize()) {
		tokens[id], special[id] = t.Bytes(int32(id)), t.Special(int32(id))
	}
	return NewVocabulary(tokens, special, ends)
}

// Size is the number of ids.
func (v *Vocabulary) Size() int { return len(v.tokens) }

type entry struct {
	text []byte
	id   int32
}

// trie is a tree of bytes as an array in preorder: the nodes below node i are i+1 up to
// nodes[i].end. Node 0 is the root.
type trie struct {
	nodes []trieNode
	ids   []int32 // of all nodes, in their order
}

type trieNode struct {
	end   int32
	first int32 // of its ids
	count uint16
	depth uint16
	char  byte
}

// maxToken is the length of the longest token, in bytes.
const maxToken = 1 << 15

func newTrie(entries []entry) trie {
	slices.SortStableFunc(entries, func(a, b entry) int { return bytes.Compare(a.text, b.text) })
	t := trie{nodes: []trieNode{{}}}
	path := []int32{0}
	for _, e := range entries {
		same := 0
		for same < len(path)-1 && same < len(e.text) && t.nodes[path[same+1]].char == e.text[same] {
			same++
		}
		for len(path) > same+1 {
			t.nodes[path[len(path)-1]].end = int32(len(t.nodes))
			path = path[:len(path)-1]
		}
		for _, c := range e.text[same:] {
			path = append(path, int32(len(t.nodes)))
			t.nodes = append(t.nodes, trieNode{first: int32(len(t.ids)), depth: uint16(len(path) - 1), char: c})
		}
		if n := &t.nodes[path[len(path)-1]]; n.count < 1<<16-1 {
			n.count++
			t.ids = append(t.ids, e.id)
		}
	}
	for _, i := range path {
		t.nodes[i].end = int32(len(t.nodes))
	}
	return t
}

// at are the ids of node i.
func (t *trie) at(i int32) []int32 {
	n := &t.nodes[i]
	return t.ids[n.first : n.first+int32(n.count)]
}

// below are the ids of the nodes below node i, without its own.
func (t *trie) below(i int32) []int32 {
	n := &t.nodes[i]
	last := int32(len(t.ids))
	if int(n.end) < len(t.nodes) {
		last = t.nodes[n.end].first
	}
	return t.ids[n.first+int32(n.count) : last]
}
