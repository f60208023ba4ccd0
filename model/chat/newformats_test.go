package chat_test

import (
	"testing"

	"agentcli/model/chat"
)

type newReply struct {
	format, reply, content, calls string // calls: name and arguments, one after another
	bad                           int
}

var newReplies = []newReply{
	{"lfm2", `<|tool_call_start|>[f(a=1, b='x "y"'), g()]<|tool_call_end|>`, "", `f{"a": 1, "b": "x \"y\""}g{}`, 0},
	{"lfm2", `Well. <|tool_call_start|>[f(a=True)]<|tool_call_end|> Done`, "Well.  Done", `f{"a": true}`, 0},
	{"lfm2", `<|tool_call_start|>[f(a=1)`, `<|tool_call_start|>[f(a=1)`, "", 1},
	{"lfm2", `<|tool_call_start|>[f(a=)]<|tool_call_end|>`, `<|tool_call_start|>[f(a=)]<|tool_call_end|>`, "", 1},
	{"lfm2", `<|tool_call_start|>[f(a=1]<|tool_call_end|><|tool_call_start|>[g()]<|tool_call_end|>`,
		`<|tool_call_start|>[f(a=1]<|tool_call_end|>`, `g{}`, 1},
	{"olmo3", "<function_calls>\nf(a=[1, 2])\ng(b=None)\n</function_calls>", "", `f{"a": [1, 2]}g{"b": null}`, 0},
	{"olmo3", "<function_calls>f(a=1)</function_calls>", "", `f{"a": 1}`, 0},
	{"olmo3", "<function_calls>f 1</function_calls>", "<function_calls>f 1</function_calls>", "", 1},
	{"granite", `<|tool_call|>[{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]`, "", `f{"a": 1}g{}`, 0},
	{"granite", `<|tool_call|>[{"name": "f", "arguments": {"a": 1}}]<|/tool_call|>`, "", `f{"a": 1}`, 0},
	{"granite", `<|tool_call|>[{"name": "f", "argu`, `<|tool_call|>[{"name": "f", "argu`, "", 1},
	{"granite", `<|tool_call|>[{"name": 3}]`, `{"name": 3}`, "", 1},
	{"gemma4", `<|tool_call>call:f{a:1,b:<|"|>x, {y}<|"|>,c:[true,null],d:{e:<|"|><|"|>}}<tool_call|>`, "",
		`f{"a": 1, "b": "x, {y}", "c": [true, null], "d": {"e": ""}}`, 0},
	{"gemma4", `<|tool_call>call:f{}<tool_call|><|tool_call>call:g{a:word}<tool_call|>`, "", `f{}g{"a": "word"}`, 0},
	{"gemma4", `<|channel>thought` + "\nhm call:f{}\n" + `<channel|><|tool_call>call:f{}<tool_call|>`, "", `f{}`, 0},
	{"gemma4", `<|tool_call>call:f{a:1<tool_call|>`, `<|tool_call>call:f{a:1<tool_call|>`, "", 1},
	{"gemma4", `<|tool_call>f(1)`, `<|tool_call>f(1)`, "", 1},
	{"hermes-text", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>", "", `f{"a": 1}`, 0},
}

func TestNewFormats(t *testing.T) {
	for _, tc := range newReplies {
		m, errs := chat.ParseReply(tc.format, tc.reply)
		got := ""
		for _, c := range m.ToolCalls {
			got += c.Name + c.Arguments
		}
		if m.Content != tc.content || got != tc.calls || len(errs) != tc.bad {
			t.Errorf("%s: %s\n got %q, %s, %v", tc.format, tc.reply, m.Content, got, errs)
		}
	}
}
