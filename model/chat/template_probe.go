package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"agentcli/model/jinja"
	"agentcli/traj"
)

// ErrTemplate is a chat template from which no renderer can be made.
var ErrTemplate = errors.New("the chat template cannot be used")

// traits are what probing finds out about a template.
type traits struct {
	header string // opens the assistant's turn
	opens  string // the tag of the thinking that the prompt opens; "": none

	reasoning    bool // the template prints reasoning_content
	thinksInText bool // it prints thinking that is part of the content only
	noSystem     bool // it refuses a system message
	parts        bool // it takes a content as a list of parts only
	images       bool // it writes a special token where an image is

	tools         bool      // it shows the tools
	calls         string    // the format that reads its calls back; "none": it prints none
	textArguments bool      // it takes a call's arguments as JSON text
	noContent     bool      // it takes a call without content only
	ids           idForm    // how it takes the ids of calls
	written       *written  // how they are put into the content; nil: the template prints tool_calls
	intro         toolIntro // shows the tools in a system message; nil: the template shows them
	opener        string    // begins the turn that the template opens unasked; "": it opens none
	noOrphans     bool      // it refuses or drops a result without a call
}

// prober fills in what a renderer knows of its template.
type prober struct{ *templated }

// idForm is how a template takes the ids of calls.
type idForm string

const (
	anyIDs   idForm = ""
	shortIDs idForm = "nine characters"
	kimiIDs  idForm = "functions.name:number"
)

// probeLimits hold all renderings of the probes of a template that does its worst to
// about five seconds; each is of a few messages.
var probeLimits = jinja.Limits{Steps: 50_000, Bytes: 8 << 20}

// Words of the probes; no template has them.
const (
	probeQuestion = "Whitherquestion"
	probeAnswer   = "Thitheranswer"
	probeThought  = "Hitherthought"
)

var (
	probeUser  = traj.Message{Role: traj.RoleUser, Content: probeQuestion}
	probeReply = traj.Message{Role: traj.RoleAssistant, Content: probeAnswer}
	probeTools = []traj.ToolSpec{{Name: "whithertool", Description: "finds a place",
		Parameters: json.RawMessage(`{"type": "object", "properties": {"place": {"type": "string"}, "count": {"type": "integer"}}, ` +
			`"required": ["place"]}`)}}
	probeCalls = []traj.ToolCall{{ID: "call_0", Name: "whithertool", Arguments: `{"place": "Yonder <&> \"é\"", "count": 3}`},
		{ID: "call_1", Name: "whithertool", Arguments: `{"place": "Hence"}`}}
)

// probe renders conversations that are known, and finds the traits, the ids that end
// a reply, and how calls are written.
func (r prober) probe() error {
	prompt, err := r.probeText(nil, true, probeUser)
	if errors.Is(err, jinja.ErrLimit) {
		return fmt.Errorf("%w: %w", ErrTemplate, err)
	}
	if err != nil || !strings.Contains(prompt, probeQuestion) {
		r.traits.parts = true
		again, err2 := r.probeText(nil, true, probeUser)
		if err2 == nil && strings.Contains(again, probeQuestion) {
			prompt, err = again, nil
		} else {
			r.traits.parts = false
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrTemplate, err)
	}
	bare, err := r.probeText(nil, false, probeUser)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrTemplate, err)
	}
	if r.traits.header, _ = strings.CutPrefix(prompt, bare); r.traits.header == "" || r.traits.header == prompt {
		// The question's end opens the assistant's turn.
		_, r.traits.header, _ = strings.Cut(prompt, probeQuestion)
	}
	r.traits.opens = opensThinking(prompt)
	if _, err := r.probeText(nil, true, traj.Message{Role: traj.RoleSystem, Content: "s"}, probeUser); err != nil {
		r.traits.noSystem = true
	}
	r.probeImages()
	r.probeReasoning()
	r.probeOpener(prompt)
	r.probeStops(nil, probeReply)
	ends := len(r.stops) > 0
	r.probeCalls()
	r.probeCallReasoning()
	r.probeIntro()
	orphan, err := r.probeText(probeTools, false, probeUser, probeReply,
		traj.Message{Role: traj.RoleTool, Name: probeTools[0].Name, Content: "Orphaned"})
	r.traits.noOrphans = err != nil || !strings.Contains(orphan, "Orphaned")
	r.probeClosers(ends)
	if !ends { // nothing, or a call alone, has an end of its own
		r.probeHeaders()
	}
	if known, ok := r.tok.(roles); ok && known.EOS() >= 0 && !slices.Contains(r.stops, known.EOS()) {
		r.stops = append(r.stops, known.EOS())
	}
	if len(r.stops) == 0 {
		return fmt.Errorf("%w: it writes no special token behind a reply, and the tokenizer has no end-of-text token", ErrTemplate)
	}
	return nil
}

func (r prober) probeText(tools []traj.ToolSpec, ask bool, msgs ...traj.Message) (string, error) {
	out, err := r.text(msgs, tools, Options{AddGenerationPrompt: ask})
	return out.String(), err
}

// opensThinking is the tag with which a generation prompt ends.
func opensThinking(header string) string {
	header = strings.TrimSpace(header)
	for _, tag := range []string{openThink, "[THINK]", "<seed:think>", "<|START_THINKING|>"} {
		if strings.HasSuffix(header, tag) {
			return tag
		}
	}
	return ""
}

// probeImages asks whether the template writes a special token of its own between the texts
// before and behind an image.
func (r prober) probeImages() {
	r.traits.images = true
	shown := traj.Message{Role: traj.RoleUser, Content: probeQuestion + traj.ImageMark + probeAnswer, Images: make([]traj.Image, 1)}
	out, err := r.text([]traj.Message{shown}, nil, Options{})
	before, behind := strings.Index(out.String(), probeQuestion)+len(probeQuestion), strings.Index(out.String(), probeAnswer)
	r.traits.images = err == nil && behind >= 0 && slices.ContainsFunc(r.controls(out),
		func(c control) bool { return before <= c.from && c.to <= behind })
}

// probeReasoning asks whether a reply's thinking is printed: as a field, else as part
// of the content.
func (r prober) probeReasoning() {
	m := probeReply
	m.Reasoning = probeThought
	prints := func() bool {
		text, err := r.probeText(nil, false, probeUser, m)
		return err == nil && strings.Contains(text, probeThought)
	}
	if r.traits.reasoning = prints(); r.traits.reasoning {
		return
	}
	r.traits.thinksInText = true
	if !prints() {
		r.traits.thinksInText = false
	}
}

// probeCallReasoning asks whether a thinking that is not printed before an answer is printed
// before a call: Kimi K2-Thinking and Command R7B keep only that.
func (r prober) probeCallReasoning() {
	if r.traits.reasoning || r.traits.calls == ParserNone {
		return
	}
	was := r.traits.thinksInText
	r.traits.thinksInText = false
	m := traj.Message{Role: traj.RoleAssistant, Reasoning: probeThought, ToolCalls: probeCalls[:1]}
	text, err := r.probeText(probeTools, false, probeUser, m)
	r.traits.reasoning = err == nil && strings.Contains(text, probeThought)
	r.traits.thinksInText = was && !r.traits.reasoning
}

// probeIntro has the tools shown in a system message, where the template prints calls of a
// format but shows no tools.
func (r prober) probeIntro() {
	i := slices.IndexFunc(formats, func(f format) bool { return f.name == r.traits.calls })
	if r.traits.tools || i < 0 || formats[i].intro == nil {
		return
	}
	r.traits.intro = formats[i].intro
	shown, err := r.probeText(probeTools, true, probeUser)
	if r.traits.tools = err == nil && strings.Contains(shown, probeTools[0].Name); !r.traits.tools {
		r.traits.intro = nil
	}
}

// probeOpener finds what begins the assistant's turn of a template that opens one at the end of
// any conversation, asked or not: the special token that begins the conversation too.
func (r prober) probeOpener(prompt string) {
	ended, err := r.text([]traj.Message{probeUser, probeReply}, nil, Options{})
	_, tail, _ := strings.Cut(prompt, probeQuestion)
	if err != nil || tail == "" || !strings.HasSuffix(ended.String(), tail) {
		return
	}
	for _, c := range r.controls(ended) {
		if r.specialText(c.id) == r.special["bos_token"] {
			continue
		}
		if token := r.specialText(c.id); strings.Contains(tail, token) {
			r.traits.opener = token
			r.traits.header = tail[strings.LastIndex(tail, token):]
		}
		return
	}
}

// probeStops takes the special tokens behind a reply that is the last message for
// those that end a reply; of a call's only the last one, and those that end answers.
func (r prober) probeStops(tools []traj.ToolSpec, reply traj.Message) {
	out, err := r.text([]traj.Message{probeUser, reply}, tools, Options{})
	if err != nil {
		return
	}
	d := out.Data()
	if len(d) == 0 || len(reply.ToolCalls) == 0 && !strings.HasSuffix(out.String()[:d[len(d)-1].To], probeAnswer) {
		return // it does not print replies
	}
	tail := d[len(d)-1].To
	controls := r.controls(out)
	for i, c := range controls {
		known := slices.Contains(r.stops, c.id) || r.specialText(c.id) == r.special["bos_token"]
		if c.from >= tail && !known && (len(reply.ToolCalls) == 0 || i == len(controls)-1) {
			r.stops = append(r.stops, c.id)
		}
	}
}

// probeCalls finds how the template takes calls, and the format that reads them back
// from what it prints.
func (r prober) probeCalls() {
	bare, _ := r.probeText(nil, true, probeUser)
	shown, err := r.probeText(probeTools, true, probeUser)
	r.traits.tools = err == nil && shown != bare && strings.Contains(shown, probeTools[0].Name)
	r.traits.calls = ParserNone
	for _, ids := range []idForm{anyIDs, shortIDs, kimiIDs} {
		for _, text := range []bool{false, true} {
			for _, absent := range []bool{false, true} {
				r.traits.ids, r.traits.textArguments, r.traits.noContent = ids, text, absent
				// Llama 4's template writes every value in quotes: only a string is read back.
				for _, calls := range [][]traj.ToolCall{probeCalls, probeCalls[:1], probeCalls[1:]} {
					reply := traj.Message{Role: traj.RoleAssistant, ToolCalls: calls}
					if name := r.readBack(reply); name != ParserNone {
						r.traits.calls = name
						r.probeStops(probeTools, reply)
						return
					}
				}
			}
		}
	}
	r.traits.ids, r.traits.textArguments, r.traits.noContent = anyIDs, false, false
	if r.traits.tools {
		r.probeWritten()
	}
}

// probeWritten tries the formats that stand in a reply's content, of those whose opening
// tag the template or the tokenizer knows.
func (r prober) probeWritten() {
	for _, f := range formats {
		if f.written == nil {
			continue
		}
		if _, known := r.tok.ID(f.written.open); !known && !strings.Contains(r.template.Source(), f.written.open) {
			continue
		}
		reply := traj.Message{Role: traj.RoleAssistant, ToolCalls: probeCalls}
		if r.traits.written = f.written; r.readBack(reply) == f.name {
			r.traits.calls = f.name
			r.probeStops(probeTools, reply)
			return
		}
		r.traits.written = nil
	}
}

// readBack names the first format that reads the reply's calls in what the template
// prints of it; none if there is no such format.
func (r prober) readBack(calling traj.Message) string {
	prompt, err1 := r.text([]traj.Message{probeUser}, probeTools, Options{AddGenerationPrompt: true})
	ended, err2 := r.text([]traj.Message{probeUser, calling}, probeTools, Options{})
	if err1 != nil || err2 != nil {
		return ParserNone
	}
	text := ended.String()
	begin := commonPrefix(prompt.String(), text)
	opened := begin == len(prompt.String())
	if !opened { // the turn's header may end in another way: back to the end of a token or of a line
		same := text[:begin]
		begin = strings.LastIndexByte(same, '\n') + 1
		if at := strings.LastIndex(same, probeQuestion); at >= 0 {
			begin = max(begin, at+len(probeQuestion))
		}
		for _, c := range r.controls(ended) {
			if c.to <= len(same) {
				begin = max(begin, c.to)
			}
		}
	}
	end := r.replyEnd(ended)
	if end <= begin {
		return ParserNone
	}
	reply := text[begin:end]
	if opened {
		reply = r.opened(reply)
	}
	return formatOf(reply, calling.ToolCalls)
}

// formatOf names the first format that reads the calls of a reply and leaves nothing of it;
// else the first that leaves no call. none: there is no such format.
func formatOf(reply string, calls []traj.ToolCall) string {
	found := ParserNone
	for _, f := range formats {
		if f.prompted != nil || !strings.Contains(reply, f.mark) {
			continue
		}
		m, bad := newParser(f, probeTools).Parse(reply)
		if len(bad) > 0 || !sameCalls(m.ToolCalls, calls) {
			continue
		}
		if m.Content == "" {
			return f.name
		}
		if found == ParserNone && !strings.Contains(m.Content, probeTools[0].Name) {
			found = f.name
		}
	}
	return found
}

func sameCalls(a, b []traj.ToolCall) bool {
	return slices.EqualFunc(a, b, func(x, y traj.ToolCall) bool {
		var u, v any
		if json.Unmarshal([]byte(x.Arguments), &u) != nil || json.Unmarshal([]byte(y.Arguments), &v) != nil {
			return false
		}
		one, err1 := json.Marshal(u)
		two, err2 := json.Marshal(v)
		return x.Name == y.Name && err1 == nil && err2 == nil && bytes.Equal(one, two)
	})
}

// probeClosers finds the special token that is behind a reply whoever speaks next. One that
// is behind it when the talk goes on ends a reply too, where ends says that it has an end as
// the last message: OLMo 3 writes the end-of-text token there.
func (r prober) probeClosers(ends bool) {
	behind := func(ask bool, more ...traj.Message) (int32, bool) {
		out, err := r.text(append([]traj.Message{probeUser, probeReply}, more...), nil, Options{AddGenerationPrompt: ask})
		if err != nil {
			return 0, false
		}
		at := strings.LastIndex(out.String(), probeAnswer) + len(probeAnswer)
		for _, c := range r.controls(out) {
			if c.from >= at {
				return c.id, c.from == at
			}
		}
		return 0, false
	}
	a, ok1 := behind(true)
	b, ok2 := behind(false, traj.Message{Role: traj.RoleUser, Content: "Next"})
	if ok1 && ok2 && a == b {
		r.closers = append(r.closers, a)
	}
	if ends && ok2 && !slices.Contains(r.stops, b) {
		r.stops = append(r.stops, b)
	}
}

// probeHeaders takes the special tokens that are directly behind a reply, whoever
// speaks next, for those that end it: GLM ends a reply with the next turn's header.
func (r prober) probeHeaders() {
	behind := func(tools []traj.ToolSpec, msgs ...traj.Message) {
		ended, err1 := r.text(msgs[:len(msgs)-1], tools, Options{})
		whole, err2 := r.text(msgs, tools, Options{})
		if err1 != nil || err2 != nil || !strings.HasPrefix(whole.String(), ended.String()) {
			return
		}
		rest := whole.Slice(len(ended.String()), len(whole.String()))
		if c := r.controls(rest); len(c) > 0 && c[0].from == 0 && !slices.Contains(r.stops, c[0].id) {
			r.stops = append(r.stops, c[0].id)
			r.headers = append(r.headers, c[0].id)
		}
	}
	next := traj.Message{Role: traj.RoleUser, Content: "Next"}
	behind(nil, probeUser, probeReply, next)
	behind(probeTools, probeUser, traj.Message{Role: traj.RoleAssistant, ToolCalls: probeCalls[:1]},
		traj.Message{Role: traj.RoleTool, Name: probeTools[0].Name, ToolCallID: "call_0", Content: "Found"})
}

// replyEnd is where the reply ends at the end of a text: before the tokens that end
// it and the blanks among them.
func (r prober) replyEnd(s jinja.Str) int {
	text := s.String()
	end := len(text)
	all := r.controls(s)
	for i := len(all) - 1; i >= 0; i-- {
		c := all[i]
		if !slices.Contains(r.stops, c.id) || strings.TrimSpace(text[c.to:end]) != "" {
			break
		}
		end = c.from
	}
	return end
}
