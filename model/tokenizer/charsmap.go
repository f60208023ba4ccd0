package tokenizer

import (
	"encoding/base64"
	"strings"

	"agentcli/internal/malformed"

	"github.com/rivo/uniseg"
)

// charsMap is SentencePiece's table of replacements (the Precompiled
// normaliser): a double-array trie (Darts-clone) whose values are places in a
// text of replacements that end with a zero byte.
type charsMap struct {
	units []uint32
	text  string
}

func parseCharsMap(b64 string) (*charsMap, error) {
	b, err := base64.StdEncoding.DecodeString(b64)
	if err != nil {
		return nil, malformed.Errorf(malformed.Syntax, "precompiled_charsmap is no base64: %w", err)
	}
	if len(b) < 4 {
		return &charsMap{}, nil
	}
	n := int64(b[0]) | int64(b[1])<<8 | int64(b[2])<<16 | int64(b[3])<<24
	if n%4 != 0 || n > int64(len(b)-4) {
		return nil, malformed.Errorf(malformed.Truncated, "precompiled_charsmap has %d bytes, but its trie is said to take %d", len(b), n)
	}
	m := &charsMap{units: make([]uint32, n/4), text: string(b[4+n:])}
	for i := range m.units {
		u := b[4+4*i:]
		m.units[i] = uint32(u[0]) | uint32(u[1])<<8 | uint32(u[2])<<16 | uint32(u[3])<<24
	}
	return m, nil
}

// find is the replacement of the shortest key that s begins with.
func (m *charsMap) find(s string) (string, bool) {
	if len(m.units) == 0 {
		return "", false
	}
	offset := func(u uint32) uint32 { return u >> 10 << (u & (1 << 9) >> 6) }
	node := offset(m.units[0])
	for i := 0; i < len(s); i++ {
		if s[i] == 0 {
			return "", false
		}
		node ^= uint32(s[i])
		if int64(node) >= int64(len(m.units)) {
			return "", false
		}
		u := m.units[node]
		if u&(1<<31|0xff) != uint32(s[i]) {
			return "", false
		}
		node ^= offset(u)
		if u>>8&1 == 1 {
			if int64(node) >= int64(len(m.units)) {
				return "", false
			}
			at := int64(m.units[node] & (1<<31 - 1))
			if at >= int64(len(m.text)) {
				return "", false
			}
			to, _, _ := strings.Cut(m.text[at:], "\x00")
			return validUTF8(to), true
		}
	}
	return "", false
}

// apply replaces whole grapheme clusters of less than six bytes where the table
// has them, else character by character: the order of the tokenizers library.
func (m *charsMap) apply(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	state := -1
	for rest := s; rest != ""; {
		var cluster string
		cluster, rest, _, state = uniseg.FirstGraphemeClusterInString(rest, state)
		if len(cluster) < 6 {
			if to, ok := m.find(cluster); ok {
				b.WriteString(to)
				continue
			}
		}
		for _, r := range cluster {
			c := string(r)
			if to, ok := m.find(c); ok {
				c = to
			}
			b.WriteString(c)
		}
	}
	return b.String()
}
