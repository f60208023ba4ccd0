package chat

import (
	"bytes"
	"slices"

	"agentcli/traj"
)

// ByteTokenizer is a Tokenizer that knows the bytes of each of its tokens.
type ByteTokenizer interface {
	Tokenizer
	Bytes(id int32) []byte
}

// ToolContent says which of the tokens between two replies are the content of tool
// messages: not the template's text around them, and no other message. gap[from:to] of a
// sequence's ids are what stands between the replies, msgs the messages that do. The
// renderer says where they are; where the ids are not those that it would write (a server
// with a template of its own, a reply that goes on), the contents are looked for in the
// gap's text, in their order. A token that is partly content is not marked.
func ToolContent(r Renderer, tok ByteTokenizer, ids []int32, from, to int, msgs []traj.Message) []bool {
	mark := make([]bool, to-from)
	set := func(spans [][2]int, shift int) []bool {
		for _, s := range spans {
			for t := max(s[0]-shift, 0); t < min(s[1]-shift, len(mark)); t++ {
				mark[t] = true
			}
		}
		return mark
	}
	if own, ok := r.(*renderer); ok {
		for _, next := range []bool{true, false} { // before another reply, or at the end
			if w := own.bridge(ids[:from], msgs, Options{AddGenerationPrompt: next}, tok.Bytes); w != nil && slices.Equal(w.ids, ids[:to]) {
				return set(w.content, from)
			}
		}
	}
	var text []byte
	for _, id := range ids[from:to] {
		text = append(text, tok.Bytes(id)...)
	}
	var marks [][2]int
	at := 0
	for _, m := range msgs {
		if m.Role != traj.RoleTool || m.Content == "" {
			continue
		}
		i := bytes.Index(text[at:], []byte(m.Content))
		if i < 0 {
			continue
		}
		marks = append(marks, [2]int{at + i, at + i + len(m.Content)})
		at += i + len(m.Content)
	}
	return set(tokensWithin(tok.Bytes, ids[from:to], len(text), marks, 0), 0)
}

// tokensWithin gives the tokens that lie wholly within marked bytes of a text of n bytes
// that they spell, counted from first.
func tokensWithin(of func(id int32) []byte, ids []int32, n int, marks [][2]int, first int) [][2]int {
	ends := make([]int, len(ids)+1)
	for t, id := range ids {
		ends[t+1] = ends[t] + len(of(id))
	}
	if len(marks) == 0 || ends[len(ids)] != n { // a tokenizer that changes the text
		return nil
	}
	var out [][2]int
	for _, m := range marks {
		lo, _ := slices.BinarySearch(ends, m[0])
		hi, found := slices.BinarySearch(ends, m[1])
		if !found {
			hi--
		}
		if lo < hi {
			out = append(out, [2]int{first + lo, first + hi})
		}
	}
	return out
}

// body writes a message's own text.
func (w *writer) body(s string) {
	if w.bytes != nil && w.tool != "" && s == w.tool {
		w.marks = append(w.marks, [2]int{w.run.Len(), w.run.Len() + len(s)})
		w.tool = ""
	}
	w.plain(s)
}
