package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	"agentcli/internal/malformed"
)

// A word's ids are remembered: text repeats its words. The cache is dropped
// when full, which keeps it bounded without bookkeeping on every hit.
const (
	cacheWords   = 1 << 16
	cacheWordLen = 48
)

type wordCache struct {
	mu  sync.RWMutex
	ids map[string][]int32
}

func (c *wordCache) get(s string) ([]int32, bool) {
	c.mu.RLock()
	ids, ok := c.ids[s]
	c.mu.RUnlock()
	return ids, ok
}

func (c *wordCache) put(s string, ids []int32) {
	ids = append([]int32(nil), ids...)
	c.mu.Lock()
	if c.ids == nil || len(c.ids) >= cacheWords {
		c.ids = make(map[string][]int32, 1024)
	}
	// s may be a slice of a whole document, which the cache must not hold.
	c.ids[strings.Clone(s)] = ids
	c.mu.Unlock()
}

// bpe merges the symbols of one pre-token by rank. The symbols are bytes where
// the pre-tokenizer is byte-level, else characters.
type bpe struct {
	bpeRules
	byteLevel bool
	bytes     [256]int32 // ids of the bytes' letters, or of <0x00> to <0xFF>; -1: not in the vocabulary
	chars     *charIDs   // where the symbols are characters
	pairs     *pairTable
	words     map[string]int32 // whole words, for ignoreMerges
	cache     wordCache
}

// bpeRules are the fields of tokenizer.json.
type bpeRules struct {
	ignoreMerges   bool // a word that is in the vocabulary is one token, whatever the merges say
	unk            int32
	fuseUnk        bool
	byteFallback   bool // characters without a token are spelled as <0x00> to <0xFF>
	prefix, suffix string
}

// newBPE looks up the merges' tokens. byteLevel says that the pre-tokenizer ends
// with the ByteLevel step; words are then given as they are, not in its letters.
func newBPE(v *vocabulary, merges [][2]string, rules bpeRules, byteLevel bool) (*bpe, error) {
	m := &bpe{bpeRules: rules, byteLevel: byteLevel, pairs: newPairTable(len(merges))}
	for b := range 256 {
		name := string(byteRune[b])
		if !byteLevel {
			name = fmt.Sprintf("<0x%02X>", b)
		}
		m.bytes[b] = -1
		if id, ok := v.ids[name]; ok {
			m.bytes[b] = id
		}
	}
	for i, pair := range merges {
		whole := pair[0] + strings.TrimPrefix(pair[1], rules.prefix)
		a, okA := v.ids[pair[0]]
		b, okB := v.ids[pair[1]]
		ab, okC := v.ids[whole]
		if !okA || !okB || !okC {
			missing := whole
			if !okA {
				missing = pair[0]
			} else if !okB {
				missing = pair[1]
			}
			return nil, malformed.Errorf(malformed.Missing,
				"merge %d (%q %q) needs %q, which is not in the vocabulary", i, pair[0], pair[1], missing)
		}
		m.pairs.put(a, b, merge{int32(i), ab})
	}
	if rules.ignoreMerges {
		m.words = make(map[string]int32, len(v.ids))
		for s, id := range v.ids {
			if v.special[id] {
				continue
			}
			if byteLevel {
				b, ok := lettersToBytes(s)
				if !ok {
					continue // no text is spelled so
				}
				s = string(b)
			}
			m.words[s] = id
		}
	}
	if !byteLevel {
		m.chars = newCharIDs(v, merges, rules)
	}
	return m, nil
}

// ordinary is the model for text in which nothing may become a special token:
// without the merges that make one.
func (m *bpe) ordinary(v *vocabulary) model {
	same := true
	for i, k := range m.pairs.keys {
		same = same && (k == 0 || !v.special[m.pairs.vals[i].id])
	}
	if same {
		return m
	}
	c := &bpe{bpeRules: m.bpeRules, byteLevel: m.byteLevel, bytes: m.bytes, chars: m.chars, words: m.words,
		pairs: newPairTable(len(m.pairs.keys) / 2)}
	for i, k := range m.pairs.keys {
		if k != 0 && !v.special[m.pairs.vals[i].id] {
			c.pairs.put(int32((k-1)>>32), int32(k-1), m.pairs.vals[i])
		}
	}
	return c
}

// parseMerges reads merges as tokenizer.json has them.
func parseMerges(raw json.RawMessage) ([][2]string, error) {
	if isNull(raw) {
		return nil, nil
	}
	var lines []string
	if err := json.Unmarshal(raw, &lines); err == nil {
		return splitMerges(lines)
	}
	var pairs [][]string
	if err := json.Unmarshal(raw, &pairs); err != nil {
		return nil, malformed.Errorf(malformed.Type, "neither strings \"a b\" nor pairs [\"a\", \"b\"]")
	}
	out := make([][2]string, len(pairs))
	for i, p := range pairs {
		if len(p) != 2 {
			return nil, malformed.Errorf(malformed.Syntax, "merge %d has %d parts, not 2", i, len(p))
		}
		out[i] = [2]string{p[0], p[1]}
	}
	return out, nil
}

// splitMerges reads merges that are written as two tokens with a space between.
func splitMerges(lines []string) ([][2]string, error) {
	out := make([][2]string, 0, len(lines))
	for i, l := range lines {
		if i == 0 && strings.HasPrefix(l, "#version") {
			continue
		}
		a, b, ok := strings.Cut(l, " ")
		if !ok || a == "" || b == "" || strings.Contains(b, " ") {
			return nil, malformed.Errorf(malformed.Syntax, "merge %d is %q, not two tokens with a space between", i, l)
		}
		out = append(out, [2]string{a, b})
	}
	return out, nil
}

func (m *bpe) encode(out []int32, s string) []int32 {
	if m.chars != nil && m.chars.cut {
		for s != "" {
			n := metaspaceWord(s)
			out = m.word(out, s[:n])
			s = s[n:]
		}
		return out
	}
	return m.word(out, s)
}

// word encodes one word, from the cache where it can.
func (m *bpe) word(out []int32, s string) []int32 {
	if len(s) > cacheWordLen {
		return m.merge(out, s)
	}
	if ids, ok := m.cache.get(s); ok {
		return append(out, ids...)
	}
	n := len(out)
	out = m.merge(out, s)
	m.cache.put(s, out[n:])
	return out
}

func (m *bpe) merge(out []int32, s string) []int32 {
	if m.ignoreMerges {
		if id, ok := m.words[s]; ok {
			return append(out, id)
		}
	}
	n := len(out)
	if m.byteLevel {
		out = m.byteSymbols(out, s)
	} else {
		out = m.charSymbols(out, s)
	}
	return out[:n+m.pairs.mergeAll(out[n:])]
}

func (m *bpe) byteSymbols(out []int32, s string) []int32 {
	n := len(out)
	for i := 0; i < len(s); i++ {
		id := m.bytes[s[i]]
		if id < 0 {
			if m.unk < 0 || m.fuseUnk && len(out) > n && out[len(out)-1] == m.unk {
				continue
			}
			id = m.unk
		}
		out = append(out, id)
	}
	return out
}

// charSymbols follows the tokenizers library's merge_word: an unknown character
// waits until the next known one, and bytes of another character go before it.
func (m *bpe) charSymbols(out []int32, s string) []int32 {
	waiting := false
	for i, r := range s {
		end := i + utf8.RuneLen(r)
		id := m.chars.id(r, s[i:end], i > 0, end == len(s), m)
		if id >= 0 {
			if waiting {
				out = append(out, m.unk)
				waiting = false
			}
			out = append(out, id)
			continue
		}
		if m.byteFallback {
			if more, ok := m.fallback(out, s[i:end], i > 0, end == len(s)); ok {
				out = more
				continue
			}
		}
		if m.unk < 0 {
			continue
		}
		if waiting && !m.fuseUnk {
			out = append(out, m.unk)
		}
		waiting = true
	}
	if waiting {
		out = append(out, m.unk)
	}
	return out
}

// fallback spells a character as bytes, if all of them have tokens.
func (m *bpe) fallback(out []int32, s string, inner, last bool) ([]int32, bool) {
	if inner {
		s = m.prefix + s
	}
	if last {
		s += m.suffix
	}
	for i := 0; i < len(s); i++ {
		if m.bytes[s[i]] < 0 {
			return out, false
		}
	}
	for i := 0; i < len(s); i++ {
		out = append(out, m.bytes[s[i]])
	}
	return out, true
}

// charIDs finds the ids of single characters.
type charIDs struct {
	low   []int32 // of the characters below 1<<16; -1: none
	high  map[rune]int32
	vocab map[string]int32 // where prefix or suffix are put to characters
	affix bool
	cut   bool // a text may be cut before each run of ▁: no merge goes across

}

const metaspace = '▁' // U+2581, by which SentencePiece writes a space

func newCharIDs(v *vocabulary, merges [][2]string, rules bpeRules) *charIDs {
	c := &charIDs{low: make([]int32, 1<<16), high: map[rune]int32{}, affix: rules.prefix != "" || rules.suffix != ""}
	if c.affix {
		c.vocab = v.ids
		return c
	}
	for i := range c.low {
		c.low[i] = -1
	}
	for s, id := range v.ids {
		r, n := utf8.DecodeRuneInString(s)
		if n != len(s) || r == utf8.RuneError && n < 3 {
			continue
		}
		if r < 1<<16 {
			c.low[r] = id
		} else {
			c.high[r] = id
		}
	}
	c.cut = c.low[metaspace] >= 0 && !rules.ignoreMerges
	for _, m := range merges {
		if strings.HasPrefix(m[1], string(metaspace)) && !strings.HasSuffix(m[0], string(metaspace)) {
			c.cut = false
		}
	}
	return c
}

// id is the symbol of a character within a word; -1: it has none.
func (c *charIDs) id(r rune, s string, inner, last bool, m *bpe) int32 {
	if c.affix {
		if inner {
			s = m.prefix + s
		}
		if last {
			s += m.suffix
		}
		if id, ok := c.vocab[s]; ok {
			return id
		}
		return -1
	}
	if r < 1<<16 {
		return c.low[r]
	}
	if id, ok := c.high[r]; ok {
		return id
	}
	return -1
}

// metaspaceWord is the length of the word at the start of s: a run of ▁ and
// what follows it up to the next.
func metaspaceWord(s string) int {
	i := 0
	for strings.HasPrefix(s[i:], string(metaspace)) {
		i += len(string(metaspace))
	}
	if j := strings.Index(s[i:], string(metaspace)); j >= 0 {
		return i + j
	}
	return len(s)
}
