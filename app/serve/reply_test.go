//go:build libtorch

package serve

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"agentcli/app/console"
	"agentcli/app/models"
	"agentcli/traj"
)

// TestAStreamReadsTheModelsOwnFormat: the chat template says which texts of a reply are
// reasoning and content, so a stream shows them before the reply's end.
func TestAStreamReadsTheModelsOwnFormat(t *testing.T) {
	file, err := os.Open("../../model/chat/testdata/corpus.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	z, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	var corpus struct {
		Templates map[string]struct{ Template string }
	}
	if err := json.NewDecoder(z).Decode(&corpus); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "template.jinja")
	if err := os.WriteFile(path, []byte(corpus.Templates["gptoss"].Template), 0o600); err != nil {
		t.Fatal(err)
	}
	const reply = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>84. It"
	for template, want := range map[string][2]string{path: {"hm", "84. It"}, "": {"", reply}} {
		o := Options{Path: tiny, Backend: models.NewBackend(),
			Model: models.LocalOptions{DType: "float32", Device: "cpu", Temperature: 1, ChatTemplate: template}}
		engine, source, err := o.Backend.OpenEngine(o.Path, o.Model)
		if err != nil {
			t.Fatal(err)
		}
		s := newServer(engine, source, o, console.Streams{Out: io.Discard, Err: io.Discard})
		x := &sampler{a: &chatAnswer{s: &openAI{s}, c: &chatRequest{}}, exact: &s.exact, req: &traj.Request{}}
		x.begin([]int32{5, 9})
		if reasoning, content := x.stream.Add(reply); reasoning != want[0] || content != want[1] {
			t.Errorf("template %q: %q and %q", template, reasoning, content)
		}
		engine.Close()
	}
}

// TestAStreamIsTheReplyWhateverItIs: calls, broken ones, thinking, a closing tag alone and
// spaces are the same texts in pieces and as a whole, and the text before a call is sent before it.
func TestAStreamIsTheReplyWhateverItIs(t *testing.T) {
	x := start(t, nil)
	type said struct {
		Reasoning, Content string
		Calls              []struct {
			Function struct{ Name, Arguments string }
		} `json:"tool_calls"`
	}
	type answer struct {
		Choices []struct {
			Message, Delta said
			Finish         *string `json:"finish_reason"`
		}
	}
	for name, tc := range map[string]struct {
		reply, reasoning, content string
		calls                     int
		early                     string // content of the events before the last
		more                      map[string]any
	}{
		"text":         {reply: "It is 84.", content: "It is 84.", early: "It is 84."},
		"a call":       {reply: `I look. <tool_call>{"name": "f"}</tool_call>`, content: "I look.", calls: 1, early: "I look."},
		"a broken one": {reply: `I look. <tool_call>{"name"}`, content: `I look. <tool_call>{"name"}`, early: "I look."},
		"both": {reply: `A <tool_call>{"name": "f"}</tool_call><tool_call>{`, early: "A",
			content: `A <tool_call>{"name": "f"}</tool_call><tool_call>{`},
		"thinking":      {reply: "<think>hm</think>\n\nSo", reasoning: "hm", content: "So", early: "So"},
		"a closing tag": {reply: "no</think>yes", content: "no</think>yes", early: "no</think>yes"},
		"spaces":        {reply: " \n a \n", content: " \n a \n", early: " \n a"},
		"a beginning":   {reply: "a <tool", content: "a <tool", early: "a"},
		"a stop string": {reply: "a <stop> b", content: "a ", early: "a", more: map[string]any{"stop": "<stop>"}},
		"one that is kept": {reply: "a <stop> b", content: "a ", early: "a",
			more: map[string]any{"stop": "<stop>", "include_stop_str_in_output": true}},
	} {
		t.Run(name, func(t *testing.T) {
			body := map[string]any{"messages": []any{map[string]string{"role": "user", "content": "q"}}, "max_tokens": 200,
				"chat_template_kwargs": map[string]any{"enable_thinking": false}, "seed": 7,
				"structured_outputs": map[string]any{"regex": regexp.QuoteMeta(tc.reply)}}
			for k, v := range tc.more {
				body[k] = v
			}
			var whole answer
			x.ask("/v1/chat/completions", body, &whole)
			got := whole.Choices[0].Message
			if got.Reasoning != tc.reasoning || got.Content != tc.content || len(got.Calls) != tc.calls {
				t.Errorf("whole: %+v", got)
			}
			body["stream"] = true
			_, raw := x.post("/v1/chat/completions", body)
			var sum said
			early := ""
			for _, line := range strings.Split(string(raw), "\n") {
				data, ok := strings.CutPrefix(line, "data: {")
				if !ok {
					continue
				}
				var e answer
				if err := json.Unmarshal([]byte("{"+data), &e); err != nil {
					t.Fatal(err)
				}
				if e.Choices[0].Finish == nil {
					early += e.Choices[0].Delta.Content
				}
				sum.Reasoning += e.Choices[0].Delta.Reasoning
				sum.Content += e.Choices[0].Delta.Content
				sum.Calls = append(sum.Calls, e.Choices[0].Delta.Calls...)
			}
			if !reflect.DeepEqual(sum, got) || early != tc.early {
				t.Errorf("in pieces: %+v, %q before the end", sum, early)
			}
		})
	}
}

// TestCallsThatAreWholeAreGivenOfAReplyThatIsCutOff: a reply that must be calls has no text, and
// what is left of the last one is none.
func TestCallsThatAreWholeAreGivenOfAReplyThatIsCutOff(t *testing.T) {
	one, bad := []traj.ToolCall{{Name: "f", Arguments: `{"a": 1}`}}, []traj.CallError{{}}
	said := func(content string, calls []traj.ToolCall) traj.Message {
		return traj.Message{Content: content, ToolCalls: calls}
	}
	for name, x := range map[string]struct {
		r       traj.Response
		must    bool
		calls   int
		content string
	}{
		"cut in the second": {traj.Response{Message: said("<tool_call>", one), FinishReason: "length", CallErrors: bad, Raw: "raw"}, true, 1, ""},
		"cut in a tag":      {traj.Response{Message: said("<too", one), FinishReason: "length"}, true, 1, ""},
		"cut in the one":    {traj.Response{Message: said("", nil), FinishReason: "length", CallErrors: bad, Raw: "raw"}, true, 0, "raw"},
		"it may be text":    {traj.Response{Message: said("Well", one), FinishReason: "length", CallErrors: bad, Raw: "raw"}, false, 0, "raw"},
		"whole":             {traj.Response{Message: said("", slices.Concat(one, one)), FinishReason: "stop"}, true, 2, ""},
	} {
		message, _ := messageOf(&x.r, x.must)
		calls, _ := message["tool_calls"].([]wireCall)
		if len(calls) != x.calls || message["content"] != x.content {
			t.Errorf("%s: %v", name, message)
		}
	}
}
