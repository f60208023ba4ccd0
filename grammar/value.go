package grammar

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// value is a JSON value whose objects keep their order.
type value struct {
	kind    byte     // '{', '[', '"', '0', 't', 'f' or 'n'
	text    string   // of a string or a number
	members []member // of an object
	items   []*value // of an array
	parent  *value
	name    string // in the parent
}

type member struct {
	name  string
	value *value
}

// Bounds of a schema's text.
const (
	maxSchemaBytes = 1 << 20
	maxSchemaDepth = 100
)

// readValue reads one JSON value. Of members with one name the last counts, as in encoding/json.
func readValue(text []byte) (*value, error) {
	if len(text) > maxSchemaBytes {
		return nil, fmt.Errorf("it has %d bytes; at most %d are supported", len(text), maxSchemaBytes)
	}
	if !json.Valid(text) {
		var v any
		return nil, fmt.Errorf("it is not valid JSON: %w", json.Unmarshal(text, &v))
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	v, err := decodeValue(d, nil, "", 0)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return v, err
}

func decodeValue(d *json.Decoder, parent *value, name string, depth int) (*value, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	v := &value{parent: parent, name: name}
	if depth > maxSchemaDepth {
		return nil, fmt.Errorf("it is nested more than %d deep", maxSchemaDepth)
	}
	switch x := token.(type) {
	case string:
		v.kind, v.text = '"', x
	case json.Number:
		v.kind, v.text = '0', x.String()
	case bool:
		v.kind = 'f'
		if x {
			v.kind = 't'
		}
	case nil:
		v.kind = 'n'
	case json.Delim:
		v.kind = byte(x)
		err = v.decodeInside(d, depth+1)
	}
	return v, err
}

func (v *value) decodeInside(d *json.Decoder, depth int) error {
	at := map[string]int{}
	for d.More() {
		name := strconv.Itoa(len(v.items))
		if v.kind == '{' {
			token, err := d.Token()
			if err != nil {
				return err
			}
			name, _ = token.(string)
		}
		x, err := decodeValue(d, v, name, depth)
		if err != nil {
			return err
		}
		i, twice := at[name]
		switch {
		case v.kind == '[':
			v.items = append(v.items, x)
		case twice:
			v.members[i].value = x
		default:
			at[name] = len(v.members)
			v.members = append(v.members, member{name, x})
		}
	}
	_, err := d.Token() // the end
	return err
}

// get is a member of an object, nil where there is none.
func (v *value) get(name string) *value {
	for _, m := range v.members {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// path is where a value is, as a JSON pointer with # before.
func (v *value) path() string {
	if v.parent == nil {
		return "#"
	}
	name := strings.ReplaceAll(strings.ReplaceAll(v.name, "~", "~0"), "/", "~1")
	return v.parent.path() + "/" + name
}

// typeName is the type of a value as a schema calls it; a whole number is an integer.
func (v *value) typeName() string {
	switch v.kind {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	if r, ok := rational(v.text); ok && r.IsInt() {
		return "integer"
	}
	return "number"
}

// equal reports whether two values are the same JSON value.
func (v *value) equal(o *value) bool {
	if v.kind != o.kind || len(v.items) != len(o.items) || len(v.members) != len(o.members) {
		return false
	}
	switch v.kind {
	case '"':
		return v.text == o.text
	case '0':
		a, aok := rational(v.text)
		b, bok := rational(o.text)
		return aok && bok && a.Cmp(b) == 0
	}
	for i := range v.items {
		if !v.items[i].equal(o.items[i]) {
			return false
		}
	}
	for _, m := range v.members {
		if x := o.get(m.name); x == nil || !m.value.equal(x) {
			return false
		}
	}
	return true
}
