package tokenizer

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"agentcli/internal/malformed"
)

// How a SentencePiece model writes and reads spaces, as tokenizer.json would say.
const (
	normalSpaces = `{"type":"Replace","pattern":{"String":" "},"content":"▁"}`
	normalPrefix = `{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},` + normalSpaces + `]}`
	decodeSpaces = `{"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"}`
	decodePlain  = `{"type":"Sequence","decoders":[` + decodeSpaces + `]}`
	decodePrefix = `{"type":"Sequence","decoders":[` + decodeSpaces + `,{"type":"Strip","content":" ","start":1,"stop":0}]}`
)

// sentencePiece reads a SentencePiece BPE: its merges follow from the tokens'
// scores where the file lists none.
func (r *ggufReader) sentencePiece() (err error) {
	t := r.t
	arch, _ := r.f.Str("general.architecture")
	gemma := strings.HasPrefix(arch, "gemma")
	if gemma {
		// These files write tokens of spaces alone as spaces.
		r.tokens = slices.Clone(r.tokens)
		for i, s := range r.tokens {
			if s != "" && strings.Trim(s, " ") == "" {
				r.tokens[i] = strings.Repeat(string(metaspace), len(s))
			}
		}
	}
	if err := r.vocabulary(); err != nil {
		return err
	}
	if t.merges, err = r.merges(gemma); err != nil {
		return err
	}
	rules := bpeRules{unk: -1, fuseUnk: true, byteFallback: true}
	if id, ok := r.f.Int("tokenizer.ggml.unknown_token_id"); ok && id >= 0 && id < int64(len(r.tokens)) {
		rules.unk = int32(id)
	} else if i := slices.Index(r.types, ggmlUnknown); i >= 0 {
		rules.unk = int32(i)
	}
	if t.model, err = newBPE(&t.vocab, t.merges, rules, false); err != nil {
		return r.fail("merges", "", "%w", err)
	}
	prefix, said := r.f.Bool("tokenizer.ggml.add_space_prefix")
	if !said {
		prefix = !gemma
	}
	t.normalizerJSON, t.decoderJSON = json.RawMessage(normalSpaces), json.RawMessage(decodePlain)
	if prefix {
		t.normalizerJSON, t.decoderJSON = json.RawMessage(normalPrefix), json.RawMessage(decodePrefix)
	}
	t.normal, err = parseNormalizer(t.normalizerJSON)
	return err
}

// maxSplit is the longest token, in bytes, that merges are looked for.
const maxSplit = 512

// merges are those that the file lists, or all pairs of tokens that make a
// token, the best score first, as transformers' generate_merges orders them.
// Gemma's scores do not follow its merges; the tokens' order does.
func (r *ggufReader) merges(byOrder bool) ([][2]string, error) {
	if lines := r.f.Strings("tokenizer.ggml.merges"); lines != nil {
		out, err := splitMerges(lines)
		if err != nil {
			return nil, r.fail("merges", "", "%w", err)
		}
		return out, nil
	}
	v, _ := r.f.Get("tokenizer.ggml.scores")
	scores, _ := v.V.([]float32)
	if !byOrder && len(scores) != len(r.tokens) {
		return nil, r.fail("scores", malformed.Mismatch, "%d scores for %d tokens, and there are no merges", len(scores), len(r.tokens))
	}
	score := func(i int) float64 { return -float64(i) }
	if !byOrder {
		score = func(i int) float64 { return float64(scores[i]) }
	}
	return r.derive(score), nil
}

// derive finds all pairs of tokens that make a token, the best score first.
func (r *ggufReader) derive(score func(i int) float64) [][2]string {
	type pair struct {
		left, right string
		score       float64
		chars       [2]int // of either part
	}
	var pairs []pair
	for i, s := range r.tokens {
		switch r.kind(i) {
		case ggmlUnknown, ggmlControl, ggmlByte, ggmlUnused:
			continue
		}
		if len(s) > maxSplit {
			continue
		}
		n, k := utf8.RuneCountInString(s), 0
		for at := range s {
			if at == 0 {
				continue
			}
			k++
			_, left := r.t.vocab.ids[s[:at]]
			_, right := r.t.vocab.ids[s[at:]]
			if left && right {
				pairs = append(pairs, pair{s[:at], s[at:], score(i), [2]int{k, n - k}})
			}
		}
	}
	slices.SortStableFunc(pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(b.chars[0], a.chars[0]), cmp.Compare(b.chars[1], a.chars[1]))
	})
	out := make([][2]string, len(pairs))
	for i, p := range pairs {
		out[i] = [2]string{p.left, p.right}
	}
	return out
}
