package malformed

import (
	"errors"
	"fmt"
	"io"
	"testing"
)

func TestFactsAreThoseOfTheWholeChain(t *testing.T) {
	inner := Field("messages", Type, "message 3: %w", io.ErrUnexpectedEOF)
	row := &Error{Path: "a.jsonl", ID: "a#1", Row: 7, Err: inner}
	err := fmt.Errorf("cannot train: %w", errors.Join(io.EOF, &Error{Field: "PTX", Err: row}))

	if got, want := Facts(err), (Error{Path: "a.jsonl", ID: "a#1", Row: 7, Field: "PTX.messages", Kind: Type}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if !errors.Is(err, Type) || errors.Is(err, Range) || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v is of another kind, or has lost its cause", err)
	}
	if got := Facts(io.EOF); got != (Error{}) {
		t.Errorf("an error without facts has %+v", got)
	}
}

func TestThePlaceIsBeforeTheWords(t *testing.T) {
	for want, e := range map[string]*Error{
		"f.csv: row 2 (line 3): a: EOF": {Path: "f.csv", Row: 2, Line: 3, Field: "a", Err: io.EOF},
		"f.json: line 3: EOF":           {Path: "f.json", Line: 3, Kind: Syntax, Err: io.EOF},
		"f: a#1: b: EOF":                {Path: "f", ID: "a#1", Field: "b", Err: io.EOF},
		"row 2: EOF":                    {Row: 2, Err: io.EOF},
		"EOF":                           {Kind: Truncated, Err: io.EOF},
	} {
		if got := e.Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A row's place is read once, however many know it; another place is kept.
func TestAPlaceIsWrittenOnce(t *testing.T) {
	inner := &Error{Path: "a.gz", Row: 1, Field: "f", Err: errors.New("x")}
	for want, err := range map[string]error{
		"a.gz: row 1: f: x":           &Error{Path: "a.gz", Row: 1, Err: inner},
		"a.gz: row 2: row 1: f: x":    &Error{Path: "a.gz", Row: 2, Err: inner},
		"b: row 1: a.gz: row 1: f: x": &Error{Path: "b", Row: 1, Err: inner},
		"b: g: f: x":                  &Error{Path: "b", Field: "g", Err: Field("f", Type, "x")},
	} {
		if got := err.Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
