package lossscale

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"agentcli/internal/malformed"
)

// readRule reads a rule in ms-swift's form: an object from patterns to one number (the
// weight of what matches), or from keywords to two (the weight of the keyword, and of what
// follows it up to the next). The order of the keys is that in which they are tried. An
// object of "response" and "query" has such an object for each; a text that is in what the
// model was asked gives the whole reply its weight.
func readRule(name string, data []byte) (*rule, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, malformed.Errorf(malformed.Missing, "the file is empty; want an object such as %s", example)
	}
	entries, err := object(data)
	if err != nil {
		return nil, err
	}
	r := &rule{name: name}
	parts := map[string][]entry{"response": entries}
	if nested(entries) {
		parts = map[string][]entry{}
		for _, e := range entries {
			if e.key != "response" && e.key != "query" {
				return nil, malformed.Field(nameOf(e.key), malformed.Unsupported, "want response and query beside each other, and no other key")
			}
			if parts[e.key], err = object(e.value); err != nil {
				return nil, &malformed.Error{Field: nameOf(e.key), Err: err}
			}
		}
	}
	if r.queries, err = keysOf(parts["query"]); err != nil {
		return nil, err
	}
	for _, k := range r.queries {
		if len(k.weights) != 1 {
			return nil, malformed.Field(nameOf(k.text), malformed.Mismatch,
				"a text of query has one number, the weight of the reply; got %v", k.weights)
		}
	}
	if r.keys, err = keysOf(parts["response"]); err != nil {
		return nil, err
	}
	if len(r.keys)+len(r.queries) == 0 {
		return nil, malformed.Errorf(malformed.Missing, "there is no pattern; want an object such as %s", example)
	}
	return r, r.compile()
}

// example is a file of a rule, for errors.
const example = `{"<tool_call>.+?</tool_call>": [2.0]}`

// nameOf is a key as errors name it, on one line.
func nameOf(key string) string {
	if strings.ContainsFunc(key, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }) {
		return strconv.Quote(key)
	}
	return key
}

// entry is a key of an object with its value.
type entry struct {
	key   string
	value json.RawMessage
}

// nested reports whether the entries are objects themselves.
func nested(entries []entry) bool {
	for _, e := range entries {
		if bytes.HasPrefix(bytes.TrimSpace(e.value), []byte("{")) {
			return true
		}
	}
	return false
}

// object reads an object with its keys in order.
func object(data []byte) ([]entry, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, malformed.Errorf(malformed.Syntax, "want a JSON object such as %s", example)
	}
	var entries []entry
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, malformed.Errorf(malformed.Syntax, "not JSON: %w", err)
		}
		e := entry{}
		e.key, _ = t.(string) // a key is a text
		at := d.InputOffset()
		if err := d.Decode(&e.value); err != nil {
			return nil, badValue(e.key, data[at:], err)
		}
		if seen[e.key] {
			return nil, malformed.Field(nameOf(e.key), malformed.Duplicate, "it is there twice; leave one of them out")
		}
		seen[e.key] = true
		entries = append(entries, e)
	}
	if _, err := d.Token(); err != nil {
		return nil, malformed.Errorf(malformed.Syntax, "not JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, malformed.Errorf(malformed.Syntax, "there is more behind the object; one file has one object")
	}
	return entries, nil
}

// badValue is the error of a value that is no JSON: Python writes numbers that JSON lacks.
func badValue(key string, rest []byte, err error) error {
	value := bytes.TrimLeft(rest, " \t\r\n:[,-.0123456789")
	if bytes.HasPrefix(value, []byte("NaN")) || bytes.HasPrefix(value, []byte("Infinity")) {
		return malformed.Field(nameOf(key), malformed.Range, "NaN and Infinity are no weights; want numbers of at least 0")
	}
	return malformed.Field(nameOf(key), malformed.Syntax, "not JSON: %w", err)
}

// keysOf reads the weights of keys.
func keysOf(entries []entry) ([]*key, error) {
	var keys []*key
	for _, e := range entries {
		k := &key{text: e.key}
		numbers, err := numbersOf(e.value)
		if err != nil {
			return nil, malformed.Field(nameOf(e.key), malformed.Type, "want one number, or two for a keyword; got %.60q", e.value)
		}
		for _, n := range numbers {
			w, err := n.Float64()
			if err != nil || !(w >= 0) || math.IsInf(w, 0) {
				return nil, malformed.Field(nameOf(e.key), malformed.Range, "the weight %s is not a number of at least 0", n)
			}
			k.weights = append(k.weights, w)
		}
		if n := len(k.weights); n != 1 && n != 2 {
			return nil, malformed.Field(nameOf(e.key), malformed.Mismatch,
				"it has %d numbers; want one for a pattern, or two for a keyword and what follows it", n)
		}
		if e.key == "" {
			return nil, malformed.Field(`""`, malformed.Range, "an empty pattern matches everywhere; leave it out")
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// numbersOf reads a number, or a list of them.
func numbersOf(raw json.RawMessage) ([]json.Number, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	numbers := make([]json.Number, len(list))
	for i, x := range list {
		if numbers[i], ok = x.(json.Number); !ok {
			return nil, malformed.Errorf(malformed.Type, "%v is no number", x)
		}
	}
	return numbers, nil
}

// compile makes the expressions of a rule's keys.
func (r *rule) compile() error {
	var parts []string
	for i, k := range r.keys {
		if r.keyword = len(r.keys[0].weights) == 2; r.keyword != (len(k.weights) == 2) {
			return malformed.Field(nameOf(k.text), malformed.Mismatch,
				"a file has patterns of one number or keywords of two, not both (%q has %d); make two files of it and chain them: A.json+B.json",
				r.keys[0].text, len(r.keys[0].weights))
		}
		if r.keyword {
			for _, before := range r.keys[:i] {
				if strings.HasPrefix(k.text, before.text) {
					return malformed.Field(nameOf(k.text), malformed.Mismatch,
						"it begins with the keyword %q before it, which matches in its place; put the longer one first", before.text)
				}
			}
			parts = append(parts, regexp.QuoteMeta(k.text))
			continue
		}
		one, err := translate(k.text)
		if err != nil {
			return &malformed.Error{Field: nameOf(k.text), Err: err}
		}
		if k.start, err = regexp.Compile(`(?s)\A(?:` + one + `)`); err != nil {
			return &malformed.Error{Field: nameOf(k.text), Err: notExpression(err)}
		}
		parts = append(parts, one)
	}
	var err error
	if r.any, err = regexp.Compile(`(?s)(?:` + strings.Join(parts, `)|(?:`) + `)`); err != nil { // too large together
		return notExpression(err)
	}
	return nil
}
