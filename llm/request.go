package llm

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync/atomic"

	"agentcli/internal/setting"
	"agentcli/traj"

	openai "github.com/sashabaranov/go-openai"
)

// body is a request that is made once and sent as often as needed.
type body struct {
	messages       []byte          // the JSON array without its last bracket
	tools          json.RawMessage // nil: none
	sampling       traj.Sampling
	seed           int64
	cont           bool
	clamp          int           // max_tokens that the server's window leaves; 0: as asked
	open           bool          // leave max_tokens out: the window leaves less than was asked for
	inText         bool          // the tools are in the messages
	thoughts       thoughts      // where past reasoning is, if there is any
	inIDs          bool          // the prompt is ids
	images         *traj.Request // whose messages have some; nil: they have none, or the prompt is ids
	quiet          bool          // nothing is said of images that the server shows otherwise
	grammarRefusal string        // the error for which the grammar is left out of one attempt; "": it is sent

	parse func(text string) (traj.Message, []traj.CallError) // reads the reply; nil: it is taken as it is
}

// seedFor is the seed in what the server takes: 31 bits are taken by all, and `agentcli serve`
// draws what a local model would with the seed as it is.
func (b *body) seedFor(s *server) int64 {
	if s.c.FullSeeds || s.ours.Load() {
		return b.seed
	}
	return (b.seed ^ b.seed>>32) & math.MaxInt32
}

// requestWriter writes the requests to one server, with the fields that it takes.
type requestWriter struct {
	*server
	model json.RawMessage // its name
	tools atomic.Pointer[encodedTools]
}

// body makes a chat request.
func (w *requestWriter) body(req *traj.Request) (*body, error) {
	b := &body{sampling: req.Sampling, seed: req.Seed, cont: req.Continue}
	if hasImages(req.Messages) {
		b.images = req
	}
	switch {
	case req.Form != nil:
		b.parse = req.Form.Parse
	case w.c.Parse != nil:
		b.parse = func(text string) (traj.Message, []traj.CallError) { return w.c.Parse(text, req.Tools) }
	}
	messages, tools := req.Messages, req.Tools
	if b.inText = w.inText(); b.inText {
		messages, tools = w.c.InText(messages, tools), nil
	}
	var err error
	if b.tools, err = w.encodeTools(tools); err != nil {
		return nil, err
	}
	memo := req.Memo
	if b.inText { // the messages are not the conversation's own
		memo = nil
	}
	b.thoughts = w.thoughts()
	b.messages, err = encodeMessages(messages, memo, b.thoughts)
	return b, err
}

func hasImages(messages []traj.Message) bool {
	return slices.ContainsFunc(messages, func(m traj.Message) bool { return len(m.Images) > 0 })
}

// encodeTools keeps the last list: a run offers one, in every request.
func (w *requestWriter) encodeTools(tools []traj.ToolSpec) (json.RawMessage, error) {
	if len(tools) == 0 {
		return nil, nil
	}
	if t := w.tools.Load(); t != nil && len(t.specs) == len(tools) && &t.specs[0] == &tools[0] {
		return t.raw, nil
	}
	var list []openai.Tool
	for _, t := range tools {
		params := t.Parameters
		if len(params) == 0 {
			params = json.RawMessage(`{"type":"object","properties":{}}`)
		}
		list = append(list, openai.Tool{Type: openai.ToolTypeFunction,
			Function: &openai.FunctionDefinition{Name: t.Name, Description: t.Description, Parameters: params}})
	}
	raw, err := json.Marshal(list)
	if err != nil {
		return nil, fmt.Errorf("a tool's parameters are no JSON: %w", err)
	}
	w.tools.Store(&encodedTools{tools, raw})
	return raw, nil
}

type encodedTools struct {
	specs []traj.ToolSpec
	raw   json.RawMessage
}

// optional are the fields that we would like and can do without, and what the
// user loses.
var optional = map[string]string{
	"return_token_ids": "no token ids, so the file cannot be trained on",
	"logprobs":         "no log-probs are recorded",
	"seed":             "its replies cannot be repeated",
	"sampling_seed":    "its replies cannot be repeated",
	"stream":           "its replies come in one piece",
	"stream_options":   "it does not say how many tokens a reply took",

	"logit_bias":                 "it may draw ids that stand for images; replies with such ids cannot be trained on",
	"return_tokens_as_token_ids": "",
	"skip_special_tokens":        "special tokens are missing in its text, and calls that are made of them go unread",
}

// neutral reports that a field is of our adding and changes nothing where the
// server has no default of its own; one that does not know it has none.
func (b *body) neutral(field string) bool {
	s := b.sampling
	switch field {
	case "repetition_penalty":
		return s.Neutral
	case "min_p":
		return s.Neutral && s.MinP == 0
	case "top_k":
		return s.TopK < 0
	case "top_p":
		return s.TopP == 1
	case "temperature":
		return s.Temperature != nil && *s.Temperature == 1
	}
	return false
}

// asked are the fields that the user set; a server that refuses one refuses
// the run, and the setting is named.
var asked = map[string]setting.Name{
	"top_k":          setting.Name("TopK"),
	"min_p":          setting.Name("MinP"),
	"temperature":    setting.Name("Temperature"),
	"top_p":          setting.Name("TopP"),
	"stop_token_ids": setting.Name("StopIDs"),
	"stop":           setting.Name("Stop"),

	"return_routed_experts": setting.Name("RouterReplay"),

	"response_format":    setting.Name("Grammar"),
	"structured_outputs": setting.Name("Grammar"),
	"json_schema":        setting.Name("Grammar"),
	"regex":              setting.Name("Grammar"),
}

// Values that need no encoding.
var rawTrue, rawFalse, rawOne = json.RawMessage("true"), json.RawMessage("false"), json.RawMessage("1")

func rawInt(n int64) json.RawMessage { return strconv.AppendInt(nil, n, 10) }

// chatFields are those of a chat request, but for its messages.
func (w *requestWriter) chatFields(b *body) map[string]json.RawMessage {
	f := w.fields(b)
	f["model"] = w.model
	return f
}

// fields are the top-level fields of a request, but for the prompt and the model.
func (w *requestWriter) fields(b *body) map[string]json.RawMessage {
	f := make(map[string]json.RawMessage, 14)
	if b.tools != nil {
		f["tools"] = b.tools
	}
	set := func(name string, v any) {
		raw, err := json.Marshal(v)
		if err == nil {
			f[name] = raw
		}
	}
	s := b.sampling
	if s.Temperature != nil && w.has("temperature") {
		set("temperature", *s.Temperature)
	}
	if s.TopP != 0 && w.has("top_p") {
		set("top_p", s.TopP)
	}
	if s.TopK > 0 || s.TopK < 0 && w.has("top_k") {
		f["top_k"] = rawInt(int64(s.TopK))
	}
	if s.MinP > 0 || s.Neutral && w.has("min_p") {
		set("min_p", s.MinP)
	}
	if s.Neutral && w.has("repetition_penalty") {
		f["repetition_penalty"] = rawOne
	}
	if len(s.Stop) > 0 {
		set("stop", s.Stop)
	}
	if len(s.StopIDs) > 0 {
		set("stop_token_ids", s.StopIDs)
	}
	limit := s.MaxTokens
	if b.clamp > 0 && (limit == 0 || b.clamp < limit) {
		limit = b.clamp
	}
	if limit > 0 && !b.open {
		if w.has("max_tokens") {
			f["max_tokens"] = rawInt(int64(limit))
		} else {
			f["max_completion_tokens"] = rawInt(int64(limit))
		}
	}
	if w.has("seed") {
		f["seed"] = rawInt(b.seedFor(w.server))
	}
	if w.c.WantIDs {
		if w.has("return_token_ids") {
			f["return_token_ids"] = rawTrue
		}
		if w.has("logprobs") {
			f["logprobs"] = rawTrue
		}
	}
	if w.barred != nil && w.has("logit_bias") {
		f["logit_bias"] = w.barred
	}
	if w.c.WantExperts {
		f["return_routed_experts"] = rawTrue
	}
	if s.Grammar != nil && b.grammarRefusal == "" {
		maps.Copy(f, grammarFields(s.Grammar, b.inIDs))
	}
	if b.cont {
		f["continue_final_message"], f["add_generation_prompt"] = rawTrue, rawFalse
	}
	if w.c.KeepSpecial && w.has("skip_special_tokens") {
		f["skip_special_tokens"] = rawFalse
	}
	if w.streams() {
		f["stream"] = rawTrue
		if w.has("stream_options") {
			f["stream_options"] = json.RawMessage(`{"include_usage":true}`)
		}
	}
	return f
}
