package chat_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"agentcli/model/chat"
)

// opens are the tags of thinking that a prompt of a format may leave open.
func opens(format string) []string {
	own := map[string]string{"mistral": "[THINK]", "cohere": "<|START_THINKING|>", "seed-oss": "<seed:think>",
		"apertus": "<|inner_prefix|>", "gemma4": "<|channel>thought"}
	if tag := own[format]; tag != "" {
		return []string{"", "<think>", tag}
	}
	return []string{"", "<think>"}
}

// everyReply are the replies of all tables, whatever their format.
func everyReply(tb testing.TB) (out []string) {
	tb.Helper()
	g, _ := replies(tb)
	for _, row := range g.Rows {
		out = append(out, row.Reply)
	}
	for _, r := range laterReplies() {
		out = append(out, r.reply)
	}
	for _, r := range newReplies {
		out = append(out, r.reply)
	}
	for _, r := range brokenReplies() {
		out = append(out, r.text)
	}
	for _, r := range hermesReplies() {
		out = append(out, r.text)
	}
	for _, r := range streamReplies {
		out = append(out, r.reply)
	}
	return out
}

type fails interface {
	Errorf(format string, args ...any)
	Helper()
}

// checkStream holds the pieces of a reply to its whole: what is given is a prefix of the
// message, and with the rest it is the message.
func checkStream(t fails, p *chat.Parser, open string, pieces []string) {
	t.Helper()
	text := strings.Join(pieces, "")
	m, errs := p.ParseAfter(open, text)
	s := p.Stream(open)
	reasoning, content := "", ""
	for _, piece := range pieces {
		r, c := s.Add(piece)
		reasoning, content = reasoning+r, content+c
		if !strings.HasPrefix(m.Reasoning, reasoning) || !strings.HasPrefix(m.Content, content) {
			t.Errorf("%s after %q: %q in pieces %q:\n given %q and %q\n whole %q and %q", p.Name(), open, text, pieces,
				reasoning, content, m.Reasoning, m.Content)
			return
		}
	}
	r, c := s.Rest(&m)
	if reasoning+r != m.Reasoning || content+c != m.Content {
		t.Errorf("%s after %q: %q in pieces %q:\n in all %q and %q\n whole %q and %q", p.Name(), open, text, pieces,
			reasoning+r, content+c, m.Reasoning, m.Content)
	}
	said := s.Text()
	if !strings.HasPrefix(said, content) {
		t.Errorf("%s after %q: %q: the text with its calls is %q, and %q was given", p.Name(), open, text, said, content)
	}
	for _, e := range errs {
		if !strings.Contains(said, e.Raw) {
			t.Errorf("%s after %q: %q: the broken call %q is not in the text %q", p.Name(), open, text, e.Raw, said)
		}
	}
}

// TestAStreamIsAPrefixOfTheReply cuts the replies of all tables, one behind the other and at
// random places, and reads them in every format.
func TestAStreamIsAPrefixOfTheReply(t *testing.T) {
	all := everyReply(t)
	_, tools := replies(t)
	for _, name := range chat.Parsers() {
		p := parserOf(t, name, tools)
		for _, open := range opens(name) {
			for _, reply := range all {
				checkStream(t, p, open, cutBytes(reply))
				checkStream(t, p, open, []string{reply})
			}
			if t.Failed() {
				return
			}
			rapid.Check(t, func(t *rapid.T) {
				text := ""
				for range rapid.IntRange(1, 3).Draw(t, "replies") {
					reply := rapid.SampledFrom(all).Draw(t, "reply")
					from := rapid.IntRange(0, len(reply)).Draw(t, "from")
					if rapid.Bool().Draw(t, "whole") {
						from = 0
					}
					text += reply[from:rapid.IntRange(from, len(reply)).Draw(t, "to")]
					text += rapid.SampledFrom([]string{"", "", " ", "\n", "\n\n", "\u00a0", "é", "<", "[", "{", "</think>"}).Draw(t, "between")
				}
				var pieces []string
				for text != "" {
					n := rapid.IntRange(1, min(len(text), 12)).Draw(t, "piece")
					pieces, text = append(pieces, text[:n]), text[n:]
				}
				checkStream(t, p, open, pieces)
			})
		}
	}
}

// fragments are what the formats are made of, and what looks like it.
var fragments = splitFragments("" +
	`<think>|</think>|[THINK]|[/THINK]|<seed:think>|</seed:think>|<¦START_THINKING¦>|<¦END_THINKING¦>|<¦inner_prefix¦>|` +
	`<¦inner_suffix¦>|<¦channel>thought|<channel¦>|<tool_call>|</tool_call>|{"name": "now", "arguments": {}}|` +
	`{"name": "now"|{|}|[|]|(|)|"|<function=now>|<function=|</function>|<parameter=a>|</parameter>|now()|now(a=1)|[now()]|` +
	`now|[{"name": "now", "arguments": {}}]|[TOOL_CALLS]|[ARGS]|<¦python_tag¦>|<¦eom_id¦>|<|<¦|Action:|Action: now|` +
	`**Action**: now|Action|Action Input: {}|Observation: x|Final Answer:|**Final Answer:** |Thought: |*|<search>|` +
	`</search>|<answer>|</answer>|<¦start¦>|<¦channel¦>|<¦message¦>|<¦constrain¦>|<¦end¦>|<¦call¦>|<¦return¦>|analysis|` +
	`final|commentary|assistant|to=functions.now|to=|user| json|<¦START_RESPONSE¦>|<¦END_RESPONSE¦>|<¦START_TEXT¦>|` +
	`<¦START_|<¦START_ACTION¦>|<¦END_ACTION¦>|[{"tool_name": "now", "parameters": {}}]|<｜tool▁calls▁begin｜>|` +
	`<¦tool_call_begin¦>|<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜>|<¦tool_calls_section_begin¦>|` +
	`<¦tool_call_begin¦>functions.now:0<¦tool_call_argument_begin¦>{}<¦tool_call_end¦>|<¦tool_call>call:now{}|<tool_call¦>|` +
	`<¦tool_call_start¦>|<¦tool_call_end¦>|<¦tool_call¦>|<function_calls>|</function_calls>|<minimax:tool_call>|` +
	`<invoke name="now"></invoke>|</minimax:tool_call>|<｜DSML｜function_calls>|<TOOLCALL>|</TOOLCALL>|<tool_calls>|` +
	`</tool_calls>|<¦tools_prefix¦>|[{"now": {}}]|<¦tools_suffix¦>|<seed:tool_call>|</seed:tool_call>|So|a b.|é|日本|\xe2|` +
	`\x80|\xc2|\xa0|  |\v|\f|\r`)

func splitFragments(list string) []string {
	written := strings.NewReplacer("¦", "|", `\xe2`, "\xe2", `\x80`, "\x80", `\xc2`, "\xc2", `\xa0`, "\xa0",
		`\v`, "\v", `\f`, "\f", `\r`, "\r")
	out := strings.Split(list, "|")
	for i, f := range out {
		out[i] = written.Replace(f)
	}
	return out
}

// TestAStreamOfAnyMarksIsAPrefixOfTheReply puts the parts of all formats behind each other.
func TestAStreamOfAnyMarksIsAPrefixOfTheReply(t *testing.T) {
	_, tools := replies(t)
	for _, name := range chat.Parsers() {
		t.Run(name, func(t *testing.T) {
			p := parserOf(t, name, tools)
			rapid.Check(t, func(t *rapid.T) {
				var b strings.Builder
				for range rapid.IntRange(1, 12).Draw(t, "parts") {
					b.WriteString(rapid.SampledFrom(fragments).Draw(t, "part"))
					b.WriteString(rapid.SampledFrom([]string{"", "", "", "\n", " ", "\n\n"}).Draw(t, "behind"))
				}
				open := rapid.SampledFrom(opens(name)).Draw(t, "open")
				checkStream(t, p, open, cutBytes(b.String()))
				checkStream(t, p, open, []string{b.String()})
				if b.Len() > 256 { // longer than a stream looks back
					return
				}
				r, c := p.Stream(open).Add(b.String())
				var cut [2]string
				s := p.Stream(open)
				for _, piece := range cutBytes(b.String()) {
					r, c := s.Add(piece)
					cut[0], cut[1] = cut[0]+r, cut[1]+c
				}
				if cut != [2]string{r, c} {
					t.Errorf("%s after %q: %q gives %q and %q in one piece, %q byte by byte", name, open, b.String(), r, c, cut)
				}
			})
		})
	}
}

// TestGoldenRepliesAreReadAfterTheirPrompt: what the vendors' templates write is read as it was
// where the prompt is known, too: a reply without its opening tag is behind a prompt that has it.
func TestGoldenRepliesAreReadAfterTheirPrompt(t *testing.T) {
	g, tools := replies(t)
	for _, row := range g.Rows {
		p := parserOf(t, row.Family, tools)
		m, errs := p.ParseAfter("", row.Reply)
		if tags := opens(row.Family); row.Reasoning != "" && m.Reasoning == "" {
			m, errs = p.ParseAfter(tags[len(tags)-1], row.Reply)
		}
		checkReply(t, row.From, m, errs, row)
	}
}

// FuzzStream is that with any text, in pieces of some bytes.
func FuzzStream(f *testing.F) {
	_, tools := replies(f)
	for i, reply := range everyReply(f) {
		f.Add(reply, uint8(i))
	}
	type reader struct {
		p    *chat.Parser
		open string
	}
	var readers []reader
	for _, name := range chat.Parsers() {
		for _, open := range opens(name) {
			readers = append(readers, reader{parserOf(f, name, tools), open})
		}
	}
	f.Fuzz(func(t *testing.T, text string, size uint8) {
		var pieces []string
		for rest := text; rest != ""; {
			n := min(len(rest), int(size)%17+1)
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		for _, r := range readers {
			checkStream(t, r.p, r.open, pieces)
		}
	})
}

func cutBytes(s string) []string {
	out := make([]string, len(s))
	for i := range len(s) {
		out[i] = s[i : i+1]
	}
	return out
}

// streamReplies have reasoning, a content and a call in each format: the reasoning is certain
// at its closing tag, the content at the mark of the call.
var streamReplies = []struct{ format, reply, shut, mark, reasoning, content string }{
	{"hermes", "<think>\nhm, so\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
		"</think>", "<tool_call>", "hm, so", "I look."},
	{"hermes-text", "<think>hm</think>I look. <tool_call>{\"name\": \"now\"}</tool_call>", "</think>", "<tool_call>", "hm", "I look."},
	{"deepeyes", "<think>hm</think>I look. <tool_call>{\"name\": \"now\"}</tool_call>", "</think>", "<tool_call>", "hm", "I look."},
	{"qwen3-coder", "<think>\nhm\n</think>\n\nI look.\n\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
		"</think>", "<tool_call>", "hm", "I look."},
	{"qwen3-coder", "<think>\nhm\n</think>\n\nI look.\n\n<function=now>\n</function>", "</think>", "<function=", "hm", "I look."},
	{"glm", "<think>hm</think>\nI look.\n<tool_call>now\n</tool_call>", "</think>", "<tool_call>", "hm", "I look."},
	{"deepseek-r1", "<think>\nhm\n</think>\n\nI look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```" +
		"<｜tool▁call▁end｜><｜tool▁calls▁end｜>", "</think>", "<｜tool▁calls▁begin｜>", "hm", "I look."},
	{"deepseek-v3", "<think>hm</think>I look.<|tool_calls_begin|><|tool_call_begin|>now<|tool_sep|>{}<|tool_call_end|><|tool_calls_end|>",
		"</think>", "<|tool_calls_begin|>", "hm", "I look."},
	{"deepseek-v3.2", "<think>hm</think>I look.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"now\">\n</｜DSML｜invoke>\n" +
		"</｜DSML｜function_calls>",
		"</think>", "<｜DSML｜function_calls>", "hm", "I look."},
	{"llama3-json", "<think>hm</think>I look:\n{\"name\": \"now\", \"parameters\": {}}", "</think>", "{\"name\"", "hm", "I look:"},
	{"llama3-json", "<think>hm</think>So {x}:\n{\"a\": 1}\n<|python_tag|>now.call()",
		"</think>", "<|python_tag|>", "hm", "So {x}:\n{\"a\": 1}"},
	{"llama3-python", "<think>hm</think>I (now) look:\n<|python_tag|>[now()]", "</think>", "<|python_tag|>", "hm", "I (now) look:"},
	{"mistral", "[THINK]hm[/THINK]I look [here].[TOOL_CALLS][{\"name\": \"now\", \"arguments\": {}}]",
		"[/THINK]", "[TOOL_CALLS]", "hm", "I look [here]."},
	{"kimi", "<think>hm</think>I look.<|tool_calls_section_begin|><|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>{}" +
		"<|tool_call_end|><|tool_calls_section_end|>", "</think>", "<|tool_calls_section_begin|>", "hm", "I look."},
	{"gpt-oss", "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|>" +
		"<|start|>assistant<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}<|call|>",
		"<|end|>", "<|start|>assistant<|channel|>commentary to=", "hm", "I look."},
	{"gemma4", "<|channel>thought\nhm\n<channel|>I look.<|tool_call>call:now{}<tool_call|>", "<channel|>", "<|tool_call>", "hm", "I look."},
	{"lfm2", "<think>hm</think>I look.<|tool_call_start|>[now()]<|tool_call_end|>", "</think>", "<|tool_call_start|>", "hm", "I look."},
	{"granite", "<think>hm</think>I look.<|tool_call|>[{\"name\": \"now\"}]", "</think>", "<|tool_call|>", "hm", "I look."},
	{"olmo3", "<think>hm</think>I look.<function_calls>now()</function_calls>", "</think>", "<function_calls>", "hm", "I look."},
	{"minimax", "<think>\nhm\n</think>\n\nI look.\n<minimax:tool_call>\n<invoke name=\"now\">\n</invoke>\n</minimax:tool_call>",
		"</think>", "<minimax:tool_call>", "hm", "I look."},
	{"cohere", "<|START_THINKING|>hm<|END_THINKING|><|START_RESPONSE|>I look.<|END_RESPONSE|><|START_ACTION|>" +
		"[{\"tool_name\": \"now\", \"parameters\": {}}]<|END_ACTION|>", "<|END_THINKING|>", "<|START_ACTION|>", "hm", "I look."},
	{"seed-oss", "<seed:think>hm</seed:think>\nI look.\n<seed:tool_call>\n<function=now>\n</function>\n</seed:tool_call>",
		"</seed:think>", "<seed:tool_call>", "hm", "I look."},
	{"nemotron", "<think>\nhm\n</think>\n\nI look.\n<TOOLCALL>[{\"name\": \"now\", \"arguments\": {}}]</TOOLCALL>",
		"</think>", "<TOOLCALL>", "hm", "I look."},
	{"apertus", "<|inner_prefix|>hm<|inner_suffix|>I look.<|tools_prefix|>[{\"now\": {}}]<|tools_suffix|>",
		"<|inner_suffix|>", "<|tools_prefix|>", "hm", "I look."},
	{"tool-calls", "<think>hm</think>I look.\n<tool_calls>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_calls>",
		"</think>", "<tool_calls>", "hm", "I look."},
	{"search", "<think>hm</think>I look.\n<search>what</search>", "</think>", "<search>", "hm", "I look."},
	{"search", "<think>hm</think>I know.\n<answer>84</answer> more", "</think>", " more", "hm", "I know.\n<answer>84</answer>"},
	// The content of a call is not certain before the call: a final answer would make it reasoning.
	{"react", "<think>hm</think>Thought: I look.\nAction: now\nAction Input: {}", "</think>", "", "hm", ""},
	{"react", "Thought: I know.\nFinal Answer: 84. ", "Answer:", " ", "I know.", "84."},
	{"react", "Thought: I know.\n**Final Answer:** 84. ", "Answer:", " ", "I know.", "84."},
	{"none", "<think>hm</think>I look.\n<tool_call>", "</think>", "", "hm", "I look.\n<tool_call>"},
	{"auto", "<think>hm</think>I look.\n<tool_call>{\"name\": \"now\"}</tool_call>", "</think>", "<tool_call>", "hm", "I look."},
}

// TestAStreamShowsWhatIsCertain reads a reply of each format byte by byte: the reasoning is
// shown by the end of its closing tag, each byte of it at most the tag's length late; the
// content before the first byte behind the call's mark.
func TestAStreamShowsWhatIsCertain(t *testing.T) {
	_, tools := replies(t)
	left := map[string]bool{}
	for _, name := range chat.Parsers() {
		left[name] = true
	}
	for _, tc := range streamReplies {
		delete(left, tc.format)
		p := parserOf(t, tc.format, tools)
		s := p.Stream("")
		closed, called := strings.Index(tc.reply, tc.shut)+len(tc.shut), len(tc.reply)
		if tc.mark != "" {
			called = strings.LastIndex(tc.reply, tc.mark) + len(tc.mark)
		}
		reasoning, content := "", ""
		for i, b := range cutBytes(tc.reply) {
			r, c := s.Add(b)
			reasoning, content = reasoning+r, content+c
			if i+1 == closed && reasoning != tc.reasoning {
				t.Errorf("%s: %q: the reasoning %q is shown at the end of its tag, want %q", tc.format, tc.reply, reasoning, tc.reasoning)
			}
			if i+1 == called && content != tc.content {
				t.Errorf("%s: %q: the content %q is shown at the mark of the call, want %q", tc.format, tc.reply, content, tc.content)
			}
			if at := strings.Index(tc.reply, tc.content); tc.content != "" && tc.format != "llama3-python" && tc.mark != "" && i+1 < called {
				if n := min(i+1-at, len(tc.content)) - len(tc.mark) - len("{") - 8; n > 0 && len(content) < n {
					t.Errorf("%s: %q: of the content %q is shown at byte %d", tc.format, tc.reply, content, i+1)
				}
			}
		}
	}
	if len(left) > 0 {
		t.Errorf("formats without a reply in the table: %v", left)
	}
}

// TestAStreamHoldsLittle feeds long replies of the worst kinds byte by byte: what is undecided
// stays short, so the work grows with the length alone.
func TestAStreamHoldsLittle(t *testing.T) {
	for _, name := range chat.Parsers() {
		p := parserOf(t, name, nil)
		for _, part := range append([]string{" ", "\n", "\u2003", "{ ", "a", "<|message|> ", "<think>\n"}, fragments...) {
			for _, open := range opens(name) {
				s := p.Stream(open)
				for _, b := range cutBytes(strings.Repeat(part, 1500/len(part))) {
					s.Add(b)
					if n := chat.Undecided(s); n > 300 {
						t.Fatalf("%s: of %q %d bytes are undecided", name, part, n)
					}
				}
			}
		}
	}
}

func TestAReplyIsShownAsFarAsAPieceIsCertain(t *testing.T) {
	for _, tc := range []struct{ format, open, reply, reasoning, content string }{
		{"hermes", "", "84", "", "84"},
		{"hermes", "", "84 \n", "", "84"},
		{"hermes", "", "a < b", "", "a < b"},
		{"hermes", "", "a <tool", "", "a"},
		{"hermes", "", "a <tool b", "", "a <tool b"},
		{"hermes", "", " \n a", "", " \n a"},
		{"hermes", "", "no</think>yes", "", "no</think>yes"},
		{"hermes", "", "\n</think>\n\nyes", "", "yes"},
		{"hermes", "<think>", "no</think>\n\nyes", "no", "yes"},
		{"hermes", "<think>", "\n<think>no</think>yes", "no", "\nyes"},
		{"hermes", "<think>", "no\n</thi", "no", ""},
		{"hermes", "", "a<think>x</think>b<think>y</think>c", "x\ny", "abc"},
		{"hermes", "", "na\xc3", "", "na"},
		{"hermes", "<think>", "na\xc3", "na", ""},
		{"mistral", "", "<think>a [THINK]", "a [THINK]", ""},
		{"mistral", "", "[1, 2]", "", "[1, 2]"},
		{"mistral", "", "[ {", "", ""},
		{"mistral", "<think>", "a</think>b", "a", "b"},
		{"llama3-json", "", "{\"a\": 1}", "", "{\"a\": 1}"},
		{"llama3-json", "", "{\"name\": 1}", "", ""},
		{"llama3-json", "", "So {\"name\": 1}", "", "So {\"name\": 1}"},
		{"llama3-python", "", "now", "", ""},
		{"llama3-python", "", "now is", "", "now is"},
		{"llama3-python", "", "now(", "", ""},
		{"cohere", "<|START_THINKING|>", "a<|END_THINKING|><|START_TEXT|>b", "a", "b"},
		{"gpt-oss", "", "assistant<|channel|>analysis<|message|>a", "a", ""},
		{"gpt-oss", "", "<|channel|>final<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b", "", "a\nb"},
		{"gpt-oss", "", "no marks, <b>", "", "no marks, <b>"},
		{"react", "", "Thought: a\n**Final Answer:** b\n", "a", "b"},
		{"search", "", "a <answer>b</answer>c", "", "a <answer>b</answer>"},
	} {
		reasoning, content := parserOf(t, tc.format, nil).Stream(tc.open).Add(tc.reply)
		if reasoning != tc.reasoning || content != tc.content {
			t.Errorf("%s after %q: of %q %q and %q are shown, want %q and %q", tc.format, tc.open, tc.reply, reasoning, content,
				tc.reasoning, tc.content)
		}
	}
}
