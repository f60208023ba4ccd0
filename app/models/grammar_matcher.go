package models

import (
	"encoding/json"
	"strings"
	"sync"

	"agentcli/grammar/form"
	"agentcli/internal/schema"
	"agentcli/traj"
)

// grammarMatcher checks replies that a server was asked to hold to a grammar. A run has one, which is
// compiled at its first reply. JSON may be written in any way that its schema allows: ours is
// narrower than a server's.
func grammarMatcher() func(g *traj.Grammar, reply string) bool {
	var mu sync.Mutex
	var of *traj.Grammar
	var matches func(string) bool
	return func(g *traj.Grammar, reply string) bool {
		mu.Lock()
		defer mu.Unlock()
		if g != of {
			of, matches = g, matcherOf(g)
		}
		return matches(reply)
	}
}

// matcherOf reports which texts match a grammar; if it cannot be compiled, all do.
func matcherOf(g *traj.Grammar) func(string) bool {
	all := func(string) bool { return true }
	switch g.Kind {
	case traj.GrammarJSON:
		return func(text string) bool {
			var object map[string]json.RawMessage
			return json.Unmarshal([]byte(text), &object) == nil
		}
	case traj.GrammarSchema:
		s, err := schema.Compile(g.Schema)
		if err != nil {
			return all
		}
		return func(text string) bool {
			d := json.NewDecoder(strings.NewReader(text))
			d.UseNumber()
			var v any
			if d.Decode(&v) != nil || d.More() {
				return false
			}
			v, _, large := schema.Representable(v)
			return large != "" || schema.Validate(s, v) == nil
		}
	}
	made, err := form.OfText(g)
	if err != nil {
		return all
	}
	return func(text string) bool { return form.Matches(made, text) }
}
