// Package schema compiles JSON schemas and holds values against them, whoever wrote both: a
// schema loads nothing, and no number is too large for the validator. It is layer 0.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"agentcli/internal/malformed"
	"agentcli/internal/safego"
	shown "agentcli/internal/text"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// Compile compiles a schema. It reads no file and asks no server.
func Compile(text json.RawMessage) (_ *jsonschema.Schema, err error) {
	defer safego.Into(&err)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	doc, _, large := Representable(doc)
	if large != "" {
		return nil, fmt.Errorf("the number %s is out of range", shown.Cut(string(large), 40))
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	if err := c.AddResource("schema:text", doc); err != nil {
		return nil, err
	}
	s, err := c.Compile("schema:text")
	return s, firstFault(err)
}

var english = message.NewPrinter(language.English)

// firstFault names the key of a schema that is not what a schema may have there; other errors
// stay. Of several keys it is the first by name.
func firstFault(err error) error {
	var fault *jsonschema.ValidationError
	if bad := (*jsonschema.SchemaValidationError)(nil); !errors.As(err, &bad) || !errors.As(bad.Err, &fault) {
		return err
	}
	field, words := "", ""
	var visit func(*jsonschema.ValidationError)
	visit = func(e *jsonschema.ValidationError) {
		for _, c := range e.Causes {
			visit(c)
		}
		if len(e.Causes) > 0 {
			return
		}
		f, w := strings.Join(e.InstanceLocation, "."), e.ErrorKind.LocalizedString(english)
		if _, values := e.ErrorKind.(*kind.Enum); words == "" || f < field || f == field && values {
			field, words = f, w
		}
	}
	visit(fault)
	return malformed.Field(shown.Cut(field, 80), malformed.Range, "%s", shown.OneLine(words))
}

// noLoader keeps a schema from reading files and asking servers.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s is not part of the schema", url)
}

// Validate holds a value against a schema. The error of a value that does not fit is a
// jsonschema.ValidationError; a fault of the validator is a safego.Panic.
func Validate(s *jsonschema.Schema, v any) (err error) {
	defer safego.Into(&err)
	return s.Validate(v)
}

// maxExponent is the largest power of ten that the validator sees. It is beyond
// float64's; big.Rat refuses exponents beyond a million, which the validator does
// not expect, and takes its time below that.
const maxExponent = 400

// Representable is a JSON value with numbers that the validator can compare. Those
// too close to 0 become the smallest that it can; path and n are the first that
// is too large, or n is "".
func Representable(v any) (_ any, path []string, n json.Number) {
	keep := func(name string, x any) any {
		x, in, large := Representable(x)
		if n == "" && large != "" {
			path, n = append([]string{name}, in...), large
		}
		return x
	}
	switch v := v.(type) {
	case json.Number:
		near, far := nearest(v)
		return near, nil, far
	case []any:
		for i, x := range v {
			v[i] = keep(strconv.Itoa(i), x)
		}
	case map[string]any:
		for k, x := range v {
			v[k] = keep(k, x)
		}
	}
	return v, path, n
}

func nearest(n json.Number) (near, far json.Number) {
	i := strings.IndexAny(string(n), "eE")
	if i < 0 {
		return n, ""
	}
	mantissa, exponent := string(n[:i]), string(n[i+1:])
	e, err := strconv.Atoi(exponent) // one that does not fit an int is out of reach, too
	switch {
	case err == nil && -maxExponent <= e && e <= maxExponent:
		return n, ""
	case !strings.ContainsAny(mantissa, "123456789"):
		return "0", ""
	case exponent[0] != '-':
		return n, n
	case mantissa[0] == '-':
		return json.Number(fmt.Sprintf("-1e-%d", maxExponent)), ""
	}
	return json.Number(fmt.Sprintf("1e-%d", maxExponent)), ""
}
