package chat

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"agentcli/traj"
)

// InText writes a conversation with tools as one without: the tools stand in
// the system prompt, calls in the assistant's text, and results in the user's
// turns, in the words of Qwen's templates (the Hermes form). So a server that
// takes no tools shows the model what its own template would, and ParseReply
// reads the calls of its replies. A system prompt that lists the tools already, as that of
// DeepEyes' rows, stays as it is.
func InText(msgs []traj.Message, tools []traj.ToolSpec) []traj.Message {
	return inText(msgs, tools, hermesWords)
}

// hermesWords are those of Qwen's templates.
var hermesWords = prompted{
	intro: func(tools []traj.ToolSpec) string {
		var b strings.Builder
		b.WriteString(qwenTools)
		for _, t := range tools {
			b.WriteString("\n" + specText(t))
		}
		return b.String() + qwenToolsEnd
	},
	listed: listsTools,
	call:   callText,
	result: func(s string) string { return "<tool_response>\n" + s + "\n</tool_response>" },
}

// listsTools reports whether a system prompt has each of the tools between <tools> and
// </tools>, by its quoted name.
func listsTools(system string, tools []traj.ToolSpec) bool {
	_, list, opened := strings.Cut(system, "<tools>")
	list, _, closed := strings.Cut(list, "</tools>")
	return opened && closed && !slices.ContainsFunc(tools, func(t traj.ToolSpec) bool {
		return !strings.Contains(list, strconv.Quote(t.Name))
	})
}

// hermesText is hermes for a model whose chat template ignores tools: they are
// written into the messages.
var hermesText = format{name: "hermes-text", find: findHermes, read: readHermes, begins: []string{openCall}, prompted: &hermesWords}

// inText writes a conversation in the words of p. Where no tools are offered (any
// more), the calls and results so far are text all the same.
func inText(msgs []traj.Message, tools []traj.ToolSpec, p prompted) []traj.Message {
	if len(tools) == 0 {
		if !slices.ContainsFunc(msgs, func(m traj.Message) bool { return m.Role == traj.RoleTool || len(m.ToolCalls) > 0 }) {
			return msgs
		}
		p.intro = nil
	}
	var out []traj.Message
	if p.listed != nil && len(msgs) > 0 && msgs[0].Role == traj.RoleSystem && p.listed(msgs[0].Content, tools) {
		p.intro = nil
	}
	if p.intro != nil {
		system := ""
		if len(msgs) > 0 && msgs[0].Role == traj.RoleSystem {
			system = msgs[0].Content + "\n\n"
			msgs = msgs[1:]
		}
		out = []traj.Message{{Role: traj.RoleSystem, Content: system + p.intro(tools)}}
	}
	for i, m := range msgs {
		switch m.Role {
		case traj.RoleAssistant:
			for _, c := range m.ToolCalls {
				if m.Content != "" {
					m.Content += "\n"
				}
				m.Content += p.call(c)
			}
			m.ToolCalls = nil
		case traj.RoleTool:
			text := p.result(m.Content)
			if i > 0 && msgs[i-1].Role == traj.RoleTool { // neighbours share one turn
				last := &out[len(out)-1]
				last.Content += "\n" + text
				last.Images = append(last.Images[:len(last.Images):len(last.Images)], m.Images...)
				continue
			}
			m = traj.Message{Role: traj.RoleUser, Content: text, Images: m.Images}
		}
		out = append(out, m)
	}
	return out
}

// specText is a tool as the templates write it; where its parameters are no
// JSON, that a template would refuse, they stand as they are.
func specText(t traj.ToolSpec) string {
	raw, err := toolJSON([]traj.ToolSpec{t})
	if err != nil {
		return t.Name
	}
	return pythonOr(raw[0])
}

// callText is a call as the templates write it; arguments that cannot be read
// show the model what it wrote.
func callText(c traj.ToolCall) string {
	return "<tool_call>\n{\"name\": \"" + c.Name + "\", \"arguments\": " + pythonOr(json.RawMessage(c.Arguments)) + "}\n</tool_call>"
}

func pythonOr(raw json.RawMessage) string {
	if s, err := PythonJSON(raw); err == nil {
		return s
	}
	return string(raw)
}
