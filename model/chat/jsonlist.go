package chat

import (
	"encoding/json"
	"fmt"
	"strings"

	"agentcli/traj"
)

// listForm is what most of these formats write.
const listForm = `[{"name": ..., "arguments": {...}}]`

// jsonList is a format of calls in JSON between two tags: a list of them, or one object
// after another.
type jsonList struct {
	open, shut string
	loose      bool // the closing tag may be missing, and text follow
	call       func(body json.RawMessage) (traj.ToolCall, string)
	form       string
}

// granite: <|tool_call|> and a JSON list of {"name", "arguments"}, as Granite 3 and
// Phi-4-mini write it; the latter closes it with <|/tool_call|>.
var (
	graniteList = jsonList{open: "<|tool_call|>", shut: "<|/tool_call|>", loose: true, call: readBody, form: listForm}
	granite     = format{name: "granite", special: true, written: &written{open: graniteList.open, body: jsonCalls},
		find: graniteList.find, read: graniteList.read, begins: []string{graniteList.open}}
)

// nemotron: <TOOLCALL>[{"name", "arguments"}]</TOOLCALL>, as Nemotron Nano v2 writes it.
var (
	nemotronList = jsonList{open: "<TOOLCALL>", shut: "</TOOLCALL>", call: readBody, form: listForm}
	nemotron     = format{name: "nemotron", special: true, find: nemotronList.find, read: nemotronList.read,
		begins: []string{nemotronList.open}}
)

// toolCallsList: <tool_calls> and JSON of {"name", "arguments"}: a list, as Hunyuan A13B and
// Apriel write it, or an object a line, as MiniMax M1 does.
var (
	toolCalls     = jsonList{open: "<tool_calls>", shut: "</tool_calls>", call: readBody, form: listForm}
	toolCallsList = format{name: "tool-calls", find: toolCalls.find, read: toolCalls.read, begins: []string{toolCalls.open}}
)

const apertusForm = `[{"name of the tool": {...}}]`

// apertus: <|tools_prefix|>[{"name": {arguments}}]<|tools_suffix|>, as Apertus writes it.
var (
	apertusList = jsonList{open: "<|tools_prefix|>", shut: "<|tools_suffix|>", call: readApertus, form: apertusForm}
	apertus     = format{name: "apertus", special: true, find: apertusList.find, read: apertusList.read, begins: []string{apertusList.open},
		think: [2]string{"<|inner_prefix|>", "<|inner_suffix|>"}}
)

func (l jsonList) find(_ *reading, text string, at int) int { return index(text, l.open, at) }

func (l jsonList) read(r *reading, text string, at int) int {
	inner := at + len(l.open)
	var list []json.RawMessage
	end := inner
	var reason string
	for {
		var raw json.RawMessage
		if raw, end, reason = firstJSON(text, end); reason != "" {
			break
		}
		var items []json.RawMessage
		if isObject(raw) {
			items = []json.RawMessage{raw}
		} else if json.Unmarshal(raw, &items) != nil {
			reason = "the JSON is no list of calls; write " + l.form
			break
		}
		list = append(list, items...)
		next := skipBlanks(text, end)
		if strings.HasPrefix(text[next:], l.shut) || next == len(text) || l.loose {
			end = skipAny(text, next, l.shut)
			break
		}
		if end = skipBlanks(text, skipAny(text, next, ",", ";")); text[next:end] == "" && text[next] != '{' && text[next] != '[' {
			reason = fmt.Sprintf("there is text after the JSON, from %q on; write %s between %s and %s",
				head(text[next:], 20), l.form, l.open, l.shut)
			break
		}
	}
	if reason == "" && len(list) == 0 {
		reason = "the list has no call; write " + l.form
	}
	if reason != "" {
		end = extent(text, inner, l.open, l.shut)
		r.bad(text[at:end], reason)
		return end
	}
	for i, body := range list {
		call, reason := l.call(body)
		if reason != "" {
			reason = fmt.Sprintf("call %d of the list: %s", i+1, reason)
		}
		r.result(call.Name, call.Arguments, string(body), reason)
	}
	return end
}

// readApertus reads an object whose one key is the name of the tool.
func readApertus(body json.RawMessage) (call traj.ToolCall, reason string) {
	var f map[string]json.RawMessage
	if json.Unmarshal(body, &f) != nil || len(f) != 1 {
		return readBody(body)
	}
	for name, args := range f {
		if call.Name = name; name == "" {
			return call, "the tool has no name; write " + apertusForm
		}
		call.Arguments, reason = arguments(args)
	}
	return call, reason
}
