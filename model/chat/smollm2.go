package chat

import (
	"strings"

	"agentcli/traj"
)

const smollm2System = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"

// SmolLM2's template knows neither tools nor reasoning. Without them we render
// exactly what it does. A list of tools is not shown: shots in the conversation
// show the format, a call in one line and the result as a turn of its own.
var smollm2 = family{name: "smollm2", toolsBy: "qwen2.5", head: headDefault(smollm2System), message: chatmlMessage}

// chatml is the bare format: no default system prompt.
var chatml = family{name: "chatml", toolsBy: "qwen2.5", head: func(*writer, []traj.Message, []string) {}, message: chatmlMessage}

func headDefault(system string) func(*writer, []traj.Message, []string) {
	return func(w *writer, msgs []traj.Message, _ []string) {
		if msgs[0].Role != traj.RoleSystem {
			w.turn(traj.RoleSystem, system)
		}
	}
}

func chatmlMessage(w *writer, msgs []traj.Message, i int, _ bool) error {
	m := msgs[i]
	var b strings.Builder
	if m.Reasoning != "" {
		b.WriteString("<think>\n" + m.Reasoning + "\n</think>\n\n")
	}
	b.WriteString(m.Content)
	for n, c := range m.ToolCalls {
		if n > 0 || m.Content != "" {
			b.WriteByte('\n')
		}
		args, err := PythonJSON([]byte(c.Arguments))
		if err != nil {
			return argError(c, err)
		}
		b.WriteString(`<tool_call>{"name": ` + pyString(c.Name) + `, "arguments": ` + args + `}</tool_call>`)
	}
	w.turn(m.Role, b.String())
	return nil
}
