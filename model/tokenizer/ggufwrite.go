package tokenizer

import (
	"fmt"
	"slices"
	"strings"

	"agentcli/internal/malformed"
	"agentcli/model/gguf"
)

// ToGGUF gives the metadata by which llama.cpp makes the same tokenizer, for a model
// of so many ids: those without a token are filled up. A tokenizer that
// llama.cpp does not have is an error that names what is in the way.
func ToGGUF(t *Tokenizer, ids int) ([]gguf.KeyValue, error) {
	fail := func(format string, a ...any) error {
		return malformed.At(t.path, "tokenizer", malformed.Unsupported, format+"; write a Hugging Face folder instead", a...)
	}
	m, ok := t.model.(*bpe)
	if !ok {
		return nil, fail("llama.cpp's files have no %s", kindOf(t.model))
	}
	if len(t.vocab.tokens) > ids {
		return nil, fail("it has %d ids, but the model has %d", len(t.vocab.tokens), ids)
	}
	tokens, types := ggufTokens(t, m, ids)
	kv := []gguf.KeyValue{{Key: "tokenizer.ggml.tokens", V: tokens}, {Key: "tokenizer.ggml.token_type", V: types}}
	put := func(key string, v any) { kv = append(kv, gguf.KeyValue{Key: "tokenizer.ggml." + key, V: v}) }
	if m.byteLevel {
		pre, ok := ggufPre(t, m)
		if !ok {
			return nil, fail("llama.cpp has no name for its pre-tokenizer %s", t.pre.label)
		}
		lines := make([]string, len(t.merges))
		for i, p := range t.merges {
			lines[i] = p[0] + " " + p[1]
		}
		put("model", "gpt2")
		put("pre", pre)
		put("merges", lines)
	} else {
		scores, why := ggufScores(t, m, ids, types)
		if why != "" {
			return nil, fail("%s", why)
		}
		put("model", "llama")
		put("pre", "default")
		put("scores", scores)
		put("add_space_prefix", t.normal.apply("a") == "▁a")
	}
	for key, id := range map[string]int32{"bos": t.roles.bos, "eos": t.roles.eos, "unknown": t.roles.unk, "padding": t.roles.pad} {
		if id >= 0 {
			put(key+"_token_id", uint32(id))
		}
	}
	put("add_bos_token", len(t.post.before) > 0 && t.post.before[0] == t.roles.bos)
	put("add_eos_token", len(t.post.after) > 0 && t.post.after[0] == t.roles.eos)
	slices.SortFunc(kv, func(a, b gguf.KeyValue) int { return strings.Compare(a.Key, b.Key) })
	return kv, nil
}

// ggufTokens are the tokens with their types.
func ggufTokens(t *Tokenizer, m *bpe, ids int) (tokens []string, types []int32) {
	tokens, types = make([]string, ids), make([]int32, ids)
	for id := range tokens {
		if id >= len(t.vocab.tokens) || !t.vocab.present[id] {
			tokens[id], types[id] = fmt.Sprintf("[PAD%d]", id), ggmlUnused
			continue
		}
		tokens[id], types[id] = t.vocab.tokens[id], ggmlNormal
	}
	if !m.byteLevel && m.byteFallback {
		for _, id := range m.bytes {
			if id >= 0 {
				types[id] = ggmlByte
			}
		}
	}
	for _, a := range t.vocab.added {
		types[a.ID] = ggmlUserDefined
		if a.Special {
			types[a.ID] = ggmlControl
		}
	}
	if m.unk >= 0 && !m.byteLevel {
		types[m.unk] = ggmlUnknown
	}
	return tokens, types
}

// ggufPre is llama.cpp's name of the pre-tokenizer.
func ggufPre(t *Tokenizer, m *bpe) (string, bool) {
	if m.unk >= 0 && slices.Contains(m.bytes[:], -1) || len(t.normal.steps) > 1 {
		return "", false // llama.cpp has no unknown token here
	}
	for _, name := range []string{"gpt-2", "smollm", "qwen2", "deepseek-r1-qwen", "qwen35", "llama-bpe", "smaug-bpe", "gpt-4o",
		"tekken", "seed-coder", "deepseek-v3"} {
		rules := ggmlPre[name]
		pre, err := parsePreTokenizer([]byte(rules.json), true)
		nfc, none := slices.Equal(t.normal.names, []string{"0"}), len(t.normal.steps) == 0
		same := pre.label == t.pre.label && rules.ignoreMerges == m.ignoreMerges
		if err == nil && same && (rules.nfc && nfc || !rules.nfc && none) {
			return name, true
		}
	}
	return "", false
}

// ggufScores are scores from which the merges follow again; else why there are
// none.
func ggufScores(t *Tokenizer, m *bpe, ids int, types []int32) (scores []float32, why string) {
	spaced := t.normal.apply("a b")
	plain := t.normal.apply("A") == strings.TrimSuffix(spaced, "a▁b")+"A" && (spaced == "a▁b" || spaced == "▁a▁b")
	if len(t.pre.steps) > 0 || !m.byteFallback || m.ignoreMerges || !plain {
		return nil, "its normaliser and pre-tokenizer are not those of a SentencePiece model"
	}
	scores = make([]float32, ids)
	for id := range scores {
		if types[id] == ggmlNormal {
			scores[id] = -1e9 // no merge makes it
		}
	}
	made := map[int32]bool{}
	for _, p := range t.merges {
		if id := t.vocab.ids[p[0]+p[1]]; !made[id] {
			made[id] = true
			scores[id] = -float32(len(made))
		}
	}
	r := &ggufReader{t: t, tokens: t.vocab.tokens, types: make([]int64, len(t.vocab.tokens))}
	for i := range r.types {
		r.types[i] = int64(types[i])
	}
	again := r.derive(func(i int) float64 { return float64(scores[i]) })
	if !sameOrder(again, t.merges) {
		return nil, "its merges do not follow from scores, which is all that llama.cpp reads"
	}
	return scores, ""
}

// sameOrder: both have the same pairs, and the tokens that they make come in the
// same order. Which of a token's pairs is first does not matter: no two of them
// are in the same place.
func sameOrder(a, b [][2]string) bool {
	if len(a) != len(b) {
		return false
	}
	pairs := make(map[[2]string]bool, len(a))
	for i, m := range a {
		pairs[m] = true
		if m[0]+m[1] != b[i][0]+b[i][1] {
			return false
		}
	}
	for _, m := range b {
		if !pairs[m] {
			return false
		}
	}
	return true
}
