package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"agentcli/internal/malformed"
)

type hfFile struct {
	AddedTokens   []addedToken    `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
	Model         hfModel         `json:"model"`
}

// step is any component of the file, with the fields of all kinds. A pointer is
// a field whose absence differs from its zero.
type step struct {
	Type          string `json:"type"`
	Pretokenizers []step `json:"pretokenizers"`
	Normalizers   []step `json:"normalizers"`
	Processors    []step `json:"processors"`
	Decoders      []step `json:"decoders"`

	Pattern  pattern `json:"pattern"`
	Behavior string  `json:"behavior"`
	Invert   bool    `json:"invert"`
	Content  string  `json:"content"`

	IndividualDigits bool   `json:"individual_digits"`
	AddPrefixSpace   *bool  `json:"add_prefix_space"`
	UseRegex         *bool  `json:"use_regex"`
	Replacement      string `json:"replacement"`
	PrependScheme    string `json:"prepend_scheme"`
	Split            *bool  `json:"split"`
	Delimiter        string `json:"delimiter"`
	Length           *int   `json:"length"`

	StripLeft    bool   `json:"strip_left"`
	StripRight   bool   `json:"strip_right"`
	Prepend      string `json:"prepend"`
	CleanText    bool   `json:"clean_text"`
	ChineseChars bool   `json:"handle_chinese_chars"`
	StripAccents *bool  `json:"strip_accents"`
	Lowercase    bool   `json:"lowercase"`
	CharsMap     string `json:"precompiled_charsmap"`

	Prefix        *string `json:"prefix"`
	Suffix        *string `json:"suffix"`
	Cleanup       *bool   `json:"cleanup"`
	PadToken      *string `json:"pad_token"`
	WordDelimiter *string `json:"word_delimiter_token"`
	Start         int     `json:"start"`
	Stop          int     `json:"stop"`

	Single        []templatePiece `json:"single"`
	Pair          []templatePiece `json:"pair"`
	SpecialTokens map[string]struct {
		IDs []int64 `json:"ids"`
	} `json:"special_tokens"`
	Sep *tokenID `json:"sep"`
	Cls *tokenID `json:"cls"`
}

type templatePiece struct {
	SpecialToken *struct {
		ID string `json:"id"`
	} `json:"SpecialToken"`
	Sequence *struct {
		ID string `json:"id"`
	} `json:"Sequence"`
}

// stripsAccents: a BertNormalizer that does not say does so where it lowers.
func stripsAccents(s step) bool {
	if s.StripAccents == nil {
		return s.Lowercase
	}
	return *s.StripAccents
}

func openJSON(path string) (*Tokenizer, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parseJSON(path, b)
}

func parseJSON(path string, b []byte) (*Tokenizer, error) {
	fail := func(field string, err error) error {
		return &malformed.Error{Path: path, Field: field, Err: err}
	}
	var f hfFile
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, jsonError(path, b, err)
	}
	t := &Tokenizer{path: path, roles: noRoles}
	kind, err := f.Model.kind(path)
	if err != nil {
		return nil, err
	}
	if t.normal, err = parseNormalizer(f.Normalizer); err != nil {
		return nil, fail("normalizer", err)
	}
	if t.pre, err = parsePreTokenizer(f.PreTokenizer, kind == "BPE" && f.Model.plainBPE()); err != nil {
		return nil, fail("pre_tokenizer", err)
	}
	if err := f.Model.build(t, kind, f.AddedTokens); err != nil {
		return nil, err
	}
	if t.post, err = parsePost(f.PostProcessor, len(t.vocab.tokens)); err != nil {
		return nil, fail("post_processor", err)
	}
	t.decoderJSON = f.Decoder
	if err := t.ready(); err != nil {
		return nil, fail("decoder", err)
	}
	return t, nil
}

// jsonError turns encoding/json's offset into a line and column.
func jsonError(path string, b []byte, err error) error {
	var syn *json.SyntaxError
	var typ *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syn):
		at := min(int(syn.Offset), len(b))
		return &malformed.Error{Path: path, Line: 1 + bytes.Count(b[:at], []byte("\n")), Kind: malformed.Syntax, Err: err}
	case errors.As(err, &typ):
		return malformed.At(path, typ.Field, malformed.Type, "is a %s, which cannot be read as %s", typ.Value, typ.Type)
	}
	return malformed.At(path, "", malformed.Syntax, "%w", err)
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// readConfig takes from tokenizer_config.json what tokenizer.json lacks.
func readConfig(dir string, v *vocabulary) (r roles, template string, err error) {
	r = noRoles
	p := filepath.Join(dir, "tokenizer_config.json")
	b, err := os.ReadFile(p)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return r, "", err
	}
	if err == nil {
		var c struct {
			BOS      json.RawMessage `json:"bos_token"`
			EOS      json.RawMessage `json:"eos_token"`
			Pad      json.RawMessage `json:"pad_token"`
			Unk      json.RawMessage `json:"unk_token"`
			Template json.RawMessage `json:"chat_template"`
		}
		if err := json.Unmarshal(b, &c); err != nil {
			return r, "", jsonError(p, b, err)
		}
		r = roles{bos: v.named(c.BOS), eos: v.named(c.EOS), unk: v.named(c.Unk), pad: v.named(c.Pad)}
		template = templateText(c.Template)
	}
	// A file of its own wins over the key, as in transformers.
	if b, err := os.ReadFile(filepath.Join(dir, "chat_template.jinja")); err == nil {
		template = string(b)
	}
	return r, template, nil
}

// templateText reads a template given as a string or as a list of named ones.
func templateText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var list []struct{ Name, Template string }
	if json.Unmarshal(raw, &list) != nil {
		return ""
	}
	for _, l := range list {
		if l.Name == "default" {
			return l.Template
		}
	}
	if len(list) > 0 {
		return list[0].Template
	}
	return ""
}
