// Package form makes the grammar of a model's replies: of their text, behind its thinking, or
// of its calls, as the model's chat format writes both.
package form

import (
	"fmt"
	"slices"
	"strings"

	"agentcli/grammar"
	"agentcli/model/chat"
	"agentcli/traj"
)

// Thinking says what comes before the text of a reply in a chat format; asked is false where
// the prompt closes the thinking.
func Thinking(d chat.Description, asked bool) grammar.Thinking {
	switch {
	case !asked:
		return grammar.ThinkingNever
	case d.Thinks:
		return grammar.ThinkingIsOpened
	case d.Reasons:
		return grammar.ThinkingMay
	}
	return grammar.ThinkingNever
}

// Text is replies whose text is of a grammar, behind their thinking; asked as in Thinking.
func Text(g *grammar.Grammar, d chat.Description, asked bool) (*grammar.Grammar, error) {
	t := Thinking(d, asked)
	switch {
	case d.Calls == chat.ParserGPTOSS:
		return grammar.InChannels(g)
	case t == grammar.ThinkingNever:
		return g, nil
	}
	return grammar.AfterThinking(g, t, d.Think[0], d.Think[1])
}

// Calls are the tools of a chat format; asked as in Thinking.
func Calls(tools []traj.ToolSpec, d chat.Description, asked bool) grammar.Calls {
	calls := grammar.Calls{Format: d.Calls, Thinking: Thinking(d, asked), Tags: d.Think}
	for _, t := range tools {
		calls.Tools = append(calls.Tools, grammar.Tool{Name: t.Name, Parameters: t.Parameters})
	}
	return calls
}

// Of is the grammar of the replies of a chat format; nil: they may be anything, because what is
// asked of calls and no tool is offered. An error names what is wrong with g.
func Of(g *traj.Grammar, d chat.Description) (*grammar.Grammar, error) {
	if g.Kind == traj.GrammarTools {
		if len(g.Tools) == 0 {
			return nil, nil
		}
		return grammar.ToolCalls(Calls(g.Tools, d, true), grammar.Options{})
	}
	text, err := OfText(g)
	if err != nil {
		return nil, err
	}
	return Text(text, d, true)
}

// OfText is the grammar of a reply's text, of any kind but GrammarTools.
func OfText(g *traj.Grammar) (*grammar.Grammar, error) {
	switch g.Kind {
	case traj.GrammarJSON:
		return grammar.JSONObject(grammar.Options{}), nil
	case traj.GrammarSchema:
		return grammar.JSONSchema(g.Schema, grammar.Options{})
	case traj.GrammarRegex:
		return grammar.Regexp(g.Pattern)
	case traj.GrammarChoice:
		return grammar.Choices(g.Choices)
	}
	return nil, fmt.Errorf("there is no grammar %q of a text; there are %s", g.Kind,
		strings.Join(slices.DeleteFunc(slices.Clone(traj.Grammars), func(k string) bool { return k == traj.GrammarTools }), ", "))
}

// Matches reports whether a whole text is of a grammar.
func Matches(g *grammar.Grammar, text string) bool {
	m := g.Matcher(nothing)
	return m.AcceptBytes([]byte(text)) && m.Complete()
}

var nothing = grammar.NewVocabulary(nil, nil, nil)
