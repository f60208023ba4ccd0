// Package registry reads the files that describe datasets, one YAML file a dataset: where
// its rows are, which columns they have, how they are asked and scored. The files of the
// program are embedded; a user adds folders of files in the same format.
//
// schema.json describes the keys. It is in layer 1: it knows no rows, no rewards and no
// environments.
package registry

import (
	_ "embed"
	"fmt"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"agentcli/internal/malformed"
	"agentcli/internal/text"
)

// Schema is the JSON schema (2020-12) of an entry.
//
//go:embed schema.json
var Schema []byte

// Entry describes one dataset. Keys that are absent have their zero value, which means no
// suggestion.
type Entry struct {
	Name     string `yaml:"name"`
	About    string `yaml:"about"` // one line
	Homepage string `yaml:"homepage,omitempty"`
	Citation string `yaml:"citation,omitempty"`
	Licence  string `yaml:"licence,omitempty"`

	Hub    []Repo           `yaml:"hub,omitempty"`    // the first that has the files is taken
	Config string           `yaml:"config,omitempty"` // folder of the configuration, where a repository has several
	Splits map[string]Split `yaml:"splits,omitempty"` // by role: test, train, validation
	Join   *Join            `yaml:"join,omitempty"`

	Generator string `yaml:"generator,omitempty"` // of the program, in place of rows
	Level     string `yaml:"level,omitempty"`     // of the generator, where the user names none
	Shots     int    `yaml:"shots,omitempty"`     // worked examples of the generator

	Fields Fields `yaml:"fields,omitempty"`
	Prompt string `yaml:"prompt,omitempty"` // text around a question: {question}, {choices}, {COLUMN}
	System string `yaml:"system,omitempty"` // in the same form

	Env     string         `yaml:"env,omitempty"`
	Tools   []string       `yaml:"tools,omitempty"`
	Reward  string         `yaml:"reward,omitempty"`
	Options map[string]any `yaml:"options,omitempty"` // of the reward, as rewards.ParseOptions reads them
	Limits  Limits         `yaml:"limits,omitempty"`

	Path string `yaml:"-"` // of the file; "" where it is embedded
}

// Repo is a repository of the hub at a revision.
type Repo struct {
	ID       string `yaml:"id"`                 // org/name
	Revision string `yaml:"revision,omitempty"` // a commit, 40 hexadecimal digits; "": not pinned
}

// Split is one split of the rows.
type Split struct {
	Name     string            `yaml:"name,omitempty"`     // as the repository calls it; "": as the role
	Problems int               `yaml:"problems,omitempty"` // 0: not known
	Files    []string          `yaml:"files,omitempty"`    // patterns; of the repository, else from the entry's folder
	SHA256   map[string]string `yaml:"sha256,omitempty"`   // of files by their path in the repository
}

// Join adds the columns of other files to the rows, by a column that both have.
type Join struct {
	Files []string `yaml:"files"`
	On    string   `yaml:"on"`
}

// Fields say which columns are which. A dot goes into a nested object or list.
type Fields struct {
	Question string   `yaml:"question,omitempty"`
	Messages string   `yaml:"messages,omitempty"`
	Answer   string   `yaml:"answer,omitempty"`
	ID       string   `yaml:"id,omitempty"`
	Tools    string   `yaml:"tools,omitempty"`   // functions that the row offers to the model
	Choices  []string `yaml:"choices,omitempty"` // one column with a list, or a column a choice
	Meta     []string `yaml:"meta,omitempty"`    // columns to keep; absent: all that are nothing else

	// AnswerForm is what the answer's column has: plain (the answer), boxed (a solution
	// with \boxed{}), json (a value that stays JSON), and of choices: letter, index, choice.
	AnswerForm string `yaml:"answer_form,omitempty"`
	// ShuffleChoices orders the choices by a hash of the question, where the right one has
	// a fixed place in the file.
	ShuffleChoices bool `yaml:"shuffle_choices,omitempty"`
}

// Limits are of a trajectory; 0: no suggestion.
type Limits struct {
	Turns  int `yaml:"turns,omitempty"`  // model calls
	Tokens int `yaml:"tokens,omitempty"` // of one reply
}

// Roles of splits.
const (
	Test       = "test"       // what the dataset is measured on
	Train      = "train"      // for training
	Validation = "validation" // beside both
)

// Forms of an answer, for Fields.AnswerForm.
const (
	Plain  = "plain"
	Boxed  = "boxed"
	JSON   = "json"
	Letter = "letter"
	Index  = "index"
	Choice = "choice"

	LiveCodeBench = "livecodebench"
)

var (
	validName     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]*$`)
	validRepo     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?$`)
	validRevision = regexp.MustCompile(`^[0-9a-f]{40}$`)
	validSHA256   = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// IsName reports whether a dataset can have the name: it becomes a file's.
func IsName(name string) bool { return validName.MatchString(name) }

// SplitName is how the repository calls the split of a role; "" where there is none.
func (e *Entry) SplitName(role string) string {
	s, ok := e.Splits[role]
	if ok && s.Name == "" {
		return role
	}
	return s.Name
}

// SplitNamed is the split that the repository calls by a name; the zero Split where the
// entry does not describe it.
func (e *Entry) SplitNamed(name string) Split {
	for role, s := range e.Splits {
		if e.SplitName(role) == name {
			return s
		}
	}
	return Split{}
}

// Pinned reports whether every repository has a revision.
func (e *Entry) Pinned() bool {
	return !slices.ContainsFunc(e.Hub, func(r Repo) bool { return r.Revision == "" })
}

// Validate checks what the types of the keys do not. Its error has the key as its field.
func (e *Entry) Validate() error {
	switch {
	case e.Name == "":
		return malformed.Field("name", malformed.Missing, "is missing")
	case !IsName(e.Name):
		return malformed.Field("name", malformed.Range, "%q is no name; want a to z, digits, dots, +, - and _", e.Name)
	case strings.ContainsAny(e.About, "\r\n"):
		return malformed.Field("about", malformed.Range, "has several lines; want one")
	case e.Limits.Turns < 0 || e.Limits.Tokens < 0 || e.Shots < 0:
		return malformed.Field("limits", malformed.Range, "has a number below 0")
	}
	if err := e.validateSource(); err != nil {
		return err
	}
	for _, r := range e.Hub {
		if !validRepo.MatchString(r.ID) {
			return malformed.Field("hub.id", malformed.Range, "%q is no repository; want org/name", r.ID)
		}
		if r.Revision != "" && !validRevision.MatchString(r.Revision) {
			return malformed.Field("hub.revision", malformed.Range, "%q is no commit; want 40 hexadecimal digits, or leave it out", r.Revision)
		}
	}
	if err := e.validateSplits(); err != nil {
		return err
	}
	return e.Fields.validate()
}

// validateSource refuses keys of files beside a generator, and keys of a generator without one:
// they have no effect.
func (e *Entry) validateSource() error {
	for _, key := range []struct {
		name           string
		given, ofFiles bool
	}{
		{"hub", len(e.Hub) > 0, true}, {"config", e.Config != "", true}, {"splits", len(e.Splits) > 0, true}, {"join", e.Join != nil, true},
		{"fields", !reflect.ValueOf(e.Fields).IsZero(), true},
		{"level", e.Level != "", false}, {"shots", e.Shots != 0, false},
	} {
		switch {
		case !key.given:
		case key.ofFiles && e.Generator != "":
			return malformed.Field(key.name, malformed.Mismatch, "has no effect beside generator, which makes the rows; leave one of them out")
		case !key.ofFiles && e.Generator == "":
			return malformed.Field(key.name, malformed.Missing, "has no effect without generator")
		}
	}
	return nil
}

func (e *Entry) validateSplits() error {
	for role, s := range e.Splits {
		key := "splits." + role
		if !slices.Contains([]string{Test, Train, Validation}, role) {
			return malformed.Field(key, malformed.Unsupported, "there is no such split; want test, train or validation")
		}
		if s.Problems < 0 {
			return malformed.Field(key+".problems", malformed.Range, "is %d; want 0 or more", s.Problems)
		}
		if err := validPatterns(key+".files", s.Files); err != nil {
			return err
		}
		for file, sum := range s.SHA256 {
			if !validSHA256.MatchString(sum) {
				return malformed.Field(key+".sha256", malformed.Range, "of %s is %q; want 64 hexadecimal digits", file, text.Cut(sum, 80))
			}
		}
	}
	if e.Join != nil {
		if e.Join.On == "" || len(e.Join.Files) == 0 {
			return malformed.Field("join", malformed.Missing, "wants files, and on: the column that both have")
		}
		return validPatterns("join.files", e.Join.Files)
	}
	return nil
}

func validPatterns(key string, patterns []string) error {
	for _, p := range patterns {
		if _, err := path.Match(p, ""); err != nil || p == "" || strings.HasPrefix(p, "../") {
			return malformed.Field(key, malformed.Range, "%q is no pattern of files in the repository", p)
		}
	}
	return nil
}

func (f Fields) validate() error {
	forms := []string{Plain, Boxed, JSON, LiveCodeBench, Letter, Index, Choice}
	if f.AnswerForm != "" && !slices.Contains(forms, f.AnswerForm) {
		return malformed.Field("fields.answer_form", malformed.Unsupported, "%q is no form%s; the forms are %s", f.AnswerForm,
			didYouMean(f.AnswerForm, forms), strings.Join(forms, ", "))
	}
	if len(f.Choices) == 0 && (f.ShuffleChoices || slices.Contains([]string{Letter, Index, Choice}, f.AnswerForm)) {
		return malformed.Field("fields.choices", malformed.Missing, "is missing, and answer_form or shuffle_choices need it")
	}
	return nil
}

func didYouMean(name string, names []string) string {
	if near := text.Nearest(name, names); near != "" {
		return fmt.Sprintf("; did you mean %s?", near)
	}
	return ""
}
