package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

type hfFile struct {
	AddedTokens   []addedToken    `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
	Model         struct {
		Type                    string           `json:"type"`
		UnkToken                *string          `json:"unk_token"`
		ContinuingSubwordPrefix string           `json:"continuing_subword_prefix"`
		EndOfWordSuffix         string           `json:"end_of_word_suffix"`
		FuseUnk                 bool             `json:"fuse_unk"`
		ByteFallback            bool             `json:"byte_fallback"`
		IgnoreMerges            bool             `json:"ignore_merges"`
		Vocab                   map[string]int64 `json:"vocab"`
		Merges                  json.RawMessage  `json:"merges"`
	} `json:"model"`
}

// step is any component of the file; only the fields of the known kinds.
type step struct {
	Type          string `json:"type"`
	Pretokenizers []step `json:"pretokenizers"`
	Normalizers   []step `json:"normalizers"`
	Processors    []step `json:"processors"`
	Pattern       struct {
		Regex  *string `json:"Regex"`
		String *string `json:"String"`
	} `json:"pattern"`
	Behavior         string `json:"behavior"`
	Invert           bool   `json:"invert"`
	IndividualDigits bool   `json:"individual_digits"`
	AddPrefixSpace   bool   `json:"add_prefix_space"`
	UseRegex         *bool  `json:"use_regex"`
	Single           []struct {
		SpecialToken *struct {
			ID string `json:"id"`
		} `json:"SpecialToken"`
		Sequence *struct {
			ID string `json:"id"`
		} `json:"Sequence"`
	} `json:"single"`
	SpecialTokens map[string]struct {
		IDs []int64 `json:"ids"`
	} `json:"special_tokens"`
}

func openJSON(path string) (*Tokenizer, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parseJSON(path, b)
}

func parseJSON(path string, b []byte) (*Tokenizer, error) {
	fail := func(field, format string, a ...any) error {
		return fmt.Errorf("%s: %s: %s", path, field, fmt.Sprintf(format, a...))
	}
	var f hfFile
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, jsonError(path, b, err)
	}
	if f.Model.Type != "BPE" && !(f.Model.Type == "" && len(f.Model.Merges) > 0) {
		return nil, fail("model.type", "%q is not supported; only byte-level BPE is", f.Model.Type)
	}
	if f.Model.ByteFallback {
		return nil, fail("model.byte_fallback", "vocabularies with byte fallback (Llama 2, Gemma) are not supported; only byte-level BPE is")
	}
	if f.Model.ContinuingSubwordPrefix != "" || f.Model.EndOfWordSuffix != "" {
		return nil, fail("model", "continuing_subword_prefix and end_of_word_suffix are not supported")
	}
	t := &Tokenizer{path: path, bos: -1, eos: -1, unk: -1, pad: -1, added: f.AddedTokens}
	if err := t.setVocab(f.Model.Vocab); err != nil {
		return nil, err
	}
	merges, err := parseMerges(f.Model.Merges)
	if err != nil {
		return nil, fail("model.merges", "%v", err)
	}
	if err := t.setMerges(merges); err != nil {
		return nil, err
	}
	t.bpe.ignoreMerges = f.Model.IgnoreMerges
	t.bpe.fuseUnk = f.Model.FuseUnk
	if u := f.Model.UnkToken; u != nil {
		id, ok := t.vocab[*u]
		if !ok {
			return nil, fail("model.unk_token", "%q is not in the vocabulary", *u)
		}
		t.bpe.unk = id
	}
	if err := t.setNormalizer(f.Normalizer); err != nil {
		return nil, fail("normalizer", "%v", err)
	}
	if err := t.setPreTokenizer(f.PreTokenizer); err != nil {
		return nil, fail("pre_tokenizer", "%v", err)
	}
	if err := t.setPost(f.PostProcessor); err != nil {
		return nil, fail("post_processor", "%v", err)
	}
	t.finish()
	return t, nil
}

// jsonError turns encoding/json's offset into a line and column.
func jsonError(path string, b []byte, err error) error {
	var syn *json.SyntaxError
	var typ *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syn):
		at := min(int(syn.Offset), len(b))
		return fmt.Errorf("%s: line %d: %w", path, 1+bytes.Count(b[:at], []byte("\n")), err)
	case errors.As(err, &typ):
		return fmt.Errorf("%s: %s: is a %s, which cannot be read as %s", path, typ.Field, typ.Value, typ.Type)
	}
	return fmt.Errorf("%s: %w", path, err)
}

func (t *Tokenizer) setVocab(vocab map[string]int64) error {
	top := int64(-1)
	for s, id := range vocab {
		if id < 0 || id >= maxID {
			return fmt.Errorf("%s: model.vocab: %q has id %d; ids run from 0 to %d", t.path, s, id, maxID-1)
		}
		top = max(top, id)
	}
	for _, a := range t.added {
		if a.ID < 0 || a.ID >= maxID {
			return fmt.Errorf("%s: added_tokens: %q has id %d; ids run from 0 to %d", t.path, a.Content, a.ID, maxID-1)
		}
		top = max(top, int64(a.ID))
	}
	if top < 0 {
		return fmt.Errorf("%s: model.vocab: no tokens", t.path)
	}
	t.tokens = make([]string, top+1)
	t.present = make([]bool, top+1)
	t.vocab = make(map[string]int32, len(vocab))
	for s, id := range vocab {
		if t.present[id] {
			return fmt.Errorf("%s: model.vocab: %q and %q have the same id %d", t.path, t.tokens[id], s, id)
		}
		t.tokens[id], t.present[id] = s, true
		t.vocab[s] = int32(id)
	}
	t.special = map[int32]bool{}
	t.addedID = map[string]int32{}
	for i, a := range t.added {
		if id, ok := t.vocab[a.Content]; ok {
			t.added[i].ID = id // as the tokenizers library does
		} else if !t.present[a.ID] {
			t.tokens[a.ID], t.present[a.ID] = a.Content, true
		} else if t.tokens[a.ID] != a.Content {
			return fmt.Errorf("%s: added_tokens: %q has id %d, which is %q's", t.path, a.Content, a.ID, t.tokens[a.ID])
		}
		id := t.added[i].ID
		t.addedID[a.Content] = id
		if a.Special {
			t.special[id] = true
		}
	}
	return nil
}

func parseMerges(raw json.RawMessage) ([][2]string, error) {
	var lines []string
	if err := json.Unmarshal(raw, &lines); err == nil {
		return splitMerges(lines)
	}
	var pairs [][]string
	if err := json.Unmarshal(raw, &pairs); err != nil {
		return nil, errors.New("neither strings \"a b\" nor pairs [\"a\", \"b\"]")
	}
	out := make([][2]string, len(pairs))
	for i, p := range pairs {
		if len(p) != 2 {
			return nil, fmt.Errorf("merge %d has %d parts, not 2", i, len(p))
		}
		out[i] = [2]string{p[0], p[1]}
	}
	return out, nil
}

func splitMerges(lines []string) ([][2]string, error) {
	out := make([][2]string, 0, len(lines))
	for i, l := range lines {
		if i == 0 && strings.HasPrefix(l, "#version") {
			continue
		}
		a, b, ok := strings.Cut(l, " ")
		if !ok || a == "" || b == "" || strings.Contains(b, " ") {
			return nil, fmt.Errorf("merge %d is %q, not two tokens with a space between", i, l)
		}
		out = append(out, [2]string{a, b})
	}
	return out, nil
}

func (t *Tokenizer) setMerges(merges [][2]string) error {
	t.merges = merges
	t.bpe = &bpe{unk: -1, pairs: make(map[uint64]merge, len(merges))}
	for b := range 256 {
		id, ok := t.vocab[string(byteRune[b])]
		if !ok {
			id = -1
		}
		t.bpe.bytes[b] = id
	}
	for i, m := range merges {
		a, okA := t.vocab[m[0]]
		b, okB := t.vocab[m[1]]
		ab, okC := t.vocab[m[0]+m[1]]
		if !okA || !okB || !okC {
			missing := m[0] + m[1]
			if !okA {
				missing = m[0]
			} else if !okB {
				missing = m[1]
			}
			return fmt.Errorf("%s: model.merges: merge %d (%q %q) needs %q, which is not in the vocabulary", t.path, i, m[0], m[1], missing)
		}
		t.bpe.pairs[pairKey(a, b)] = merge{int32(i), ab}
	}
	return nil
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

func (t *Tokenizer) setNormalizer(raw json.RawMessage) error {
	if isNull(raw) {
		return nil
	}
	var s step
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	return t.addNormalizer(s)
}

func (t *Tokenizer) addNormalizer(s step) error {
	switch s.Type {
	case "Sequence":
		for _, n := range s.Normalizers {
			if err := t.addNormalizer(n); err != nil {
				return err
			}
		}
	case "NFC":
		t.forms = append(t.forms, norm.NFC)
	case "NFD":
		t.forms = append(t.forms, norm.NFD)
	case "NFKC":
		t.forms = append(t.forms, norm.NFKC)
	case "NFKD":
		t.forms = append(t.forms, norm.NFKD)
	default:
		return fmt.Errorf("type %q is not supported; NFC, NFD, NFKC and NFKD are", s.Type)
	}
	return nil
}

func (t *Tokenizer) setPreTokenizer(raw json.RawMessage) error {
	if isNull(raw) {
		return errors.New("none; only byte-level tokenizers are supported")
	}
	var s step
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	var names []string
	last, err := t.addPre(s, &names, "")
	if err != nil {
		return err
	}
	if last != "ByteLevel" {
		return fmt.Errorf("it ends with %q; only byte-level tokenizers are supported", last)
	}
	t.pre = strings.Join(names, "+")
	return nil
}

func (t *Tokenizer) addPre(s step, names *[]string, last string) (string, error) {
	if s.Type != "Sequence" && last == "ByteLevel" {
		return "", fmt.Errorf("%s after ByteLevel is not supported", s.Type)
	}
	var sp splitter
	name := s.Type
	switch s.Type {
	case "Sequence":
		var err error
		for _, p := range s.Pretokenizers {
			if last, err = t.addPre(p, names, last); err != nil {
				return "", err
			}
		}
		return last, nil
	case "ByteLevel":
		sp.prefix = s.AddPrefixSpace
		if s.UseRegex == nil || *s.UseRegex {
			sp.split = matcherFor(patternGPT2)
			name = "GPT2"
		} else if !sp.prefix {
			return s.Type, nil
		}
	case "Digits":
		sp.split = digits(s.IndividualDigits)
		if s.IndividualDigits {
			name = "Digit"
		}
	case "Split":
		var err error
		if sp.split, name, err = splitStep(s); err != nil {
			return "", err
		}
	default:
		return "", fmt.Errorf("type %q is not supported; Split, Digits, ByteLevel and sequences of them are", s.Type)
	}
	t.splits = append(t.splits, sp)
	*names = append(*names, name)
	return s.Type, nil
}

func splitStep(s step) (func(string, func(string)), string, error) {
	switch {
	case s.Pattern.String != nil:
		f, err := general(literal(*s.Pattern.String), s.Behavior, s.Invert)
		return f, fmt.Sprintf("Split(%q,%s)", *s.Pattern.String, s.Behavior), err
	case s.Pattern.Regex == nil:
		return nil, "", errors.New("Split without a pattern")
	}
	pat := *s.Pattern.Regex
	// With these three each match stands alone and nothing lies between matches.
	if (s.Behavior == "Isolated") || (s.Behavior == "Removed" && s.Invert) {
		if f := matcherFor(pat); f != nil {
			return f, patternName(pat), nil
		}
	}
	re, err := regex(pat)
	if err != nil {
		return nil, "", fmt.Errorf("Split pattern %q: %s", pat, strings.ReplaceAll(err.Error(), "\n", " "))
	}
	f, err := general(re, s.Behavior, s.Invert)
	return f, fmt.Sprintf("Split(%s,%s,%v)", pat, s.Behavior, s.Invert), err
}

func patternName(pat string) string {
	switch pat {
	case patternQwen2:
		return "Qwen2"
	case patternLlama3:
		return "Llama3"
	}
	return "GPT2"
}

func (t *Tokenizer) setPost(raw json.RawMessage) error {
	if isNull(raw) {
		return nil
	}
	var s step
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	return t.addPost(s)
}

func (t *Tokenizer) addPost(s step) error {
	switch s.Type {
	case "ByteLevel": // moves offsets only
	case "Sequence":
		for _, p := range s.Processors {
			if err := t.addPost(p); err != nil {
				return err
			}
		}
	case "TemplateProcessing":
		side := &t.before
		for _, p := range s.Single {
			switch {
			case p.Sequence != nil:
				side = &t.after
			case p.SpecialToken != nil:
				st, ok := s.SpecialTokens[p.SpecialToken.ID]
				if !ok {
					return fmt.Errorf("the template names %q, which special_tokens lacks", p.SpecialToken.ID)
				}
				for _, id := range st.IDs {
					if id < 0 || id >= int64(len(t.tokens)) {
						return fmt.Errorf("%q has id %d, which is not in the vocabulary", p.SpecialToken.ID, id)
					}
					*side = append(*side, int32(id))
				}
			}
		}
	default:
		return fmt.Errorf("type %q is not supported; TemplateProcessing and ByteLevel are", s.Type)
	}
	return nil
}

// finish builds what encoding and decoding need from vocabulary and rules.
func (t *Tokenizer) finish() {
	t.raw = make([][]byte, len(t.tokens))
	for id, s := range t.tokens {
		if t.present[id] {
			t.raw[id] = tokenBytes(s)
		}
	}
	if t.bpe.ignoreMerges {
		t.bpe.words = make(map[string]int32, len(t.vocab))
		for _, id := range t.vocab {
			if !t.special[id] {
				t.bpe.words[string(t.raw[id])] = id
			}
		}
	}
	normal := func(s string) string {
		for _, f := range t.forms {
			s = normalise(f, s)
		}
		return s
	}
	var raw, nrm []addedToken
	for _, a := range t.added {
		if a.Normalized {
			nrm = append(nrm, a)
			t.raw[a.ID] = tokenBytes(normal(a.Content))
		} else {
			raw = append(raw, a)
		}
	}
	t.rawAdded = newMatcher(raw, func(s string) string { return s })
	t.nrmAdded = newMatcher(nrm, normal)
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
	out := make([]byte, 0, len(s))
	for _, r := range s {
		b, ok := runeByte[r]
		if !ok || r == utf8.RuneError {
			return []byte(s)
		}
		out = append(out, b)
	}
	return out
}

// readConfig takes from tokenizer_config.json what tokenizer.json lacks.
func (t *Tokenizer) readConfig(dir string) error {
	p := filepath.Join(dir, "tokenizer_config.json")
	b, err := os.ReadFile(p)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
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
			return jsonError(p, b, err)
		}
		t.bos, t.eos, t.pad, t.unk = t.named(c.BOS), t.named(c.EOS), t.named(c.Pad), t.named(c.Unk)
		t.template = templateText(c.Template)
	}
	// A file of its own wins over the key, as in transformers.
	if b, err := os.ReadFile(filepath.Join(dir, "chat_template.jinja")); err == nil {
		t.template = string(b)
	}
	return nil
}

// named finds the id of a token given as a string or as an object.
func (t *Tokenizer) named(raw json.RawMessage) int32 {
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
	if id, ok := t.ID(s); ok && s != "" {
		return id
	}
	return -1
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
