package chat

import (
	"encoding/json"
	"fmt"
)

// granite: <|tool_call|> and a JSON list of {"name", "arguments"}, as Granite 3 and
// Phi-4-mini write it; the latter closes it with <|/tool_call|>.
var granite = format{name: "granite", special: true, written: &written{open: graniteOpen, body: jsonCalls},
	find: findGranite, read: readGranite}

const graniteOpen, graniteClose = "<|tool_call|>", "<|/tool_call|>"

func findGranite(_ *reading, text string, at int) int { return index(text, graniteOpen, at) }

func readGranite(r *reading, text string, at int) int {
	raw, end, reason := firstJSON(text, at+len(graniteOpen))
	if reason != "" {
		end = extent(text, at+len(graniteOpen), graniteOpen, graniteClose)
		r.bad(text[at:end], reason)
		return end
	}
	end = skipAny(text, skipBlanks(text, end), graniteClose)
	list := []json.RawMessage{raw}
	if !isObject(raw) && json.Unmarshal(raw, &list) != nil {
		r.bad(text[at:end], `the JSON is no list of calls; write [{"name": ..., "arguments": {...}}]`)
		return end
	}
	for i, body := range list {
		call, reason := readBody(body)
		if reason != "" {
			reason = fmt.Sprintf("call %d of the list: %s", i+1, reason)
		}
		r.result(call.Name, call.Arguments, string(body), reason)
	}
	return end
}
