package code

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"agentcli/internal/malformed"
)

// fake gives each run the same result, and keeps what it was given.
type fake struct {
	result Result
	err    error
	ran    []string
}

func (f *fake) Run(_ context.Context, code string, _ time.Duration) (Result, error) {
	f.ran = append(f.ran, code)
	return f.result, f.err
}

func TestTheProgramIsTheLastBlockOfPython(t *testing.T) {
	for reply, want := range map[string]string{
		"```python\na\n```":                           "a\n",
		"```python\na\n```\nthen\n```py\nb\n```\nend": "b\n",
		"```python\na\n```\nprints\n```text\n5\n```":  "a\n",
		"```\na\n```":                  "a\n",
		"~~~python\na\n```\nb\n~~~":    "a\n```\nb\n",
		"````python\na\n```\nb\n````":  "a\n```\nb\n",
		"  ```python\n  a\n  ```":      "  a\n",
		"```c++\na\n```":               "a\n",
		"```python\nprint('```')\n```": "print('```')\n",
		"no block":                     "",
		"```python\n\n```":             "",
		"```python\n" + strings.Repeat("x", maxProgram+1) + "\n```": "",
	} {
		if got, ok := Program(reply, true); ok != (want != "") || ok && got != want {
			t.Errorf("%.60q: %q, want %q", reply, got, want)
		}
	}
	if got, ok := Program("```python\na = 1\n", false); !ok || got != "a = 1\n" {
		t.Errorf("a block without an end: %q", got)
	}
	if got, ok := Program("```python\nb\n```\n```python\na = ", true); !ok || got != "b\n" {
		t.Errorf("half a block at the end of half a reply: %q", got)
	}
}

func TestOutputIsComparedLineByLine(t *testing.T) {
	for _, c := range []struct {
		got, want string
		same      bool
	}{
		{"3\n", "3", true}, {"3 ", "3\n\n", true}, {"1  2\n3", "1 2\n3\n", true}, {"1 2 3", "1 2\n3", false}, {"3.0", "3", true},
		{"3.10", "3.1", true}, {"0.30000000000000004", "0.3", false}, {"1e3", "1000", true}, {"Yes", "YES", false}, {"", "", true},
		{"nan", "nan", true}, {"nan", "NaN", false}, {"+3", "3", true}, {"- 3", "-3", false}, {"3\r\n4\r\n", "3\n4", true},
		{"10000000000000000000000000001", "10000000000000000000000000002", false}, {"1/2", "2/4", false}, {"1_0", "10", false},
		{"1e999999999", "1e999999998", false}, {"0x10", "16", false},
	} {
		if sameOutput(c.got, c.want, 0) != c.same {
			t.Errorf("%q and %q: same is not %v", c.got, c.want, c.same)
		}
	}
	if !sameOutput("0.3333", "0.33333", 1e-3) || sameOutput("0.34", "0.33", 1e-3) {
		t.Error("the tolerance is another")
	}
}

func TestValuesAreComparedAsPythonDoes(t *testing.T) {
	for _, c := range []struct {
		got, want string
		same      bool
	}{
		{`[1,2]`, `[1, 2]`, true}, {`1`, `1.0`, true}, {`true`, `1`, true}, {`"1"`, `1`, false}, {`null`, `0`, false},
		{`{"a":1}`, `{"a":1.0}`, true},
		{`[1]`, `[1,1]`, false}, {`0.1`, `0.10`, true}, {`0.30000000000000004`, `0.3`, false}, {`{"a":1}`, `{"b":1}`, false}, {``, `null`, false},
		{`1 2`, `1`, false}, {`9007199254740993`, `9007199254740992`, false}, {`-0.0`, `0`, true}, {`1e400`, `1e400`, true},
		{`{"float":"nan"}`, `null`, false},
	} {
		if sameValue([]byte(c.got), []byte(c.want)) != c.same {
			t.Errorf("%s and %s: same is not %v", c.got, c.want, c.same)
		}
	}
}

// What a process of a program gets is its input and never what it should answer.
func TestNoProcessOfAProgramHasTheExpectedOutput(t *testing.T) {
	const secret = "S3CR3T"
	for _, tests := range []string{`{"inputs":["1"],"outputs":["` + secret + `"]}`,
		`{"inputs":[[1]],"outputs":["` + secret + `"],"fn_name":"f"}`,
		`[{"input":"1","output":"` + secret + `","testtype":"functional","metadata":"{\"func_name\":\"f\"}"}]`} {
		suite, err := ParseSuite([]string{tests}, nil)
		if err != nil {
			t.Fatal(err)
		}
		f := &fake{}
		if o, err := Test(t.Context(), f, "x = 1", suite, Settings{}); err != nil || o.Passed != 0 || len(f.ran) != 1 {
			t.Errorf("%+v, %v", o, err)
		}
		if strings.Contains(f.ran[0], secret) {
			t.Errorf("%s: the program's process is given the output", tests)
		}
	}
}

func TestFaultsOfTheSandboxAreErrors(t *testing.T) {
	suite, _ := ParseSuite([]string{`{"inputs":["1"],"outputs":["1"]}`}, nil)
	gone := errors.New("gone")
	if _, err := Test(t.Context(), &fake{err: gone}, "x", suite, Settings{}); !errors.Is(err, gone) {
		t.Error(err)
	}
	if _, err := Test(t.Context(), nil, "x", suite, Settings{}); !errors.Is(err, ErrNoRunner) {
		t.Error(err)
	}
	for _, r := range []Result{{TimedOut: true, Stdout: []byte("1")}, {ExitCode: 1, Stdout: []byte("1")}, {Cut: true, Stdout: []byte("1")}} {
		if o, err := Test(t.Context(), &fake{result: r}, "x", suite, Settings{}); err != nil || o.All() {
			t.Errorf("%+v: %+v, %v", r, o, err)
		}
	}
}

func TestTheFirstFailureEndsTheTests(t *testing.T) {
	suite, _ := ParseSuite([]string{`{"inputs":["1","2","3"],"outputs":["1","2","3"]}`}, nil)
	no := false
	for _, c := range []struct {
		s    Settings
		runs int
	}{{Settings{}, 1}, {Settings{StopAtFailure: &no}, 3}, {Settings{Count: CountShare}, 3}, {Settings{Count: CountShare, MaxTests: 2}, 2}} {
		f := &fake{}
		if _, err := Test(t.Context(), f, "x", suite, c.s); err != nil || len(f.ran) != c.runs {
			t.Errorf("%+v: %d runs, %v", c.s, len(f.ran), err)
		}
	}
}

// A program that waits in each test uses up its own time, not that of its score.
func TestTheTimeOfAllTestsIsBounded(t *testing.T) {
	suite, _ := ParseSuite([]string{`{"inputs":["1","2","3","4"],"outputs":["1","1","1","1"]}`}, nil)
	f := &fake{result: Result{Stdout: []byte("1"), Took: 4 * time.Second}}
	o, err := Test(t.Context(), f, "x", suite, Settings{Count: CountShare, TotalTimeout: 7})
	if err != nil || len(f.ran) != 2 || o.Passed != 2 || o.Share() != .5 || o.All() {
		t.Errorf("%+v, %v, %d runs", o, err, len(f.ran))
	}
}

func TestTestsThatCannotBeReadNameTheField(t *testing.T) {
	for tests, want := range map[string]malformed.Error{
		`{"inputs": []}`:                                                   {Field: "answer.inputs", Kind: malformed.Missing},
		`{"inputs": ["1"], "outputs": []}`:                                 {Field: "answer.outputs", Kind: malformed.Mismatch},
		`{"inputs": ["1"], "outputs": [{}]}`:                               {Field: "answer.output", Kind: malformed.Type},
		`{"inputs": [{}], "outputs": ["1"], "fn_name": "f"}`:               {Field: "answer.input", Kind: malformed.Type},
		`{"inputs": ["[1"], "outputs": ["1"], "fn_name": "f"}`:             {Field: "answer.input", Kind: malformed.Syntax},
		`{"inputs": [[1]], "outputs": ["1"], "fn_name": "f(); import os"}`: {Field: "answer.fn_name", Kind: malformed.Syntax},
		`[]`:             {Field: "answer", Kind: malformed.Range},
		`[{"input": 1}]`: {Field: "answer", Kind: malformed.Missing},
		`[{"input": "1", "output": "1", "testtype": "functional"}]`: {Field: "answer.metadata.func_name", Kind: malformed.Missing},
		`[{"input": "1", "output": "1", "testtype": "x"}]`:          {Field: "answer.testtype", Kind: malformed.Unsupported},
		`{"inputs": `: {Field: "answer", Kind: malformed.Syntax},
		`42`:          {Field: "answer", Kind: malformed.Unsupported},
		"def check(candidate):\n    assert candidate(1)": {Field: "meta.entry_point", Kind: malformed.Missing},
	} {
		_, err := ParseSuite([]string{tests}, nil)
		if f := malformed.Facts(err); f.Field != want.Field || f.Kind != want.Kind || f.Row != want.Row || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %+v, %v", tests, f, err)
		}
	}
}

func TestSettingsAreChecked(t *testing.T) {
	for _, s := range []Settings{{Count: "some"}, {Timeout: -1}, {Timeout: 1e9}, {Memory: 1}, {Memory: 1 << 20}, {MaxTests: -1},
		{Tolerance: 1}} {
		if s.Validate() == nil {
			t.Errorf("%+v is taken", s)
		}
	}
}

func FuzzProgram(f *testing.F) {
	for _, s := range []string{"```python\na\n```", "~~~\n```\n~~~", "````\n```", "```", "\n```py\n"} {
		f.Add(s, true)
	}
	f.Fuzz(func(t *testing.T, reply string, closed bool) {
		if program, ok := Program(reply, closed); ok && !strings.Contains(reply, program) {
			t.Errorf("%q is no part of %q", program, reply)
		}
	})
}

func FuzzOutputs(f *testing.F) {
	f.Add("1 2\n3", "1.0 2\n3")
	f.Add("[1, {\"a\": 1e9}]", "[true]")
	f.Fuzz(func(t *testing.T, a, b string) {
		if sameOutput(a, b, 0) != sameOutput(b, a, 0) || !sameOutput(a, a, 0) {
			t.Errorf("%q and %q", a, b)
		}
		if x, y := sameValue([]byte(a), []byte(b)), sameValue([]byte(b), []byte(a)); x != y {
			t.Errorf("values %q and %q", a, b)
		}
		if json.Valid([]byte(a)) && !sameValue([]byte(a), []byte(a)) {
			t.Errorf("%q is not itself", a)
		}
	})
}

func FuzzSuite(f *testing.F) {
	f.Add(`{"inputs":[[1]],"outputs":[[2]],"fn_name":"f"}`, `{"entry_point":"f"}`)
	f.Add(`[{"input":"1","output":"2","testtype":"functional","metadata":{"func_name":"f"}}]`, `{}`)
	f.Fuzz(func(t *testing.T, answer, meta string) {
		suite, err := ParseSuite([]string{answer}, json.RawMessage(meta))
		if err == nil && suite.Source == "" && len(suite.Cases) == 0 {
			t.Errorf("%q has no tests", answer)
		}
	})
}
