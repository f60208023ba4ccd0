package tokenizer

import (
	"encoding/json"
	"math"

	"agentcli/internal/malformed"
	"agentcli/model/gguf"
)

// Token types of tokenizer.ggml.token_type.
const (
	ggmlNormal      = 1
	ggmlUnknown     = 2
	ggmlControl     = 3
	ggmlUserDefined = 4
	ggmlUnused      = 5
	ggmlByte        = 6
)

// ggmlRules are what tokenizer.ggml.pre stands for.
type ggmlRules struct {
	json         string // the pre-tokenizer, as tokenizer.json would write it
	nfc          bool
	ignoreMerges bool
	addBOS       bool // where the file does not say
}

var (
	rulesGPT2   = ggmlRules{json: preByteLevel}
	rulesDigits = ggmlRules{json: `{"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},` + preByteLevel + `]}`}
	rulesQwen2  = ggmlRules{json: preSplit(patternQwen2), nfc: true}
	rulesLlama3 = ggmlRules{json: preSplit(patternLlama3), ignoreMerges: true, addBOS: true}
	rulesO200k  = ggmlRules{json: preSplit(patternO200k)}
)

// The names that tokenizer.ggml.pre may have, as llama.cpp knows them. smollm
// splits digits one by one before GPT-2's pattern; the conversion in
// transformers drops that.
var ggmlPre = map[string]ggmlRules{
	"gpt-2": rulesGPT2, "default": rulesGPT2, "olmo": rulesGPT2, "mpt": rulesGPT2,
	"smollm": rulesDigits, "starcoder": rulesDigits, "refact": rulesDigits, "command-r": rulesDigits,
	"qwen2": rulesQwen2, "deepseek-r1-qwen": {json: preSplit(patternQwen2)},
	"qwen35":    {json: preSplit(patternQwen35), nfc: true},
	"llama-bpe": rulesLlama3, "llama3": rulesLlama3, "llama-v3": rulesLlama3, "falcon3": rulesLlama3, "lfm2": rulesLlama3,
	"smaug-bpe": {json: preSplit(patternLlama3)}, "dbrx": {json: preSplit(patternLlama3)},
	"glm4": {json: preSplit(patternLlama3)}, "chatglm-bpe": {json: preSplit(patternLlama3)},
	"gpt-4o": rulesO200k, "llama4": rulesO200k,
	"tekken":      {json: preSplit(patternTekken), ignoreMerges: true, addBOS: true},
	"seed-coder":  {json: preSplit(patternSeed)},
	"deepseek-v3": {json: preSplit(patternDigits3, patternKana, patternDeepSeek)},
}

const decodeByteLevel = `{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}`

const preByteLevel = `{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}`

// preSplit is one split after the other, then the letters of bytes.
func preSplit(patterns ...string) string {
	out := `{"type":"Sequence","pretokenizers":[`
	for _, pattern := range patterns {
		p, err := json.Marshal(pattern)
		if err != nil {
			panic(err) // a constant string
		}
		out += `{"type":"Split","pattern":{"Regex":` + string(p) + `},"behavior":"Isolated","invert":false},`
	}
	return out + `{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":false,"use_regex":false}]}`
}

// ggufReader reads the tokenizer of a file.
type ggufReader struct {
	f      *gguf.File
	t      *Tokenizer
	tokens []string
	types  []int64
}

func (r *ggufReader) fail(field string, kind malformed.Kind, format string, a ...any) error {
	return malformed.At(r.f.Path, "tokenizer.ggml."+field, kind, format, a...)
}

// FromGGUF reads the tokenizer of an open GGUF file. It keeps nothing of the
// mapped file.
func FromGGUF(f *gguf.File) (*Tokenizer, error) {
	r := &ggufReader{f: f, t: &Tokenizer{path: f.Path, roles: noRoles, rewrite: true}}
	if err := r.readTokens(); err != nil {
		return nil, err
	}
	var addBOS bool
	var err error
	switch model, _ := f.Str("tokenizer.ggml.model"); model {
	case "gpt2":
		addBOS, err = r.byteLevel()
	case "llama":
		addBOS, err = true, r.sentencePiece()
	case "gemma4": // its template writes the BOS, whatever the file says
		err = r.sentencePiece()
	default:
		err = r.fail("model", malformed.Unsupported,
			"%q is not supported; gpt2 (byte-level BPE), llama and gemma4 (SentencePiece BPE) are", model)
	}
	if err != nil {
		return nil, err
	}
	if err := r.around(addBOS); err != nil {
		return nil, err
	}
	r.t.template, _ = f.Str("tokenizer.chat_template")
	return r.t, r.t.ready()
}

func (r *ggufReader) readTokens() error {
	r.tokens, r.types = r.f.Strings("tokenizer.ggml.tokens"), r.f.Ints("tokenizer.ggml.token_type")
	if len(r.tokens) == 0 || len(r.tokens) > maxID {
		return r.fail("tokens", malformed.Range, "%d tokens", len(r.tokens))
	}
	if len(r.types) != 0 && len(r.types) != len(r.tokens) {
		return r.fail("token_type", malformed.Mismatch, "%d types for %d tokens", len(r.types), len(r.tokens))
	}
	return nil
}

// kind is a token's type.
func (r *ggufReader) kind(i int) int64 {
	if len(r.types) == 0 {
		return ggmlNormal
	}
	return r.types[i]
}

// vocabulary makes the vocabulary of the file's tokens.
func (r *ggufReader) vocabulary() (err error) {
	var added []addedToken
	vocab := make(map[string]int64, len(r.tokens))
	for i, s := range r.tokens {
		kind := r.kind(i)
		if kind == ggmlUnused {
			continue
		}
		if j, dup := vocab[s]; dup {
			return r.fail("tokens", malformed.Duplicate, "tokens %d and %d are both %q", j, i, s)
		}
		vocab[s] = int64(i)
		if kind == ggmlControl || kind == ggmlUserDefined || kind == ggmlUnknown {
			added = append(added, addedToken{ID: int32(i), Content: s, Special: kind != ggmlUserDefined})
		}
	}
	r.t.vocab, err = newVocabulary(r.f.Path, vocab, added)
	return err
}

// byteLevel reads a byte-level BPE. It says whether a BOS is added where the
// file does not say.
func (r *ggufReader) byteLevel() (addBOS bool, err error) {
	pre, _ := r.f.Str("tokenizer.ggml.pre")
	if pre == "" {
		pre = "default"
	}
	rules, ok := ggmlPre[pre]
	if !ok {
		return false, r.fail("pre", malformed.Unsupported, "%q is not known; use a folder with a tokenizer.json", pre)
	}
	if err := r.vocabulary(); err != nil {
		return false, err
	}
	t := r.t
	if t.merges, err = splitMerges(r.f.Strings("tokenizer.ggml.merges")); err != nil {
		return false, r.fail("merges", "", "%w", err)
	}
	if t.pre, err = parsePreTokenizer(json.RawMessage(rules.json), true); err != nil {
		return false, r.fail("pre", "", "%w", err)
	}
	if t.model, err = newBPE(&t.vocab, t.merges, bpeRules{ignoreMerges: rules.ignoreMerges, unk: -1}, true); err != nil {
		return false, r.fail("merges", "", "%w", err)
	}
	if rules.nfc {
		t.normalizerJSON = json.RawMessage(`{"type":"NFC"}`)
		if t.normal, err = parseNormalizer(t.normalizerJSON); err != nil {
			return false, err
		}
	}
	t.preJSON, t.decoderJSON = json.RawMessage(rules.json), json.RawMessage(decodeByteLevel)
	return rules.addBOS, nil
}

// around reads the ids that have a role, and which of them go around a text.
func (r *ggufReader) around(addBOS bool) error {
	t := r.t
	for key, dst := range map[string]*int32{"bos": &t.roles.bos, "eos": &t.roles.eos, "unknown": &t.roles.unk, "padding": &t.roles.pad} {
		key += "_token_id"
		id, ok := r.f.Int("tokenizer.ggml." + key)
		if !ok || id == math.MaxUint32 {
			continue
		}
		if id < 0 || id >= int64(len(r.tokens)) {
			return r.fail(key, malformed.Range, "%d is not in the vocabulary of %d tokens", id, len(r.tokens))
		}
		*dst = int32(id)
	}
	if model, _ := r.f.Str("tokenizer.ggml.model"); model != "gemma4" {
		if say, has := r.f.Bool("tokenizer.ggml.add_bos_token"); has {
			addBOS = say
		}
	}
	if addBOS && t.roles.bos >= 0 {
		t.post.before = []int32{t.roles.bos}
	}
	if addEOS, _ := r.f.Bool("tokenizer.ggml.add_eos_token"); addEOS && t.roles.eos >= 0 {
		t.post.after = []int32{t.roles.eos}
	}
	return nil
}
