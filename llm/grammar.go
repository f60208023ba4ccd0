package llm

import (
	"encoding/json"
	"regexp"
	"strings"

	"agentcli/internal/setting"
	"agentcli/traj"
)

// grammarFields are the fields that ask a server for replies of a grammar: OpenAI's where it
// has one, else vLLM's.
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

// sglangGrammar is the same within the sampling_params of SGLang's /generate.
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

// held looks whether a server that was asked for replies of a grammar gives them: older ones
// leave such fields out without a word. A reply that a limit or a stop string ended is none.
func held(rd *replyReader, b *body, said, finish, stopped string) {
	g := b.sampling.Grammar
	if g == nil || rd.c.Holds == nil || finish != traj.FinishStop || stopped != "" {
		return
	}
	if i := strings.LastIndex(said, "</think>"); i >= 0 {
		said = said[i+len("</think>"):]
	}
	if said = strings.TrimSpace(said); said != "" && !rd.c.Holds(g, said) {
		rd.tell("grammar", "does not hold its replies to the grammar that was asked for ("+g.Kind+"): they are counted as they are")
	}
}

const grammarTaken = "grammars are taken"

// grammarInDoubt finds out whether it is the grammar that a server refuses in words that name no
// field: one request is tried without it, and others wait for that. Nothing else is left out of
// requests before that is known.
func grammarInDoubt(s *server, f *failure, x *exchange, b *body, said string) bool {
	switch {
	case b.sampling.Grammar == nil || !s.has(grammarTaken): // it is known to be taken
		return false
	case b.doubt != "": // refused without it, too
		b.doubt = ""
		s.first(grammarTaken)
		return false
	}
	for name := range asked {
		if sent(x, name) && mentions(string(x.body), name) {
			return false
		}
	}
	for name := range optional {
		if sent(x, name) && mentions(string(x.body), name) {
			return false
		}
	}
	if s.first("grammar in doubt") {
		b.doubt, f.now = said, true
	}
	f.retry = true
	return true
}

// tookGrammar notes that a server answers a request with a grammar; one that answers without it
// alone ends the run.
func tookGrammar(s *server, b *body) *failure {
	switch {
	case b.sampling.Grammar == nil:
	case b.doubt != "":
		return &failure{err: fatal(setting.Errorf("%s refuses requests with a grammar (%s) and answers them without; leave %s out",
			s.name, b.doubt, setting.Name("Grammar")), ErrField)}
	case s.has(grammarTaken):
		s.first(grammarTaken)
	}
	return nil
}
