// Package datasets turns benchmarks, local files and generators into streams
// of tasks.
//
// It is in layer 1: it imports traj, parquet (to read .parquet files) and hub (to
// fetch them), and knows nothing of models, agents or environments.
package datasets

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
	"unicode"

	"agentcli/datasets/registry"
	"agentcli/hub"
	"agentcli/internal/setting"
	"agentcli/internal/text"
	"agentcli/traj"
)

// Errors that a caller may tell apart.
var (
	// ErrUnknown: no dataset and no file has the name.
	ErrUnknown = errors.New("unknown dataset")
	// ErrOptions: the dataset is there, and has no such split, level, field, ….
	ErrOptions = errors.New("the options do not fit the dataset")
	// ErrNotHere: the dataset is known but is not on this machine and could not be fetched.
	ErrNotHere = errors.New("dataset is not on this machine")
)

// DuplicateIDError is two rows of one id.
type DuplicateIDError struct {
	ID    string
	First int // the row that had it before, from 1
}

func (e *DuplicateIDError) Error() string {
	return fmt.Sprintf("has the id %q, as row %d has; ids must differ (%s id=NAME takes another field)", e.ID, e.First, setting.Name("Fields"))
}

// TrajectoriesError is an ErrOptions: a file that is to hold questions holds
// trajectories.
type TrajectoriesError struct{ Path string }

func (e *TrajectoriesError) Error() string {
	return e.Path + ": holds trajectories, with the replies of the model that played them, and no tasks; " +
		"name the file of questions that they were made from"
}

// Unwrap gives ErrOptions.
func (e *TrajectoriesError) Unwrap() error { return ErrOptions }

// OptionError is an ErrOptions that a value of one option causes.
type OptionError struct {
	Option setting.Name // the field of Options
	Has    []string     // the values that the dataset has; nil: none, or too many to list
	err    error
}

func (e *OptionError) Error() string { return e.err.Error() }

// Unwrap gives ErrOptions, and the settings that the text names.
func (e *OptionError) Unwrap() []error { return []error{ErrOptions, e.err} }

func misfit(format string, args ...any) error {
	return traj.Mark(setting.Errorf(format, args...), ErrOptions)
}

// misfitOf is misfit for an option whose value the dataset does not have.
func misfitOf(option setting.Name, has []string, format string, args ...any) error {
	return &OptionError{Option: option, Has: has, err: setting.Errorf(format, args...)}
}

// UnknownError is an ErrUnknown.
type UnknownError struct {
	Name string
	Near []string // known names that resemble it, the nearest first
	err  error
}

func (e *UnknownError) Error() string { return e.err.Error() }

// Unwrap gives ErrUnknown, and the settings that the text names.
func (e *UnknownError) Unwrap() error { return e.err }

// Options choose what Open reads. The zero value is the dataset's own choice.
type Options struct {
	Split  string    // "" is the dataset's default split
	Limit  int       // at most so many tasks; 0: all (a generator may have billions)
	Seed   int64     // of a generator: the order of its problems
	Level  string    // of a generator: how hard, from "1"; "" is 1
	Shots  *int      // worked examples before the question; nil: the dataset's own number
	Select Selection // some problems of a file
	// Shuffle gives the rows of a file in an order that Seed decides. A generator's already are.
	Shuffle bool
	// Role is the split, train or test, of each dataset of several; "": each one's own.
	Role   string
	Fields map[string]string // our field name → the file's: question, prompt, messages, answer, id, env, tools; a dot goes into a nested one
	System *string           // replaces the system prompt; "" takes it away
	Prompt *string           // replaces the text around a question; holds {question}
	Cache  string            // folder of imported datasets; "": CacheDir()
	// Registry are folders of a user's entries; nil: registry.Folders().
	Registry []string
	// Notice gets what people should know; may be nil.
	Notice func(string)
	// ObjectAnswers reports whether a reward, "" of a dataset without one, reads gold answers
	// that are objects of JSON; nil: none does.
	ObjectAnswers func(reward string) bool
	// Env is the environment of all tasks; "": each row names its own.
	Env string
	// Envs are the names that a row may have; nil: any. EnvDefaults are what environments suggest,
	// by name.
	Envs        []string
	EnvDefaults map[string]EnvDefaults
	// SourceRewards is the reward of a row in verl's form by its data_source. It comes before the
	// environment's.
	SourceRewards map[string]string
	Hub           *hub.Hub // nil: hub.FromEnv()
	// Ahead lets Open return after the first rows of a file; the rest is for Check.
	Ahead  bool
	Images ImageLimits
	// BadRow gets the error of each row of a file that cannot be a task, when Tasks comes to
	// it, and the row is left out. nil: the first such row is an error.
	BadRow func(error)
	// Keep is what Import stores beside the rows: the keys that are not zero. nil: nothing.
	Keep *registry.Entry
	// Replace lets Import write over what was imported before.
	Replace bool
	// OnReplace gets the path of that file, before it is replaced; may be nil.
	OnReplace func(path string)
	// Offline never asks the hub.
	Offline bool
}

// EnvDefaults are what an environment suggests for its rows. What the dataset itself has comes
// first, and Options.Prompt and Options.System before that.
type EnvDefaults struct {
	Prompt string // text around a question
	System string // system prompt of rows without one
	Reward string
}

// Dataset is a stream of tasks with suggestions for running it.
type Dataset struct {
	Name         string
	Split        string
	Description  string
	DefaultTools []string // names of tools that it wants
	Reward       string   // of the first row; "": no row that Open read has an answer
	Rewards      []string // of the rows that Open read, each once; nil: Reward is that of all
	MaxTurns     int      // model calls of a trajectory; 0: no suggestion
	MaxTokens    int      // of one reply; 0: no suggestion
	Shots        int
	System       string
	Env          string          // environment that the suggestions are for; "": the tool environment
	Envs         []string        // environments of the rows that Open read, each once; "" of rows that name none
	HasImages    bool            // a row that Open read has images, or a column for them
	FirstImage   string          // the first of these rows that has one: its id; "": none has
	OwnTools     []traj.ToolSpec // of the first row that Open read with tools of its own; nil: none has
	Options      map[string]any  // of the reward
	Unanswered   string          // the file and the number of the first row that has no answer; "": all that Open read have one
	Parts        []Origin        // of several datasets in one; nil: it is one
	Source       string          // where the problems are from: a path, or "generated"
	Files        []string        // that the rows are read from; none where they are generated

	prompt, system template
	asked          bool   // the prompt is named: a prompt column gets it too
	own            bool   // the prompt is the entry's
	usual          string // reward of rows that nothing else decides
	settled        bool   // the reward is the entry's, of each row
	tasks          func(ctx context.Context) iter.Seq2[traj.Task, error]
	n              int // -1: not known
	limit          int
	check          func(ctx context.Context, unanswered func(row string) error) (int, error) // nil: Open has read all
}

// IsChecked reports whether Open has read every row, so that there is nothing to check.
func (d *Dataset) IsChecked() bool { return d.check == nil }

// Check reads the rows that Open left, and counts all of them. It ends with the
// first that cannot be a task, and the error is the one that Tasks would give there,
// or with one without an answer, if unanswered gives an error for it; nil: it is not
// asked. It may run beside Tasks.
func (d *Dataset) Check(ctx context.Context, unanswered func(row string) error) (int, error) {
	if d.check == nil {
		n, _ := d.Len()
		return n, nil
	}
	return d.check(ctx, unanswered)
}

// Tasks streams the tasks, from the first each time. No two have the same id: such
// a row is an error. It ends after the first error, which names the file and the row.
func (d *Dataset) Tasks(ctx context.Context) iter.Seq2[traj.Task, error] {
	return func(yield func(traj.Task, error) bool) {
		n := 0
		for t, err := range d.tasks(ctx) {
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				yield(traj.Task{}, err)
				return
			}
			if !yield(t, nil) {
				return
			}
			if n++; n == d.limit {
				return
			}
		}
	}
}

// Len is the number of tasks, where it is known without reading them all.
func (d *Dataset) Len() (int, bool) {
	switch {
	case d.n < 0:
		return 0, false
	case d.limit > 0 && d.limit < d.n:
		return d.limit, true
	}
	return d.n, true
}

// mathPrompt is the instruction that the math benchmarks are asked with.
const mathPrompt = "{question}\n\nPlease reason step by step, and put your final answer within \\boxed{}."

// Open finds a dataset: a benchmark of the registry, a generator, an imported
// name, or a path to a .jsonl, .json, .csv or .parquet file (or .gz, .zst of the first three). A file or an
// import is read once here to check every row and to count them, but see Ahead.
func Open(ctx context.Context, name string, o Options) (*Dataset, error) {
	if err := o.Images.Validate(); err != nil {
		return nil, misfit("dataset %s: %w", name, err)
	}
	if o.Limit < 0 {
		return nil, misfitOf("Limit", nil, "dataset %s: the limit must not be negative, it is %d", name, o.Limit)
	}
	if o.Prompt != nil && !strings.Contains(*o.Prompt, "{question}") {
		return nil, misfitOf("Prompt", nil, "dataset %s: the prompt must hold {question}", name)
	}
	if o.Cache == "" {
		o.Cache = CacheDir()
	}
	if parts := Mixture(name); parts != nil {
		return openMixture(ctx, name, parts, o)
	}
	if o.Shuffle && !Generated(name) {
		whole := o
		whole.Shuffle, whole.Limit, whole.Ahead = false, 0, false
		d, err := Open(ctx, name, whole)
		if err != nil {
			return nil, err
		}
		shuffle(d, o.Seed)
		d.limit = o.Limit
		return d, nil
	}
	e, err := findEntry(name, o)
	if err != nil {
		return nil, err
	}
	if e != nil && e.replaced && o.Notice != nil {
		o.Notice(ReplacedNotice(name, e.Path))
	}
	if e != nil && e.Generator != "" {
		if len(o.Fields) > 0 {
			return nil, misfitOf("Fields", nil, "dataset %s is generated: it has no fields to rename (%s)", name, setting.Name("Fields"))
		}
		if !o.Select.isAll() {
			return nil, misfit("dataset %s is generated: it has no rows to choose (%s, %s)", name, setting.Name("Rows"), setting.Name("IDs"))
		}
		return generatorNamed(e.Generator).open(e, o)
	}
	if o.Level != "" {
		return nil, misfitOf("Level", nil, "dataset %s has no levels (%s); generated ones have: %s",
			name, setting.Name("Level"), strings.Join(generatorNames(), ", "))
	}
	if o.Shots != nil && *o.Shots > 0 {
		return nil, misfitOf("Shots", nil, "dataset %s has no worked examples (%s); generated ones have: %s",
			name, setting.Name("Shots"), strings.Join(generatorNames(), ", "))
	}
	if e != nil {
		return e.open(ctx, o)
	}
	if looksLikeFile(name) {
		return openFile(ctx, fileSource{path: name, name: FileName(name)}, o)
	}
	if path, ok := importedPath(o.Cache, name, o.Split); ok {
		return openFile(ctx, fileSource{path: path, name: name, imported: true}, o)
	}
	if have := importedSplits(o.Cache, name); len(have) > 0 {
		return nil, noSplit(name, o.Split, have)
	}
	if err := badWeight(name, o.Cache); err != nil {
		return nil, err
	}
	return nil, unknown(name, o.Cache)
}

// Generated reports whether a dataset is made here, from a seed.
// Of several datasets it is enough that one is.
func Generated(name string) bool {
	for _, p := range Mixture(name) {
		if Generated(p.Name) {
			return true
		}
	}
	e := entryNamed(name)
	return e != nil && e.Generator != ""
}

func looksLikeFile(name string) bool {
	if st, err := os.Stat(name); err == nil && !st.IsDir() {
		return true
	}
	switch format, _ := formatOf(name); format {
	case ".jsonl", ".json", ".csv", ".parquet", ".ndjson":
		return true
	}
	return false
}

var unsafeName = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// FileName is the name of a file's dataset: the file's without its ending, with a - for other
// characters than letters, digits, dots, - and _. Two names that differ in such characters
// beyond ASCII stay two names: they end in a hash.
func FileName(path string) string {
	base := withoutFormat(filepath.Base(path))
	var b strings.Builder
	replaced, lost := false, false
	for _, c := range base {
		if unicode.In(c, unicode.Letter, unicode.Digit, unicode.Mark) || strings.ContainsRune("._-", c) {
			b.WriteRune(c)
			replaced = false
			continue
		}
		if !replaced {
			b.WriteByte('-')
		}
		replaced, lost = true, lost || c > unicode.MaxASCII
	}
	if lost {
		fmt.Fprintf(&b, "-%.4x", sha256.Sum256([]byte(base)))
	}
	return cmp.Or(b.String(), "file")
}

// Names are all names that Open knows, in order: benchmarks and generators of the program,
// entries of the user's, and what was imported into the cache folder ("" is CacheDir()).
func Names(cache string) []string {
	if cache == "" {
		cache = CacheDir()
	}
	var names []string
	seen := map[string]bool{}
	add := func(more ...string) {
		for _, n := range more {
			if !seen[n] {
				seen[n] = true
				names = append(names, n)
			}
		}
	}
	own, err := registry.Embedded()
	if err != nil {
		return nil // a test holds that there is none
	}
	for _, e := range own {
		add(e.Name)
	}
	for _, dir := range registry.Folders() {
		add(registry.Names(dir)...)
	}
	add(imported(cache)...)
	return names
}

// unknown makes the one line for a name that nobody knows.
func unknown(name, cache string) error {
	if st, err := os.Stat(name); err == nil && st.IsDir() {
		return &UnknownError{Name: name, err: fmt.Errorf("%w %q: it is a folder; name a file in it (.jsonl, .json, .csv, .parquet)",
			ErrUnknown, name)}
	}
	names := slices.DeleteFunc(Names(cache), func(n string) bool { // an entry that cannot be read is no choice
		_, err := findEntry(n, Options{Cache: cache})
		return err != nil
	})
	if strings.ContainsAny(name, `/\`) {
		return &UnknownError{Name: name, err: fmt.Errorf(
			"%w %q: there is no such file (.jsonl, .json, .csv, .parquet), and no dataset of that name (they are %s)",
			ErrUnknown, name, strings.Join(names, ", "))}
	}
	type near struct {
		name string
		d    int
	}
	var close []near
	for _, n := range names {
		d := text.Distance(strings.ToLower(name), strings.ToLower(n))
		if d <= 1+len(n)/3 || len(name) > 2 && strings.Contains(n, name) || len(name) > 2 && strings.HasPrefix(name, n) {
			close = append(close, near{n, d})
		}
	}
	sort.SliceStable(close, func(i, j int) bool { return close[i].d < close[j].d })
	e := &UnknownError{Name: name}
	hint := "the names are " + strings.Join(names, ", ") + "."
	if len(close) > 0 {
		for _, c := range close[:min(3, len(close))] {
			e.Near = append(e.Near, c.name)
		}
		hint = "did you mean " + strings.Join(e.Near, " or ") + "?"
	}
	own := unsafeName.ReplaceAllString(name, "-")
	if !registry.IsName(own) {
		own = "NAME"
	}
	e.err = setting.Errorf("%w %q: %s A file of your own: give its path, or `%s %s FILE`",
		ErrUnknown, name, hint, setting.Name("datasets.Import"), own)
	return e
}
