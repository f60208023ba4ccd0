package grammar

import (
	"encoding/json"
	"math/rand/v2"
	"regexp"
	"regexp/syntax"
	"strings"
	"sync"
	"testing"
	"time"

	"agentcli/internal/schema"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

var fuzzVocabulary = sync.OnceValues(func() (*Vocabulary, int32) { return testVocabulary(500) })

// FuzzJSONSchema: whatever the schema is, it becomes a grammar or an error soon, and what the
// grammar writes is valid.
func FuzzJSONSchema(f *testing.F) {
	for _, s := range realSchemas(f) {
		f.Add([]byte(s), uint64(1))
	}
	f.Fuzz(func(t *testing.T, text []byte, seed uint64) {
		start := time.Now()
		for _, format := range []string{"hermes", "qwen3-coder"} {
			_, _ = ToolCalls(Calls{Format: format, Tools: []Tool{{"f", text}}}, Options{})
		}
		g, err := JSONSchema(text, Options{MaxDigits: 9})
		if took := time.Since(start); took > 5*time.Second {
			t.Fatalf("took %v", took)
		}
		if err != nil {
			return
		}
		s, err := compileAsserting(text)
		if err != nil {
			return // a keyword's value that makes no sense to the validator
		}
		v, end := fuzzVocabulary()
		out, whole := randomText(t, g.Matcher(v), v, end, rand.New(rand.NewPCG(seed, 1)), 60)
		if !whole {
			return
		}
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(out))
		if err != nil {
			t.Fatalf("%q: %v", out, err)
		}
		doc, _, large := schema.Representable(doc)
		if large == "" && schema.Validate(s, doc) != nil {
			t.Fatalf("%q: %v", out, schema.Validate(s, doc))
		}
	})
}

func compileAsserting(text json.RawMessage) (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("schema:text", doc); err != nil {
		return nil, err
	}
	return c.Compile("schema:text")
}

// FuzzRegexp: whatever the expression is, it becomes a grammar or an error soon, and what the
// grammar writes matches.
func FuzzRegexp(f *testing.F) {
	for _, p := range []string{`a+b*`, `(?i)x|y{2,3}`, `^\d{1,3}(,\d{3})*$`, `[^a-c]\pL`, `(a|ab)(c|bcd)(d*)`, `\x{10FFFF}?é`, `^a|b$`, `.*`,
		`(?s).{0,9}`, `\Qa.b`} {
		f.Add(p, uint64(1))
	}
	f.Fuzz(func(t *testing.T, pattern string, seed uint64) {
		start := time.Now()
		g, err := Regexp(pattern)
		if took := time.Since(start); took > 5*time.Second {
			t.Fatalf("took %v", took)
		}
		if err != nil {
			return
		}
		v, end := fuzzVocabulary()
		out, whole := randomText(t, g.Matcher(v), v, end, rand.New(rand.NewPCG(seed, 1)), 60)
		tree, err := syntax.Parse(hexEscapes(pattern), syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		if whole && !regexp.MustCompile(`^(?:`+tree.String()+`)$`).MatchString(out) {
			t.Fatalf("%q does not match %s", out, pattern)
		}
	})
}
