package form

import (
	"encoding/json"
	"testing"

	"agentcli/grammar"
	"agentcli/model/chat"
	"agentcli/traj"
)

// TestARepliesTextIsHeldToItsGrammar: what the kinds take and what they do not, with thinking
// before it where the chat format has some.
func TestARepliesTextIsHeldToItsGrammar(t *testing.T) {
	calculator := []traj.ToolSpec{{Name: "calculator",
		Parameters: json.RawMessage(`{"type":"object","properties":{"expression":{"type":"string"}},"required":["expression"]}`)}}
	call := func(args string) string {
		return "<tool_call>\n" + `{"name": "calculator", "arguments": ` + args + "}\n</tool_call>"
	}
	plain := chat.Description{Calls: "hermes"}
	for name, x := range map[string]struct {
		g     traj.Grammar
		d     chat.Description
		is    []string
		isNot []string
	}{
		"json": {traj.Grammar{Kind: traj.GrammarJSON}, plain, []string{`{}`, `{"a": [1]}`}, []string{"", "1", `{"a": `, "{} and more"}},
		"schema": {traj.Grammar{Kind: traj.GrammarSchema, Schema: json.RawMessage(`{"type":"integer"}`)}, plain,
			[]string{"7", "-12"}, []string{"7.5", "x"}},
		"regex":  {traj.Grammar{Kind: traj.GrammarRegex, Pattern: "a+b?"}, plain, []string{"a", "aab"}, []string{"b", "ab!"}},
		"choice": {traj.Grammar{Kind: traj.GrammarChoice, Choices: []string{"yes", "no"}}, plain, []string{"yes", "no"}, []string{"yes!", "y"}},
		"opened thinking": {traj.Grammar{Kind: traj.GrammarChoice, Choices: []string{"yes", "no"}},
			chat.Description{Calls: "hermes", Thinks: true, Think: [2]string{"<think>", "</think>"}},
			[]string{"So it is.</think>yes"}, []string{"yes", "So it is.</think>maybe"}},
		"thinking between tags of its own": {traj.Grammar{Kind: traj.GrammarChoice, Choices: []string{"yes", "no"}},
			chat.Description{Calls: "seed-oss", Thinks: true, Think: [2]string{"<seed:think>", "</seed:think>"}},
			[]string{"So.</seed:think>yes"}, []string{"yes", "So.</think>yes"}},
		"channels": {traj.Grammar{Kind: traj.GrammarChoice, Choices: []string{"yes", "no"}}, chat.Description{Calls: chat.ParserGPTOSS},
			[]string{"<|channel|>final<|message|>yes",
				"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>no"},
			[]string{"yes", "<|channel|>final<|message|>maybe", "<|channel|>analysis<|message|>yes"}},
		"tools": {traj.Grammar{Kind: traj.GrammarTools, Tools: calculator}, plain,
			[]string{"It is 4.", call(`{"expression": "2+2"}`)}, []string{call(`{}`), call(`{"expression": 4}`), "<tool_call>none</tool_call>"}},
	} {
		g, err := Of(&x.g, x.d)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, text := range x.is {
			if !Matches(g, text) {
				t.Errorf("%s: %q is refused", name, text)
			}
		}
		for _, text := range x.isNot {
			if Matches(g, text) {
				t.Errorf("%s: %q is taken", name, text)
			}
		}
	}
}

// TestWhatHasNoGrammarIsRefused: a kind that is not there, a format of calls without a grammar;
// without tools a reply of the kind tools is free.
func TestWhatHasNoGrammarIsRefused(t *testing.T) {
	tools := []traj.ToolSpec{{Name: "f"}}
	if g, err := Of(&traj.Grammar{Kind: traj.GrammarTools}, chat.Description{Calls: "react"}); g != nil || err != nil {
		t.Errorf("without tools: %v, %v", g, err)
	}
	for name, x := range map[string]traj.Grammar{
		"another kind":        {Kind: "xml"},
		"a format of calls":   {Kind: traj.GrammarTools, Tools: tools},
		"a keyword":           {Kind: traj.GrammarSchema, Schema: json.RawMessage(`{"not": {}}`)},
		"no choices":          {Kind: traj.GrammarChoice},
		"a broken expression": {Kind: traj.GrammarRegex, Pattern: "("},
	} {
		if _, err := Of(&x, chat.Description{Calls: "react"}); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if Thinking(chat.Description{Thinks: true}, false) != grammar.ThinkingNever {
		t.Error("thinking that the prompt closed comes again")
	}
}
