package tokenizer

import (
	"path/filepath"
	"slices"
	"testing"

	"agentcli/internal/goldenfile"
	"agentcli/internal/malformed"
	"agentcli/model/gguf"
)

// again writes a tokenizer into a GGUF and reads it back.
func again(t *testing.T, tok *Tokenizer, ids int) *Tokenizer {
	t.Helper()
	kv, err := ToGGUF(tok, ids)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "t.gguf")
	w, err := gguf.Create(path, kv, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	back, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return back
}

// A tokenizer that is written into a GGUF makes the same ids and texts.
func TestGGUFOfATokenizer(t *testing.T) {
	var v variantFile
	goldenfile.Load(t, "variants.json", &v)
	toks := map[string]*Tokenizer{}
	for _, name := range []string{"gpt2", "digits each", "o200k", "deepseek", "template"} {
		toks[name], _ = variant(t, name)
	}
	for pre := range ggmlPre {
		f, err := gguf.Parse("t.gguf", ggufWith(smallGGUF(pre)))
		if err != nil {
			t.Fatal(err)
		}
		if toks["pre "+pre], err = FromGGUF(f); err != nil {
			t.Fatal(err)
		}
	}
	for name, tok := range toks {
		back := again(t, tok, tok.VocabSize()+3)
		for _, s := range v.Texts {
			// Flags of added tokens have no place in a GGUF.
			if a, b := tok.EncodeOrdinary(s), back.EncodeOrdinary(s); !slices.Equal(a, b) && len(tok.vocab.added) < 7 {
				t.Errorf("%s: %q gives %v, then %v", name, s, a, b)
			}
			if a, b := tok.Decode(tok.Encode(s, true), false), back.Decode(tok.Encode(s, true), false); a != b {
				t.Errorf("%s: %q and %q", name, a, b)
			}
		}
		if back.pre.name != tok.pre.name || back.BOS() != tok.BOS() || back.EOS() != tok.EOS() {
			t.Errorf("%s: %s became %s", name, tok.Describe(), back.Describe())
		}
	}
}

func TestGGUFOfSentencePiece(t *testing.T) {
	var g struct {
		Tokens []string  `json:"tokens"`
		Scores []float32 `json:"scores"`
		Types  []int32   `json:"types"`
		Texts  []string  `json:"texts"`
	}
	goldenfile.Load(t, "spm.json", &g)
	for _, prefix := range []bool{true, false} {
		f, err := gguf.Parse("t.gguf", ggufWith(map[string]any{"general.architecture": "llama", "tokenizer.ggml.model": "llama",
			"tokenizer.ggml.tokens": g.Tokens, "tokenizer.ggml.token_type": g.Types, "tokenizer.ggml.scores": distinct(g.Scores),
			"tokenizer.ggml.bos_token_id": uint32(1), "tokenizer.ggml.add_space_prefix": prefix}))
		if err != nil {
			t.Fatal(err)
		}
		tok, err := FromGGUF(f)
		if err != nil {
			t.Fatal(err)
		}
		back := again(t, tok, tok.VocabSize())
		for _, s := range g.Texts {
			if a, b := tok.Encode(s, true), back.Encode(s, true); !slices.Equal(a, b) {
				t.Errorf("%q gives %v, then %v", s, a, b)
			}
		}
		// Without one of the merges that the tokens allow they are none that scores give.
		dir := t.TempDir()
		tok.merges = slices.Clone(tok.merges[1:])
		if err := tok.WriteHF(dir, ""); err != nil {
			t.Fatal(err)
		}
		odd, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ToGGUF(odd, odd.VocabSize()); malformed.Facts(err).Kind != malformed.Unsupported {
			t.Errorf("merges that do not follow from scores: %v", err)
		}
	}
}

// distinct makes equal scores differ: of equal ones a GGUF's reader goes by place.
func distinct(scores []float32) []float32 {
	out := slices.Clone(scores)
	for i := range out {
		out[i] -= float32(i) / 1024
	}
	return out
}

func TestGGUFOfOtherTokenizersIsRefused(t *testing.T) {
	var g kindsFile
	goldenfile.Load(t, "kinds.json", &g)
	for _, k := range g.Tokenizers {
		tok, err := parseJSON("tokenizer.json", k.file(t, g))
		if err != nil {
			t.Fatal(err)
		}
		_, err = ToGGUF(tok, tok.VocabSize())
		if want := (malformed.Error{Path: "tokenizer.json", Field: "tokenizer", Kind: malformed.Unsupported}); malformed.Facts(err) != want {
			t.Errorf("%v: %v", k, err)
		}
	}
}
