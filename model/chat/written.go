package chat

import (
	"bytes"
	"encoding/json"
	"strings"

	"agentcli/model/jinja"
	"agentcli/traj"
)

// written is how calls are written into a reply's content, for a template that shows the
// tools but prints no tool_calls: LFM2's first ones and Granite 3.3's.
type written struct {
	open, shut string
	body       func(calls []traj.ToolCall) (string, error)
}

// text is a content with calls behind it. The tags are the template's own text: they may be
// special tokens, which a message must not spell.
func (w *written) text(content string, calls []traj.ToolCall) (jinja.Str, error) {
	body, err := w.body(calls)
	return jinja.Concat(jinja.Data(content), jinja.Text(w.open), jinja.Data(body), jinja.Text(w.shut)), err
}

// jsonCalls are a list of {"name", "arguments"}.
func jsonCalls(calls []traj.ToolCall) (string, error) {
	var parts []string
	for _, c := range calls {
		args, err := PythonJSON([]byte(c.Arguments))
		if err != nil {
			return "", argError(c, err)
		}
		parts = append(parts, `{"name": `+pyString(c.Name)+`, "arguments": `+args+"}")
	}
	return "[" + strings.Join(parts, ", ") + "]", nil
}

// pyCalls are a list as Python writes it: [f(a=1), g(b="x")].
func pyCalls(calls []traj.ToolCall) (string, error) {
	var parts []string
	for _, c := range calls {
		args, err := pyArguments(c.Arguments)
		if err != nil {
			return "", argError(c, err)
		}
		parts = append(parts, c.Name+"("+args+")")
	}
	return "[" + strings.Join(parts, ", ") + "]", nil
}

// pyArguments writes an object as arguments by name.
func pyArguments(object string) (string, error) {
	d := json.NewDecoder(bytes.NewReader([]byte(object)))
	if _, err := d.Token(); err != nil {
		return "", err
	}
	var parts []string
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return "", err
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return "", err
		}
		value, err := PythonJSON(raw)
		if err != nil {
			return "", err
		}
		if word, ok := map[string]string{"true": "True", "false": "False", "null": "None"}[value]; ok {
			value = word
		}
		name, _ := key.(string)
		parts = append(parts, name+"="+value)
	}
	return strings.Join(parts, ", "), nil
}
