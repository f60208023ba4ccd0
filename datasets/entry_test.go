package datasets

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentcli/datasets/registry"
	"agentcli/internal/malformed"
	"agentcli/rewards"
)

// soon are rewards that entries name and that are being built.
var soon = []string{}

func TestEveryEntrysRewardIsKnown(t *testing.T) {
	all, err := registry.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	known := append(rewards.Names(), soon...)
	for _, e := range all {
		if !slices.Contains(known, e.Reward) {
			t.Errorf("%s: there is no reward %q", e.Name, e.Reward)
		}
		if e.Generator != "" && generatorNamed(e.Generator) == nil {
			t.Errorf("%s: there is no generator %q", e.Name, e.Generator)
		}
	}
}

// writeFiles writes files into a folder of a test and gives the folder.
func writeFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The files of join are beside an entry without a repository, as those of its splits.
func TestAnEntryJoinsFilesBesideIt(t *testing.T) {
	offline(t)
	dir := writeFiles(t, map[string]string{
		"calls.yaml": "name: calls\nsplits: {test: {files: [one.json, two.json]}}\njoin: {files: ['possible_answer/*.json'], on: id}\n" +
			"fields: {messages: question.0, answer: ground_truth, answer_form: json, id: id, tools: function, meta: [tools]}\nreward: tool-call\n",
		"one.json": `{"id": "one_0", "question": [[{"role": "user", "content": "Add 2 and 3."}]], "function": [{"name": "add", "parameters": ` +
			`{"type": "dict", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}]}` + "\n",
		"two.json":                 `{"id": "two_0", "question": [[{"role": "user", "content": "Go."}]], "function": [{"name": "wait"}]}` + "\n",
		"possible_answer/one.json": `{"id": "one_0", "ground_truth": [{"add": {"a": [2], "b": [3, ""]}}]}` + "\n",
		"possible_answer/two.json": `{"id": "two_0", "ground_truth": [{"wait": {}}]}` + "\n",
	})
	d, err := Open(t.Context(), filepath.Join(dir, "calls.yaml"), Options{ObjectAnswers: rewards.TakesObjects})
	if err != nil {
		t.Fatal(err)
	}
	var answers []string
	for task, err := range d.Tasks(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		answers = append(answers, task.Answers...)
	}
	if want := []string{`[{"add":{"a":[2],"b":[3,""]}}]`, `[{"wait":{}}]`}; !slices.Equal(answers, want) {
		t.Errorf("answers %q, want %q", answers, want)
	}
	if err := os.RemoveAll(filepath.Join(dir, "possible_answer")); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), filepath.Join(dir, "calls.yaml"), Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without the files of join: %v", err)
	}
}

// An entry of the user's says which columns are which, what the prompt is and how replies
// are scored.
func TestAUsersEntryDescribesItsOwnFile(t *testing.T) {
	offline(t)
	dir := writeFiles(t, map[string]string{
		"mine.yaml": "name: mine\nabout: of mine\nsplits: {test: {files: [rows.csv]}}\n" +
			"fields: {question: q, answer: right, answer_form: choice, choices: [right, wrong], shuffle_choices: true, meta: [source]}\n" +
			"prompt: |-\n  {context}\n  Q: {question}\n  {choices}\n  {{context}} \\boxed{x} {}\nsystem: From {source}.\n" +
			"reward: exact\noptions: {strict: true}\nenv: tool\ntools: [calculator]\nlimits: {turns: 3, tokens: 7}\n",
		"rows.csv": "q,context,right,wrong,source\nQ1?,C1,yes,no,S\nQ2?,C2,left,right,S\nQ3?,C3,a,b,S\nQ4?,C4,c,d,S\nQ5?,C5,e,f,S\n",
	})
	o := Options{Registry: []string{dir}}
	d, err := Open(context.Background(), "mine", o)
	if err != nil {
		t.Fatal(err)
	}
	if d.Env != "tool" || d.Reward != "exact" || d.MaxTurns != 3 || d.MaxTokens != 7 || d.Options["strict"] != true || d.Split != "test" ||
		!slices.Equal(d.DefaultTools, []string{"calculator"}) {
		t.Errorf("%+v", d)
	}
	seen := map[string]bool{}
	all := tasks(t, "mine", o)
	for i, task := range all {
		right := []string{"yes", "left", "a", "c", "e"}[i]
		if !strings.Contains(task.Messages[1].Content, task.Answers[0]+". "+right+"\n") {
			t.Errorf("row %d: %s is not the letter of %q in %q", i+1, task.Answers[0], right, task.Messages[1].Content)
		}
		seen[task.Answers[0]] = true
	}
	if !seen["A"] || !seen["B"] {
		t.Errorf("the right choice is always in the same place: %v", seen)
	}
	if got := all[0].Messages[0].Content; got != "From S." {
		t.Error(got)
	}
	if got := all[0].Messages[1].Content; !strings.HasPrefix(got, "C1\nQ: Q1?\nA. ") || !strings.HasSuffix(got, "\n{context} \\boxed{x} {}") {
		t.Error(got)
	}
	if got := string(all[0].Meta); !strings.Contains(got, `"source":"S"`) || !strings.Contains(got, `"choices":[`) ||
		strings.Contains(got, "C1") {
		t.Error(got)
	}
	if byPath := tasks(t, filepath.Join(dir, "mine.yaml"), Options{}); len(byPath) != 5 || byPath[0].ID != all[0].ID {
		t.Errorf("by its path the entry is another: %+v", byPath)
	}
	prompt := "{question} {contxt}"
	if _, err := Open(context.Background(), "mine", Options{Registry: []string{dir}, Prompt: &prompt}); !isFault(err, 1, "prompt",
		malformed.Missing) ||
		!strings.Contains(err.Error(), "{context}") {
		t.Error(err)
	}
}

func isFault(err error, row int, field string, kind malformed.Kind) bool {
	facts := malformed.Facts(err)
	return err != nil && facts.Row == row && facts.Field == field && facts.Kind == kind && !strings.Contains(err.Error(), "\n")
}

func TestFaultsOfAnEntryAndItsRowsAreNamed(t *testing.T) {
	offline(t)
	const row = `{"q":"Q?","a":"K","c":["x","y"],"s":"text \\boxed{\\frac{1}{2}} end","i":1}` + "\n"
	for text, want := range map[string]struct {
		row   int
		field string
		kind  malformed.Kind
	}{
		"fields: {question: nosuch}":                                          {1, "", malformed.Missing},
		"fields: {question: q, answer: nosuch}":                               {1, "", malformed.Missing},
		"fields: {question: q, answer: a, choices: [c]}":                      {1, "a", malformed.Range},
		"fields: {question: q, answer: a, choices: [c], answer_form: letter}": {1, "a", malformed.Range},
		"fields: {question: q, answer: a, choices: [nosuch]}":                 {1, "", malformed.Missing},
		"fields: {question: q, answer: a, choices: [i]}":                      {1, "i", malformed.Type},
		"fields: {question: q, answer: q, answer_form: boxed}":                {1, "q", malformed.Missing},
		"fields: {question: q, answer: a}\nprompt: '{question} {a}'":          {1, "prompt", malformed.Mismatch},
		"fields: {question: q, answer: a}\nprompt: '{question} {nosuch}'":     {1, "prompt", malformed.Missing},
		"fields: {question: q, answer: a}\nsystem: '{nosuch}'":                {1, "prompt", malformed.Missing},
	} {
		dir := writeFiles(t, map[string]string{"mine.yaml": "name: mine\nsplits: {test: {files: [rows.jsonl]}}\n" + text + "\n",
			"rows.jsonl": row})
		if _, err := Open(context.Background(), "mine", Options{Registry: []string{dir}}); !isFault(err, want.row, want.field, want.kind) {
			t.Errorf("%s: %v, want %v", text, err, want)
		}
	}
	for file, text := range map[string]string{"splits": "name: mine\n", "generator": "name: mine\ngenerator: nosuch\n",
		"abuot": "name: mine\nabuot: x\n"} {
		dir := writeFiles(t, map[string]string{"mine.yaml": text})
		if _, err := Open(context.Background(), "mine", Options{Registry: []string{dir}}); malformed.Facts(err).Field != file ||
			malformed.Facts(err).Path != filepath.Join(dir, "mine.yaml") {
			t.Errorf("%s: %v", file, err)
		}
	}
	dir := writeFiles(t, map[string]string{"mine.yaml": "name: mine\nsplits: {test: {files: [none.jsonl]}}\n"})
	if _, err := Open(context.Background(), "mine", Options{Registry: []string{dir}}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestTheFormsOfAnAnswer(t *testing.T) {
	offline(t)
	const row = `{"q":"Q?","letter":"b","index":1,"text":"y","c":["x","y"],"arc":{"text":["x","y"],"label":["1","2"]},` +
		`"abc":{"A":"x","B":"y"},` +
		`"s":"so \\boxed{3} then \\boxed{\\frac{1}{2}} end","bare":"$\\boxed 5$.","calls":[{"f":{"x":[1]}}]}` + "\n"
	for fields, want := range map[string]string{
		"answer: letter, choices: [c], answer_form: letter": "B",
		"answer: letter, choices: [c]":                      "B",
		"answer: index, choices: [c], answer_form: index":   "B",
		"answer: text, choices: [c], answer_form: choice":   "B",
		"answer: text, choices: [c]":                        "B",
		"answer: text, choices: [arc]":                      "B",
		"answer: text, choices: [abc]":                      "B",
		"answer: s, answer_form: boxed":                     `\frac{1}{2}`,
		"answer: bare, answer_form: boxed":                  "5",
		"answer: calls, answer_form: json":                  `[{"f":{"x":[1]}}]`,
		"answer: calls.0.f.x.0":                             "1",
	} {
		dir := writeFiles(t,
			map[string]string{"mine.yaml": "name: mine\nsplits: {test: {files: [rows.jsonl]}}\nfields: {question: q, " + fields + "}\n",
				"rows.jsonl": row})
		got := tasks(t, "mine", Options{Registry: []string{dir}})
		if !slices.Equal(got[0].Answers, []string{want}) {
			t.Errorf("%s: %q, want %q", fields, got[0].Answers, want)
		}
	}
}

func TestAUsersVariantOfAGenerator(t *testing.T) {
	offline(t)
	dir := writeFiles(t,
		map[string]string{"hard.yaml": "name: hard\ngenerator: arith\nlevel: \"3\"\nshots: 1\nreward: math\nprompt: 'Work out: {question}'\n"})
	o := Options{Registry: []string{dir}, Limit: 1}
	got := tasks(t, "hard", o)[0]
	if got.Reward != "math" || !strings.HasPrefix(got.ID, "hard/") || !strings.HasPrefix(got.Messages[len(got.Messages)-1].Content,
		"Work out: What is") ||
		len(got.Messages) != 5 {
		t.Errorf("%+v", got)
	}
	o.Split = "test"
	for _, task := range tasks(t, "hard", o) {
		if splitOf("arith", strings.TrimPrefix(task.ID, "hard/")) == "" {
			t.Error(task.ID)
		}
	}
}

func TestAUsersEntryInPlaceOfOursIsReported(t *testing.T) {
	offline(t)
	dir := writeFiles(t, map[string]string{"gsm8k.yaml": "name: gsm8k\nsplits: {test: {files: [rows.jsonl]}}\nreward: em\n",
		"rows.jsonl": `{"question":"Q?","answer":"x"}` + "\n"})
	said := 0
	d, err := Open(context.Background(), "gsm8k", Options{Registry: []string{dir}, Notice: func(s string) {
		if strings.Contains(s, dir) {
			said++
		}
	}})
	if err != nil || d.Reward != "em" || said != 1 {
		t.Errorf("%+v %v %d", d, err, said)
	}
}

// TestEntriesFitRealFiles reads real files, which are not part of the repository, by the
// fields of their entries.
func TestEntriesFitRealFiles(t *testing.T) {
	dir := os.Getenv("AGENTCLI_DATA")
	if dir == "" {
		t.Skip("set AGENTCLI_DATA to a folder with math500.jsonl and others to try real files")
	}
	offline(t)
	for name, x := range map[string]struct {
		file string
		n    int
	}{"math500": {"math500.jsonl", 500}, "gsm8k": {"gsm8k_test.jsonl", 1319}, "aime2024": {"aime2024.jsonl",
		30}, "aime2025": {"aime2025.jsonl", 30},
		"nq": {"flashrag_nq_quickstart.jsonl", 17}} {
		e, err := EntryNamed(name)
		if err != nil || e == nil {
			t.Fatal(name, err)
		}
		m, err := newMapping(nil, e.Fields, false)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for p, err := range (problemReader{path: filepath.Join(dir, x.file), mapping: m}).all(context.Background()) {
			if err != nil {
				t.Fatal(name, err)
			}
			if !p.answered() || p.Question == "" {
				t.Errorf("%s: row %d: %+v", name, p.row, p)
			}
			n++
		}
		if n != x.n {
			t.Errorf("%s: %d rows, want %d", name, n, x.n)
		}
	}
}

func TestAnImportKeepsItsSettings(t *testing.T) {
	offline(t)
	file := filepath.Join(writeFiles(t, map[string]string{"rows.jsonl": `{"q":"Q?","a":"x","context":"C"}` + "\n"}), "rows.jsonl")
	o := Options{Fields: map[string]string{"question": "q", "answer": "a"},
		Keep: &registry.Entry{Reward: "em", Prompt: "{context} {question}", System: "S", Tools: []string{"calculator"}}}
	if _, _, err := Import(context.Background(), "mine", file, o); err != nil {
		t.Fatal(err)
	}
	check := func(what string) {
		t.Helper()
		got := tasks(t, "mine", Options{})[0]
		if got.Reward != "em" || got.Messages[1].Content != "C Q?" || got.Messages[0].Content != "S" || !slices.Equal(got.Tools,
			[]string{"calculator"}) {
			t.Errorf("%s: %+v", what, got)
		}
	}
	check("imported")
	if _, _, err := Import(context.Background(), "mine", file, Options{Fields: o.Fields, Replace: true}); err != nil {
		t.Fatal(err)
	}
	check("imported again without settings")
	for _, in := range List("", nil) {
		if in.Name == "mine" && (in.Kind != "imported" || in.Reward != "em" || !in.Local) {
			t.Errorf("%+v", in)
		}
	}
	o.Replace, o.Keep = true, &registry.Entry{Prompt: "{question} {contxt}"}
	if _, _, err := Import(context.Background(), "mine", file, o); !isFault(err, 1, "prompt", malformed.Missing) {
		t.Error(err)
	}
	o.Keep = &registry.Entry{Prompt: "{context}"}
	if option := (*OptionError)(nil); !errors.As(importError(file, o), &option) || option.Option != "Prompt" {
		t.Error(importError(file, o))
	}
	check("after imports that failed")

	// A benchmark keeps what is known of it.
	o = Options{Keep: &registry.Entry{Reward: "em"}, Fields: o.Fields}
	if _, _, err := Import(context.Background(), "gsm8k", file, o); err != nil {
		t.Fatal(err)
	}
	if got := tasks(t, "gsm8k", Options{})[0]; got.Reward != "em" || !strings.Contains(got.Messages[0].Content, `\boxed{}`) ||
		TrainSplit("gsm8k") != "train" {
		t.Errorf("%+v", got)
	}
}

func importError(file string, o Options) error {
	_, _, err := Import(context.Background(), "mine", file, o)
	return err
}
