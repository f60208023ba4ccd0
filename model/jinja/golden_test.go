package jinja

import (
	"encoding/json"
	"os"
	"testing"
	"time"
)

// goldenTime is the day on which scripts/golden/templates.py was run.
func goldenTime() time.Time { return time.Date(2026, 3, 7, 14, 5, 9, 0, time.UTC) }

// TestExpressionsPrintWhatJinjaPrints holds each operation against transformers'
// environment: the text, or that there is an error.
func TestExpressionsPrintWhatJinjaPrints(t *testing.T) {
	file, err := os.ReadFile("testdata/expressions.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]*string
	if err := json.Unmarshal(file, &rows); err != nil {
		t.Fatal(err)
	}
	dict := func(pairs ...any) *Dict {
		d := NewDict()
		for i := 0; i < len(pairs); i += 2 {
			d.Set(pairs[i].(string), pairs[i+1])
		}
		return d
	}
	vars := map[string]any{
		"d": dict("b", int64(1), "a", NewList(int64(1), 2.5, nil, true), "items", Text("own")),
		"s": Text("héllo Wörld"), "n": int64(7), "f": 0.1, "l": NewList(int64(3), int64(1), int64(2)), "e": NewList(), "none": nil,
		"ms": NewList(dict("role", Text("user"), "content", Text("x")), dict("role", Text("assistant"), "content", Text("Y")),
			dict("role", Text("user"))),
	}
	for _, row := range rows {
		got, err := render(*row[0], vars)
		switch {
		case row[1] == nil && err == nil:
			t.Errorf("%s\nprinted %q, Jinja has an error: %s", *row[0], got, *row[2])
		case row[1] != nil && err != nil:
			t.Errorf("%s\n%v, Jinja printed %q", *row[0], err, *row[1])
		case row[1] != nil && got != *row[1]:
			t.Errorf("%s\nprinted     %q\nJinja printed %q", *row[0], got, *row[1])
		}
	}
}

func render(source string, vars map[string]any) (string, error) {
	tmpl, err := Parse(source)
	if err != nil {
		return "", err
	}
	out, err := tmpl.Render(vars, Options{Now: goldenTime})
	return out.Text.String(), err
}
