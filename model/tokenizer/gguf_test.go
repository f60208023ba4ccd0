package tokenizer

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"agentcli/internal/goldenfile"
	"agentcli/internal/malformed"
	"agentcli/model/gguf"
)

// ggufWith writes a GGUF that holds metadata only.
func ggufWith(kv map[string]any) []byte {
	var b bytes.Buffer
	put := func(vs ...any) {
		for _, v := range vs {
			if s, ok := v.(string); ok {
				binary.Write(&b, binary.LittleEndian, uint64(len(s)))
				b.WriteString(s)
				continue
			}
			binary.Write(&b, binary.LittleEndian, v)
		}
	}
	b.WriteString("GGUF")
	put(uint32(3), uint64(0), uint64(len(kv)))
	keys := make([]string, 0, len(kv))
	for k := range kv {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		put(k)
		switch v := kv[k].(type) {
		case string:
			put(uint32(gguf.String), v)
		case uint32:
			put(uint32(gguf.Uint32), v)
		case bool:
			put(uint32(gguf.Bool), v)
		case []string:
			put(uint32(gguf.Array), uint32(gguf.String), uint64(len(v)))
			for _, s := range v {
				put(s)
			}
		case []float32:
			put(uint32(gguf.Array), uint32(gguf.Float32), uint64(len(v)), v)
		case []int32:
			put(uint32(gguf.Array), uint32(gguf.Int32), uint64(len(v)), v)
		}
	}
	return b.Bytes()
}

func smallGGUF(pre string) map[string]any {
	kv := map[string]any{"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre, "tokenizer.ggml.merges": []string{"a b", "ab c"},
		"tokenizer.ggml.bos_token_id": uint32(0), "tokenizer.ggml.eos_token_id": uint32(1), "tokenizer.ggml.add_bos_token": true}
	tokens, types := []string{"<bos>", "<eos>", "<user>", "gap"}, []int32{3, 3, 4, 5}
	for b := range 256 {
		tokens, types = append(tokens, string(byteRune[b])), append(types, 1)
	}
	kv["tokenizer.ggml.tokens"] = append(tokens, "ab", "abc")
	kv["tokenizer.ggml.token_type"] = append(types, 1, 1)
	return kv
}

func TestSmallGGUF(t *testing.T) {
	for pre := range ggmlPre {
		f, err := gguf.Parse("t.gguf", ggufWith(smallGGUF(pre)))
		if err != nil {
			t.Fatal(err)
		}
		tok, err := FromGGUF(f)
		if err != nil {
			t.Fatalf("%s: %v", pre, err)
		}
		text := "abc <eos> 12 <user>é\n"
		ids := tok.Encode(text, true)
		if ids[0] != 0 || ids[1] != 261 || !slices.Contains(ids, 1) || !slices.Contains(ids, 2) || tok.Decode(ids[1:], false) != text {
			t.Errorf("%s: %v %q", pre, ids, tok.Decode(ids, false))
		}
		if ids := tok.EncodeOrdinary(text); slices.Contains(ids, 1) || !slices.Contains(ids, 2) || tok.Decode(ids, true) != text {
			t.Errorf("%s: ordinary %v", pre, ids)
		}
		dir := t.TempDir()
		if err := tok.WriteHF(dir, "T"); err != nil {
			t.Fatal(err)
		}
		back, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if back.Hash() != tok.Hash() || back.ChatTemplate() != "T" || !slices.Equal(back.Encode(text, true), ids) {
			t.Errorf("%s: the folder differs: %v %v", pre, back.Encode(text, true), ids)
		}
	}
}

// spm.json: a vocabulary of the SentencePiece kind with scores, and the ids that
// the tokenizers library gives with the merges that transformers derives.
func TestSentencePieceGGUF(t *testing.T) {
	var g struct {
		Tokens []string  `json:"tokens"`
		Scores []float32 `json:"scores"`
		Types  []int32   `json:"types"`
		Texts  []string  `json:"texts"`
		Cases  []struct {
			Arch, Model string
			Merges      []string  // in the file, instead of scores
			Prefix      bool      // a space is put in front
			IDs         [][]int32 `json:"ids"`
			Back        []string  `json:"back"`
		} `json:"cases"`
	}
	goldenfile.Load(t, "spm.json", &g)
	for _, c := range g.Cases {
		t.Run(c.Arch+" "+c.Model, func(t *testing.T) {
			kv := map[string]any{"general.architecture": c.Arch, "tokenizer.ggml.model": c.Model, "tokenizer.ggml.tokens": g.Tokens,
				"tokenizer.ggml.token_type": g.Types, "tokenizer.ggml.bos_token_id": uint32(1), "tokenizer.ggml.add_space_prefix": c.Prefix}
			if c.Merges != nil {
				kv["tokenizer.ggml.merges"] = c.Merges
			} else {
				kv["tokenizer.ggml.scores"] = g.Scores
			}
			f, err := gguf.Parse("t.gguf", ggufWith(kv))
			if err != nil {
				t.Fatal(err)
			}
			tok, err := FromGGUF(f)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			if err := tok.WriteHF(dir, ""); err != nil {
				t.Fatal(err)
			}
			folder, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			if folder.Hash() != tok.Hash() {
				t.Error("the folder's hash differs")
			}
			for _, tok := range []*Tokenizer{tok, folder} {
				for i, s := range g.Texts {
					if got := tok.Encode(s, false); !slices.Equal(got, c.IDs[i]) {
						t.Errorf("Encode(%+q)\n got %v %q\nwant %v %q", s, got, words(tok, got), c.IDs[i], words(tok, c.IDs[i]))
					}
					if got := tok.Decode(c.IDs[i], false); got != c.Back[i] {
						t.Errorf("Decode(%v) = %+q, want %+q", c.IDs[i], got, c.Back[i])
					}
				}
			}
			if got := tok.Encode("a", true); (got[0] == 1) != (c.Model == "llama") {
				t.Errorf("BOS: %v", got)
			}
		})
	}
}

func TestHostileGGUF(t *testing.T) {
	tests := []struct {
		name, field, key string
		kind             malformed.Kind
		v                any
	}{
		{"model", "tokenizer.ggml.model", "tokenizer.ggml.model", malformed.Unsupported, "rwkv"},
		{"no scores", "tokenizer.ggml.scores", "tokenizer.ggml.model", malformed.Mismatch, "llama"},
		{"pre", "tokenizer.ggml.pre", "tokenizer.ggml.pre", malformed.Unsupported, "odd"},
		{"no tokens", "tokenizer.ggml.tokens", "tokenizer.ggml.tokens", malformed.Range, []string{}},
		{"types", "tokenizer.ggml.token_type", "tokenizer.ggml.token_type", malformed.Mismatch, []int32{1}},
		{"eos", "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eos_token_id", malformed.Range, uint32(9999)},
		{"merge", "tokenizer.ggml.merges", "tokenizer.ggml.merges", malformed.Missing, []string{"z z"}},
		{"odd merge", "tokenizer.ggml.merges", "tokenizer.ggml.merges", malformed.Syntax, []string{"zz"}},
		{"same tokens", "tokenizer.ggml.tokens", "tokenizer.ggml.tokens", malformed.Duplicate, slices.Repeat([]string{"x"}, 262)},
	}
	for _, tt := range tests {
		kv := smallGGUF("gpt-2")
		kv[tt.key] = tt.v
		if tt.name == "no scores" {
			delete(kv, "tokenizer.ggml.merges")
		}
		f, err := gguf.Parse("t.gguf", ggufWith(kv))
		if err != nil {
			t.Fatal(err)
		}
		want := malformed.Error{Path: "t.gguf", Field: tt.field, Kind: tt.kind}
		if _, err = FromGGUF(f); malformed.Facts(err) != want || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %+v", tt.name, err, want)
		}
	}
}

func FuzzGGUFTokenizer(f *testing.F) {
	f.Add(ggufWith(smallGGUF("smollm")))
	spm := smallGGUF("")
	spm["tokenizer.ggml.model"] = "llama"
	spm["tokenizer.ggml.scores"] = make([]float32, 262)
	delete(spm, "tokenizer.ggml.merges")
	f.Add(ggufWith(spm))
	f.Fuzz(func(t *testing.T, b []byte) {
		g, err := gguf.Parse("f", b)
		if err != nil {
			return
		}
		if tok, err := FromGGUF(g); err == nil {
			tok.Decode(tok.Encode("abc <eos> x", true), true)
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("more than one line: %q", err)
		}
	})
}
