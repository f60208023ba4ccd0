package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"strconv"
	"strings"

	"agentcli/model/jinja"
)

// maxNesting is about where Python gives up too.
const maxNesting = 1000

// ErrTooDeep is JSON whose objects and lists are nested deeper than is read.
var ErrTooDeep = errors.New("nested too deep")

// PythonJSON writes JSON as the templates' tojson does: Python's json.dumps
// with ensure_ascii off. Keys keep their order, ", " and ": " separate, nothing
// is escaped for HTML, numbers look as Python prints them.
func PythonJSON(b []byte) (string, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var sb strings.Builder
	if err := pyValue(d, &sb, 0); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return "", err
	}
	if _, err := d.Token(); err != io.EOF {
		return "", errors.New("more than one JSON value")
	}
	return sb.String(), nil
}

func pyValue(d *json.Decoder, w *strings.Builder, depth int) error {
	if depth > maxNesting {
		return fmt.Errorf("%w: more than %d levels", ErrTooDeep, maxNesting)
	}
	t, err := d.Token()
	if err != nil {
		return err
	}
	switch v := t.(type) {
	case json.Delim:
		if v == '[' {
			return pyArray(d, w, depth+1)
		}
		return pyObject(d, w, depth+1)
	case string:
		w.WriteString(pyString(v))
	case json.Number:
		w.WriteString(pyNumber(string(v)))
	case bool:
		w.WriteString(strconv.FormatBool(v))
	default:
		w.WriteString("null")
	}
	return nil
}

func pyArray(d *json.Decoder, w *strings.Builder, depth int) error {
	w.WriteByte('[')
	for i := 0; d.More(); i++ {
		if i > 0 {
			w.WriteString(", ")
		}
		if err := pyValue(d, w, depth); err != nil {
			return err
		}
	}
	w.WriteByte(']')
	_, err := d.Token()
	return err
}

// pyObject keeps a repeated key at its first place with its last value, as a
// Python dict does.
func pyObject(d *json.Decoder, w *strings.Builder, depth int) error {
	var keys []string
	vals := map[string]string{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return err
		}
		k, ok := t.(string)
		if !ok {
			return fmt.Errorf("%v is not a key", t)
		}
		var v strings.Builder
		if err := pyValue(d, &v, depth); err != nil {
			return err
		}
		if _, seen := vals[k]; !seen {
			keys = append(keys, k)
		}
		vals[k] = v.String()
	}
	if _, err := d.Token(); err != nil {
		return err
	}
	w.WriteByte('{')
	for i, k := range keys {
		if i > 0 {
			w.WriteString(", ")
		}
		w.WriteString(pyString(k) + ": " + vals[k])
	}
	w.WriteByte('}')
	return nil
}

func pyString(s string) string { return jinja.JSONString(s, false) }

// pyNumber prints a JSON number as Python would after reading it.
func pyNumber(s string) string {
	if !strings.ContainsAny(s, ".eE") {
		if i, ok := new(big.Int).SetString(s, 10); ok {
			return i.String()
		}
		return s
	}
	f, _ := strconv.ParseFloat(s, 64) // beyond the largest it is infinite, as in Python
	return jinja.JSONFloat(f)
}
