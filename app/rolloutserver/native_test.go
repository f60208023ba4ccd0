package rolloutserver

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"agentcli/llm/llmtest"
	"agentcli/parquet"
	"agentcli/traj"
)

func TestRowsBecomeTrajectories(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	x := serve(t, dir, func(*llmtest.Request) llmtest.Reply { return seven() }, nil)
	got := x.rows(row("a"), map[string]any{"id": 12345678901, "group": "g", "question": "3 * 4?", "answer": "12", "level": 3})
	if keys := slices.Sorted(maps.Keys(got)); !slices.Equal(keys, []string{"12345678901", "a"}) {
		t.Fatalf("answers to %v", keys)
	}
	b := got["12345678901"]
	if b["termination"] != "answered" || b["dataset"] != "requests" || b["turns"] != 1. || !strings.HasPrefix(b["group_id"].(string), "g@") {
		t.Errorf("%v", b)
	}
	if meta := b["meta"].(map[string]any); meta["level"] != 3. {
		t.Errorf("the other columns are %v", meta)
	}
	seqs := b["sequences"].([]any)
	if len(seqs) != 1 || fmt.Sprint(seqs[0].(map[string]any)["token_ids"]) != "[1 2 3 4 5]" {
		t.Errorf("sequences %v", seqs)
	}
	x.end()
	f, err := parquet.Open(filepath.Join(dir, "traj.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := 0
	for range f.Rows(t.Context()) {
		n++
	}
	if n != 2 {
		t.Errorf("the file has %d rows", n)
	}
}

func TestLinesComeAsTrajectoriesEnd(t *testing.T) {
	release := make(chan struct{})
	x := serve(t, filepath.Join(t.TempDir(), "run"), func(r *llmtest.Request) llmtest.Reply {
		if strings.Contains(r.Last(), "slow") {
			<-release
		}
		return seven()
	}, nil)
	resp, err := http.Post(x.url+"/v1/rollouts", "application/json",
		strings.NewReader(`{"rows":[{"id":"slow","question":"slow"},{"id":"quick","question":"quick"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	d := json.NewDecoder(resp.Body)
	for _, want := range []string{"requests/quick", "requests/slow"} {
		var line struct {
			TaskID string `json:"task_id"`
		}
		if err := d.Decode(&line); err != nil || line.TaskID != want {
			t.Fatalf("%q %v, want %s", line.TaskID, err, want)
		}
		if want == "requests/quick" {
			close(release)
		}
	}
}

func TestAMalformedRowIsNamedAndNothingIsPlayed(t *testing.T) {
	var asked sync.Map
	x := serve(t, filepath.Join(t.TempDir(), "run"), func(r *llmtest.Request) llmtest.Reply { asked.Store(r.N, true); return seven() }, nil)
	for body, want := range map[string]string{
		`{"rows":[{"id":"a","question":"x"},{"id":"b"}]}`:                  "row 2",
		`{"rows":[{"id":"a","question":"x"},{"id":"a","question":"y"}]}`:   "row 2",
		`{"rows":[{"id":"a","question":"x"},{"id":"b","question":["x"]}]}`: "row 2",
		`{"rows":[{"id":{"x":1},"question":"x"}]}`:                         "row 1",
		`{"rows":[{"id":"a","question":"x","env":"nowhere"}]}`:             "row 1",
		`{"rows":[{"id":"a","question":"x"},null]}`:                        "row 2",
		`{"rows":[{"id":"a","question":"x"},"x"]}`:                         "row 2",
		`{"rows":[]}`: "no rows",
		`{"rows":[{"id":"a","question":"x"}],"sampling":{"temperature":-1}}`:                                          "temperature",
		`{"rows":[{"id":"a","question":"x"}],"sampling":{"warmth":1}}`:                                                "warmth",
		`{"rows":[{"id":"a","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]}]}`: "row 1",
		`{"rows":[{"id":"a","messages":[{"role":"user","content":{"type":"x"}}]}]}`:                                   "row 1",
		`{"rows":[{"id":"a","messages":[{"role":"nobody","content":"x"}]}]}`:                                          "row 1",
		`{"rows":{"id":"a"}}`: "array",
		`{"rows":[{"id":"a","question":"x"},{"id":"b","question":"x"},{"id":"c"},7]}`: "array",
	} {
		status, answer := x.post(t.Context(), "/v1/rollouts", body)
		if status != http.StatusUnprocessableEntity || !strings.Contains(answer, want) && want != "array" {
			t.Errorf("%s: %d %s", body, status, answer)
		}
	}
	asked.Range(func(any, any) bool { t.Error("something was played"); return false })
}

func TestAnIDIsPlayedOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	var mu sync.Mutex
	asked := 0
	begun, release := make(chan struct{}, 1), make(chan struct{})
	script := func(r *llmtest.Request) llmtest.Reply {
		mu.Lock()
		asked++
		mu.Unlock()
		if strings.Contains(r.Last(), "slow") {
			begun <- struct{}{}
			<-release
		}
		return seven()
	}
	x := serve(t, dir, script, nil)
	results := make(chan map[string]map[string]any, 2)
	go func() { results <- x.rows(row("slow")) }()
	<-begun // it is being played
	go func() { results <- x.rows(row("slow")) }()
	other := map[string]any{"id": "slow", "question": "another"}
	if e, _ := x.rows(other)["slow"]["error"].(string); !strings.Contains(e, errOtherRow.Error()) {
		t.Errorf("another row of an id that is being played: %q", e)
	}
	close(release)
	first, second := <-results, <-results
	if first["slow"]["started_at"] != second["slow"]["started_at"] || first["slow"]["termination"] != "answered" {
		t.Errorf("%v\n%v", first, second)
	}
	again := x.rows(row("slow"))
	if again["slow"]["started_at"] != first["slow"]["started_at"] {
		t.Error("it was played again after its end")
	}
	if e, _ := x.rows(other)["slow"]["error"].(string); !strings.Contains(e, errOtherRow.Error()) {
		t.Errorf("another row of an id that was played: %q", e)
	}
	x.end()
	y := serve(t, dir, script, func(o *Options) { o.Output, o.Resume = "", dir })
	if again = y.rows(row("slow")); again["slow"]["started_at"] != first["slow"]["started_at"] {
		t.Error("it was played again after a restart")
	}
	if e, _ := y.rows(other)["slow"]["error"].(string); !strings.Contains(e, errOtherRow.Error()) {
		t.Errorf("another row of an id of an earlier run: %q", e)
	}
	if got := y.rows(row("new"))["new"]["termination"]; got != "answered" {
		t.Errorf("the run does not go on: %v", got)
	}
	if asked != 2 {
		t.Errorf("the model was asked %d times", asked)
	}
}

func TestAClientThatGoesAwayStopsItsTrajectories(t *testing.T) {
	for _, path := range []string{"/v1/rollouts", "/infer/"} {
		t.Run(strings.Trim(path, "/"), func(t *testing.T) {
			begun, stopped := make(chan struct{}), make(chan struct{})
			dir := filepath.Join(t.TempDir(), "run")
			x := serve(t, dir, func(r *llmtest.Request) llmtest.Reply {
				if r.N == 0 {
					close(begun)
					<-r.Left
					close(stopped)
				}
				return seven()
			}, func(o *Options) { o.Parallel = 1 })
			ctx, leave := context.WithCancel(t.Context())
			gone := make(chan struct{})
			ask := func(ctx context.Context) (int, string) {
				if path == "/infer/" {
					return x.post(ctx, path, `{"infer_requests":[{"uuid":"a","messages":[{"role":"user","content":"x"}]},`+
						`{"uuid":"b","messages":[{"role":"user","content":"y"}]}]}`)
				}
				return x.post(ctx, path, map[string]any{"rows": []any{row("a"), row("b")}}) // b waits for room
			}
			go func() { ask(ctx); close(gone) }()
			<-begun
			leave()
			<-gone
			<-stopped // who asks before the server knows that the first has gone shares its trajectory
			status, answer := ask(t.Context())
			if status != http.StatusOK || strings.Contains(answer, "cancelled") || strings.Count(answer, "answered") != 2 {
				t.Fatalf("%d %s", status, answer)
			}
		})
	}
}

func TestATrajectoryGoesOnWhileSomebodyWaits(t *testing.T) {
	p := newPool()
	p.before = emptyIndex(t)
	task := traj.Task{ID: "requests/a"}
	x, _, _ := p.join(&job{task: task})
	y, _, _ := p.join(&job{task: task})
	if x != y {
		t.Fatal("one id has two jobs")
	}
	p.next()
	p.leave(x, true)
	select {
	case <-p.gone(task):
		t.Fatal("it was stopped")
	default:
	}
	p.leave(x, true)
	<-p.gone(task)
}
