package llm

import (
	"encoding/json"
	"regexp"
	"strings"

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
