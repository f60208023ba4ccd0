package grammar

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"testing"
)

type document struct {
	Schema int
	Valid  bool
	Text   string
}

func documents(t testing.TB) (out []document) {
	text, err := os.ReadFile("testdata/documents.jsonl") // of scripts/golden/grammar.py
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var d document
		if err := json.Unmarshal(line, &d); err != nil {
			t.Fatal(err)
		}
		out = append(out, d)
	}
	return out
}

// cut writes a text in random tokens of a vocabulary.
func (v *Vocabulary) cut(text []byte, r *rand.Rand) (ids []int32) {
	for len(text) > 0 {
		at, i := int32(0), 0
		var found []int32
		for ; i < len(text); i++ {
			child := at + 1
			for child < v.tokenAt.nodes[at].end && v.tokenAt.nodes[child].char != text[i] {
				child = v.tokenAt.nodes[child].end
			}
			if child == v.tokenAt.nodes[at].end {
				break
			}
			at = child
			found = append(found, v.tokenAt.at(at)...)
		}
		id := found[r.IntN(len(found))]
		ids = append(ids, id)
		text = text[len(v.tokens[id]):]
	}
	return ids
}

// What jsonschema finds valid is accepted in whatever tokens it is written, what it finds
// invalid is not.
func TestDocumentsAreAcceptedAsJSONSchemaSays(t *testing.T) {
	v, end := testVocabulary(1500)
	r := rand.New(rand.NewPCG(7, 8))
	schemas := realSchemas(t)
	mask := make([]uint32, (v.Size()+31)/32)
	grammars := map[int]*Grammar{}
	for _, d := range documents(t) {
		g := grammars[d.Schema]
		if g == nil {
			var err error
			if g, err = JSONSchema(schemas[d.Schema], Options{}); err != nil {
				t.Fatalf("%s: %v", schemas[d.Schema], err)
			}
			grammars[d.Schema] = g
		}
		m := g.Matcher(v)
		refused := ""
		for _, id := range append(v.cut([]byte(d.Text), r), end) {
			m.Fill(mask)
			allowed := mask[id/32]&(1<<(id%32)) != 0
			if allowed != m.Accept(id) {
				t.Fatalf("%s: %s: mask and Accept differ at %q", schemas[d.Schema], d.Text, v.tokens[id])
			}
			if !allowed {
				refused = string(v.tokens[id])
				if id == end {
					refused = "the end"
				}
				break
			}
		}
		if (refused == "") != d.Valid {
			t.Errorf("%s: %s: valid %v, refused %q", schemas[d.Schema], d.Text, d.Valid, refused)
		}
	}
}

// What pydantic writes of a model's values is accepted by its schema's grammar.
func TestPydanticsDocumentsAreAccepted(t *testing.T) {
	text, err := os.ReadFile("testdata/pydantic.json") // of scripts/golden/grammar_pydantic.py
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Schema    json.RawMessage
		Documents []string
	}
	if err := json.Unmarshal(text, &golden); err != nil || len(golden.Documents) == 0 {
		t.Fatal(err)
	}
	g, err := JSONSchema(golden.Schema, Options{})
	if err != nil {
		t.Fatal(err)
	}
	v, _ := testVocabulary(0)
	for _, d := range golden.Documents {
		m := g.Matcher(v)
		for i := range len(d) {
			if !m.AcceptBytes([]byte{d[i]}) {
				t.Errorf("refused at the end of %s", d[:i+1])
				break
			}
		}
		if !m.Complete() {
			t.Errorf("%s is not complete", d)
		}
	}
}
