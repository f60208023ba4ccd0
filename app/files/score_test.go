package files

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentcli/app/console"
	"agentcli/internal/exit"
	"agentcli/internal/malformed"
	"agentcli/parquet/parquettest"
	"agentcli/rewards"
	"agentcli/traj"
)

func lines(t *testing.T, name string, rows ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(strings.Join(rows, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func scored(t *testing.T, o ScoreOptions) (rows []map[string]any, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	err = Score(t.Context(), o, console.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	for d := json.NewDecoder(&out); d.More(); {
		var row map[string]any
		if err := d.Decode(&row); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	return rows, err
}

func summed(t *testing.T, o ScoreOptions) *scoreSummary {
	t.Helper()
	var out bytes.Buffer
	sum, err := scoreFile(t.Context(), &o, console.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// Rows are scored at once, by a program too, and come out in the file's order; what is
// before a bad row comes out.
func TestRowsComeOutInOrder(t *testing.T) {
	var in []string
	for i := range 300 {
		in = append(in, fmt.Sprintf(`{"id": "r%d", "response": "\\boxed{%d}", "answer": "%d"}`, i, i%7, i%5))
	}
	for _, reward := range []string{"math", "exact"} {
		rows, err := scored(t, ScoreOptions{Path: lines(t, "r.jsonl", in...), Reward: reward})
		if err != nil || len(rows) != 300 {
			t.Fatalf("%d rows, %v", len(rows), err)
		}
		for i, row := range rows {
			if row["id"] != fmt.Sprint("r", i) || reward == "math" && row["correct"] != (i%7 == i%5) {
				t.Fatalf("row %d is %v", i, row)
			}
		}
	}
	bad := append(append([]string{}, in[:150]...), `{"id": "x", "response": 3, "answer": "1"}`)
	rows, err := scored(t, ScoreOptions{Path: lines(t, "r.jsonl", append(bad, in[151:]...)...), Reward: "math"})
	if f := malformed.Facts(err); len(rows) != 150 || f.Row != 151 || f.Field != "response" {
		t.Errorf("%d rows before the bad one, %v", len(rows), err)
	}
}

// A row that the reward fails on becomes a reward_error, and the others are scored; the
// output can be scored again.
func TestScoreGoesOnBehindARowThatFails(t *testing.T) {
	rows, err := scored(t, ScoreOptions{Reward: "regex", Path: lines(t, "r.jsonl",
		`{"id": "a", "response": "2", "answer": "2", "reward": 1, "correct": true, "verdict": "right"}`,
		`{"id": "b", "response": "2", "answer": "(", "reward": 1, "correct": true, "verdict": "right"}`,
		`{"id": "c", "response": "3", "answer": "2"}`)})
	var partial exit.PartialError
	if f := malformed.Facts(err); !errors.As(err, &partial) || f.Row != 2 || f.Field != "answer" || len(rows) != 3 {
		t.Fatalf("%v, %v", rows, err)
	}
	if x := rows[1]; x["termination"] != "reward_error" || x["error"] == nil || x["reward"] != nil || x["correct"] != nil ||
		x["verdict"] != nil {
		t.Errorf("%v", x)
	}
	if rows[0]["correct"] != true || rows[2]["correct"] != false || rows[0]["termination"] != nil {
		t.Errorf("%v", rows)
	}
	rows[1]["answer"] = "2"
	again, err := json.Marshal(rows[1])
	if err != nil {
		t.Fatal(err)
	}
	if rows, err = scored(t, ScoreOptions{Reward: "regex", Path: lines(t, "r.jsonl", string(again))}); err != nil || len(rows) != 1 {
		t.Fatalf("%v, %v", rows, err)
	}
	if x := rows[0]; x["termination"] != "answered" || x["error"] != nil || x["reward"] != 1. {
		t.Errorf("scored again: %v", x)
	}
}

// Where all rows fail the command has failed, and a long file ends early.
func TestScoreEndsWhereTheFirstRowsAllFail(t *testing.T) {
	for n, want := range map[int]int{1: 1, 5: 5, maxFailedFirst + 30: maxFailedFirst} {
		in := slices.Repeat([]string{`{"response": "2", "answer": "("}`}, n)
		rows, err := scored(t, ScoreOptions{Reward: "regex", Path: lines(t, "r.jsonl", in...)})
		var partial exit.PartialError
		if len(rows) != want || err == nil || errors.As(err, &partial) || malformed.Facts(err).Row != 1 {
			t.Errorf("%d rows: %d written, %v", n, len(rows), err)
		}
	}
}

// ^C is no failure of the reward.
func TestAnInterruptedScoreMarksNoRow(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	err := Score(ctx, ScoreOptions{Reward: "exec:cat >/dev/null", Path: lines(t, "r.jsonl", `{"response": "2", "answer": "2"}`)},
		console.Streams{In: strings.NewReader(""), Out: &out, Err: io.Discard})
	if !errors.Is(err, context.Canceled) || out.Len() > 0 {
		t.Errorf("%q, %v", out.String(), err)
	}
}

func TestAnotherVerdictIsCounted(t *testing.T) {
	path := lines(t, "r.jsonl",
		`{"id": "a", "response": "2", "answer": "2", "correct": true, "reward": 1}`,
		`{"id": "b", "response": "3", "answer": "2", "correct": true, "reward": 1}`,
		`{"id": "c", "response": "2", "answer": "2", "correct": false, "reward": 0}`,
		`{"id": "d", "response": "3", "answer": "2", "correct": false, "reward": 0.5}`,
		`{"id": "e", "response": "3", "answer": "2"}`)
	sum := summed(t, ScoreOptions{Path: path, Reward: "math"})
	c := sum.changes
	if c.verdicts != (verdicts{{1, 1}, {1, 1}}) || c.rewards != 3 || len(c.rows) != 2 || !strings.Contains(c.rows[0], "b") ||
		!strings.Contains(c.rows[1], "c") {
		t.Errorf("%+v", c)
	}
}

// The example of Cohen's κ in the literature: 20 and 15 agree, 5 and 10 do not: .4.
func TestKappa(t *testing.T) {
	for _, c := range []struct {
		v    verdicts
		want float64
	}{
		{verdicts{{20, 5}, {10, 15}}, .4}, {verdicts{{5, 0}, {0, 5}}, 1}, {verdicts{{0, 5}, {5, 0}}, -1}, {verdicts{{25, 25}, {25, 25}}, 0},
	} {
		if got, ok := c.v.kappa(); !ok || math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%v: %v, want %v", c.v, got, c.want)
		}
	}
	if _, ok := (&verdicts{{0, 0}, {0, 9}}).kappa(); ok {
		t.Error("κ where both always say right")
	}
}

func TestScoresAreComparedWithLabels(t *testing.T) {
	path := lines(t, "r.jsonl", `{"id": "q#0", "task_id": "q", "response": "2", "answer": "2"}`, `{"id": "b", "response": "3", "answer": "2"}`,
		`{"id": "c", "response": "2", "answer": "2"}`, `{"id": "d", "response": "2", "answer": "2"}`)
	labels := lines(t, "l.jsonl", `{"id": "q", "label": true}`, `{"id": "b", "label": 1}`, `{"id": "c", "human": 0}`)
	if v := summed(t, ScoreOptions{Path: path, Reward: "math", Against: labels}).labels.verdicts; v != (verdicts{{0, 1}, {1, 1}}) {
		t.Errorf("%v", v)
	}
	for file, kind := range map[string]malformed.Kind{
		`{"label": true}`:             malformed.Missing,
		`{"id": "q"}`:                 malformed.Missing,
		`{"id": "q", "label": "yes"}`: malformed.Type,
		`{"id": "q", "label": 0.5}`:   malformed.Type,
		"{\"id\": \"q\", \"label\": true}\n{\"id\": \"q\", \"label\": true}": malformed.Duplicate,
		`{"id": "other", "label": true}`:                                     malformed.Missing,
	} {
		if _, err := scored(t, ScoreOptions{Path: path, Reward: "math", Against: lines(t, "l.jsonl", file)}); !errors.Is(err, kind) {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// The example program of docs/rewards.md, with rewards of steps.
func TestTheExampleProgramScores(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3 here")
	}
	path := lines(t, "r.jsonl",
		`{"id": "a", "response": "It is about 3.5 km.", "answer": "3.5 km"}`,
		`{"id": "b", "response": "3.5 miles", "answer": "3.5 km"}`,
		`{"id": "c", "response": "no idea", "answer": "3.5 km"}`,
		`{"id": "d", "answer": "4 %", "messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": "", "tool_calls": [`+
			`{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}, {"role": "tool", "content": "4", `+
			`"tool_call_id": "1"}, `+
			`{"role": "assistant", "content": "4 %"}], "steps": [{"reward": 9, "finish_reason": "tool_calls"}, {"reward": 7, `+
			`"finish_reason": "stop"}]}`)
	rows, err := scored(t, ScoreOptions{Path: path, Reward: "exec:python3 ../../examples/reward_python/units.py"})
	if err != nil || len(rows) != 4 {
		t.Fatal(rows, err)
	}
	for i, want := range []float64{1, .5, 0, 1} {
		if rows[i]["reward"] != want || rows[i]["correct"] != (want == 1) {
			t.Errorf("row %d: %v", i, rows[i])
		}
	}
	steps := rows[3]["steps"].([]any)
	if a, b := steps[0].(map[string]any)["reward"], steps[1].(map[string]any)["reward"]; a != .05 || b != nil {
		t.Errorf("the steps' rewards are %v and %v", a, b)
	}
}

func TestRowsHaveOptionsMetaAndLengthsOfTheirOwn(t *testing.T) {
	path := lines(t, "r.jsonl",
		`{"id": "a", "response": "The answer is Rome.", "answer": "1", "choices": ["Paris", "Rome"], "completion_tokens": 150}`,
		`{"id": "b", "response": "The answer is (A).", "answer": "0", "meta": {"choices": ["Paris", "Rome"]}, "completion_tokens": 150, `+
			`"options": {"length": {"max": 200}}}`,
		`{"id": "c", "response": "The answer is (A).", "answer": "A", "meta": "{\"choices\": [\"Paris\", \"Rome\"]}", `+
			`"steps": [{"completion_tokens": 10}]}`)
	o, err := rewards.ParseOptions([]byte(`{"length": {"max": 100, "buffer": 100}}`))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := scored(t, ScoreOptions{Path: path, Reward: "choice:1,length:1", Grader: o})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{0, .5, .9} {
		if got := rows[i]["reward"].(float64); math.Abs(got-want) > 1e-12 || rows[i]["correct"] != true || rows[i]["verdict"] != "right" {
			t.Errorf("row %d: %v", i, rows[i])
		}
	}
}

// Datasets have a column options of their own: the choices.
func TestChoicesInTheColumnOptions(t *testing.T) {
	rows, err := scored(t, ScoreOptions{Reward: "choice", Path: lines(t, "r.jsonl",
		`{"response": "The answer is Rome.", "answer": "B", "options": ["Paris", "Rome"]}`,
		`{"response": "The answer is Rome.", "answer": "B", "options": {"A": "Paris", "B": "Rome"}}`)})
	if err != nil || rows[0]["correct"] != true || rows[1]["correct"] != true {
		t.Errorf("%v, %v", rows, err)
	}
}

// A file's reward is made with the options that its run had, and those of the command over
// them.
func TestOptionsOfAFilesRunCount(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.parquet")
	n := 75
	parquettest.Write(t, path, `{"reward": "exact:1,length:1", "config": {"reward-options": "{\"length\": {\"max\": 100, \"buffer\": 50}}"}}`,
		&traj.Trajectory{ID: "a#0", Task: traj.Task{ID: "a", Answers: []string{"2"}}, Termination: traj.Answered, CompletionTokens: n,
			Messages: []traj.Message{{Role: traj.RoleUser, Content: "?"}, {Role: traj.RoleAssistant, Content: "2"}},
			Steps:    []traj.Step{{Sequence: -1, CompletionTokens: n, FinishReason: "stop"}}})
	rows, err := scored(t, ScoreOptions{Path: path})
	if err != nil || rows[0]["reward"] != .5 {
		t.Errorf("%v, %v", rows, err)
	}
	o, _ := rewards.ParseOptions([]byte(`{"length": {"max": 200}}`))
	if rows, err = scored(t, ScoreOptions{Path: path, Grader: o}); err != nil || rows[0]["reward"] != 1. {
		t.Errorf("%v, %v", rows, err)
	}
}

func TestFaultsOfARowsOptionsAndTestsAreNamed(t *testing.T) {
	for name, x := range map[string]struct{ reward, row, field string }{
		"unknown option": {"math", `{"response": "1", "answer": "1", "options": {"langth": {}}}`, "options"},
		"wrong option":   {"math", `{"response": "1", "answer": "1", "options": {"length": {"max": "x"}}}`, "options"},
		"no object":      {"math", `{"response": "1", "answer": "1", "options": 5}`, "options"},
		"meta":           {"choice", `{"response": "1", "answer": "1", "meta": "{"}`, "meta"},
		"choices":        {"choice", `{"response": "1", "answer": "1", "choices": 7}`, "meta.choices"},
		"gold choice":    {"choice", `{"response": "1", "answer": "Z"}`, "answer"},
		"tests":          {"code", `{"response": "1", "answer": "{\"inputs\": []}"}`, "answer.inputs"},
		"pattern":        {"regex", `{"response": "1", "answer": "("}`, "answer"},
		"schema":         {"json-schema", `{"response": "1", "answer": "{"}`, "answer"},
		"calls":          {"tool-call", `{"response": "1", "answer": "f()"}`, "answer"},
		"numbers":        {"countdown", `{"response": "1", "target": 5}`, "meta.numbers"},
		"instructions":   {"ifeval", `{"response": "1", "instruction_id_list": ["punctuation:no_comma"], "kwargs": []}`, "meta.kwargs"},
		"steps":          {"exact", `{"response": "1", "answer": "1", "steps": [1]}`, "steps"},
	} {
		_, err := scored(t, ScoreOptions{Path: lines(t, "r.jsonl", `{"response": null, "answer": "1"}`, x.row), Reward: x.reward})
		if f := malformed.Facts(err); f.Row != 2 || f.Field != x.field || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %+v, %v", name, f, err)
		}
	}
}
