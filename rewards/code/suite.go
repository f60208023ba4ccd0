package code

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"agentcli/internal/malformed"
	"agentcli/internal/text"
)

// Suite is the hidden tests of one task: cases, or Python source.
type Suite struct {
	Cases  []Case
	Source string // asserts, or a function check(candidate)
	Entry  string // of Source: the name of the program's function, or an expression for it
	Prelude
}

// Prelude is what stands before the program: HumanEval's prompt has imports and functions
// that its tests use.
type Prelude struct{ Before string }

// Case is one test: an input with its output.
type Case struct {
	Input  string // of stdin
	Output string // of stdout
	// Function is the name of the function that is called; "": the program reads stdin.
	Function  string
	Arguments []json.RawMessage
	// Results are the values that count, each JSON.
	Results []json.RawMessage
}

// ParseSuite reads the tests of a task from its gold answers and its meta. One answer is
// JSON, {"inputs": [], "outputs": [], "fn_name": …} or a list of {"input", "output",
// "testtype" or "type"}, or Python source. Several answers of source are one source.
func ParseSuite(answers []string, meta json.RawMessage) (*Suite, error) {
	m := readMeta(meta)
	if first := strings.TrimSpace(answers[0]); len(answers) == 1 && (strings.HasPrefix(first, "{") || strings.HasPrefix(first, "[")) {
		cases, err := parseCases([]byte(first), m.function())
		if err != nil {
			return nil, &malformed.Error{Field: "answer", Err: err}
		}
		return &Suite{Cases: cases}, nil
	}
	source := strings.Join(answers, "\n")
	s := &Suite{Source: source, Entry: m.EntryPoint}
	if !strings.Contains(source, "assert") && !strings.Contains(source, "def check") {
		return nil, malformed.Field("answer", malformed.Unsupported,
			"it is neither JSON with inputs and outputs nor Python with asserts: %s", text.Name(text.OneLine(source), 60))
	}
	if isCheck.MatchString(source) && s.Entry == "" {
		return nil, malformed.Field("meta.entry_point", malformed.Missing,
			"the tests have a function check(candidate), and nothing names the candidate")
	}
	if m.Prompt != "" && s.Entry != "" && strings.Contains(m.Prompt, "def "+s.Entry) {
		s.Before = m.Prompt
	}
	if m.Setup != "" {
		s.Source = m.Setup + "\n" + s.Source
	}
	return s, nil
}

var isCheck = regexp.MustCompile(`(?m)^def check\(`)

// metaFields are the fields of a task's meta that tests read, as HumanEval, MBPP and
// LiveCodeBench name them.
type metaFields struct {
	EntryPoint string          `json:"entry_point"`
	Prompt     string          `json:"prompt"`
	Setup      string          `json:"test_setup_code"`
	FnName     string          `json:"fn_name"`
	FuncName   string          `json:"func_name"`
	Metadata   json.RawMessage `json:"metadata"`
}

func readMeta(meta json.RawMessage) metaFields {
	var fields map[string]json.RawMessage
	var m metaFields
	if json.Unmarshal(meta, &fields) != nil {
		return m
	}
	for name, to := range map[string]*string{"entry_point": &m.EntryPoint, "prompt": &m.Prompt, "test_setup_code": &m.Setup,
		"fn_name": &m.FnName, "func_name": &m.FuncName} {
		_ = json.Unmarshal(fields[name], to) // one of another type is another dataset's
	}
	m.Metadata = fields["metadata"]
	return m
}

// function is the name of the function to call, where the tests do not say it.
func (m metaFields) function() string {
	for _, name := range []string{m.FnName, m.FuncName, functionOf(m.Metadata), m.EntryPoint} {
		if name != "" {
			return name
		}
	}
	return ""
}

// functionOf is the func_name of LiveCodeBench's metadata, an object or the text of one.
func functionOf(raw json.RawMessage) string {
	var inText string
	if json.Unmarshal(raw, &inText) == nil {
		raw = json.RawMessage(inText)
	}
	var m struct {
		FuncName string `json:"func_name"`
	}
	_ = json.Unmarshal(raw, &m)
	return m.FuncName
}

// maxCases is how many tests one task may have.
const maxCases = 10_000

func parseCases(b []byte, function string) ([]Case, error) {
	if b[0] == '[' {
		return parseList(b, function)
	}
	var s struct {
		Inputs    []json.RawMessage `json:"inputs"`
		Outputs   []json.RawMessage `json:"outputs"`
		FnName    *string           `json:"fn_name"`
		TestCases json.RawMessage   `json:"test_cases"`
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, notJSON(err)
	}
	if len(s.TestCases) > 0 {
		return parseList(s.TestCases, function)
	}
	switch {
	case len(s.Inputs) == 0:
		return nil, malformed.Field("inputs", malformed.Missing, "there are no tests")
	case len(s.Inputs) != len(s.Outputs):
		return nil, malformed.Field("outputs", malformed.Mismatch, "%d outputs for %d inputs", len(s.Outputs), len(s.Inputs))
	case len(s.Inputs) > maxCases:
		return nil, malformed.Field("inputs", malformed.Range, "%d tests, want %d at most", len(s.Inputs), maxCases)
	}
	name := ""
	if s.FnName != nil {
		name = *s.FnName
	}
	var cases []Case
	for i := range s.Inputs {
		c, err := oneCase(s.Inputs[i], s.Outputs[i], name)
		if err != nil {
			return nil, fmt.Errorf("test %d: %w", i+1, err)
		}
		cases = append(cases, c)
	}
	return cases, nil
}

func notJSON(err error) error {
	return malformed.Errorf(malformed.Syntax, "it is no JSON of tests: %w", err)
}

// parseList reads the form of LiveCodeBench, and that of PrimeIntellect's test_cases.
func parseList(b []byte, function string) ([]Case, error) {
	var inText string
	if json.Unmarshal(b, &inText) == nil {
		b = []byte(inText)
	}
	var list []struct {
		Input    json.RawMessage `json:"input"`
		Output   json.RawMessage `json:"output"`
		TestType string          `json:"testtype"`
		Type     string          `json:"type"`
		FnName   *string         `json:"fn_name"`
		Metadata json.RawMessage `json:"metadata"`
	}
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, notJSON(err)
	}
	if len(list) == 0 || len(list) > maxCases {
		return nil, malformed.Errorf(malformed.Range, "%d tests, want 1 to %d", len(list), maxCases)
	}
	var cases []Case
	for i, x := range list {
		name := ""
		switch kind := x.TestType + x.Type; kind {
		case "", "stdin", "stdin_stdout":
			if x.FnName != nil {
				name = *x.FnName
			}
		case "functional", "function_call":
			if name = functionOf(x.Metadata); name == "" && x.FnName != nil {
				name = *x.FnName
			}
			if name == "" {
				name = function
			}
			if name == "" {
				return nil, malformed.Field("metadata.func_name", malformed.Missing, "test %d calls a function, and nothing names it", i+1)
			}
		default:
			return nil, malformed.Field("testtype", malformed.Unsupported, "test %d is of the type %q, want stdin or functional", i+1,
				text.Name(kind, 40))
		}
		if x.Input == nil || x.Output == nil {
			return nil, malformed.Errorf(malformed.Missing, "test %d lacks an input or an output", i+1)
		}
		c, err := oneCase(x.Input, x.Output, name)
		if err != nil {
			return nil, fmt.Errorf("test %d: %w", i+1, err)
		}
		cases = append(cases, c)
	}
	return cases, nil
}

var isName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?$`)

func oneCase(input, output json.RawMessage, function string) (c Case, err error) {
	if function == "" {
		if c.Input, err = lines(input); err != nil {
			return c, &malformed.Error{Field: "input", Err: err}
		}
		if c.Output, err = lines(output); err != nil {
			return c, &malformed.Error{Field: "output", Err: err}
		}
		return c, nil
	}
	if !isName.MatchString(function) {
		return c, malformed.Field("fn_name", malformed.Syntax, "%q is no name of a function", text.Name(function, 60))
	}
	c.Function = function
	if c.Arguments, err = arguments(input); err != nil {
		return c, &malformed.Error{Field: "input", Err: err}
	}
	c.Results = results(output)
	return c, nil
}

// lines is the text of stdin or stdout: text, a number, or a list of lines.
func lines(raw json.RawMessage) (string, error) {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s, nil
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil {
		var all []string
		for _, l := range list {
			line, err := lines(l)
			if err != nil {
				return "", err
			}
			all = append(all, line)
		}
		return strings.Join(all, "\n"), nil
	}
	if raw = bytes.TrimSpace(raw); len(raw) > 0 && raw[0] != '{' && string(raw) != "null" {
		return string(raw), nil
	}
	return "", malformed.Errorf(malformed.Type, "want text, or a list of lines")
}

// arguments are those of a call: a list, or text with one JSON value a line.
func arguments(raw json.RawMessage) ([]json.RawMessage, error) {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil {
		return list, nil
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return nil, malformed.Errorf(malformed.Type, "want a list of arguments, or text with one JSON value a line")
	}
	d := json.NewDecoder(strings.NewReader(s))
	for d.More() {
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return nil, malformed.Errorf(malformed.Syntax, "the argument %d is no JSON: %w", len(list)+1, err)
		}
		list = append(list, v)
	}
	return list, nil
}

// results are the values that count as right: the value itself; of text what it is as JSON,
// too; of a list its first element, too, as in APPS.
func results(raw json.RawMessage) []json.RawMessage {
	all := []json.RawMessage{raw}
	var s string
	if json.Unmarshal(raw, &s) == nil && json.Valid([]byte(s)) {
		all = append(all, json.RawMessage(s))
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil && len(list) == 1 {
		all = append(all, list[0])
	}
	return all
}
