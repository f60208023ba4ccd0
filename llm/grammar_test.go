package llm_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"agentcli/llm"
	"agentcli/llm/llmtest"
	"agentcli/traj"
)

// TestAServerIsAskedForAGrammar: by OpenAI's field where it has one and by vLLM's where not; by
// SGLang's own within its sampling parameters.
func TestAServerIsAskedForAGrammar(t *testing.T) {
	schema := json.RawMessage(`{"type":"integer"}`)
	for name, x := range map[string]struct {
		g                 traj.Grammar
		chat, ids, sglang string // the field and its value
	}{
		"json": {traj.Grammar{Kind: traj.GrammarJSON}, `response_format {"type":"json_object"}`,
			`structured_outputs {"json_object":true}`, `json_schema "{\"type\":\"object\"}"`},
		"schema": {traj.Grammar{Kind: traj.GrammarSchema, Schema: schema},
			`response_format {"type":"json_schema","json_schema":{"name":"reply","strict":true,"schema":{"type":"integer"}}}`,
			`structured_outputs {"json":{"type":"integer"}}`, `json_schema "{\"type\":\"integer\"}"`},
		"regex": {traj.Grammar{Kind: traj.GrammarRegex, Pattern: "a+"}, `structured_outputs {"regex":"a+"}`,
			`structured_outputs {"regex":"a+"}`, `regex "a+"`},
		"choice": {traj.Grammar{Kind: traj.GrammarChoice, Choices: []string{"1.5", "no"}}, `structured_outputs {"choice":["1.5","no"]}`,
			`structured_outputs {"choice":["1.5","no"]}`, `regex "(1\\.5|no)"`},
	} {
		for way, want := range map[string]string{"chat": x.chat, "ids": x.ids, "sglang": x.sglang} {
			var asked map[string]json.RawMessage
			o := llmtest.Options{Completions: way == "ids", SGLang: way == "sglang", Window: 512}
			s := llmtest.NewWith(t, o, func(r *llmtest.Request) llmtest.Reply {
				asked = r.Fields
				if inner := r.Fields["sampling_params"]; inner != nil {
					asked = nil
					if err := json.Unmarshal(inner, &asked); err != nil {
						t.Error(err)
					}
				}
				return llmtest.Reply{IDs: []int32{7}, Content: "aa", Finish: "stop"}
			})
			sampling := traj.Sampling{MaxTokens: 8, Grammar: &x.g}
			c, err := llm.New(llm.Config{BaseURL: s.BaseURL(), Model: "mock", WantIDs: true})
			if err != nil {
				t.Fatal(err)
			}
			if way == "chat" {
				_, err = c.Generate(t.Context(), &traj.Request{Messages: []traj.Message{{Role: traj.RoleUser, Content: "x"}}, Sampling: sampling})
			} else {
				_, err = (&llm.Tokens{Client: c, SGLang: way == "sglang"}).Sample(t.Context(), []int32{1, 2}, sampling, 1)
			}
			if err != nil {
				t.Fatal(name, way, err)
			}
			field, value, _ := strings.Cut(want, " ")
			var got, wanted any
			if err := json.Unmarshal([]byte(value), &wanted); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(asked[field], &got); err != nil || !reflect.DeepEqual(got, wanted) {
				t.Errorf("%s, %s: %s is %s, want %s (%v)", name, way, field, asked[field], value, err)
			}
		}
	}
}

// TestAServerThatIgnoresAGrammarIsNamedOnce: older servers leave such fields out without a word.
// A reply that its limit cut off may be the beginning of a good one.
func TestAServerThatIgnoresAGrammarIsNamedOnce(t *testing.T) {
	for name, x := range map[string]struct {
		content, finish string
		told            int
	}{
		"another text":         {"no number", "stop", 1},
		"a text that fits":     {"12", "stop", 0},
		"thinking before it":   {"<think>hm</think>\n\n12", "stop", 0},
		"cut off at its limit": {"1,", "length", 0},
	} {
		told := 0
		s := llmtest.New(t, func(*llmtest.Request) llmtest.Reply { return llmtest.Reply{Content: x.content, Finish: x.finish} })
		c, err := llm.New(llm.Config{BaseURL: s.BaseURL(), Model: "mock",
			Notice: func(said string) {
				if strings.Contains(said, traj.GrammarRegex) {
					told++
				}
			},
			MatchesGrammar: func(g *traj.Grammar, text string) bool { return g.Pattern == "[0-9]+" && text == "12" }})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := c.Generate(t.Context(), &traj.Request{Messages: []traj.Message{{Role: traj.RoleUser, Content: "x"}},
				Sampling: traj.Sampling{Grammar: &traj.Grammar{Kind: traj.GrammarRegex, Pattern: "[0-9]+"}}}); err != nil {
				t.Fatal(err)
			}
		}
		if told != x.told {
			t.Errorf("%s: told %d times, want %d", name, told, x.told)
		}
	}
}

// TestAServerThatRefusesAGrammarNamesTheSetting: whether it names the field or not, and nothing
// else is left out of requests; one that refuses something else is not taken for it.
func TestAServerThatRefusesAGrammarNamesTheSetting(t *testing.T) {
	for name, x := range map[string]struct {
		said    string
		refuses string // the field; "": all requests that have seed
		grammar bool   // it is what is wrong
	}{
		"by name":          {"Unrecognized request argument supplied: structured_outputs", "structured_outputs", true},
		"by its kind":      {"Extra inputs are not permitted", "structured_outputs", true},
		"in no words":      {"Invalid request", "structured_outputs", true},
		"something else":   {"Extra inputs are not permitted", "return_token_ids", false},
		"another, by name": {"Extra inputs are not permitted: return_token_ids", "return_token_ids", false},
	} {
		var told []string
		s := llmtest.New(t, func(r *llmtest.Request) llmtest.Reply {
			if r.Has(x.refuses) {
				return llmtest.Reply{Status: 400, Error: x.said}
			}
			return llmtest.Reply{Content: "a", Finish: "stop"}
		})
		c, err := llm.New(llm.Config{BaseURL: s.BaseURL(), Model: "mock", WantIDs: true, Notice: func(said string) { told = append(told, said) },
			Sleep: func(context.Context, time.Duration) error { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			_, err = c.Generate(t.Context(), &traj.Request{Messages: []traj.Message{{Role: traj.RoleUser, Content: "x"}},
				Sampling: traj.Sampling{Grammar: &traj.Grammar{Kind: traj.GrammarRegex, Pattern: "a"}}})
			if x.grammar != errors.Is(err, traj.ErrFatal) || x.grammar && (len(told) > 0 || !strings.Contains(err.Error(), "Grammar")) ||
				!x.grammar && err != nil {
				t.Errorf("%s: %v, told %q", name, err, told)
			}
			if x.grammar {
				break // the run ends
			}
		}
	}
}
