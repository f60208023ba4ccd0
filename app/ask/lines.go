// Package ask answers questions about a model's files, JSON lines on stdin, with a JSON line
// each on stdout: model tokenize, render, logprobs and generate.
package ask

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"

	"agentcli/internal/malformed"
)

// EachLine answers JSON lines one by one, in order. Empty lines are passed
// over; an error names the line.
func EachLine[Q, A any](ctx context.Context, in io.Reader, out io.Writer, answer func(Q) (A, error)) error {
	r := bufio.NewReaderSize(in, 1<<16)
	w := bufio.NewWriter(out)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	for n := 1; ; n++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		line, err := r.ReadBytes('\n')
		if err != nil && err != io.EOF {
			return &malformed.Error{Path: "stdin", Line: n, Err: err}
		}
		if len(bytes.TrimSpace(line)) > 0 {
			var q Q
			if jerr := json.Unmarshal(line, &q); jerr != nil {
				return errors.Join(w.Flush(), &malformed.Error{Path: "stdin", Line: n, Err: jsonLineError(jerr)})
			}
			a, aerr := answer(q)
			if aerr != nil {
				return errors.Join(w.Flush(), &malformed.Error{Path: "stdin", Line: n, Err: aerr})
			}
			if werr := e.Encode(a); werr != nil {
				return fmt.Errorf("stdout: %w", werr)
			}
			// Whoever asks line by line waits for each answer.
			if r.Buffered() == 0 {
				if werr := w.Flush(); werr != nil {
					return fmt.Errorf("stdout: %w", werr)
				}
			}
		}
		if err == io.EOF {
			if werr := w.Flush(); werr != nil {
				return fmt.Errorf("stdout: %w", werr)
			}
			return nil
		}
	}
}

// jsonLineError says in plain words what is wrong with a line.
func jsonLineError(err error) error {
	var typ *json.UnmarshalTypeError
	if !errors.As(err, &typ) {
		return malformed.Errorf(malformed.Syntax, "not a JSON object: %w", err)
	}
	want := "an object"
	switch typ.Type.Kind() {
	case reflect.Slice, reflect.Array:
		want = "a list"
	case reflect.String:
		want = "a string"
	case reflect.Bool:
		want = "true or false"
	case reflect.Int32, reflect.Int64, reflect.Int:
		want = "a whole number"
	case reflect.Float32, reflect.Float64:
		want = "a number"
	}
	if typ.Field == "" {
		return malformed.Errorf(malformed.Type, "not a JSON object, but of type %s", typ.Value)
	}
	return malformed.Field(typ.Field, malformed.Type, "of type %s, want %s", typ.Value, want)
}
