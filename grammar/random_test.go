package grammar

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"agentcli/internal/schema"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// randomSchema is a schema of the supported keywords. Its definitions are a, b and c.
func randomSchema(r *rand.Rand, depth int) any {
	type object = map[string]any
	pick := func(of ...any) any { return of[r.IntN(len(of))] }
	if depth <= 0 {
		return pick(object{"type": "integer"}, object{"type": "boolean"}, object{"type": "null"}, object{"enum": []any{"x", 1, nil}},
			object{"type": "string", "maxLength": r.IntN(6)})
	}
	sub := func() any { return randomSchema(r, depth-1) }
	s := object{}
	if r.IntN(4) == 0 {
		s["description"] = "x"
	}
	maybe := func(name string, v any) {
		if r.IntN(3) == 0 {
			s[name] = v
		}
	}
	switch r.IntN(10) {
	case 0, 1, 2:
		s["type"] = pick("object", []string{"object", "null"})
		properties, required := object{}, []string{}
		for i := range r.IntN(4) {
			name := fmt.Sprint(pick("p", "q", "é\"", "x_"), i)
			if properties[name] = sub(); r.IntN(2) == 0 {
				required = append(required, name)
			}
		}
		s["properties"], s["required"] = properties, required
		maybe("additionalProperties", pick(false, true, sub()))
		maybe("propertyNames", pick(object{"maxLength": 4}, object{"enum": []any{"p0", "q0", "x_1", "x_9"}}, object{"pattern": "[0-9x]"}))
		maybe("patternProperties", object{pick("^x_", "[0-9]$", "é").(string): sub()})
	case 3, 4:
		s["type"] = "array"
		maybe("items", sub())
		maybe("prefixItems", []any{sub(), sub()})
		maybe("minItems", r.IntN(4))
		maybe("maxItems", r.IntN(6))
	case 5:
		s["type"] = pick("integer", "number")
		maybe("minimum", float64(r.IntN(4000)-2000)/float64(pick(1, 8, 100).(int)))
		maybe("exclusiveMaximum", float64(r.IntN(4000)-1000)/float64(pick(1, 4, 1000).(int)))
		maybe("maximum", r.IntN(100000))
		maybe("multipleOf", pick(3, 0.1, 25, 0.001))
	case 6:
		s["type"] = "string"
		maybe("minLength", r.IntN(5))
		maybe("maxLength", r.IntN(30))
		maybe("pattern", pick("^[a-f]{2,9}$", "x|^y+$", `\d.\d`, "[é世\"]+$", `^(a|bc)*$`))
		maybe("format", pick("date", "ipv4", "time"))
	case 7:
		s[pick("anyOf", "allOf", "anyOf").(string)] = []any{sub(), sub()}
	case 8:
		s["$ref"] = "#/$defs/" + pick("a", "b", "c").(string)
	default:
		s["anyOf"] = []any{sub(), object{"$ref": "#/$defs/" + pick("a", "b", "c").(string)}}
		maybe("type", pick("object", []string{"array", "string", "object"}))
	}
	return s
}

// Whatever supported keywords a schema has, together and in each other, texts are valid, and
// a schema that is refused as one that no value meets has none of the validator's either.
func TestTextsOfRandomSchemasAreValid(t *testing.T) {
	v, end := testVocabulary(800)
	r := rand.New(rand.NewPCG(11, 12))
	grammars, finished, values := 0, 0, randomValues(r)
	for range 400 {
		root, _ := randomSchema(r, 3).(map[string]any)
		root["$defs"] = map[string]any{"a": randomSchema(r, 2), "b": randomSchema(r, 2), "c": randomSchema(r, 1)}
		text, err := json.Marshal(root)
		if err != nil {
			t.Fatal(err)
		}
		g, err := JSONSchema(text, Options{MaxDigits: 9})
		s := checker(t, text)
		if err != nil {
			if wrong := (*SchemaError)(nil); !errors.As(err, &wrong) || !wrong.NoValue {
				continue
			}
			for _, x := range values {
				if schema.Validate(s, x) == nil {
					t.Errorf("%s: %v, but %v is valid", text, err, x)
				}
			}
			continue
		}
		grammars++
		for _, x := range values {
			out, err := json.Marshal(x)
			if err != nil {
				t.Fatal(err)
			}
			if want := schema.Validate(s, x) == nil; accepts(g, v, string(out)) != want {
				t.Errorf("%s: %s is valid: %v; it is accepted: %v", text, out, want, !want)
			}
		}
		for range 8 {
			out, whole := randomText(t, g.Matcher(v), v, end, r, 120)
			if !whole {
				continue
			}
			finished++
			doc, err := jsonschema.UnmarshalJSON(strings.NewReader(out))
			if err != nil {
				t.Fatalf("%s: %q is not JSON: %v", text, out, err)
			}
			if doc, _, _ = schema.Representable(doc); schema.Validate(s, doc) != nil {
				t.Errorf("%s: %q: %v", text, out, schema.Validate(s, doc))
			}
		}
	}
	if grammars < 200 || finished < 1000 {
		t.Errorf("%d grammars, %d texts", grammars, finished)
	}
	t.Logf("%d grammars, %d texts", grammars, finished)
}

func randomValues(r *rand.Rand) []any {
	out := []any{nil, true, false, "", "x", "ab", "abcabc", "y", "1x2", "2020-01-01", "1.2.3.4", map[string]any{}, []any{}, []any{nil, nil}}
	for range 300 {
		out = append(out, json.Number(fmt.Sprint(r.IntN(3000)-1500)), json.Number(fmt.Sprint(float64(r.IntN(30000)-5000)/1000)))
	}
	return out
}
