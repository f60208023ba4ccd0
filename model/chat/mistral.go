package chat

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// mistral: [TOOL_CALLS] and a JSON list of {"name", "arguments", "id"}, or, from
// Mistral Small 3.1 on, [TOOL_CALLS]name[ARGS]{…} for each call, with an id
// between in some. Thinking stands in [THINK]. A whole reply that is such a list
// is read without its marker, which servers drop as a special token.
var mistral = format{name: "mistral", find: findMistral, read: readMistral, begins: []string{mistralCalls}, starts: startsMistral,
	think: [2]string{"[THINK]", "[/THINK]"}, special: true}

const mistralCalls = "[TOOL_CALLS]"

var mistralName = regexp.MustCompile(`^\s*([^\s\[\]{}"]{1,200})\s*(?:\[CALL_ID\]\s*([^\s\[\]{}]*)\s*)?(?:\[ARGS\])?\s*`)

func findMistral(r *reading, text string, at int) int {
	if i := index(text, mistralCalls, at); i >= 0 {
		return i
	}
	start := skipBlanks(text, at)
	if len(r.msg.ToolCalls) > 0 || strings.TrimSpace(r.out.String()) != "" || !strings.HasPrefix(text[start:], "[") {
		return -1
	}
	var list []map[string]json.RawMessage
	if json.Unmarshal([]byte(text[start:]), &list) != nil || len(list) == 0 {
		return -1
	}
	for _, c := range list {
		if c["name"] == nil || c["arguments"] == nil {
			return -1
		}
	}
	return start
}

func readMistral(r *reading, text string, at int) int {
	p := skipBlanks(text, skipAny(text, at, mistralCalls))
	limit := len(text)
	if i := index(text, mistralCalls, p); i >= 0 {
		limit = i
	}
	fail := func(end int, reason string) int {
		r.bad(text[at:end], reason)
		return end
	}
	rest := text[p:]
	switch {
	case strings.TrimSpace(rest) == "":
		return fail(len(text), "it was cut off after [TOOL_CALLS]")
	case rest[0] == '{':
		raw, end, reason := firstJSON(text, p)
		if reason != "" {
			return fail(limit, reason)
		}
		call, reason := readBody(raw)
		r.result(call.Name, call.Arguments, text[at:end], reason)
		return end
	case rest[0] == '[':
		raw, end, reason := firstJSON(text, p)
		if reason != "" {
			return fail(limit, reason)
		}
		var list []json.RawMessage
		if err := json.Unmarshal(raw, &list); err != nil {
			return fail(end, jsonReason(string(raw), err))
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
	m := mistralName.FindStringSubmatch(rest)
	if m == nil {
		return fail(limit, "no name follows [TOOL_CALLS]; write [TOOL_CALLS]name[ARGS]{...}")
	}
	args, end, reason := firstArguments(text, p+len(m[0]))
	if reason != "" {
		return fail(limit, reason)
	}
	r.call(m[1], args)
	return end
}
