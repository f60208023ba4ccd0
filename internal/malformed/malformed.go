// Package malformed says what is wrong with a file as facts that a program can ask for:
// which file, which row or line of it, which field, and the kind of fault. The words are
// for people; a caller and a test ask for the facts. It is layer 0 and imports the
// standard library only.
package malformed

import (
	"errors"
	"fmt"
	"strings"
)

// Kind is what is wrong. Each is an error, for errors.Is.
type Kind string

// The kinds.
const (
	Truncated   Kind = "the file is cut off"
	Syntax      Kind = "the syntax is wrong"
	Type        Kind = "a value has the wrong type"
	Missing     Kind = "something is missing"
	Duplicate   Kind = "something occurs twice"
	Range       Kind = "a number is out of its range"
	Unsupported Kind = "a value is not supported"
	Mismatch    Kind = "two values contradict each other"
)

func (k Kind) Error() string { return string(k) }

// Error is a fault of a file. Its parts may be spread over errors that wrap each other;
// Facts collects them.
type Error struct {
	Path  string
	ID    string // of the row, where rows have ids
	Row   int    // from 1; 0: of none
	Line  int    // from 1; 0: of none
	Field string // of the row, of the header or of the settings, as the file names it
	Kind  Kind
	Err   error // what people read behind the place
}

// Error is the place, then what is wrong there. A place that the wrapped fault repeats is
// written once.
func (e *Error) Error() string {
	var place []string
	if e.Path != "" {
		place = append(place, e.Path)
	}
	if e.ID != "" {
		place = append(place, e.ID)
	}
	switch {
	case e.Row > 0 && e.Line > 0:
		place = append(place, fmt.Sprintf("row %d (line %d)", e.Row, e.Line))
	case e.Row > 0:
		place = append(place, fmt.Sprintf("row %d", e.Row))
	case e.Line > 0:
		place = append(place, fmt.Sprintf("line %d", e.Line))
	}
	if e.Field != "" {
		place = append(place, e.Field)
	}
	what := e.Err
	if inner, ok := what.(*Error); ok { //nolint:errorlint // of another error between both the text is its own
		once := *inner
		if once.Path == e.Path {
			once.Path = ""
		}
		if once.Row == e.Row && once.Path == "" {
			once.Row = 0
		}
		what = &once
	}
	return strings.Join(append(place, what.Error()), ": ")
}

// Unwrap gives the kind, where there is one, and the cause.
func (e *Error) Unwrap() []error {
	if e.Kind == "" {
		return []error{e.Err}
	}
	return []error{e.Kind, e.Err}
}

// Errorf is fmt.Errorf for a fault whose place a caller adds.
func Errorf(kind Kind, format string, args ...any) error {
	return &Error{Kind: kind, Err: fmt.Errorf(format, args...)}
}

// Field is Errorf for a fault of a field.
func Field(field string, kind Kind, format string, args ...any) error {
	return &Error{Field: field, Kind: kind, Err: fmt.Errorf(format, args...)}
}

// At is Errorf for a fault of a field of a file; field may be empty.
func At(path, field string, kind Kind, format string, args ...any) error {
	return &Error{Path: path, Field: field, Kind: kind, Err: fmt.Errorf(format, args...)}
}

// Facts are the facts of an error and of those that it wraps: of each the outermost
// one, of the fields all from the outside in, with dots between them, of the kinds the
// innermost. Err is nil.
func Facts(err error) Error {
	var all Error
	for e := (*Error)(nil); errors.As(err, &e); err = e.Err {
		if all.Path == "" {
			all.Path = e.Path
		}
		if all.ID == "" {
			all.ID = e.ID
		}
		if all.Row == 0 {
			all.Row = e.Row
		}
		if all.Line == 0 {
			all.Line = e.Line
		}
		if e.Field != "" && all.Field != "" {
			all.Field += "."
		}
		all.Field += e.Field
		if e.Kind != "" {
			all.Kind = e.Kind
		}
	}
	return all
}
