package chat_test

import (
	"strings"
	"testing"

	"agentcli/model/chat"
)

type laterReply struct{ format, reply, content, reasoning, calls, bad string } // bad: in the reason

func laterReplies() []laterReply {
	const mm, dsml = "<minimax:tool_call>\n", "<｜DSML｜function_calls>\n"
	mmPlot := func(key, value string) string {
		return mm + "<invoke name=\"plot\">\n<parameter name=\"" + key + "\">" + value + "</parameter>\n</invoke>\n</minimax:tool_call>"
	}
	dsmlPlot := func(key, kind, value string) string {
		return dsml + "<｜DSML｜invoke name=\"plot\">\n<｜DSML｜parameter name=\"" + key + "\" string=\"" + kind + "\">" + value +
			"</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>"
	}
	return []laterReply{
		// arguments by the tool's schema
		{"minimax", mmPlot("title", "5"), "", "", `plot{"title": "5"}`, ""},
		{"minimax", mmPlot("scale", "5"), "", "", `plot{"scale": 5}`, ""},
		{"minimax", mmPlot("x", "[1, 2.5]"), "", "", `plot{"x": [1, 2.5]}`, ""},
		{"minimax", mmPlot("colour", "null"), "", "", `plot{"colour": null}`, ""},
		{"minimax", mmPlot("unknown", "true"), "", "", `plot{"unknown": true}`, ""},
		{"minimax", mmPlot("title", "a</parameter>b"), "", "", `plot{"title": "a</parameter>b"}`, ""},
		{"minimax", mmPlot("title", " two\nlines\n"), "", "", `plot{"title": " two\nlines\n"}`, ""},
		{"seed-oss", "<seed:tool_call>\n<function=plot>\n<parameter=options>{'a': [True, None]}</parameter>\n</function>\n</seed:tool_call>",
			"", "", `plot{"options": {"a": [true, null]}}`, ""},
		{"seed-oss", "<seed:tool_call>\n<function=plot>\n<parameter=title>[1]</parameter>\n</function>\n</seed:tool_call>",
			"", "", `plot{"title": "[1]"}`, ""},
		{"deepseek-v3.2", dsmlPlot("title", "true", "5"), "", "", `plot{"title": "5"}`, ""},
		{"deepseek-v3.2", dsmlPlot("scale", "true", "5"), "", "", `plot{"scale": "5"}`, ""},
		{"deepseek-v3.2", dsmlPlot("scale", "false", "5"), "", "", `plot{"scale": 5}`, ""},
		{"deepseek-v3.2", strings.ReplaceAll(dsmlPlot("grid", "false", "true"), "function_calls", "tool_calls"),
			"", "", `plot{"grid": true}`, ""},
		{"deepseek-v3.2", dsml + `<｜DSML｜invoke name="plot">{"scale": 2}</｜DSML｜invoke></｜DSML｜function_calls>`,
			"", "", `plot{"scale": 2}`, ""},
		{"deepseek-v3.2", dsml + `<｜DSML｜invoke name="now"/></｜DSML｜function_calls>`, "", "", `now{}`, ""},
		// content and reasoning before calls, several calls
		{"minimax", "<think>\nhm " + mm + "</think>\n\nSo:\n" + mm +
			"<invoke name=\"now\">\n</invoke>\n<invoke name=\"now\">\n</invoke>\n</minimax:tool_call>",
			"So:", "hm " + strings.TrimSpace(mm), `now{}now{}`, ""},
		{"deepseek-v3.2", "hm</think>So.\n\n" + dsml + "<｜DSML｜invoke name=\"now\">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
			"So.", "hm", `now{}`, ""},
		{"seed-oss", "<seed:think>hm</seed:think>\nSo.\n<seed:tool_call>\n<function=now>\n</function>\n</seed:tool_call>",
			"So.", "hm", `now{}`, ""},
		{"cohere", `<|START_THINKING|>hm<|END_THINKING|><|START_ACTION|>[
    {"tool_call_id": "0", "tool_name": "now", "parameters": {}},
    {"tool_call_id": "1", "tool_name": "plot", "parameters": {"scale": 2}}
]<|END_ACTION|>`, "", "hm", `now{}plot{"scale": 2}`, ""},
		{"cohere", "<|START_THINKING|>hm<|END_THINKING|><|START_RESPONSE|>It is 84.<|END_RESPONSE|>", "It is 84.", "hm", "", ""},
		{"cohere", "hm<|END_THINKING|><|START_TEXT|>It is 84.<|END_TEXT|>", "It is 84.", "hm", "", ""},
		{"nemotron", `<think>hm</think>So. <TOOLCALL>[{"name": "now", "arguments": {}}, {"name": "now", "arguments": "{}"}]</TOOLCALL>`,
			"So.", "hm", `now{}now{}`, ""},
		{"apertus", `<|inner_prefix|>hm<|inner_suffix|>So.<|tools_prefix|>[{"now": {}}, {"plot": {"scale": 1}}]<|tools_suffix|>`,
			"So.", "hm", `now{}plot{"scale": 1}`, ""},
		{"tool-calls", "So.\n<tool_calls>\n{\"name\": \"now\", \"arguments\": {}}\n{\"name\": \"now\", \"arguments\": {}}\n</tool_calls>",
			"So.", "", `now{}now{}`, ""},
		{"tool-calls", `<tool_calls>[{"name": "now", "arguments": {}}]</tool_calls>`, "", "", `now{}`, ""},
		// an end tag that is missing, JSON that is none, a tag that is only mentioned
		{"minimax", mm + `<invoke name="plot">` + "\n<parameter name=\"title\">abc", "", "", "", `</parameter> of "title" is missing`},
		{"minimax", mm + `<invoke name="plot">` + "\n<parameter name=\"title\">abc</parameter>\n", "", "", "", "</invoke> is missing"},
		{"minimax", mm + `<invoke name="plo`, "", "", "", "cut off within"},
		{"minimax", mm + `<invoke>` + "\n</invoke>", "", "", "", "no name"},
		{"minimax", mm + "<invoke name=\"plot\">\ntitle: 5\n</invoke>\n<invoke name=\"now\">\n</invoke>\n</minimax:tool_call>",
			"", "", "now{}", "text outside of the parameters"},
		{"minimax", "Write <minimax:tool_call> around it.", "", "", "", "does not follow"},
		{"minimax", mm + "<invoke name=\"now\">\n</invoke>", "", "", "now{}", ""},
		{"deepseek-v3.2", dsml + `<｜DSML｜invoke name="plot">{"scale": }</｜DSML｜invoke></｜DSML｜function_calls>`, "", "", "", "not valid"},
		{"deepseek-v3.2", dsml + "</｜DSML｜function_calls>", "", "", "", "does not follow"},
		{"cohere", `<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "now", "param<|END_ACTION|>`, "", "", "", "incomplete"},
		{"cohere", `<|START_ACTION|>[{"tool_call_id": "0", "tool_name": 3}, {"tool_name": "now"}]<|END_ACTION|>`, "", "", "now{}", "is no name"},
		{"cohere", `<|START_ACTION|>[{"tool_name": "now", "parameters": {}}]`, "", "", "now{}", ""},
		{"nemotron", `<TOOLCALL>[{"name": "now", "arguments": {}}] and more</TOOLCALL>`, "", "", "", "text after the JSON"},
		{"nemotron", `<TOOLCALL>[]</TOOLCALL>`, "", "", "", "has no call"},
		{"nemotron", `A <TOOLCALL> is a list.`, "", "", "", "not valid"},
		{"apertus", `<|tools_prefix|>[{"now": 3}]<|tools_suffix|>`, "", "", "", "not an object"},
		{"apertus", `<|tools_prefix|>[{"": {}}, {"now": {}}]<|tools_suffix|>`, "", "", "now{}", "no name"},
		{"tool-calls", "<tool_calls>\n{\"name\": \"now\", \"arg</tool_calls>", "", "", "", "incomplete"},
		{"seed-oss", "<seed:tool_call>\n<function=plot>\n<parameter=title>abc", "", "", "", `</parameter> of "title" is missing`},
		{"seed-oss", "<seed:tool_call> is its tag", "", "", "", "<function=name> does not follow"},
	}
}

// The calls of each later format, whole and broken. An error names the reason; what could not
// be read stays in the content.
func TestLaterFormats(t *testing.T) {
	_, tools := replies(t)
	for _, tc := range laterReplies() {
		p := parserOf(t, tc.format, tools)
		m, errs := p.Parse(tc.reply)
		got, reasons := "", ""
		for _, c := range m.ToolCalls {
			got += c.Name + c.Arguments
		}
		for _, e := range errs {
			reasons += e.Reason
			if !strings.Contains(m.Content, strings.TrimSpace(e.Raw)) {
				t.Errorf("%s: %s\n the broken call %q is not in the content %q", tc.format, tc.reply, e.Raw, m.Content)
			}
		}
		if got != tc.calls || (tc.bad == "") != (reasons == "") || !strings.Contains(reasons, tc.bad) ||
			tc.bad == "" && (m.Content != tc.content || m.Reasoning != tc.reasoning) {
			t.Errorf("%s: %s\n got %q, reasoning %q, %s, %q", tc.format, tc.reply, m.Content, m.Reasoning, got, reasons)
		}
		for end := range tc.reply { // a reply that was cut off anywhere
			cut, bad := p.Parse(tc.reply[:end])
			checkRead(t, tc.format, tc.reply[:end], cut, bad)
		}
	}
	for alias, want := range map[string]string{"minimax_m2": "minimax", "deepseek_v32": "deepseek-v3.2", "seed_oss": "seed-oss",
		"hunyuan_a13b": "tool-calls", "ernie45": "hermes"} {
		if p, err := chat.ParserFor(alias, nil); err != nil || p.Name() != want {
			t.Errorf("%s: %v", alias, err)
		}
	}
}

// The names of models find the later formats.
func TestAutoParserOfLaterFormats(t *testing.T) {
	for model, want := range map[string]string{
		"MiniMaxAI/MiniMax-M2": "minimax", "MiniMaxAI/MiniMax-M1-80k": "tool-calls", "deepseek-ai/DeepSeek-V3.2-Exp": "deepseek-v3.2",
		"deepseek-ai/DeepSeek-V3.1-Terminus": "deepseek-v3", "CohereLabs/c4ai-command-r7b-12-2024": "cohere",
		"CohereLabs/c4ai-command-a-03-2025": "cohere", "ByteDance-Seed/Seed-OSS-36B-Instruct": "seed-oss",
		"nvidia/NVIDIA-Nemotron-Nano-9B-v2": "nemotron", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "qwen3-coder",
		"swiss-ai/Apertus-8B-Instruct-2509": "apertus", "tencent/Hunyuan-A13B-Instruct": "tool-calls",
		"baidu/ERNIE-4.5-21B-A3B-Thinking": "hermes", "LGAI-EXAONE/EXAONE-4.0-32B": "hermes",
	} {
		if got := chat.AutoParser(model); got != want {
			t.Errorf("%s: %s, want %s", model, got, want)
		}
	}
}
