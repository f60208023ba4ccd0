package chat

import (
	"errors"
	"strings"
	"unicode"

	"agentcli/traj"
)

const (
	llamaBOS    = "<|begin_of_text|>"
	llamaHeader = "<|start_header_id|>"
	llamaClose  = "<|end_header_id|>"
	llamaEOT    = "<|eot_id|>"

	llamaTools = "Given the following functions, please respond with a JSON for a function call with its proper arguments that best " +
		"answers the given prompt.\n\n" +
		`Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.` + "Do not use variables.\n\n"
)

var llamaFrame = frame{controls: []string{llamaBOS, llamaHeader, llamaClose, llamaEOT}, end: llamaEOT,
	closes: []string{"<|eom_id|>"}, stops: []string{"<|end_of_text|>"},
	header: func(w *writer, role string) {
		w.control(llamaHeader)
		w.plain(role)
		w.control(llamaClose)
		w.plain("\n\n")
	}}

// Llama 3's template knows no tools: as with SmolLM2, shots show what a call
// looks like. Those of 3.1 (and 3.3) and 3.2 differ in the date that they print:
// the one is fixed, the other today's. They raise an error where a message has
// several calls; here these are written as vLLM's parser reads them, with
// semicolons between. The content beside a call they drop, and so does this.
var (
	llama3  = family{name: "llama3", frame: &llamaFrame, parser: "llama3-json", toolsBy: "llama3.1", head: llama3Begin, message: llama3Plain}
	llama31 = family{name: "llama3.1", frame: &llamaFrame, parser: "llama3-json", head: llama31Head("26 Jul 2024"), message: llama31Message}
	llama32 = family{name: "llama3.2", frame: &llamaFrame, parser: "llama3-json", head: llama31Head(""), message: llama31Message}
)

func llama3Begin(w *writer, _ []traj.Message, _ []string) { w.control(llamaBOS) }

func llama3Plain(w *writer, msgs []traj.Message, i int, _ bool) error {
	m := msgs[i]
	if len(m.ToolCalls) > 0 {
		calls, err := llamaCalls(m.ToolCalls)
		if err != nil {
			return err
		}
		m.Content = strings.TrimRight(m.Content, "\n") + "\n" + calls
	}
	w.turn(m.Role, llamaContent(w, m))
	return nil
}

// llama31Head writes the system turn, which is always there, and with tools the
// first question too: the tools stand before it.
func llama31Head(date string) func(*writer, []traj.Message, []string) {
	return func(w *writer, msgs []traj.Message, tools []string) {
		w.control(llamaBOS)
		system := ""
		if msgs[0].Role == traj.RoleSystem {
			system, w.skip = pyTrim(msgs[0].Content), 1
		}
		today := date
		if today == "" {
			today = w.date
		}
		env := ""
		if len(tools) > 0 {
			env = "Environment: ipython\n"
		}
		w.turn(traj.RoleSystem, env, "Cutting Knowledge Date: December 2023\nToday Date: ", today, "\n\n", system)
		if len(tools) == 0 {
			return
		}
		if len(msgs) == w.skip {
			w.err = errors.New("messages: there is no question, before which the chat format puts the tools")
			return
		}
		parts := []string{llamaTools}
		for _, t := range tools {
			parts = append(parts, indentPython(t, 4), "\n\n")
		}
		w.turn(traj.RoleUser, append(parts, pyTrim(msgs[w.skip].Content))...)
		w.skip++
	}
}

func llama31Message(w *writer, msgs []traj.Message, i int, _ bool) error {
	m := msgs[i]
	switch {
	case m.Role == traj.RoleTool: // a string is iterable, so the template makes JSON of it
		text := pyString(m.Content)
		w.tool = text[1 : len(text)-1]
		w.turn("ipython", `"`, w.tool, `"`)
	case len(m.ToolCalls) > 0:
		calls, err := llamaCalls(m.ToolCalls)
		if err != nil {
			return err
		}
		w.turn(traj.RoleAssistant, calls)
	default:
		w.turn(m.Role, llamaContent(w, m))
	}
	return nil
}

// llamaContent is a message's text. The template has no place for reasoning.
func llamaContent(w *writer, m traj.Message) string {
	if m.Reasoning != "" {
		m.Content = "<think>\n" + m.Reasoning + "\n</think>\n\n" + m.Content
	}
	if w.open { // what goes on is not cut at its end
		return strings.TrimLeftFunc(m.Content, pySpace)
	}
	return pyTrim(m.Content)
}

func llamaCalls(calls []traj.ToolCall) (string, error) {
	var parts []string
	for _, c := range calls {
		args, err := PythonJSON([]byte(c.Arguments))
		if err != nil {
			return "", argError(c, err)
		}
		// The template does not escape the name.
		parts = append(parts, `{"name": "`+c.Name+`", "parameters": `+args+"}")
	}
	return strings.Join(parts, "; "), nil
}

// pyTrim is Python's strip.
func pyTrim(s string) string { return strings.TrimFunc(s, pySpace) }

func pySpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// indentPython spreads what PythonJSON wrote over lines, as json.dumps does with
// an indent.
func indentPython(s string, width int) string {
	var b strings.Builder
	depth := 0
	line := func() { b.WriteString("\n" + strings.Repeat(" ", depth*width)) }
	quoted := false
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case quoted:
			b.WriteByte(c)
			if c == '\\' {
				i++
				b.WriteByte(s[i])
			}
			quoted = c != '"'
		case c == '"':
			quoted = true
			b.WriteByte(c)
		case (c == '{' || c == '[') && (s[i+1] == '}' || s[i+1] == ']'):
			b.WriteString(s[i : i+2])
			i++
		case c == '{' || c == '[':
			b.WriteByte(c)
			depth++
			line()
		case c == '}' || c == ']':
			depth--
			line()
			b.WriteByte(c)
		case c == ',': // and the blank behind it
			b.WriteByte(c)
			i++
			line()
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}
