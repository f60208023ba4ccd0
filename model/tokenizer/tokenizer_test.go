package tokenizer

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentcli/internal/goldenfile"
	"agentcli/model/gguf/testmodel"
)

type golden struct {
	Encode     [][]int32         `json:"encode"`
	Ordinary   [][]int32         `json:"ordinary"`
	Special    [][]int32         `json:"special"`
	Long       map[string]string `json:"long"`
	IDs        [][]int32         `json:"ids"`
	Decode     []string          `json:"decode"`
	DecodeSkip []string          `json:"decode_skip"`
}

// open finds the real tokenizer of a golden file, or skips.
func open(t testing.TB, name string) *Tokenizer {
	t.Helper()
	p := ""
	if name == "smollm2" {
		p = testmodel.Path(t)
	} else if dir := os.Getenv("AGENTCLI_TOKENIZERS"); dir != "" {
		p = filepath.Join(dir, name)
	} else {
		t.Skip("the tokenizer.json of " + name + " is too large to commit: set AGENTCLI_TOKENIZERS to a folder that has " +
			name + "/tokenizer.json")
	}
	tok, err := Open(p)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func TestGolden(t *testing.T) {
	for _, name := range []string{"smollm2", "qwen3", "llama3"} {
		t.Run(name, func(t *testing.T) {
			tok := open(t, name)
			checkGolden(t, tok, name)
		})
	}
}

func checkGolden(t *testing.T, tok *Tokenizer, name string) {
	var g golden
	goldenfile.Load(t, name+".json", &g)
	var texts []string
	goldenfile.Load(t, "hard.json", &texts)
	if len(texts) != len(g.Encode) {
		t.Fatalf("%d texts, %d golden rows", len(texts), len(g.Encode))
	}
	for i, s := range texts {
		if got := tok.Encode(s, false); !slices.Equal(got, g.Encode[i]) {
			t.Errorf("Encode(%+q)\n got %v\nwant %v", s, got, g.Encode[i])
		}
		if got := tok.EncodeOrdinary(s); !slices.Equal(got, g.Ordinary[i]) {
			t.Errorf("EncodeOrdinary(%+q)\n got %v\nwant %v", s, got, g.Ordinary[i])
		}
	}
	for i, want := range g.Special {
		if got := tok.Encode(texts[i], true); !slices.Equal(got, want) {
			t.Errorf("Encode(%+q, true) = %v, want %v", texts[i], got, want)
		}
	}
	for i, ids := range g.IDs {
		if got := tok.Decode(ids, false); got != g.Decode[i] {
			t.Errorf("Decode(%v) = %+q, want %+q", ids, got, g.Decode[i])
		}
		if got := tok.Decode(ids, true); got != g.DecodeSkip[i] {
			t.Errorf("Decode(%v, skip) = %+q, want %+q", ids, got, g.DecodeSkip[i])
		}
		st, sb := tok.NewStream(false), strings.Builder{}
		for _, id := range ids {
			sb.WriteString(st.Add(id))
		}
		sb.WriteString(st.Flush())
		if sb.String() != g.Decode[i] {
			t.Errorf("stream of %v = %+q, want %+q", ids, sb.String(), g.Decode[i])
		}
	}
	long := map[string]string{
		"letters": strings.Repeat("abcdefghij", 10000), "spaces": strings.Repeat(" ", 100000),
		"digits": strings.Repeat("1234567890", 10000), "same": strings.Repeat("a", 100000),
		"cjk": strings.Repeat("漢字", 16000), "other": strings.Repeat("=-", 50000), "newlines": strings.Repeat(" \n", 50000),
	}
	for k, s := range long {
		start := time.Now()
		ids := tok.Encode(s, false)
		if d := time.Since(start); d > time.Minute {
			t.Errorf("%s: %d bytes took %v", k, len(s), d)
		}
		if got := digest(ids); got != g.Long[k] {
			t.Errorf("long line of %s: ids differ from the golden ones", k)
		}
	}
}

func digest(ids []int32) string {
	s := make([]string, len(ids))
	for i, id := range ids {
		s[i] = fmt.Sprint(id)
	}
	h := sha256.Sum256([]byte(strings.Join(s, ",")))
	return hex.EncodeToString(h[:])
}

func TestConcurrent(t *testing.T) {
	tok := open(t, "smollm2")
	var g golden
	goldenfile.Load(t, "smollm2.json", &g)
	var texts []string
	goldenfile.Load(t, "hard.json", &texts)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i, s := range texts {
				if !slices.Equal(tok.Encode(s, false), g.Encode[i]) {
					t.Errorf("Encode(%q)", s)
				}
			}
		})
	}
	wg.Wait()
}

func TestWriteHFRoundTrip(t *testing.T) {
	tok := open(t, "smollm2")
	dir, again := t.TempDir(), t.TempDir()
	if err := tok.WriteHF(dir, tok.ChatTemplate()); err != nil {
		t.Fatal(err)
	}
	b, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	checkGolden(t, b, "smollm2")
	if tok.Hash() != b.Hash() {
		t.Errorf("hash %s of the GGUF, %s of the folder", tok.Hash(), b.Hash())
	}
	if b.ChatTemplate() != tok.ChatTemplate() || b.EOS() != tok.EOS() || b.BOS() != tok.BOS() || b.Pad() != tok.Pad() {
		t.Error("template or special tokens were lost")
	}
	if err := b.WriteHF(again, ""); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		x, _ := os.ReadFile(filepath.Join(dir, name))
		y, _ := os.ReadFile(filepath.Join(again, name))
		if len(x) == 0 || string(x) != string(y) {
			t.Errorf("%s was not copied byte for byte", name)
		}
	}
	if err := b.WriteHF(again, "{{ messages }}"); err != nil {
		t.Fatal(err)
	}
	if c, err := Open(again); err != nil || c.ChatTemplate() != "{{ messages }}" {
		t.Errorf("another template than the folder's was not written: %v", err)
	}
}

func BenchmarkEncode(b *testing.B) {
	tok := open(b, "smollm2")
	text, err := os.ReadFile("/usr/share/common-licenses/GPL-3")
	if err != nil {
		b.Skip(err)
	}
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		tok.EncodeOrdinary(string(text))
	}
}

func BenchmarkEncodeCold(b *testing.B) {
	tok := open(b, "smollm2")
	text, err := os.ReadFile("/usr/share/common-licenses/GPL-3")
	if err != nil {
		b.Skip(err)
	}
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		tok.model.(*bpe).cache.ids = nil
		tok.EncodeOrdinary(string(text))
	}
}
