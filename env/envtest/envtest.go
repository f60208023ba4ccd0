// Package envtest holds any env.Environment and any env.Tool to the contracts of
// their interfaces. Only tests import it.
package envtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"agentcli/env"
	"agentcli/traj"
)

// soon is how long a call may take whose context is over.
const soon = 5 * time.Second

// Example is a call that works and what it gives.
type Example struct{ Args, Want string }

// name is what servers take for the name of a function.
var name = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// Tool tests a tool. An example's call may be made several times, and at once.
func Tool(t *testing.T, tool env.Tool, examples ...Example) {
	t.Run("spec", func(t *testing.T) {
		s := tool.Spec()
		var schema struct {
			Type       string                     `json:"type"`
			Properties map[string]json.RawMessage `json:"properties"`
			Required   []string                   `json:"required"`
		}
		if err := json.Unmarshal(s.Parameters, &schema); err != nil || schema.Type != "object" {
			t.Fatalf("the parameters are no schema of an object: %s, %v", s.Parameters, err)
		}
		if !name.MatchString(s.Name) || s.Description == "" {
			t.Errorf("name %q, description %q", s.Name, s.Description)
		}
		for _, r := range schema.Required {
			if _, ok := schema.Properties[r]; !ok {
				t.Errorf("%q is required and not described", r)
			}
		}
		if !reflect.DeepEqual(s, tool.Spec()) {
			t.Error("the description changes")
		}
	})
	t.Run("calls at once", func(t *testing.T) {
		var wg sync.WaitGroup
		for _, x := range slices.Concat(examples, examples) {
			wg.Go(func() {
				if got, err := tool.Call(t.Context(), json.RawMessage(x.Args)); err != nil || got != x.Want {
					t.Errorf("%s(%s) = %q, %v; want %q", tool.Spec().Name, x.Args, got, err, x.Want)
				}
			})
		}
		wg.Wait()
	})
	t.Run("wrong arguments are an error for the model", func(t *testing.T) {
		for _, args := range []string{`{"no such argument": 1}`, `[1]`, `"text"`, `{`} {
			if got, err := tool.Call(t.Context(), json.RawMessage(args)); err == nil || err.Error() == "" {
				t.Errorf("%s gave %q, %v", args, got, err)
			}
		}
	})
	t.Run("a call ends with its context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		start := time.Now()
		for _, x := range examples {
			_, _ = tool.Call(ctx, json.RawMessage(x.Args))
		}
		if d := time.Since(start); d > soon {
			t.Errorf("took %v", d)
		}
	})
}

// Environment tests environments that open makes, each for one trajectory. task
// is one that they take; calls, if there are any, are actions' calls that work,
// and want is what they give.
func Environment(t *testing.T, open func(t *testing.T) env.Environment, task traj.Task, calls []traj.ToolCall, want []string) {
	reset := func(t *testing.T) env.Environment {
		e := open(t)
		t.Cleanup(func() {
			if err := e.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
		before, err := json.Marshal(task)
		if err != nil {
			t.Fatal(err)
		}
		o, err := e.Reset(t.Context(), task)
		if err != nil {
			t.Fatalf("Reset: %v", err)
		}
		if len(o.Messages) == 0 || o.Continue != "" {
			t.Fatalf("there is nothing to answer to: %+v", o)
		}
		if after, _ := json.Marshal(task); string(after) != string(before) {
			t.Fatalf("the task was changed: %s", after)
		}
		return e
	}
	step := func(t *testing.T, e env.Environment, a traj.Action) env.Result {
		t.Helper()
		r, err := e.Step(t.Context(), a)
		if err != nil {
			t.Fatalf("what the policy does is data: %v", err)
		}
		return r
	}
	t.Run("reset opens", func(t *testing.T) { reset(t) })
	t.Run("a final action ends it", func(t *testing.T) {
		if r := step(t, reset(t), traj.Action{Final: true, Answer: "4"}); !r.Done || r.ToolErrors != 0 {
			t.Errorf("%+v", r)
		}
	})
	t.Run("results stand in call order", func(t *testing.T) {
		e := reset(t)
		var all []traj.ToolCall
		var texts []string
		for i := range 3 * len(calls) {
			c := calls[i%len(calls)]
			c.ID = fmt.Sprint("call_", i)
			all, texts = append(all, c), append(texts, want[i%len(calls)])
		}
		answered(t, step(t, e, traj.Action{ToolCalls: all}), all, texts)
		answered(t, step(t, e, traj.Action{ToolCalls: all}), all, texts) // and again, a turn later
	})
	t.Run("what is wrong is told", func(t *testing.T) {
		wrong := []traj.ToolCall{{ID: "a", Name: "no such tool", Arguments: "{}"}, {ID: "b", Name: "no such tool", Arguments: "{"}}
		r := step(t, reset(t), traj.Action{ToolCalls: wrong, CallErrors: []traj.CallError{{Raw: "{", Reason: "the JSON ends too early"}}})
		if r.Done {
			t.Fatal("the policy may try again")
		}
		if r.ToolErrors != 3 || len(r.Observation.Messages) != 3 {
			t.Fatalf("%d errors, %d messages; want 3 of each", r.ToolErrors, len(r.Observation.Messages))
		}
		if r.Malformed > r.ToolErrors {
			t.Errorf("%d malformed calls among %d errors", r.Malformed, r.ToolErrors)
		}
		for _, m := range r.Observation.Messages {
			if m.Content == "" {
				t.Errorf("nothing is said: %+v", m)
			}
		}
	})
	t.Run("a step ends with its context", func(t *testing.T) {
		e := reset(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		start := time.Now()
		if _, err := e.Step(ctx, traj.Action{ToolCalls: calls}); !errors.Is(err, context.Canceled) {
			t.Errorf("the end of the trajectory came back as %v", err)
		}
		if d := time.Since(start); d > soon {
			t.Errorf("took %v", d)
		}
	})
}

func answered(t *testing.T, r env.Result, calls []traj.ToolCall, want []string) {
	t.Helper()
	if r.Done || r.ToolErrors != 0 || len(r.Observation.Messages) != len(calls) {
		t.Fatalf("%d calls: %+v", len(calls), r)
	}
	for i, m := range r.Observation.Messages {
		if m.Role != traj.RoleTool || m.ToolCallID != calls[i].ID || m.Content != want[i] {
			t.Errorf("result %d is %+v, want %q of %s", i, m, want[i], calls[i].ID)
		}
	}
}
