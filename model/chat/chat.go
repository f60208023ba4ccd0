// Package chat renders conversations as the models' own templates do, text and
// ids, and reads replies back: one file a model family. The truth it is held
// against is transformers' apply_chat_template.
//
// It is in layer 1: of this module it may import traj only. A tokenizer comes in
// through the Tokenizer interface.
package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"agentcli/internal/malformed"
	"agentcli/traj"
)

// Tokenizer is what a renderer needs of a tokenizer. It must be safe for
// concurrent use. Encode recognises special tokens in the text,
// EncodeOrdinary never makes one.
type Tokenizer interface {
	Encode(text string, addSpecial bool) []int32
	EncodeOrdinary(text string) []int32
	Decode(ids []int32, skipSpecial bool) string
	ID(token string) (int32, bool)
}

// Options of one rendering; the zero value renders the conversation as it is.
type Options struct {
	AddGenerationPrompt bool  // open a new assistant turn at the end
	ContinueFinal       bool  // leave the last assistant message open, to be continued
	EnableThinking      *bool // nil: the template's default
	// Date, where set, is what a template prints as today's (Llama 3.2); else it is
	// the day on which the renderer was made.
	Date string
	// RawTools, where set, are the tools as JSON, written in their own order
	// of keys, in place of the list that Render is given.
	RawTools []json.RawMessage
	// Before, for Bridge, are the messages whose ids go on, and Tools what was offered.
	// A renderer that a template makes asks the template whether it leaves them as they
	// are; without them it asks about a conversation that ended in the same way.
	Before []traj.Message
	Tools  []traj.ToolSpec
}

// Renderer is one family's chat format with a tokenizer. It is safe for
// concurrent use.
type Renderer interface {
	// Render turns a conversation into text and ids. Control tokens come from
	// the template alone: a message that spells one is encoded as plain text.
	Render(msgs []traj.Message, tools []traj.ToolSpec, o Options) (text string, ids []int32, err error)
	// Bridge continues ids that ended with a reply: prev verbatim, then only
	// the new turns. It closes the reply's turn where the model did not. False
	// says that the template would rewrite what is in prev, or that msgs cannot
	// be rendered: render the whole conversation instead.
	Bridge(prev []int32, msgs []traj.Message, o Options) (ids []int32, ok bool)
	// Parse reads the ids of one reply, a final end-of-turn token included or
	// not. Calls have no ids: whoever keeps the conversation gives them some.
	Parse(sampled []int32) (traj.Message, []traj.CallError)
	// StopIDs are the ids that end a reply.
	StopIDs() []int32
	// Family is the name by which For knows the format.
	Family() string
}

// ErrNoTemplate is wrapped where a model has no chat template: a base model.
var ErrNoTemplate = errors.New("the model has no chat template")

// family is what distinguishes one chat format from another.
type family struct {
	name    string
	frame   *frame                                                         // how turns are marked; nil: as in ChatML
	parser  string                                                         // the format of its tool calls; "": hermes
	toolsBy string                                                         // the family with the same tokens that shows tools; "": this one
	head    func(w *writer, msgs []traj.Message, tools []string)           // what comes before the messages
	message func(w *writer, msgs []traj.Message, i int, headed bool) error // one message
	// open writes what is after the assistant header of a generation prompt.
	open     func(w *writer, o Options)
	rewrites func(prev []int32, msgs []traj.Message, endThink int32, haveEndThink bool) bool // whether a new turn changes earlier ones
}

// frame is how a format marks its turns.
type frame struct {
	controls []string // the tokens that only the template writes; all must be there
	end      string   // ends a turn
	closes   []string // ends one too, where a model writes it
	stops    []string // end a reply, besides these
	after    string   // follows the end of a turn
	header   func(w *writer, role string)
}

var chatML = frame{controls: []string{imStart, imEnd}, end: imEnd, stops: []string{"<|endoftext|>"}, after: "\n",
	header: func(w *writer, role string) {
		w.control(imStart)
		w.plain(role, "\n")
	}}

var families = []family{smollm2, chatml, qwen25, qwen25Math, qwen3, llama3, llama31, llama32}

// Families lists the names that For takes.
func Families() []string {
	out := make([]string, len(families))
	for i, f := range families {
		out[i] = f.name
	}
	return out
}

// For makes the renderer of a family.
func For(name string, tok Tokenizer) (Renderer, error) {
	for _, f := range families {
		if f.name != name {
			continue
		}
		r := &renderer{family: f, tok: tok, control: map[string]int32{}, today: time.Now().Format("02 Jan 2006")}
		if r.frame == nil {
			r.frame = &chatML
		}
		if r.parser == "" {
			r.parser = ParserHermes
		}
		for _, s := range r.frame.controls {
			id, ok := tok.ID(s)
			if !ok {
				return nil, fmt.Errorf("the tokenizer has no token %s, which the chat format %s needs", s, name)
			}
			r.control[s] = id
		}
		r.stops = []int32{r.control[r.frame.end]}
		for _, s := range r.frame.closes {
			if id, ok := tok.ID(s); ok {
				r.stops = append(r.stops, id)
			}
		}
		r.closing = len(r.stops)
		for _, s := range r.frame.stops {
			if id, ok := tok.ID(s); ok {
				r.stops = append(r.stops, id)
			}
		}
		r.endThink, r.haveEndThink = tok.ID("</think>")
		return r, nil
	}
	return nil, fmt.Errorf("%w: %q; there are %s", ErrNoFormat, name, strings.Join(Families(), ", "))
}

const (
	imStart = "<|im_start|>"
	imEnd   = "<|im_end|>"
)

// writer collects text and ids side by side. Everything between two control
// tokens is encoded as one run, because merges cross the borders between
// template and content.
type writer struct {
	r    *renderer
	text strings.Builder
	run  strings.Builder
	ids  []int32
	date string
	skip int   // messages that head has written
	open bool  // turns are left without their end
	err  error // of head

	tool    string   // content of the tool message that is written; "": it is none
	marks   [][2]int // of the run: bytes of tool messages' content
	content [][2]int // ids of it, as far as whole tokens are
	bytes   func(id int32) []byte
}

func (w *writer) plain(parts ...string) {
	for _, s := range parts {
		w.text.WriteString(s)
		w.run.WriteString(s)
	}
}

func (w *writer) control(s string) {
	w.flush()
	w.text.WriteString(s)
	w.ids = append(w.ids, w.r.control[s])
}

func (w *writer) flush() {
	if w.run.Len() > 0 {
		ids := w.r.tok.EncodeOrdinary(w.run.String())
		if w.bytes != nil {
			w.content = append(w.content, tokensWithin(w.bytes, ids, w.run.Len(), w.marks, len(w.ids))...)
		}
		w.ids = append(w.ids, ids...)
		w.run.Reset()
		w.marks = w.marks[:0]
	}
}

// turn writes a whole turn.
func (w *writer) turn(role string, parts ...string) {
	w.r.frame.header(w, role)
	for _, s := range parts {
		w.body(s)
	}
	w.end()
}

func (w *writer) end() {
	if w.open {
		return
	}
	w.control(w.r.frame.end)
	w.plain(w.r.frame.after)
}

type renderer struct {
	family
	tok          Tokenizer
	control      map[string]int32
	stops        []int32
	closing      int // how many of stops end a turn as well
	today        string
	endThink     int32
	haveEndThink bool
}

func (r *renderer) Family() string   { return r.name }
func (r *renderer) StopIDs() []int32 { return append([]int32(nil), r.stops...) }

func (r *renderer) Render(msgs []traj.Message, tools []traj.ToolSpec, o Options) (string, []int32, error) {
	w := &writer{r: r}
	if len(msgs) == 0 {
		return "", nil, malformed.Field("messages", malformed.Missing, "the conversation is empty")
	}
	raw := o.RawTools
	if raw == nil {
		var err error
		if raw, err = toolJSON(tools); err != nil {
			return "", nil, err
		}
	}
	var lines []string
	for i, t := range raw {
		s, err := PythonJSON(t)
		if err != nil {
			return "", nil, malformed.Field("tools", "", "tool %d: %w", i, err)
		}
		lines = append(lines, s)
	}
	if w.date = o.Date; w.date == "" {
		w.date = r.today
	}
	r.head(w, msgs, lines)
	if w.err != nil {
		return "", nil, w.err
	}
	if err := r.body(w, msgs, o, true); err != nil {
		return "", nil, err
	}
	w.flush()
	return w.text.String(), w.ids, nil
}

// body writes messages and what opens the next turn. headed says that head has
// dealt with a first system message.
func (r *renderer) body(w *writer, msgs []traj.Message, o Options, headed bool) error {
	if o.ContinueFinal && (len(msgs) == 0 || msgs[len(msgs)-1].Role != traj.RoleAssistant) {
		return malformed.Field("messages", malformed.Unsupported, "the last one is not the assistant's, so it cannot be continued")
	}
	if o.ContinueFinal && len(msgs) <= w.skip {
		return malformed.Field("messages", malformed.Unsupported, "the last one opens the conversation, so it cannot be continued")
	}
	for i := range msgs {
		if len(msgs[i].Images) > 0 {
			return malformed.Field("messages", malformed.Unsupported, "message %d has an image; the chat format %s takes text only", i, r.name)
		}
		if i < w.skip {
			continue
		}
		w.open = o.ContinueFinal && i == len(msgs)-1
		w.tool = ""
		if msgs[i].Role == traj.RoleTool {
			w.tool = msgs[i].Content
		}
		if err := r.message(w, msgs, i, headed); err != nil {
			return malformed.Field("messages", "", "message %d: %w", i, err)
		}
	}
	if o.AddGenerationPrompt && !w.open {
		r.frame.header(w, traj.RoleAssistant)
		if r.open != nil {
			r.open(w, o)
		}
	}
	return nil
}

func (r *renderer) Bridge(prev []int32, msgs []traj.Message, o Options) ([]int32, bool) {
	if len(prev) == 0 || r.rewrites != nil && r.rewrites(prev, msgs, r.endThink, r.haveEndThink) {
		return nil, false
	}
	w := r.bridge(prev, msgs, o, nil)
	if w == nil {
		return nil, false
	}
	return w.ids, true
}

// bridge is Bridge with the content of tool messages, where bytes gives a token's; nil
// where they cannot be rendered.
func (r *renderer) bridge(prev []int32, msgs []traj.Message, o Options, bytes func(id int32) []byte) *writer {
	w := &writer{r: r, ids: append([]int32(nil), prev...), bytes: bytes}
	if !slices.Contains(r.stops[:r.closing], prev[len(prev)-1]) {
		w.control(r.frame.end) // stopped by length: the turn is still open
	}
	w.plain(r.frame.after)
	if r.body(w, msgs, o, false) != nil {
		return nil
	}
	w.flush()
	return w
}

func (r *renderer) Parse(sampled []int32) (traj.Message, []traj.CallError) {
	n := len(sampled)
	for n > 0 && r.isStop(sampled[n-1]) {
		n--
	}
	return ParseReply(r.parser, r.tok.Decode(sampled[:n], false))
}

func (r *renderer) isStop(id int32) bool {
	return slices.Contains(r.stops, id)
}

// toolJSON writes tools in the shape of the OpenAI API, which is what templates
// are given.
func toolJSON(tools []traj.ToolSpec) ([]json.RawMessage, error) {
	var out []json.RawMessage
	for _, t := range tools {
		params := t.Parameters
		if len(params) == 0 {
			params = json.RawMessage(`{"type": "object", "properties": {}}`)
		}
		name, err := json.Marshal(t.Name)
		if err != nil {
			return nil, err
		}
		desc, err := json.Marshal(t.Description)
		if err != nil {
			return nil, err
		}
		out = append(out,
			fmt.Appendf(nil, `{"type": "function", "function": {"name": %s, "description": %s, "parameters": %s}}`, name, desc, params))
	}
	return out, nil
}
