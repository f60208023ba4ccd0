package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"agentcli/traj"
)

// Names of the reply parsers that ParseReply takes.
const (
	ParserHermes = "hermes"
	ParserNone   = "none"
	ParserAuto   = "auto" // hermes
)

const (
	openCall, closeCall   = "<tool_call>", "</tool_call>"
	openThink, closeThink = "<think>", "</think>"
)

// ParseReply reads a reply's text: reasoning is split off; with the parser
// "hermes" (or "auto") so are <tool_call> blocks. A call that cannot be read
// becomes a CallError and stays in the content. "none" leaves calls alone.
func ParseReply(parser, text string) (traj.Message, []traj.CallError) {
	m := traj.Message{Role: traj.RoleAssistant}
	m.Reasoning, m.Content = splitReasoning(text)
	if parser == ParserNone {
		return m, nil
	}
	var errs []traj.CallError
	var out strings.Builder
	rest := m.Content
	for {
		i := strings.Index(rest, openCall)
		if i < 0 {
			break
		}
		out.WriteString(rest[:i])
		call, n, reason := readCall(rest[i+len(openCall):])
		raw := rest[i : i+len(openCall)+n]
		if reason != "" {
			errs = append(errs, traj.CallError{Raw: raw, Reason: reason})
			out.WriteString(raw)
		} else {
			call.ID = fmt.Sprintf("call_%d", len(m.ToolCalls))
			m.ToolCalls = append(m.ToolCalls, call)
		}
		rest = rest[i+len(openCall)+n:]
	}
	out.WriteString(rest)
	m.Content = out.String()
	if len(m.ToolCalls) > 0 {
		m.Content = strings.TrimSpace(m.Content)
	}
	return m, errs
}

// splitReasoning takes every <think> block out of a text. A closing tag without
// an opening one closes what the prompt opened; a block that never closes was
// cut off.
func splitReasoning(text string) (reasoning, content string) {
	open, end := strings.Index(text, openThink), strings.Index(text, closeThink)
	if open < 0 && end < 0 {
		return "", text
	}
	var thoughts []string
	var out strings.Builder
	if end >= 0 && (open < 0 || end < open) {
		thoughts = append(thoughts, text[:end])
		text = strings.TrimLeft(text[end+len(closeThink):], "\n")
	}
	for {
		before, after, ok := strings.Cut(text, openThink)
		out.WriteString(before)
		if !ok {
			break
		}
		thought, rest, _ := strings.Cut(after, closeThink)
		thoughts = append(thoughts, thought)
		text = strings.TrimLeft(rest, "\n")
	}
	for i, s := range thoughts {
		thoughts[i] = strings.Trim(s, "\n")
	}
	content = out.String()
	if strings.TrimSpace(content) == "" {
		content = ""
	}
	return strings.Join(thoughts, "\n"), content
}

// readCall reads what follows <tool_call>. n is how much of s belongs to the
// call, its closing tag included; reason is "" or what is wrong.
func readCall(s string) (call traj.ToolCall, n int, reason string) {
	d := json.NewDecoder(strings.NewReader(s))
	var body json.RawMessage
	err := d.Decode(&body)
	if err == nil {
		end := int(d.InputOffset())
		tail := strings.TrimLeft(s[end:], " \t\r\n")
		n = len(s) - len(tail)
		switch {
		case strings.HasPrefix(tail, closeCall):
			n += len(closeCall)
		case tail == "": // the reply ended where the tag should be
		default:
			n = extent(s)
			return call, n, "there is text after the JSON object; a call is one JSON object between <tool_call> and </tool_call>"
		}
		call, reason = readBody(body)
		return call, n, reason
	}
	n = extent(s)
	inner, closed := strings.CutSuffix(s[:n], closeCall)
	switch {
	case strings.TrimSpace(inner) == "":
		return call, n, `it is empty; write {"name": ..., "arguments": {...}} between <tool_call> and </tool_call>`
	case !closed && (errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)):
		return call, n, "it was cut off: the JSON is incomplete and </tool_call> is missing"
	case !closed:
		return call, n, fmt.Sprintf("</tool_call> is missing, and the JSON is not valid: %v", err)
	}
	// Decode again without what follows, for an error about the call alone.
	var v any
	if e := json.Unmarshal([]byte(inner), &v); e != nil {
		err = e
	}
	return call, n, fmt.Sprintf("the JSON is not valid: %v", err)
}

// extent is where a call that cannot be read ends: with its closing tag, or
// before the next call, or with the text.
func extent(s string) int {
	end, next := strings.Index(s, closeCall), strings.Index(s, openCall)
	switch {
	case end >= 0 && (next < 0 || end < next):
		return end + len(closeCall)
	case next >= 0:
		return next
	}
	return len(s)
}

func readBody(body json.RawMessage) (traj.ToolCall, string) {
	var call traj.ToolCall
	if !isObject(body) {
		return call, `the JSON is not an object; write {"name": ..., "arguments": {...}}`
	}
	var f map[string]json.RawMessage
	if err := json.Unmarshal(body, &f); err != nil {
		return call, fmt.Sprintf("the JSON is not valid: %v", err)
	}
	if err := json.Unmarshal(f["name"], &call.Name); err != nil || call.Name == "" {
		return call, `"name" is missing or is not a string; write {"name": ..., "arguments": {...}}`
	}
	args, ok := f["arguments"]
	if !ok {
		args = f["parameters"] // as Llama names them
	}
	args = bytes.TrimSpace(args)
	var text string
	switch {
	case len(args) == 0 || string(args) == "null":
		call.Arguments = "{}"
	case isObject(args):
		call.Arguments = string(args)
	case json.Unmarshal(args, &text) == nil:
		text = strings.TrimSpace(text)
		if text == "" {
			text = "{}"
		}
		if !isObject([]byte(text)) || !json.Valid([]byte(text)) {
			return call, `"arguments" is a string that holds no JSON object; write the object itself`
		}
		call.Arguments = text
	default:
		return call, `"arguments" is not an object; write {"name": ..., "arguments": {...}}`
	}
	return call, ""
}

func isObject(b []byte) bool {
	b = bytes.TrimSpace(b)
	return len(b) > 0 && b[0] == '{'
}
