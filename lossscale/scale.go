package lossscale

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"agentcli/internal/malformed"
	"agentcli/internal/setting"
	"agentcli/internal/text"
)

// The strategies of a loss scale: which replies its rules are for.
const (
	Default   = "default"    // all replies of the model
	LastRound = "last_round" // the last one
	All       = "all"        // all replies, and the tokens between them weigh 1
)

// Strategies lists them.
var Strategies = []string{Default, LastRound, All}

// noRule is ms-swift's name of a rule that changes nothing.
const noRule = "base"

//go:embed rules/*.json
var builtin embed.FS

// Names lists the built-in rules.
func Names() []string {
	files, err := fs.Glob(builtin, "rules/*.json")
	if err != nil {
		return nil // of a pattern that is wrong
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(path.Base(f), ".json")
	}
	return files
}

// Split takes a loss scale apart: its strategy, Default where it names none, and its rules
// with + between them, "" where it has none.
func Split(scale string) (strategy, rules string) {
	first, rest, more := strings.Cut(scale, "+")
	switch {
	case !slices.Contains(Strategies, first):
		return Default, scale
	case more && rest == "":
		return first, "+" // which Open refuses
	}
	return first, rest
}

// MapFiles gives the rules with f applied to the names of files among them.
func MapFiles(rules string, f func(file string) string) string {
	if rules == "" {
		return ""
	}
	names := strings.Split(rules, "+")
	for i, name := range names {
		if isFile(name) {
			names[i] = f(name)
		}
	}
	return strings.Join(names, "+")
}

// Files are the names of files among rules.
func Files(rules string) (files []string) {
	MapFiles(rules, func(file string) string { files = append(files, file); return file })
	return files
}

// isFile reports whether a rule is the name of a file.
func isFile(name string) bool {
	return strings.HasSuffix(name, ".json") || strings.ContainsRune(name, '/') || strings.ContainsRune(name, os.PathSeparator)
}

// ErrUnknownRule is in the error of a rule that is neither built in nor a file.
var ErrUnknownRule = fmt.Errorf("unknown rule")

// Rules weigh replies. It counts what matches, so it is for one goroutine at a time.
type Rules struct {
	list    []*rule
	replies int
	rounded Rounded
}

// Open reads rules with + between their names. Without a rule it is nil, which weighs
// everything 1. Errors wrap ErrUnknownRule, the error of opening a file, or a
// malformed.Kind.
func Open(rules string) (*Rules, error) {
	if rules == "" {
		return nil, nil
	}
	var r Rules
	for name := range strings.SplitSeq(rules, "+") {
		if name == noRule {
			continue
		}
		one, err := open(name)
		if err != nil {
			return nil, err
		}
		r.list = append(r.list, one)
	}
	if len(r.list) == 0 {
		return nil, nil
	}
	return &r, nil
}

func open(name string) (*rule, error) {
	if slices.Contains(Names(), name) {
		data, err := builtin.ReadFile("rules/" + name + ".json")
		if err != nil {
			return nil, err
		}
		return readRule(name, data)
	}
	if isFile(name) {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, setting.Errorf("%s: cannot read the rule: %w; look at the path", setting.Name("LossScale"), err)
		}
		one, err := readRule(name, data)
		if err != nil {
			return nil, &malformed.Error{Path: name, Err: err}
		}
		one.own = true
		return one, nil
	}
	remedy := ""
	switch near := text.Nearest(name, Names()); {
	case slices.Contains(Strategies, name):
		remedy = fmt.Sprintf("the strategy %s comes first, as in %s+hermes; ", name, name)
	case name == "":
		remedy = "there is nothing before or behind a +; "
	case near != "":
		remedy = fmt.Sprintf("did you mean %s? ", near)
	}
	return nil, setting.Errorf("%s: %w %q: %srules are %s, or the path of a JSON file (%s.json or ./%s)", setting.Name("LossScale"),
		ErrUnknownRule, name, remedy, strings.Join(Names(), ", "), name, name)
}

// NeedsQueries reports whether what the model was asked decides a weight.
func (r *Rules) NeedsQueries() bool {
	return r != nil && slices.ContainsFunc(r.list, func(x *rule) bool { return len(x.queries) > 0 })
}

// Piece is a part of a reply with its weight in the loss.
type Piece struct {
	Text   string
	Weight float64
}

// Pieces cuts a reply, and multiplies the weights of its rules. Joined, the pieces are the
// reply; none is empty. queries are the messages that the reply answers.
func (r *Rules) Pieces(reply string, queries []string) []Piece {
	if reply == "" {
		return nil
	}
	pieces := []Piece{{reply, 1}}
	if r == nil {
		return pieces
	}
	r.replies++
	for _, x := range r.list {
		var cut []Piece
		for _, p := range pieces {
			for _, q := range x.cut(p.Text, queries) {
				cut = append(cut, Piece{q.Text, p.Weight * q.Weight})
			}
		}
		pieces = cut
	}
	return pieces
}

// Unmatched are patterns of a rule that matched in no reply.
type Unmatched struct {
	Rule     string   // its name or file
	Patterns []string // those of a file; nil: none of a built-in rule matched
	Replies  int      // that were read
}

// Unmatched lists the patterns that matched nothing so far, by rule. Of a built-in rule it
// is enough that one of them did.
func (r *Rules) Unmatched() (all []Unmatched) {
	if r == nil || r.replies == 0 {
		return nil
	}
	for _, x := range r.list {
		none, some := x.unmatched()
		switch {
		case x.own && len(none) > 0:
			all = append(all, Unmatched{Rule: x.name, Patterns: none, Replies: r.replies})
		case !x.own && !some:
			all = append(all, Unmatched{Rule: x.name, Replies: r.replies})
		}
	}
	return all
}

// Rounded counts the tokens of replies inside which another weight begins: they weigh what
// their first byte does.
type Rounded struct{ Tokens, Of int }

// Rounded counts those of all replies so far.
func (r *Rules) Rounded() Rounded {
	if r == nil {
		return Rounded{}
	}
	return r.rounded
}

func (r Rounded) String() string {
	return fmt.Sprintf("another weight begins inside %d of %s of the replies; such a token has the weight of its first byte", r.Tokens,
		text.Plural(r.Of, "token"))
}

func (u Unmatched) String() string {
	if u.Patterns == nil {
		return fmt.Sprintf("rule %s matches nothing in %s", u.Rule, text.Plural(u.Replies, "reply"))
	}
	quoted := make([]string, len(u.Patterns))
	for i, p := range u.Patterns {
		quoted[i] = fmt.Sprintf("%q", p)
	}
	return fmt.Sprintf("%s: nothing in %s matches %s", u.Rule, text.Plural(u.Replies, "reply"), strings.Join(quoted, ", "))
}
