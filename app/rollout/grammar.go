package rollout

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"agentcli/grammar/form"
	"agentcli/internal/exit"
	"agentcli/internal/setting"
	"agentcli/traj"
)

// ParseGrammar reads what each reply must be: json, schema:FILE, regex:EXPRESSION,
// choice:A|B|C or tools. It is compiled, so that what no reply could meet is an error here.
func ParseGrammar(spec string) (*traj.Grammar, error) {
	kind, rest, more := strings.Cut(spec, ":")
	g := &traj.Grammar{Kind: kind}
	wrong := func(err error) (*traj.Grammar, error) {
		return nil, exit.UsageError{Err: fmt.Errorf("%s %s: %w", setting.Name("Grammar"), spec, err)}
	}
	switch kind {
	case traj.GrammarJSON, traj.GrammarTools:
		if more {
			return nil, exit.Usagef("%s is %q; %s stands alone", setting.Name("Grammar"), spec, kind)
		}
	case traj.GrammarSchema:
		if rest == "" {
			return nil, exit.Usagef("%s is %q, which names no file", setting.Name("Grammar"), spec)
		}
		raw, err := os.ReadFile(rest)
		if err != nil {
			return wrong(err)
		}
		var whole any
		if err := json.Unmarshal(raw, &whole); err != nil {
			line := 1
			if at := (*json.SyntaxError)(nil); errors.As(err, &at) {
				line += bytes.Count(raw[:min(at.Offset, int64(len(raw)))], []byte{'\n'})
			}
			return wrong(fmt.Errorf("%s is no JSON: line %d: %w", rest, line, err))
		}
		g.Schema = json.RawMessage(raw)
	case traj.GrammarRegex:
		if g.Pattern = rest; rest == "" {
			return nil, exit.Usagef("%s is %q, which has no expression", setting.Name("Grammar"), spec)
		}
	case traj.GrammarChoice:
		if g.Choices = strings.Split(rest, "|"); slices.Contains(g.Choices, "") {
			return nil, exit.Usagef("%s is %q, which has an empty choice", setting.Name("Grammar"), spec)
		}
	default:
		return nil, exit.Usagef("%s is %q; it is json, schema:FILE, regex:EXPRESSION, choice:A|B or tools", setting.Name("Grammar"), spec)
	}
	if kind == traj.GrammarTools {
		return g, nil
	}
	if _, err := form.OfText(g); err != nil {
		return wrong(err)
	}
	return g, nil
}
