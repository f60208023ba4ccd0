package tokenizer

import (
	"encoding/json"
	"slices"
	"unicode/utf8"

	"agentcli/internal/malformed"
)

// maxID bounds the ids of a file before anything is allocated for them; the
// largest vocabularies in use have about 2^18.
const maxID = 1 << 22

// vocabulary is the tokens of a model.
type vocabulary struct {
	tokens  []string         // by id, as written in the file
	present []bool           // by id: false where no token has it
	decoded []string         // by id: what a decoder is given
	ids     map[string]int32 // of the model's vocabulary, without the added tokens
	added   []addedToken     // ordered as in the file
	addedID map[string]int32
	special map[int32]bool
}

// maxAdded is the longest added token in bytes. They are looked for at each place of a text: the time that takes
// grows with it.
const maxAdded = 1024

// newVocabulary gives the added tokens of a file their places beside the tokens of the
// model's vocabulary.
func newVocabulary(path string, ids map[string]int64, added []addedToken) (v vocabulary, err error) {
	v.added = added
	top := int64(-1)
	for s, id := range ids {
		if id < 0 || id >= maxID {
			return v, malformed.At(path, "model.vocab", malformed.Range, "%q has id %d; ids run from 0 to %d", s, id, maxID-1)
		}
		top = max(top, id)
	}
	for _, a := range v.added {
		if len(a.Content) > maxAdded {
			return v, malformed.At(path, "added_tokens", malformed.Range, "the token with id %d has %d bytes; a token has at most %d", a.ID,
				len(a.Content), maxAdded)
		}
		if a.ID < 0 || a.ID >= maxID {
			return v, malformed.At(path, "added_tokens", malformed.Range, "%q has id %d; ids run from 0 to %d", a.Content, a.ID, maxID-1)
		}
		top = max(top, int64(a.ID))
	}
	if top < 0 {
		return v, malformed.At(path, "model.vocab", malformed.Missing, "no tokens")
	}
	v.tokens = make([]string, top+1)
	v.present = make([]bool, top+1)
	v.ids = make(map[string]int32, len(ids))
	for s, id := range ids {
		if v.present[id] {
			return v, malformed.At(path, "model.vocab", malformed.Duplicate, "%q and %q have the same id %d", v.tokens[id], s, id)
		}
		v.tokens[id], v.present[id] = s, true
		v.ids[s] = int32(id)
	}
	v.special = map[int32]bool{}
	v.addedID = map[string]int32{}
	for i, a := range v.added {
		if id, ok := v.ids[a.Content]; ok {
			v.added[i].ID = id // as the tokenizers library does
		} else if !v.present[a.ID] {
			v.tokens[a.ID], v.present[a.ID] = a.Content, true
		} else if v.tokens[a.ID] != a.Content {
			return v, malformed.At(path, "added_tokens", malformed.Duplicate, "%q has id %d, which is %q's", a.Content, a.ID, v.tokens[a.ID])
		}
		id := v.added[i].ID
		v.addedID[a.Content] = id
		if a.Special {
			v.special[id] = true
		}
	}
	v.decoded = slices.Clone(v.tokens)
	return v, nil
}

// id finds a token by its text as written in the file.
func (v *vocabulary) id(token string) (int32, bool) {
	if id, ok := v.addedID[token]; ok {
		return id, true
	}
	id, ok := v.ids[token]
	return id, ok
}

// named finds the id of a token given as a string or as an object.
func (v *vocabulary) named(raw json.RawMessage) int32 {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		var o struct {
			Content string `json:"content"`
		}
		if json.Unmarshal(raw, &o) != nil {
			return -1
		}
		s = o.Content
	}
	if id, ok := v.id(s); ok && s != "" {
		return id
	}
	return -1
}

// matchers find the added tokens in a text: those of the first before it is
// normalised, those of the second after. The latter stand for their normal form.
func (v *vocabulary) matchers(n normalizer) (before, after *matcher) {
	var raw, normalized []addedToken
	for _, a := range v.added {
		if a.Normalized {
			normalized = append(normalized, a)
			v.decoded[a.ID] = n.apply(a.Content)
		} else {
			raw = append(raw, a)
		}
	}
	return newMatcher(raw, func(s string) string { return s }), newMatcher(normalized, n.apply)
}

// The letters that GPT-2 writes bytes with.
var (
	byteRune [256]rune
	runeByte = map[rune]byte{}
)

func init() {
	n := rune(256)
	for b := range 256 {
		r := rune(b)
		if !(r >= '!' && r <= '~' || r >= 0xA1 && r <= 0xAC || r >= 0xAE && r <= 0xFF) {
			r = n
			n++
		}
		byteRune[b] = r
		runeByte[r] = byte(b)
	}
}

// tokenBytes reads a token's letters as bytes; a token with any other letter in
// it (an added one, with a space say) stands for itself.
func tokenBytes(s string) []byte {
	if b, ok := lettersToBytes(s); ok {
		return b
	}
	return []byte(s)
}

// lettersToBytes reads GPT-2's letters; false where there is any other.
func lettersToBytes(s string) ([]byte, bool) {
	out := make([]byte, 0, len(s))
	for _, r := range s {
		b, ok := runeByte[r]
		if !ok || r == utf8.RuneError {
			return nil, false
		}
		out = append(out, b)
	}
	return out, true
}
