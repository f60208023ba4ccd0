package datasets

import (
	"os"
	"path/filepath"
	"testing"

	"agentcli/datasets/registry"
)

// An entry's prompt is for its own environment; in another one that environment's counts, and
// the user's in all.
func TestThePromptIsTheEnvironmentsUnlessTheEntryHasOneForIt(t *testing.T) {
	search := map[string]EnvDefaults{"search": {Prompt: "Search: {question}"}}
	mine := "Mine: {question}"
	for _, c := range []struct {
		env, prompt, run string // the entry's, and the environment of the run
		user             *string
		want             string
	}{
		{"search", "Find: {question}", "", nil, "Find: x"},
		{"search", "", "", nil, "Search: x"},
		{"", "Find: {question}", "search", nil, "Search: x"},
		{"search", "Find: {question}", "tool", nil, "Find: x"},
		{"search", "Find: {question}", "", &mine, "Mine: x"},
	} {
		o := Options{EnvDefaults: search, Env: c.run, Prompt: c.user}
		d := &Dataset{Name: "d"}
		d.suggest(&entry{Entry: registry.Entry{Name: "d", Env: c.env, Prompt: c.prompt}}, o)
		task, err := d.task(problem{ID: "1", Question: "x"}, o)
		if err != nil || task.Messages[0].Content != c.want {
			t.Errorf("%+v: %+v, %v", c, task.Messages, err)
		}
	}
}

// What the user names is not among them: then there are no rewards of sources and environments.
func TestTheRewardOfARowIsTheFirstThatThereIs(t *testing.T) {
	o := Options{SourceRewards: map[string]string{"vstar": "deepeyes"},
		EnvDefaults: map[string]EnvDefaults{"look": {Reward: "em", System: "Look."}}}
	const verl = `"reward_model": {"ground_truth": "a"}`
	for _, c := range []struct{ entry, row, want string }{
		{"", `{"question": "x", "answer": "a"}`, "math"},
		{"", `{"question": "x", "answer": "a", "env": "look"}`, "em"},
		{"", `{"question": "x", "env": "look", "data_source": "vstar", ` + verl + `}`, "deepeyes"},
		{"", `{"question": "x", "env": "look", "data_source": "other", ` + verl + `}`, "em"},
		{"", `{"question": "x", "data_source": "other", ` + verl + `}`, "math"},
		{"", `{"question": "x", "data_source": ["vstar"], ` + verl + `}`, "math"},
		{"", `{"question": "x", "answer": "a", "data_source": "vstar"}`, "math"},                      // another program's column
		{"", `{"question": "x", "answer": "a", "data_source": "vstar", "reward_model": "x"}`, "math"}, // likewise
		{"", `{"question": "x", "answer": "a", "meta": {"data_source": "vstar", ` + verl + `}}`, "deepeyes"},
		{"f1", `{"question": "x", "env": "look", "data_source": "vstar", ` + verl + `}`, "f1"},
		{"", `{"question": "x", "env": "look"}`, ""}, // nothing to compare with
	} {
		path := filepath.Join(t.TempDir(), "rows.jsonl")
		if err := os.WriteFile(path, []byte(c.row+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		d, err := openFile(t.Context(), fileSource{path: path, name: "rows", entry: &entry{Entry: registry.Entry{Reward: c.entry}}}, o)
		if err != nil {
			t.Fatal(err)
		}
		for task, err := range d.Tasks(t.Context()) {
			if err != nil || task.Reward != c.want || d.Reward != c.want {
				t.Errorf("%s: %q of %q, %v; want %q", c.row, task.Reward, d.Reward, err, c.want)
			}
			if looks := task.Env == "look"; looks != (task.Messages[0].Content == "Look.") {
				t.Errorf("%s: %+v", c.row, task.Messages)
			}
		}
	}
}
