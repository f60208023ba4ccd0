package tokenizer

import (
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"agentcli/internal/malformed"
)

// unigram cuts a text into the tokens whose scores (logarithms of chances) have
// the largest sum: Viterbi's algorithm, as encode_optimized of the tokenizers
// library.
type unigram struct {
	trie         byteTrie
	scores       []float64
	ids          map[string]int32
	unk          int32 // -1: unknown characters vanish
	unkScore     float64
	bytes        [256]int32 // of <0x00> to <0xFF>; all are there, or byteFallback is off
	byteFallback bool
	skip         map[int32]bool // tokens that must not be made
	cache        wordCache
}

// unkPenalty is how much an unknown character is worth less than the rarest
// token: kUnkPenalty of SentencePiece.
const unkPenalty = 10

// parseUnigram reads the pairs of token and score.
func parseUnigram(raw json.RawMessage) ([]string, []float64, error) {
	var pairs [][2]json.RawMessage
	if err := json.Unmarshal(raw, &pairs); err != nil {
		return nil, nil, malformed.Errorf(malformed.Type, "no list of pairs [token, score]")
	}
	tokens, scores := make([]string, len(pairs)), make([]float64, len(pairs))
	for i, p := range pairs {
		var number json.Number
		if json.Unmarshal(p[0], &tokens[i]) == nil && json.Unmarshal(p[1], &number) == nil {
			scores[i] = serdeFloat(string(number))
		} else {
			scores[i] = math.NaN()
		}
		if math.IsNaN(scores[i]) || math.IsInf(scores[i], 0) {
			return nil, nil, malformed.Errorf(malformed.Type, "entry %d is no pair [token, score]", i)
		}
	}
	return tokens, scores, nil
}

// serdeFloat reads a number as Rust's serde_json does: the digits as an integer,
// divided by a power of ten. That may be off by the last bit, and such bits
// decide between ways of equal score.
func serdeFloat(s string) float64 {
	s, negative := strings.CutPrefix(s, "-")
	digits, power, _ := strings.Cut(strings.ToLower(s), "e")
	exponent, err := strconv.Atoi("0" + power)
	if strings.HasPrefix(power, "-") || strings.HasPrefix(power, "+") {
		exponent, err = strconv.Atoi(power)
	}
	if err != nil || exponent > 400 || exponent < -400 {
		return math.NaN()
	}
	var n uint64
	point, full := false, false
	for _, c := range digits {
		if c == '.' {
			point = true
			continue
		}
		hi, lo := bits.Mul64(n, 10)
		next, carry := bits.Add64(lo, uint64(c-'0'), 0)
		full = full || hi != 0 || carry != 0 // further digits are dropped
		if !full {
			n = next
		}
		if point && !full {
			exponent--
		} else if !point && full {
			exponent++
		}
	}
	f := float64(n)
	for ; exponent < -308; exponent += 308 {
		f /= 1e308
	}
	if exponent >= 0 {
		f *= math.Pow10(exponent)
	} else {
		f /= math.Pow10(-exponent)
	}
	if negative {
		return -f
	}
	return f
}

func newUnigram(v *vocabulary, tokens []string, scores []float64, unk *int64, byteFallback bool) (*unigram, error) {
	m := &unigram{scores: scores, ids: v.ids, unk: -1, unkScore: slices.Min(scores) - unkPenalty, byteFallback: byteFallback}
	if unk != nil {
		if *unk < 0 || *unk >= int64(len(tokens)) {
			return nil, malformed.Errorf(malformed.Range, "%d is not in the vocabulary of %d tokens", *unk, len(tokens))
		}
		m.unk = int32(*unk)
	}
	for i, s := range tokens {
		m.trie.add(s, int32(i))
	}
	for b := range 256 {
		id, ok := v.ids[fmt.Sprintf("<0x%02X>", b)]
		if !ok {
			id = -1
		}
		m.bytes[b] = id
	}
	return m, nil
}

// ordinary is the model for text in which nothing may become a special token.
func (m *unigram) ordinary(v *vocabulary) model {
	c := &unigram{trie: m.trie, scores: m.scores, ids: m.ids, unk: m.unk, unkScore: m.unkScore, bytes: m.bytes,
		byteFallback: m.byteFallback, skip: v.special}
	return c
}

func (m *unigram) encode(out []int32, s string) []int32 {
	if len(s) > cacheWordLen {
		return m.viterbi(out, s)
	}
	if ids, ok := m.cache.get(s); ok {
		return append(out, ids...)
	}
	n := len(out)
	out = m.viterbi(out, s)
	m.cache.put(s, out[n:])
	return out
}

// lattice is the best way to each byte of a text.
type lattice struct {
	score []float64
	from  []int32 // where its last token begins; -1: no way yet
	id    []int32
}

func (m *unigram) viterbi(out []int32, s string) []int32 {
	l := lattice{score: make([]float64, len(s)+1), from: make([]int32, len(s)+1), id: make([]int32, len(s)+1)}
	for i := range l.from {
		l.from[i] = -1
	}
	reach := func(start, end int, score float64, id int32) {
		if l.from[end] < 0 || score > l.score[end] {
			l.score[end], l.from[end], l.id[end] = score, int32(start), id
		}
	}
	for start := 0; start < len(s); {
		_, width := utf8.DecodeRuneInString(s[start:])
		single := false
		m.trie.prefixes(s[start:], func(n int, id int32) {
			if m.skip[id] {
				return
			}
			reach(start, start+n, m.scores[id]+l.score[start], id)
			single = single || n == width
		})
		if !single {
			reach(start, start+width, m.unkScore+l.score[start], m.unk)
		}
		start += width
	}
	// The way back. Unknown pieces side by side are one.
	type span struct{ from, to int }
	var back []span
	for end := len(s); end > 0; {
		start := int(l.from[end])
		if l.id[end] == m.unk && len(back) > 0 && l.id[back[len(back)-1].to] == m.unk && back[len(back)-1].from == end {
			back[len(back)-1].from = start
		} else {
			back = append(back, span{start, end})
		}
		end = start
	}
	for _, b := range slices.Backward(back) {
		out = m.piece(out, s[b.from:b.to])
	}
	return out
}

// piece gives the id of a piece: by its text, as the library does, which may
// find a token for unknown pieces that became one.
func (m *unigram) piece(out []int32, s string) []int32 {
	if id, ok := m.ids[s]; ok && !m.skip[id] {
		return append(out, id)
	}
	if m.byteFallback {
		n := len(out)
		for i := 0; i < len(s) && m.bytes[s[i]] >= 0; i++ {
			out = append(out, m.bytes[s[i]])
		}
		if len(out) == n+len(s) {
			return out
		}
		out = out[:n]
	}
	if m.unk >= 0 {
		out = append(out, m.unk)
	}
	return out
}

// byteTrie finds the tokens that a text begins with.
type byteTrie struct {
	nodes []trieStep
	root  [256]int32
}

// trieStep is a node: its children are a chain of siblings.
type trieStep struct {
	id          int32 // -1: no token ends here
	child, next int32 // 0: none
	b           byte
}

func (t *byteTrie) add(s string, id int32) {
	if s == "" {
		return
	}
	if len(t.nodes) == 0 {
		t.nodes = append(t.nodes, trieStep{id: -1}) // 0 means none
	}
	link := &t.root[s[0]]
	if *link == 0 {
		t.nodes = append(t.nodes, trieStep{id: -1, b: s[0]})
		t.root[s[0]] = int32(len(t.nodes) - 1)
	}
	at := t.root[s[0]]
	for i := 1; i < len(s); i++ {
		n := t.step(at, s[i])
		if n == 0 {
			n = int32(len(t.nodes))
			t.nodes = append(t.nodes, trieStep{id: -1, b: s[i], next: t.nodes[at].child})
			t.nodes[at].child = n
		}
		at = n
	}
	t.nodes[at].id = id
}

func (t *byteTrie) step(at int32, b byte) int32 {
	n := t.nodes[at].child
	for n != 0 && t.nodes[n].b != b {
		n = t.nodes[n].next
	}
	return n
}

// prefixes hands out the tokens at the start of s with their lengths, the
// shortest first.
func (t *byteTrie) prefixes(s string, found func(n int, id int32)) {
	if s == "" || len(t.nodes) == 0 {
		return
	}
	at := t.root[s[0]]
	for i := 1; at != 0; i++ {
		if id := t.nodes[at].id; id >= 0 {
			found(i, id)
		}
		if i == len(s) {
			return
		}
		at = t.step(at, s[i])
	}
}
