package scheduler

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentcli/agent"
	"agentcli/engine"
	"agentcli/env"
	"agentcli/internal/child"
	"agentcli/internal/malformed"
	"agentcli/traj"
)

const asProgram = "AGENTCLI_TEST_SCHEDULER"

func TestMain(m *testing.M) {
	if kind := os.Getenv(asProgram); kind != "" {
		actAs(kind)
		return
	}
	os.Exit(m.Run())
}

// actAs is a scheduler as a process. It goes on for two turns.
func actAs(kind string) {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	var held []string
	say := func(s string) { fmt.Println(s) }
	for in.Scan() {
		var r struct {
			ID         int64  `json:"id"`
			Method     string `json:"method"`
			Trajectory string `json:"trajectory"`
			Turn       int    `json:"turn"`
		}
		if json.Unmarshal(in.Bytes(), &r) != nil || r.ID == 0 {
			continue
		}
		answer := fmt.Sprintf(`{"id":%d}`, r.ID)
		switch {
		case r.Method == "next" && r.Turn < 3:
			answer = fmt.Sprintf(`{"id":%d,"messages":[{"role":"user","content":"more of %s"}],"infos":{"bytes":%d}}`, r.ID, r.Trajectory,
				len(in.Bytes()))
		case r.Method == "next":
			answer = fmt.Sprintf(`{"id":%d,"done":true}`, r.ID)
		}
		switch kind {
		case "reversed": // answers the first turns two at a time, the second first
			if r.Method == "next" && r.Turn == 1 {
				if held = append(held, answer); len(held) == 2 {
					say(held[1])
					say(held[0])
					held = nil
				}
				continue
			}
		case "twice":
			if r.Method == "next" && (r.Turn == 1 && r.Trajectory == "3#0" || r.Turn == 3 && r.Trajectory == "5#0") {
				say(answer)
			}
		case "silent":
			if r.Method == "next" {
				continue
			}
		case "dies":
			if r.Method == "next" && r.Turn == 2 {
				os.Exit(3)
			}
		}
		say(answer)
	}
}

// command runs this test as a program.
func command(kind string) string {
	return "exec:" + asProgram + "=" + kind + " " + os.Args[0]
}

// model writes replies that a test makes of the conversation.
type model func(r *traj.Request) string

func (m model) Generate(_ context.Context, r *traj.Request) (*traj.Response, error) {
	text := m(r)
	return &traj.Response{Message: traj.Message{Content: text}, Raw: text, FinishReason: traj.FinishStop}, nil
}

// play plays tasks at once, and gives the trajectories by id.
func play(t *testing.T, s *Set, m model, turns int, tasks ...traj.Task) map[string]*traj.Trajectory {
	t.Helper()
	c := engine.Config{Model: m, MaxTurns: turns, Parallel: 64, NewScheduler: s.New,
		NewAgent: func(traj.Task) (agent.Agent, error) { return agent.New(nil), nil },
		NewEnv:   func(traj.Task) (env.Environment, error) { return env.New(env.Config{}) }}
	e, err := engine.New(c)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*traj.Trajectory{}
	if _, err := e.Run(t.Context(), func(yield func(traj.Task, error) bool) {
		for _, task := range tasks {
			if task.Messages == nil {
				task.Messages = []traj.Message{{Role: traj.RoleUser, Content: "q"}}
			}
			if !yield(task, nil) {
				return
			}
		}
	}, func(x *traj.Trajectory) error { all[x.Task.ID] = x; return nil }); err != nil {
		t.Fatal(err)
	}
	return all
}

func open(t *testing.T, name string, o Options) *Set {
	t.Helper()
	s, err := Open(t.Context(), name, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func numbered(n int) (tasks []traj.Task) {
	for i := range n {
		tasks = append(tasks, traj.Task{ID: fmt.Sprint(i)})
	}
	return tasks
}

func words(x *traj.Trajectory) (all []string) {
	for _, m := range x.Messages {
		all = append(all, m.Content)
	}
	return all
}

// TestAProgramSchedulesManyTrajectoriesAtOnce: it answers in any order, and each answer
// reaches its own trajectory. A second answer to one question ends that trajectory; where it
// has ended already, it is reported.
func TestAProgramSchedulesManyTrajectoriesAtOnce(t *testing.T) {
	var mu sync.Mutex
	var notices []string
	notice := func(s string) { mu.Lock(); defer mu.Unlock(); notices = append(notices, s) }
	for _, kind := range []string{"plain", "reversed", "twice"} {
		s := open(t, command(kind), Options{Notice: notice})
		all := play(t, s, func(*traj.Request) string { return "r" }, 9, numbered(64)...)
		for id, x := range all {
			more := "more of " + id + "#0"
			if kind == "twice" && id == "3" {
				if x.Termination != traj.EnvFailed || !strings.Contains(x.Error, "twice") || len(x.Steps) != 2 {
					t.Errorf("answered twice: %s %q, %d steps", x.Termination, x.Error, len(x.Steps))
				}
				continue
			}
			if want := []string{"q", "r", more, "r", more, "r"}; x.Termination != traj.Answered || !slices.Equal(words(x), want) {
				t.Fatalf("%s: %s %q: %q", kind, x.Termination, x.Error, words(x))
			}
		}
		_ = s.Close() // it has read all that the program wrote
		mu.Lock()
		if (kind == "twice") != (len(notices) == 1) {
			t.Errorf("%s: %q", kind, notices)
		}
		mu.Unlock()
	}
}

// TestAProgramThatEndsHalfWayCostsWhatItHeld: what it has begun cannot go on with another
// process, which knows nothing of it; what begins afterwards can.
func TestAProgramThatEndsHalfWayCostsWhatItHeld(t *testing.T) {
	s := open(t, command("dies"), Options{})
	for range 2 {
		for _, x := range play(t, s, func(*traj.Request) string { return "r" }, 9, numbered(3)...) {
			if x.Termination != traj.EnvFailed || len(x.Steps) > 2 || !strings.Contains(x.Error, ErrProgram.Error()) {
				t.Errorf("%s %q after %d turns", x.Termination, x.Error, len(x.Steps))
			}
		}
	}
	if x := play(t, s, func(*traj.Request) string { return "r" }, 1, traj.Task{ID: "short"})["short"]; x.Termination != traj.MaxTurns {
		t.Errorf("a trajectory that began after its end: %s %q", x.Termination, x.Error)
	}
}

// TestAProgramThatDoesNotAnswerCostsItsTrajectory, when its time is over.
func TestAProgramThatDoesNotAnswerCostsItsTrajectory(t *testing.T) {
	x := play(t, open(t, command("silent"), Options{Timeout: 50 * time.Millisecond}), func(*traj.Request) string { return "r" }, 9,
		traj.Task{ID: "a"})["a"]
	if x.Termination != traj.EnvFailed || !strings.Contains(x.Error, ErrProgram.Error()) {
		t.Errorf("%s %q", x.Termination, x.Error)
	}
}

// TestATurnCostsWhatIsNew: a hundred turns tell a program as much each as one.
func TestATurnCostsWhatIsNew(t *testing.T) {
	srv := server(t, func(ask map[string]any, n int) any {
		if ask["method"] == "start" {
			return map[string]any{}
		}
		return map[string]any{"messages": []any{map[string]string{"role": "user", "content": "more"}}, "infos": map[string]int{"bytes": n}}
	})
	x := play(t, open(t, srv.URL, Options{}), func(*traj.Request) string { return "the same" }, 100, traj.Task{ID: "a"})["a"]
	size := func(i int) (n int) {
		var v struct{ Bytes int }
		if err := json.Unmarshal(x.Infos[i], &v); err != nil {
			t.Fatal(err)
		}
		return v.Bytes
	}
	if len(x.Steps) != 100 || size(98) > size(1)+8 {
		t.Errorf("%d turns; the first tells %d bytes, the last %d", len(x.Steps), size(1), size(98))
	}
}

// server is a scheduler behind an address.
func server(t *testing.T, answer func(ask map[string]any, bytes int) any) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var raw json.RawMessage
		var ask map[string]any
		if json.NewDecoder(r.Body).Decode(&raw) != nil || json.Unmarshal(raw, &ask) != nil {
			t.Error("the request is no JSON object")
		}
		_ = json.NewEncoder(w).Encode(answer(ask, len(raw)))
	}))
	t.Cleanup(s.Close)
	return s
}

// TestAServerSeesAWholeTrajectory: start with the task and its columns, next, and the end.
func TestAServerSeesAWholeTrajectory(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	srv := server(t, func(ask map[string]any, _ int) any {
		mu.Lock()
		defer mu.Unlock()
		b, _ := json.Marshal([]any{ask["method"], ask["trajectory"], ask["task"], ask["turn"], ask["last"], ask["reply"],
			ask["observation"], ask["termination"]})
		seen = append(seen, string(b))
		switch {
		case ask["method"] == "start":
			return map[string]any{"messages": []any{map[string]string{"role": "user", "content": "another"}}, "infos": map[string]any{"n": 1}}
		case ask["turn"] == 1.:
			return map[string]any{"continue": " and", "cut": 3, "weights": 0.5, "reward": .25, "tools": false,
				"sampling": map[string]any{"temperature": 0}}
		}
		return map[string]any{"done": true, "reason": "enough"}
	})
	var asked []traj.Sampling
	task := traj.Task{ID: "a", Dataset: "d", Question: "q", Answers: []string{"1"}, Meta: json.RawMessage(`{"level":2}`)}
	x := play(t, open(t, srv.URL+"/next", Options{}), func(r *traj.Request) string {
		asked = append(asked,
			r.Sampling)
		return "one two"
	}, 9, task)["a"]
	if x.Termination != traj.EnvDone || !slices.Equal(words(x), []string{"another", "one andone two"}) || *x.Reward != .25 {
		t.Errorf("%s %q: %q, reward %v", x.Termination, x.Error, words(x), x.Reward)
	}
	if got, _ := json.Marshal(x.Infos); string(got) != `[{"start":{"n":1}},{"reason":"enough"}]` {
		t.Errorf("infos %s", got)
	}
	if len(asked) != 2 || asked[0].Temperature != nil || *asked[1].Temperature != 0 {
		t.Errorf("sampling %+v", asked)
	}
	reply := `{"content":"one two","finish_reason":"stop","text":"one two","token_ids":[],"tool_calls":[]}`
	want := []string{`["start","a#0",{"answers":["1"],"dataset":"d","id":"a","meta":{"level":2},"question":"q"},null,null,null,null,null]`,
		`["next","a#0",null,1,false,` + reply + `,{"done":true,"messages":[],"tool_errors":0},null]`,
		`["next","a#0",null,2,false,` + reply + `,{"done":true,"messages":[],"tool_errors":0},null]`,
		`["end","a#0",null,null,null,null,null,"env_done"]`}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(seen, want) {
		t.Errorf("asked\n%s\nwant\n%s", strings.Join(seen, "\n"), strings.Join(want, "\n"))
	}
}

// TestAnAnswerThatSaysWhatCannotBeSaidIsAnError: one that names the key.
func TestAnAnswerThatSaysWhatCannotBeSaidIsAnError(t *testing.T) {
	turn := &engine.Turn{Text: "one two", Reply: &traj.Response{SampledIDs: []int32{1, 2}}}
	for _, bad := range []string{`[]`, `1`, `{"id":1,"message":[]}`, `{"error":"no"}`, `{"messages":"x"}`, `{"messages":[{"role":"judge"}]}`,
		`{"done":1}`, `{"reason":"x"}`, `{"cut":"x"}`, `{"continue":""}`, `{"weights":"x"}`, `{"weights":[1,"x"]}`, `{"reward":"x"}`,
		`{"infos":[1]}`, `{"infos":3}`, `{"tools":"no"}`, `{"sampling":3}`, `{"sampling":{"temperatur":1}}`, `{"sampling":{"top_p":2}}`,
		`{"sampling":{"max_tokens":0}}`, `{"history":[1]}`, `{"weights":[1]}`, `{"weights":[]}`, `{"weights":[1,1,1]}`, `{"weights":1e999}`,
		`{"cut":0.5}`} {
		if n, err := readNext([]byte(bad), turn); !errors.Is(err, ErrAnswer) {
			t.Errorf("%s: %+v, %v", bad, n, err)
		} else if strings.Contains(err.Error(), "Go value") {
			t.Errorf("%s: in words of Go: %v", bad, err)
		}
	}
	for _, good := range []string{`{}`, `{"id":1,"done":false}`, `{"error":null,"done":true}`, `{"weights":2,"messages":[]}`,
		`{"continue":"","cut":3}`, `{"weights":[1,0]}`, `{"weights":null}`, `{"infos":null,"messages":null}`} {
		if _, err := readNext([]byte(good), turn); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
}

func FuzzNext(f *testing.F) {
	for _, s := range []string{`{"id":1,"done":true,"reason":"x"}`, `{"history":[{"role":"user","content":"x"}],"weights":[1]}`,
		`{"continue":"x","cut":3,"sampling":{"stop":["a"]},"tools":false}`, `{"error":{}}`} {
		f.Add([]byte(s))
	}
	turn := &engine.Turn{Text: "one", Reply: &traj.Response{}}
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := readNext(b, turn)
		if err == nil && n.Stop.Infrastructure() {
			t.Errorf("%q ends as %s", b, n.Stop)
		}
	})
}

// TestNamesThatAreNone: of schedulers and of environments.
func TestNamesThatAreNone(t *testing.T) {
	for _, name := range []string{"", "math_tip_trik", "exec:", "http://", "ftp://x"} {
		if err := Check(name); err == nil {
			t.Errorf("%q was taken for a scheduler", name)
		}
	}
	if err := Check("math_tip_trik"); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "math_tip_trick?") {
		t.Error(err)
	}
	if _, err := Open(t.Context(), GymName, Options{Gym: "frozen_lak"}); !errors.Is(err, ErrNoGym) {
		t.Error(err)
	}
	if _, err := Open(t.Context(), "exec:/no/such/program", Options{}); !errors.Is(err, child.ErrMissing) {
		t.Error(err)
	}
	if _, err := Open(t.Context(), GymName, Options{Gym: "exec:/no/such/program"}); !errors.Is(err, child.ErrMissing) {
		t.Error(err)
	}
	// What only the shell can find out ends at once: what begins with it fails.
	x := play(t, open(t, "exec:false || /no/such/program", Options{}), func(*traj.Request) string { return "r" }, 2, traj.Task{ID: "a"})["a"]
	if x.Termination != traj.EnvFailed {
		t.Errorf("%s %q", x.Termination, x.Error)
	}
}

// rightWhen takes a conversation for right when its last reply has a text.
func rightWhen(text string) Options {
	return Options{Correct: func(_ context.Context, t *engine.Turn) (bool, error) {
		return strings.Contains(t.Messages[len(t.Messages)-1].Content, text), nil
	}}
}

// TestTips: where they stand, how often they are given, and when none is.
func TestTips(t *testing.T) {
	first := "<think>\nhm</think>\n<answer>41</answer>"
	for name, x := range map[string]struct {
		scheduler string
		replies   []string
		want      []string // the conversation
		end       traj.Termination
	}{
		"in the reply": {"math_tip_trick", []string{first, " it is 42"},
			[]string{"q", "<think>\nhm" + tipInReply + " it is 42"}, traj.Answered},
		"in the reply, once": {"math_tip_trick", []string{first, "no", "42"}, []string{"q", "<think>\nhm" + tipInReply + "no"}, traj.Answered},
		"without a tag":      {"math_tip_trick", []string{"41", "no"}, []string{"q", "41" + tipInReply + "no"}, traj.Answered},
		"the answer first": {"math_tip_trick", []string{"x<answer>41</answer></think>", "42"},
			[]string{"q", "x" + tipInReply + "42"}, traj.Answered},
		"right at once":    {"math_tip_trick", []string{"42"}, []string{"q", "42"}, traj.Answered},
		"a new turn, once": {"math_tip_trick_multi_turn", []string{"41", "41", "42"}, []string{"q", "41", tipInTurn, "41"}, traj.Answered},
		"until it is right": {"thinking_tips_scheduler", []string{first, "<think>a</think>b", "<think>c</think>42"},
			[]string{"q", "<answer>41</answer>", tipInTurn, "b", tipInTurn, "<think>c</think>42"}, traj.Answered},
		"until the turns are spent": {"thinking_tips_scheduler", []string{"1", "2", "3"}, []string{"q", "1", tipInTurn, "2", tipInTurn,
			"3"}, traj.MaxTurns},
	} {
		n := 0
		got := play(t, open(t, x.scheduler, rightWhen("42")), func(*traj.Request) string { n++; return x.replies[n-1] }, 3,
			traj.Task{ID: "a"})["a"]
		if got.Termination != x.end || !slices.Equal(words(got), x.want) {
			t.Errorf("%s: %s %s %q, want %q", name, got.Termination, got.Error, words(got), x.want)
		}
	}
	if _, err := Open(t.Context(), "math_tip_trick", Options{}); err == nil {
		t.Error("tips without a reward")
	}
}

// walk answers a lake's map with the first step of a shortest way to the goal.
func walk(r *traj.Request) string {
	rows := strings.Split(r.Messages[len(r.Messages)-1].Content, "\n")
	rows = rows[:len(rows)-1]
	for y, row := range rows {
		x := strings.Index(row, "P")
		if x < 0 {
			continue
		}
		best, move := 1<<20, ""
		for name, d := range map[string][2]int{"up": {0, -1}, "down": {0, 1}, "left": {-1, 0}, "right": {1, 0}} {
			if n := distance(rows, x+d[0], y+d[1], 0, map[[2]int]int{}); n < best {
				best, move = n, name
			}
		}
		return "I go <move>" + move + "</move>"
	}
	return "lost"
}

func distance(rows []string, x, y, n int, seen map[[2]int]int) int {
	if y < 0 || y >= len(rows) || x < 0 || x >= len(rows[0]) || rows[y][x] == 'H' {
		return 1 << 20
	}
	if had, ok := seen[[2]int{x, y}]; ok && had <= n {
		return 1 << 20
	}
	seen[[2]int{x, y}] = n
	if rows[y][x] == 'G' {
		return n
	}
	best := 1 << 20
	for _, d := range [][2]int{{0, -1}, {0, 1}, {-1, 0}, {1, 0}} {
		best = min(best, distance(rows, x+d[0], y+d[1], n+1, seen))
	}
	return best
}

// TestAWalkerCrossesTheLake: the whole loop of a gym environment, with its reward at the
// last step.
func TestAWalkerCrossesTheLake(t *testing.T) {
	for seed := range 5 {
		task := traj.Task{ID: "a", Meta: json.RawMessage(fmt.Sprintf(`{"env_config":{"name":"frozen_lake","size":5,"seed":%d}}`, seed))}
		x := play(t, open(t, GymName, Options{}), walk, 40, task)["a"]
		if x.Termination != traj.EnvDone || x.Reward == nil || *x.Reward != 1 || x.Messages[0].Role != traj.RoleSystem {
			t.Fatalf("%s %q: %q", x.Termination, x.Error, words(x))
		}
		for i, step := range x.Steps {
			want := 0.0
			if i == len(x.Steps)-1 {
				want = 1
			}
			if step.Reward == nil || *step.Reward != want {
				t.Errorf("step %d: reward %v", i, step.Reward)
			}
		}
		var last struct {
			Done  bool    `json:"gym_done"`
			Total float64 `json:"total_reward"`
		}
		if err := json.Unmarshal(x.Infos[len(x.Infos)-1], &last); err != nil || !last.Done || last.Total != 1 {
			t.Errorf("%s %v", x.Infos, err)
		}
	}
}

// TestRowsThatNoEnvironmentTakes: each costs itself, and names its field.
func TestRowsThatNoEnvironmentTakes(t *testing.T) {
	s := open(t, GymName, Options{})
	for _, meta := range []string{``, `{"env_config":{}}`, `{"env_config":{"name":"nowhere"}}`,
		`{"env_config":{"name":"exec:rm -rf"}}`, `{"env_config":3}`,
		`{"env_config":{"name":"frozen_lake","size":99}}`, `{"env_config":{"name":"frozen_lake","map":["SH","HG"]}}`,
		`{"env_config":{"name":"frozen_lake","map":[]}}`, `{"env_config":{"name":"frozen_lake","map":["SX"]}}`,
		`{"env_config":{"name":"frozen_lake","size":"x"}}`} {
		if x := play(t, s, func(*traj.Request) string { return "r" }, 2, traj.Task{ID: "a",
			Meta: json.RawMessage(meta)})["a"]; x.Termination != traj.EnvFailed {
			t.Errorf("%s: %s", meta, x.Termination)
		}
		_, err := s.New(traj.Task{Meta: json.RawMessage(meta)})
		if err != nil && !strings.HasPrefix(malformed.Facts(err).Field, "env_config") {
			t.Errorf("%s: %v", meta, err)
		}
	}
}

// counted is an environment whose closing is counted.
type counted struct {
	frozenLake
	reset  error
	step   func() (GymStep, error)
	closed *atomic.Int32
}

func (c *counted) Reset(ctx context.Context, r GymReset) (GymStart, error) {
	if c.reset != nil {
		return GymStart{}, c.reset
	}
	return c.frozenLake.Reset(ctx, r)
}

func (c *counted) Step(context.Context, string) (GymStep, error) { return c.step() }
func (c *counted) Close() error                                  { c.closed.Add(1); return nil }

// TestAnEnvironmentIsClosedInEveryEnding: done, limits, failures and panics.
func TestAnEnvironmentIsClosedInEveryEnding(t *testing.T) {
	for name, step := range map[string]func() (GymStep, error){
		"done":    func() (GymStep, error) { return GymStep{Done: true}, nil },
		"limit":   func() (GymStep, error) { return GymStep{Observation: "x"}, nil },
		"failure": func() (GymStep, error) { return GymStep{}, errors.New("boom") },
		"panic":   func() (GymStep, error) { panic("boom") },
		"reset":   nil,
	} {
		var closed atomic.Int32
		var reset error
		if name == "reset" {
			reset = errors.New("boom")
		}
		RegisterGym("counted", func() Gym { return &counted{reset: reset, step: step, closed: &closed} })
		play(t, open(t, GymName, Options{Gym: "counted"}), func(*traj.Request) string { return "r" }, 3, numbered(4)...)
		if closed.Load() != 4 {
			t.Errorf("%s: %d of 4 were closed", name, closed.Load())
		}
	}
	delete(gyms, "counted")
}

// python runs an example of docs/scheduling.md.
func python(t testing.TB, file string) string {
	t.Helper()
	path, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 here")
	}
	return "exec:" + path + " ../examples/" + file
}

// TestTheExamplesInPython do what their first lines say.
func TestTheExamplesInPython(t *testing.T) {
	n := 0
	x := play(t, open(t, python(t, "scheduler_python/tip.py"), Options{}), func(*traj.Request) string {
		n++
		return []string{"it is 4", "it is \\boxed{4}"}[n-1]
	}, 5, traj.Task{ID: "a"})["a"]
	if got, _ := json.Marshal(x.Infos); x.Termination != traj.Answered || len(x.Steps) != 2 || string(got) != `[null,{"tips":1}]` {
		t.Errorf("tip.py: %s %q %s", x.Termination, x.Error, got)
	}
	b, err := os.ReadFile("../examples/scheduler_python/tip.py")
	if err != nil {
		t.Fatal(err)
	}
	if doc, err := os.ReadFile("../docs/scheduling.md"); err != nil || !strings.Contains(string(doc), string(b)) {
		t.Errorf("docs/scheduling.md does not show the example as it is: %v", err)
	}
	n = 0
	x = play(t, open(t, python(t, "scheduler_python/summarise.py"), Options{}), func(r *traj.Request) string {
		if n++; n == 12 {
			return "DONE"
		}
		return fmt.Sprintf("note %d\n%s", n, strings.Repeat("long ", 20))
	}, 20, traj.Task{ID: "a"})["a"]
	infos, _ := json.Marshal(x.Infos)
	summaries := strings.Count(string(infos), "summarised")
	if x.Termination != traj.Answered || len(x.Steps) != 12 || summaries == 0 || !strings.Contains(x.Messages[0].Content, "note 1\n") {
		t.Errorf("summarise.py: %s %q after %d turns, %d summaries: %q", x.Termination, x.Error, len(x.Steps), summaries, words(x))
	}
	low, high := 1, 100
	guess := 0
	x = play(t, open(t, GymName, Options{Gym: python(t, "gym_python/guess.py")}), func(r *traj.Request) string {
		switch said := r.Messages[len(r.Messages)-1].Content; {
		case strings.Contains(said, "larger"):
			low = guess + 1
		case strings.Contains(said, "smaller"):
			high = guess - 1
		}
		guess = (low + high) / 2
		return fmt.Sprint(guess)
	}, 20, traj.Task{ID: "a"})["a"]
	if x.Termination != traj.EnvDone || x.Reward == nil || *x.Steps[len(x.Steps)-1].Reward != 1 {
		t.Errorf("guess.py: %s %q: %q", x.Termination, x.Error, words(x))
	}
}
