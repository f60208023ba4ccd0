package chat_test

import (
	"strings"
	"testing"

	"agentcli/model/chat"
	"agentcli/model/chat/chattest"
	"agentcli/traj"
)

func renderer(t *testing.T, template string, tokens ...string) chat.Renderer {
	t.Helper()
	r, err := chat.FromTemplate(template, chattest.Tokenizer{Begins: "<s>", Ends: "</s>", More: append(tokens, "<s>", "</s>")})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func printed(t *testing.T, r chat.Renderer, o chat.Options, tools []traj.ToolSpec, msgs ...traj.Message) string {
	t.Helper()
	text, _, err := r.Render(msgs, tools, o)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

var (
	calling  = traj.ToolCall{ID: "functions.f:0", Name: "f", Arguments: `{"a": 1}`}
	question = traj.Message{Role: traj.RoleUser, Content: "q"}
)

// A template that opens a turn unasked would end each conversation in a reply that nobody
// writes, and its header would be taken for what ends a reply (Command R7B).
func TestATurnThatATemplateOpensUnaskedIsLeftOut(t *testing.T) {
	r := renderer(t, `{% for m in messages %}<|turn|>{{ m.role }}<|says|>{{ m.content }}<|done|>{% endfor %}<|turn|>assistant<|says|>`,
		"<|turn|>", "<|says|>", "<|done|>")
	answer := traj.Message{Role: traj.RoleAssistant, Content: "a"}
	const whole = "<|turn|>user<|says|>q<|done|><|turn|>assistant<|says|>a<|done|>"
	if got := printed(t, r, chat.Options{}, nil, question, answer); got != whole {
		t.Errorf("%q", got)
	}
	if got := printed(t, r, chat.Options{AddGenerationPrompt: true}, nil, question, answer); got != whole+"<|turn|>assistant<|says|>" {
		t.Errorf("asked: %q", got)
	}
	if d := chat.Describe(r); strings.Join(d.Stops, " ") != "<|done|> </s>" {
		t.Errorf("stops %q", d.Stops)
	}
}

// Kimi K2-Thinking prints thinking before calls and none before answers: it was put into the
// content, in tags of its own.
func TestThinkingThatIsPrintedBeforeCallsOnly(t *testing.T) {
	r := renderer(t, `{{ tools | tojson if tools else '' }}{% for m in messages %}<|turn|>{{ m.role }}:`+
		`{% if m.tool_calls %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}`+
		`{% for c in m.tool_calls or [] %}<tool_call>{"name": "{{ c.function.name }}", `+
		`"arguments": {{ c.function.arguments | tojson }}}</tool_call>{% endfor %}<|done|>{% endfor %}`+
		`{% if add_generation_prompt %}<|turn|>assistant:{% endif %}`, "<|turn|>", "<|done|>")
	reply := traj.Message{Role: traj.RoleAssistant, Reasoning: "hm", ToolCalls: []traj.ToolCall{calling}}
	got := printed(t, r, chat.Options{}, nil, question, reply)
	if strings.Count(got, "hm") != 1 || !strings.Contains(got, "<think>hm</think><tool_call>") {
		t.Errorf("%q", got)
	}
}

// DeepSeek V3.1's template prints calls and shows no tools: the system message shows them, and
// calls are read in the model's own form.
func TestToolsThatATemplateLeavesToTheSystemMessage(t *testing.T) {
	r := renderer(t, `{% for m in messages %}<|turn|>{{ m.role }}:{{ m.content }}{% for c in m.tool_calls or [] %}`+
		`{% if loop.first %}<｜tool▁calls▁begin｜>{% endif %}<｜tool▁call▁begin｜>{{ c.function.name }}<｜tool▁sep｜>`+
		`{{ c.function.arguments | tojson }}<｜tool▁call▁end｜>{% if loop.last %}<｜tool▁calls▁end｜>{% endif %}{% endfor %}<|done|>{% endfor %}`+
		`{% if add_generation_prompt %}<|turn|>assistant:{% endif %}`, "<|turn|>", "<|done|>")
	if d := chat.Describe(r); d.Calls != "deepseek-v3" || d.ToolsInText != "" {
		t.Errorf("%+v", d)
	}
	tools := []traj.ToolSpec{{Name: "f", Description: "works it out"}}
	system := traj.Message{Role: traj.RoleSystem, Content: "Be brief."}
	for _, msgs := range [][]traj.Message{{question}, {system, question}} {
		got := printed(t, r, chat.Options{}, tools, msgs...)
		if strings.Count(got, "<|turn|>system:") != 1 || !strings.Contains(got, "### f\nDescription: works it out\n\nParameters: {") ||
			strings.Contains(got, "Be brief.") != (len(msgs) == 2) {
			t.Errorf("%q", got)
		}
		if got := printed(t, r, chat.Options{}, nil, msgs...); strings.Contains(got, "Tools") {
			t.Errorf("without tools: %q", got)
		}
	}
}

// OLMo 3 ends the last reply with the end-of-text token and earlier ones with <|im_end|>: both end one.
func TestBothEndsOfARepliesTurnAreStops(t *testing.T) {
	r := renderer(t, `{% for m in messages %}<|turn|>{{ m.role }}:{{ m.content }}`+
		`{{ eos_token if loop.last and m.role == 'assistant' else '<|done|>' }}{% endfor %}`+
		`{% if add_generation_prompt %}<|turn|>assistant:{% endif %}`, "<|turn|>", "<|done|>")
	if d := chat.Describe(r); strings.Join(d.Stops, " ") != "</s> <|done|>" {
		t.Errorf("stops %q", d.Stops)
	}
}
