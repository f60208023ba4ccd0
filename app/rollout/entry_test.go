package rollout

import (
	"slices"
	"strings"
	"testing"

	"agentcli/datasets"
	"agentcli/datasets/registry"
	"agentcli/internal/malformed"
	"agentcli/rewards"
)

// What a dataset's entry says of its environment comes before what that environment implies.
func TestAnEntrysEnvironmentKeepsTheEntrysLimits(t *testing.T) {
	search, err := environmentNamed("search")
	if err != nil {
		t.Fatal(err)
	}
	d := &datasets.Dataset{Env: "search", DefaultTools: []string{}, MaxTurns: 9}
	if o := settled(Options{}, search, d); o.MaxTurns != 9 || o.Sampling.MaxTokens != searchTokens || len(o.Tools) != 0 {
		t.Errorf("%+v", o)
	}
	d.Env = ""
	if o := settled(Options{}, search, d); o.MaxTurns != searchTurns {
		t.Errorf("another environment took the entry's limits: %+v", o)
	}
}

func TestOptionsOfADatasetsRewardAreUnderTheUsers(t *testing.T) {
	d := &datasets.Dataset{Reward: "math", Options: map[string]any{"strict": true, "profile": "rllm"}}
	got, err := graderOptions(Options{Grader: rewards.Options{Profile: "minerva"}}, d)
	if err != nil || !got.Strict || got.Profile != "minerva" {
		t.Errorf("%+v %v", got, err)
	}
	if got, err = graderOptions(Options{Reward: "em"}, d); err != nil || got.Strict {
		t.Errorf("options of another reward: %+v %v", got, err)
	}
	d.Options = map[string]any{"strikt": true}
	if _, err = graderOptions(Options{}, d); err == nil {
		t.Error("an unknown option was taken")
	}
}

// An entry names what there is: its reward with its options, its environment, its tools.
func TestTheNamesInAnEntryAreChecked(t *testing.T) {
	for _, x := range []struct {
		e     registry.Entry
		field []string
	}{
		{registry.Entry{}, nil},
		{registry.Entry{Reward: "em", Options: map[string]any{"strict": true}, Env: "search", Tools: []string{"search"}}, nil},
		{registry.Entry{Reward: "judge"}, nil},
		{registry.Entry{Reward: "exec:python3 x.py"}, nil},
		{registry.Entry{Reward: "math:1,repetition:.2", Options: map[string]any{"repetition": map[string]any{"n": 4}}}, nil},
		{registry.Entry{Reward: "nosuch", Env: "nosuch", Tools: []string{"search", "nosuch"}}, []string{"reward", "env", "tools"}},
		{registry.Entry{Reward: "em", Options: map[string]any{"strikt": true}}, []string{"options"}},
		{registry.Entry{Options: map[string]any{"profile": "nosuch"}}, []string{"options"}},
		{registry.Entry{Reward: "math:1,cosine:.5", Options: map[string]any{"cosine": map[string]any{"max": -1}}}, []string{"options"}},
		{registry.Entry{Reward: "http://127.0.0.1:1/", Options: map[string]any{"strict": true}}, []string{"options"}},
		{registry.Entry{Reward: "cosine"}, []string{"reward"}},
	} {
		var fields []string
		for _, err := range CheckEntry(x.e) {
			fields = append(fields, strings.SplitN(malformed.Facts(err).Field, ".", 2)[0])
		}
		if !slices.Equal(fields, x.field) {
			t.Errorf("%+v: %v, want %v", x.e, fields, x.field)
		}
	}
}

// A search server is refused where no row is played with the tool search, and nowhere else.
func TestASearchServerWithoutATaskIsRefused(t *testing.T) {
	const url = "http://127.0.0.1:1"
	for _, x := range []struct {
		name    string
		o       Options
		tools   []string
		refused bool
	}{
		{"no tool", Options{Command: "eval", Retriever: url}, nil, true},
		{"passages of no search", Options{Command: "eval", RetrieverTopK: 5}, nil, true},
		{"another environment", Options{Command: "loop", Env: "no-search", Retriever: url}, nil, true},
		{"the tool", Options{Command: "eval", Retriever: url}, []string{"calculator", "search"}, false},
		{"a run that goes on", Options{Command: "eval", Retriever: url, Resume: "run"}, nil, false},
		{"a loop, whose held-out tasks may search", Options{Command: "loop", Retriever: url}, nil, false},
		{"nothing is given", Options{Command: "eval"}, nil, false},
	} {
		s := &envSetups{given: x.o, data: &datasets.Dataset{}, all: []*envSetup{{tools: &toolset{names: x.tools}}}}
		if err := s.checkRetriever(); (err != nil) != x.refused {
			t.Errorf("%s: %v", x.name, err)
		}
	}
}
