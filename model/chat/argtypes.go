package chat

import (
	"encoding/json"
	"slices"
	"strings"

	"agentcli/traj"
)

// toolSet is what the parsers know of the tools, by name.
type toolSet map[string]toolParams

type toolParams struct {
	types    map[string][]string // JSON types of each parameter; nil: not said
	required []string
}

func newToolSet(tools []traj.ToolSpec) toolSet {
	set := toolSet{}
	for _, t := range tools {
		var schema struct {
			Properties map[string]json.RawMessage `json:"properties"`
			Required   []string                   `json:"required"`
		}
		_ = json.Unmarshal(t.Parameters, &schema) // a schema that says nothing leaves the types open
		p := toolParams{types: map[string][]string{}, required: schema.Required}
		for name, s := range schema.Properties {
			p.types[name] = schemaTypes(s, 0)
		}
		set[t.Name] = p
	}
	return set
}

// schemaTypes are the JSON types that a schema allows, nil where it is silent.
func schemaTypes(raw json.RawMessage, depth int) []string {
	var s struct {
		Type  json.RawMessage   `json:"type"`
		AnyOf []json.RawMessage `json:"anyOf"`
		OneOf []json.RawMessage `json:"oneOf"`
		Enum  []any             `json:"enum"`
	}
	if depth > 8 || json.Unmarshal(raw, &s) != nil {
		return nil
	}
	var one string
	var types []string
	if json.Unmarshal(s.Type, &one) == nil && one != "" {
		return []string{one}
	}
	if json.Unmarshal(s.Type, &types) == nil && len(types) > 0 {
		return types
	}
	for _, alternative := range append(s.AnyOf, s.OneOf...) {
		t := schemaTypes(alternative, depth+1)
		if t == nil {
			return nil
		}
		types = append(types, t...)
	}
	if types == nil && len(s.Enum) > 0 && !slices.ContainsFunc(s.Enum, func(v any) bool { _, ok := v.(string); return !ok }) {
		types = []string{"string"}
	}
	return types
}

// typed makes JSON of an argument that a format writes as bare text: of the
// type that the tool's schema wants, or, where it says nothing, of the type that
// it looks like. What does not fit stays text: the check of the arguments says
// so.
func (s toolSet) typed(tool, param, text string) string {
	types := s[tool].types[param]
	trimmed := strings.TrimSpace(text)
	is := func(t string) bool {
		return types == nil || slices.Contains(types, t) && !slices.Contains(types, "string")
	}
	switch trimmed { // templates print these as Python does
	case "True", "true":
		if is("boolean") {
			return "true"
		}
	case "False", "false":
		if is("boolean") {
			return "false"
		}
	case "None", "null":
		if types == nil || slices.Contains(types, "null") {
			return "null"
		}
	}
	if slices.Contains(types, "string") || trimmed == "" {
		return pyString(text)
	}
	if !json.Valid([]byte(trimmed)) {
		if literal, ok := pyContainer(trimmed); ok && types != nil {
			return literal
		}
		return pyString(text)
	}
	if trimmed[0] == '"' { // the quotes are the text's own
		return pyString(text)
	}
	return trimmed
}

// pyContainer makes JSON of a list or a dict as Python prints it.
func pyContainer(text string) (string, bool) {
	if text[0] != '[' && text[0] != '{' {
		return "", false
	}
	p := &pyReader{s: text}
	v, err := p.value(0)
	p.skip()
	return v, err == nil && p.at == len(text)
}

// only is the parameter that a bare text is meant for: the one that is
// required, or the one that there is. fallback is for tools that are not known.
func (s toolSet) only(tool, fallback string) (string, bool) {
	t, ok := s[tool]
	switch {
	case !ok:
		return fallback, fallback != ""
	case len(t.required) == 1:
		return t.required[0], true
	case len(t.types) == 1:
		for name := range t.types {
			return name, true
		}
	}
	return "", false
}

// params writes a JSON object as its parameters come in.
type params struct{ b strings.Builder }

func (p *params) add(name, value string) {
	if p.b.Len() > 0 {
		p.b.WriteString(", ")
	}
	p.b.WriteString(pyString(name) + ": " + value)
}

func (p *params) object() string { return "{" + p.b.String() + "}" }

// known reports whether name is that of a tool, or no tools are known at all.
func (s toolSet) known(name string) bool {
	_, ok := s[name]
	return ok || len(s) == 0
}

// oneOf is the first of the names that a tool has.
func (s toolSet) oneOf(names ...string) string {
	if i := slices.IndexFunc(names, func(n string) bool { _, ok := s[n]; return ok }); i >= 0 {
		return names[i]
	}
	return names[len(names)-1]
}
