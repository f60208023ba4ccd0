package chat

import (
	"encoding/json"
	"fmt"
	"strings"

	"agentcli/traj"
)

// hermes: <tool_call>{"name": …, "arguments": {…}}</tool_call>, as the Hermes
// models, Qwen2.5 and Qwen3 write it.
var hermes = format{name: "hermes", find: findHermes, read: readHermes, begins: []string{openCall}}

const openCall, closeCall = "<tool_call>", "</tool_call>"

func findHermes(_ *reading, text string, at int) int { return index(text, openCall, at) }

func readHermes(r *reading, text string, at int) int {
	inner := at + len(openCall)
	call, n, reason := readCall(text[inner:])
	r.result(call.Name, call.Arguments, text[at:inner+n], reason)
	return inner + n
}

// readCall reads what follows <tool_call>. n is how much of s belongs to the
// call, its closing tag included; reason is "" or what is wrong.
func readCall(s string) (call traj.ToolCall, n int, reason string) {
	d := json.NewDecoder(strings.NewReader(s))
	var body json.RawMessage
	err := d.Decode(&body)
	if err == nil {
		end := skipBlanks(s, int(d.InputOffset()))
		switch {
		case strings.HasPrefix(s[end:], closeCall):
			n = end + len(closeCall)
		case end == len(s): // the reply ended where the tag should be
			n = end
		default:
			n = extent(s, 0, openCall, closeCall)
			return call, n, fmt.Sprintf("there is text after the JSON object, from %q on; "+
				"a call is one JSON object between <tool_call> and </tool_call>", head(s[end:], 20))
		}
		call, reason = readBody(body)
		return call, n, reason
	}
	n = extent(s, 0, openCall, closeCall)
	inner, closed := strings.CutSuffix(s[:n], closeCall)
	switch {
	case strings.TrimSpace(inner) == "":
		return call, n, `it is empty; write {"name": ..., "arguments": {...}} between <tool_call> and </tool_call>`
	case !closed && cutOff(err):
		return call, n, jsonReason(inner, err) + ", and </tool_call> is missing"
	case !closed:
		return call, n, "</tool_call> is missing, and " + jsonReason(s, err)
	}
	// Decode again without what follows, for an error about the call alone.
	var v any
	if e := json.Unmarshal([]byte(inner), &v); e != nil {
		err = e
	}
	return call, n, jsonReason(inner, err)
}

// head is the beginning of s, n characters at most.
func head(s string, n int) string {
	for i := range s {
		if n--; n < 0 {
			return s[:i]
		}
	}
	return s
}
