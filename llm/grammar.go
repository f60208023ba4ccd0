package llm

import (
	"encoding/json"
	"regexp"
	"strings"

	"agentcli/internal/setting"
	"agentcli/traj"
)

// grammarFields are the request fields for a grammar: OpenAI's where it has one, else vLLM's.
func grammarFields(g *traj.Grammar, inIDs bool) map[string]json.RawMessage {
	var name string
	var value any
	switch {
	case g.Kind == traj.GrammarRegex:
		name, value = "structured_outputs", map[string]any{"regex": g.Pattern}
	case g.Kind == traj.GrammarChoice:
		name, value = "structured_outputs", map[string]any{"choice": g.Choices}
	case g.Kind == traj.GrammarSchema && inIDs:
		name, value = "structured_outputs", map[string]any{"json": g.Schema}
	case g.Kind == traj.GrammarSchema:
		name, value = "response_format", map[string]any{"type": "json_schema",
			"json_schema": map[string]any{"name": "reply", "strict": true, "schema": g.Schema}}
	case g.Kind == traj.GrammarJSON && inIDs:
		name, value = "structured_outputs", map[string]any{"json_object": true}
	case g.Kind == traj.GrammarJSON:
		name, value = "response_format", map[string]any{"type": "json_object"}
	default:
		return nil
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return nil
	}
	return map[string]json.RawMessage{name: raw}
}

// sglangGrammar are those in the sampling_params of SGLang's /generate.
func sglangGrammar(g *traj.Grammar) map[string]json.RawMessage {
	name, text := "regex", g.Pattern
	switch g.Kind {
	case traj.GrammarJSON:
		name, text = "json_schema", `{"type":"object"}`
	case traj.GrammarSchema:
		name, text = "json_schema", string(g.Schema)
	case traj.GrammarChoice:
		quoted := make([]string, len(g.Choices))
		for i, s := range g.Choices {
			quoted[i] = regexp.QuoteMeta(s)
		}
		text = "(" + strings.Join(quoted, "|") + ")"
	case traj.GrammarRegex:
	default:
		return nil
	}
	raw, err := json.Marshal(text)
	if err != nil {
		return nil
	}
	return map[string]json.RawMessage{name: raw}
}

// checkGrammar reports a server whose replies do not match the grammar of their request: older
// servers ignore the field. Replies that a limit or a stop string ended are not checked.
func checkGrammar(rd *replyReader, b *body, content, finish, stopString string) {
	g := b.sampling.Grammar
	if g == nil || rd.c.MatchesGrammar == nil || finish != traj.FinishStop || stopString != "" {
		return
	}
	const thinkingEnd = "</think>"
	if i := strings.LastIndex(content, thinkingEnd); i >= 0 {
		content = content[i+len(thinkingEnd):]
	}
	if content = strings.TrimSpace(content); content != "" && !rd.c.MatchesGrammar(g, content) {
		rd.tell("grammar", "ignores the grammar ("+g.Kind+"): its replies do not match it, and are kept as they are")
	}
}

// grammarSupport is what is known of a server and grammars. A server's lock guards it.
type grammarSupport int

const (
	grammarUnknown   grammarSupport = iota
	grammarProbed                   // it refused a request with a grammar, and is asked once without
	grammarSupported                // or it refuses requests for another reason
)

// probeGrammar reports whether a refusal that names no field may be due to the grammar. The
// first such request is sent again without it, and others are tried again later, so that no
// other field is left out by mistake.
func probeGrammar(s *server, f *failure, x *exchange, b *body, said string) bool {
	if b.sampling.Grammar == nil || namesField(x, asked) || namesField(x, optional) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.grammar == grammarSupported:
		return false
	case b.grammarRefusal != "": // refused without it, too
		b.grammarRefusal, s.grammar = "", grammarSupported
		return false
	case s.grammar == grammarUnknown:
		b.grammarRefusal, s.grammar, f.now = said, grammarProbed, true
	}
	f.retry = true
	return true
}

// namesField reports whether a refusal names one of these fields, if it was sent.
func namesField[V any](x *exchange, fields map[string]V) bool {
	for name := range fields {
		if sent(x, name) && mentions(string(x.body), name) {
			return true
		}
	}
	return false
}

// recordGrammarSupport notes that a server answered. The error is that of a server that answers
// only without the grammar: the run ends.
func recordGrammarSupport(s *server, b *body) *failure {
	switch {
	case b.sampling.Grammar == nil:
		return nil
	case b.grammarRefusal != "":
		return &failure{err: fatal(setting.Errorf("%s refuses requests with a grammar (%s) and answers them without it; leave %s out",
			s.name, b.grammarRefusal, setting.Name("Grammar")), ErrField)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grammar = grammarSupported
	return nil
}
