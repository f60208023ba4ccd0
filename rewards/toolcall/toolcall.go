// Package toolcall compares calls of tools with calls that are allowed, by the rules of the
// Berkeley Function Calling Leaderboard (bfcl_eval/eval_checker/ast_eval/ast_checker.py) for
// Python. It is in layer 1 and knows no trajectories.
package toolcall

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"agentcli/internal/jsonvalue"
	"agentcli/internal/malformed"
	"agentcli/internal/text"
)

// Call is a call that a model has made.
type Call struct {
	Name      string
	Arguments map[string]any // JSON, numbers as json.Number; nil: they are no object
}

// Allowed is a call as it may be made: the values that each argument may have. An
// argument may be left out where "" is among its values.
type Allowed struct {
	Name      string
	Arguments map[string][]any
}

// Function is the description of a function: the types of its parameters.
type Function struct {
	Name     string
	Types    map[string]Type
	Required []string
}

// Type is the type of a parameter; "" is one that is not known.
type Type struct{ Outer, Item string }

// ReadCall reads a model's call. Arguments are the JSON text of an object.
func ReadCall(name, arguments string) Call {
	c := Call{Name: name}
	if strings.TrimSpace(arguments) == "" {
		c.Arguments = map[string]any{}
		return c
	}
	if v, err := decode([]byte(arguments)); err == nil {
		c.Arguments, _ = v.(map[string]any)
	}
	return c
}

func decode(b []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, malformed.Errorf(malformed.Syntax, "there is more behind the value")
	}
	return v, nil
}

// ReadGold reads gold answers: each the JSON of a list of {"name": {"argument": [values]}},
// which are alternatives; or each one such object, which together are one list.
func ReadGold(answers []string) (alternatives [][]Allowed, err error) {
	var together []Allowed
	for _, answer := range answers {
		v, err := decode([]byte(answer))
		if err != nil {
			return nil, malformed.Field("answer", malformed.Syntax, "it is no JSON of calls: %s", text.Name(text.OneLine(answer), 60))
		}
		list, isList := v.([]any)
		if !isList {
			list = []any{v}
		}
		calls := []Allowed{}
		for i, x := range list {
			c, err := allowed(x)
			if err != nil {
				return nil, &malformed.Error{Field: "answer", Err: fmt.Errorf("call %d: %w", i+1, err)}
			}
			calls = append(calls, c)
		}
		if isList {
			alternatives = append(alternatives, calls)
		} else {
			together = append(together, calls...)
		}
	}
	if together != nil {
		alternatives = append(alternatives, together)
	}
	return alternatives, nil
}

func allowed(v any) (Allowed, error) {
	object, ok := v.(map[string]any)
	if !ok || len(object) != 1 {
		return Allowed{}, malformed.Errorf(malformed.Type, `want {"name": {"argument": [values]}}`)
	}
	a := Allowed{Arguments: map[string][]any{}}
	for name, arguments := range object {
		a.Name = name
		values, ok := arguments.(map[string]any)
		if !ok {
			return a, malformed.Field(name, malformed.Type, "want an object of arguments")
		}
		for argument, v := range values {
			list, ok := v.([]any)
			if !ok {
				return a, malformed.Field(name+"."+argument, malformed.Type, "want the list of the values that are allowed")
			}
			a.Arguments[argument] = list
		}
	}
	return a, nil
}

// ReadFunctions reads the descriptions of functions in a task's meta: "function" (BFCL),
// "functions" or "tools" (OpenAI's form). It is nil where there are none.
func ReadFunctions(meta json.RawMessage) ([]Function, error) {
	var m struct {
		Function  json.RawMessage `json:"function"`
		Functions json.RawMessage `json:"functions"`
		Tools     json.RawMessage `json:"tools"`
	}
	_ = json.Unmarshal(meta, &m) // meta that is no object describes nothing
	for _, of := range []struct {
		field string
		raw   json.RawMessage
	}{{"meta.function", m.Function}, {"meta.functions", m.Functions}, {"meta.tools", m.Tools}} {
		if len(of.raw) == 0 || string(of.raw) == "null" {
			continue
		}
		raw := of.raw
		var inText string
		if json.Unmarshal(raw, &inText) == nil { // of a .csv or a .parquet
			raw = json.RawMessage(inText)
		}
		if b := bytes.TrimSpace(raw); len(b) > 0 && b[0] == '{' {
			raw = append(append(json.RawMessage("["), b...), ']')
		}
		var names []string
		if json.Unmarshal(raw, &names) == nil { // names of tools alone
			continue
		}
		list, err := functions(raw)
		if err != nil {
			return nil, malformed.Field(of.field, malformed.Type, "want a list of functions with name and parameters: %w", err)
		}
		return list, nil
	}
	return nil, nil
}

func functions(raw json.RawMessage) ([]Function, error) {
	type description struct {
		Name       string `json:"name"`
		Parameters struct {
			Properties map[string]struct {
				Type  json.RawMessage `json:"type"`
				Items struct {
					Type json.RawMessage `json:"type"`
				} `json:"items"`
			} `json:"properties"`
			Required []string `json:"required"`
		} `json:"parameters"`
	}
	var list []struct {
		description
		Function *description `json:"function"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, err
	}
	var all []Function
	for _, x := range list {
		d := x.description
		if x.Function != nil {
			d = *x.Function
		}
		f := Function{Name: d.Name, Types: map[string]Type{}, Required: d.Parameters.Required}
		for name, p := range d.Parameters.Properties {
			f.Types[name] = Type{kindOf(p.Type), kindOf(p.Items.Type)}
		}
		all = append(all, f)
	}
	return all, nil
}

// kindOf is a type's name in Python's words (PYTHON_TYPE_MAPPING); "" where it is not known.
func kindOf(raw json.RawMessage) string {
	var name string
	_ = json.Unmarshal(raw, &name)
	switch name {
	case "string", "any":
		return "str"
	case "integer":
		return "int"
	case "float", "number":
		return "float"
	case "boolean":
		return "bool"
	case "array", "tuple":
		return "list"
	case "dict", "object":
		return "dict"
	}
	return ""
}

// Match reports whether calls are those that are allowed, each once and in any order.
func Match(calls []Call, gold []Allowed, functions []Function) bool {
	if len(calls) != len(gold) {
		return false
	}
	taken := make([]bool, len(calls))
	for _, g := range gold { // one by one, and the first call that fits, as the leaderboard does
		found := false
		for i, c := range calls {
			if !taken[i] && g.allows(c, functions) {
				taken[i], found = true, true
				break
			}
		}
		if !found {
			return false
		}
	}
	return true
}

var noFunctionName = regexp.MustCompile(`[^A-Za-z0-9_-]`)

// sameName compares names of functions. A server takes no dots, spaces, …: _ is in their
// place.
func sameName(a, b string) bool {
	return a == b || noFunctionName.ReplaceAllString(a, "_") == noFunctionName.ReplaceAllString(b, "_")
}

// allows is simple_function_checker.
func (a Allowed) allows(c Call, functions []Function) bool {
	if !sameName(a.Name, c.Name) || c.Arguments == nil {
		return false
	}
	var f *Function
	for i := range functions {
		if sameName(functions[i].Name, a.Name) {
			f = &functions[i]
			break
		}
	}
	if f != nil {
		for _, name := range f.Required {
			if _, ok := c.Arguments[name]; !ok {
				return false
			}
		}
	}
	for name, value := range c.Arguments {
		values, ok := a.Arguments[name]
		if !ok {
			return false
		}
		t := Type{}
		if f != nil {
			if t, ok = f.Types[name]; !ok {
				return false
			}
		}
		if !fits(value, values, t) {
			return false
		}
	}
	for name, values := range a.Arguments {
		if _, ok := c.Arguments[name]; !ok && !mayBeAbsent(values) {
			return false
		}
	}
	return true
}

func mayBeAbsent(values []any) bool {
	for _, v := range values {
		if v == "" {
			return true
		}
	}
	return false
}

// fits reports whether a value is of the type of its parameter and among the values that
// are allowed.
func fits(value any, values []any, t Type) bool {
	if t.Outer == "" { // not described: the type is that of the value
		t.Outer = typeOf(value)
		switch t.Outer {
		case "int", "float":
			return among(value, values)
		case "bool":
			return slices.ContainsFunc(values, func(v any) bool { b, ok := v.(bool); return ok && b == value })
		}
	}
	if t.Outer == "float" && typeOf(value) == "int" { // as Python does in a call
		value = asFloat{value.(json.Number)}
	}
	valid, isVariable := checkType(value, values, t)
	if !valid {
		return false
	}
	if isVariable {
		return among(value, values)
	}
	switch {
	case t.Outer == "dict":
		object, ok := value.(map[string]any)
		return ok && dictFits(object, values)
	case t.Outer == "list" && t.Item == "dict":
		return listOfDictsFits(value.([]any), values)
	case t.Outer == "str":
		for _, v := range values {
			if s, ok := v.(string); ok && standard(s) == standard(value.(string)) {
				return true
			}
		}
		return false
	case t.Outer == "list":
		return listFits(value.([]any), values)
	}
	return among(value, values)
}

// asFloat is a whole number where a float is wanted.
type asFloat struct{ json.Number }

// typeOf is the name of a value's type in Python.
func typeOf(v any) string {
	switch v := v.(type) {
	case string:
		return "str"
	case bool:
		return "bool"
	case asFloat:
		return "float"
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			return "float"
		}
		return "int"
	case []any:
		return "list"
	case map[string]any:
		return "dict"
	}
	return "NoneType"
}

// checkType is type_checker: a value must be of the described type, or of the type of the
// allowed values, which then stands for a variable.
func checkType(value any, values []any, t Type) (valid, isVariable bool) {
	given := ""
	for _, v := range values {
		if v != "" {
			given = typeOf(v)
			break
		}
	}
	isVariable = given != "" && given != t.Outer
	if typeOf(value) == t.Outer {
		if t.Item == "" {
			return true, isVariable
		}
		for _, v := range values {
			list, ok := v.([]any)
			if !ok || allOf(value, list, t.Item) {
				return true, isVariable
			}
		}
		return false, false
	}
	return given != "" && typeOf(value) == given, true
}

func allOf(value any, list []any, item string) bool {
	items, _ := value.([]any)
	for _, x := range items {
		if valid, _ := checkType(x, list, Type{Outer: item}); !valid {
			return false
		}
	}
	return true
}

var strays = strings.NewReplacer(" ", "", ",", "", ".", "", "/", "", "-", "", "_", "", "*", "", "^", "")

// standard is standardize_string: without spaces and ,./-_*^, in lower case.
func standard(s string) string {
	return strings.ReplaceAll(strings.ToLower(strays.Replace(s)), "'", `"`)
}

func standardized(v any) any {
	if s, ok := v.(string); ok {
		return standard(s)
	}
	return v
}

// listFits is list_checker; an allowed "" is a list without elements.
func listFits(value []any, values []any) bool {
	mine := each(value)
	for _, v := range values {
		list, ok := v.([]any)
		if (ok || v == "") && jsonvalue.Equal(mine, each(list)) {
			return true
		}
	}
	return false
}

func each(list []any) []any {
	out := make([]any, len(list))
	for i, x := range list {
		out[i] = standardized(x)
	}
	return out
}

// dictFits is dict_checker: an allowed object has the allowed values of each key.
func dictFits(value map[string]any, values []any) bool {
	for _, v := range values {
		if object, ok := v.(map[string]any); ok && oneDictFits(value, object) {
			return true
		}
	}
	return false
}

func oneDictFits(value, object map[string]any) bool {
	for key, x := range value {
		list, ok := object[key].([]any)
		if !ok || !among(standardized(x), each(list)) {
			return false
		}
	}
	for key, v := range object {
		list, _ := v.([]any)
		if _, there := value[key]; !there && !mayBeAbsent(list) {
			return false
		}
	}
	return true
}

// listOfDictsFits is list_dict_checker.
func listOfDictsFits(value []any, values []any) bool {
	for _, v := range values {
		list, ok := v.([]any)
		if !ok && v != "" || len(list) != len(value) {
			continue
		}
		all := true
		for i := range value {
			object, ok := value[i].(map[string]any)
			if all = ok && dictFits(object, list[i:i+1]); !all {
				break
			}
		}
		if all {
			return true
		}
	}
	return false
}

func among(value any, values []any) bool {
	for _, v := range values {
		if jsonvalue.Equal(value, v) {
			return true
		}
	}
	return false
}
