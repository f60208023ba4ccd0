package chat

import (
	"regexp"
	"strings"
)

// kimi: Kimi K2's section of calls. A call's id, functions.name:0, says the
// name.
var kimi = format{name: "kimi", find: kimiSection.find, read: kimiSection.read, special: true,
	begins: []string{"<|tool_call_begin|>", "<|tool_call_section_begin|>", "<|tool_calls_section_begin|>"}}

var kimiIndex = regexp.MustCompile(`:\d+$`)

var kimiSection = section{
	open: regexp.MustCompile(`<\|tool_calls?_section_begin\|>`), shut: regexp.MustCompile(`<\|tool_calls?_section_end\|>`),
	first: regexp.MustCompile(`<\|tool_call(?:s?_section)?_begin\|>`), begin: regexp.MustCompile(`<\|tool_call_begin\|>`),
	between: regexp.MustCompile(`<\|tool_call_argument_begin\|>`), done: regexp.MustCompile(`<\|tool_call_end\|>`),
	header: func(before, text string, at int) (string, int) {
		id := trimmed(before)
		id = strings.TrimPrefix(id[:len(id)-len(kimiIndex.FindString(id))], "functions.")
		return id, skipBlanks(text, at)
	},
	id: func(before string) string {
		if id := trimmed(before); kimiIndex.MatchString(id) {
			return id // the template renders it
		}
		return ""
	},
	form: "<|tool_calls_section_begin|><|tool_call_begin|>functions.name:0" +
		"<|tool_call_argument_begin|>{...}<|tool_call_end|><|tool_calls_section_end|>",
}
