package datasets

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"agentcli/internal/malformed"
	"agentcli/internal/text"
	"agentcli/traj"
)

// toolsKey is the key of a task's meta with the row's own tools.
const toolsKey = "tools"

// OwnTools are the tools that a task's row brings itself: meta.tools, a list of functions in
// OpenAI's form, {"type": "function", "function": {"name", "description", "parameters"}}, or
// of the inner objects alone, as the Berkeley Function Calling Leaderboard has them. It is
// nil where there are none, and where meta.tools has another meaning, such as a list of names.
//
// A character of a name that servers do not take becomes _. Types of the leaderboard become
// those of JSON schema.
func OwnTools(t *traj.Task) ([]traj.ToolSpec, error) {
	if !bytes.Contains(t.Meta, []byte(`"`+toolsKey+`"`)) {
		return nil, nil
	}
	var meta struct {
		Tools any `json:"tools"`
	}
	_ = json.Unmarshal(t.Meta, &meta) // meta that is no object has no tools
	tools, isTools, err := readTools(meta.Tools)
	if !isTools {
		return nil, nil
	}
	return tools, err
}

// readTools reads a list of functions; isTools is false where v is something else.
func readTools(v any) (tools []traj.ToolSpec, isTools bool, err error) {
	list, isList := v.([]any)
	if one, isObject := v.(map[string]any); isObject {
		list, isList = []any{one}, true
	}
	if s, isText := v.(string); isText && isJSON(s) { // of a .csv or a .parquet
		var inText any
		if json.Unmarshal([]byte(s), &inText) == nil {
			return readTools(inText)
		}
	}
	if !isList {
		return nil, false, nil
	}
	named, marked := 0, false
	for _, x := range list {
		object, _ := x.(map[string]any)
		_, inner := object["function"].(map[string]any)
		marked = marked || inner || object["type"] == "function"
		if _, hasName := object["name"].(string); hasName || inner {
			named++
		}
	}
	if named < len(list) && !marked {
		return nil, false, nil
	}
	seen := map[string]bool{}
	for i, x := range list {
		tool, err := readTool(x)
		if err == nil && seen[tool.Name] {
			err = malformed.Errorf(malformed.Duplicate, "two tools are called %q", text.Name(tool.Name, 80))
		}
		if err != nil {
			return nil, true, &malformed.Error{Field: fmt.Sprintf("%s.%d", toolsKey, i), Err: err}
		}
		seen[tool.Name] = true
		tools = append(tools, tool)
	}
	return tools, true, nil
}

func isJSON(s string) bool {
	s = strings.TrimSpace(s)
	return strings.HasPrefix(s, "[") || strings.HasPrefix(s, "{")
}

var noFunctionName = regexp.MustCompile(`[^A-Za-z0-9_-]`)

func readTool(v any) (traj.ToolSpec, error) {
	object, _ := v.(map[string]any)
	if inner, ok := object["function"].(map[string]any); ok {
		object = inner
	}
	name, _ := object["name"].(string)
	if name == "" {
		return traj.ToolSpec{}, malformed.Errorf(malformed.Missing, "want a function: an object with name, description and parameters")
	}
	about, _ := object["description"].(string)
	var parameters any = map[string]any{}
	if object["parameters"] != nil {
		parameters = object["parameters"]
	}
	schema, ok := jsonSchema(parameters).(map[string]any)
	if !ok {
		return traj.ToolSpec{}, malformed.Field("parameters", malformed.Type, "want an object: the JSON schema of the arguments")
	}
	if schema["type"] == nil {
		schema["type"] = "object"
	}
	if schema["properties"] == nil {
		schema["properties"] = map[string]any{}
	}
	b, err := json.Marshal(schema)
	return traj.ToolSpec{Name: noFunctionName.ReplaceAllString(name, "_"), Description: about, Parameters: b}, err
}

// schemaTypes are the leaderboard's names of types (GORILLA_TO_OPENAPI of bfcl_eval).
var schemaTypes = map[string]string{"dict": "object", "float": "number", "tuple": "array", "list": "array", "bool": "boolean",
	"any": "string"}

// jsonSchema puts the types of JSON schema in place of the leaderboard's, and leaves out
// properties that are null, as a table with one column a property has them.
func jsonSchema(v any) any {
	if list, ok := v.([]any); ok {
		all := make([]any, len(list))
		for i, x := range list {
			all[i] = jsonSchema(x)
		}
		return all
	}
	object, ok := v.(map[string]any)
	if !ok {
		return v
	}
	out := map[string]any{}
	for key, value := range object {
		switch {
		case value == nil && key != "default" && key != "const":
			continue
		case key == "type":
			value = schemaType(value)
		case key == "properties":
			if properties, ok := value.(map[string]any); ok {
				all := map[string]any{}
				for name, property := range properties {
					if property != nil {
						all[name] = jsonSchema(property)
					}
				}
				value = all
			}
		case key == "items" || key == "additionalProperties" || key == "anyOf" || key == "oneOf" || key == "allOf":
			value = jsonSchema(value)
		}
		out[key] = value
	}
	return out
}

func schemaType(v any) any {
	switch v := v.(type) {
	case string:
		if name, ok := schemaTypes[v]; ok {
			return name
		}
	case []any:
		all := make([]any, len(v))
		for i, x := range v {
			all[i] = schemaType(x)
		}
		return all
	}
	return v
}

// readOwnTools reads the row's tools out of its meta, where a column that is named puts them.
func (m mapping) readOwnTools(p *problem, row, meta map[string]any) error {
	name := m.fields[toolsKey]
	if name != "" {
		v, ok := lookup(row, name)
		if _, null := row[name]; !ok && !null && !m.soft[toolsKey] {
			return malformed.Errorf(malformed.Missing, "has no field %q (it has %s)", name, keys(row))
		}
		if ok {
			meta[toolsKey] = v
		}
	}
	v, ok := meta[toolsKey]
	if !ok {
		return nil
	}
	tools, isTools, err := readTools(v)
	if err == nil && !isTools && name != "" && !m.soft[toolsKey] {
		err = malformed.Field(toolsKey, malformed.Type, "want a list of functions, objects with name, description and parameters")
	}
	p.tools = tools
	return err
}
