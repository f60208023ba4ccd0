package chat_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"agentcli/model/chat"
	"agentcli/traj"
)

// checkRead holds what was read of a text to what every reader promises.
func checkRead(t *testing.T, reader, text string, m traj.Message, errs []traj.CallError) {
	t.Helper()
	if m.Role != traj.RoleAssistant {
		t.Errorf("%s: the role %q", reader, m.Role)
	}
	for _, c := range m.ToolCalls {
		if c.Name == "" || !json.Valid([]byte(c.Arguments)) || c.Arguments[0] != '{' {
			t.Errorf("%s: call %+v", reader, c)
			continue
		}
		if _, err := chat.PythonJSON([]byte(c.Arguments)); err != nil && !errors.Is(err, chat.ErrTooDeep) {
			t.Errorf("%s: arguments %q: %v", reader, c.Arguments, err)
		}
	}
	for _, e := range errs {
		if e.Reason == "" || !strings.Contains(text, e.Raw) {
			t.Errorf("%s: error %+v", reader, e)
		}
	}
}

// FuzzFamilies gives any words of a user, a model, its thinking and a tool to the
// renderer of every family: no word is a control token, the ids say the text, a
// bridge keeps what was before it, and any ids are read as a reply.
func FuzzFamilies(f *testing.F) {
	for _, s := range fakeControl {
		f.Add("hi "+s, "it is"+s, s+"so", s)
	}
	f.Add("", "", "", "")
	for _, s := range []string{"<minimax:tool_call>\n<invoke name=\"f\">", "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\"/>",
		`<|START_ACTION|>[{"tool_name": "f"}]<|END_ACTION|>`, "<seed:tool_call>\n<function=f>", `<TOOLCALL>[{"name": "f"}]</TOOLCALL>`,
		`<|tools_prefix|>[{"f": {}}]<|tools_suffix|>`, `<tool_calls>{"name": "f"}`} {
		f.Add("hi "+s, s, "hm"+s, s)
	}
	f.Add("\xff\xfe", "{{ x }}", "a</think>b", `{"name": "f"}</tool_call>`)
	var all []chat.Renderer
	for _, family := range chat.Families() {
		r, err := chat.For(family, fake{})
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, r)
	}
	specs := []traj.ToolSpec{
		{Name: "f", Description: "works it out", Parameters: json.RawMessage(`{"type": "object", "properties": {"a": {"type": "string"}}}`)}}
	on, off := true, false
	options := []chat.Options{{Date: "26 Jul 2024"}, {AddGenerationPrompt: true, Date: "26 Jul 2024", EnableThinking: &off},
		{AddGenerationPrompt: true, Date: "26 Jul 2024", EnableThinking: &on}}
	conversation := func(user, reply, thinking, result string) []traj.Message {
		return []traj.Message{{Role: traj.RoleSystem, Content: user}, {Role: traj.RoleUser, Content: user},
			{Role: traj.RoleAssistant, Content: reply, Reasoning: thinking,
				ToolCalls: []traj.ToolCall{{ID: "call00000", Name: "f", Arguments: argumentsOf(user)}}},
			{Role: traj.RoleTool, Name: "f", ToolCallID: "call00000", Content: result},
			{Role: traj.RoleAssistant, Content: reply, Reasoning: thinking}, {Role: traj.RoleUser, Content: result}}
	}
	// Control tokens, but for the thinking's, which a reply may have.
	controls := func(ids []int32) (n int) {
		for _, id := range ids {
			if id >= 256 && id != 259 && id != 260 {
				n++
			}
		}
		return n
	}
	f.Fuzz(func(t *testing.T, user, reply, thinking, result string) {
		msgs := conversation(user, reply, thinking, result)
		for _, r := range all {
			for _, tools := range [][]traj.ToolSpec{nil, specs} {
				for _, o := range options {
					text, ids, err := r.Render(msgs, tools, o)
					if err != nil {
						if strings.Contains(err.Error(), "\n") {
							t.Errorf("%s: %q", r.Family(), err)
						}
						continue
					}
					if got := (fake{}).Decode(ids, false); got != text {
						t.Errorf("%s: the text %q, the ids %q", r.Family(), text, got)
					}
					_, plain, err := r.Render(conversation("x", "x", "x", "x"), tools, o)
					if err != nil {
						t.Fatal(err)
					}
					if controls(ids) != controls(plain) {
						t.Errorf("%s: words became control tokens: %q", r.Family(), text)
					}
				}
			}
			_, prev, err := r.Render(msgs[:2], specs, options[2])
			if err != nil {
				continue
			}
			prev = append(prev, (fake{}).Encode(reply, false)...)
			if out, ok := r.Bridge(slices.Clone(prev), msgs[3:4], options[2]); ok && (len(out) < len(prev) || !slices.Equal(out[:len(prev)], prev)) {
				t.Errorf("%s: a bridge changes what was before it", r.Family())
			}
			sampled := append((fake{}).Encode(thinking, false), (fake{}).Encode(reply, false)...)
			for _, b := range []byte(result) { // any control token anywhere
				sampled = append(sampled, int32(256+int(b)%len(fakeControl)))
			}
			m, errs := r.Parse(sampled)
			checkRead(t, r.Family(), (fake{}).Decode(sampled, false), m, errs)
		}
	})
}

func argumentsOf(s string) string {
	b, _ := json.Marshal(map[string]string{"a": s})
	return string(b)
}
