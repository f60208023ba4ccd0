package serve

import (
	"encoding/json"
	"slices"
	"sync"

	"agentcli/grammar"
	"agentcli/grammar/form"
	"agentcli/model/chat"
	"agentcli/policy"
	"agentcli/traj"
)

// vocabulary is what each token of the model writes, for all grammars.
func (s *server) vocabulary() *grammar.Vocabulary {
	s.vocabularyOnce.Do(func() {
		s.vocab = grammar.OfTokenizer(s.facts.Tokenizer, s.facts.VocabSize, s.facts.EndIDs)
	})
	return s.vocab
}

// forms keeps the grammar's vocabulary, which takes a while to make.
type forms struct {
	vocabularyOnce sync.Once
	vocab          *grammar.Vocabulary
}

// structure is vLLM's structured_outputs.
type structure struct {
	JSON       json.RawMessage `json:"json"`
	JSONObject bool            `json:"json_object"`
	Regex      string          `json:"regex"`
	Choice     []string        `json:"choice"`
	Grammar    string          `json:"grammar"`
	Tag        json.RawMessage `json:"structural_tag"`
}

// grammarOf is what a request says of the form of its reply; nil: nothing.
func (d *drawing) grammarOf() (*grammar.Grammar, error) {
	var found []*grammar.Grammar
	var err error
	add := func(field string, g *grammar.Grammar, problem error) {
		if problem != nil && err == nil {
			err = bad(field, "%s: %v", field, problem)
		}
		found = append(found, g)
	}
	schema := func(field string, raw json.RawMessage) {
		var text string // vLLM takes the schema as a text too
		if json.Unmarshal(raw, &text) == nil {
			raw = json.RawMessage(text)
		}
		g, problem := grammar.JSONSchema(raw, grammar.Options{})
		add(field, g, problem)
	}
	regex := func(field, pattern string) {
		g, problem := grammar.Regexp(pattern)
		add(field, g, problem)
	}
	choice := func(field string, texts []string) {
		g, problem := grammar.Choices(texts)
		add(field, g, problem)
	}
	if f := d.Format; f != nil {
		switch {
		case f.Type == "" || f.Type == "text":
		case f.Type == "json_object":
			add("response_format", grammar.JSONObject(grammar.Options{}), nil)
		case f.Type == "json_schema" && f.Schema != nil && !isNull(f.Schema.Schema):
			schema("response_format", f.Schema.Schema)
		case f.Type == "json_schema":
			return nil, bad("response_format", "response_format is of type json_schema without a schema")
		default:
			return nil, bad("response_format", "response_format is of type %q; it is text, json_object or json_schema", f.Type)
		}
	}
	if o := d.Structured; o != nil {
		switch {
		case o.Grammar != "" || !isNull(o.Tag):
			return nil, bad("structured_outputs", "structured_outputs has grammar or structural_tag; there are json, json_object, regex and choice")
		case !isNull(o.JSON):
			schema("structured_outputs", o.JSON)
		case o.JSONObject:
			add("structured_outputs", grammar.JSONObject(grammar.Options{}), nil)
		case o.Regex != "":
			regex("structured_outputs", o.Regex)
		case o.Choice != nil:
			choice("structured_outputs", o.Choice)
		}
	}
	if !isNull(d.GuidedJSON) {
		schema("guided_json", d.GuidedJSON)
	}
	if d.Guided != "" {
		regex("guided_regex", d.Guided)
	}
	if d.GuidedList != nil {
		choice("guided_choice", d.GuidedList)
	}
	switch {
	case err != nil:
		return nil, err
	case len(found) > 1:
		return nil, bad("structured_outputs", "the request says the form of its reply twice")
	case len(found) == 0:
		return nil, nil
	}
	return found[0], nil
}

// matcher is a grammar for one reply.
func (s *server) matcher(g *grammar.Grammar) policy.Grammar {
	if g == nil {
		return nil
	}
	return g.Matcher(s.vocabulary())
}

// form is the grammar of a chat's replies: of their text, or of the calls that they must be.
func (s *openAI) form(c *chatRequest, tools []traj.ToolSpec) (*grammar.Grammar, error) {
	g, err := c.grammarOf()
	if err != nil {
		return nil, err
	}
	d := chat.Describe(s.exact.Renderer)
	asked := c.Kwargs.Thinking == nil || *c.Kwargs.Thinking
	if g != nil {
		if g, err = form.Text(g, d, asked); err != nil {
			return nil, err
		}
	}
	if !c.mustCall {
		return g, nil
	}
	if g != nil {
		return nil, bad("tool_choice", "tool_choice asks for calls, and the request for text of a form")
	}
	if c.onlyCall != "" {
		tools = slices.DeleteFunc(slices.Clone(tools), func(t traj.ToolSpec) bool { return t.Name != c.onlyCall })
	}
	calls := form.Calls(tools, d, asked)
	calls.Required, calls.Single = true, c.Parallel != nil && !*c.Parallel || c.onlyCall != ""
	if len(calls.Tools) == 0 {
		return nil, bad("tool_choice", "tool_choice asks for a call of %q, which the request does not offer", c.onlyCall)
	}
	if g, err = grammar.ToolCalls(calls, grammar.Options{}); err != nil {
		return nil, bad("tool_choice", "tool_choice: %v", err)
	}
	return g, nil
}
