package chattest

import (
	"slices"
	"strings"
)

// Controls are the tokens that only templates write, of every format.
var Controls = []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>",
	"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"}

// added are tokens that text makes too.
var added = []string{"<think>", "</think>", "<tool_call>", "</tool_call>"}

// Tokenizer is one of bytes, of pairs of letters, and of the tokens of every chat
// format, so a text has many encodings and one that is canonical: what was made
// from text again shows.
type Tokenizer struct {
	More         []string // further tokens that only templates write
	Begins, Ends string   // the tokens that begin and end a text; "": there are none
}

const firstPair, letters = 256, "abcdefghijklmnopqrstuvwxyz <>/|_\n\"{}:,"

const (
	firstAdded   = int32(firstPair + len(letters)*len(letters))
	firstControl = firstAdded + 4
)

// Vocabulary is the number of tokens.
func (t Tokenizer) Vocabulary() int { return int(firstControl) + len(Controls) + len(t.More) }

func (t Tokenizer) controls() []string { return slices.Concat(Controls, t.More) }

// BOS is the id of the token that begins a text, or -1.
func (t Tokenizer) BOS() int32 { return t.role(t.Begins) }

// EOS is the id of the token that ends one, or -1.
func (t Tokenizer) EOS() int32 { return t.role(t.Ends) }

// Pad is -1: there is none.
func (Tokenizer) Pad() int32 { return -1 }

func (t Tokenizer) role(token string) int32 {
	if id, ok := t.ID(token); ok && token != "" {
		return id
	}
	return -1
}

// ID is the id of one of the tokens of the chat formats.
func (t Tokenizer) ID(s string) (int32, bool) {
	if i := slices.Index(t.controls(), s); i >= 0 {
		return firstControl + int32(i), true
	}
	i := slices.Index(added, s)
	return firstAdded + int32(i), i >= 0
}

// EncodeOrdinary makes no token of Controls.
func (t Tokenizer) EncodeOrdinary(s string) []int32 { return t.encode(s, added) }

// Encode makes every token that the text spells.
func (t Tokenizer) Encode(s string, _ bool) []int32 {
	var out []int32
	for len(s) > 0 {
		at, token := len(s), ""
		for _, c := range t.controls() {
			if i := strings.Index(s, c); i >= 0 && (i < at || i == at && len(c) > len(token)) {
				at, token = i, c
			}
		}
		out = append(out, t.encode(s[:at], added)...)
		if token != "" {
			id, _ := t.ID(token)
			out = append(out, id)
		}
		s = s[at+len(token):]
	}
	return out
}

func (t Tokenizer) encode(s string, whole []string) []int32 {
	var out []int32
	for len(s) > 0 {
		if i := slices.IndexFunc(whole, func(w string) bool { return strings.HasPrefix(s, w) }); i >= 0 {
			id, _ := t.ID(whole[i])
			out, s = append(out, id), s[len(whole[i]):]
			continue
		}
		if id, ok := t.Pair(s); ok {
			out, s = append(out, id), s[2:]
			continue
		}
		out, s = append(out, int32(s[0])), s[1:]
	}
	return out
}

// Pair is the token of the first two letters of s, if there is one.
func (Tokenizer) Pair(s string) (int32, bool) {
	if len(s) < 2 {
		return 0, false
	}
	a, b := strings.IndexByte(letters, s[0]), strings.IndexByte(letters, s[1])
	return int32(firstPair + a*len(letters) + b), a >= 0 && b >= 0
}

// Decode is the text of ids.
func (t Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	var b strings.Builder
	for _, id := range ids {
		switch {
		case id >= firstControl:
			if !skipSpecial {
				b.WriteString(t.controls()[id-firstControl])
			}
		case id >= firstAdded:
			b.WriteString(added[id-firstAdded])
		case id >= firstPair:
			k := int(id - firstPair)
			b.WriteByte(letters[k/len(letters)])
			b.WriteByte(letters[k%len(letters)])
		default:
			b.WriteByte(byte(id))
		}
	}
	return strings.ToValidUTF8(b.String(), "\uFFFD")
}
