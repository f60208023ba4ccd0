package grammar

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// A keyword that is not supported, or a schema that no value meets, is an error that says where.
func TestSchemasThatHaveNoGrammarAreErrors(t *testing.T) {
	for text, where := range map[string]string{
		`{"properties":{"a":{"not":{}}}}`:                                    `#/properties/a/not`,
		`{"type":"array","uniqueItems":true}`:                                `#/uniqueItems`,
		`{"items":{"format":"color"},"type":"array"}`:                        `#/items/format`,
		`{"type":"string","pattern":"(?=a)b"}`:                               `#/pattern`,
		`{"type":"string","pattern":"a\\bc"}`:                                `#/pattern`,
		`{"enum":[]}`:                                                        `#`,
		`{"type":"array","minItems":3,"maxItems":2}`:                         `#`,
		`{"type":"string","minLength":3,"maxLength":2}`:                      `#`,
		`{"type":"integer","minimum":3,"maximum":2}`:                         `#`,
		`{"type":"integer","exclusiveMinimum":2,"maximum":2}`:                `#`,
		`{"type":"number","multipleOf":0.3}`:                                 `#/multipleOf`,
		`{"allOf":[{"type":"string"},{"type":"integer"}]}`:                   `#/allOf/1`,
		`{"type":"string","pattern":"^a{3}$","maxLength":2}`:                 `#`,
		`{"type":"text"}`:                                                    `#/type`,
		`{"$ref":"#/$defs/x"}`:                                               `#/$ref`,
		`{"$ref":"other.json"}`:                                              `#/$ref`,
		`{"$ref":"#"}`:                                                       `#`,
		`{"oneOf":[{"type":"integer"},{"type":"number"}]}`:                   `#/oneOf`,
		`{"type":"string","enum":["a"],"maxLength":3}`:                       `#/maxLength`,
		`{"type":"object","required":["a"],"properties":{"a":false}}`:        `#`,
		`{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}`: `#`,
		`{"anyOf":[{"$ref":"#"},{"type":"string"}]}`:                         `#`,
		`{"propertyNames":{"pattern":"^b"},"required":["a"]}`:                `#`,
		`false`:             `#`,
		`3`:                 `#`,
		`{"type":"object"`:  ``,
		`{"anyOf":[]}`:      `#/anyOf`,
		`{"minLength":-1}`:  `#/minLength`,
		`{"minItems":"x"}`:  `#/minItems`,
		`{"minimum":1e999}`: `#/minimum`,
		strings.Repeat(`{"items":`, 300) + `{}` + strings.Repeat(`}`, 300): ``,
	} {
		g, err := JSONSchema(json.RawMessage(text), Options{})
		if err == nil || g != nil {
			t.Errorf("%.80s has a grammar", text)
			continue
		}
		var wrong *SchemaError
		if errors.As(err, &wrong) != (where != "") || wrong != nil && wrong.Path != where {
			t.Errorf("%s: %v is not at %s", text, err, where)
		}
	}
}

// A stranger's schema or expression costs no more than its bounds.
func TestALargeGrammarIsBuiltOrRefused(t *testing.T) {
	var deep strings.Builder
	deep.WriteString(`{"$defs":{"a0":{"type":"string"}`)
	for i := range 40 { // doubles at each step
		n, m := fmt.Sprint("a", i+1), fmt.Sprint("a", i)
		fmt.Fprintf(&deep, `,%q:{"allOf":[{"anyOf":[{"$ref":"#/$defs/%s"},{"minLength":1}]},`, n, m)
		fmt.Fprintf(&deep, `{"anyOf":[{"$ref":"#/$defs/%s"},{"maxLength":9}]}]}`, m)
	}
	deep.WriteString(`},"$ref":"#/$defs/a40"}`)
	built := map[int]bool{2: true, 6: true}
	for i, text := range []string{
		deep.String(),
		`{"type":"array","minItems":20000,"items":{"type":"array","minItems":20000,"items":{"type":"array","minItems":20000}}}`,
		`{"type":"array","maxItems":20000,"items":{"type":"object","properties":{"a":{"type":"string"},"b":{"enum":[1,2,3]}}}}`,
		`{"type":"string","pattern":"(a|b)*a(a|b){30}"}`,
		`{"type":"string","pattern":"^(\\p{L}{1,999}){1,999}$"}`,
		`{"type":"object","patternProperties":{"` + strings.Repeat("(a|b)*a", 12) + `":{},"(a|b)*b(a|b){12}":{},"(b|a)*b(a|c){11}":{}}}`,
		`{"enum":[` + strings.Repeat(`"`+strings.Repeat("abc", 1000)+`",`, 200) + `1]}`,
		`{"oneOf":[` + strings.Repeat(`{"type":"object","required":["a"],"properties":{"a":{"const":1}}},`, 3000) + `{"type":"null"}]}`,
		`{"properties":{` + manyNames(20000) + `}}`,
	} {
		start := time.Now()
		_, err := JSONSchema(json.RawMessage(text), Options{})
		t.Logf("%.60s: %v, %.200v", text, time.Since(start), err)
		if (err == nil) != built[i] {
			t.Errorf("%.60s: %v", text, err)
		}
	}
	for p, ok := range map[string]bool{`(a|b)*a(a|b){30}`: false, `((a{0,99}){0,9}){0,9}`: false, `(x+x+)+y`: true, `[^a]{1000}`: true,
		`(?i)\pL{200}`: true} {
		start := time.Now()
		_, err := Regexp(p)
		t.Logf("%s: %v %v", p, time.Since(start), err)
		if (err == nil) != ok {
			t.Errorf("%s: %v", p, err)
		}
	}
}

func manyNames(n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		name, _ := json.Marshal("k" + strings.Repeat("x", i%7) + string(rune(0x4e00+i)))
		b.Write(name)
		b.WriteString(`:{"type":"string"}`)
	}
	return b.String()
}

// accepts reports whether a text is in the language.
func accepts(g *Grammar, v *Vocabulary, text string) bool {
	m := g.Matcher(v)
	return m.AcceptBytes([]byte(text)) && m.Complete()
}

func TestStringsOfJSONHaveNoLoneSurrogate(t *testing.T) {
	v, _ := testVocabulary(0)
	g, err := JSONSchema(json.RawMessage(`{"type":"string","minLength":1,"maxLength":2}`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		`"\ud83d\ude00"`: true, `"\ud83d\ude00\uD83D\uDE00"`: true, `"\ud83d\ude00\ud83d\ude00x"`: false, `"\ud83d"`: false,
		`"\ude00\ud83d"`: false, `"\ud83dx"`: false, `"é世"`: true, `"😀😀"`: true, `"😀😀😀"`: false, `""`: false, `"\u00e9\n"`: true,
		"\"\n\"": false, "\"\xed\xa0\x80\"": false, "\"\xc0\x80\"": false, "\"\xf5\x80\x80\x80\"": false, `"\x41"`: false, `"\/"`: true,
	} {
		if accepts(g, v, text) != want {
			t.Errorf("%s: accepted %v", text, !want)
		}
	}
}

func TestWhiteSpaceIsBounded(t *testing.T) {
	v, _ := testVocabulary(0)
	for text, how := range map[string][3]bool{ // default, compact, no line breaks
		`{"a":1,"b":[1,2]}`:                                 {true, true, true},
		`{"a": 1, "b": [1, 2]}`:                             {true, false, true},
		"{\n  \"a\": 1,\n  \"b\": [\n    1,\n    2\n  ]\n}": {true, false, false},
		`{"a":  1}`:      {false, false, false},
		"{\n\n\"a\": 1}": {false, false, false},
		"{\n" + strings.Repeat(" ", 33) + "\"a\": 1}": {false, false, false},
		` {"a": 1}`:           {false, false, false},
		`{"a": 1} `:           {false, false, false},
		`{ }`:                 {true, false, true},
		`{"a": 1, "a": 2e99}`: {true, false, true},
		`{"a": 01}`:           {false, false, false},
		`{"a": 1,}`:           {false, false, false},
		`[1]`:                 {false, false, false},
	} {
		for i, o := range []Options{{}, {Compact: true}, {MaxIndent: -1}} {
			if accepts(JSONObject(o), v, text) != how[i] {
				t.Errorf("%q, %+v: accepted %v", text, o, !how[i])
			}
		}
	}
}

// A special token is allowed only where it is named, and its letters are not the token.
func TestASpecialTokenIsAllowedWhereItIsNamed(t *testing.T) {
	v, end := testVocabulary(0)
	b := Options{}.budget()
	g, err := finish(b.compile(specialOf("[TOOL_CALLS]")), b, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := g.Matcher(v)
	mask := make([]uint32, (v.Size()+31)/32)
	m.Fill(mask)
	var ids []int32
	for id := range int32(v.Size()) {
		if mask[id/32]&(1<<(id%32)) != 0 {
			ids = append(ids, id)
		}
	}
	special := int32(slices.IndexFunc(v.tokens, func(b []byte) bool { return string(b) == "\xff[TOOL_CALLS]\xff" }))
	if !slices.Equal(ids, []int32{special}) {
		t.Errorf("allowed %v, not %d alone", ids, special)
	}
	if !m.Accept(special) || !m.Stuck() || !m.Complete() || !m.Accept(end) || m.Accept(end) || m.Complete() {
		t.Error("the end comes once, after the token")
	}
	if m.Fill(mask); slices.ContainsFunc(mask, func(w uint32) bool { return w != 0 }) {
		t.Error("something is allowed after the end")
	}
}

func TestReasoningComesFirst(t *testing.T) {
	v, _ := testVocabulary(0)
	for thinking, how := range map[Thinking]map[string]bool{
		ThinkingNever:    {`{}`: true, `<think>x</think>{}`: false},
		ThinkingMay:      {`{}`: true, "<think>\n{\n</think>\n\n{}": true, `x</think>{}`: false, "<think>\xff</think>\xff{}": true},
		ThinkingIsOpened: {`{}`: false, "\nx</think>\n{}": true, `</think>{}`: true, "</think>\n\n\n{}": false, `x</think>y</think>{}`: false},
	} {
		g, err := AfterThinking(JSONObject(Options{}), thinking, "<think>", "</think>")
		if err != nil {
			t.Fatal(err)
		}
		for text, want := range how {
			if accepts(g, v, text) != want {
				t.Errorf("%d: %q: accepted %v", thinking, text, !want)
			}
		}
	}
	if _, err := AfterThinking(JSONObject(Options{}), ThinkingMay, "", "x"); err == nil {
		t.Error("an empty tag is one")
	}
}

func TestARefusedTokenChangesNothing(t *testing.T) {
	v, end := testVocabulary(300)
	g, err := Choices([]string{"yes", "yes, please", "no"})
	if err != nil {
		t.Fatal(err)
	}
	m := g.Matcher(v)
	if m.Accept(end) || m.Accept(-1) || m.Accept(1<<30) || m.Accept('x') || m.Accept(256) || !m.Accept('y') || m.Complete() {
		t.Fatal("the first token is wrong")
	}
	other := m.Clone()
	if got := string(m.Forced()); got != "es" {
		t.Errorf("%q is forced", got)
	}
	take := func(s string) bool { return m.AcceptBytes([]byte(s)) }
	if !take("es") || !m.Complete() || m.Stuck() || len(m.Forced()) > 0 || take("!") || !take(",") {
		t.Error("a refusal changed the state")
	}
	if got := string(m.Forced()); got != " please" {
		t.Errorf("%q is forced", got)
	}
	if !other.AcceptBytes([]byte("es")) || !other.Accept(end) {
		t.Error("a clone was changed")
	}
}

func TestChoicesAndExpressionsThatAreWrongAreErrors(t *testing.T) {
	for _, p := range []string{`(`, `a\b`, `a(^b)c`, `[^\x00-\x{10FFFF}]`, strings.Repeat("a", 1<<17)} {
		if _, err := Regexp(p); err == nil {
			t.Errorf("%.20s has a grammar", p)
		}
	}
	if _, err := Regexp(`[^\x00-\x{10FFFF}]`); !errors.Is(err, errNoText) {
		t.Error(err)
	}
	for _, c := range [][]string{nil, {"\xff"}} {
		if _, err := Choices(c); err == nil {
			t.Errorf("%q has a grammar", c)
		}
	}
	if !utf8.ValidString(quoted("\xff")) {
		t.Error("an error has bytes that are no text")
	}
}
