package grammar

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"agentcli/internal/schema"
	"agentcli/model/chat"
	"agentcli/traj"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

var weather = []Tool{
	{"get_weather", json.RawMessage(`{"type":"object","properties":{"city":{"type":"string","maxLength":12},
		"days":{"type":"integer","minimum":1,"maximum":9}},"required":["city"]}`)},
	{"stop", nil},
	{"note", json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"},"kind":{"enum":["a b","c"]},"all":{"type":"boolean"},
		"day":{"type":"string","format":"date"},"code":{"type":["string","null"],"pattern":"^[A-Z]{2}$"},"any":{"anyOf":[{"type":"string"},
		{"type":"null"}]},"list":{"type":"array","items":{"type":"string"},"maxItems":2}},"required":["text","kind"]}`)},
	{"tree", json.RawMessage(`{"$defs":{"t":{"type":"object","properties":{"l":{"$ref":"#/$defs/t"},"v":{"enum":[1,2]}},
		"required":["v"]}},"$ref":"#/$defs/t"}`)},
}

// Calls that the grammar wrote are read by the family's own parser without an error, and their
// arguments meet the tool's schema.
func TestTheFamilysParserReadsCalls(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	for _, format := range CallFormats() {
		v, end := callVocabulary(t, format)
		for _, calls := range []Calls{
			{Format: format, Tools: weather, Required: true},
			{Format: format, Tools: weather[:1], Required: true, Single: true},
			{Format: format, Tools: weather},
		} {
			g, err := ToolCalls(calls, Options{})
			if err != nil {
				t.Fatal(err)
			}
			finished, written := 0, 0
			for range 60 {
				out, whole := randomText(t, g.Matcher(v), v, end, r, 300)
				if !whole {
					continue
				}
				finished++
				written += readCalls(t, calls, strings.ReplaceAll(out, "\xff", ""))
			}
			if finished < 30 || written == 0 || calls.Required && written < 30 {
				t.Errorf("%s, required %v: %d replies, %d calls", format, calls.Required, finished, written)
			}
		}
	}
}

func readCalls(t *testing.T, calls Calls, out string) int {
	var specs []traj.ToolSpec
	schemas := map[string]*jsonschema.Schema{}
	for _, tool := range calls.Tools {
		specs = append(specs, traj.ToolSpec{Name: tool.Name, Parameters: tool.Parameters})
		if tool.Parameters != nil {
			schemas[tool.Name] = checker(t, tool.Parameters)
		}
	}
	p, err := chat.ParserFor(calls.Format, specs)
	if err != nil {
		t.Fatal(err)
	}
	msg, errs := p.Parse(out)
	if len(errs) > 0 {
		t.Errorf("%s: %q: %v", calls.Format, out, errs)
	}
	if n := len(msg.ToolCalls); calls.Required && n == 0 || calls.Single && n > 1 {
		t.Errorf("%s: %q has %d calls", calls.Format, out, n)
	}
	for _, c := range msg.ToolCalls {
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(c.Arguments))
		if err != nil {
			t.Errorf("%s: %q: %v", calls.Format, out, err)
			continue
		}
		if s := schemas[c.Name]; s != nil && schema.Validate(s, doc) != nil {
			t.Errorf("%s: %q: arguments %s", calls.Format, out, c.Arguments)
		}
	}
	return len(msg.ToolCalls)
}

// callTokens are the tokens of a format: special ones, and parts of calls, which a random walk
// must find.
var callTokens = map[string]struct{ special, parts []string }{
	"hermes": {nil, []string{"<tool_call>", "</tool_call>", `{"name": "`}}, "hermes-text": {nil, []string{"<tool_call>", "</tool_call>"}},
	"llama3-json":   {[]string{pythonTag}, []string{"\n{\"name\"", `{"name": "`, ` "parameters": {`}},
	"llama3-python": {[]string{pythonTag}, []string{"\n{\"name\"", `{"name": "`, ` "parameters": {`}},
	"mistral":       {[]string{"[TOOL_CALLS]", "[ARGS]", "[THINK]", "[/THINK]"}, []string{`[{"`}},
	"granite":       {[]string{"<|tool_call|>", "<|/tool_call|>"}, []string{`[{"`}},
	"nemotron":      {[]string{"<TOOLCALL>", "</TOOLCALL>"}, []string{`[{"`}},
	"tool-calls":    {nil, []string{"<tool_calls>", "</tool_calls>", `{"name": "`, "\n"}},
	"apertus":       {[]string{"<|tools_prefix|>", "<|tools_suffix|>"}, []string{`[{"`}},
	"cohere":        {[]string{"<|START_ACTION|>", "<|END_ACTION|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>"}, []string{`"tool_call_id": "`}},
	"kimi": {[]string{"<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>",
		"<|tool_calls_section_end|>"}, []string{"functions."}},
	"deepseek-v3": {[]string{"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"}, nil},
	"deepseek-r1": {[]string{"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"},
		[]string{"function", "\n```json\n", "\n```"}},
	"lfm2":        {[]string{"<|tool_call_start|>", "<|tool_call_end|>"}, []string{"stop(", "True", `text="`}},
	"olmo3":       {nil, []string{"<function_calls>", "</function_calls>", "stop(", `text="`, "None"}},
	"gemma4":      {[]string{"<|tool_call>", "<tool_call|>", gemmaQuote}, []string{"call:", "text:", "kind:"}},
	"gpt-oss":     {harmony[:5], []string{"final", "commentary", "analysis", " to=functions.", "assistant"}},
	"qwen3-coder": {nil, []string{"<tool_call>", "\n<function=", "\n</parameter>\n", "</function>\n", "</tool_call>"}},
	"seed-oss":    {[]string{"<seed:tool_call>", "</seed:tool_call>"}, []string{"\n<function=", "</parameter>\n", "</function>\n"}},
	"glm":         {nil, []string{"<tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "</tool_call>"}},
	"minimax": {[]string{"<minimax:tool_call>", "</minimax:tool_call>"}, []string{"\n<invoke name=\"", "</parameter>\n", "</invoke>",
		"\n</minimax:tool_call>"}},
	"deepseek-v3.2": {[]string{"｜DSML｜"}, []string{"<｜DSML｜function_calls>", "\n</｜DSML｜function_calls>", "\n<｜DSML｜invoke name=\"",
		"</｜DSML｜parameter>\n", "</｜DSML｜invoke>", "parameter name=\""}},
}

// callVocabulary writes the calls of a format often. It has no token </think>, which the parser
// takes for the end of reasoning wherever it is.
func callVocabulary(t *testing.T, format string) (v *Vocabulary, end int32) {
	t.Helper()
	own, ok := callTokens[format]
	if !ok {
		t.Fatalf("no tokens of %s", format)
	}
	var tokens [][]byte
	var special []bool
	add := func(s string, is bool) { tokens, special = append(tokens, []byte(s)), append(special, is) }
	for c := range 256 {
		add(string([]byte{byte(c)}), false)
	}
	add("<|end of text|>", true)
	end = int32(len(tokens) - 1)
	for range 40 {
		for _, s := range own.special {
			add(s, true)
		}
		for _, s := range own.parts {
			add(s, false)
		}
	}
	return NewVocabulary(tokens, special, []int32{end}), end
}

// asModelsWrite are two calls, and with gpt-oss one, as the chat templates of the families print them.
var asModelsWrite = func() map[string]string {
	const oslo = `{"city": "Oslo", "days": 3}`
	token := func(s string) string { return "\xff" + s + "\xff" }
	deepseek := func(call string) string {
		return token("<｜tool▁call▁begin｜>") + strings.Replace(call, "|", token("<｜tool▁sep｜>"), 1) + token("<｜tool▁call▁end｜>")
	}
	kimi := func(call string) string {
		return token("<|tool_call_begin|>") + strings.Replace(call, "|", token("<|tool_call_argument_begin|>"), 1) + token("<|tool_call_end|>")
	}
	dsml := func(s string) string { return strings.ReplaceAll(s, "@", token("｜DSML｜")) }
	list := `[{"name": "get_weather", "arguments": ` + oslo + `}, {"name": "stop", "arguments": {}}]`
	return map[string]string{
		"granite":  token("<|tool_call|>") + list,
		"nemotron": token("<TOOLCALL>") + list + token("</TOOLCALL>"),
		"tool-calls": "<tool_calls>\n{\"name\": \"get_weather\", \"arguments\": " + oslo + "}\n" +
			"{\"name\": \"stop\", \"arguments\": {}}\n</tool_calls>",
		"apertus": token("<|tools_prefix|>") + `[{"get_weather": ` + oslo + `}, {"stop": {}}]` + token("<|tools_suffix|>"),
		"cohere": token("<|START_ACTION|>") + "[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"get_weather\", \"parameters\": " + oslo +
			"},\n    {\"tool_call_id\": \"1\", \"tool_name\": \"stop\", \"parameters\": {}}\n]" + token("<|END_ACTION|>"),
		"kimi": token("<|tool_calls_section_begin|>") + kimi("functions.get_weather:0|"+oslo) + kimi("functions.stop:1|{}") +
			token("<|tool_calls_section_end|>"),
		"deepseek-v3": token("<｜tool▁calls▁begin｜>") + deepseek("get_weather|"+oslo) + deepseek("stop|{}") + token("<｜tool▁calls▁end｜>"),
		"deepseek-r1": token("<｜tool▁calls▁begin｜>") + deepseek("function|get_weather\n```json\n"+oslo+"\n```") + "\n" +
			deepseek("function|stop\n```json\n{}\n```") + token("<｜tool▁calls▁end｜>"),
		"lfm2":  token("<|tool_call_start|>") + `[get_weather(city="Oslo", days=3), stop()]` + token("<|tool_call_end|>"),
		"olmo3": "<function_calls>\nget_weather(city=\"Oslo\", days=3)\nstop()\n</function_calls>",
		"gemma4": token("<|tool_call>") + "call:get_weather{city:" + token(gemmaQuote) + "Oslo" + token(gemmaQuote) + ",days:3}" +
			token("<tool_call|>") +
			token("<|tool_call>") + "call:stop{}" + token("<tool_call|>"),
		"seed-oss": token("<seed:tool_call>") + "\n<function=get_weather>\n<parameter=city>Oslo</parameter>\n<parameter=days>3</parameter>\n" +
			"</function>\n" + token("</seed:tool_call>") + token("<seed:tool_call>") +
			"\n<function=stop>\n</function>\n" + token("</seed:tool_call>"),
		"glm": "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n" +
			"<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n" +
			"</tool_call>\n<tool_call>stop\n</tool_call>",
		"minimax": token("<minimax:tool_call>") + "\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Oslo</parameter>\n" +
			"<parameter name=\"days\">3</parameter>\n</invoke>\n<invoke name=\"stop\">\n</invoke>\n" + token("</minimax:tool_call>"),
		"deepseek-v3.2": dsml("<@function_calls>\n<@invoke name=\"get_weather\">\n<@parameter name=\"city\" string=\"true\">Oslo</@parameter>\n" +
			"<@parameter name=\"days\" string=\"false\">3</@parameter>\n</@invoke>\n<@invoke name=\"stop\">\n</@invoke>\n</@function_calls>"),
	}
}()

// Replies as models write them are allowed, and one that breaks a call's form is not.
func TestRepliesWithCalls(t *testing.T) {
	const (
		special  = "\xff"
		coder    = "<tool_call>\n<function=get_weather>\n<parameter="
		coderEnd = "\n</parameter>\n</function>\n</tool_call>"
		stop     = "<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>"
		oslo     = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 3}}\n</tool_call>"
		mistral  = special + "[TOOL_CALLS]" + special
		argsOfIt = mistral + "get_weather" + special + "[ARGS]" + special
		channel  = special + "<|channel|>" + special
		message  = special + "<|message|>" + special
		endOf    = special + "<|end|>" + special + special + "<|start|>" + special + "assistant"
	)
	tests := []struct {
		calls Calls
		reply string
		ok    bool
	}{
		{Calls{Format: "hermes"}, "It is sunny. 1 < 2.", true},
		{Calls{Format: "hermes"}, "Let me look.\n" + oslo + "\n" + stop, true},
		{Calls{Format: "hermes"}, "<tool_call>\n{\"name\": \"get_wind\", \"arguments\": {}}\n</tool_call>", false},
		{Calls{Format: "hermes"}, "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"days\": 3}}\n</tool_call>", false},
		{Calls{Format: "hermes"}, "<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}", false},
		{Calls{Format: "hermes", Required: true}, "No.", false},
		{Calls{Format: "hermes", Required: true, Single: true}, stop + "\n" + stop, false},
		{Calls{Format: "hermes", Required: true, Thinking: ThinkingMay}, "<think>\nA <tool_call>?\n</think>\n\n" + stop, true},
		{Calls{Format: "hermes", Thinking: ThinkingIsOpened}, "hm <tool_call> hm\n</think>\n\nNo.", true},
		{Calls{Format: "hermes", Thinking: ThinkingIsOpened}, "hm", false},
		{Calls{Format: "qwen3-coder"}, "I look.\n" + coder + "city>\nO\nslo\n</parameter>\n<parameter=days>\n3" + coderEnd, true},
		{Calls{Format: "qwen3-coder"}, coder + "city>\nOslo\n</parameter>\n<parameter=days>\n30" + coderEnd, false},
		{Calls{Format: "qwen3-coder"}, coder + "city>\nOslo, Oslo, Oslo" + coderEnd, false},
		{Calls{Format: "qwen3-coder"}, coder + "days>\n3" + coderEnd, false},
		{Calls{Format: "qwen3-coder"}, "a <function=stop>", false},
		{Calls{Format: "qwen3-coder", Required: true}, "<tool_call>\n<function=stop>\n</function>\n</tool_call>", true},
		{Calls{Format: "llama3-json"}, `{"name": "get_weather", "parameters": {"city": "Oslo"}}; {"name": "stop", "parameters": {}}`, true},
		{Calls{Format: "llama3-json"}, `{"name": "get_weather", "parameters": {"town": "Oslo"}}`, false},
		{Calls{Format: "llama3-json"}, "The object {\"a\": 1} is\n{\"b\": 2}.", true},
		{Calls{Format: "llama3-json", Required: true}, special + pythonTag + special + `{"name": "stop", "parameters": {"x": [1]}}`, true},
		{Calls{Format: "mistral"}, mistral + `[{"name": "stop", "arguments": {}, "id": "abcDEF123"}]`, true},
		{Calls{Format: "mistral", Required: true}, argsOfIt + `{"city": "Oslo"}`, true},
		{Calls{Format: "mistral", Required: true}, argsOfIt + `{}`, false},
		{Calls{Format: "gpt-oss"}, channel + "analysis" + message + "Hm.<" + endOf + channel + "final" + message + "It rains.", true},
		{Calls{Format: "gpt-oss"}, channel + "analysis" + message + "Hm." + endOf + channel + "commentary to=functions.get_weather " + special +
			"<|constrain|>" + special + "json" + message + `{"city": "Oslo"}`, true},
		{Calls{Format: "gpt-oss"}, channel + "commentary" + message + "I look." + endOf +
			" to=functions.stop" + channel + "commentary json" + message + `{}`, true},
		{Calls{Format: "gpt-oss"}, channel + "commentary to=functions.get_weather" + message + `{"town": "Oslo"}`, false},
		{Calls{Format: "gpt-oss"}, channel + "commentary to=functions.other" + message + `{}`, false},
		{Calls{Format: "gpt-oss", Required: true}, channel + "final" + message + "It rains.", false},
		{Calls{Format: "gpt-oss"}, "It rains.", false},
		{Calls{Format: "cohere"}, special + "<|START_RESPONSE|>" + special + "It rains." + special + "<|END_RESPONSE|>" + special, true},
		{Calls{Format: "cohere", Thinking: ThinkingIsOpened, Tags: [2]string{"<|START_THINKING|>", "<|END_THINKING|>"}},
			"Hm.<|END_THINKING|>No.", true},
	}
	for format, reply := range asModelsWrite {
		tests = append(tests, struct {
			calls Calls
			reply string
			ok    bool
		}{Calls{Format: format}, "I look.\n" + reply, true}, struct {
			calls Calls
			reply string
			ok    bool
		}{Calls{Format: format, Required: true}, strings.ReplaceAll(reply, "Oslo", "Oslo, Oslo, Oslo"), false})
	}
	for _, test := range tests {
		test.calls.Tools = weather
		g, err := ToolCalls(test.calls, Options{})
		if err != nil {
			t.Fatal(err)
		}
		v, end := callVocabulary(t, test.calls.Format)
		m := g.Matcher(v)
		if got := m.AcceptBytes([]byte(test.reply)) && m.Accept(end); got != test.ok {
			t.Errorf("%+v: %q: %v", test.calls.Format, test.reply, got)
		}
	}
}

func TestCallsThatHaveNoGrammarAreErrors(t *testing.T) {
	for _, calls := range []Calls{
		{Format: "react", Tools: weather}, {Format: "hermes"}, {Format: "hermes", Tools: []Tool{{"", nil}}},
		{Format: "hermes", Tools: []Tool{{"f", json.RawMessage(`{"type":"string"}`)}, weather[0]}},
		{Format: "qwen3-coder", Tools: []Tool{{"f", json.RawMessage(`{"type":"object","required":["a"],"properties":{"a":{"enum":[]}}}`)}}},
		{Format: "qwen3-coder", Tools: []Tool{{"f>", nil}}},
		{Format: "hermes", Tools: []Tool{{"f", json.RawMessage(`{"not":{}}`)}}},
		{Format: "lfm2", Tools: []Tool{{"get-weather", nil}}},
		{Format: "olmo3", Tools: []Tool{{"f", json.RawMessage(`{"properties":{"a-b":{}}}`)}}},
		{Format: "gemma4", Tools: []Tool{{"f", json.RawMessage(`{"properties":{"a":{"type":"string","maxLength":5000}}}`)}}},
		{Format: "kimi", Tools: []Tool{{"a b", nil}}},
		{Format: "deepseek-v3.2", Tools: []Tool{{"f", json.RawMessage(`{"properties":{"a\"b":{}}}`)}}},
	} {
		if _, err := ToolCalls(calls, Options{}); err == nil {
			t.Errorf("%+v has a grammar", calls)
		}
	}
}
