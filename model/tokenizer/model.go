package tokenizer

import (
	"encoding/json"

	"agentcli/internal/malformed"
)

// model turns one word into ids.
type model interface {
	encode(out []int32, word string) []int32
	// ordinary is the same model without the special tokens of a vocabulary.
	ordinary(v *vocabulary) model
}

// hfModel is the field model of tokenizer.json, with the fields of all types.
type hfModel struct {
	Type         string          `json:"type"`
	Dropout      *float64        `json:"dropout"`
	UnkToken     *string         `json:"unk_token"`
	UnkID        *int64          `json:"unk_id"`
	Prefix       *string         `json:"continuing_subword_prefix"`
	Suffix       *string         `json:"end_of_word_suffix"`
	FuseUnk      bool            `json:"fuse_unk"`
	ByteFallback bool            `json:"byte_fallback"`
	IgnoreMerges bool            `json:"ignore_merges"`
	MaxChars     *int            `json:"max_input_chars_per_word"`
	Vocab        json.RawMessage `json:"vocab"`
	Merges       json.RawMessage `json:"merges"`
}

// kind is the type; older files leave it to be guessed from the fields.
func (f hfModel) kind(path string) (string, error) {
	switch f.Type {
	case "BPE", "Unigram", "WordPiece", "WordLevel":
		return f.Type, nil
	case "":
		switch {
		case !isNull(f.Merges):
			return "BPE", nil
		case f.MaxChars != nil:
			return "WordPiece", nil
		}
	}
	return "", malformed.At(path, "model.type", malformed.Unsupported,
		"%q is not supported; BPE, Unigram, WordPiece and WordLevel are", f.Type)
}

// plainBPE: nothing of the model needs the ByteLevel step's letters.
func (f hfModel) plainBPE() bool {
	return !f.ByteFallback && (f.Prefix == nil || *f.Prefix == "") && (f.Suffix == nil || *f.Suffix == "")
}

// build makes the model and the vocabulary.
func (f hfModel) build(t *Tokenizer, kind string, added []addedToken) (err error) {
	fail := func(field string, err error) error {
		return &malformed.Error{Path: t.path, Field: field, Err: err}
	}
	if f.Dropout != nil && *f.Dropout != 0 {
		return malformed.At(t.path, "model.dropout", malformed.Unsupported, "%v would make ids random; set it to null", *f.Dropout)
	}
	var ids map[string]int64
	var tokens []string
	var scores []float64
	if kind == "Unigram" {
		if tokens, scores, err = parseUnigram(f.Vocab); err != nil {
			return fail("model.vocab", err)
		}
		ids = make(map[string]int64, len(tokens))
		for i, s := range tokens {
			if j, dup := ids[s]; dup {
				return malformed.At(t.path, "model.vocab", malformed.Duplicate, "entries %d and %d are both %q", j, i, s)
			}
			ids[s] = int64(i)
		}
	} else if len(f.Vocab) > 0 {
		if err := json.Unmarshal(f.Vocab, &ids); err != nil {
			return malformed.At(t.path, "model.vocab", malformed.Type, "no object of tokens and ids: %w", err)
		}
	}
	if t.vocab, err = newVocabulary(t.path, ids, added); err != nil {
		return err
	}
	if kind == "Unigram" {
		if len(tokens) == 0 {
			return malformed.At(t.path, "model.vocab", malformed.Missing, "no tokens")
		}
		if t.model, err = newUnigram(&t.vocab, tokens, scores, f.UnkID, f.ByteFallback); err != nil {
			return fail("model.unk_id", err)
		}
		return nil
	}
	unk, err := f.unknown(t, kind)
	if err != nil {
		return err
	}
	switch kind {
	case "WordLevel":
		t.model = &wordLevel{ids: t.vocab.ids, unk: unk}
	case "WordPiece":
		m := &wordPiece{ids: t.vocab.ids, unk: unk, prefix: "##", maxChars: 100}
		if f.Prefix != nil {
			m.prefix = *f.Prefix
		}
		if f.MaxChars != nil {
			m.maxChars = *f.MaxChars
		}
		for s := range t.vocab.ids {
			m.longest = max(m.longest, len(s))
		}
		t.model = m
	case "BPE":
		if t.merges, err = parseMerges(f.Merges); err != nil {
			return fail("model.merges", err)
		}
		rules := bpeRules{ignoreMerges: f.IgnoreMerges, unk: unk, fuseUnk: f.FuseUnk, byteFallback: f.ByteFallback}
		if f.Prefix != nil {
			rules.prefix = *f.Prefix
		}
		if f.Suffix != nil {
			rules.suffix = *f.Suffix
		}
		if t.model, err = newBPE(&t.vocab, t.merges, rules, t.pre.byteLevel); err != nil {
			return fail("model.merges", err)
		}
	}
	return nil
}

// unknown is the id of unk_token; -1 where a BPE has none.
func (f hfModel) unknown(t *Tokenizer, kind string) (int32, error) {
	if f.UnkToken == nil && kind == "BPE" {
		return -1, nil
	}
	name := "[UNK]"
	switch {
	case f.UnkToken != nil:
		name = *f.UnkToken
	case kind == "WordLevel":
		name = "<unk>"
	}
	id, ok := t.vocab.ids[name]
	if !ok {
		return -1, malformed.At(t.path, "model.unk_token", malformed.Missing, "%q is not in the vocabulary", name)
	}
	return id, nil
}

// kindOf names a model for people.
func kindOf(m model) string {
	switch m := m.(type) {
	case *bpe:
		switch {
		case m.byteLevel:
			return "byte-level BPE"
		case m.byteFallback:
			return "BPE with byte fallback"
		}
		return "BPE"
	case *unigram:
		return "Unigram"
	case *wordPiece:
		return "WordPiece"
	}
	return "WordLevel"
}
