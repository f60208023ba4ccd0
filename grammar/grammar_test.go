package grammar

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"agentcli/internal/schema"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// testVocabulary has all bytes, JSON's usual fragments, words, parts of characters, special
// tokens and an end.
func testVocabulary(words int) (v *Vocabulary, end int32) {
	var tokens [][]byte
	var special []bool
	add := func(s string, is bool) int32 {
		tokens, special = append(tokens, []byte(s)), append(special, is)
		return int32(len(tokens) - 1)
	}
	for c := range 256 {
		add(string([]byte{byte(c)}), false)
	}
	tokens = append(tokens, nil)
	special = append(special, false)
	for _, s := range []string{`{"`, `":`, `": `, `": "`, `", "`, `"}`, `"]`, `"},`, `,"`, `, `, `,\n`, "\n  ", "\n    ",
		`[]`, `{}`, `[{"`, `"}]`,
		`}}`, `]]`, `[[`, `1}`, `0.`, `12`, `100`, `-1`, `e+`, `true`, `false`, `null`, ` true`, ` null`, ` "`, ` [`, ` {`,
		`\u`, `\"`, `\\`, `\n`,
		"\xe4\xb8", "\xad\xe6", "\x96\x87", "é", "\xc3", "\xf0\x9f", "\xf0\x9f\x98\x80", `a": `, `name`, `id`, `value`, `"a"`, `"b": `, `.5`,
		"<tool_call>", "</tool_call>", "\n</tool", "<tool", "_call>", "\"}}\n", "arguments", `{"name": "`, `"arguments": {"`} {
		add(s, false)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range words {
		s := make([]byte, 2+r.IntN(8))
		for i := range s {
			s[i] = `etaoinshrdlucmfwypvbgkjqxz "{}[],:.0123456789-\/ETAOIN`[r.IntN(54)]
		}
		if r.IntN(3) == 0 {
			s[0] = ' '
		}
		add(string(s), false)
	}
	add("[TOOL_CALLS]", true)
	add("<|im_start|>", true)
	end = add("<|im_end|>", true)
	tokens = append(tokens, nil, nil)
	return NewVocabulary(tokens, append(special, false, false), []int32{end}), end
}

// realSchemas are those of the files in testdata: one JSON object a line.
func realSchemas(t testing.TB) (out []json.RawMessage) {
	text, err := os.ReadFile("testdata/schemas.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		out = append(out, bytes.TrimSpace(line))
	}
	return out
}

func checker(t testing.TB, text json.RawMessage) *jsonschema.Schema {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("schema:text", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema:text")
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return s
}

// randomText draws tokens among those that are allowed until the end comes. After some tokens
// it prefers to end, and what closes things.
func randomText(t testing.TB, m *Matcher, v *Vocabulary, end int32, r *rand.Rand, most int) (string, bool) {
	mask := make([]uint32, (v.Size()+31)/32)
	var out []byte
	for n := range most {
		m.Fill(mask)
		var ids []int32
		for id := range int32(v.Size()) {
			if mask[id/32]&(1<<(id%32)) != 0 {
				ids = append(ids, id)
			}
		}
		if len(ids) == 0 {
			t.Fatalf("nothing may follow %q", out)
		}
		id := ids[r.IntN(len(ids))]
		if n > 15 {
			var closing []int32
			for _, i := range ids {
				if s := v.tokens[i]; i == end || len(s) > 0 && strings.IndexByte(`"}]`, s[0]) >= 0 {
					closing = append(closing, i)
				}
			}
			if mask[end/32]&(1<<(end%32)) != 0 {
				closing = []int32{end}
			}
			if len(closing) > 0 && r.IntN(4) > 0 {
				id = closing[r.IntN(len(closing))]
			}
		}
		if !m.Accept(id) {
			t.Fatalf("after %q token %q was allowed and refused", out, v.tokens[id])
		}
		if id == end {
			return string(out), true
		}
		out = append(out, v.tokens[id]...)
	}
	return string(out), false
}

func TestTextsOfASchemaAreValid(t *testing.T) {
	v, end := testVocabulary(3000)
	r := rand.New(rand.NewPCG(3, 4))
	schemas := realSchemas(t)
	finished, walks := 0, 0
	for _, text := range schemas {
		g, err := JSONSchema(text, Options{MaxDigits: 12})
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		s := checker(t, text)
		for range max(1000/len(schemas), 12) {
			walks++
			out, whole := randomText(t, g.Matcher(v), v, end, r, 150)
			if !whole {
				continue
			}
			finished++
			if !utf8.ValidString(out) {
				t.Errorf("%s: %q is not UTF-8", text, out)
			}
			doc, err := jsonschema.UnmarshalJSON(strings.NewReader(out))
			if err != nil {
				t.Errorf("%s: %q is not JSON: %v", text, out, err)
				continue
			}
			if doc, _, _ = schema.Representable(doc); schema.Validate(s, doc) != nil {
				t.Errorf("%s: %q: %v", text, out, s.Validate(doc))
			}
		}
	}
	if finished < walks/2 {
		t.Errorf("only %d of %d texts were finished", finished, walks)
	}
	t.Logf("%d of %d texts were finished, %d schemas", finished, walks, len(schemas))
}

// Masks equal the definition: a token is allowed where its bytes are, one after the other.
func TestMasksEqualTheirDefinition(t *testing.T) {
	v, end := testVocabulary(1500)
	r := rand.New(rand.NewPCG(5, 6))
	mask := make([]uint32, (v.Size()+31)/32)
	check := func(t *testing.T, name string, g *Grammar) {
		for range 3 {
			m := g.Matcher(v)
			for range 25 {
				m.Fill(mask)
				var ids []int32
				for id := range int32(v.Size()) {
					got := mask[id/32]&(1<<(id%32)) != 0
					if want := m.Clone().Accept(id); got != want {
						t.Fatalf("%s: token %q: mask says %v, its bytes %v", name, v.tokens[id], got, want)
					}
					if got {
						ids = append(ids, id)
					}
				}
				if len(ids) == 0 {
					t.Fatalf("%s: nothing is allowed", name)
				}
				id := ids[r.IntN(len(ids))]
				if m.Accept(id); id == end {
					break
				}
			}
		}
	}
	for _, text := range realSchemas(t) {
		g, err := JSONSchema(text, Options{})
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		check(t, string(text), g)
	}
	for range 40 {
		root, _ := randomSchema(r, 3).(map[string]any)
		root["$defs"] = map[string]any{"a": randomSchema(r, 2), "b": randomSchema(r, 1), "c": randomSchema(r, 1)}
		text, err := json.Marshal(root)
		if err != nil {
			t.Fatal(err)
		}
		if g, err := JSONSchema(text, Options{}); err == nil {
			check(t, string(text), g)
		}
	}
	for _, p := range []string{`[a-z]+( [a-z]+)*`, `(?i)yes|no`, `\d{3}-\d{4}`, `[^x]*x`, `\p{Greek}{2,5}|.{0,40}`, `"(a|é|世){1,70}"`} {
		g, err := Regexp(p)
		if err != nil {
			t.Fatal(err)
		}
		check(t, p, g)
	}
	check(t, "object", JSONObject(Options{}))
}
