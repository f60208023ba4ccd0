package tokenizer

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"agentcli/internal/damaged"
	"agentcli/internal/goldenfile"
	"agentcli/model/gguf"
)

// mutate changes one value somewhere in a tree: drops it, doubles it, gives it
// another type, an absurd number or a hostile text, or a part of the tree
// itself.
func mutate(rng *rand.Rand, v any, root any) any {
	if rng.IntN(6) > 0 {
		switch x := v.(type) {
		case map[string]any:
			keys := slices.Sorted(maps.Keys(x))
			if len(keys) > 0 {
				k := keys[rng.IntN(len(keys))]
				if rng.IntN(12) == 0 {
					delete(x, k)
				} else {
					x[k] = mutate(rng, x[k], root)
				}
				return x
			}
		case []any:
			if len(x) > 0 {
				i := rng.IntN(len(x))
				if rng.IntN(12) == 0 {
					return append(x, x[i])
				}
				x[i] = mutate(rng, x[i], root)
				return x
			}
		}
	}
	hostile := []any{nil, true, 0, -1, 1 << 40, 1e308, "", "a", "Sequence", strings.Repeat("ab", 5000), "(a+)+$", `(?:\s*\s*)*x`, "\x00",
		"[[&&",
		`(?<!a{1,100000})b`, []any{}, map[string]any{}, []any{"a", 1}, map[string]any{"Regex": `(.*)*\1$`}, map[string]any{"type": "Sequence"},
		map[string]any{"String": ""}, "ByteLevel", "Metaspace", "Unigram", "WordPiece", "BPE", "\U0010ffff",
		[]any{[]any{"a", -1.0}, []any{"b", -2.0}}}
	if rng.IntN(8) == 0 { // the tree within itself
		b, _ := json.Marshal(root)
		var copied any
		_ = json.Unmarshal(b, &copied)
		return copied
	}
	return hostile[rng.IntN(len(hostile))]
}

// A damaged tokenizer.json works or gives an error that names it.
func TestMutatedTokenizers(t *testing.T) {
	was := matchLimit
	matchLimit = 100 * time.Millisecond
	t.Cleanup(func() { matchLimit = was })
	var g kindsFile
	goldenfile.Load(t, "kinds.json", &g)
	files := map[string][]byte{}
	for i, k := range g.Tokenizers {
		files[strconv.Itoa(i)] = k.file(t, g)
	}
	var opened []*Tokenizer
	open := func(name string, b []byte) error {
		tok, err := parseJSON("tokenizer.json", b)
		if err != nil {
			if !strings.Contains(err.Error(), "tokenizer.json") {
				t.Errorf("%s: no path in %v", name, err)
			}
			return err
		}
		opened = append(opened, tok)
		return nil
	}
	ofTree := func(rng *rand.Rand, b []byte) []byte {
		var tree any
		if err := json.Unmarshal(b, &tree); err != nil {
			t.Fatal(err)
		}
		for range 1 + rng.IntN(3) {
			tree = mutate(rng, tree, tree)
		}
		b, _ = json.Marshal(tree)
		return b
	}
	for what, n := range map[string]int{"bytes": damaged.Files(t, 1000, files, open),
		"values": damaged.Versions(t, 1000, files, ofTree, open)} {
		if n < 100 || n == 1000 {
			t.Errorf("%s: %d errors: the damage shows nothing", what, n)
		}
	}
	// A text's time grows with the length of the added tokens, which may be 10,000: it is no
	// part of the bound.
	for _, tok := range opened {
		for _, s := range g.Texts {
			tok.Decode(tok.Encode(s, true), true)
			tok.EncodeOrdinary(s)
		}
		tok.Hash()
	}
}

// A damaged tokenizer of a GGUF works or gives an error that names the file.
func TestMutatedGGUFTokenizers(t *testing.T) {
	unigram := smallGGUF("")
	unigram["tokenizer.ggml.model"], unigram["tokenizer.ggml.scores"] = "llama", make([]float32, 262)
	delete(unigram, "tokenizer.ggml.merges")
	files := map[string][]byte{"bpe": ggufWith(smallGGUF("smollm")), "unigram": ggufWith(unigram)}
	n := damaged.Files(t, 1000, files, func(name string, b []byte) error {
		f, err := gguf.Parse("t.gguf", b)
		var tok *Tokenizer
		if err == nil {
			tok, err = FromGGUF(f)
		}
		if err != nil {
			if !strings.Contains(err.Error(), "t.gguf") {
				t.Errorf("%s: no path in %v", name, err)
			}
			return err
		}
		tok.Decode(tok.Encode("abc <eos> x", true), true)
		return nil
	})
	if n < 300 || n == 1000 {
		t.Errorf("%d errors: the damage shows nothing", n)
	}
}
