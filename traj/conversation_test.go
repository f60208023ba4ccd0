package traj

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestAReplyGoesOnWithWhatTheServerLeftOfIt: the stop string stays, and the thinking that the
// server took out is beside the text. A cut takes calls back.
func TestAReplyGoesOnWithWhatTheServerLeftOfIt(t *testing.T) {
	call := []ToolCall{{Name: "search"}}
	c := Conversation{Messages: []Message{{Role: RoleUser}}}
	c.Reply(&Response{Message: Message{Content: "look: ", Reasoning: "hm", ToolCalls: call}, Raw: "look: <search>x</search>", Apart: true})
	c.Observe(Observation{Continue: "one"})
	if m := c.Messages[1]; m.Content != "look: <search>x</search>one" || m.Reasoning != "hm" || m.ToolCalls != nil {
		t.Errorf("%+v", m)
	}
	c.Reply(&Response{Message: Message{Content: " two", Reasoning: "so", ToolCalls: call}}) // how it was written is not known
	if c.CanContinue() {
		t.Error("a text would be in front of the calls")
	}
	c.Cut(Cut{Bytes: 2, Tokens: -1}, "!")
	if m := c.Messages[1]; m.Content != "look: <search>x</search>one t!" || m.Reasoning != "hm\nso" || m.ToolCalls != nil || !c.CanContinue() {
		t.Errorf("%+v", m)
	}
}

func TestAContinuedReplyIsWhatTheModelWrote(t *testing.T) {
	var c Conversation
	call := []ToolCall{{ID: "call_0", Name: "search"}}
	c.Observe(Observation{Messages: []Message{{Role: RoleUser, Content: "q"}}})
	c.Reply(&Response{Message: Message{Content: "", Reasoning: "hm", ToolCalls: call}, Raw: "<think>hm</think><search>x</search>"})
	if m := c.Messages[1]; m.Role != RoleAssistant || len(m.ToolCalls) != 1 || m.Reasoning != "hm" {
		t.Errorf("before it is continued the reply is %+v", m)
	}
	c.Observe(Observation{Continue: " found"})
	c.Observe(Observation{Continue: " more"})
	want := []Message{{Role: RoleUser, Content: "q"}, {Role: RoleAssistant, Content: "<think>hm</think><search>x</search> found more"}}
	if diff := cmp.Diff(want, c.Messages); diff != "" || !c.Continued || c.Inserted != " found more" {
		t.Errorf("%s, inserted %q", diff, c.Inserted)
	}
	c.Reply(&Response{Message: Message{Content: "", ToolCalls: call}, Raw: "<search>y</search>"})
	if m := c.Messages[1]; len(m.ToolCalls) != 1 || c.Continued || c.Inserted != "" {
		t.Errorf("%+v, inserted %q", m, c.Inserted)
	}
	c.Observe(Observation{Continue: " again"})
	want[1].Content += "<search>y</search> again"
	if diff := cmp.Diff(want, c.Messages); diff != "" {
		t.Error(diff)
	}
	// A new turn: the next text goes behind that turn's reply alone.
	c.Reply(&Response{Message: Message{Content: "done"}, Raw: "done"})
	c.Observe(Observation{Messages: []Message{{Role: RoleUser, Content: "next"}}})
	c.Reply(&Response{Message: Message{Content: "one"}}) // how it was written is not known
	c.Observe(Observation{Continue: " two"})
	want[1].Content += "done"
	want = append(want, Message{Role: RoleUser, Content: "next"}, Message{Role: RoleAssistant, Content: "one two"})
	if diff := cmp.Diff(want, c.Messages); diff != "" {
		t.Error(diff)
	}
	// Nothing but the model's own message is continued.
	c.Observe(Observation{Messages: []Message{{Role: RoleUser, Content: "user"}}})
	c.Observe(Observation{Continue: "x"})
	if c.Continued || c.Messages[4].Content != "user" || len(c.Messages) != 5 {
		t.Errorf("%+v", c.Messages)
	}
}

// A cut counts from the beginning of the last reply, not of the message that it goes on with.
func TestACutIsOfTheLastReply(t *testing.T) {
	for name, raw := range map[string]bool{"as the model wrote it": true, "as a server gave it": false} {
		reply := func(text string) *Response {
			r := &Response{Message: Message{Content: text}}
			if raw {
				r.Raw = text
			}
			return r
		}
		var c Conversation
		c.Observe(Observation{Messages: []Message{{Role: RoleUser, Content: "q"}}})
		c.Reply(reply("one two"))
		c.Observe(Observation{Continue: " but"})
		c.Reply(reply(" three four"))
		c.Cut(Cut{Bytes: len(" three"), Rest: "e"}, "!")
		if got := c.Messages[1].Content; got != "one two but three!" || c.Inserted != "e!" || !c.Continued {
			t.Errorf("%s: %q, inserted %q", name, got, c.Inserted)
		}
		c.Reply(reply(" five"))
		if got := c.Messages[1].Content; got != "one two but three! five" || len(c.Messages) != 2 {
			t.Errorf("%s: it goes on as %q", name, got)
		}
		c.Rewrite([]Message{{Role: RoleUser, Content: "anew"}})
		if c.Reply(reply("six")); len(c.Messages) != 2 || c.Messages[1].Content != "six" {
			t.Errorf("%s: behind another history: %+v", name, c.Messages)
		}
	}
}

// TestACutShortensTheVersionsOfItsTokens: a file whose step has more versions than tokens is refused.
func TestACutShortensTheVersionsOfItsTokens(t *testing.T) {
	for kept, want := range map[int][]int64{2: {3, 3}, 0: {}} {
		row := &Trajectory{}
		seq, start, end, err := row.Record([]int32{1, 2}, nil, []int32{5, 6, 7}, nil)
		if err != nil {
			t.Fatal(err)
		}
		row.Steps = []Step{{Sequence: seq, Start: start, End: end, PolicyVersions: []int64{3, 3, 4}}}
		row.Cut(Cut{Bytes: 2, Tokens: kept})
		if s := row.Steps[0]; !slices.Equal(s.PolicyVersions, want) || len(s.PolicyVersions) != s.End-s.Start {
			t.Errorf("%d tokens kept: %+v", kept, s)
		}
	}
}
