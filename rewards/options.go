package rewards

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"agentcli/internal/malformed"
	"agentcli/internal/text"
	"agentcli/rewards/code"
	"agentcli/rewards/judge"
)

// Options are the settings of a grader. The zero value is the usual one.
//
// The settings of one reward are an object of its name: {"length": {"max": 4096}}. Each
// type of settings is beside its reward.
type Options struct {
	// Strict counts only a \boxed{} answer (math), or one between answer tags (em).
	Strict bool `json:"strict,omitempty"`
	// FloatRounding rounds both sides to so many decimals before they are
	// compared (math); 0 compares exactly.
	FloatRounding int `json:"float_rounding,omitempty"`
	// Extraction is where an answer is looked for (math): "" (the usual rules of the
	// profile), "boxed", "last_number", "none" (the whole reply), or names of
	// mathgrade's rules in the order of their priority: "boxed,phrase,number".
	Extraction string `json:"extraction,omitempty"`
	// Profile names the rules of the comparison (math): default, math-verify, rllm or
	// minerva; "" is default.
	Profile string `json:"profile,omitempty"`
	// MathTolerance takes numbers for equal that differ by at most this share of the
	// larger one (math); 0 compares exactly.
	MathTolerance float64 `json:"math_tolerance,omitempty"`
	// DecimalComma reads 1.234,5 as 1234.5 (math).
	DecimalComma bool `json:"decimal_comma,omitempty"`

	Code       code.Settings      `json:"code,omitzero"`
	Regex      RegexSettings      `json:"regex,omitzero"`
	JSONSchema JSONSchemaSettings `json:"json-schema,omitzero"`
	ToolCall   ToolCallSettings   `json:"tool-call,omitzero"`
	IFEval     IFEvalSettings     `json:"ifeval,omitzero"`
	DeepEyes   DeepEyesSettings   `json:"deepeyes,omitzero"`
	Length     LengthSettings     `json:"length,omitzero"`
	Cosine     CosineSettings     `json:"cosine,omitzero"`
	Repetition RepetitionSettings `json:"repetition,omitzero"`
	Language   LanguageSettings   `json:"language,omitzero"`
	Format     FormatSettings     `json:"format,omitzero"`

	// Notice tells people what a program of theirs did wrong; nil: nobody.
	Notice func(string) `json:"-"`
	// Pass names the variables of the environment that a program of theirs gets,
	// beside a few of no secrecy.
	Pass []string `json:"-"`
	// Runner runs the programs of replies (code); nil: nobody does.
	Runner code.Runner `json:"-"`
	// Judge is asked by the reward judge; nil: nobody is.
	Judge *judge.Judge `json:"-"`
}

// Validate checks the options.
func (o Options) Validate() error {
	if err := o.validateMath(); err != nil {
		return err
	}
	if o.FloatRounding < 0 || o.FloatRounding > 100 {
		return fmt.Errorf("float_rounding is %d, want 0 to 100", o.FloatRounding)
	}
	for name, s := range o.settings() {
		if err := s.Validate(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// validator is the settings of one reward.
type validator interface{ Validate() error }

// settings are those of single rewards, by the reward's name.
func (o Options) settings() map[string]validator {
	all := map[string]validator{}
	v := reflect.ValueOf(o)
	for name, i := range keysOf(v.Type()) {
		if s, ok := v.Field(i).Interface().(validator); ok {
			all[name] = s
		}
	}
	return all
}

// Text is the options as a JSON object, without what has its default; "{}" where all has.
func (o Options) Text() string {
	b, err := json.Marshal(o)
	if err != nil {
		return "{}" // no field of it can fail
	}
	return string(b)
}

// ParseOptions reads options from a JSON object; an unknown name is an error.
func ParseOptions(b []byte) (Options, error) { return Options{}.With(b) }

// readers are the rewards that read an option without an object; others are math's.
var readers = map[string][]string{"strict": {"math", "em", "f1", "subem"}, judgeName: {judgeName, "deepeyes", "deepeyes-math"},
	"deepeyes": {"deepeyes", "deepeyes-math"}}

// Reads reports whether a named reward reads an option: a key of Options, or judge, which is
// the judge's server.
func Reads(name, option string) bool {
	of := readers[option]
	switch {
	case External(name):
		return false
	case of == nil && kinds[option].make != nil: // the settings of one reward
		of = []string{option}
	case of == nil:
		of = []string{"math", "deepeyes-math"}
	}
	return slices.ContainsFunc(terms(name), func(one string) bool { return slices.Contains(of, one) })
}

// Idle is the first of the options that none of the named rewards reads; "": all are read.
func (o Options) Idle(names ...string) string {
	var given map[string]json.RawMessage
	if err := json.Unmarshal([]byte(o.Text()), &given); err != nil {
		return "" // Text gives an object
	}
	for _, option := range slices.Sorted(maps.Keys(given)) {
		if !slices.ContainsFunc(names, func(name string) bool { return Reads(name, option) }) {
			return option
		}
	}
	return ""
}

// OptionsOf reads options from their keys and values, as ParseOptions does.
func OptionsOf(values map[string]any) (Options, error) {
	if len(values) == 0 {
		return Options{}, nil
	}
	b, err := json.Marshal(values)
	if err != nil {
		return Options{}, malformedOptions(err)
	}
	return ParseOptions(b)
}

// With is the options with those of a JSON object over them, key by key: an object of one
// reward changes the settings that it names. An unknown name is an error.
func (o Options) With(b []byte) (Options, error) {
	if len(b) == 0 || string(b) == "null" {
		return o, nil
	}
	if err := checkKeys(b, reflect.TypeOf(o), ""); err != nil {
		return o, malformedOptions(err)
	}
	merged, err := o.clone()
	if err != nil {
		return o, err
	}
	if err := json.Unmarshal(b, &merged); err != nil {
		return o, malformedOptions(err)
	}
	if err := merged.Validate(); err != nil {
		return o, malformed.Field("options", cmp.Or(malformed.Facts(err).Kind, malformed.Range), "%w", err)
	}
	return merged, nil
}

// clone shares no pointer and no slice of settings: JSON over a struct writes through them.
func (o Options) clone() (Options, error) {
	fresh := Options{Notice: o.Notice, Pass: o.Pass, Runner: o.Runner, Judge: o.Judge}
	b, err := json.Marshal(o)
	if err == nil {
		err = json.Unmarshal(b, &fresh)
	}
	return fresh, err
}

// malformedOptions says what is wrong with the text of options.
func malformedOptions(err error) error {
	var kind *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &kind) && kind.Field == "":
		return malformed.Field("options", malformed.Type, "want a JSON object, found %s", article(kind.Value))
	case errors.As(err, &kind):
		return malformed.Field("options", malformed.Type, "%s must be %s, not %s", kind.Field, wanted(kind.Type), article(kind.Value))
	case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.As(err, &syntax) &&
		strings.Contains(syntax.Error(), "end of"):
		return malformed.Field("options", malformed.Truncated, "the JSON ends too early")
	case errors.As(err, &syntax):
		return malformed.Field("options", malformed.Syntax, "no JSON object: %w", err)
	}
	return malformed.Field("options", cmp.Or(malformed.Facts(err).Kind, malformed.Unsupported), "%w", err)
}

// wanted is a Go type in JSON's words.
func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.String:
		return "text"
	case reflect.Slice:
		return "a list"
	case reflect.Pointer:
		return wanted(t.Elem())
	}
	return "an object"
}

func article(what string) string {
	what, _, _ = strings.Cut(what, " ")
	switch what {
	case "bool":
		return "true or false"
	case "array":
		return "a list"
	case "object":
		return "an object"
	case "string":
		return "text"
	}
	return "a " + what
}

// checkKeys refuses names that a struct does not have, in the objects within too.
func checkKeys(b []byte, t reflect.Type, path string) error {
	var given map[string]json.RawMessage
	if err := json.Unmarshal(b, &given); err != nil {
		var kind *json.UnmarshalTypeError
		if errors.As(err, &kind) {
			kind.Field = strings.TrimSuffix(path, ".")
		}
		return err
	}
	known := keysOf(t)
	for _, name := range slices.Sorted(maps.Keys(given)) {
		i, ok := known[name]
		if !ok {
			remedy := "it is one of " + strings.Join(slices.Sorted(maps.Keys(known)), ", ")
			if near := text.Nearest(name, slices.Sorted(maps.Keys(known))); near != "" {
				remedy = fmt.Sprintf("did you mean %s%s?", path, near)
			}
			return malformed.Errorf(malformed.Unsupported, "%s%s is unknown; %s", path, text.Name(name, 60), remedy)
		}
		if f := t.Field(i).Type; f.Kind() == reflect.Struct && string(given[name]) != "null" {
			if err := checkKeys(given[name], f, path+name+"."); err != nil {
				return err
			}
		}
	}
	return nil
}

// keysOf are the names that a struct's fields have in JSON, and their places.
func keysOf(t reflect.Type) map[string]int {
	all := map[string]int{}
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name != "" && name != "-" {
			all[name] = i
		}
	}
	return all
}
