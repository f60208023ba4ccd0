package tokenizer

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"agentcli/internal/goldenfile"
	"agentcli/internal/malformed"
)

type variantFile struct {
	Texts    []string `json:"texts"`
	Variants []struct {
		Name       string          `json:"name"`
		Tokenizer  json.RawMessage `json:"tokenizer"`
		Encode     [][]int32       `json:"encode"`
		Special    [][]int32       `json:"special"`
		Ordinary   [][]int32       `json:"ordinary"`
		Decode     []string        `json:"decode"`
		DecodeSkip []string        `json:"decode_skip"`
	} `json:"variants"`
}

func TestVariants(t *testing.T) {
	var g variantFile
	goldenfile.Load(t, "variants.json", &g)
	for _, v := range g.Variants {
		t.Run(v.Name, func(t *testing.T) {
			tok, err := parseJSON("tokenizer.json", v.Tokenizer)
			if err != nil {
				t.Fatal(err)
			}
			for i, s := range g.Texts {
				for _, c := range []struct {
					what      string
					got, want []int32
				}{
					{"Encode", tok.Encode(s, false), v.Encode[i]}, {"Encode special", tok.Encode(s, true), v.Special[i]},
					{"EncodeOrdinary", tok.EncodeOrdinary(s), v.Ordinary[i]},
				} {
					if !slices.Equal(c.got, c.want) {
						t.Errorf("%s(%+q)\n got %v %q\nwant %v %q", c.what, s, c.got, words(tok, c.got), c.want, words(tok, c.want))
					}
				}
				if got := tok.Decode(v.Encode[i], false); got != v.Decode[i] {
					t.Errorf("Decode(%v) = %+q, want %+q", v.Encode[i], got, v.Decode[i])
				}
				if got := tok.Decode(v.Encode[i], true); got != v.DecodeSkip[i] {
					t.Errorf("Decode(%v, skip) = %+q, want %+q", v.Encode[i], got, v.DecodeSkip[i])
				}
			}
		})
	}
}

func words(tok *Tokenizer, ids []int32) []string {
	var out []string
	for _, id := range ids {
		out = append(out, string(tok.Bytes(id)))
	}
	return out
}

func variant(t testing.TB, name string) (*Tokenizer, []byte) {
	t.Helper()
	var g variantFile
	goldenfile.Load(t, "variants.json", &g)
	for _, v := range g.Variants {
		if v.Name == name {
			tok, err := parseJSON("tokenizer.json", v.Tokenizer)
			if err != nil {
				t.Fatal(err)
			}
			return tok, v.Tokenizer
		}
	}
	t.Fatalf("no variant %q", name)
	return nil, nil
}

// A long line must not take quadratic time on the general path either.
func TestLongLinesThroughRegexp(t *testing.T) {
	tok, _ := variant(t, "o200k")
	for _, unit := range []string{"a", " ", "ab", "1", "-", " \n", "Aa", "中", "word "} {
		s := strings.Repeat(unit, 100000/len(unit))
		start := time.Now()
		ids := tok.Encode(s, false)
		if d := time.Since(start); d > time.Minute {
			t.Errorf("%q × %d took %v", unit, len(s)/len(unit), d)
		}
		if got := tok.Decode(ids, false); got != s {
			t.Errorf("%q × %d does not come back", unit, len(s)/len(unit))
		}
	}
}

func TestHostileTokenizers(t *testing.T) {
	_, good := variant(t, "gpt2")
	var tree map[string]any
	edit := func(f func()) []byte {
		tree = nil
		if err := json.Unmarshal(good, &tree); err != nil {
			t.Fatal(err)
		}
		f()
		b, _ := json.Marshal(tree)
		return b
	}
	model := func() map[string]any { return tree["model"].(map[string]any) }
	pre := func(v any) []byte { return edit(func() { tree["pre_tokenizer"] = v }) }
	tests := []struct {
		name, field string
		kind        malformed.Kind
		b           []byte
	}{
		{"empty", "", malformed.Syntax, nil},
		{"no json", "", malformed.Syntax, []byte("{\n\"a\": 1,\nnope")},
		{"deep", "", malformed.Syntax, []byte(strings.Repeat("[", 200000))},
		{"list", "", malformed.Type, []byte("[]")},
		{"model", "model.type", malformed.Unsupported, edit(func() { model()["type"] = "Odd" })},
		{"unigram", "model.vocab", malformed.Type, edit(func() { model()["type"] = "Unigram" })},
		{"no scores", "model.vocab", malformed.Type, edit(func() { model()["type"] = "Unigram"; model()["vocab"] = []any{[]any{"a"}} })},
		{"unknown of unigram", "model.unk_id", malformed.Range, edit(func() {
			model()["type"] = "Unigram"
			model()["vocab"] = []any{[]any{"a", -1.5}}
			model()["unk_id"] = 1
		})},
		{"wordpiece", "model.unk_token", malformed.Missing, edit(func() { model()["type"] = "WordPiece"; model()["unk_token"] = "nope" })},
		{"dropout", "model.dropout", malformed.Unsupported, edit(func() { model()["dropout"] = 0.1 })},
		{"no vocab", "model.vocab", malformed.Missing,
			edit(func() { model()["vocab"] = map[string]any{}; tree["added_tokens"] = nil; model()["merges"] = []any{} })},
		{"huge id", "model.vocab", malformed.Range, edit(func() { model()["vocab"].(map[string]any)["a"] = 4000000000 })},
		{"negative id", "model.vocab", malformed.Range, edit(func() { model()["vocab"].(map[string]any)["a"] = -1 })},
		{"same id", "model.vocab", malformed.Duplicate, edit(func() { model()["vocab"].(map[string]any)["a"] = 5 })},
		{"missing merge", "model.merges", malformed.Missing, edit(func() { model()["merges"] = []any{"q q"} })},
		{"odd merge", "model.merges", malformed.Syntax, edit(func() { model()["merges"] = []any{"abc"} })},
		{"merge of three", "model.merges", malformed.Syntax, edit(func() { model()["merges"] = []any{[]string{"a", "b", "c"}} })},
		{"merges of numbers", "model.merges", malformed.Type, edit(func() { model()["merges"] = 7 })},
		{"unk", "model.unk_token", malformed.Missing, edit(func() { model()["unk_token"] = "nope" })},
		{"odd pre", "pre_tokenizer", malformed.Unsupported, pre(map[string]any{"type": "Odd"})},
		{"metaspace", "pre_tokenizer", malformed.Range, pre(map[string]any{"type": "Metaspace"})},
		{"scheme", "pre_tokenizer", malformed.Range, pre(map[string]any{"type": "Metaspace", "replacement": "_", "prepend_scheme": "odd"})},
		{"delimiter", "pre_tokenizer", malformed.Range, pre(map[string]any{"type": "CharDelimiterSplit", "delimiter": "ab"})},
		{"length", "pre_tokenizer", malformed.Range, pre(map[string]any{"type": "FixedLength", "length": 0})},
		{"class within class", "pre_tokenizer", malformed.Syntax, pre(map[string]any{"type": "Split", "behavior": "Isolated",
			"pattern": map[string]any{"Regex": "[a[b]]"}})},
		{"pattern without end", "pre_tokenizer", malformed.Syntax, pre(map[string]any{"type": "Split", "behavior": "Isolated",
			"pattern": map[string]any{"Regex": "(a+)+$"}})},
		{"bad regex", "pre_tokenizer", malformed.Syntax, pre(
			map[string]any{
				"type": "Sequence", "pretokenizers": []any{map[string]any{"type": "Split", "behavior": "Isolated",
					"pattern": map[string]any{"Regex": "("}}, map[string]any{"type": "ByteLevel", "use_regex": false}}})},
		{"no pattern", "pre_tokenizer", malformed.Missing, pre(map[string]any{"type": "Split"})},
		{"behavior", "pre_tokenizer", malformed.Range, pre(map[string]any{"type": "Split", "behavior": "Odd",
			"pattern": map[string]any{"String": "x"}})},
		{"normalizer", "normalizer", malformed.Unsupported, edit(func() { tree["normalizer"] = map[string]any{"type": "Odd"} })},
		{"growth", "normalizer", malformed.Range, edit(func() {
			double := map[string]any{"type": "Replace", "pattern": map[string]any{"String": "a"}, "content": "aa"}
			tree["normalizer"] = map[string]any{"type": "Sequence", "normalizers": slices.Repeat([]any{double}, 64)}
		})},
		{"charsmap", "normalizer", malformed.Truncated, edit(func() {
			tree["normalizer"] = map[string]any{"type": "Precompiled", "precompiled_charsmap": "/////w=="}
		})},
		{"decoder", "decoder", malformed.Unsupported, edit(func() { tree["decoder"] = map[string]any{"type": "Odd"} })},
		{"strip", "decoder", malformed.Range, edit(func() { tree["decoder"] = map[string]any{"type": "Strip", "content": "ab"} })},
		{"two texts", "post_processor", malformed.Unsupported, edit(func() {
			a := map[string]any{"Sequence": map[string]any{"id": "A"}}
			tree["post_processor"] = map[string]any{"type": "TemplateProcessing", "single": []any{a, a}}
		})},
		{"post", "post_processor", malformed.Unsupported, edit(func() { tree["post_processor"] = map[string]any{"type": "Bert"} })},
		{"added id taken", "added_tokens", malformed.Duplicate, edit(func() { tree["added_tokens"].([]any)[0].(map[string]any)["id"] = 3 })},
		{"added token too long", "added_tokens", malformed.Range,
			edit(func() { tree["added_tokens"].([]any)[0].(map[string]any)["content"] = strings.Repeat("a", 1025) })},
	}
	lines := map[string]int{"empty": 1, "no json": 3, "deep": 1}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parseJSON("tokenizer.json", tt.b)
			if err == nil {
				t.Fatal("no error")
			}
			got := malformed.Facts(err)
			if line := lines[tt.name]; got.Line != line {
				t.Errorf("%q is of line %d, want %d", err, got.Line, line)
			}
			got.Line = 0
			if want := (malformed.Error{Path: "tokenizer.json", Field: tt.field, Kind: tt.kind}); got != want || strings.Contains(err.Error(),
				"\n") {
				t.Errorf("%q: %+v, want %+v", err, got, want)
			}
		})
	}
	// A cycle among merges cannot be: each makes a longer token. A pair that
	// makes one of its parts is only an absent token.
	b := edit(func() { model()["merges"] = []any{"a b", "ab c", "b c", "a bc"} })
	tok, err := parseJSON("tokenizer.json", b)
	if err != nil || tok.Decode(tok.Encode("abcabc", false), false) != "abcabc" {
		t.Errorf("two ways to one token: %v", err)
	}
}

func FuzzRoundTrip(f *testing.F) {
	for _, s := range []string{"the thing 123", "<A> x<B>  y", "é\u0301 中\n\n \t", "'s'LL"} {
		f.Add(s)
	}
	var toks []*Tokenizer
	for _, name := range []string{"gpt2", "digits each", "o200k", "deepseek", "split regex Contiguous True", "no regex"} {
		tok, _ := variant(f, name)
		toks = append(toks, tok)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !utf8.ValidString(s) {
			return
		}
		for _, tok := range toks {
			ids := tok.EncodeOrdinary(s)
			if got := tok.Decode(ids, false); got != s {
				t.Fatalf("%q came back as %q", s, got)
			}
			for _, id := range ids {
				if tok.Special(id) {
					t.Fatalf("%q made the special token %d", s, id)
				}
			}
			st, out := tok.NewStream(false), ""
			for _, id := range ids {
				part := st.Add(id)
				if !utf8.ValidString(part) {
					t.Fatalf("the stream broke a character: %q", part)
				}
				out += part
			}
			if out+st.Flush() != s {
				t.Fatalf("the stream of %q gave %q", s, out)
			}
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("\xf0\x9f\x98\x80\xe4\xb8"))
	f.Add([]byte("\xed\xa0\x80\xf4\x90\x80\x80\xc0\xaf"))
	tok, _ := variant(f, "gpt2")
	f.Fuzz(func(t *testing.T, b []byte) {
		st, out := tok.NewStream(false), ""
		var ids []int32
		for _, c := range b {
			id := tok.model.(*bpe).bytes[c]
			ids = append(ids, id)
			out += st.Add(id)
		}
		out += st.Flush()
		want := tok.Decode(ids, false)
		if out != want || !utf8.ValidString(want) {
			t.Fatalf("%x: the stream gives %q, Decode %q", b, out, want)
		}
	})
}

func FuzzTokenizerJSON(f *testing.F) {
	_, b := variant(f, "gpt2")
	f.Add(b)
	var g kindsFile
	goldenfile.Load(f, "kinds.json", &g)
	for _, k := range g.Tokenizers[:12] {
		f.Add(k.file(f, g))
	}
	f.Add([]byte(`{"model":{"type":"BPE","vocab":{"a":0},"merges":[]},"pre_tokenizer":{"type":"ByteLevel"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		tok, err := parseJSON("f", b)
		if err != nil {
			if bytes.ContainsRune([]byte(err.Error()), '\n') {
				t.Errorf("more than one line: %q", err)
			}
			return
		}
		tok.Decode(tok.Encode("the <A> thing 12\n", true), true)
		tok.Hash()
	})
}
