package env

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"agentcli/traj"
)

type fakeTool struct {
	name string
	seq  bool
	do   func(ctx context.Context, args string) (string, error)
}

func (f fakeTool) Spec() traj.ToolSpec { return traj.ToolSpec{Name: f.name} }
func (f fakeTool) Sequential() bool    { return f.seq }
func (f fakeTool) Call(ctx context.Context, args json.RawMessage) (string, error) {
	return f.do(ctx, string(args))
}

type badStringer struct{}

func (badStringer) String() string { panic("again") }

func step(t *testing.T, c Config, a traj.Action) Result {
	t.Helper()
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	r, err := e.Step(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func calls(pairs ...string) traj.Action {
	var a traj.Action
	for i := 0; i < len(pairs); i += 2 {
		a.ToolCalls = append(a.ToolCalls, traj.ToolCall{ID: fmt.Sprint("call_", i/2), Name: pairs[i], Arguments: pairs[i+1]})
	}
	return a
}

func TestStep(t *testing.T) {
	tools := []Tool{
		Calculator{},
		fakeTool{name: "panics", do: func(context.Context, string) (string, error) { panic("boom") }},
		fakeTool{name: "fails", do: func(context.Context, string) (string, error) { return "", errors.New("no luck") }},
		fakeTool{name: "panics oddly", do: func(context.Context, string) (string, error) { panic(badStringer{}) }},
		fakeTool{name: "exits", do: func(context.Context, string) (string, error) { runtime.Goexit(); return "", nil }},
		fakeTool{name: "garbage", do: func(context.Context, string) (string, error) { return "a\xff\xfeb", nil }},
		fakeTool{name: "bad words", do: func(context.Context, string) (string, error) { return "", errors.New("a\xffb") }},
		fakeTool{name: "nan", do: func(context.Context, string) (string, error) { return fmt.Sprint(math.NaN()), nil }},
		fakeTool{name: "huge", do: func(context.Context, string) (string, error) { return strings.Repeat("é", 16<<20), nil }},
		fakeTool{name: "long", do: func(context.Context, string) (string, error) { return strings.Repeat("é", 100), nil }},
	}
	for _, c := range []struct {
		name, args, want string
		errors           int
	}{
		{"calculator", `{"expression":"12*7"}`, "84", 0},
		{"calculator", `{"expression":12}`, "error: wrong arguments: ", 1},
		{"calculator", `{}`, `error: wrong arguments: "expression" is missing`, 1},
		{"calculator", ``, `error: wrong arguments: "expression" is missing`, 1},
		{"calculator", `{"expr":"1"}`, `error: wrong arguments: "expression" is missing; unknown field "expr"`, 1},
		{"calculator", `[1]`, "error: the arguments of calculator are not a JSON object: it is another JSON value", 1},
		{"calculator", `{"expression":`, "error: the arguments of calculator are not a JSON object", 1},
		{"search", `{}`, `error: there is no tool "search"; the tools are: calculator, panics, fails, panics oddly, exits,`, 1},
		{"panics", `{}`, "error: panics failed: boom", 1},
		{"panics oddly", `{}`, "error: panics oddly failed: %!v(PANIC=String method: again)", 1},
		{"exits", `{}`, "error: exits failed: it ended its goroutine", 1},
		{"garbage", `{}`, "a\uFFFDb", 0},
		{"bad words", `{}`, "error: a\uFFFDb", 1},
		{"nan", `{}`, "NaN", 0},
		{"huge", `{}`, strings.Repeat("é", 5333) + "\n… [16769216 characters left out] …\n" + strings.Repeat("é", 2667), 0},
		{"fails", `{}`, "error: no luck", 1},
		{"long", `{}`, strings.Repeat("é", 34) + "\n… [48 characters left out] …\n" + strings.Repeat("é", 18), 0},
	} {
		max := 0
		if c.name == "long" {
			max = 52
		}
		r := step(t, Config{Tools: tools, MaxObservation: max}, calls(c.name, c.args))
		m := r.Observation.Messages
		if len(m) != 1 || !strings.HasPrefix(m[0].Content, c.want) || r.ToolErrors != c.errors ||
			m[0].ToolCallID != "call_0" || m[0].Role != "tool" || r.Done {
			t.Errorf("%s(%s) = %+v", c.name, c.args, r)
		}
		// A tool that ran and failed was called well.
		if ran := c.name != "calculator" && c.name != "search"; r.Malformed != c.errors && !ran || ran && r.Malformed != 0 {
			t.Errorf("%s(%s): %d malformed calls", c.name, c.args, r.Malformed)
		}
	}
}

func TestStepOfABrokenToolIsTheEnvironmentsFault(t *testing.T) {
	broken := fakeTool{name: "broken", do: func(context.Context, string) (string, error) { return "", fmt.Errorf("%w: no disk", ErrBroken) }}
	e, err := New(Config{Tools: []Tool{broken}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Step(t.Context(), calls("broken", "{}")); !errors.Is(err, ErrBroken) {
		t.Error(err)
	}
}

func TestStepFinalAndCallErrors(t *testing.T) {
	if r := step(t, Config{}, traj.Action{Final: true, Answer: "4"}); !r.Done || len(r.Observation.Messages) != 0 {
		t.Fatalf("%+v", r)
	}
	a := calls("calculator", `{"expression":"1+1"}`)
	a.CallErrors = []traj.CallError{{Raw: "{", Reason: "the JSON ends too early"}}
	r := step(t, Config{Tools: []Tool{Calculator{}}}, a)
	if len(r.Observation.Messages) != 2 || r.ToolErrors != 1 || r.Malformed != 1 ||
		!strings.HasPrefix(r.Observation.Messages[1].Content, "error: ") {
		t.Fatalf("%+v", r)
	}
}

func TestStepParallelInCallOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sleep := func(ctx context.Context, args string) (string, error) {
			var d struct{ S int }
			_ = json.Unmarshal([]byte(args), &d)
			time.Sleep(time.Duration(d.S) * time.Second)
			return fmt.Sprint(d.S), nil
		}
		tools := []Tool{fakeTool{name: "p", do: sleep}, fakeTool{name: "s", seq: true, do: sleep}}
		start := time.Now()
		r := step(t, Config{Tools: tools}, calls("p", `{"S":3}`, "p", `{"S":1}`, "s", `{"S":2}`, "s", `{"S":2}`))
		var got []string
		for _, m := range r.Observation.Messages {
			got = append(got, m.Content)
		}
		if d := time.Since(start); strings.Join(got, " ") != "3 1 2 2" || d != 4*time.Second {
			t.Fatalf("%v after %v", got, d)
		}
	})
}

func TestStepHangingToolIsData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		hang := fakeTool{name: "hang", do: func(context.Context, string) (string, error) { <-release; return "", nil }}
		r := step(t, Config{Tools: []Tool{hang}, ToolTimeout: 2 * time.Second}, calls("hang", "{}"))
		if m := r.Observation.Messages[0].Content; m != "error: hang took longer than 2s and was stopped" {
			t.Fatal(m)
		}
		close(release)
	})
}

// TestStepBoundsCalls: a reply with very many calls runs eight at once, 64 in
// all; the others are told so, and every call has its answer, in order.
func TestStepBoundsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most, ran atomic.Int32
		tool := fakeTool{name: "p", do: func(_ context.Context, args string) (string, error) {
			ran.Add(1)
			for n := running.Add(1); ; {
				if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
					break
				}
			}
			defer running.Add(-1)
			time.Sleep(time.Second)
			return args, nil
		}}
		var pairs []string
		for i := range 200 {
			pairs = append(pairs, "p", fmt.Sprintf(`{"i":%d}`, i))
		}
		r := step(t, Config{Tools: []Tool{tool}}, calls(pairs...))
		if ran.Load() != 64 || most.Load() != 8 || r.ToolErrors != 136 || len(r.Observation.Messages) != 200 {
			t.Fatalf("%d ran, %d at once, %d errors, %d messages", ran.Load(), most.Load(), r.ToolErrors, len(r.Observation.Messages))
		}
		for i, m := range r.Observation.Messages {
			want := fmt.Sprintf(`{"i":%d}`, i)
			if i >= 64 {
				want = "error: this call was not run: 200 calls stand in one reply, and 64 are the most that are run"
			}
			if m.Content != want || m.ToolCallID != fmt.Sprint("call_", i) {
				t.Fatalf("%d: %+v", i, m)
			}
		}
	})
}

// TestStepBrokenTool: a tool of which 64 calls hang gets no more, in any
// environment of the run; once they come back it does.
func TestStepBrokenTool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var entered atomic.Int32
		hang := fakeTool{name: "hang", do: func(context.Context, string) (string, error) { entered.Add(1); <-release; return "", nil }}
		c := Config{Tools: []Tool{hang, Calculator{}}, ToolTimeout: time.Second, Hung: &Hung{}}
		for range 64 {
			step(t, c, calls("hang", "{}"))
		}
		e, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		var hung *HungError
		if _, err := e.Step(t.Context(), calls("hang", "{}")); !errors.As(err, &hung) || *hung != (HungError{"hang", 64}) ||
			entered.Load() != 64 {
			t.Fatalf("%v, %d calls", err, entered.Load())
		}
		if r := step(t, c, calls("calculator", `{"expression":"1"}`)); r.ToolErrors != 0 {
			t.Fatalf("another tool still works: %+v", r)
		}
		close(release)
		synctest.Wait()
		if n := c.Hung.Count("hang"); n != 0 {
			t.Fatalf("%d still counted", n)
		}
		if r := step(t, c, calls("hang", "{}")); r.ToolErrors != 0 {
			t.Fatalf("%+v", r)
		}
	})
}

func TestConfigValidate(t *testing.T) {
	if _, err := New(Config{Tools: []Tool{Calculator{}, Calculator{}}}); err == nil {
		t.Fatal("two tools of one name must be refused")
	}
}

// TestACallOfADeclaredToolEndsTheTrajectory: nobody runs it, nor the other calls of that
// reply; what is wrong with them is counted.
func TestACallOfADeclaredToolEndsTheTrajectory(t *testing.T) {
	ran := 0
	c := Config{
		Tools: []Tool{fakeTool{name: "run", do: func(context.Context, string) (string, error) { ran++; return "", nil }}},
		Declared: []traj.ToolSpec{{Name: "declared",
			Parameters: json.RawMessage(`{"type":"object","properties":{"x":{"type":"integer"}},"required":["x"]}`)}},
	}
	unread := traj.Action{CallErrors: []traj.CallError{{Reason: "cut off"}}}
	for _, tc := range []struct {
		action traj.Action
		done   bool
		wrong  int
		ran    int
	}{
		{action: calls("declared", `{"x":1}`), done: true},
		{action: calls("declared", `{"x":1}`, "run", `{}`, "declared", `{"x":2}`), done: true},
		{action: calls("run", `{}`), ran: 1},
		{action: calls("declared", `{"x":"1"}`, "nowhere", `{}`), done: true, wrong: 2},
		{action: calls("declared", `[]`), done: true, wrong: 1},
		{action: calls("nowhere", `{}`), wrong: 1},
		{action: unread, wrong: 1},
	} {
		ran = 0
		r := step(t, c, tc.action)
		if r.Done != tc.done || r.ToolErrors != tc.wrong || r.Malformed != tc.wrong || ran != tc.ran {
			t.Errorf("%+v: %+v, %d calls run", tc.action, r, ran)
		}
		if r.Done && len(r.Observation.Messages) > 0 {
			t.Errorf("%+v: the end has an observation: %+v", tc.action, r.Observation)
		}
	}
	if specs := c.Specs(); len(specs) != 2 || specs[1].Name != "declared" {
		t.Errorf("%+v", specs)
	}
	if c.Declared[0].Name = "run"; c.Validate() == nil {
		t.Error("two tools have one name")
	}
}
