package env

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"agentcli/traj"
)

// numbers that the schema validator cannot hold, each with a schema that looks
// at them, and whether the tool may run.
var unrepresentable = []struct {
	schema, args string
	fits         bool
}{
	{`{"properties":{"t":{"type":"number","maximum":1}}}`, `{"t":1e9999999}`, false},
	{`{"properties":{"t":{"type":"number","maximum":1}}}`, `{"t":-1e9999999}`, false},
	{`{"properties":{"t":{"type":"number","minimum":0}}}`, `{"t":-1E+99999999999999999999}`, false},
	{`{"properties":{"t":{"type":"number","exclusiveMinimum":0}}}`, `{"t":1e-9999999}`, true},
	{`{"properties":{"t":{"type":"number","maximum":0}}}`, `{"t":0e9999999}`, true},
	{`{"properties":{"t":{"type":"number","exclusiveMaximum":0}}}`, `{"t":0e9999999}`, false},
	{`{"properties":{"t":{"type":"number","multipleOf":0.1}}}`, `{"t":1e9999999}`, false},
	{`{"properties":{"t":{"type":"integer"}}}`, `{"t":1e-9999999}`, false},
	{`{"properties":{"t":{"anyOf":[{"type":"number","maximum":1},{"type":"null"}]}}}`, `{"t":1e9999999}`, false},
	{`{"properties":{"t":{"enum":[1,2]}}}`, `{"t":1e9999999}`, false},
	{`{"properties":{"t":{"uniqueItems":true}}}`, `{"t":[` + strings.Repeat("1e9999999,", 30) + `0]}`, false},
	{`{"properties":{"t":{"maximum":1e9999999}}}`, `{"t":1}`, true},
}

// TestANumberBeyondTheValidatorIsDataForTheModel: it once ended the program, or
// the trajectory as env_error where the call stood alone.
func TestANumberBeyondTheValidatorIsDataForTheModel(t *testing.T) {
	for _, tt := range unrepresentable {
		for _, n := range []int{1, 2} {
			ran := 0
			var a traj.Action
			for range n {
				a.ToolCalls = append(a.ToolCalls, traj.ToolCall{Name: "typed", Arguments: tt.args})
			}
			r := step(t, Config{Tools: []Tool{sequentialTool{typedTool{tt.schema, &ran}}}}, a)
			if tt.fits && ran != n || !tt.fits && (ran != 0 || r.Malformed != n) {
				t.Errorf("%s, %.60s: ran %d of %d, %+v", tt.schema, tt.args, ran, n, r)
			}
		}
	}
}

type sequentialTool struct{ typedTool }

func (sequentialTool) Sequential() bool { return true }

// panicking panics in one of the places where somebody else's code runs.
type panicking struct {
	fakeTool
	turn bool
}

func (p panicking) Turn(context.Context) (func(), error) {
	if p.turn {
		panic("no turn")
	}
	return func() { panic("no end of a turn") }, nil
}

// TestAPanicAroundACallIsDataForTheModel: of a tool's queue, and of whoever
// watches, with one call in a reply and with several, which run in goroutines.
func TestAPanicAroundACallIsDataForTheModel(t *testing.T) {
	tool := fakeTool{name: "x", do: func(context.Context, string) (string, error) { return "ran", nil }}
	hook := func(where string) ToolHook {
		return func(traj.ToolCall) func(string, error, string) {
			if where == "begin" {
				panic("hook")
			}
			return func(string, error, string) { panic("hook") }
		}
	}
	for _, tt := range []struct {
		name string
		tool Tool
		hook ToolHook
		fail bool // the call
	}{
		{"Turn", panicking{tool, true}, nil, true},
		{"the end of a turn", panicking{tool, false}, nil, false},
		{"a hook's begin", tool, hook("begin"), false}, // who watches does not touch the run
		{"a hook's end", tool, hook("end"), false},
	} {
		for n := 1; n <= 3; n++ {
			e, err := New(Config{Tools: []Tool{tt.tool}})
			if err != nil {
				t.Fatal(err)
			}
			c := t.Context()
			if tt.hook != nil {
				c = WithToolHook(c, tt.hook)
			}
			a := traj.Action{}
			for i := range n {
				a.ToolCalls = append(a.ToolCalls, traj.ToolCall{ID: fmt.Sprint(i), Name: "x", Arguments: "{}"})
			}
			r, err := e.Step(c, a)
			if err != nil || len(r.Observation.Messages) != n {
				t.Errorf("%s, %d calls: %v %+v", tt.name, n, err, r)
				continue
			}
			for _, m := range r.Observation.Messages {
				if failed := strings.HasPrefix(m.Content, "error: "); failed != tt.fail {
					t.Errorf("%s, %d calls: %q", tt.name, n, m.Content)
				}
			}
		}
	}
}

// FuzzStep: whatever a schema and whatever arguments, a Step gives a message for
// each call and no error, and does not panic.
func FuzzStep(f *testing.F) {
	for _, tt := range unrepresentable {
		f.Add(tt.schema, tt.args)
	}
	f.Add(Calculator{}.Spec().Description, `{}`)
	f.Add(string(Calculator{}.Spec().Parameters), `{"expression":"1+1"}`)
	f.Add(`{"$ref":"#"}`, `{"a":{"a":{}}}`)
	f.Add(`{"$defs":{"n":{"properties":{"next":{"$ref":"#/$defs/n"}}}},"$ref":"#/$defs/n"}`, `{"next":{"next":{}}}`)
	f.Add(`{"properties":{"s":{"pattern":"^(a+)+$","maxLength":3,"format":"date-time"}}}`, `{"s":"aaaaaaaaaaaaaaaaaaaaaaaaaaaa!"}`)
	f.Add(`{"dependentRequired":{"a":["b"]},"patternProperties":{".":{"type":"string"}},"propertyNames":{"maxLength":2}}`, `{"a":1,"bcd":"x"}`)
	f.Add(`{"properties":{"x":{"prefixItems":[{"const":1}],"items":false,"contains":{"type":"null"},"minContains":2}}}`, `{"x":[1,null,2]}`)
	f.Add(`{"if":{"required":["a"]},"then":{"required":["b"]},"else":{"not":{}}}`, `{"a":1}`)
	f.Add(`{"unevaluatedProperties":false,"allOf":[{"properties":{"a":{}}}]}`, `{"a":1,"b":2}`)
	f.Fuzz(func(t *testing.T, schema, args string) {
		defer schemas.Clear()
		for _, n := range []int{1, 2} {
			ran := 0
			e, err := New(Config{Tools: []Tool{sequentialTool{typedTool{schema, &ran}}}})
			if err != nil {
				t.Fatal(err)
			}
			var a traj.Action
			for range n {
				a.ToolCalls = append(a.ToolCalls, traj.ToolCall{Name: "typed", Arguments: args})
			}
			r, err := e.Step(t.Context(), a)
			if errors.Is(err, ErrBroken) || err != nil || len(r.Observation.Messages) != n {
				t.Fatalf("%v %+v", err, r)
			}
			if ran != 0 && ran != n || ran+r.Malformed != n {
				t.Fatalf("%d ran, %d malformed", ran, r.Malformed)
			}
			if s := strings.TrimSpace(args); s != "" && !json.Valid([]byte(s)) && ran > 0 {
				t.Fatalf("the tool ran with %q", args)
			}
		}
	})
}
