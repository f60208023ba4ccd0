package chat

import (
	"slices"
	"strings"
	"sync"

	"agentcli/model/jinja"
)

// encoder makes ids of a text that knows what in it came from messages.
type encoder struct {
	tok      Tokenizer
	specials sync.Map // of ids: their text, "" for those that are no special token
}

// control is a special token in a text.
type control struct {
	from, to int // bytes
	id       int32
}

// specialText is the text of a special token, "" for other ids.
func (r *encoder) specialText(id int32) string {
	if s, ok := r.specials.Load(id); ok {
		return s.(string)
	}
	s := ""
	if one := []int32{id}; r.tok.Decode(one, true) == "" {
		s = r.tok.Decode(one, false)
	}
	r.specials.Store(id, s)
	return s
}

// find gives the special tokens among the ids of a text, where they are in it.
func (r *encoder) find(text string, ids []int32) []control {
	var out []control
	at := 0
	for _, id := range ids {
		s := r.specialText(id)
		if s == "" {
			continue
		}
		if i := strings.Index(text[at:], s); i >= 0 {
			out = append(out, control{at + i, at + i + len(s), id})
			at += i + len(s)
		}
	}
	return out
}

// controls gives the special tokens that the template wrote: none of their characters
// came from a message.
func (r *encoder) controls(s jinja.Str) []control {
	var out []control
	text, at := s.String(), 0
	segment := func(from, to int) {
		if from < to {
			for _, c := range r.find(text[from:to], r.tok.Encode(text[from:to], false)) {
				out = append(out, control{from + c.from, from + c.to, c.id})
			}
		}
	}
	for _, d := range s.Data() {
		segment(at, d.From)
		at = d.To
	}
	segment(at, len(text))
	return out
}

// encode gives the ids of a text. As a rule they are the tokenizer's own. Where a
// message spells a special token, each run of text between those that the template
// wrote is encoded as plain text.
func (r *encoder) encode(s jinja.Str) []int32 {
	text := s.String()
	ids, own := r.tok.Encode(text, false), r.controls(s)
	if slices.Equal(r.find(text, ids), own) {
		return ids
	}
	var out []int32
	at := 0
	run := func(to int) {
		if at < to {
			out = append(out, r.tok.EncodeOrdinary(text[at:to])...)
		}
	}
	for _, c := range own {
		run(c.from)
		out = append(out, c.id)
		at = c.to
	}
	run(len(text))
	return out
}

// encodeBehind gives the ids of a text that follows the token prev: some tokenizers
// write the beginning of a text in another way.
func (r *encoder) encodeBehind(prev int32, s jinja.Str) []int32 {
	anchor := r.specialText(prev)
	if anchor == "" {
		return r.encode(s)
	}
	ids := r.encode(jinja.Concat(jinja.Text(anchor), s))
	if len(ids) == 0 || ids[0] != prev {
		return r.encode(s)
	}
	return ids[1:]
}
