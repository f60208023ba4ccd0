package chat

import (
	"strings"
	"time"

	"agentcli/internal/malformed"
	"agentcli/model/jinja"
)

// templateInput is what transformers' apply_chat_template gives a template.
type templateInput struct {
	messages   any // a list of dicts
	tools      any // a list, or nil
	generation bool
	continued  bool              // the last message goes on
	special    map[string]string // bos_token, eos_token and their like
	vars       map[string]any    // enable_thinking and other settings
	now        func() time.Time
	limits     jinja.Limits
}

// continueTag marks the end of a message that goes on.
const continueTag = "CONTINUE_FINAL_MESSAGE_TAG "

// reasoningKeys are the names of a message's reasoning.
var reasoningKeys = []string{"reasoning_content", "thinking", "reasoning"}

// render is the text of a conversation, as apply_chat_template and
// render_jinja_template of transformers 5.23 make it.
func (in templateInput) render(t *jinja.Template) (jinja.Output, error) {
	msgs, ok := in.messages.(*jinja.List)
	if !ok || msgs.Len() == 0 {
		return jinja.Output{}, malformed.Field("messages", malformed.Missing, "the conversation is empty")
	}
	list := make([]any, msgs.Len())
	for i := range list {
		m, ok := msgs.At(i).(*jinja.Dict)
		if !ok {
			return jinja.Output{}, malformed.Field("messages", malformed.Type, "message %d is no object", i)
		}
		list[i] = templateMessage(m)
	}
	final := ""
	if in.continued {
		last, err := continued(list[len(list)-1].(*jinja.Dict), t.Source())
		if err != nil {
			return jinja.Output{}, err
		}
		final = last
	}
	vars := map[string]any{"messages": jinja.NewList(list...), "tools": in.tools, "documents": nil, "add_generation_prompt": in.generation}
	for k, v := range in.special {
		vars[k] = jinja.Text(v)
	}
	for k, v := range in.vars {
		vars[k] = v
	}
	out, err := t.Render(vars, jinja.Options{Now: in.now, Limits: in.limits})
	if err != nil || !in.continued {
		return out, err
	}
	text := out.Text.String()
	at := strings.LastIndex(text, strings.TrimSpace(continueTag))
	if at < 0 || !strings.Contains(text, pyTrim(final)) {
		return jinja.Output{}, malformed.Field("messages", malformed.Unsupported,
			"the last one cannot be continued: the chat template does not print it as it is")
	}
	if !strings.HasPrefix(text[at:], continueTag) {
		at = len(strings.TrimRightFunc(text[:at], pySpace))
	}
	out.Text = out.Text.Slice(0, at)
	return out, nil
}

// templateMessage is a message without what is None, its reasoning under each name
// that templates read.
func templateMessage(m *jinja.Dict) *jinja.Dict {
	out := jinja.NewDict()
	var reasoning any
	for _, k := range reasoningKeys {
		if v, ok := m.Get(k); ok && v != nil {
			reasoning = v
			break
		}
	}
	if reasoning != nil {
		out.Set("thinking", reasoning)
	}
	for i := range m.Len() {
		if k, v := m.At(i); v != nil {
			out.Set(k, v)
		}
	}
	if reasoning != nil {
		out.Set("reasoning_content", reasoning)
	}
	return out
}

// continued puts the tag behind the message's content, and returns the content.
func continued(m *jinja.Dict, template string) (string, error) {
	refuse := func(why string) error {
		return malformed.Field("messages", malformed.Unsupported, "the last one cannot be continued: %s", why)
	}
	content, ok := m.Get("content")
	if !ok {
		return "", refuse("it has no content")
	}
	if !strings.Contains(template, "content") {
		return "", refuse("the chat template does not read its content")
	}
	switch c := content.(type) {
	case jinja.Str:
		m.Set("content", jinja.Concat(c, jinja.Text(continueTag)))
		return c.String(), nil
	case *jinja.List:
		parts := make([]any, c.Len())
		for i := range parts {
			parts[i] = c.At(i)
		}
		for i := len(parts) - 1; i >= 0; i-- {
			part, _ := parts[i].(*jinja.Dict)
			if part == nil {
				continue
			}
			if v, ok := part.Get("text"); ok {
				text, _ := v.(jinja.Str)
				tagged := jinja.NewDict()
				for k := range part.Len() {
					name, v := part.At(k)
					tagged.Set(name, v)
				}
				tagged.Set("text", jinja.Concat(text, jinja.Text(continueTag)))
				parts[i] = tagged
				m.Set("content", jinja.NewList(parts...))
				return text.String(), nil
			}
		}
	}
	return "", refuse("its content has no text")
}
