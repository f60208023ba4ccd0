package chat_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"agentcli/model/chat"
	"agentcli/traj"
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
var fragments = strings.Split(`<think>|</think>|[THINK]|[/THINK]|<seed:think>|</seed:think>|<¦START_THINKING¦>|<¦END_THINKING¦>|`+
	`<¦inner_prefix¦>|<¦inner_suffix¦>|<¦channel>thought|<channel¦>|<tool_call>|</tool_call>|{"name": "now", "arguments": {}}|`+
	`{"name": "now"|{|}|[|]|(|)|"|<function=now>|<function=|</function>|<parameter=a>|</parameter>|now()|now(a=1)|[now()]|now|`+
	`[{"name": "now", "arguments": {}}]|[TOOL_CALLS]|[ARGS]|<¦python_tag¦>|<¦eom_id¦>|<|<¦|Action:|Action: now|**Action**: now|Action|`+
	`Action Input: {}|Observation: x|Final Answer:|**Final Answer:** |Thought: |*|<search>|</search>|<answer>|</answer>|`+
	`<¦start¦>|<¦channel¦>|<¦message¦>|<¦constrain¦>|<¦end¦>|<¦call¦>|<¦return¦>|analysis|final|commentary|assistant|to=functions.now|`+
	`to=|user| json|<¦START_RESPONSE¦>|<¦END_RESPONSE¦>|<¦START_TEXT¦>|<¦START_|<¦START_ACTION¦>|<¦END_ACTION¦>|`+
	`[{"tool_name": "now", "parameters": {}}]|<｜tool▁calls▁begin｜>|<|tool_call_begin|>|<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜>|`+
	`<¦tool_calls_section_begin¦>|<¦tool_call_begin¦>functions.now:0<¦tool_call_argument_begin¦>{}<¦tool_call_end¦>|<¦tool_call>call:now{}|`+
	`<tool_call¦>|<¦tool_call_start¦>|<¦tool_call_end¦>|<¦tool_call¦>|<function_calls>|</function_calls>|<minimax:tool_call>|`+
	`<invoke name="now"></invoke>|</minimax:tool_call>|<｜DSML｜function_calls>|<TOOLCALL>|</TOOLCALL>|<tool_calls>|</tool_calls>|`+
	`<¦tools_prefix¦>|[{"now": {}}]|<¦tools_suffix¦>|<seed:tool_call>|</seed:tool_call>|So|a b.|é|日本|\xe2|\x80|\xc2|\xa0|  |\v|\f|\r`, "|")

// TestAStreamOfAnyMarksIsAPrefixOfTheReply puts the parts of all formats behind each other.
func TestAStreamOfAnyMarksIsAPrefixOfTheReply(t *testing.T) {
	_, tools := replies(t)
	for i, f := range fragments {
		fragments[i] = strings.NewReplacer("¦", "|", `\xe2`, "\xe2", `\x80`, "\x80", `\xc2`, "\xc2", `\xa0`, "\xa0", `\v`, "\v", `\f`, "\f",
			`\r`, "\r").Replace(f)
	}
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
			})
		})
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

// streamReplies have reasoning, a content and a call in each format. The content is certain
// at the mark of the call, the reasoning at its closing tag.
var streamReplies = []struct{ format, reply, shut, mark string }{
	{"auto", "<think>\nhm, so\n</think>\n\nI look it up.\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>", "</think>", "<tool_call>"},
}

var _ = traj.Message{}
