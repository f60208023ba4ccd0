package agent

import (
	"testing"

	"agentcli/traj"

	"github.com/google/go-cmp/cmp"
)

func TestToolAgentRenumbersCallsAndKeepsIDs(t *testing.T) {
	a := New([]traj.ToolSpec{{Name: "calculator"}})
	a.Observe(traj.Observation{Messages: []traj.Message{
		{Role: "user", Content: "shot"},
		{Role: "assistant", ToolCalls: []traj.ToolCall{{ID: "call_0", Name: "calculator"}}},
		{Role: "tool", ToolCallID: "call_0", Content: "1"},
		{Role: "user", Content: "q"},
	}})
	req := a.Request()
	if req.PrefixIDs != nil || len(req.Messages) != 4 {
		t.Fatalf("first request: %+v", req)
	}
	act := a.Update(&traj.Response{
		Message:   traj.Message{ToolCalls: []traj.ToolCall{{ID: "call_0", Name: "calculator"}, {ID: "call_0", Name: "x"}}},
		PromptIDs: []int32{1, 2}, SampledIDs: []int32{3},
	})
	if act.Final || act.ToolCalls[0].ID != "call_1" || act.ToolCalls[1].ID != "call_2" {
		t.Fatalf("ids are not unique: %+v", act)
	}
	a.Observe(traj.Observation{Messages: []traj.Message{{Role: "tool", Content: "84"}}})
	req = a.Request()
	if diff := cmp.Diff([]int32{1, 2, 3}, req.PrefixIDs); diff != "" || req.PrefixMessages != 5 || len(req.Messages) != 6 {
		t.Fatalf("prefix %s of %d messages, %d messages in all", diff, req.PrefixMessages, len(req.Messages))
	}
	act = a.Update(&traj.Response{Message: traj.Message{Content: "84"}})
	if !act.Final || act.Answer != "84" {
		t.Fatalf("a reply without a call is the answer: %+v", act)
	}
	if r := a.Request(); r.PrefixIDs != nil {
		t.Fatal("a reply without ids must drop the prefix")
	}
}

func TestToolAgentCallErrorIsNotFinal(t *testing.T) {
	a := New(nil)
	a.Observe(traj.Observation{Messages: []traj.Message{{Role: "user", Content: "q"}}})
	act := a.Update(&traj.Response{Message: traj.Message{Content: "<tool_call>{"}, CallErrors: []traj.CallError{{Raw: "{", Reason: "bad"}}})
	if act.Final || len(act.CallErrors) != 1 {
		t.Fatalf("%+v", act)
	}
}

func TestToolAgentContinue(t *testing.T) {
	a := New(nil)
	a.Observe(traj.Observation{Messages: []traj.Message{{Role: "user", Content: "q"}}})
	a.Update(&traj.Response{Message: traj.Message{Content: "one "}, PromptIDs: []int32{1}, SampledIDs: []int32{2}})
	a.Observe(traj.Observation{Continue: "two "})
	req := a.Request()
	if !req.Continue || req.Messages[1].Content != "one two " {
		t.Fatalf("%+v", req)
	}
	if diff := cmp.Diff([]int32{1, 2}, req.PrefixIDs); diff != "" || req.PrefixMessages != 2 || req.Inserted != "two " {
		t.Fatalf("the ids so far were not kept: %+v", req)
	}
	a.Update(&traj.Response{Message: traj.Message{Content: "three"}})
	if req = a.Request(); len(req.Messages) != 2 || req.Messages[1].Content != "one two three" {
		t.Fatalf("%+v", req.Messages)
	}
}
