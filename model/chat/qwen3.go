package chat

import (
	"slices"
	"strings"

	"agentcli/traj"
)

// Qwen3 drops the thinking of turns before the last question, so a new question
// rewrites history.
var qwen3 = family{name: "qwen3", head: qwen3Head, message: qwen3Message, open: qwen3Open, rewrites: qwen3Rewrites}

func qwen3Head(w *writer, msgs []traj.Message, tools []string) {
	first := msgs[0]
	switch {
	case first.Role == traj.RoleSystem:
		qwenSystem(w, first.Content+"\n\n", first.Content, tools)
	case len(tools) > 0:
		qwenSystem(w, "", "", tools)
	}
}

func qwen3Open(w *writer, o Options) {
	if o.EnableThinking != nil && !*o.EnableThinking {
		w.plain("<think>\n\n</think>\n\n")
	}
}

// isQuery: a question of the user's, not a tool's result dressed as one.
func isQuery(m traj.Message) bool {
	return m.Role == traj.RoleUser && !(strings.HasPrefix(m.Content, "<tool_response>") && strings.HasSuffix(m.Content, "</tool_response>"))
}

func qwen3Rewrites(prev []int32, msgs []traj.Message, endThink int32, have bool) bool {
	if !slices.ContainsFunc(msgs, isQuery) {
		return false
	}
	return !have || slices.Contains(prev, endThink)
}

func lastQuery(msgs []traj.Message) int {
	for i := len(msgs) - 1; i >= 0; i-- {
		if isQuery(msgs[i]) {
			return i
		}
	}
	return len(msgs) - 1
}

func qwen3Message(w *writer, msgs []traj.Message, i int, headed bool) error {
	m := msgs[i]
	switch m.Role {
	case traj.RoleSystem:
		if i > 0 || !headed {
			w.turn(m.Role, m.Content)
		}
	case traj.RoleUser:
		w.turn(m.Role, m.Content)
	case traj.RoleTool:
		qwenTool(w, msgs, i)
	case traj.RoleAssistant:
		content, reasoning := m.Content, m.Reasoning
		if reasoning == "" && strings.Contains(content, "</think>") {
			parts := strings.Split(content, "</think>")
			before := strings.Split(strings.TrimRight(parts[0], "\n"), "<think>")
			reasoning = strings.TrimLeft(before[len(before)-1], "\n")
			content = strings.TrimLeft(parts[len(parts)-1], "\n")
		}
		after := i > lastQuery(msgs)
		if !headed && !slices.ContainsFunc(msgs, isQuery) {
			after = true // in a bridge the question is in what came before
		}
		w.control(imStart)
		w.plain(m.Role, "\n")
		if after && (i == len(msgs)-1 || reasoning != "") {
			w.plain("<think>\n", strings.Trim(reasoning, "\n"), "\n</think>\n\n", strings.TrimLeft(content, "\n"))
		} else {
			w.plain(content)
		}
		if err := qwenCalls(w, m.ToolCalls, content != ""); err != nil {
			return err
		}
		w.end()
	}
	return nil
}
