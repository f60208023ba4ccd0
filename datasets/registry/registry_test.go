package registry

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"agentcli/internal/malformed"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestEveryEntryIsWellFormed reads the program's own entries, by the struct and by the schema.
func TestEveryEntryIsWellFormed(t *testing.T) {
	all, err := Embedded()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 31 {
		t.Fatalf("%d entries", len(all))
	}
	schema := compiled(t)
	for _, e := range all {
		b, err := embedded.ReadFile(e.Name + Extension)
		if err != nil {
			t.Errorf("%s: the file has another name than the entry: %v", e.Name, err)
			continue
		}
		if found, _, err := Find(e.Name, nil); err != nil || found == nil || !reflect.DeepEqual(*found, e) {
			t.Errorf("%s is found by its name as %+v, %v", e.Name, found, err)
		}
		asJSON, err := yaml.YAMLToJSON(b)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(doc); err != nil {
			t.Errorf("%s: %v", e.Name, err)
		}
		if e.About == "" || e.Reward == "" || (e.Generator == "") != (len(e.Hub) > 0) {
			t.Errorf("%s: lacks what every entry has: %+v", e.Name, e)
		}
		if e.Generator == "" && (e.Licence == "" || e.Licence == "unknown") {
			t.Errorf("%s: the licence is %q; name it, or say why it is unknown", e.Name, e.Licence)
		}
		if e.Generator == "" && (e.SplitName(Test) == "" || e.SplitName(Test) == e.SplitName(Train)) {
			t.Errorf("%s: test and train are not apart: %+v", e.Name, e.Splits)
		}
		again, err := e.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		back, err := Parse(e.Name, again)
		if d := cmp.Diff(e, back); err != nil || d != "" {
			t.Errorf("%s: written and read it is another: %v %s", e.Name, err, d)
		}
	}
}

// TestTheSchemaHasTheKeysOfTheStruct walks both.
func TestTheSchemaHasTheKeysOfTheStruct(t *testing.T) {
	type object struct {
		Properties           map[string]json.RawMessage `json:"properties"`
		Items                json.RawMessage            `json:"items"`
		Ref                  string                     `json:"$ref"`
		AdditionalProperties json.RawMessage            `json:"additionalProperties"`
		Defs                 map[string]json.RawMessage `json:"$defs"`
	}
	var root object
	if err := json.Unmarshal(Schema, &root); err != nil {
		t.Fatal(err)
	}
	seen := 0
	var compare func(place string, b json.RawMessage, typ reflect.Type)
	compare = func(place string, b json.RawMessage, typ reflect.Type) {
		var o object
		if err := json.Unmarshal(b, &o); err != nil {
			t.Fatal(place, err)
		}
		if o.Ref != "" {
			compare(place, root.Defs[strings.TrimPrefix(o.Ref, "#/$defs/")], typ)
			return
		}
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
			if typ.Kind() == reflect.Slice {
				if err := json.Unmarshal(o.Items, &o); err != nil {
					t.Fatal(place, err)
				}
			}
			typ = typ.Elem()
		}
		if typ.Kind() == reflect.Map && typ.Elem().Kind() == reflect.Struct {
			for name, p := range o.Properties {
				compare(place+name+".", p, typ.Elem())
			}
			return
		}
		if typ.Kind() != reflect.Struct {
			return
		}
		known := keysOf(typ)
		if string(o.AdditionalProperties) != "false" {
			t.Errorf("%s: unknown keys are allowed", place)
		}
		if got, want := slices.Sorted(maps.Keys(o.Properties)), slices.Sorted(maps.Keys(known)); !slices.Equal(got, want) {
			t.Errorf("%s: the schema has %v, the struct %v", place, got, want)
		}
		for name, inner := range known {
			seen++
			compare(place+name+".", o.Properties[name], inner)
		}
	}
	compare("", Schema, reflect.TypeFor[Entry]())
	if seen < 30 {
		t.Errorf("%d keys compared, which shows nothing", seen)
	}
}

func TestAMalformedEntryIsNamedByFileLineAndKey(t *testing.T) {
	for text, want := range map[string]malformed.Error{
		"":                                 {Kind: malformed.Missing},
		"name: a\nabuot: x\n":              {Line: 2, Field: "abuot", Kind: malformed.Unsupported},
		"name: a\nfields: {questoin: x}\n": {Line: 2, Field: "fields.questoin", Kind: malformed.Unsupported},
		"name: a\nhub:\n  - id: x/y\n    revison: z\n":       {Line: 4, Field: "hub.revison", Kind: malformed.Unsupported},
		"name: a\nsplits:\n  test: {nam: x}\n":               {Line: 3, Field: "splits.test.nam", Kind: malformed.Unsupported},
		"name: a\nsplits:\n  tset: {name: x}\n":              {Line: 3, Field: "splits.tset", Kind: malformed.Unsupported},
		"about: x\n":                                         {Field: "name", Kind: malformed.Missing},
		"name: a\nshots: many\n":                             {Line: 2, Field: "shots", Kind: malformed.Type},
		"name: [a]\n":                                        {Line: 1, Field: "name", Kind: malformed.Type},
		"name: a\nlimits: 3\n":                               {Line: 2, Field: "limits", Kind: malformed.Type},
		"name: a\nlimits: {turns: 1.5}\n":                    {Line: 2, Field: "limits.turns", Kind: malformed.Type},
		"name: a\nsplits:\n  test: {problems: x}\n":          {Line: 3, Field: "splits.test.problems", Kind: malformed.Type},
		"name: a\nsplits: {test: {sha256: {f: [1]}}}\n":      {Line: 2, Field: "splits.test.sha256.f", Kind: malformed.Type},
		"name: a\ntools: search\n":                           {Line: 2, Field: "tools", Kind: malformed.Type},
		"name: a\ntools: [[a]]\n":                            {Line: 2, Field: "tools", Kind: malformed.Type},
		"name: a\nhub: {id: a/b}\n":                          {Line: 2, Field: "hub", Kind: malformed.Type},
		"name: a\nfields: {shuffle_choices: maybe}\n":        {Line: 2, Field: "fields.shuffle_choices", Kind: malformed.Type},
		"name: a\ngenerator: arith\nsplits: {test: {}}\n":    {Line: 3, Field: "splits", Kind: malformed.Mismatch},
		"name: a\ngenerator: arith\nfields: {question: q}\n": {Line: 3, Field: "fields", Kind: malformed.Mismatch},
		"name: a\nconfig: c\ngenerator: arith\n":             {Line: 2, Field: "config", Kind: malformed.Mismatch},
		"name: a\nlevel: '2'\n":                              {Line: 2, Field: "level", Kind: malformed.Missing},
		"name: a\nshots: 2\n":                                {Line: 2, Field: "shots", Kind: malformed.Missing},
		"name: a\nabout: [\n":                                {Line: 2, Kind: malformed.Syntax},
		"name: ../a\n":                                       {Line: 1, Field: "name", Kind: malformed.Range},
		"name: a\nhub:\n  - id: x/y\n    revision: v\n":      {Line: 4, Field: "hub.revision", Kind: malformed.Range},
		"name: a\nfields: {answer_form: lettre}\n":           {Line: 2, Field: "fields.answer_form", Kind: malformed.Unsupported},
		"name: a\nfields: {answer_form: letter}\n":           {Line: 2, Field: "fields.choices", Kind: malformed.Missing},
		"name: a\n---\nname: b\n":                            {Kind: malformed.Unsupported},
		"- a\n":                                              {Line: 1, Kind: malformed.Type},
		"just text\n":                                        {Line: 1, Kind: malformed.Type},
	} {
		_, err := Parse("a.yaml", []byte(text))
		want.Path = "a.yaml"
		if got := malformed.Facts(err); got != want || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want %+v, got %+v", text, err, want, got)
		}
	}
	_, err := Parse("a.yaml", []byte("name: a\nlimits: {tokns: 3}\n"))
	if unknown := (*UnknownKeyError)(nil); !errors.As(err, &unknown) || unknown.Near != "tokens" || len(unknown.Known) != 2 {
		t.Error(err)
	}
}

func TestAUsersEntryComesBeforeTheEmbeddedOne(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	write := func(dir, file, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(second, "gsm8k.yaml", "name: gsm8k\nreward: em\n")
	write(second, "mine.yaml", "name: mine\nreward: second\n")
	write(first, "mine.yaml", "name: mine\nreward: first\n")
	write(first, "other.yaml", "name: another\n")
	folders := []string{filepath.Join(first, "none"), filepath.Join(first, "mine.yaml", "none"), first, second}
	e, replaced, err := Find("gsm8k", folders)
	if err != nil || !replaced || e.Reward != "em" || e.Path != filepath.Join(second, "gsm8k.yaml") {
		t.Errorf("%+v %v %v", e, replaced, err)
	}
	if e, replaced, err := Find("mine", folders); err != nil || replaced || e.Reward != "first" {
		t.Errorf("%+v %v %v", e, replaced, err)
	}
	if e, _, err := Find("gsm8k", nil); err != nil || e.Reward != "math" || e.Path != "" {
		t.Errorf("%+v %v", e, err)
	}
	if e, _, err := Find("nobody", folders); err != nil || e != nil {
		t.Errorf("%+v %v", e, err)
	}
	if _, _, err := Find("other", folders); malformed.Facts(err).Field != "name" {
		t.Error(err)
	}
	if got := Names(first); !slices.Equal(got, []string{"mine", "other"}) {
		t.Error(got)
	}
	if _, err := Read(filepath.Join(first, "none.yaml")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestTheFoldersOfAUser(t *testing.T) {
	t.Setenv(FoldersVariable, "/a"+string(filepath.ListSeparator)+"/b")
	t.Setenv("XDG_CONFIG_HOME", "/c")
	if got := Folders(); !slices.Equal(got, []string{"/a", "/b", "/c/agentcli/datasets"}) {
		t.Error(got)
	}
}

func FuzzParse(f *testing.F) {
	files, _ := embedded.ReadDir(".")
	for _, file := range files {
		b, _ := embedded.ReadFile(file.Name())
		f.Add(b)
	}
	f.Add([]byte("name: a\nsplits: {test: {files: ['[']}}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := Parse("a.yaml", b); err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%q", err)
		}
	})
}
