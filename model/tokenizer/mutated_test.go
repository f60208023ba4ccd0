package tokenizer

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"agentcli/internal/goldenfile"
)

// mutate changes one value somewhere in a tree: drops it, doubles it, gives it
// another type, an absurd number or a hostile text, or a part of the tree
// itself.
func mutate(rng *rand.Rand, v any, root any) any {
	if rng.IntN(6) > 0 {
		switch x := v.(type) {
		case map[string]any:
			keys := make([]string, 0, len(x))
			for k := range x {
				keys = append(keys, k)
			}
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

// A damaged tokenizer.json works or gives an error of one line.
func TestMutatedTokenizers(t *testing.T) {
	was := matchLimit
	matchLimit = 100 * time.Millisecond
	t.Cleanup(func() { matchLimit = was })
	var g kindsFile
	goldenfile.Load(t, "kinds.json", &g)
	rng := rand.New(rand.NewPCG(1, 2))
	works := 0
	for i := range 1000 {
		b := g.Tokenizers[i%len(g.Tokenizers)].file(t, g)
		if i%4 == 0 {
			for range 1 + rng.IntN(4) {
				b[rng.IntN(len(b))] = byte(rng.IntN(256))
			}
		} else {
			var tree any
			if err := json.Unmarshal(b, &tree); err != nil {
				t.Fatal(err)
			}
			for range 1 + rng.IntN(3) {
				tree = mutate(rng, tree, tree)
			}
			b, _ = json.Marshal(tree)
		}
		tok, err := parseJSON("tokenizer.json", b)
		if err != nil {
			if bytes.ContainsRune([]byte(err.Error()), '\n') || !strings.Contains(err.Error(), "tokenizer.json") {
				t.Errorf("%d: %q", i, err)
			}
			continue
		}
		works++
		for _, s := range g.Texts {
			tok.Decode(tok.Encode(s, true), true)
			tok.EncodeOrdinary(s)
		}
		tok.Hash()
	}
	if works == 0 || works == 1000 {
		t.Errorf("%d of 1000 work; the mutations prove nothing", works)
	}
}
