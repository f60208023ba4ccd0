package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentcli/app/rundir"
	"agentcli/llm/llmtest"
	"agentcli/traj"
)

// Rows in verl's form, as DeepEyes' files have them, and two of other files.
var mixedRows = []string{
	`{"id":"vstar","data_source":"vstar","env_name":"visual_toolbox_v2","prompt":[{"role":"system","content":"Its own."},` +
		`{"role":"user","content":"Which colour is the car?"}],"reward_model":{"ground_truth":"red","style":"model"}}`,
	`{"id":"math","data_source":"thinklite_eureka","env_name":"","prompt":[{"role":"user","content":"What is a half?"}],` +
		`"reward_model":{"ground_truth":"1/2"}}`,
	`{"id":"chart","data_source":"chart","env_name":"visual_toolbox_v2","prompt":[{"role":"user","content":"Which bar is high?"}],` +
		`"reward_model":{"ground_truth":"the second"}}`,
	`{"id":"xince","data_source":"xince","env_name":"","prompt":[{"role":"user","content":"What is a third?"}],` +
		`"reward_model":{"ground_truth":"1/3"}}`,
	`{"id":"env","question":"Which colour is the boat?","answer":"blue","env":"deepeyes"}`, // the environment's reward
	`{"id":"plain","question":"What is 3 + 4?","answer":"7","data_source":"chart"}`,        // no row of verl's
}

// mixedReplies are what a model says to them, and the judge of those that the rule takes for wrong.
func mixedReplies(t *testing.T, systems map[string]string) (model, judge *llmtest.Server) {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	model = llmtest.New(t, func(r *llmtest.Request) llmtest.Reply {
		for _, c := range [][2]string{{"the car", "<answer>red</answer>"}, {"a half", `\boxed{0.5}`},
			{"bar is high", "<answer>number two</answer>"}, {"a third", `\boxed{one third}`}, {"the boat", "<answer>blue</answer>"},
			{"3 + 4", `\boxed{7}`}} {
			if strings.Contains(r.Last(), c[0]) {
				if systems != nil && r.Messages[0].Role == traj.RoleSystem {
					systems[c[0]] = r.Messages[0].Text()
				}
				return llmtest.Text(c[1])
			}
		}
		return llmtest.Text("?")
	})
	judge = llmtest.New(t, func(r *llmtest.Request) llmtest.Reply {
		switch prompt := r.Last(); {
		case strings.Contains(prompt, "number two") && strings.HasSuffix(prompt, "Judgement:"):
			return llmtest.Text("1")
		case strings.Contains(prompt, "one third") && strings.Contains(prompt, "## Equivalence Judgement"):
			return llmtest.Text("## Equivalence Judgement\nTRUE")
		}
		t.Errorf("the judge was asked\n%s", r.Last())
		return llmtest.Text("")
	})
	return model, judge
}

func rewardsByID(t *testing.T, folder string) (got map[string]float64, meta map[string]any) {
	t.Helper()
	rows, meta := rowsOf(t, filepath.Join(folder, rundir.TrajectoriesFile))
	got = map[string]float64{}
	for _, row := range rows {
		if row.Reward == nil {
			t.Fatalf("%s has no reward: %s", row.ID, row.Error)
		}
		got[row.Task.ID[strings.LastIndex(row.Task.ID, "/")+1:]] = *row.Reward
	}
	return got, meta
}

func checkRewards(t *testing.T, got, want map[string]float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%d rows, want %d", len(got), len(want))
	}
	for id, r := range want {
		if math.Abs(got[id]-r) > 1e-9 {
			t.Errorf("%s: %v, want %v", id, got[id], r)
		}
	}
}

// One run has rows of DeepEyes' sources, of its environment and of others; each has its own
// reward, its own form of a judge's question, and its system prompt. A run that is made longer
// goes on so.
func TestRowsChooseTheirReward(t *testing.T) {
	systems := map[string]string{}
	s, judge := mixedReplies(t, systems)
	out := filepath.Join(t.TempDir(), "run")
	data := questions(t, mixedRows...)
	common := []string{"--parallel", "1", "--base-url", s.BaseURL(), "--model", "mock", "-d", data, "-n", "1",
		"--judge", judge.BaseURL() + "#good"}
	args := append([]string{"rollout", "--limit", "5", "--output", out}, common...)
	if _, log, code := run(t, args...); code != exitDone {
		t.Fatal(log)
	}
	for range 2 { // the second time nothing is played
		if _, log, code := run(t, "rollout", "--resume", out, "--limit", "6"); code != exitDone {
			t.Fatal(log)
		}
		got, meta := rewardsByID(t, out)
		checkRewards(t, got, map[string]float64{"vstar": .8, "math": 1.2, "chart": .8, "xince": 1.2, "env": .8, "plain": 1})
		if meta["reward"] != "deepeyes or deepeyes-math or math" {
			t.Errorf("the file names the reward %v", meta["reward"])
		}
	}
	if systems["the car"] != "Its own." || !strings.Contains(systems["bar is high"], "image_zoom_in_tool") ||
		systems["bar is high"] != systems["the boat"] || systems["a half"]+systems["3 + 4"] != "" {
		t.Errorf("system prompts: %q", systems)
	}
	if n := len(judge.Requests()); n != 2 {
		t.Errorf("%d questions to the judge, want one in each form", n)
	}

	folder := filepath.Join(t.TempDir(), "eval")
	_, log, code := run(t, append([]string{"eval", "--output", folder}, common...)...)
	if code != exitDone {
		t.Fatal(log)
	}
	b, err := os.ReadFile(filepath.Join(folder, rundir.ReportFile))
	if err != nil {
		t.Fatal(err)
	}
	var report struct {
		Environments []struct {
			Env      string
			Problems int
			Reward   struct{ Value float64 }
		}
	}
	if err := json.Unmarshal(b, &report); err != nil {
		t.Fatal(err)
	}
	apart := map[string]float64{}
	for _, e := range report.Environments {
		apart[e.Env] = e.Reward.Value
	}
	checkRewards(t, apart, map[string]float64{"": (1.2 + 1.2 + 1) / 3, "deepeyes": .8, "visual_toolbox_v2": .8})
}

// What the user names comes first, for all rows; an imported file keeps the sources of its rows.
func TestTheUsersRewardAndSystemPromptComeFirst(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want map[string]float64
		meta string
		car  string // the system prompt
		boat bool   // the environment's system prompt
	}{
		{"--reward", []string{"--reward", "em"}, map[string]float64{"vstar": 1, "math": 0, "env": 1, "plain": 0}, "em", "Its own.", true},
		{"--system", []string{"--system", "Mine."}, map[string]float64{"vstar": .8, "math": 1.2, "env": .8, "plain": 1},
			"deepeyes or deepeyes-math or math", "Mine.", false},
		{"--env", []string{"--env", "tool"}, map[string]float64{"vstar": .8, "math": 1.2, "env": 0, "plain": 1},
			"deepeyes or deepeyes-math or math", "Its own.", false}, // math reads no colours
	} {
		systems := map[string]string{}
		s, _ := mixedReplies(t, systems)
		rows := []string{mixedRows[0], mixedRows[1], mixedRows[4], mixedRows[5]}
		out := filepath.Join(t.TempDir(), "run")
		args := append([]string{"rollout", "-d", questions(t, rows...), "-n", "1", "--parallel", "1", "--base-url", s.BaseURL(),
			"--model", "mock", "--output", out}, c.args...)
		if _, log, code := run(t, args...); code != exitDone {
			t.Fatalf("%s: %s", c.name, log)
		}
		got, meta := rewardsByID(t, out)
		checkRewards(t, got, c.want)
		if meta["reward"] != c.meta || systems["the car"] != c.car || strings.Contains(systems["the boat"], "image_zoom_in_tool") != c.boat {
			t.Errorf("%s: reward %v, system prompts %q", c.name, meta["reward"], systems)
		}
	}

	s, _ := mixedReplies(t, nil)
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	if _, log, code := run(t, "datasets", "import", "mixed", questions(t, mixedRows[0], mixedRows[1])); code != exitDone {
		t.Fatal(log)
	}
	out := filepath.Join(t.TempDir(), "run")
	if _, log, code := run(t, "rollout", "-d", "mixed", "-n", "1", "--base-url", s.BaseURL(), "--model", "mock",
		"--output", out); code != exitDone {
		t.Fatal(log)
	}
	got, _ := rewardsByID(t, out)
	checkRewards(t, got, map[string]float64{"vstar": .8, "math": 1.2})
}
