package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"agentcli/traj"
)

// firstJSON decodes the JSON value that text has at a position; end is behind
// it. A reason says what is wrong with it, and where.
func firstJSON(text string, at int) (raw json.RawMessage, end int, reason string) {
	d := json.NewDecoder(strings.NewReader(text[at:]))
	err := d.Decode(&raw)
	if err == nil {
		return raw, at + int(d.InputOffset()), ""
	}
	return nil, len(text), jsonReason(text[at:], err)
}

// cutOff reports whether JSON ended before its end.
func cutOff(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) }

// jsonReason says in words for a model what is wrong with JSON.
func jsonReason(s string, err error) string {
	s = strings.TrimRight(s, blanks)
	var syntax *json.SyntaxError
	switch {
	case strings.TrimLeft(s, blanks) == "":
		return "the JSON is missing"
	case cutOff(err):
		return fmt.Sprintf("it was cut off: the JSON is incomplete; it ends with %q", tail(s, 40))
	case errors.As(err, &syntax) && syntax.Offset > int64(len(s)):
		return fmt.Sprintf("the JSON is incomplete; it ends with %q", tail(s, 40))
	case errors.As(err, &syntax):
		at := max(int(syntax.Offset)-1, 0)
		return fmt.Sprintf("the JSON is not valid at character %d, after %q: %v", utf8.RuneCountInString(s[:at])+1, tail(s[:at], 40), err)
	}
	return fmt.Sprintf("the JSON is not valid: %v", err)
}

// tail is the last n bytes of s or a little less, whole characters.
func tail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	s = s[len(s)-n:]
	for len(s) > 0 && !utf8.RuneStart(s[0]) {
		s = s[1:]
	}
	return s
}

// readBody reads a call that is a JSON object with a name and arguments.
func readBody(body json.RawMessage) (call traj.ToolCall, reason string) {
	if !isObject(body) {
		return call, `the JSON is not an object; write {"name": ..., "arguments": {...}}`
	}
	var f map[string]json.RawMessage
	if err := json.Unmarshal(body, &f); err != nil {
		return call, jsonReason(string(body), err)
	}
	if err := json.Unmarshal(f["name"], &call.Name); err != nil || call.Name == "" {
		return call, `"name" is missing or is not a string; write {"name": ..., "arguments": {...}}`
	}
	args, ok := f["arguments"]
	if !ok {
		args = f["parameters"] // as Llama names them
	}
	call.Arguments, reason = arguments(args)
	return call, reason
}

// arguments takes a call's arguments for an object, or for one in a string, as
// the OpenAI API writes them.
func arguments(args json.RawMessage) (object, reason string) {
	args = bytes.TrimSpace(args)
	var text string
	switch {
	case len(args) == 0 || string(args) == "null":
		return "{}", ""
	case isObject(args):
		return string(args), ""
	case json.Unmarshal(args, &text) == nil:
		text = strings.TrimSpace(text)
		if text == "" {
			return "{}", ""
		}
		if !isObject([]byte(text)) || !json.Valid([]byte(text)) {
			return "", `"arguments" is a string that holds no JSON object; write the object itself`
		}
		return text, ""
	}
	return "", `"arguments" is not an object; write {"name": ..., "arguments": {...}}`
}

// firstArguments reads the JSON object of arguments that text has at a position.
func firstArguments(text string, at int) (object string, end int, reason string) {
	raw, end, reason := firstJSON(text, at)
	if reason != "" {
		return "", end, reason
	}
	if object, reason = arguments(raw); reason != "" {
		reason = "the arguments are not a JSON object; write {\"name of a parameter\": its value, ...}"
	}
	return object, end, reason
}

func isObject(b []byte) bool {
	b = bytes.TrimSpace(b)
	return len(b) > 0 && b[0] == '{'
}
