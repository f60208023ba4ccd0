// Package jinja evaluates chat templates: the part of Jinja 3.1 that transformers
// gives them (ImmutableSandboxedEnvironment with trim_blocks, lstrip_blocks,
// loopcontrols, generation blocks, raise_exception, strftime_now, its own tojson,
// dict and namespace). What a template prints is held against
// transformers' apply_chat_template.
//
// A template is text that nobody trusts. Steps, memory, depth and output are
// limited (Limits), so each evaluation ends.
//
// Strings know which of their bytes came from data (Str), so a renderer can tell
// the template's own text from that of a message. Values are nil, bool, int64,
// *big.Int, float64, Str, *List and *Dict; FromJSON makes them.
//
// The package is in layer 0: it imports nothing of this module.
package jinja

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// The kinds of errors. Each error of this package wraps one of them.
var (
	ErrSyntax = errors.New("malformed template")                 // Parse: the text is no template
	ErrRaised = errors.New("the template refuses the messages")  // raise_exception
	ErrValue  = errors.New("the template fails on the messages") // an operation that Python refuses: undefined values, types, ranges
	ErrLimit  = errors.New("the template exceeds a limit")       // Limits
	ErrFault  = errors.New("a fault of agentcli's Jinja")        // please report it
)

// Error is an error of a template, with the line of the template where it is.
type Error struct {
	Kind error // ErrSyntax, ErrRaised, ErrValue, ErrLimit or ErrFault
	Line int
	Text string
}

func (e *Error) Error() string {
	return fmt.Sprintf("chat template line %d: %s", e.Line, strings.Join(strings.Fields(e.Text), " "))
}

// Unwrap is the kind.
func (e *Error) Unwrap() error { return e.Kind }

// thrown is the error of a recovered panic: what the package has thrown, or, so that no
// panic leaves it, a fault of its own.
func thrown(x any) *Error {
	if e, ok := x.(*Error); ok {
		return e
	}
	return &Error{ErrFault, 0, fmt.Sprintf("a fault of agentcli: %v", x)}
}

// Limits bound one evaluation; a zero field is its default.
type Limits struct {
	Steps  int // nodes evaluated and elements visited
	Bytes  int // of all strings and lists that are built, kept or not
	Output int // bytes of the text
	Depth  int // calls, and values inside values
}

// The defaults hold a template that does its worst to about two seconds and less than 1 GB.
var defaultLimits = Limits{Steps: 5_000_000, Bytes: 512 << 20, Output: 64 << 20, Depth: 500}

// maxSource is the size of a template that is read, maxNesting the depth of its
// blocks and expressions.
const (
	maxSource  = 4 << 20
	maxNesting = 150
)

// Template is a parsed template. It is safe for concurrent use.
type Template struct {
	body   []stmt
	source string
}

// Parse reads a template's text.
func Parse(source string) (*Template, error) {
	if len(source) > maxSource {
		return nil, &Error{ErrLimit, 1, fmt.Sprintf("%d bytes, more than %d", len(source), maxSource)}
	}
	tokens, err := lex(source)
	if err != nil {
		return nil, err
	}
	p := &parser{exprParser: exprParser{stream: stream{tokens: tokens}}}
	body, err := p.template()
	if err != nil {
		return nil, err
	}
	return &Template{body: body, source: source}, nil
}

// Source is the template's text.
func (t *Template) Source() string { return t.source }

// Output is what a template printed.
type Output struct {
	// Text is the text; its marks say which bytes came from data.
	Text Str
	// Generation has the bytes of Text that {% generation %} blocks printed,
	// from and to, as transformers computes them for assistant masks.
	Generation [][2]int
}

// Options of one evaluation.
type Options struct {
	Now    func() time.Time // for strftime_now; nil: time.Now
	Limits Limits
}

// Render evaluates the template. vars are what it sees beside its globals.
func (t *Template) Render(vars map[string]any, o Options) (out Output, err error) {
	r := newRun(o)
	defer func() {
		if x := recover(); x != nil {
			out, err = Output{}, thrown(x)
		}
	}()
	top := newScope(globals())
	for name, v := range vars {
		top.vars[name] = v
	}
	r.block(newScope(top), t.body)
	return Output{Text: r.root.str(), Generation: r.generation}, nil
}
