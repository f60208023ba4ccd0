package chat_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"agentcli/internal/goldenfile"
	"agentcli/model/chat"
	"agentcli/traj"
)

type replyFile struct {
	Tools []struct {
		Function traj.ToolSpec `json:"function"`
	} `json:"tools"`
	Rows []replyRow `json:"rows"`
}

type replyRow struct {
	Family    string      `json:"family"`
	From      string      `json:"from"`
	Reply     string      `json:"reply"`
	Content   string      `json:"content"`
	Reasoning string      `json:"reasoning"`
	Calls     []replyCall `json:"calls"`
}

type replyCall struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

func replies(tb testing.TB) (replyFile, []traj.ToolSpec) {
	var g replyFile
	goldenfile.Load(tb, "toolcalls.json", &g)
	var tools []traj.ToolSpec
	for _, t := range g.Tools {
		tools = append(tools, t.Function)
	}
	tools = append(tools, traj.ToolSpec{
		Name: "python", Parameters: json.RawMessage(`{"type":"object","properties":{"code":{"type":"string"}},"required":["code"]}`)})
	return g, tools
}

func parserOf(tb testing.TB, name string, tools []traj.ToolSpec) *chat.Parser {
	tb.Helper()
	p, err := chat.ParserFor(name, tools)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func same(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && reflect.DeepEqual(x, y)
}

func checkReply(t interface{ Errorf(string, ...any) }, what string, m traj.Message, errs []traj.CallError, row replyRow) {
	bad := len(errs) > 0 || strings.TrimSpace(m.Content) != strings.TrimSpace(row.Content) ||
		strings.TrimSpace(m.Reasoning) != row.Reasoning || len(m.ToolCalls) != len(row.Calls)
	for i := 0; !bad && i < len(row.Calls); i++ {
		c, want := m.ToolCalls[i], row.Calls[i]
		bad = c.Name != want.Name || c.ID != "" && !strings.HasSuffix(c.ID, fmt.Sprintf("%s:%d", c.Name, i)) ||
			!same(c.Arguments, string(want.Arguments))
	}
	if bad {
		t.Errorf("%s (%s): %q\n got %+v %v\nwant %q %q %s", row.Family, what, row.Reply, m, errs, row.Content, row.Reasoning, row.Calls)
	}
}

// readInTemplates are held by TestNewFormats and by what probing reads back.
var readInTemplates = []string{"gemma4", "lfm2", "granite", "olmo3", "hermes-text", "deepeyes", "tool-calls"}

// What the vendors' templates write is read back as it was.
func TestGoldenReplies(t *testing.T) {
	g, tools := replies(t)
	n := map[string]int{}
	for _, row := range g.Rows {
		m, errs := parserOf(t, row.Family, tools).Parse(row.Reply)
		checkReply(t, row.From, m, errs, row)
		n[row.Family]++
	}
	for _, name := range chat.Parsers() {
		if name != "auto" && name != "none" && !slices.Contains(readInTemplates, name) && n[name] < 2 {
			t.Errorf("%d rows of %s", n[name], name)
		}
	}
}

// writers write a reply in each format: the texts of the golden file, made here
// for messages that come at random.
var writers = map[string]func(content string, calls []replyCall) string{
	"hermes": func(content string, calls []replyCall) string {
		for i, c := range calls {
			if i > 0 || content != "" {
				content += "\n"
			}
			content += fmt.Sprintf("<tool_call>\n{\"name\": %q, \"arguments\": %s}\n</tool_call>", c.Name, python(c.Arguments))
		}
		return content
	},
	"qwen3-coder": func(content string, calls []replyCall) string {
		for _, c := range calls {
			content += "\n<tool_call>\n<function=" + c.Name + ">\n"
			eachArg(c, func(key, value string) { content += "<parameter=" + key + ">\n" + value + "\n</parameter>\n" })
			content += "</function>\n</tool_call>"
		}
		return content
	},
	"glm": func(content string, calls []replyCall) string {
		for _, c := range calls {
			content += "\n<tool_call>" + c.Name + "\n"
			eachArg(c, func(key, value string) {
				content += "<arg_key>" + key + "</arg_key>\n<arg_value>" + value + "</arg_value>\n"
			})
			content += "</tool_call>"
		}
		return content
	},
	"deepseek-r1": func(content string, calls []replyCall) string {
		for i, c := range calls {
			if content += "\n"; i == 0 {
				content = strings.TrimSuffix(content, "\n") + "<｜tool▁calls▁begin｜>"
			}
			content += "<｜tool▁call▁begin｜>function<｜tool▁sep｜>" + c.Name + "\n```json\n" + python(c.Arguments) + "\n```<｜tool▁call▁end｜>"
		}
		return content + "<｜tool▁calls▁end｜>"
	},
	"deepseek-v3": func(content string, calls []replyCall) string {
		content += "<｜tool▁calls▁begin｜>"
		for _, c := range calls {
			content += "<｜tool▁call▁begin｜>" + c.Name + "<｜tool▁sep｜>" + python(c.Arguments) + "<｜tool▁call▁end｜>"
		}
		return content + "<｜tool▁calls▁end｜>"
	},
	"llama3-json": func(_ string, calls []replyCall) string {
		var parts []string
		for _, c := range calls {
			parts = append(parts, fmt.Sprintf(`{"name": %q, "parameters": %s}`, c.Name, python(c.Arguments)))
		}
		return strings.Join(parts, "; ")
	},
	"mistral": func(content string, calls []replyCall) string {
		for _, c := range calls {
			content += "[TOOL_CALLS]" + c.Name + "[ARGS]" + python(c.Arguments)
		}
		return content
	},
	"kimi": func(content string, calls []replyCall) string {
		content += "<|tool_calls_section_begin|>"
		for i, c := range calls {
			content += fmt.Sprintf("<|tool_call_begin|>functions.%s:%d<|tool_call_argument_begin|>%s<|tool_call_end|>",
				c.Name, i, python(c.Arguments))
		}
		return content + "<|tool_calls_section_end|>"
	},
	"gpt-oss": func(content string, calls []replyCall) string {
		text := ""
		if content != "" {
			text = "<|channel|>commentary<|message|>" + content + "<|end|><|start|>assistant"
		}
		for i, c := range calls {
			if i > 0 {
				text += "<|start|>assistant"
			}
			text += "<|channel|>commentary to=functions." + c.Name + " <|constrain|>json<|message|>" + python(c.Arguments) + "<|call|>"
		}
		return text
	},
	"react": func(content string, calls []replyCall) string {
		for _, c := range calls {
			content += "\nAction: " + c.Name + "\nAction Input: " + python(c.Arguments)
		}
		return content
	},
}

func python(raw json.RawMessage) string {
	s, err := chat.PythonJSON(raw)
	if err != nil {
		panic(err)
	}
	return s
}

// eachArg gives arguments as bare text: strings as they are.
func eachArg(c replyCall, f func(key, value string)) {
	d := json.NewDecoder(bytes.NewReader(c.Arguments))
	_, _ = d.Token()
	for d.More() {
		key, _ := d.Token()
		var raw json.RawMessage
		_ = d.Decode(&raw)
		var s string
		if json.Unmarshal(raw, &s) != nil || string(raw) == "null" {
			s = python(raw)
		}
		f(key.(string), s)
	}
}

// The writers write what the vendors' templates do.
func TestWriters(t *testing.T) {
	g, _ := replies(t)
	from := map[string]string{"hermes": "Qwen-Qwen2.5-7B-Instruct", "deepseek-r1": "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
		"llama3-json": "meta-llama-Llama-3.1-8B-Instruct",
		"mistral":     "mistralai-Ministral-3-14B-Reasoning-2512", "kimi": "moonshotai-Kimi-K2", "glm": "GLM-4.6",
		"qwen3-coder": "Qwen3-Coder", "deepseek-v3": "deepseek-ai-DeepSeek-V3.1"}
	n := 0
	for _, row := range g.Rows {
		if from[row.Family] != row.From || len(row.Calls) == 0 || row.Reasoning != "" {
			continue
		}
		want := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(row.Reply), "<think></think>"))
		got := strings.TrimSpace(writers[row.Family](row.Content, row.Calls))
		if row.Family == "qwen3-coder" { // True and None, and a line more after the content
			got, want = strings.NewReplacer("true\n", "True\n", "null\n", "None\n").Replace(got),
				strings.ReplaceAll(strings.ReplaceAll(want, "\n\n<tool_call>", "\n<tool_call>"), "null\n", "None\n")
		}
		if got != want {
			t.Errorf("%s\n got %q\nwant %q", row.Family, got, want)
		}
		n++
	}
	if n < 30 {
		t.Errorf("only %d rows", n)
	}
}

// What is written is read back, whatever the arguments are.
func TestRoundTrip(t *testing.T) {
	_, tools := replies(t)
	text := rapid.OneOf(rapid.StringMatching(`[a-z0-9 <>|\n\t"'\\{}\[\]()é中:;=,]{0,24}`), rapid.SampledFrom([]string{
		"5", "-1e3", "true", "None", "null", `{"a": 1}`, "[1]", "<tool_call>", "</tool_call>", "</think>x",
		"```", "<|call|>"[:4], "[ARGS]", "Action: x", "\nObservation: y", "; {", "</parameter>", "</arg_value>"}))
	value := map[string]*rapid.Generator[any]{
		"string": rapid.Map(text, func(s string) any { return s }),
		"number": rapid.Map(rapid.Float64Range(-1e6, 1e6), func(f float64) any { return f }),
		"int":    rapid.Map(rapid.IntRange(-99, 99), func(i int) any { return i }),
		"bool":   rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		"array":  rapid.Map(rapid.SliceOfN(rapid.IntRange(-9, 9), 0, 3), func(v []int) any { return append([]int{}, v...) }),
		"object": rapid.Map(rapid.MapOfN(text, text, 0, 3), func(v map[string]string) any { return v }),
	}
	params := []struct{ tool, name, kind string }{
		{"calculator", "expression", "string"}, {"calculator", "digits", "int"}, {"plot", "title", "string"}, {"plot", "x", "array"},
		{"plot", "options", "object"}, {"plot", "scale", "number"}, {"plot", "grid", "bool"}, {"search", "query", "string"},
	}
	names := []string{"calculator", "plot", "search", "now"}
	for family, write := range writers {
		t.Run(family, func(t *testing.T) {
			p := parserOf(t, family, tools)
			rapid.Check(t, func(t *rapid.T) {
				row := replyRow{Family: family}
				if family != "llama3-json" {
					row.Content = rapid.StringMatching(`([a-z][a-z ,.]{0,20}[a-z])?`).Draw(t, "content")
				}
				for range rapid.IntRange(1, 3).Draw(t, "calls") {
					c := replyCall{Name: rapid.SampledFrom(names).Draw(t, "tool")}
					args := map[string]any{}
					for _, q := range params {
						if q.tool == c.Name && rapid.Bool().Draw(t, "given") {
							args[q.name] = value[q.kind].Draw(t, q.name)
						}
					}
					c.Arguments, _ = json.Marshal(args)
					// Bare values cannot spell their own closing tags.
					for _, s := range []string{"</parameter>", "</arg_value>"} {
						raw, _ := json.Marshal(s)
						c.Arguments = bytes.ReplaceAll(c.Arguments, bytes.Trim(raw, `"`), []byte("x"))
					}
					row.Calls = append(row.Calls, c)
				}
				row.Reply = write(row.Content, row.Calls)
				m, errs := p.Parse(row.Reply)
				checkReply(t, "round trip", m, errs, row)
			})
		})
	}
}

// TestAClosingTagInACallEndsNoThinking: the call would be lost, and its beginning taken for
// thought.
func TestAClosingTagInACallEndsNoThinking(t *testing.T) {
	_, tools := replies(t)
	p := parserOf(t, "hermes", tools)
	call := func(q string) string {
		return `<tool_call>{"name": "search", "arguments": {"query": "` + q + `"}}</tool_call>`
	}
	for text, want := range map[string]struct{ reasoning, query, content string }{
		call("a</think>b"):                                     {"", "a</think>b", ""},
		"So " + call("a</think>b") + call("c"):                 {"", "a</think>b", "So"},
		call("a") + "</think>" + call("b"):                     {call("a"), "b", ""},
		"hm " + call("a</think>b") + " no</think>" + call("c"): {"hm " + call("a</think>b") + " no", "c", ""},
		"<tool_call> is how</think>" + call("b"):               {"<tool_call> is how", "b", ""},
	} {
		m, errs := p.Parse(text)
		if len(errs) > 0 || len(m.ToolCalls) == 0 || m.Reasoning != want.reasoning || m.Content != want.content ||
			!strings.Contains(m.ToolCalls[0].Arguments, want.query) {
			t.Errorf("%q: reasoning %q, calls %v, content %q, %v", text, m.Reasoning, m.ToolCalls, m.Content, errs)
		}
	}
}

type brokenReply struct{ family, text, reason, calls string } // calls: names of those that are read

func brokenReplies() []brokenReply {
	const ds, de = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>", "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
	const ks, ke = "<|tool_calls_section_begin|><|tool_call_begin|>", "<|tool_call_end|><|tool_calls_section_end|>"
	return []brokenReply{
		{"hermes", `<tool_call>{"name": "now", "arguments": {"a" 1}}</tool_call>`,
			`not valid at character 35, after "{\"name\": \"now\", \"arguments\": {\"a\" "`, ""},
		{"hermes", `<tool_call>{"name": "now", "arguments": {"a": "xyz`, `it was cut off: the JSON is incomplete; it ends with`, ""},
		{"hermes", `<tool_call>{"name": "now", "argu<tool_call>{"name": "now"}</tool_call>`, "</tool_call> is missing", "now"},
		{"qwen3-coder", "<tool_call>\n<function=plot>\n<parameter=title>\nabc", `cut off: </parameter> of "title" is missing`, ""},
		{"qwen3-coder", "<tool_call>\n<function=plot>\n<parameter=title>\nabc\n</parameter>\n", "cut off: </function> is missing", ""},
		{"qwen3-coder", "<tool_call>\n<function=plo", "cut off within", ""},
		{"qwen3-coder", "<tool_call>", "cut off after <tool_call>", ""},
		{"qwen3-coder", "<tool_call>\nplot()\n</tool_call><function=now></function>", "<function=name> does not follow", "now"},
		{"qwen3-coder", "<tool_call><function=plot>title: 5</function></tool_call>", "text outside of the parameters", ""},
		{"qwen3-coder", `<tool_call>{"name": "now", "arguments": {}}</tool_call>`, "", "now"},
		{"glm", "<tool_call>plot\n<arg_key>title</arg_key>\n<arg_value>abc", `</arg_value> of "title" is missing`, ""},
		{"glm", "<tool_call>plot\n<arg_key>title</arg_key>", `<arg_value> of "title" is missing`, ""},
		{"glm", "<tool_call>now", "cut off: </tool_call> is missing", ""},
		{"glm", "<tool_call>\n</tool_call>", "no name", ""},
		{"deepseek-r1", ds + "function<｜tool▁sep｜>now\n```json\n{\"a\": }\n```" + de, "not valid at character 7", ""},
		{"deepseek-r1", ds + "function<｜tool▁sep｜>now\n```json\n{\"a\": 1", "cut off", ""},
		{"deepseek-r1", ds + "function<｜tool▁sep｜>now\n```json\n[1]\n```" + de, "not a JSON object", ""},
		{"deepseek-r1", ds + "now", "cut off or has no arguments", ""},
		{"deepseek-v3", ds + "now<｜tool▁sep｜>{} trailing" + de, "text after the JSON object", ""},
		{"deepseek-v3", ds + "<｜tool▁sep｜>{}" + de, "no name", ""},
		{"deepseek-v3", ds + "now<｜tool▁sep｜>{", "cut off", ""},
		{"deepseek-v3", ds + "now<｜tool▁sep｜>{\"a\"<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}" + de, "not valid", "now"},
		{"deepseek-v3", "<|tool_calls_begin|><|tool_call_begin|>function<|tool_sep|>now\n```json\n{}\n```" +
			"<|tool_call_end|><|tool_calls_end|>", "", "now"},
		{"llama3-json", `{"name": "now", "parameters": {"a": `, "cut off", ""},
		{"llama3-json", `{"name": "now", "parameters": {a: 1}}`, "not valid at character 32", ""},
		{"llama3-json", `{"name": "Faust", "year": 1808}`, "", ""},
		{"llama3-json", `{"type": "function", "name": "now", "parameters": {}}`, "", "now"},
		{"llama3-json", "Sure:\n{\"name\": \"now\", \"parameters\": {}}", "", "now"},
		{"llama3-json", `<|python_tag|>search.call(query=`, "cut off where a value should be", ""},
		{"llama3-json", `<|python_tag|>`, "nothing follows", ""},
		{"llama3-json", `<|python_tag|><function=now`, "is missing", ""},
		{"llama3-json", `[now(), plot(title=f(x))]`, "not valid", ""},
		{"llama3-json", `[1, 2]`, "", ""},
		{"llama3-python", `now()`, "", "now"},
		{"llama3-python", `now() is what I would call`, "", ""},
		{"mistral", `[TOOL_CALLS][{"name": "now", "arguments": {}}, {"name": "plot", "argum`, "cut off", ""},
		{"mistral", `[TOOL_CALLS]now[ARGS]{"a": 1`, "cut off", ""},
		{"mistral", `[TOOL_CALLS][{"name": "now"}, {"arguments": {}}]`, "call 2 of the list: \"name\" is missing", "now"},
		{"mistral", `[TOOL_CALLS]`, "cut off after [TOOL_CALLS]", ""},
		{"mistral", `[TOOL_CALLS]now{}`, "", "now"},
		{"mistral", `[{"name": "now", "arguments": {}}]`, "", "now"},
		{"mistral", `[{"name": "Bob"}]`, "", ""},
		{"kimi", ks + "functions.now:0<|tool_call_argument_begin|>{\"a\": tru}" + ke, "not valid at character 10", ""},
		{"kimi", ks + "functions.now:0<|tool_call_argument_begin|>{\"a\"", "cut off", ""},
		{"kimi", ks + "functions.now:0" + ke, "no arguments", ""},
		{"kimi", ks, "cut off or has no arguments", ""},
		{"kimi", "<|tool_calls_section_begin|>", "no call follows", ""},
		{"gpt-oss", `<|channel|>commentary to=functions.now <|constrain|>json<|message|>{"a": `, "cut off", ""},
		{"gpt-oss", `<|channel|>commentary to=functions.now <|constrain|>json`, "has no <|message|>", ""},
		{"gpt-oss", ` to=functions.now<|channel|>`, "has no <|message|>", ""},
		{"gpt-oss", `<|channel|>commentary to=functions.now <|constrain|>json<|message|>{} x<|call|>`, "text after the JSON object", ""},
		{"gpt-oss", `<|channel|>analysis to=python code<|message|>print(1)<|call|>`, "", "python"},
		{"react", "Action: plot\nAction Input: hello", "takes several parameters", ""},
		{"react", "Action: calculator", "Action Input is missing", ""},
		{"react", "Action: now", "", "now"},
		{"react", "Action: search\nAction Input: {\"query\": \"x\"", "cut off", ""},
		{"react", "Action: search\nAction Input: ```json\n{\"query\": \"x\"}\n```\nObservation: made up", "", "search"},
		{"search", "<search>  </search>", "query is empty", ""},
		{"search", "<search>cut at the stop string", "", "search"},
		{"search", "<answer>x</answer><search>y</search>", "", ""},
		{"search", "<search>y <answer>x</answer>", "", ""},
		{"search", "<search>y <answer>x</answer></search>", "", "search"},
	}
}

func TestBrokenCalls(t *testing.T) {
	_, tools := replies(t)
	for _, tt := range brokenReplies() {
		m, errs := parserOf(t, tt.family, tools).Parse(tt.text)
		var names []string
		for _, c := range m.ToolCalls {
			names = append(names, c.Name)
		}
		reason := ""
		for _, e := range errs {
			reason += e.Reason
			if !strings.Contains(tt.text, e.Raw) || !strings.Contains(m.Content, strings.TrimSpace(e.Raw)) {
				t.Errorf("%s %q: raw %q is not in the content %q", tt.family, tt.text, e.Raw, m.Content)
			}
		}
		if strings.Join(names, " ") != tt.calls || (reason == "") != (tt.reason == "") || !strings.Contains(reason, tt.reason) {
			t.Errorf("%s: %q\n got %v %q\nwant %q %q", tt.family, tt.text, names, reason, tt.calls, tt.reason)
		}
	}
}

// Bare texts get their types from the schema, and by their looks without one.
func TestTypes(t *testing.T) {
	call := func(key, value string) string {
		return "<tool_call>\n<function=f>\n<parameter=" + key + ">\n" + value + "\n</parameter>\n</function>\n</tool_call>"
	}
	spec := []traj.ToolSpec{{Name: "f", Parameters: json.RawMessage(`{"type":"object","properties":{
		"s":{"type":"string"},"i":{"type":"integer"},"b":{"type":"boolean"},"o":{"anyOf":[{"type":"string"},{"type":"null"}]},
		"e":{"enum":["1","2"]},"a":{"type":["array","null"]}}}`)}}
	for _, tt := range []struct {
		tools            []traj.ToolSpec
		key, value, want string
	}{
		{spec, "s", "5", `"5"`}, {spec, "s", "True", `"True"`}, {spec, "i", "5", `5`}, {spec, "i", "five", `"five"`},
		{spec, "b", "True", `true`}, {spec, "b", "false", `false`},
		{spec, "o", "None", `null`}, {spec, "o", "5", `"5"`}, {spec, "e", "1", `"1"`}, {spec, "a", "[1, 2]", `[1, 2]`},
		{spec, "s", "", `""`}, {spec, "new", "7", `7`},
		{nil, "s", "5", `5`}, {nil, "s", "five", `"five"`}, {nil, "s", "None", `null`}, {nil, "s", `"q"`, `"\"q\""`},
		{nil, "s", `{"a": 1}`, `{"a": 1}`},
	} {
		m, errs := parserOf(t, "qwen3-coder", tt.tools).Parse(call(tt.key, tt.value))
		if want := `{"` + tt.key + `": ` + tt.want + `}`; len(errs) > 0 || len(m.ToolCalls) != 1 || m.ToolCalls[0].Arguments != want {
			t.Errorf("%+v: %v %v", tt, m.ToolCalls, errs)
		}
	}
}

func TestAutoParser(t *testing.T) {
	for model, want := range map[string]string{
		"": "hermes", "my-model": "hermes", "Qwen/Qwen2.5-7B-Instruct": "hermes", "Qwen/Qwen3-8B": "hermes",
		"Qwen/QwQ-32B": "hermes", "SmolLM2-135M": "hermes",
		"Qwen/Qwen3-Coder-30B-A3B-Instruct": "qwen3-coder", "qwen3_coder": "qwen3-coder", "Qwen/Qwen3.5-4B": "qwen3-coder",
		"NousResearch/Hermes-3-Llama-3.1-8B": "hermes", "deepseek-ai/DeepSeek-R1": "deepseek-r1",
		"deepseek-ai/DeepSeek-R1-Distill-Qwen-7B": "deepseek-r1",
		"deepseek-ai/DeepSeek-V3.1":               "deepseek-v3", "deepseek-chat": "deepseek-v3",
		"meta-llama/Llama-3.1-8B-Instruct": "llama3-json", "llama3.2:3b": "llama3-json",
		"meta-llama/Meta-Llama-3-8B-Instruct": "llama3-json", "meta-llama/Llama-4-Scout-17B-16E": "llama3-python",
		"meta-llama/Llama-2-7b-chat-hf":                 "hermes",
		"mistralai/Mistral-Small-3.2-24B-Instruct-2506": "mistral", "mistralai/Mixtral-8x22B-Instruct-v0.1": "mistral",
		"mistralai/Devstral-Small-2507": "mistral",
		"zai-org/GLM-4.5-Air":           "glm", "zai-org/GLM-4.6": "glm", "THUDM/glm-4-9b-chat": "hermes",
		"moonshotai/Kimi-K2-Instruct": "kimi", "moonshotai/Kimi-K2-Thinking": "kimi",
		"openai/gpt-oss-20b": "gpt-oss", "PeterJinGo/SearchR1-nq_hotpotqa_train-qwen2.5-7b-em-ppo": "search", "Search-R1": "search",
	} {
		if got := chat.AutoParser(model); got != want {
			t.Errorf("AutoParser(%q) = %s, want %s", model, got, want)
		}
	}
	for alias, want := range map[string]string{"qwen3_coder": "qwen3-coder", "deepseek_v31": "deepseek-v3",
		"llama3_json": "llama3-json", "kimi_k2": "kimi", "glm45": "glm", "OpenAI": "gpt-oss", "auto": "hermes", "none": "none"} {
		if p, err := chat.ParserFor(alias, nil); err != nil || p.Name() != want {
			t.Errorf("ParserFor(%q) = %v, %v", alias, p, err)
		}
	}
	if _, err := chat.ParserFor("xml", nil); err == nil || !strings.Contains(err.Error(), "qwen3-coder") {
		t.Error(err)
	}
}

// FuzzParsers reads any reply by every format, as the model's own and as one of a server that
// may have been shown the tools in words.
func FuzzParsers(f *testing.F) {
	g, tools := replies(f)
	for _, row := range g.Rows {
		f.Add(row.Reply)
	}
	f.Add(`x<tool_call>{"name":"f","arguments":{"a":1}}</tool_call><tool_call>{`)
	f.Add("<think>a</think>b</think><tool_call>[[[")
	var parsers []*chat.Parser
	for _, name := range chat.Parsers() {
		parsers = append(parsers, parserOf(f, name, nil), parserOf(f, name, tools))
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, p := range parsers {
			m, errs := p.Parse(s)
			again, errsAgain := p.Parse(s)
			if !reflect.DeepEqual(m, again) || !reflect.DeepEqual(errs, errsAgain) {
				t.Errorf("%s reads it one way and another", p.Name())
			}
			checkRead(t, p.Name(), s, m, errs)
			inText, inTextErrs := p.ParseInText(s)
			checkRead(t, p.Name()+" in text", s, inText, inTextErrs)
			if len(m.ToolCalls)+len(errs) > 0 && len(inText.ToolCalls) != len(m.ToolCalls) {
				t.Errorf("%s: %d calls of its own became %d", p.Name(), len(m.ToolCalls), len(inText.ToolCalls))
			}
			// No call comes from inside thinking, closed or cut off.
			open, shut, out := "<think>", "</think>", ""
			switch p.Name() {
			case "mistral":
				open, shut = "[THINK]", "[/THINK]"
			case "cohere":
				open, shut = "<|START_THINKING|>", "<|END_THINKING|>"
			case "seed-oss":
				open, shut = "<seed:think>", "</seed:think>"
			case "apertus":
				open, shut = "<|inner_prefix|>", "<|inner_suffix|>"
			case "gpt-oss":
				open, shut, out = "<|channel|>analysis<|message|>", "<|end|>", "<|"
			}
			inner := strings.ReplaceAll(s, shut, "")
			for strings.Contains(inner, shut) || out != "" && strings.Contains(inner, out) {
				inner = strings.ReplaceAll(inner, shut, "")
				if out != "" {
					inner = strings.ReplaceAll(inner, out, "")
				}
			}
			for _, text := range []string{open + inner + shut + "so", open + inner} {
				if m, errs := p.Parse(text); len(m.ToolCalls)+len(errs) > 0 {
					t.Errorf("%s reads a call out of the thinking %q: %+v %v", p.Name(), text, m.ToolCalls, errs)
				}
			}
		}
	})
}

// The longest replies of the worst kinds are read to their end; where the work
// grew with the square of the length, the time-out of go test would name it.
func TestLongReplies(t *testing.T) {
	_, tools := replies(t)
	for _, name := range chat.Parsers() {
		p := parserOf(t, name, tools)
		for _, part := range []string{"<tool_call>", "<function=f>", "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>",
			`{"name": `, "[TOOL_CALLS]", "<|channel|>", "<|start|>x", "<think>", "\nAction: x", "[f(",
			"<minimax:tool_call>", "<minimax:tool_call><invoke name=\"f\">", "<minimax:tool_call><invoke name=\"f\"></invoke>",
			"<｜DSML｜function_calls><｜DSML｜invoke", "<｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"a\">", "<seed:tool_call><function=f>",
			"<TOOLCALL>[", `<tool_calls>{"name": "f"}`, "<|START_ACTION|>[{", "<|tools_prefix|>[{}", "</parameter>"} {
			t.Log(name, part)
			p.Parse(strings.Repeat(part, 200_000/len(part)))
		}
	}
}

func TestFuzzCorpusIsThere(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "fuzz", "FuzzParsers", "*"))
	if err != nil || len(files) < 10 {
		t.Errorf("%d files, %v", len(files), err)
	}
}

// What InText writes of calls in the prompted forms is read back.
func TestPromptedForms(t *testing.T) {
	_, tools := replies(t)
	for _, c := range []struct{ family, tool, args, call, result string }{
		{"react", "calculator", `{"expression": "12*7", "digits": 2}`,
			"Hm.\nAction: calculator\nAction Input: {\"expression\": \"12*7\", \"digits\": 2}", "Observation: 84\nObservation: 84"},
		{"search", "search", `{"query": "Faust"}`, "Hm.\n<search>Faust</search>", "<information>84</information>\n<information>84</information>"},
	} {
		p := parserOf(t, c.family, tools)
		msgs := []traj.Message{{Role: "user", Content: "q"},
			{Role: "assistant", Content: "Hm.", ToolCalls: []traj.ToolCall{{Name: c.tool, Arguments: c.args}}},
			{Role: "tool", Content: "84"}, {Role: "tool", Content: "84"}}
		out := p.InText()(msgs, tools[:1])
		if c.family == "react" {
			if !strings.Contains(out[0].Content, "one of calculator") || !strings.Contains(out[0].Content, `"expression"`) {
				t.Errorf("%q", out[0].Content)
			}
			out = out[1:]
		}
		if len(out) != 3 || out[1].Content != c.call || out[2].Role != "user" || out[2].Content != c.result {
			t.Errorf("%s: %+v", c.family, out)
		}
		m, errs := p.Parse(out[1].Content)
		if len(errs) > 0 || m.Content != "Hm." || len(m.ToolCalls) != 1 || m.ToolCalls[0].Name != c.tool ||
			!same(m.ToolCalls[0].Arguments, c.args) {
			t.Errorf("%s: %+v %v", c.family, m, errs)
		}
	}
	if parserOf(t, "hermes", tools).InText() != nil {
		t.Error("hermes is a template's own form")
	}
	// What was asked for in the Hermes form is read whatever the model; thinking stays closed.
	p := parserOf(t, "kimi", tools)
	m, _ := p.ParseInText(`<think><tool_call>{"name": "now"}</tool_call></think>so <tool_call>{"name": "now"}</tool_call>`)
	if len(m.ToolCalls) != 1 || m.Content != "so" || !strings.Contains(m.Reasoning, "<tool_call>") {
		t.Errorf("%+v", m)
	}
}
