package rewards

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"agentcli/internal/malformed"
	"agentcli/traj"
)

// RegexSettings are the settings of regex.
type RegexSettings struct {
	// Pattern is the expression for all tasks, in Go's syntax (RE2); "": each gold answer
	// is one.
	Pattern string `json:"pattern,omitempty"`
	// Full asks for the whole reply, but for white space around it.
	Full bool `json:"full,omitempty"`
	// IgnoreCase takes letters for equal that differ in case.
	IgnoreCase bool `json:"ignore_case,omitempty"`
}

// Validate checks the settings.
func (s RegexSettings) Validate() error {
	if s.Pattern == "" {
		return nil
	}
	_, err := s.compile(s.Pattern)
	return err
}

// Bounds of the time of one match, which grows with their product.
const (
	maxPattern    = 4 << 10 // bytes
	maxRegexReply = 1 << 20 // bytes at the reply's end that are read
)

func (s RegexSettings) compile(pattern string) (*regexp.Regexp, error) {
	if len(pattern) > maxPattern {
		return nil, malformed.Errorf(malformed.Range, "the pattern has %d bytes, want %d at most", len(pattern), maxPattern)
	}
	if s.Full {
		pattern = `\A\s*(?:` + pattern + `)\s*\z`
	}
	if s.IgnoreCase {
		pattern = "(?i)" + pattern
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, malformed.Errorf(malformed.Syntax, "no regular expression: %w", err)
	}
	return re, nil
}

// regexReward is 1 where the reply, behind its thinking, matches a regular expression. The
// answer is the first group of the match, or the match.
type regexReward struct {
	s     RegexSettings
	fixed *regexp.Regexp // nil: the gold answers are the patterns
}

func newRegex(o Options) (Reward, error) {
	r := regexReward{s: o.Regex}
	if o.Regex.Pattern == "" {
		return r, nil
	}
	var err error
	r.fixed, err = o.Regex.compile(o.Regex.Pattern)
	return r, err
}

func (regexReward) Name() string { return "regex" }

func (r regexReward) Score(_ context.Context, t *traj.Trajectory) (Score, error) {
	if t.Termination.Infrastructure() {
		return Score{}, nil
	}
	patterns := []*regexp.Regexp{r.fixed}
	if r.fixed == nil {
		if ok, err := scorable(t); !ok {
			return Score{}, err
		}
		patterns = nil
		for _, answer := range t.Task.Answers {
			re, err := r.s.compile(answer)
			if err != nil {
				return Score{}, &malformed.Error{Field: "answer", Err: err}
			}
			patterns = append(patterns, re)
		}
	}
	reply, ok := spokenReply(t)
	if !ok {
		return decided("regex", false, nil), nil
	}
	if r.s.Full && len(reply) > maxRegexReply {
		return decided("regex", false, nil), nil
	}
	reply = reply[max(0, len(reply)-maxRegexReply):]
	for _, re := range patterns {
		if m := re.FindStringSubmatch(reply); m != nil {
			found := m[0]
			if len(m) > 1 {
				found = m[1]
			}
			return decided("regex", true, &found), nil
		}
	}
	return decided("regex", false, nil), nil
}

// errNoSchema is of a task without a schema.
var errNoSchema = errors.New(`there is no schema: neither a gold answer nor the option {"json-schema": {"schema": …}}`)

// taskError names the task, where it has an id, as a row of a file may not.
func taskError(t *traj.Trajectory, err error) error {
	if t.Task.ID == "" {
		return err
	}
	return fmt.Errorf("task %s: %w", t.Task.ID, err)
}
