package main

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"agentcli/app/rundir"
	"agentcli/llm/llmtest"
	"agentcli/parquet"
	"agentcli/traj"
)

// gradesParis is a judge that takes replies with Paris for right; its replies are of the
// rubric correct.
func gradesParis(t *testing.T) *llmtest.Server {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	return llmtest.New(t, func(r *llmtest.Request) llmtest.Reply {
		_, reply, _ := strings.Cut(r.Last(), "Answer to grade:")
		reply, _, _ = strings.Cut(reply, "</text-")
		verdict := "INCORRECT"
		switch {
		case strings.Contains(reply, "Paris"):
			verdict = "CORRECT"
		case strings.Contains(reply, "do not know"):
			verdict = "NOT_ATTEMPTED"
		case strings.Contains(reply, "gibberish"):
			return llmtest.Text("well")
		}
		return llmtest.Text("It says so.\nVERDICT: " + verdict)
	})
}

const capitalRows = `{"question":"capital of France?","answer":"Paris","response":"<think>Rome?</think>It is Paris."}
{"question":"capital of France?","answer":"Paris","response":"Lyon"}
{"question":"capital of France?","answer":"Paris","response":"I do not know."}
{"question":"capital of France?","answer":"Paris","response":""}
`

func TestScoreAsksAJudgeOnceForEachReply(t *testing.T) {
	s := gradesParis(t)
	t.Setenv("OPENAI_API_KEY", "sk-of-the-policy")
	t.Setenv("JUDGE_API_KEY", "sk-of-the-judge")
	s.Config.Handler = func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get("Authorization"); got != "Bearer sk-of-the-judge" {
				t.Errorf("%s was asked with the key %q", r.URL, got)
			}
			next.ServeHTTP(w, r)
		})
	}(s.Config.Handler)
	file := filepath.Join(t.TempDir(), "rows.jsonl")
	if err := os.WriteFile(file, []byte(capitalRows), 0o600); err != nil {
		t.Fatal(err)
	}
	score := func(args ...string) []map[string]any {
		t.Helper()
		out, log, code := run(t, append([]string{"score", "--reward", "judge", "--judge", s.BaseURL() + "#good", file}, args...)...)
		if code != exitDone {
			t.Fatalf("exit %d: %s", code, log)
		}
		var rows []map[string]any
		for line := range strings.Lines(out) {
			var row map[string]any
			if err := json.Unmarshal([]byte(line), &row); err != nil {
				t.Fatal(err)
			}
			rows = append(rows, row)
		}
		return rows
	}
	rows := score()
	for i, want := range []struct {
		reward    float64
		verdict   string
		extracted any
	}{{1, "right", "It is Paris."}, {0, "wrong", "Lyon"}, {0, "no_answer", nil}, {0, "no_answer", nil}} {
		if r := rows[i]; r["reward"] != want.reward || r["verdict"] != want.verdict || r["correct"] != (want.reward == 1) ||
			r["extracted"] != want.extracted {
			t.Errorf("row %d: %v", i+1, r)
		}
	}
	asked := len(s.Requests())
	if asked != 3 {
		t.Errorf("%d requests, want one for each reply with text", asked)
	}
	score("--judge-price-in", "1", "--judge-price-out", "2")
	if n := len(s.Requests()); n != asked {
		t.Errorf("scored again, the judge was asked %d times", n-asked)
	}
	if score("--judge-votes", "3"); len(s.Requests()) != asked+6 { // two of three votes agree; the first was greedy
		t.Errorf("%d requests for 3 votes each", len(s.Requests())-asked)
	}
}

func TestScoreWithoutAJudgeThatAnswersScoresNothing(t *testing.T) {
	s := gradesParis(t)
	file := filepath.Join(t.TempDir(), "rows.jsonl")
	row := `{"question":"?","answer":"Paris","response":"gibberish"}` + "\n"
	if err := os.WriteFile(file, []byte(row), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		args []string
		code int
		rows int // that come back as reward_error
	}{
		{"none is named", nil, exitUsage, 0},
		{"votes of nobody", []string{"--judge-votes", "3"}, exitUsage, 0},
		{"a price below 0", []string{"--judge", s.BaseURL() + "#m", "--judge-price-out", "-1"}, exitUsage, 0},
		{"it is no address", []string{"--judge", "gpt"}, exitUsage, 0},
		{"nothing listens there", []string{"--judge", "http://127.0.0.1:1/v1#m"}, exitFailed, 0},
		{"no such rubric", []string{"--judge", s.BaseURL() + "#m", "--judge-rubric", "corect"}, exitUsage, 0},
		{"-1 votes", []string{"--judge", s.BaseURL() + "#m", "--judge-votes", "-1"}, exitUsage, 0},
		{"its reply has no verdict", []string{"--judge", s.BaseURL() + "#good"}, exitFailed, 1},
	} {
		out, log, code := run(t, append([]string{"score", "--reward", "judge", file}, c.args...)...)
		if code != c.code || strings.Count(out, `"termination":"reward_error"`) != c.rows || strings.Count(out, "\n") != c.rows ||
			strings.Count(log, "\n") > 2 {
			t.Errorf("%s: exit %d, %q: %s", c.name, code, out, log)
		}
	}
}

// A judge that cannot be read leaves a trajectory without a reward; the others have theirs.
func TestRolloutKeepsApartWhatTheJudgeCouldNotGrade(t *testing.T) {
	s := gradesParis(t)
	model := llmtest.New(t, func(r *llmtest.Request) llmtest.Reply { return llmtest.Text(r.Last()) })
	dir := t.TempDir()
	data, out := filepath.Join(dir, "q.jsonl"), filepath.Join(dir, "run")
	if err := os.WriteFile(data, []byte(`{"id":"a","prompt":"Paris","answer":"x"}
{"id":"b","prompt":"Lyon","answer":"x"}
{"id":"c","prompt":"gibberish","answer":"x"}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	_, log, code := run(t, "rollout", "-d", data, "--base-url", model.BaseURL(), "--model", "good", "-n", "1", "--tools", "none",
		"--reward", "judge", "--judge", s.BaseURL()+"#good", "--output", out)
	if code != exitPartial {
		t.Fatalf("exit %d: %s", code, log)
	}
	got := map[string]*float64{}
	ends := map[string]traj.Termination{}
	f, err := parquet.Open(filepath.Join(out, rundir.TrajectoriesFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for x, err := range f.Rows(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		got[x.Task.ID], ends[x.Task.ID] = x.Reward, x.Termination
	}
	value := func(id string) float64 {
		if got[id] == nil {
			return math.NaN()
		}
		return *got[id]
	}
	if value("q/a") != 1 || value("q/b") != 0 || got["q/c"] != nil || ends["q/c"] != traj.RewardFailed {
		t.Errorf("%v, %v", got, ends)
	}
	for setting, want := range map[string]int{"--judge-votes=3": exitUsage, "--judge-rubric=quality": exitUsage,
		"--judge=" + s.BaseURL() + "#other": exitUsage, "--judge-price-in=2": exitPartial} {
		if _, log, code := run(t, "rollout", "--resume", out, setting); code != want {
			t.Errorf("resumed with %s: exit %d: %s", setting, code, log)
		}
	}
}

// Rewards of DeepEyes use its prompts; a reply that says nothing is requested again, by another
// seed, and a judge that never says so gives no reward.
func TestAJudgeIsAskedInTheFormOfDeepEyes(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	seeds := map[string][]int64{} // of the question about each answer
	var mu sync.Mutex
	s := llmtest.New(t, func(r *llmtest.Request) llmtest.Reply {
		prompt := r.Last()
		_, answer, short := strings.Cut(prompt, "[Model Answer]: <") // examples have no tags
		if !short {
			_, answer, _ = strings.Cut(prompt, "**Student's Final Answer**:")
		}
		yes, no := "Judgement: 1", "Judgement: 0, there is 1"
		if !short {
			yes, no = "## Equivalence Judgement\nTRUE", "## Equivalence Judgement\nFALSE"
		}
		for _, c := range []struct{ answer, first, then string }{{"like wine", yes, yes}, {"blue", no, no}, {"hidden", "10", yes},
			{"gibberish", "well", "well"}, {"half", yes, yes}, {"third", no, no}} {
			if strings.Contains(answer, c.answer) {
				mu.Lock()
				defer mu.Unlock()
				seeds[c.answer] = append(seeds[c.answer], r.Int("seed"))
				if len(seeds[c.answer]) == 1 {
					return llmtest.Text(c.first)
				}
				return llmtest.Text(c.then)
			}
		}
		t.Errorf("asked in another form:\n%s", prompt)
		return llmtest.Text("")
	})
	for reward, want := range map[string][]struct {
		reply string
		value any
	}{
		"deepeyes":      {{"like wine", .8}, {"blue", 0.}, {"hidden", .8}, {"gibberish", nil}},
		"deepeyes-math": {{"half", 1.2}, {"third", 0.}},
	} {
		var lines strings.Builder
		for _, w := range want {
			fmt.Fprintf(&lines, `{"question":"colour?","answer":"red","response":"<answer>%s</answer>\\boxed{%[1]s}"}`+"\n", w.reply)
		}
		file := filepath.Join(t.TempDir(), "rows.jsonl")
		if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		out, log, _ := run(t, "score", "--reward", reward, "--judge", s.BaseURL()+"#good", file)
		rows := strings.Split(strings.TrimSpace(out), "\n")
		if len(rows) != len(want) {
			t.Fatalf("%s: %d rows: %s", reward, len(rows), log)
		}
		for i, w := range want {
			var row map[string]any
			if err := json.Unmarshal([]byte(rows[i]), &row); err != nil {
				t.Fatal(err)
			}
			if row["reward"] != w.value || w.value == nil && row["termination"] != string(traj.RewardFailed) {
				t.Errorf("%s, %s: %v, want %v", reward, w.reply, row, w.value)
			}
		}
	}
	for answer, n := range map[string]int{"like wine": 1, "blue": 1, "hidden": 2, "gibberish": 3, "half": 1, "third": 1} {
		if distinct := slices.Compact(slices.Sorted(slices.Values(seeds[answer]))); len(seeds[answer]) != n || len(distinct) != n {
			t.Errorf("%s was asked by the seeds %v", answer, seeds[answer])
		}
	}
}
