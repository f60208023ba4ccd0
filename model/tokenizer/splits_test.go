package tokenizer

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"agentcli/internal/goldenfile"
)

// splits.json: the pieces that the tokenizers library cuts random strings into.
func TestSplitsEqualTheLibrary(t *testing.T) {
	var g struct {
		Alphabet string
		Patterns map[string]struct{ Pattern, SHA256 string }
	}
	goldenfile.Load(t, "splits.json", &g)
	letters := []rune(g.Alphabet)
	x := uint32(1)
	texts := make([]string, 4000)
	for i := range texts {
		var b strings.Builder
		for range 24 {
			x = x*1664525 + 1013904223
			b.WriteRune(letters[int(x>>8)%len(letters)])
		}
		texts[i] = b.String()
	}
	sum := func(cut cutter) string {
		h := sha256.New()
		for _, s := range texts {
			cut(s, func(p string) { h.Write([]byte(p + "\xff")) })
		}
		return hex.EncodeToString(h.Sum(nil))
	}
	for name, p := range g.Patterns {
		f, ok := families[p.Pattern]
		if !ok || f.name != name {
			t.Errorf("%s has no matcher of its own", name)
			continue
		}
		if sum(f.isolated()) != p.SHA256 {
			t.Errorf("%s: the matcher's pieces differ", name)
		}
		find, err := regex(p.Pattern)
		if err != nil {
			t.Fatal(err)
		}
		cut, err := general(find, "Isolated", false)
		if err != nil {
			t.Fatal(err)
		}
		if sum(cut) != p.SHA256 {
			t.Errorf("%s: regexp2's pieces differ", name)
		}
	}
}
