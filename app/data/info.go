package data

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"agentcli/app/console"
	"agentcli/app/report"
	"agentcli/datasets"
	"agentcli/datasets/registry"
	"agentcli/internal/setting"
	"agentcli/internal/text"
)

// Description is what is known of a dataset.
type Description struct {
	Name      string       `json:"name"`
	About     string       `json:"about,omitempty"`
	Here      bool         `json:"local"`              // can be opened without a network
	Split     string       `json:"split,omitempty"`    // that was asked for, or the dataset's own
	Problems  int          `json:"problems,omitempty"` // of the split; 0: not known, or infinite
	Splits    []Split      `json:"splits,omitempty"`
	Reward    string       `json:"reward,omitempty"`
	Env       string       `json:"env,omitempty"`
	Tools     []string     `json:"tools,omitempty"`
	Choices   []string     `json:"choices,omitempty"` // columns
	Shuffled  bool         `json:"shuffle_choices,omitempty"`
	Prompt    string       `json:"prompt,omitempty"`
	System    string       `json:"system,omitempty"`
	Shots     int          `json:"shots,omitempty"`
	MaxTurns  int          `json:"max_turns,omitempty"`
	MaxTokens int          `json:"max_tokens,omitempty"`
	Source    string       `json:"source,omitempty"` // where the rows are read from
	Hub       []Repository `json:"hub,omitempty"`
	Pinned    bool         `json:"pinned,omitempty"` // every repository has a revision
	Licence   string       `json:"licence,omitempty"`
	Homepage  string       `json:"homepage,omitempty"`
	Citation  string       `json:"citation,omitempty"`
	Entry     string       `json:"entry,omitempty"` // file of a user's entry
	infinite  bool
}

// Split is a split as its entry describes it.
type Split struct {
	Role     string `json:"role"` // test, train or validation
	Name     string `json:"name"` // as the repository calls it
	Problems int    `json:"problems,omitempty"`
	Hashes   int    `json:"hashes,omitempty"` // files whose SHA-256 is known
}

// Repository is a repository of the hub.
type Repository struct {
	ID       string `json:"id"`
	Revision string `json:"revision,omitempty"` // a commit
}

// Describe describes a dataset, or a file, by its entry and by what is on this machine. It
// downloads nothing.
func Describe(ctx context.Context, name string, o datasets.Options) (Description, error) {
	out := Description{Name: name, Split: o.Split}
	e, err := datasets.EntryNamed(name)
	if err != nil {
		return out, err
	}
	if e != nil {
		out.ofEntry(e)
	}
	o.Offline = true
	d, err := datasets.Open(ctx, name, o)
	if err != nil {
		if e == nil || !errors.Is(err, datasets.ErrNotHere) {
			return out, err
		}
		return out, nil // a benchmark that is not here can still be described
	}
	n, counted := d.Len()
	out.Name, out.About, out.Here, out.Split = d.Name, d.Description, true, d.Split
	out.Problems, out.infinite = n, !counted
	if !counted {
		out.Problems = 0
	}
	out.Reward, out.Env, out.Tools, out.System, out.Source = d.Reward, d.Env, d.DefaultTools, d.System, d.Source
	out.Shots, out.MaxTurns, out.MaxTokens = d.Shots, d.MaxTurns, d.MaxTokens
	return out, nil
}

// ofEntry takes what the entry says.
func (d *Description) ofEntry(e *registry.Entry) {
	d.Name, d.About, d.Reward, d.Env, d.Tools = e.Name, e.About, e.Reward, e.Env, e.Tools
	d.Choices, d.Shuffled = e.Fields.Choices, e.Fields.ShuffleChoices
	d.Prompt, d.System, d.Shots, d.MaxTurns, d.MaxTokens = e.Prompt, e.System, e.Shots, e.Limits.Turns, e.Limits.Tokens
	d.Licence, d.Homepage, d.Citation, d.Entry = e.Licence, e.Homepage, e.Citation, e.Path
	d.Pinned = len(e.Hub) > 0 && e.Pinned()
	for _, r := range e.Hub {
		d.Hub = append(d.Hub, Repository(r))
	}
	for _, role := range []string{registry.Test, registry.Train, registry.Validation} {
		if s, ok := e.Splits[role]; ok {
			d.Splits = append(d.Splits, Split{Role: role, Name: e.SplitName(role), Problems: s.Problems, Hashes: len(s.SHA256)})
		}
	}
	if d.Split == "" {
		d.Split = e.SplitName(registry.Test)
	}
	d.Problems = e.SplitNamed(d.Split).Problems
}

// WriteInfo describes a dataset as a table or as JSON.
func WriteInfo(ctx context.Context, name string, o datasets.Options, asJSON bool, s console.Streams) error {
	o.Notice = s.Say
	d, err := Describe(ctx, name, o)
	if err != nil {
		return err
	}
	if asJSON {
		return console.WriteJSON(s.Out, d)
	}
	fmt.Fprintln(s.Out, strings.TrimSuffix(d.Name+": "+d.About, ": "))
	var rows [][]string
	for _, kv := range d.lines() {
		if kv[1] != "" {
			rows = append(rows, kv[:])
		}
	}
	return report.Table(s.Out, "", nil, rows)
}

// lines are what a table has of a description; values may be empty.
func (d *Description) lines() [][2]string {
	problems := number(d.Problems)
	if d.infinite {
		problems = "many (from a seed)"
	}
	choices := strings.Join(d.Choices, ", ")
	if d.Shuffled {
		choices += " (in an order of their own for each question)"
	}
	all := [][2]string{{"split", d.Split}, {"problems", cmp.Or(problems, "not known")}}
	for _, s := range d.Splits {
		words := []string{}
		if s.Name != s.Role {
			words = append(words, "split "+s.Name+" of the repository")
		}
		words = append(words, cmp.Or(problemsOf(s), "problems not counted"))
		switch {
		case s.Hashes > 0:
			words = append(words, "SHA-256 of "+text.Plural(s.Hashes, "file"))
		case len(d.Hub) > 0:
			words = append(words, "checksum unknown: the hub's is recorded at the download")
		}
		all = append(all, [2]string{s.Role + " split", strings.Join(words, ", ")})
	}
	all = append(all, [][2]string{{"prompt", line(d.Prompt)}, {"choices", choices}, {"system", line(d.System)}, {"reward", d.Reward},
		{"environment", d.Env}, {"tools", strings.Join(d.Tools, ", ")}, {"shots", number(d.Shots)}, {"max turns", number(d.MaxTurns)},
		{"max tokens", number(d.MaxTokens)}}...)
	for _, r := range d.Hub {
		all = append(all, [2]string{"hub", r.ID + " " + cmp.Or(r.Revision, "(not pinned: the rows may change)")})
	}
	licence := d.Licence
	if len(d.Hub) > 0 {
		licence = cmp.Or(licence, "unknown: the entry has none")
	}
	source := d.Source
	if !d.Here {
		source = fmt.Sprintf("not on this machine: %s %s, or %s %s FILE", setting.Name("datasets.Pull"), text.ShellWord(d.Name),
			setting.Name("datasets.Import"), text.ShellWord(d.Name))
	}
	return append(all, [][2]string{{"licence", licence}, {"homepage", d.Homepage}, {"citation", d.Citation}, {"entry", d.Entry},
		{"source", source}}...)
}

// problemsOf is how many problems a split has; "" where the entry does not say.
func problemsOf(s Split) string {
	if s.Problems == 0 {
		return ""
	}
	return text.Plural(s.Problems, "problem")
}

// line is text in one line, cut where it is long.
func line(s string) string { return text.Cut(text.OneLine(s), 200) }

// number is a number; "" for 0.
func number(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}
