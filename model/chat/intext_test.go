package chat_test

import (
	"encoding/json"
	"testing"

	"agentcli/internal/goldenfile"
	"agentcli/model/chat"
	"agentcli/traj"
)

// TestInText: through a template without tools, the conversation in text is
// what the template with tools makes of it.
func TestInText(t *testing.T) {
	var g goldenFile
	goldenfile.Load(t, "golden.json", &g)
	tools := []traj.ToolSpec{{Name: "calculator", Description: "Compute <é>.",
		Parameters: json.RawMessage(`{"type":"object","properties":{"expression":{"type":"string"}}}`)}, {Name: "clock"}}
	n := 0
	for i, row := range g.Rows {
		if row.Family != "qwen2.5" && row.Family != "qwen3" || row.Messages[0].Role != "system" {
			continue
		}
		var msgs []traj.Message
		calls, thinks := 0, false
		for _, m := range row.Messages {
			msgs = append(msgs, m.message())
			calls += len(m.ToolCalls)
			thinks = thinks || m.Reasoning != ""
		}
		if calls == 0 || thinks { // where a thought goes is the template's affair
			continue
		}
		r, err := chat.For(row.Family, fake{})
		if err != nil {
			t.Fatal(err)
		}
		for _, tools := range [][]traj.ToolSpec{tools, nil} { // nil: they are not offered any more
			want, _, err := r.Render(msgs, tools, chat.Options{AddGenerationPrompt: true})
			if err != nil {
				t.Fatal(err)
			}
			got, _, err := r.Render(chat.InText(msgs, tools), nil, chat.Options{AddGenerationPrompt: true})
			if err != nil {
				t.Fatal(err)
			}
			if got != want {
				t.Errorf("row %d (%s), %d tools\n got %q\nwant %q", i, row.Family, len(tools), got, want)
			}
		}
		n++
	}
	if n < 4 {
		t.Errorf("only %d conversations with calls", n)
	}
	plain := []traj.Message{{Role: "user", Content: "q"}}
	if got := chat.InText(plain, nil); len(got) != 1 || got[0].Content != "q" {
		t.Errorf("without tools nothing changes: %+v", got)
	}
	broken := chat.InText([]traj.Message{{Role: "user", Content: "q"},
		{Role: "assistant", Content: "Hm.", ToolCalls: []traj.ToolCall{{Name: "f", Arguments: "{x"}}}}, tools)
	if got := broken[len(broken)-1].Content; got != "Hm.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {x}\n</tool_call>" {
		t.Errorf("%q", got)
	}
}

func TestToolsThatASystemPromptListsAreNotWrittenTwice(t *testing.T) {
	zoom, search := traj.ToolSpec{Name: "zoom"}, traj.ToolSpec{Name: "search"}
	const listed = "# Tools\n<tools>\n{\"name\":\"zoom\"}\n</tools>"
	for _, x := range []struct {
		system string
		tools  []traj.ToolSpec
		stays  bool
	}{
		{listed, []traj.ToolSpec{zoom}, true},
		{listed, []traj.ToolSpec{zoom, search}, false},
		{"Call \"zoom\" within <tools>", []traj.ToolSpec{zoom}, false},
		{"<tools></tools> \"zoom\"", []traj.ToolSpec{zoom}, false},
	} {
		msgs := []traj.Message{{Role: traj.RoleSystem, Content: x.system}, {Role: traj.RoleUser, Content: "q"}}
		got := chat.InText(msgs, x.tools)
		if len(got) != 2 || (got[0].Content == x.system) != x.stays {
			t.Errorf("%q with %d tools: %q", x.system, len(x.tools), got[0].Content)
		}
	}
}
