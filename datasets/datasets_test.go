package datasets

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentcli/internal/malformed"
	"agentcli/internal/setting"
	"agentcli/internal/setting/settingtest"
	"agentcli/parquet"
	"agentcli/traj"

	"github.com/google/go-cmp/cmp"
)

func ptr[T any](v T) *T { return &v }

func offline(t *testing.T) {
	t.Setenv("HF_HUB_OFFLINE", "1")
	t.Setenv("HF_HOME", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
}

func tasks(t *testing.T, name string, o Options) []traj.Task {
	t.Helper()
	d, err := Open(context.Background(), name, o)
	if err != nil {
		t.Fatal(err)
	}
	var out []traj.Task
	for task, err := range d.Tasks(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, task)
	}
	return out
}

func TestArithPrompt(t *testing.T) {
	got := tasks(t, "arith", Options{Limit: 1, Seed: 3})[0]
	want := []traj.Message{
		{Role: "user", Content: "What is 12 * 7?"},
		{Role: "assistant", ToolCalls: []traj.ToolCall{{ID: "call_shot0_0", Name: "calculator", Arguments: `{"expression": "12*7"}`}}},
		{Role: "tool", Name: "calculator", ToolCallID: "call_shot0_0", Content: "84"},
		{Role: "assistant", Content: "84"},
		{Role: "user", Content: "What is 35 + 8?"},
		{Role: "assistant", ToolCalls: []traj.ToolCall{{ID: "call_shot1_0", Name: "calculator", Arguments: `{"expression": "35+8"}`}}},
		{Role: "tool", Name: "calculator", ToolCallID: "call_shot1_0", Content: "43"},
		{Role: "assistant", Content: "43"},
		{Role: "user", Content: got.Question},
	}
	if d := cmp.Diff(want, got.Messages); d != "" {
		t.Error(d)
	}
	if got.Reward != "exact" || !cmp.Equal(got.Tools, []string{"calculator"}) || len(got.Answers) != 1 {
		t.Errorf("%+v", got)
	}
	lw := tasks(t, "lastword", Options{Limit: 1})[0].Messages
	if len(lw) != 6 || lw[0].Content != "Answer with only one word." {
		t.Errorf("lastword: %+v", lw)
	}
	if ms := tasks(t, "lastword", Options{Limit: 1, Shots: ptr(0), System: ptr("")})[0].Messages; len(ms) != 1 {
		t.Errorf("without shots and system: %+v", ms)
	}
}

// shown is what a model sees of a problem.
func shown(t traj.Task) string {
	m := t.Messages[len(t.Messages)-1]
	for _, im := range m.Images {
		m.Content += im.Hash
	}
	return m.Content
}

// Whatever the seeds, train and test never share a problem, no worked example
// is a problem, no id comes twice, and a seed is an order of its own.
func TestGeneratedSplits(t *testing.T) {
	if n := len(words); n < 50 {
		t.Fatal(n)
	}
	seenWord := map[string]bool{}
	for _, w := range words {
		if seenWord[w] {
			t.Errorf("the word %s is there twice", w)
		}
		seenWord[w] = true
	}
	for _, g := range generators {
		n := 600
		if g.name == "fineprint" {
			n = 60 // its images take time
		}
		for level := 1; level <= g.levels; level++ {
			lv := string(rune('0' + level))
			train := map[string]bool{}
			var orders []string
			for seed := int64(0); seed < 3; seed++ {
				ids := map[string]bool{}
				var order []string
				for _, task := range tasks(t, g.name, Options{Split: "train", Level: lv, Seed: seed, Limit: n}) {
					if ids[task.ID] {
						t.Fatalf("%s level %d seed %d: %s twice", g.name, level, seed, task.ID)
					}
					ids[task.ID], train[shown(task)] = true, true
					order = append(order, task.ID)
				}
				if len(ids) != n {
					t.Fatalf("%s level %d: only %d problems", g.name, level, len(ids))
				}
				orders = append(orders, strings.Join(order, " "))
			}
			if orders[0] == orders[1] {
				t.Errorf("%s: the seed changes nothing", g.name)
			}
			if again := tasks(t, g.name, Options{Split: "train", Level: lv, Seed: 1,
				Limit: n}); again[n-1].ID != orders[1][strings.LastIndex(orders[1], " ")+1:] {
				t.Errorf("%s: a seed does not repeat", g.name)
			}
			for _, task := range tasks(t, g.name, Options{Split: "test", Level: lv, Seed: 9, Limit: n / 2}) {
				if train[shown(task)] {
					t.Errorf("%s level %d: %q is in both splits", g.name, level, task.Question)
				}
			}
			for _, e := range g.examples(level) {
				for i := uint64(0); i < min(g.space(level), 30000); i++ {
					if m, ok := g.make(level, i); ok && m.key == e.key {
						t.Errorf("%s level %d: the worked example %s is a problem", g.name, level, e.id)
					}
				}
			}
		}
	}
	// The whole of arith: as many problems as there are, each once.
	all := map[string]bool{}
	for _, split := range []string{"train", "test"} {
		for _, task := range tasks(t, "arith", Options{Split: split}) {
			if all[task.ID] {
				t.Fatalf("%s twice", task.ID)
			}
			all[task.ID] = true
		}
	}
	if want := 2*8100 + 90*91/2; len(all) != want {
		t.Errorf("%d problems, want %d", len(all), want)
	}
	if commuted := splitOf("arith", arithProblem(34, '+', 21).key); commuted != splitOf("arith", arithProblem(21, '+', 34).key) {
		t.Error("34+21 and 21+34 are in different splits")
	}
}

const question, boxed = "Q?", "Q?\n\nPlease reason step by step, and put your final answer within \\boxed{}."

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	offline(t)
	for _, tc := range []struct {
		name, file, data string
		fields           map[string]string
		answers          []string
		prompt, id       string
	}{
		{"jsonl", "a.jsonl", `{"problem":"Q?","answer":27.0,"id":60}`, nil, []string{"27.0"}, boxed, "a/60"},
		{"bom and blank lines", "a.jsonl", "\xef\xbb\xbf" + `{"question":"Q?","answer":"x"}` + "\r\n\r\n", nil, []string{"x"}, boxed, "a/0"},
		{"large number", "a.jsonl", `{"question":"Q?","answer":123456789012345678901234567890}`, nil,
			[]string{"123456789012345678901234567890"}, boxed, "a/0"},
		{"list", "a.jsonl", `{"question":"Q?","golden_answers":["a",["b",3]]}`, nil, []string{"a", "b", "3"}, boxed, "a/0"},
		{"gsm8k", "a.jsonl", `{"question":"Q?","answer":"so 1+1=2\n#### 1,234"}`, nil, []string{"1,234"}, boxed, "a/0"},
		{"prompt is verbatim", "a.jsonl", `{"prompt":"Q?","answer":"x"}`, nil, []string{"x"}, question, "a/0"},
		{"fields", "a.jsonl", `{"q":{"text":["no","Q?"]},"gold":{"v":"x"},"key":"k#1"}`,
			map[string]string{"question": "q.text.1", "answer": "gold.v", "id": "key"}, []string{"x"}, boxed, "a/k_1"},
		{"messages", "a.jsonl", `{"messages":[{"role":"user","content":"Q?"}],"answer":"x"}`, nil, []string{"x"}, question, "a/0"},
		{"json array", "a.json", ` [ {"question":"Q?","answer":"x"} ]`, nil, []string{"x"}, boxed, "a/0"},
		{"json wrapper", "a.json", `{"version":1,"data":[{"question":"Q?","answer":"x"}]}`, nil, []string{"x"}, boxed, "a/0"},
		{"json lines", "a.json", `{"question":"Q?","answer":"x"}` + "\n" + `{"question":"R?","answer":"y"}`, nil, []string{"x"}, boxed, "a/0"},
		{"csv", "a.csv", "id,problem,answer\n7,Q?,\"1,000\"\n", nil, []string{"1,000"}, boxed, "a/7"},
	} {
		path := filepath.Join(dir, tc.file)
		if err := os.WriteFile(path, []byte(tc.data), 0o600); err != nil {
			t.Fatal(err)
		}
		got := tasks(t, path, Options{Fields: tc.fields})[0]
		if !cmp.Equal(got.Answers, tc.answers) || got.Messages[len(got.Messages)-1].Content != tc.prompt || got.ID != tc.id {
			t.Errorf("%s: %+v", tc.name, got)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFileErrors(t *testing.T) {
	dir := t.TempDir()
	offline(t)
	for _, tc := range []struct {
		file, data string
		want       malformed.Error
	}{
		{"a.jsonl", `{"question":"Q?"}` + "\n" + `{"question":`, malformed.Error{Row: 2, Kind: malformed.Truncated}},
		{"a.jsonl", `[1]`, malformed.Error{Row: 1, Kind: malformed.Type}},
		{"a.jsonl", `{"text":"Q?"}`, malformed.Error{Row: 1, Kind: malformed.Missing}},
		{"a.jsonl", `{"question":"Q?","answer":{"a":1}}`, malformed.Error{Row: 1, Field: "answer", Kind: malformed.Type}},
		{"a.jsonl", `{"question":"Q?","id":1}` + "\n" + `{"question":"R?","id":"1"}`, malformed.Error{Row: 2, Kind: malformed.Duplicate}},
		{"a.jsonl", `{"messages":[{"role":"boss","content":"x"}]}`, malformed.Error{Row: 1, Field: "messages.role", Kind: malformed.Unsupported}},
		{"a.jsonl", "", malformed.Error{Kind: malformed.Missing}},
		{"a.json", `[{"question":"Q?"}, 3]`, malformed.Error{Row: 2, Kind: malformed.Type}},
		{"a.json", `[{"question":"Q?"}`, malformed.Error{Row: 2, Kind: malformed.Truncated}},
		{"a.csv", "question,answer\nQ?,1\nR?,2,3\n", malformed.Error{Row: 2, Line: 3, Kind: malformed.Mismatch}},
	} {
		path := filepath.Join(dir, tc.file)
		if err := os.WriteFile(path, []byte(tc.data), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Open(context.Background(), path, Options{})
		tc.want.Path = path
		if got := malformed.Facts(err); got != tc.want || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s %q: %v, want %+v", tc.file, tc.data, err, tc.want)
		}
	}
	noParquet := filepath.Join(dir, "a.parquet")
	if err := os.WriteFile(noParquet, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(context.Background(), noParquet, Options{}); !errors.Is(err, parquet.ErrNotParquet) || !strings.Contains(err.Error(),
		noParquet) {
		t.Errorf("a.parquet: %v", err)
	}
	t.Chdir(t.TempDir())
	if err := os.Mkdir("gsm9k", 0o755); err != nil { // a folder is no misspelt name
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name   string
		o      Options
		is     error
		option setting.Name
		words  []string // the names or the values that remain
	}{
		{"amie2024", Options{}, ErrUnknown, "", []string{"aime2024", "aime2025", "aime2026"}},
		{"math-500", Options{}, ErrUnknown, "", []string{"math500", "math"}},
		{"zzzzzzzz", Options{}, ErrUnknown, "", nil},
		{"gsm9k", Options{}, ErrUnknown, "", nil},
		{"aime2024", Options{}, ErrNotHere, "datasets.Import", nil},
		{"none.jsonl", Options{}, os.ErrNotExist, "", nil},
		{"arith", Options{Level: "4"}, ErrOptions, "Level", []string{"1", "2", "3"}},
		{"arith", Options{Split: "dev"}, ErrOptions, "Split", []string{"train", "test"}},
		{"arith", Options{Shots: ptr(99)}, ErrOptions, "Shots", nil},
		{"aime2024", Options{Level: "2"}, ErrOptions, "Level", nil},
		{"a.jsonl", Options{Fields: map[string]string{"quest": "x"}}, ErrOptions, "Fields",
			[]string{"question", "prompt", "messages", "answer", "id", "env", "tools", "images"}},
	} {
		_, err := Open(context.Background(), tc.name, tc.o)
		if !errors.Is(err, tc.is) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %v in one line", tc.name, err, tc.is)
			continue
		}
		var unknown *UnknownError
		if errors.Is(tc.is, ErrUnknown) && (!errors.As(err, &unknown) || unknown.Name != tc.name || !slices.Equal(unknown.Near, tc.words)) {
			t.Errorf("%s: %v, want the names %v", tc.name, err, tc.words)
		}
		var option *OptionError
		if errors.Is(tc.is, ErrOptions) && (!errors.As(err, &option) || option.Option != tc.option || !slices.Equal(option.Has, tc.words)) {
			t.Errorf("%s: %v, want %s with %v", tc.name, err, tc.option, tc.words)
		}
		if errors.Is(tc.is, ErrNotHere) && !settingtest.Names(err, tc.option) {
			t.Errorf("%s: %v, want a remedy by %s", tc.name, err, tc.option)
		}
	}
}

func TestImport(t *testing.T) {
	offline(t)
	path := filepath.Join(t.TempDir(), "my.jsonl")
	if err := os.WriteFile(path, []byte(`{"problem":"Q?","answer":[204],"level":3}`+"\n"+`{"problem":"R <b>?","answer":25.0}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"aime2024", "mine"} {
		if n, _, err := Import(context.Background(), name, path, Options{}); err != nil || n != 2 {
			t.Fatal(n, err)
		}
		got := tasks(t, name, Options{})
		if got[0].ID != name+"/0" || got[1].Question != "R <b>?" || got[1].Answers[0] != "25.0" || got[0].Reward != "math" ||
			string(got[0].Meta) != `{"level":3}` || got[0].Messages[0].Content != boxed || got[0].Split != "test" && name == "aime2024" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if d, err := Open(context.Background(), "mine", Options{Limit: 1}); err != nil {
		t.Error(err)
	} else if n, ok := d.Len(); n != 1 || !ok {
		t.Error(n, ok)
	}
	for _, bad := range []string{"../x", "arith", "a b", ""} {
		if _, _, err := Import(context.Background(), bad, path, Options{}); err == nil {
			t.Errorf("%q was imported", bad)
		}
	}
	if names := strings.Join(Names(""), " "); !strings.HasSuffix(names,
		"arith chain countdown findfact fineprint knights largest lastword letters mine") {
		t.Error(names)
	}
	for _, in := range List("", nil) {
		if in.Local != (in.Kind != "benchmark" || in.Name == "aime2024") {
			t.Errorf("%+v", in)
		}
	}
}

// TestSharedData opens real benchmark files, which are not part of the
// repository.
func TestSharedData(t *testing.T) {
	dir := os.Getenv("AGENTCLI_DATA")
	if dir == "" {
		t.Skip("set AGENTCLI_DATA to a folder with aime2024.jsonl and others to try real files")
	}
	offline(t)
	files, _ := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	for _, f := range files {
		if strings.Contains(f, "corpus") {
			continue // documents, not questions
		}
		n, _, err := Import(context.Background(), FileName(f), f, Options{})
		if err != nil {
			t.Error(err)
			continue
		}
		got := tasks(t, FileName(f), Options{})
		if len(got) != n || len(got[n-1].Answers) == 0 {
			t.Errorf("%s: %d rows, %d tasks", f, n, len(got))
		}
	}
}

func FuzzMapping(f *testing.F) {
	f.Add(`{"question":"Q?","answer":["a",["b",3]],"id":1}`)
	f.Add(`{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"x","arguments":{}}}]}]}`)
	f.Fuzz(func(t *testing.T, s string) {
		row, err := object([]byte(s))
		if err != nil {
			return
		}
		p, err := mapping{}.read(row)
		if err == nil && len(p.Meta) > 0 && !json.Valid(p.Meta) {
			t.Errorf("meta %q", p.Meta)
		}
	})
}

// Only a worked solution ends in #### and its answer: tests of a program may have it anywhere.
func TestTestsAreNoWorkedSolutions(t *testing.T) {
	for answer, want := range map[string]string{
		"so\n#### 1,018":                         "1,018",
		"#### a comment\nassert f('####') == 4":  "#### a comment\nassert f('####') == 4",
		`{"inputs": ["####"], "outputs": ["4"]}`: `{"inputs": ["####"], "outputs": ["4"]}`,
	} {
		if got, err := ReadAnswers(answer, false); err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("%q is %q, %v", answer, got, err)
		}
	}
}
