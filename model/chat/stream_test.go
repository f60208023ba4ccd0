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
