// Package wire reads JSON objects that other programs send: a key that means nothing is an
// error with the nearest one, and a value of another type one that says what is wanted. It
// is layer 0.
package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"agentcli/internal/malformed"
	"agentcli/internal/text"
)

// Fields reads the values of an object into what each key's entry of into points to. Its
// errors are *malformed.Error with the key as the field.
func Fields(object map[string]json.RawMessage, into map[string]any) error {
	for _, key := range slices.Sorted(maps.Keys(object)) {
		to, ok := into[key]
		if !ok {
			keys := slices.Sorted(maps.Keys(into))
			remedy := ""
			if near := text.Nearest(key, keys); near != "" {
				remedy = fmt.Sprintf("; did you mean %s?", near)
			}
			return malformed.Field(text.OneLine(text.Cut(key, 40)), malformed.Unsupported, "this key means nothing here%s (the keys are %s)",
				remedy, strings.Join(keys, ", "))
		}
		if err := json.Unmarshal(object[key], to); err != nil {
			return malformed.Field(key, malformed.Type, "is %s: %w", Shown(object[key]), wanted(err))
		}
	}
	return nil
}

// Shown is the beginning of what was sent, on one line.
func Shown(b []byte) string { return text.Cut(text.OneLine(string(b)), 80) }

// wanted says what a value should have been, where json says it in words of Go.
func wanted(err error) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return err
	}
	want := "an object"
	switch wrong.Type.Kind() {
	case reflect.Bool:
		want = "true or false"
	case reflect.Int, reflect.Int32, reflect.Int64:
		want = "a whole number"
	case reflect.Float64:
		want = "a finite number"
	case reflect.String:
		want = "a text"
	case reflect.Slice:
		want = "a list"
	}
	return errors.New("want " + want)
}
