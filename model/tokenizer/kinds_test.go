package tokenizer

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentcli/internal/goldenfile"
)

type kindsFile struct {
	Texts      []string                  `json:"texts"`
	Models     map[string]map[string]any `json:"models"`
	Tokenizers []kindCase                `json:"tokenizers"`
}

type kindCase struct {
	Model      string          `json:"model"`
	Change     map[string]any  `json:"change"`
	Added      json.RawMessage `json:"added"`
	Normalizer json.RawMessage `json:"normalizer"`
	Pre        json.RawMessage `json:"pre_tokenizer"`
	Post       json.RawMessage `json:"post_processor"`
	Decoder    json.RawMessage `json:"decoder"`
	Texts      []string        `json:"texts"` // nil: those of the file
	Encode     [][][]int32     `json:"encode"`
	IDs        [][]int32       `json:"ids"`
	Decode     []*string       `json:"decode"`
	DecodeSkip []*string       `json:"decode_skip"`
}

// file is the tokenizer.json.
func (k kindCase) file(t testing.TB, g kindsFile) []byte {
	model := map[string]any{}
	for key, v := range g.Models[k.Model] {
		model[key] = v
	}
	for key, v := range k.Change {
		model[key] = v
	}
	b, err := json.Marshal(map[string]any{"added_tokens": k.Added, "normalizer": k.Normalizer, "pre_tokenizer": k.Pre,
		"post_processor": k.Post, "decoder": k.Decoder, "model": model})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (k kindCase) String() string {
	return fmt.Sprintf("%s %v normalizer %s pre %s decoder %s", k.Model, k.Change, k.Normalizer, k.Pre, k.Decoder)
}

// check holds a tokenizer against what the library gave.
func (k kindCase) check(t *testing.T, g kindsFile) {
	tok, err := parseJSON("tokenizer.json", k.file(t, g))
	if err != nil {
		t.Errorf("%v: %v", k, err)
		return
	}
	texts := k.Texts
	if texts == nil {
		texts = g.Texts
	}
	for i, s := range texts {
		if k.Encode[i] == nil {
			continue // the library has no answer
		}
		for j, want := range k.Encode[i] {
			if got := tok.Encode(s, j == 1); !slices.Equal(got, want) {
				t.Fatalf("%v\n%+q post %v\n got %v %q\nwant %v %q", k, s, j == 1, got, words(tok, got), want, words(tok, want))
			}
		}
		for _, id := range tok.EncodeOrdinary(s) {
			if tok.Special(id) && tok.vocab.tokens[id] != "[UNK]" {
				t.Errorf("%v: ordinary %+q made the special token %q", k, s, tok.vocab.tokens[id])
			}
		}
	}
	for i, ids := range k.IDs {
		whole := tok.Decode(ids, false)
		if want := k.Decode[i]; want != nil && whole != *want { // nil: the library has no answer
			t.Errorf("%v\nDecode(%v %q)\n got %+q\nwant %+q", k, ids, words(tok, ids), whole, *want)
		}
		if got, want := tok.Decode(ids, true), k.DecodeSkip[i]; want != nil && got != *want {
			t.Errorf("%v\nDecode(%v, skip)\n got %+q\nwant %+q", k, ids, got, *want)
		}
		st, sb := tok.NewStream(false), strings.Builder{}
		for range 2 { // a stream may be used again after Flush
			sb.Reset()
			for _, id := range ids {
				sb.WriteString(st.Add(id))
			}
			sb.WriteString(st.Flush())
			if sb.String() != whole {
				t.Errorf("%v\nstream of %v = %+q, want %+q", k, ids, sb.String(), whole)
			}
		}
	}
}

// kinds.json: tokenizers of all components with the ids and texts that the
// tokenizers library makes of them.
func TestEveryComponent(t *testing.T) {
	var g kindsFile
	goldenfile.Load(t, "kinds.json", &g)
	for i, k := range g.Tokenizers {
		t.Run(fmt.Sprint(i), func(t *testing.T) { k.check(t, g) })
	}
}

// TestAgainstTheLibrary compares tokenizers of random components with the
// tokenizers library: AGENTCLI_TOKENIZER_FUZZ is the seed.
func TestAgainstTheLibrary(t *testing.T) {
	seed, python := os.Getenv("AGENTCLI_TOKENIZER_FUZZ"), os.Getenv("AGENTCLI_PYTHON")
	if seed == "" || python == "" {
		t.Skip("set AGENTCLI_TOKENIZER_FUZZ to a seed and AGENTCLI_PYTHON to a Python with tokenizers 0.23")
	}
	out := filepath.Join(t.TempDir(), "kinds.json")
	cmd := exec.Command(python, "../../scripts/golden/tokenizerkinds.py", seed, "400", out)
	if log, err := cmd.CombinedOutput(); err != nil { // the library's panics write much to it
		t.Fatalf("%v: %s", err, log[max(0, len(log)-2000):])
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var g kindsFile
	if err := json.Unmarshal(b, &g); err != nil {
		t.Fatal(err)
	}
	for i, k := range g.Tokenizers {
		t.Run(fmt.Sprint(i), func(t *testing.T) { k.check(t, g) })
	}
}
