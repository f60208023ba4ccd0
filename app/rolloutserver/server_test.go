package rolloutserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"agentcli/app/console"
	"agentcli/internal/exit"
	"agentcli/llm/llmtest"
	"agentcli/parquet"
	"agentcli/traj"
)

const tiny = "../../policy/testdata/tiny-llama"

// output keeps what a server says, and finds its address in it.
type output struct {
	mu   sync.Mutex
	b    bytes.Buffer
	url  chan string
	have bool
	wait map[string]chan struct{} // closed when a text was said
}

// until returns when a text was said.
func (o *output) until(text string) {
	c := make(chan struct{})
	o.mu.Lock()
	if strings.Contains(o.b.String(), text) {
		close(c)
	} else {
		o.wait = map[string]chan struct{}{text: c}
	}
	o.mu.Unlock()
	<-c
}

var address = regexp.MustCompile(`rollouts at (http://\S+);`)

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.b.Write(b)
	if m := address.FindSubmatch(o.b.Bytes()); m != nil && !o.have {
		o.have = true
		o.url <- string(m[1])
	}
	for text, c := range o.wait {
		if strings.Contains(o.b.String(), text) {
			close(c)
			delete(o.wait, text)
		}
	}
	return len(b), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// running is a server of a test.
type running struct {
	t     *testing.T
	url   string
	token string
	said  *output
	dir   string
	over  chan error
	end   func()
	err   error
}

// serve starts a server that plays with a mock of a model's server, or, where script is nil,
// with the small local model. Its run is in dir.
func serve(t *testing.T, dir string, script func(*llmtest.Request) llmtest.Reply, with func(*Options)) *running {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	url := ""
	if script != nil {
		url = llmtest.New(t, script).BaseURL()
	}
	o := options(dir, url)
	if with != nil {
		with(&o)
	}
	said := &output{url: make(chan string, 1)}
	x := &running{t: t, said: said, dir: dir, over: make(chan error, 1), token: o.Token}
	s := console.Streams{In: strings.NewReader(""), Out: io.Discard, Err: said}.Shared()
	ctx, done := console.WithInterrupt(t.Context(), s)
	ctx, cancel := context.WithCancel(ctx)
	go func() { x.over <- Run(ctx, o, s) }()
	x.end = sync.OnceFunc(func() {
		cancel()
		x.err = <-x.over
		done()
	})
	t.Cleanup(x.end)
	select {
	case x.url = <-said.url:
	case err := <-x.over:
		x.over <- err
		t.Fatalf("the server has not begun: %v\n%s", err, said)
	}
	return x
}

// post sends a body; a string goes as it is.
func (x *running) post(ctx context.Context, path string, body any) (status int, answer string) {
	x.t.Helper()
	raw, isText := body.(string)
	if !isText {
		b, err := json.Marshal(body)
		if err != nil {
			x.t.Fatal(err)
		}
		raw = string(b)
	}
	chunked := io.MultiReader(strings.NewReader(raw)) // of no known length
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, x.url+path, chunked)
	if err != nil {
		x.t.Fatal(err)
	}
	if x.token != "" {
		r.Header.Set("Authorization", "Bearer "+x.token)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(b)
}

// rows asks for trajectories, and gives the lines by the task's id.
func (x *running) rows(rows ...map[string]any) map[string]map[string]any {
	x.t.Helper()
	status, answer := x.post(x.t.Context(), "/v1/rollouts", map[string]any{"rows": rows})
	if status != http.StatusOK {
		x.t.Fatalf("%d %s", status, answer)
	}
	all := map[string]map[string]any{}
	for line := range strings.Lines(answer) {
		var t map[string]any
		if err := json.Unmarshal([]byte(line), &t); err != nil {
			x.t.Fatalf("%v: %s", err, line)
		}
		all[strings.TrimPrefix(t["task_id"].(string), "requests/")] = t
	}
	return all
}

func row(id string) map[string]any {
	return map[string]any{"id": id, "question": "What is " + id + "?"}
}

// seven is a reply with ids.
func seven() llmtest.Reply {
	r := llmtest.Text("7")
	r.PromptIDs, r.IDs, r.Logprobs, r.OutputTokens = []int32{1, 2, 3}, []int32{4, 5}, []float64{-.5, -.25}, 2
	return r
}

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

// A line comes when its trajectory has ended, whatever the others do.
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

// A client that goes away stops its trajectory: the same id, asked for again, waits until
// that one has ended and is played anew. The first reply would take an hour.
func TestAClientThatGoesAwayStopsItsTrajectories(t *testing.T) {
	for _, path := range []string{"/v1/rollouts", "/infer/"} {
		t.Run(strings.Trim(path, "/"), func(t *testing.T) {
			begun := make(chan struct{})
			dir := filepath.Join(t.TempDir(), "run")
			x := serve(t, dir, func(r *llmtest.Request) llmtest.Reply {
				if r.N == 0 {
					close(begun)
					return llmtest.Reply{Delay: time.Hour}
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
			status, answer := ask(t.Context())
			if status != http.StatusOK || strings.Contains(answer, "cancelled") || strings.Count(answer, "answered") != 2 {
				t.Fatalf("%d %s", status, answer)
			}
		})
	}
}

// Who waits for a trajectory keeps it when another who waits for it goes away.
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

func TestOnlyWhoHasTheTokenIsServed(t *testing.T) {
	const token = "s3cr3t-t0ken"
	dir := filepath.Join(t.TempDir(), "run")
	x := serve(t, dir, func(*llmtest.Request) llmtest.Reply { return seven() }, func(o *Options) { o.Token = token })
	x.rows(row("a"))
	for _, own := range []string{"", "wrong", token + "x"} {
		x.token = own
		for _, path := range []string{"/v1/rollouts", "/infer/", "/update_weights_from_disk", "/get_engine_type/", "/init_communicator/"} {
			if status, answer := x.post(t.Context(), path, "{}"); status != http.StatusUnauthorized {
				t.Errorf("%s with the token %q: %d %s", path, own, status, answer)
			}
		}
	}
	if resp, err := http.Get(x.url + "/health/"); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("/health/ has no secret: %v %v", resp, err)
	}
	x.end()
	if strings.Contains(x.said.String(), token) {
		t.Errorf("the token is in the messages:\n%s", x.said)
	}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			if b, _ := os.ReadFile(path); bytes.Contains(b, []byte(token)) {
				t.Errorf("the token is in %s", path)
			}
		}
		return err
	})
}

// A web page that somebody visits reaches loopback addresses too.
func TestAWebPageIsRefusedWithoutAToken(t *testing.T) {
	x := serve(t, filepath.Join(t.TempDir(), "run"), func(*llmtest.Request) llmtest.Reply { return seven() }, nil)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, x.url+"/v1/rollouts",
		strings.NewReader(`{"rows":[{"id":"a","question":"x"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Origin", "https://elsewhere.example")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("status %d", resp.StatusCode)
	}
}

func TestAnAddressThatOthersReachNeedsAToken(t *testing.T) {
	for _, addr := range []string{"0.0.0.0:0", ":0", "[::]:0", "example.org:80", "nonsense", "127.0.0.1"} {
		o := Options{Serve: addr}
		err := Run(t.Context(), o, console.Streams{Err: io.Discard})
		var usage exit.UsageError
		if !errors.As(err, &usage) {
			t.Errorf("%s: %v", addr, err)
		}
	}
}

func TestRequestsThatCannotBeAnswered(t *testing.T) {
	asked := false
	x := serve(t, filepath.Join(t.TempDir(), "run"), func(*llmtest.Request) llmtest.Reply { asked = true; return seven() }, nil)
	const request = `{"uuid":"a","messages":[{"role":"user","content":"x"}]`
	for _, c := range []struct {
		path, body string
		status     int
	}{
		{"/v1/rollouts", `{"rows":`, 400},
		{"/v1/rollouts", ``, 400},
		{"/v1/rollouts", `null`, 400},
		{"/v1/rollouts", `[]`, 400},
		{"/v1/rollouts", `{"rows":[]} {}`, 400},
		{"/infer/", `{"infer_requests":[` + request + `}],"request_config":{"n":2}}`, 422},
		{"/infer/", `{"infer_requests":[` + request + `}],"request_config":{"temperature":"hot"}}`, 422},
		{"/infer/", `{"infer_requests":[` + request + `}],"adapter_request":{"name":"x","path":"y"}}`, 422},
		{"/infer/", `{"infer_requests":[` + request + `,"images":["https://elsewhere.example/x.png"]}]}`, 422},
		{"/infer/", `{"infer_requests":[` + request + `,"images":["not base64!"]}]}`, 422},
		{"/infer/", `{"infer_requests":[` + request + `,"videos":["x"]}]}`, 422},
		{"/infer/", `{"infer_requests":[{"messages":[{"role":"user","content":[1,2,3]}]}]}`, 422},
		{"/infer/", `{"infer_requests":[{"messages":[{"role":"assistant","content":"x"}]}]}`, 422},
		{"/infer/", `{"infer_requests":[{"messages":[]}]}`, 422},
		{"/infer/", `{"infer_requests":[null]}`, 422},
		{"/infer/", `{"infer_requests":[7]}`, 422},
		{"/update_weights_from_disk", `{"model_path":"x"}`, 501}, // the model is a server's
		{"/init_communicator/", `{"host":"x","port":1,"world_size":2}`, 501},
		{"/update_named_param/", `{}`, 501},
		{"/update_flattened_params/", `{}`, 501},
		{"/update_adapter_param/", `{}`, 501},
		{"/update_adapter_flattened_param/", `{}`, 501},
		{"/process_weights_after_loading/", ``, 501},
		{"/close_communicator/", ``, 501},
		{"/v1/nothing", `{}`, 404},
	} {
		status, answer := x.post(t.Context(), c.path, c.body)
		if status != c.status {
			t.Errorf("%s %s: %d %s, want %d", c.path, c.body, status, answer, c.status)
		}
		if detail := (struct{ Detail string }{}); status != 404 && (json.Unmarshal([]byte(answer), &detail) != nil || detail.Detail == "") {
			t.Errorf("%s %s: the answer gives no reason: %s", c.path, c.body, answer)
		}
	}
	if asked {
		t.Error("something was played")
	}
}

func TestABodyThatIsTooLongIsRefused(t *testing.T) {
	s := &server{limit: 1 << 10, told: map[string]bool{}}
	h := s.handler()
	w := newRecorder()
	r, _ := http.NewRequest(http.MethodPost, "/v1/rollouts", strings.NewReader(`{"rows":[{"question":"`+strings.Repeat("x", 2<<10)+`"}]}`))
	h.ServeHTTP(w, r)
	if w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("status %d", w.Code)
	}
}

func TestFieldsThatMeanNothingAreReportedOnce(t *testing.T) {
	x := serve(t, filepath.Join(t.TempDir(), "run"), func(*llmtest.Request) llmtest.Reply { return seven() }, nil)
	for i := range 3 {
		status, answer := x.post(t.Context(), "/infer/", fmt.Sprintf(`{
			"infer_requests":[{"uuid":"u%d","messages":[{"role":"user","content":"x"}],"own":1}],
			"request_config":{"n":1,"seed":3,"repetition_penalty":1.1,"presence_penalty":0.0,"num_beams":1,"stream":false,"best_of":null,
				"new_one":true},
			"use_tqdm":false,"metrics":null,"adapter_request":null,"other":1}`, i))
		if status != http.StatusOK {
			t.Fatalf("%d %s", status, answer)
		}
	}
	for _, field := range []string{`"infer_requests.own"`, `"request_config.repetition_penalty"`, `"request_config.new_one"`, `"other"`} {
		if n := strings.Count(x.said.String(), field); n != 1 {
			t.Errorf("%s is reported %d times:\n%s", field, n, x.said)
		}
	}
	if n := strings.Count(x.said.String(), "means nothing here"); n != 4 {
		t.Errorf("%d fields are reported:\n%s", n, x.said)
	}
}

func TestEndpointsOfMsSwift(t *testing.T) {
	x := serve(t, filepath.Join(t.TempDir(), "run"), func(*llmtest.Request) llmtest.Reply { return seven() }, nil)
	for path, want := range map[string]string{
		"/health/": `{"status":"ok"}`, "/get_world_size/": `{"world_size":1}`,
	} {
		for _, p := range []string{path, strings.TrimSuffix(path, "/")} {
			resp, err := http.Get(x.url + p)
			if err != nil {
				t.Fatal(err)
			}
			b, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if string(b) != want {
				t.Errorf("%s: %s", p, b)
			}
		}
	}
	resp, err := http.Get(x.url + "/get_model_state_keys/")
	if err != nil || resp.StatusCode != http.StatusNotImplemented {
		t.Errorf("/get_model_state_keys/: %v %v", resp, err)
	}
	for _, path := range []string{"/reset_prefix_cache/", "/reset_encoder_cache/", "/reset_mm_cache/"} {
		if status, answer := x.post(t.Context(), path, ""); status != http.StatusOK || !strings.Contains(answer, "message") {
			t.Errorf("%s: %d %s", path, status, answer)
		}
	}
	status, answer := x.post(t.Context(), "/get_engine_type/", "")
	const want = `{"enable_lora":false,"enable_multi_turn":true,"engine_type":"AsyncLLMEngine","use_gym_env":false}`
	if status != 200 || answer != want {
		t.Errorf("/get_engine_type/: %d %s", status, answer)
	}
	status, answer = x.post(t.Context(), "/infer/", `{"infer_requests":[
		{"messages":[{"role":"user","content":"x"}],"data_dict":{"level":3,"solution":"7"}},
		{"messages":[{"role":"user","content":"y"}]}],"request_config":null}`)
	var out []struct {
		Messages         []map[string]any
		ResponseTokenIDs [][]int32 `json:"response_token_ids"`
		Mask             [][]int   `json:"response_loss_mask"`
		Logprobs         [][]float64
		Infos            map[string]any `json:"rollout_infos"`
	}
	if err := json.Unmarshal([]byte(answer), &out); status != 200 || err != nil || len(out) != 2 {
		t.Fatalf("%d %s %v", status, answer, err)
	}
	if out[0].Messages[0]["content"] != "x" || out[1].Messages[0]["content"] != "y" || fmt.Sprint(out[0].ResponseTokenIDs) != "[[4 5]]" ||
		fmt.Sprint(out[0].Mask) != "[[1 1]]" || out[0].Infos["num_turns"] != 1. || out[0].Infos["total_reward"] != 0. {
		t.Errorf("%s", answer)
	}
	if status, answer := x.post(t.Context(), "/infer/", `{"infer_requests":[]}`); status != 200 || answer != "[]" {
		t.Errorf("no requests: %d %s", status, answer)
	}
}

// Trajectories under way finish with the weights that they began with; new ones have the
// new weights and their number.
func TestNewWeightsAreOfNewTrajectories(t *testing.T) {
	x := serve(t, filepath.Join(t.TempDir(), "run"), nil, func(o *Options) {
		o.Scheduler, o.MaxTurns = "exec:"+heldScheduler(t), 2
		o.Sampling.MaxTokens, o.Sampling.Stop = 60, []string{"e", "a", "i", "o"}
	})
	fifo := os.Getenv("HELD")
	results := make(chan map[string]map[string]any, 1)
	begin := func(id string) { // returns when the first turn is over
		t.Helper()
		go func() { results <- x.rows(row(id)) }()
		begun := make(chan error, 1)
		go func() { _, err := os.ReadFile(fifo + ".begun"); begun <- err }()
		select {
		case err := <-begun:
			if err != nil {
				t.Fatal(err)
			}
		case early := <-results:
			t.Fatalf("it ended early: %v", early[id]["termination"])
		}
	}
	begin("old")
	if status, answer := x.post(t.Context(), "/update_weights_from_disk", map[string]any{"model_path": "/nowhere/model"}); status != 422 {
		t.Errorf("a folder that is not there: %d %s", status, answer)
	}
	if status, answer := x.post(t.Context(), "/update_weights_from_disk", map[string]any{"model_path": "org/name"}); status != 422 {
		t.Errorf("a name of the hub: %d %s", status, answer)
	}
	if status, answer := x.post(t.Context(), "/update_weights_from_disk", `{}`); status != 422 {
		t.Errorf("no folder: %d %s", status, answer)
	}
	other := map[string]any{"model_path": withAnotherTokenizer(t)}
	if status, answer := x.post(t.Context(), "/update_weights_from_disk", other); status != 422 {
		t.Errorf("another model: %d %s", status, answer)
	}
	if status, answer := x.post(t.Context(), "/update_weights_from_disk", map[string]any{"model_path": copied(t, tiny)}); status != 200 {
		t.Fatalf("%d %s", status, answer)
	}
	if err := os.WriteFile(fifo, []byte("go on\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if old := (<-results)["old"]; old["policy_version"] != 0. || old["turns"] != 2. {
		t.Errorf("the one under way: version %v, %v turns", old["policy_version"], old["turns"])
	}
	begin("young")
	if err := os.WriteFile(fifo, []byte("go on\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if young := (<-results)["young"]; young["policy_version"] != 1. {
		t.Errorf("the one after it: version %v", young["policy_version"])
	}
}

// heldScheduler is a scheduler that says by a pipe that the first turn is over, and waits
// at another one before it goes on.
func heldScheduler(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	fifo := filepath.Join(dir, "held")
	for _, name := range []string{fifo, fifo + ".begun"} {
		if err := syscall.Mkfifo(name, 0o600); err != nil {
			t.Skip(err)
		}
	}
	t.Setenv("HELD", fifo)
	script := filepath.Join(dir, "held.py")
	const program = `import json, sys
for line in sys.stdin:
    ask = json.loads(line)
    if ask["method"] == "start":
        print(json.dumps({"id": ask["id"]}), flush=True)
    elif ask["method"] == "next" and ask["turn"] == 1:
        open(sys.argv[1] + ".begun", "w").close()
        open(sys.argv[1]).read()
        print(json.dumps({"id": ask["id"], "messages": [{"role": "user", "content": "again"}]}), flush=True)
    elif ask["method"] == "next":
        print(json.dumps({"id": ask["id"], "done": True}), flush=True)
`
	if err := os.WriteFile(script, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	return "python3 " + script + " " + fifo
}

func copied(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(filepath.Join(to, "model"), os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(to, "model")
}

func withAnotherTokenizer(t *testing.T) string {
	t.Helper()
	dir := copied(t, tiny)
	path := filepath.Join(dir, "tokenizer.json")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	model := all["model"].(map[string]any)
	merges := model["merges"].([]any)
	model["merges"] = merges[:len(merges)-1]
	if b, err = json.Marshal(all); err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// Who waits when the run ends is told so. After ^C what is under way is played to its end.
func TestRequestsAreAnsweredWhenTheRunEnds(t *testing.T) {
	ends := map[string]func(x *running, release chan struct{}){
		"cancelled": func(x *running, _ chan struct{}) { x.end() },
		"^C": func(x *running, release chan struct{}) {
			if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
				x.t.Fatal(err)
			}
			x.said.until("stopping")
			close(release)
		},
	}
	for _, c := range []struct {
		name  string
		swift bool
	}{{"cancelled", false}, {"cancelled", true}, {"^C", false}, {"^C", true}} {
		name, swift, end := c.name, c.swift, ends[c.name]
		t.Run(fmt.Sprint(name, swift), func(t *testing.T) {
			begun, release := make(chan struct{}, 1), make(chan struct{})
			x := serve(t, filepath.Join(t.TempDir(), "run"), func(*llmtest.Request) llmtest.Reply {
				begun <- struct{}{}
				select {
				case <-release:
					return seven()
				case <-t.Context().Done(): // when the test is over
					return llmtest.Reply{}
				}
			}, func(o *Options) { o.Parallel = 1 })
			answers := make(chan string, 2)
			path, body := "/v1/rollouts", `{"rows":[{"id":"a","question":"x"},{"id":"b","question":"y"}]}`
			if swift {
				path, body = "/infer/", `{"infer_requests":[{"uuid":"a","messages":[{"role":"user","content":"x"}]},`+
					`{"uuid":"b","messages":[{"role":"user","content":"y"}]}]}`
			}
			go func() {
				status, answer := x.post(context.Background(), path, body)
				answers <- fmt.Sprint(status, " ", answer)
			}()
			<-begun
			end(x, release)
			answer := <-answers
			if want := map[bool]string{false: "200", true: "50"}[swift]; !strings.HasPrefix(answer, want) ||
				!strings.Contains(answer, errOver.Error()) && !strings.Contains(answer, "cancelled") {
				t.Errorf("%s", answer)
			}
			if finished := strings.Contains(answer, `"answered"`); finished != (name == "^C" && !swift) {
				t.Errorf("the one under way: %s", answer)
			}
		})
	}
}

func TestAModelThatFailsForGoodEndsTheServer(t *testing.T) {
	x := serve(t, filepath.Join(t.TempDir(), "run"), func(*llmtest.Request) llmtest.Reply {
		return llmtest.Reply{Status: 401, Error: "Incorrect API key provided"}
	}, nil)
	status, answer := x.post(t.Context(), "/infer/", `{"infer_requests":[{"messages":[{"role":"user","content":"x"}]}]}`)
	if status != http.StatusServiceUnavailable && status != http.StatusInternalServerError {
		t.Errorf("%d %s", status, answer)
	}
	err := <-x.over
	x.over <- err
	if err == nil {
		t.Error("the run ended well")
	}
}

// A server that is killed loses no trajectory that has ended: the next one on the same run
// gives it as it was, and plays the others.
func TestAKilledServerLosesNothingThatHadEnded(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	const rows, slow = 24, 6
	var mu sync.Mutex
	asked, release := map[string]int{}, make(chan struct{})
	model := llmtest.New(t, func(r *llmtest.Request) llmtest.Reply {
		mu.Lock()
		asked[r.Last()]++
		n := asked[r.Last()]
		mu.Unlock()
		if strings.Contains(r.Last(), "slow") && n == 1 {
			<-release
		}
		return seven()
	})
	t.Cleanup(sync.OnceFunc(func() { close(release) }))
	dir := filepath.Join(t.TempDir(), "run")
	start := func() (*exec.Cmd, *running) {
		out := &output{url: make(chan string, 1)}
		c := exec.CommandContext(t.Context(), os.Args[0])
		c.Env, c.Stderr = append(os.Environ(), envModel+"="+model.BaseURL(), envDir+"="+dir), out
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		return c, &running{t: t, url: <-out.url, said: out}
	}
	var all []map[string]any
	for i := range rows {
		r := row(fmt.Sprint(i))
		if i < slow {
			r["question"] = fmt.Sprint("slow ", i)
		}
		all = append(all, r)
	}
	c, x := start()
	b, err := json.Marshal(map[string]any{"rows": all})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(x.url+"/v1/rollouts", "application/json", bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	finished := map[string]any{}
	for d := json.NewDecoder(resp.Body); len(finished) < rows-slow; {
		var line map[string]any
		if err := d.Decode(&line); err != nil {
			t.Fatal(err)
		}
		finished[line["task_id"].(string)] = line["started_at"]
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	resp.Body.Close()
	c, x = start()
	got := x.rows(all...)
	for id, line := range got {
		if line["termination"] != "answered" {
			t.Errorf("%s: %v", id, line)
		}
		if was, ok := finished["requests/"+id]; ok && line["started_at"] != was {
			t.Errorf("%s had ended, and was played again", id)
		}
	}
	if len(got) != rows || len(finished) != rows-slow {
		t.Errorf("%d rows, %d of them before the kill", len(got), len(finished))
	}
	_ = c.Process.Kill()
	_ = c.Wait()
	mu.Lock()
	defer mu.Unlock()
	for question, n := range asked {
		if want := 1 + strings.Count(question, "slow"); n != want {
			t.Errorf("%q was played %d times, want %d", question, n, want)
		}
	}
}
