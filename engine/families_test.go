package engine

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"agentcli/agent"
	"agentcli/datasets"
	"agentcli/env"
	"agentcli/grammar/form"
	"agentcli/internal/goldenfile"
	"agentcli/model/chat"
	"agentcli/model/chat/chattest"
	"agentcli/traj"
)

// No package carries the templates of Phi-4 and OLMo 3. phi4 is word for word what unsloth
// publishes for Phi-4, phi4First the one that Phi-4 had at first, as llama.cpp's tests have it.
// olmo3 prints what the template of OLMo 3.1 32B Instruct does, with shorter default words.
const (
	phi4 = `{% for message in messages %}{% if message['role'] == 'system' %}` +
		`{{ '<|im_start|>system<|im_sep|>' + message['content'] + '<|im_end|>' }}` +
		`{% elif message['role'] == 'user' %}{{ '<|im_start|>user<|im_sep|>' + message['content'] + '<|im_end|>' }}` +
		`{% elif message['role'] == 'assistant' %}{{ '<|im_start|>assistant<|im_sep|>' + message['content'] + '<|im_end|>' }}` +
		`{% endif %}{% endfor %}` +
		`{% if add_generation_prompt %}{{ '<|im_start|>assistant<|im_sep|>' }}{% endif %}`
	phi4First = `{% for message in messages %}{% if message.role == 'system' %}` +
		`{{ '<|im_start|>system<|im_sep|>' + message.content + '<|im_end|>' }}{% elif message.role == 'user' %}` +
		`{{ '<|im_start|>user<|im_sep|>' + message.content + '<|im_end|><|im_start|>assistant<|im_sep|>' }}` +
		`{% elif message.role == 'assistant' %}{{ message.content + '<|im_end|>' }}{% endif %}{% endfor %}`
	olmo3 = `{% set shown = '<functions>' + (tools | tojson if tools else '') + '</functions>' %}` +
		`{% if messages[0].role != 'system' %}{{ '<|im_start|>system\nYou are Olmo. ' + shown + '<|im_end|>\n' }}{% endif %}` +
		`{% for message in messages %}` +
		`{{ '<|im_start|>' + ('environment' if message.role == 'tool' else message.role) + '\n' + (message.content or '') }}` +
		`{% if message.role == 'system' and tools %}{{ shown }}{% endif %}` +
		`{% if message.tool_calls %}<function_calls>{% for t in message.tool_calls %}` +
		`{{ t.function.name }}({% for k, v in t.function.arguments.items() %}` +
		`{{ k }}={{ v | tojson }}{% if not loop.last %}, {% endif %}{% endfor %})` +
		`{% if not loop.last %}{{ '\n' }}{% endif %}{% endfor %}</function_calls>{% endif %}` +
		`{{ eos_token if loop.last and message.role == 'assistant' else '<|im_end|>\n' }}{% endfor %}` +
		`{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}`
)

// playing are the families that play, and how each writes its calls.
var playing = []struct{ template, calls string }{
	{"qwen3_instruct_2507", "hermes"}, {"llama.cpp Qwen3-Coder", "qwen3-coder"}, {"qwen3_5_think", "qwen3-coder"},
	{"qwen3_5_nothink", "qwen3-coder"},
	{"qwen3_6", "qwen3-coder"}, {"qwen3_8", "qwen3-coder"}, {"deepseek_r1_distill", "hermes-text"},
	{"llama.cpp HuggingFaceTB-SmolLM3-3B", "hermes-text"},
	{"llama.cpp Mistral-Small-3.2-24B-Instruct-2506", "mistral"}, {"llama.cpp mistralai-Mistral-Nemo-Instruct-2407", "mistral"},
	{"llama.cpp mistralai-Ministral-3-14B-Reasoning-2512", "mistral"}, {"phi4", "hermes-text"}, {"phi4 at first", "hermes-text"},
	{"gemma", "hermes-text"}, {"gemma3", "hermes-text"},
	{"gemma4_v5", "gemma4"}, {"glm4moe", "glm"}, {"llama.cpp GLM-4.6", "glm"}, {"llama.cpp GLM-4.7-Flash", "glm"}, {"gptoss", "gpt-oss"},
	{"lfm2_v2", "lfm2"}, {"lfm2_2_5", "lfm2"}, {"llama.cpp LFM2.5-8B-A1B", "lfm2"}, {"olmo3", "olmo3"},
	{"llama.cpp ibm-granite-granite-3.3-2B-Instruct", "granite"}, {"lfm2", "lfm2"}, {"llama.cpp ibm-granite-granite-4.0", "hermes"},
	{"nemotron_3_nano", "qwen3-coder"}, {"llama.cpp deepseek-ai-DeepSeek-V3.1", "deepseek-v3"},
	{"llama.cpp deepseek-ai-DeepSeek-V3.2", "deepseek-v3.2"}, {"llama.cpp deepseek-ai-DeepSeek-V4", "deepseek-v3.2"},
	{"llama.cpp MiniMax-M2", "minimax"}, {"llama.cpp moonshotai-Kimi-K2", "kimi"},
	{"llama.cpp CohereForAI-c4ai-command-r7b-12-2024-tool_use", "cohere"}, {"llama.cpp Cohere2MoE", "cohere"},
	{"llama.cpp ByteDance-Seed-OSS", "seed-oss"}, {"llama.cpp NVIDIA-Nemotron-Nano-v2", "nemotron"},
	{"llama.cpp Apertus-8B-Instruct", "apertus"}, {"llama.cpp MiniMax-M1", "tool-calls"}, {"llama.cpp unsloth-Apriel-1.5", "tool-calls"},
}

// callWords write calls of the calculator; the second text is one that cannot be read.
var callWords = map[string]struct {
	call   func(expression string) string
	around [2]string // what is around the calls of a reply
	sep    string
	broken string
}{
	"hermes":      {hermesCall, [2]string{}, "\n", "<tool_call>\n{\"name\": \"calculator\", \"arguments\": {\"expr\n</tool_call>"},
	"hermes-text": {hermesCall, [2]string{}, "\n", "<tool_call>\n{\"name\": \"calculator\", \"arguments\": {\"expr\n</tool_call>"},
	"qwen3-coder": {func(e string) string {
		return "<tool_call>\n<function=calculator>\n<parameter=expression>\n" + e + "\n</parameter>\n</function>\n</tool_call>"
	}, [2]string{}, "\n", "<tool_call>\n<function=calculator>\n<parameter=expr\n</tool_call>"},
	"mistral": {func(e string) string { return fmt.Sprintf(`[TOOL_CALLS]calculator[ARGS]{"expression": %q}`, e) }, [2]string{}, "",
		`[TOOL_CALLS]calculator[ARGS]{"expr`},
	"glm": {func(e string) string {
		return "\n<tool_call>calculator\n<arg_key>expression</arg_key>\n<arg_value>" + e + "</arg_value>\n</tool_call>"
	}, [2]string{}, "", "\n<tool_call>calculator\n<arg_key>expr"},
	"gpt-oss": {func(e string) string {
		return fmt.Sprintf(`<|start|>assistant<|channel|>commentary to=functions.calculator <|constrain|>json<|message|>{"expression": %q}`, e)
	}, [2]string{}, "<|call|>", `<|channel|>commentary to=functions.calculator <|constrain|>json<|message|>{"expr`},
	"gemma4": {func(e string) string {
		return `<|tool_call>call:calculator{expression:<|"|>` + e + `<|"|>}<tool_call|>`
	}, [2]string{}, "",
		`<|tool_call>call:calculator{expr<tool_call|>`},
	"lfm2": {func(e string) string { return fmt.Sprintf("calculator(expression=%q)", e) },
		[2]string{"<|tool_call_start|>[", "]<|tool_call_end|>"}, ", ", "<|tool_call_start|>[calculator(expr]<|tool_call_end|>"},
	"deepseek-v3": {func(e string) string {
		return fmt.Sprintf(`<｜tool▁call▁begin｜>calculator<｜tool▁sep｜>{"expression": %q}<｜tool▁call▁end｜>`, e)
	}, [2]string{"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"}, "",
		`<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>calculator<｜tool▁sep｜>{"expr`},
	"deepseek-v3.2": {func(e string) string {
		return "<｜DSML｜invoke name=\"calculator\">\n<｜DSML｜parameter name=\"expression\" string=\"true\">" + e +
			"</｜DSML｜parameter>\n</｜DSML｜invoke>"
	}, [2]string{"<｜DSML｜function_calls>\n", "\n</｜DSML｜function_calls>"}, "\n",
		"<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"calculator\">\n<｜DSML｜parameter name=\"expr"},
	"minimax": {func(e string) string {
		return "<invoke name=\"calculator\">\n<parameter name=\"expression\">" + e + "</parameter>\n</invoke>"
	}, [2]string{"<minimax:tool_call>\n", "\n</minimax:tool_call>"}, "\n",
		"<minimax:tool_call>\n<invoke name=\"calculator\">\n<parameter name=\"expr"},
	"kimi": {func(e string) string {
		return fmt.Sprintf(`<|tool_call_begin|>functions.calculator:0<|tool_call_argument_begin|>{"expression": %q}<|tool_call_end|>`, e)
	}, [2]string{"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"}, "",
		`<|tool_calls_section_begin|><|tool_call_begin|>functions.calculator:0<|tool_call_argument_begin|>{"expr`},
	"cohere": {func(e string) string {
		return fmt.Sprintf(`{"tool_call_id": "0", "tool_name": "calculator", "parameters": {"expression": %q}}`, e)
	}, [2]string{"<|START_ACTION|>[\n    ", "\n]<|END_ACTION|>"}, ",\n    ",
		`<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "calc`},
	"seed-oss": {func(e string) string {
		return "<seed:tool_call>\n<function=calculator>\n<parameter=expression>" + e + "</parameter>\n</function>\n</seed:tool_call>"
	}, [2]string{}, "\n", "<seed:tool_call>\n<function=calculator>\n<parameter=expr\n</seed:tool_call>"},
	"nemotron": {jsonCall, [2]string{"<TOOLCALL>[", "]</TOOLCALL>"}, ", ", `<TOOLCALL>[{"name": "calculator", "argu`},
	"apertus": {func(e string) string { return fmt.Sprintf(`{"calculator": {"expression": %q}}`, e) },
		[2]string{"<|tools_prefix|>[", "]<|tools_suffix|>"}, ", ", `<|tools_prefix|>[{"calculator": {"expr`},
	"tool-calls": {jsonCall, [2]string{"<tool_calls>\n", "\n</tool_calls>"}, "\n", `<tool_calls>` + "\n" + `{"name": "calculator", "argu`},
	"granite": {jsonCall,
		[2]string{"<|tool_call|>[", "]"}, ", ", `<|tool_call|>[{"name": "calculator", "argu`},
	"olmo3": {func(e string) string { return fmt.Sprintf("calculator(expression=%q)", e) },
		[2]string{"<function_calls>", "</function_calls>"}, "\n", "<function_calls>calculator(expr</function_calls>"},
}

func jsonCall(e string) string {
	return fmt.Sprintf(`{"name": "calculator", "arguments": {"expression": %q}}`, e)
}

func hermesCall(e string) string {
	return fmt.Sprintf("<tool_call>\n{\"name\": \"calculator\", \"arguments\": {\"expression\": %q}}\n</tool_call>", e)
}

var tokenPattern = regexp.MustCompile(`<\|[^|<>{}\s]+\|?>|<[a-z_]+\|>|</?｜[^｜{}]+｜[a-z_]*>?|\[/?[A-Z_]{3,}\]|</?s>` +
	`|<(start|end)_of_[a-z]+>|\[e~\[|\]~b\]|</?seed:[a-z_]+>|<SPECIAL_\d+>`)

// scriptedModel is a sampler that says its replies one by one, each with an id that ends it.
type scriptedModel struct {
	tok     chattest.Tokenizer
	replies []string
	stops   []int32
	prompts []string
	drawn   [][]int32
}

func (s *scriptedModel) Sample(_ context.Context, prompt []int32, _ traj.Sampling, _ int64) (*traj.Completion, error) {
	n := len(s.drawn)
	if n >= len(s.replies) {
		return nil, fmt.Errorf("the script has %d replies", n)
	}
	s.prompts = append(s.prompts, s.tok.Decode(prompt, false))
	c := &traj.Completion{IDs: append(s.tok.Encode(s.replies[n], false), s.stops[n%len(s.stops)]), FinishReason: traj.FinishStop, Ended: true}
	for range c.IDs {
		c.Logprobs = append(c.Logprobs, -1)
	}
	s.drawn = append(s.drawn, slices.Clone(c.IDs))
	return c, nil
}

// TestEachFamilyPlaysArith: a call, a call that cannot be read, two calls at once and an
// answer, in the words of each family, through its own template.
func TestEachFamilyPlaysArith(t *testing.T) {
	all, err := readTemplates()
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := goldenfile.ForeignTemplates()
	if err != nil {
		t.Fatal(err)
	}
	foreign["phi4"], foreign["phi4 at first"], foreign["olmo3"] = phi4, phi4First, olmo3
	data, err := datasets.Open(t.Context(), "arith", datasets.Options{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	var task traj.Task
	for one, err := range data.Tasks(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		task = one
		break
	}
	for _, p := range playing {
		t.Run(p.template, func(t *testing.T) {
			text := all["template "+p.template]
			if text == "" {
				text = foreign[p.template]
			}
			if text == "" {
				goldenfile.MissingTemplate(t, p.template)
			}
			playArith(t, text, p.calls, task)
		})
	}
}

func playArith(t *testing.T, template, format string, task traj.Task) {
	tok := chattest.Tokenizer{Begins: "<s>", Ends: "</s>"}
	tokens := append(tokenPattern.FindAllString(template, -1), "<s>", "</s>", "<|call|>")
	if format == "lfm2" { // the first of its templates does not name them
		tokens = append(tokens, "<|tool_call_start|>", "<|tool_call_end|>")
	}
	for _, s := range tokens {
		if !slices.Contains(tok.More, s) && !slices.Contains(chattest.Controls, s) {
			tok.More = append(tok.More, s)
		}
	}
	r, err := chat.Choose(template, "", tok)
	if err != nil {
		t.Fatal(err)
	}
	d := chat.Describe(r)
	if d.Calls != format {
		t.Fatalf("calls are written as %s, want %s", d.Calls, format)
	}
	w := callWords[format]
	think := ""
	if d.Thinks {
		think = "Let me think.\n</think>\n\n"
		if format == "cohere" {
			think = "Let me think.<|END_THINKING|>"
		}
	}
	calls := func(expressions ...string) string {
		var out []string
		for _, e := range expressions {
			out = append(out, w.call(e))
		}
		return think + w.around[0] + strings.Join(out, w.sep) + w.around[1]
	}
	two := []string{"2+3", "4*5"}
	if format == "gpt-oss" { // harmony has one call a message
		two = two[:1]
	}
	answer := think + "The answer is \\boxed{42}."
	if format == "gpt-oss" {
		answer = "<|channel|>final<|message|>" + answer
	}
	s := &scriptedModel{tok: tok, stops: r.StopIDs()[:1], replies: []string{calls("12*7"), think + w.broken, calls(two...), answer}}
	for i := range s.replies {
		s.replies[i] = strings.TrimPrefix(s.replies[i], "<|start|>assistant") // the prompt has it
	}
	holdToGrammar(t, d, s.replies)
	x := playOnce(t, &chat.Exact{Renderer: r, Tokenizer: tok, Sampler: s, Policy: "p"}, task)
	if x.Termination.Infrastructure() || len(x.Steps) != 4 {
		t.Fatalf("%s after %d turns: %s\n%q", x.Termination, len(x.Steps), x.Error, s.prompts)
	}
	var results []string
	for _, m := range x.Messages[len(task.Messages):] {
		if m.Role == traj.RoleTool {
			results = append(results, m.Content)
		}
	}
	if len(results) != 2+len(two) || results[0] != "84" || results[2] != "5" || len(two) == 2 && results[3] != "20" {
		t.Fatalf("results %q", results)
	}
	last := x.Messages[len(x.Messages)-1]
	if !strings.Contains(last.Content, "42") || x.Steps[1].ToolErrors != 1 || x.Steps[2].ToolCalls != len(two) {
		t.Errorf("the answer is %q, %d errors, %d calls", last.Content, x.Steps[1].ToolErrors, x.Steps[2].ToolCalls)
	}
	for i, want := range [][]string{{"calculator"}, {"84"}, {results[1]}, {"5"}} {
		for _, part := range want {
			part = strings.SplitN(part, `"`, 2)[0] // some templates escape it
			if !strings.Contains(s.prompts[i], part) {
				t.Errorf("prompt %d does not show %q: %q", i, part, s.prompts[i])
			}
		}
	}
	var trained []int32
	for _, q := range x.Sequences {
		for i, id := range q.TokenIDs {
			if q.LossMask[i] {
				trained = append(trained, id)
			}
		}
	}
	if !slices.Equal(trained, slices.Concat(s.drawn...)) {
		t.Error("what is trained is not what was sampled")
	}
	if !d.Thinks && len(x.Sequences) > 1 {
		t.Logf("%d sequences", len(x.Sequences))
	}
}

// holdToGrammar has the grammar of a family's calls take its replies, but for the second one,
// whose call is broken.
func holdToGrammar(t *testing.T, d chat.Description, replies []string) {
	t.Helper()
	g, err := form.Of(&traj.Grammar{Kind: traj.GrammarTools, Tools: []traj.ToolSpec{env.Calculator{}.Spec()}}, d)
	if err != nil {
		t.Fatal(err)
	}
	for i, reply := range replies {
		if taken := form.Matches(g, reply); taken != (i != 1) {
			t.Errorf("the grammar takes %q: %v", reply, taken)
		}
	}
}

// playOnce is one attempt at a task with the calculator.
func playOnce(t *testing.T, m agent.Model, task traj.Task) *traj.Trajectory {
	t.Helper()
	tools := []env.Tool{env.Calculator{}}
	e, err := New(Config{Model: m, Samples: 1, MaxTurns: 6,
		NewAgent: func(traj.Task) (agent.Agent, error) { return agent.New([]traj.ToolSpec{env.Calculator{}.Spec()}), nil },
		NewEnv:   func(traj.Task) (env.Environment, error) { return env.New(env.Config{Tools: tools}) }})
	if err != nil {
		t.Fatal(err)
	}
	var x *traj.Trajectory
	if _, err := e.Run(t.Context(), func(yield func(traj.Task, error) bool) { yield(task, nil) },
		func(one *traj.Trajectory) error { x = one; return nil }); err != nil {
		t.Fatal(err)
	}
	return x
}
