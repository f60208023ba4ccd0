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
	v, end := callVocabulary()
	r := rand.New(rand.NewPCG(9, 9))
	for _, format := range CallFormats() {
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

// callVocabulary writes calls often: a random walk must find their openings. It has no token
// </think>, which the parser takes for the end of reasoning wherever it is.
func callVocabulary() (v *Vocabulary, end int32) {
	var tokens [][]byte
	var special []bool
	for c := range 256 {
		tokens, special = append(tokens, []byte{byte(c)}), append(special, false)
	}
	for _, s := range []string{"[TOOL_CALLS]", "[ARGS]", "<|python_tag|>", "[THINK]", "[/THINK]", "<|end|>"} {
		tokens, special = append(tokens, []byte(s)), append(special, true)
	}
	end = int32(len(tokens) - 1)
	for range 40 {
		for _, s := range []string{"<tool_call>", "\n{\"name\"", "{\"name\": \"", "</tool_call>", "\n", ` "parameters": {`, `[{"`} {
			tokens, special = append(tokens, []byte(s)), append(special, false)
		}
	}
	return NewVocabulary(tokens, special, []int32{end}), end
}

// Replies as models write them are allowed, and one that breaks a call's form is not.
func TestRepliesWithCalls(t *testing.T) {
	v, end := callVocabulary()
	const (
		special  = "\xff"
		coder    = "<tool_call>\n<function=get_weather>\n<parameter="
		coderEnd = "\n</parameter>\n</function>\n</tool_call>"
		stop     = "<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>"
		oslo     = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 3}}\n</tool_call>"
		mistral  = special + "[TOOL_CALLS]" + special
		argsOfIt = mistral + "get_weather" + special + "[ARGS]" + special
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
	}
	for _, test := range tests {
		test.calls.Tools = weather
		g, err := ToolCalls(test.calls, Options{})
		if err != nil {
			t.Fatal(err)
		}
		m := g.Matcher(v)
		if got := m.AcceptBytes([]byte(test.reply)) && m.Accept(end); got != test.ok {
			t.Errorf("%+v: %q: %v", test.calls.Format, test.reply, got)
		}
	}
}

func TestCallsThatHaveNoGrammarAreErrors(t *testing.T) {
	for _, calls := range []Calls{
		{Format: "kimi", Tools: weather}, {Format: "hermes"}, {Format: "hermes", Tools: []Tool{{"", nil}}},
		{Format: "hermes", Tools: []Tool{{"f", json.RawMessage(`{"type":"string"}`)}, weather[0]}},
		{Format: "qwen3-coder", Tools: []Tool{{"f", json.RawMessage(`{"type":"object","required":["a"],"properties":{"a":{"enum":[]}}}`)}}},
		{Format: "qwen3-coder", Tools: []Tool{{"f>", nil}}},
		{Format: "hermes", Tools: []Tool{{"f", json.RawMessage(`{"not":{}}`)}}},
	} {
		if _, err := ToolCalls(calls, Options{}); err == nil {
			t.Errorf("%+v has a grammar", calls)
		}
	}
}
