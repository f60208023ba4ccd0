// Package tokenizer turns text into ids and back: BPE over bytes (GPT-2, Llama 3,
// Qwen) and over characters with byte fallback (Llama 2, Gemma), Unigram,
// WordPiece and WordLevel, read from a tokenizer.json or, the first two, from a
// GGUF file. The truth it is held against is Hugging Face's tokenizers library
// on the same tokenizer.json: equal ids, equal text.
//
// It is in layer 1: of this module it may import model/gguf only.
package tokenizer

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"agentcli/internal/malformed"
	"agentcli/model/gguf"
)

// Tokenizer is one model's vocabulary and rules. It is safe for concurrent
// use.
type Tokenizer struct {
	path     string
	vocab    vocabulary
	normal   normalizer
	pre      preTokenizer
	merges   [][2]string
	model    model
	ordinary model // the same without special tokens
	dec      *decoder
	post     postProcessor
	rawAdded *matcher // added tokens found before normalisation
	nrmAdded *matcher // and after
	roles    roles
	template string

	// For WriteHF: the folder that the tokenizer came from, or (rewrite) the fields of
	// tokenizer.json where the file was a GGUF.
	fromFolder     string
	rewrite        bool
	preJSON        json.RawMessage
	normalizerJSON json.RawMessage
	decoderJSON    json.RawMessage

	hashOnce sync.Once
	hash     string
}

// roles are the ids of the tokens that have a role; -1: none.
type roles struct{ bos, eos, unk, pad int32 }

var noRoles = roles{bos: -1, eos: -1, unk: -1, pad: -1}

// missing is the error of a path that is not there.
type missing string

func (m missing) Error() string      { return string(m) + ": no such file or folder; look at the path" }
func (m missing) Is(kind error) bool { return kind == fs.ErrNotExist }

// Open reads the tokenizer of a Hugging Face folder (tokenizer.json and, where
// present, tokenizer_config.json), of a tokenizer.json named by itself, or of a
// GGUF file.
func Open(path string) (*Tokenizer, error) {
	st, err := os.Stat(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, missing(path)
		}
		return nil, err
	}
	if st.IsDir() {
		return openFolder(path)
	}
	if gguf.Sniff(path) {
		f, err := gguf.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return FromGGUF(f)
	}
	if strings.HasSuffix(path, ".json") {
		return openJSON(path)
	}
	return nil, fmt.Errorf("%s: neither a folder with a tokenizer.json nor a GGUF file", path)
}

func openFolder(dir string) (*Tokenizer, error) {
	p := filepath.Join(dir, "tokenizer.json")
	if _, err := os.Stat(p); err != nil {
		return nil, malformed.At(dir, "tokenizer.json", malformed.Missing,
			"there is none in this folder; only tokenizers saved in that format can be read")
	}
	t, err := openJSON(p)
	if err != nil {
		return nil, err
	}
	t.fromFolder = dir
	t.roles, t.template, err = readConfig(dir, &t.vocab)
	return t, err
}

// VocabSize is the number of ids: one more than the largest.
func (t *Tokenizer) VocabSize() int { return len(t.vocab.tokens) }

// ID finds a token by its text as written in the vocabulary (a special token's
// own text; byte-level letters for the rest).
func (t *Tokenizer) ID(token string) (int32, bool) { return t.vocab.id(token) }

// Special reports whether the id is a special token, which Decode can skip and
// EncodeOrdinary never makes.
func (t *Tokenizer) Special(id int32) bool { return t.vocab.special[id] }

// Bytes is what the id stands for: possibly a part of a UTF-8 character. It is
// nil for an id that is not in the vocabulary. The slice must not be changed.
func (t *Tokenizer) Bytes(id int32) []byte {
	if id < 0 || int(id) >= len(t.dec.pieces) {
		return nil
	}
	return t.dec.pieces[id]
}

// BOS is the id of the beginning-of-text token, -1 if the file names none.
func (t *Tokenizer) BOS() int32 { return t.roles.bos }

// EOS is the id of the end-of-text token, -1 if the file names none.
func (t *Tokenizer) EOS() int32 { return t.roles.eos }

// Pad is the id of the padding token, -1 if the file names none.
func (t *Tokenizer) Pad() int32 { return t.roles.pad }

// ChatTemplate is the template that the tokenizer's files hold, "" if none.
func (t *Tokenizer) ChatTemplate() string { return t.template }

// Describe says in a few words what kind of tokenizer this is.
func (t *Tokenizer) Describe() string {
	words := []string{kindOf(t.model)}
	if t.pre.label != "" {
		words = append(words, t.pre.label)
	}
	words = append(words, fmt.Sprintf("%d tokens", len(t.vocab.tokens)))
	if len(t.merges) > 0 {
		words = append(words, fmt.Sprintf("%d merges", len(t.merges)))
	}
	return strings.Join(words, ", ")
}

// Hash identifies vocabulary, merges, added tokens and splitting rules: sha256
// in hex. A GGUF and the folder converted from it have the same hash.
func (t *Tokenizer) Hash() string {
	t.hashOnce.Do(func() {
		h := sha256.New()
		var n [8]byte
		put := func(s string) {
			binary.LittleEndian.PutUint64(n[:], uint64(len(s)))
			h.Write(n[:])
			h.Write([]byte(s))
		}
		for id, s := range t.vocab.tokens {
			if t.vocab.present[id] {
				put(s)
			} else {
				put("\xff")
			}
		}
		put("merges")
		for _, m := range t.merges {
			put(m[0])
			put(m[1])
		}
		put("added")
		for _, a := range t.vocab.added {
			put(fmt.Sprint(a))
		}
		put(t.pre.name)
		ignoreMerges := false
		if m, ok := t.model.(*bpe); ok {
			ignoreMerges = m.ignoreMerges
		}
		put(fmt.Sprint(ignoreMerges, t.normal, t.post.before, t.post.after))
		t.hashModel(put)
		t.hash = hex.EncodeToString(h.Sum(nil))
	})
	return t.hash
}

// Encode turns text into ids. Added and special tokens in the text are
// recognised, as Hugging Face does. With addSpecial the tokens that the file's
// post-processor puts around a text (a BOS, say) are added. Invalid UTF-8 is
// read as U+FFFD.
func (t *Tokenizer) Encode(text string, addSpecial bool) []int32 {
	var out []int32
	if addSpecial {
		out = append(out, t.post.before...)
	}
	out = t.encode(out, text, false)
	if addSpecial {
		out = append(out, t.post.after...)
	}
	return out
}

// EncodeOrdinary turns text into ids without ever making a special token: text
// from a user or a tool that spells one is encoded letter by letter. Added
// tokens that are not special (Qwen's <tool_call>) are recognised.
func (t *Tokenizer) EncodeOrdinary(text string) []int32 { return t.encode(nil, text, true) }

func (t *Tokenizer) encode(out []int32, text string, ordinary bool) []int32 {
	if text == "" {
		return out
	}
	text = validUTF8(text)
	if out == nil {
		out = make([]int32, 0, len(text)/3+4)
	}
	m := t.model
	if ordinary {
		m = t.ordinary
	}
	skip := func(id int32) bool { return ordinary && t.vocab.special[id] }
	first := true
	t.rawAdded.split(text, skip, func(piece string, id int32) {
		start := first
		first = false
		if id >= 0 {
			out = append(out, id)
			return
		}
		t.nrmAdded.split(t.normal.apply(piece), skip, func(piece string, id int32) {
			if id >= 0 {
				out = append(out, id)
			} else {
				out = t.pre.encode(m, out, piece, 0, start)
			}
			start = false
		})
	})
	return out
}

// encode runs the steps from number i on, then the model. start says that s
// begins the text.
func (p *preTokenizer) encode(m model, out []int32, s string, i int, start bool) []int32 {
	if s == "" {
		return out
	}
	if i == len(p.steps) {
		return m.encode(out, s)
	}
	sp := &p.steps[i]
	if sp.before != nil {
		s = sp.before(s, start)
	}
	if sp.cut == nil {
		if sp.after != nil {
			s = sp.after(s)
		}
		return p.encode(m, out, s, i+1, start)
	}
	if i+1 == len(p.steps) && sp.after == nil {
		sp.cut(s, func(w string) {
			if w != "" {
				out = m.encode(out, w)
			}
		})
		return out
	}
	sp.cut(s, func(w string) {
		// What was dropped in front moves the first piece away from the start.
		start = start && strings.HasPrefix(s, w)
		first := start
		start = false
		if sp.after != nil {
			w = sp.after(w)
		}
		out = p.encode(m, out, w, i+1, first)
	})
	return out
}

// Decode turns ids into text. Bytes that are no UTF-8 become one U+FFFD for
// each maximal part, those of byte fallback one for each byte; ids outside the
// vocabulary are passed over, as Hugging Face does.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	return t.dec.decode(ids, func(id int32) bool { return skipSpecial && t.vocab.special[id] })
}

// ready sets what follows from the rest: the model for ordinary text, the
// matchers of added tokens and the decoder.
func (t *Tokenizer) ready() (err error) {
	t.ordinary = t.model
	if len(t.vocab.special) > 0 {
		t.ordinary = t.model.ordinary(&t.vocab)
	}
	t.rawAdded, t.nrmAdded = t.vocab.matchers(t.normal)
	t.dec, err = parseDecoder(t.decoderJSON, &t.vocab)
	return err
}

// hashModel adds what only models other than byte-level BPE have: hashes of the
// latter are kept as they were.
func (t *Tokenizer) hashModel(put func(string)) {
	switch m := t.model.(type) {
	case *bpe:
		if m.byteLevel {
			return
		}
		put(fmt.Sprint(kindOf(t.model), m.unk, m.fuseUnk, m.prefix, m.suffix))
	case *unigram:
		put(fmt.Sprint(kindOf(t.model), m.unk, m.byteFallback, m.scores))
	case *wordPiece:
		put(fmt.Sprint(kindOf(t.model), m.unk, m.prefix, m.maxChars))
	case *wordLevel:
		put(fmt.Sprint(kindOf(t.model), m.unk))
	}
	var b bytes.Buffer
	if json.Compact(&b, t.decoderJSON) == nil {
		put(b.String())
	}
}
