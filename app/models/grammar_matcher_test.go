package models

import (
	"encoding/json"
	"testing"

	"agentcli/traj"
)

// TestAServersJSONIsHeldToItsSchema: however it is spaced and ordered; texts are held to their
// expression or choices.
func TestAServersJSONIsHeldToItsSchema(t *testing.T) {
	schema := traj.Grammar{Kind: traj.GrammarSchema, Schema: json.RawMessage(
		`{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}},"required":["a","b"]}`)}
	for _, x := range []struct {
		g       traj.Grammar
		reply   string
		matches bool
	}{
		{schema, `{"a": 1, "b": "x"}`, true}, {schema, "{\n\t\"b\" :\"x\",\"a\":1}", true}, {schema, `{"a": 1}`, false},
		{schema, `{"a": 1.5, "b": "x"}`, false}, {schema, `{"a": 1, "b": "x"} and`, false}, {schema, `no`, false},
		{traj.Grammar{Kind: traj.GrammarJSON}, `{"c": [1]}`, true}, {traj.Grammar{Kind: traj.GrammarJSON}, `[1]`, false},
		{traj.Grammar{Kind: traj.GrammarRegex, Pattern: "a+"}, "aa", true}, {traj.Grammar{Kind: traj.GrammarRegex, Pattern: "a+"}, "ab", false},
		{traj.Grammar{Kind: traj.GrammarChoice, Choices: []string{"x", "y"}}, "y", true},
		{traj.Grammar{Kind: traj.GrammarChoice, Choices: []string{"x", "y"}}, "z", false},
		{traj.Grammar{Kind: traj.GrammarTools}, "anything", true},
	} {
		if got := grammarMatcher()(&x.g, x.reply); got != x.matches {
			t.Errorf("%s: %q matches: %v", x.g.Kind, x.reply, got)
		}
	}
}
