// Package tokenizer turns text into ids and back: byte-level BPE as GPT-2,
// Llama 3, Qwen and SmolLM use it, read from a tokenizer.json or from a GGUF
// file. The truth it is held against is Hugging Face's tokenizers library on
// the same tokenizer.json: equal ids, equal text.
//
// It is in layer 1: of this module it may import model/gguf only.
package tokenizer

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"unicode/utf8"

	"agentcli/model/gguf"

	"golang.org/x/text/unicode/norm"
)

// maxID bounds the ids of a file before anything is allocated for them; the
// largest vocabularies in use have about 2^18.
const maxID = 1 << 22

// Tokenizer is one model's vocabulary and rules. It is safe for concurrent
// use.
type Tokenizer struct {
	path    string
	pre     string // how the pre-tokenizer is called in the file, for people
	tokens  []string
	present []bool
	raw     [][]byte // what each id stands for
	vocab   map[string]int32
	added   []addedToken // ordered as in the file
	special map[int32]bool
	addedID map[string]int32

	forms    []norm.Form // normaliser
	splits   []splitter  // pre-tokenizer
	bpe      *bpe
	rawAdded *matcher // added tokens found before normalisation
	nrmAdded *matcher // and after

	before, after []int32 // the template's special tokens around a text

	bos, eos, unk, pad int32 // -1: none
	merges             [][2]string
	template           string
	preJSON            any // pre_tokenizer for WriteHF, where the file was a GGUF
	fromFolder         string
	nfcJSON            any

	hashOnce sync.Once
	hash     string
}

type addedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

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
		return nil, fmt.Errorf("%s: no tokenizer.json in this folder; only tokenizers saved in that format can be read", dir)
	}
	t, err := openJSON(p)
	if err != nil {
		return nil, err
	}
	t.fromFolder = dir
	return t, t.readConfig(dir)
}

// VocabSize is the number of ids: one more than the largest.
func (t *Tokenizer) VocabSize() int { return len(t.tokens) }

// ID finds a token by its text as written in the vocabulary (a special token's
// own text; byte-level letters for the rest).
func (t *Tokenizer) ID(token string) (int32, bool) {
	if id, ok := t.addedID[token]; ok {
		return id, true
	}
	id, ok := t.vocab[token]
	return id, ok
}

// Special reports whether the id is a special token, which Decode can skip and
// EncodeOrdinary never makes.
func (t *Tokenizer) Special(id int32) bool { return t.special[id] }

// Bytes is what the id stands for: possibly a part of a UTF-8 character. It is
// nil for an id that is not in the vocabulary. The slice must not be changed.
func (t *Tokenizer) Bytes(id int32) []byte {
	if id < 0 || int(id) >= len(t.raw) {
		return nil
	}
	return t.raw[id]
}

// BOS is the id of the beginning-of-text token, -1 if the file names none.
func (t *Tokenizer) BOS() int32 { return t.bos }

// EOS is the id of the end-of-text token, -1 if the file names none.
func (t *Tokenizer) EOS() int32 { return t.eos }

// Pad is the id of the padding token, -1 if the file names none.
func (t *Tokenizer) Pad() int32 { return t.pad }

// ChatTemplate is the template that the tokenizer's files hold, "" if none.
func (t *Tokenizer) ChatTemplate() string { return t.template }

// Describe says in a few words what kind of tokenizer this is.
func (t *Tokenizer) Describe() string {
	return fmt.Sprintf("byte-level BPE, %s, %d tokens, %d merges", t.pre, len(t.tokens), len(t.merges))
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
		for id, s := range t.tokens {
			if t.present[id] {
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
		for _, a := range t.added {
			put(fmt.Sprint(a))
		}
		put(t.pre)
		put(fmt.Sprint(t.bpe.ignoreMerges, t.forms, t.before, t.after))
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
		out = append(out, t.before...)
	}
	out = t.encode(out, text, false)
	if addSpecial {
		out = append(out, t.after...)
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
	skip := func(id int32) bool { return ordinary && t.special[id] }
	t.rawAdded.split(text, skip, func(piece string, id int32) {
		if id >= 0 {
			out = append(out, id)
			return
		}
		for _, f := range t.forms {
			if !f.IsNormalString(piece) {
				piece = normalise(f, piece)
			}
		}
		t.nrmAdded.split(piece, skip, func(piece string, id int32) {
			if id >= 0 {
				out = append(out, id)
				return
			}
			out = t.pieces(out, piece, 0)
		})
	})
	return out
}

// pieces runs the pre-tokenizer's steps from number i on, then BPE.
func (t *Tokenizer) pieces(out []int32, s string, i int) []int32 {
	if s == "" {
		return out
	}
	if i == len(t.splits) {
		return t.bpe.encode(out, s)
	}
	sp := t.splits[i]
	if sp.prefix && s[0] != ' ' {
		s = " " + s
	}
	if sp.split == nil {
		return t.pieces(out, s, i+1)
	}
	if i+1 == len(t.splits) {
		sp.split(s, func(p string) { out = t.bpe.encode(out, p) })
		return out
	}
	sp.split(s, func(p string) { out = t.pieces(out, p, i+1) })
	return out
}

// Decode turns ids into text. Bytes that are no UTF-8 become one U+FFFD for
// each maximal part; ids outside the vocabulary are passed over, as Hugging
// Face does.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	var b []byte
	for _, id := range ids {
		if skipSpecial && t.special[id] {
			continue
		}
		b = append(b, t.Bytes(id)...)
	}
	return lossy(b)
}

// Stream decodes ids as they come and hands out complete characters only. It
// serves one goroutine.
type Stream struct {
	t    *Tokenizer
	skip bool
	tail []byte
}

// NewStream starts a stream; skipSpecial as in Decode.
func (t *Tokenizer) NewStream(skipSpecial bool) *Stream { return &Stream{t: t, skip: skipSpecial} }

// Add takes one id and returns the text that is complete now, perhaps none.
// All that Add and the last Flush return is together what Decode returns.
func (s *Stream) Add(id int32) string {
	if s.skip && s.t.special[id] {
		return ""
	}
	s.tail = append(s.tail, s.t.Bytes(id)...)
	n := completeUpTo(s.tail)
	out := lossy(s.tail[:n])
	s.tail = append(s.tail[:0], s.tail[n:]...)
	return out
}

// Flush returns what is left as text, U+FFFD for a character that never got
// complete, and starts afresh.
func (s *Stream) Flush() string {
	out := lossy(s.tail)
	s.tail = s.tail[:0]
	return out
}

// completeUpTo is the length of b without a last character that more bytes
// could still complete.
func completeUpTo(b []byte) int {
	for i := len(b) - 1; i >= 0 && i >= len(b)-3; i-- {
		if utf8.RuneStart(b[i]) {
			if !utf8.FullRune(b[i:]) {
				return i
			}
			break
		}
	}
	return len(b)
}

// lossy is Rust's from_utf8_lossy: one U+FFFD for each maximal subpart of an
// ill-formed sequence. Go's own conversions give one a byte or one a run.
func lossy(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var sb strings.Builder
	sb.Grow(len(b) + 8)
	for i := 0; i < len(b); {
		if r, n := utf8.DecodeRune(b[i:]); r != utf8.RuneError || n > 1 {
			sb.Write(b[i : i+n])
			i += n
			continue
		}
		sb.WriteRune(utf8.RuneError)
		i += subpart(b[i:])
	}
	return sb.String()
}

// subpart is the length of the maximal subpart at the start of ill-formed b.
func subpart(b []byte) int {
	n := 1
	for n < len(b) && n < 4 && !utf8.FullRune(b[:n]) {
		// FullRune is false only while b[:n] could still become a character.
		if utf8.FullRune(b[:n+1]) {
			if _, size := utf8.DecodeRune(b[:n+1]); size == 1 {
				return n
			}
		}
		n++
	}
	return n
}

// validUTF8 replaces each invalid byte run as lossy does.
func validUTF8(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return lossy([]byte(s))
}
