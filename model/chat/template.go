package chat

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"agentcli/internal/malformed"
	"agentcli/model/jinja"
	"agentcli/traj"
)

// templated is the Renderer that a model's own chat template makes: the text is the
// template's, the ids are of that text, and what a turn, a reply and a call look like
// is found by rendering conversations that are known (probe).
type templated struct {
	encoder
	template *jinja.Template
	special  map[string]string // bos_token, eos_token and their like
	made     time.Time         // the day that the template may print
	limits   jinja.Limits      // of a rendering; narrow while it is probed

	traits  traits
	stops   []int32
	closers []int32 // the ids that end a reply where the conversation has gone on
	headers []int32 // those of stops that begin the next turn
}

// roles is what a tokenizer may know beside its tokens.
type roles interface {
	BOS() int32
	EOS() int32
	Pad() int32
}

// FromTemplate makes the renderer of a chat template. Errors wrap
// jinja.ErrSyntax where the text is no template, and ErrTemplate where nothing can be
// learnt from it: it renders no conversation, or nothing ends a reply.
func FromTemplate(template string, tok Tokenizer) (Renderer, error) {
	t, err := jinja.Parse(template)
	if err != nil {
		return nil, err
	}
	r := &templated{encoder: encoder{tok: tok}, template: t, special: map[string]string{}, made: time.Now(), limits: probeLimits}
	if known, ok := tok.(roles); ok {
		for name, id := range map[string]int32{"bos_token": known.BOS(), "eos_token": known.EOS(), "pad_token": known.Pad()} {
			if id >= 0 {
				r.special[name] = tok.Decode([]int32{id}, false)
			}
		}
	}
	if err := (prober{r}).probe(); err != nil {
		return nil, err
	}
	r.limits = jinja.Limits{}
	return r, nil
}

// FamilyTemplate is the Family of a renderer that FromTemplate made.
const FamilyTemplate = "template"

func (r *templated) Family() string   { return FamilyTemplate }
func (r *templated) StopIDs() []int32 { return slices.Clone(r.stops) }

func (r *templated) Render(msgs []traj.Message, tools []traj.ToolSpec, o Options) (string, []int32, error) {
	out, err := r.text(msgs, tools, o)
	if err != nil {
		return "", nil, err
	}
	return out.String(), r.encode(out), nil
}

// text renders a conversation, without its ids.
func (r *templated) text(msgs []traj.Message, tools []traj.ToolSpec, o Options) (jinja.Str, error) {
	if o.ContinueFinal && (len(msgs) == 0 || msgs[len(msgs)-1].Role != traj.RoleAssistant) {
		return jinja.Str{}, malformed.Field("messages", malformed.Unsupported, "the last one is not the assistant's, so it cannot be continued")
	}
	in := templateInput{special: r.special, generation: o.AddGenerationPrompt && !o.ContinueFinal, continued: o.ContinueFinal,
		vars: map[string]any{}, now: func() time.Time { return r.made }, limits: r.limits}
	if o.EnableThinking != nil {
		in.vars["enable_thinking"] = *o.EnableThinking
	}
	if o.Date != "" {
		in.vars["date_string"] = jinja.Text(o.Date)
		if day, err := time.Parse("02 Jan 2006", o.Date); err == nil {
			in.now = func() time.Time { return day }
		}
	}
	var err error
	raw := o.RawTools
	if raw == nil {
		if raw, err = toolJSON(tools); err != nil {
			return jinja.Str{}, err
		}
	}
	shown := msgs
	if r.traits.intro != nil && len(raw) > 0 {
		var intro string
		if intro, err = r.traits.intro(raw); err != nil {
			return jinja.Str{}, malformed.Field("tools", "", "%w", err)
		}
		shown = withIntro(msgs, intro)
	}
	if in.messages, err = r.messages(shown); err != nil {
		return jinja.Str{}, err
	}
	if len(raw) > 0 {
		list := make([]any, len(raw))
		for i, t := range raw {
			if list[i], err = jinja.FromJSON(t); err != nil {
				return jinja.Str{}, malformed.Field("tools", malformed.Syntax, "tool %d: %w", i, err)
			}
		}
		in.tools = jinja.NewList(list...)
	}
	out, err := in.render(r.template)
	if err == nil && r.traits.opener != "" && !o.AddGenerationPrompt {
		out.Text = withoutOpener(out.Text, r.traits.opener)
	}
	if err != nil && o.ContinueFinal && !errors.Is(err, jinja.ErrLimit) && len(msgs) > 1 {
		return r.openReply(msgs, tools, o)
	}
	return out.Text, err
}

// withoutOpener is a text without the turn that the template opens at its end.
func withoutOpener(s jinja.Str, opener string) jinja.Str {
	at := strings.LastIndex(s.String(), opener)
	if d := s.Data(); at < 0 || len(d) > 0 && d[len(d)-1].To > at {
		return s
	}
	return s.Slice(0, at)
}

// withIntro has the tools in the system message, behind its own text.
func withIntro(msgs []traj.Message, intro string) []traj.Message {
	if len(msgs) == 0 || msgs[0].Role != traj.RoleSystem {
		return append([]traj.Message{{Role: traj.RoleSystem, Content: intro}}, msgs...)
	}
	first := msgs[0]
	first.Content += "\n\n" + intro
	return append([]traj.Message{first}, msgs[1:]...)
}

// withoutOrphans has the results before which there is no call, answers to calls that
// could not be read, as messages of the user; neighbours share one.
func withoutOrphans(msgs []traj.Message) []traj.Message {
	out := make([]traj.Message, 0, len(msgs))
	called, told := false, false
	for _, m := range msgs {
		if m.Role == traj.RoleTool && !called {
			if told {
				last := &out[len(out)-1]
				last.Content += "\n" + m.Content
				last.Images = slices.Concat(last.Images, m.Images)
				continue
			}
			m = traj.Message{Role: traj.RoleUser, Content: m.Content, Images: m.Images}
			told = true
		} else {
			told = false
			called = m.Role == traj.RoleTool || m.Role == traj.RoleAssistant && len(m.ToolCalls) > 0
		}
		out = append(out, m)
	}
	return out
}

// openReply is a conversation whose last message goes on, for a template that does
// not print that message as it is: the prompt, and the message's own text.
func (r *templated) openReply(msgs []traj.Message, tools []traj.ToolSpec, o Options) (jinja.Str, error) {
	last := msgs[len(msgs)-1]
	o.ContinueFinal, o.AddGenerationPrompt = false, true
	prompt, err := r.text(msgs[:len(msgs)-1], tools, o)
	if err != nil {
		return jinja.Str{}, err
	}
	reply := last.Content
	tags, line := thinkingTags(r.traits.calls, r.traits.opens), ""
	if tags[0] == openThink {
		line = "\n"
	}
	if r.traits.opens != "" || last.Reasoning != "" {
		reply = last.Reasoning + line + tags[1] + line + line + reply
	}
	if r.traits.opens == "" && last.Reasoning != "" {
		reply = tags[0] + line + reply
	}
	return jinja.Concat(prompt, jinja.Data(reply)), nil
}

// messages are the conversation as the template is given it.
func (r *templated) messages(msgs []traj.Message) (any, error) {
	if r.traits.noOrphans {
		msgs = withoutOrphans(msgs)
	}
	if r.traits.noSystem && len(msgs) > 1 && msgs[0].Role == traj.RoleSystem && msgs[1].Role == traj.RoleUser {
		first := msgs[1]
		first.Content = msgs[0].Content + "\n\n" + first.Content
		first.Images = slices.Concat(msgs[0].Images, first.Images)
		msgs = append([]traj.Message{first}, msgs[2:]...)
	}
	calls := 0
	ids := map[string]string{}
	var open []string // ids of calls without a result yet
	out := make([]any, len(msgs))
	for i, m := range msgs {
		if len(m.Images) > 0 && !r.traits.images {
			return nil, malformed.Field("messages", malformed.Unsupported, "message %d has an image; the chat template takes text only", i)
		}
		d := jinja.NewDict()
		d.Set("role", roleText(m.Role))
		content := m.Content
		if m.Reasoning != "" {
			if r.traits.thinksInText {
				content = openThink + "\n" + m.Reasoning + "\n" + closeThink + "\n\n" + content
			} else {
				d.Set("reasoning_content", jinja.Data(m.Reasoning))
			}
		}
		words := jinja.Data(content)
		if r.traits.written != nil && len(m.ToolCalls) > 0 {
			var err error
			if words, err = r.traits.written.text(content, m.ToolCalls); err != nil {
				return nil, malformed.Field("messages", "", "message %d: %w", i, err)
			}
		}
		switch {
		case len(m.Images) > 0:
			m.Content = content
			parts, err := contentParts(&m)
			if err != nil {
				return nil, malformed.Field("messages", "", "message %d: %w", i, err)
			}
			d.Set("content", parts)
		case len(m.ToolCalls) == 0 || content != "" || !r.traits.noContent:
			d.Set("content", r.content(words))
		}
		var list []any
		if m.Role == traj.RoleAssistant {
			open = nil
		}
		for _, c := range m.ToolCalls {
			id := r.callID(c, ids, calls)
			call, err := r.call(c, id)
			if err != nil {
				return nil, malformed.Field("messages", "", "message %d: %w", i, err)
			}
			calls++
			open = append(open, id)
			if r.traits.written == nil {
				list = append(list, call)
			}
		}
		if list != nil {
			d.Set("tool_calls", jinja.NewList(list...))
		}
		if m.Name != "" {
			d.Set("name", jinja.Data(m.Name))
		}
		if m.Role == traj.RoleTool {
			if id := resultID(m.ToolCallID, ids, &open); id != "" {
				d.Set("tool_call_id", jinja.Data(id))
			}
		}
		out[i] = d
	}
	return jinja.NewList(out...), nil
}

// content is a text as the template takes it.
func (r *templated) content(text jinja.Str) any {
	if !r.traits.parts {
		return text
	}
	part := jinja.NewDict()
	part.Set("type", jinja.Text("text"))
	part.Set("text", text)
	return jinja.NewList(part)
}

// contentParts is a message's text and images as templates take them: a list of parts.
func contentParts(m *traj.Message) (any, error) {
	parts, err := m.Parts()
	if err != nil {
		return nil, err
	}
	list := make([]any, len(parts))
	for i, p := range parts {
		d := jinja.NewDict()
		if p.Image != nil {
			d.Set("type", jinja.Text("image"))
		} else {
			d.Set("type", jinja.Text("text"))
			d.Set("text", jinja.Data(p.Text))
		}
		list[i] = d
	}
	return jinja.NewList(list...), nil
}

// callID is the id of a call as the template is given it: Mistral's takes nine letters
// and digits only, Kimi's has the name in it. n is the number of the call.
func (r *templated) callID(c traj.ToolCall, known map[string]string, n int) string {
	switch r.traits.ids {
	case shortIDs:
		known[c.ID] = fmt.Sprintf("call%05d", n%100000)
	case kimiIDs:
		known[c.ID] = fmt.Sprintf("functions.%s:%d", c.Name, n)
	default:
		return c.ID
	}
	return known[c.ID]
}

// resultID is the id of the call that a result is of: the one that it names, else the
// first that has no result yet.
func resultID(id string, known map[string]string, open *[]string) string {
	if short, ok := known[id]; ok && id != "" {
		id = short
	}
	if i := slices.Index(*open, id); i >= 0 {
		*open = slices.Delete(*open, i, i+1)
	} else if len(*open) > 0 && id == "" {
		id, *open = (*open)[0], (*open)[1:]
	}
	return id
}

func (r *templated) call(c traj.ToolCall, id string) (any, error) {
	f := jinja.NewDict()
	f.Set("name", jinja.Data(c.Name))
	args, err := jinja.FromJSON([]byte(c.Arguments))
	if err != nil {
		return nil, argError(c, err)
	}
	if r.traits.textArguments {
		text, err := PythonJSON([]byte(c.Arguments))
		if err != nil {
			return nil, argError(c, err)
		}
		args = jinja.Data(text)
	}
	f.Set("arguments", args)
	d := jinja.NewDict()
	if id != "" {
		d.Set("id", jinja.Data(id))
	}
	d.Set("type", jinja.Text("function"))
	d.Set("function", f)
	return d, nil
}

// roleText is a role as the template's own text, where it is one of the known ones:
// some templates make a control token of it.
func roleText(role string) jinja.Str {
	switch role {
	case traj.RoleSystem, traj.RoleUser, traj.RoleAssistant, traj.RoleTool, "developer":
		return jinja.Text(role)
	}
	return jinja.Data(role)
}

func (r *templated) Parse(sampled []int32) (traj.Message, []traj.CallError) {
	return ParseReply(r.traits.calls, r.opened(r.words(sampled)))
}

// words is the text of a reply without the tokens that end it.
func (r *templated) words(sampled []int32) string {
	n := len(sampled)
	for n > 0 && slices.Contains(r.stops, sampled[n-1]) {
		n--
	}
	return r.tok.Decode(sampled[:n], false)
}

// opened puts the tag before a reply that began inside its thinking, which the
// prompt opened.
func (r *templated) opened(reply string) string {
	if tag := r.traits.opens; tag != "" && reply != "" && !strings.HasPrefix(strings.TrimSpace(reply), tag) {
		return tag + reply
	}
	return reply
}
