package rolloutserver

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"agentcli/app/console"
	"agentcli/internal/remote/remotetest"
	"agentcli/llm/llmtest"
)

// pushedTo is a server that samples and takes weights: it notes what it is asked.
type pushedTo struct {
	*httptest.Server
	mu    sync.Mutex
	asked []string
	auth  []string
	fails bool // it takes no weights
}

func (p *pushedTo) note(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, what)
}

func (p *pushedTo) log() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.asked)
}

// startPushed starts one; it samples as model does.
func startPushed(t *testing.T, o llmtest.Options, script func(*llmtest.Request) llmtest.Reply) *pushedTo {
	t.Helper()
	model := llmtest.NewWith(t, o, script)
	p := &pushedTo{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.auth = append(p.auth, r.Header.Get("Authorization"))
		fails := p.fails
		p.mu.Unlock()
		if strings.HasPrefix(r.URL.Path, "/v1/") || o.Swift && (r.URL.Path == "/get_engine_type/" || r.URL.Path == llmtest.Infer) {
			model.ServeHTTP(w, r)
			return
		}
		b, _ := io.ReadAll(r.Body)
		p.note(r.Method + " " + r.URL.String() + " " + r.Header.Get("Content-Type") + " " + string(b))
		w.Header().Set("Content-Type", "application/x-own")
		if fails {
			w.WriteHeader(http.StatusTeapot)
		}
		_, _ = io.WriteString(w, "answer to "+r.URL.Path)
	}))
	t.Cleanup(p.Close)
	return p
}

// through serves with a server to which weights are pushed.
func through(t *testing.T, p *pushedTo, with func(*Options)) *running {
	t.Helper()
	return serve(t, filepath.Join(t.TempDir(), "run"), nil, func(o *Options) {
		o.Model.Model, o.SyncThrough = "", p.URL
		if with != nil {
			with(o)
		}
	})
}

func TestWhatATrainerPushesReachesTheServerThatSamples(t *testing.T) {
	p := startPushed(t, llmtest.Options{}, func(*llmtest.Request) llmtest.Reply { return seven() })
	x := through(t, p, func(o *Options) { o.Token, o.Model.APIKey = "the-rollout-servers-own", "of-the-sampler" })
	for _, path := range slices.Concat(pushes, asides, endsOfPush) {
		for _, slash := range []string{"", "/"} {
			status, answer := x.post(t.Context(), path+slash+"?a=b", `{"name": "w",  "x": 1}`)
			if status != http.StatusOK || answer != "answer to "+path+slash {
				t.Errorf("%s%s: %d %s", path, slash, status, answer)
			}
			if log := p.log(); log[len(log)-1] != "POST "+path+slash+`?a=b  {"name": "w",  "x": 1}` {
				t.Errorf("%s arrived as %s", path, log[len(log)-1])
			}
		}
	}
	for _, path := range []string{"/get_world_size/", "/get_model_state_keys/", "/server_info?config_format=json"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, x.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+x.token)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if bare, _, _ := strings.Cut(path, "?"); string(b) != "answer to "+bare || resp.Header.Get("Content-Type") != "application/x-own" {
			t.Errorf("%s: %s", path, b)
		}
		if log := p.log(); log[len(log)-1] != "GET "+path+"  " {
			t.Errorf("%s arrived as %s", path, log[len(log)-1])
		}
	}
	if r := x.rows(row("1"))["1"]; r["termination"] != "answered" {
		t.Errorf("it is not sampled from: %v", r)
	}
	for _, auth := range p.auth {
		if auth != "Bearer of-the-sampler" {
			t.Fatalf("it was shown %q", auth)
		}
	}
	p.mu.Lock()
	p.fails = true
	p.mu.Unlock()
	status, answer := x.post(t.Context(), "/update_named_param/", "")
	if status != http.StatusTeapot || answer != "answer to /update_named_param/" {
		t.Errorf("its refusal: %d %s", status, answer)
	}
	if r := x.rows(row("2"))["2"]; r["termination"] != "answered" { // a push that was refused holds nothing up
		t.Errorf("after a refusal: %v", r)
	}
}

// TestNoTrajectoryIsSampledWithTwoVersions: a push waits for what is under way, and what
// comes meanwhile waits until the push has ended, however many requests it has.
func TestNoTrajectoryIsSampledWithTwoVersions(t *testing.T) {
	var p *pushedTo
	begun, goOn := make(chan struct{}), make(chan struct{})
	p = startPushed(t, llmtest.Options{}, func(r *llmtest.Request) llmtest.Reply {
		if strings.Contains(r.Last(), "old") {
			close(begun)
			<-goOn
		}
		question, _, _ := strings.Cut(r.Last(), "?")
		p.note("sampled " + question)
		return seven()
	})
	x := through(t, p, nil)
	results := make(chan map[string]map[string]any, 2)
	go func() { results <- x.rows(row("old")) }()
	<-begun
	push := make(chan int, 1)
	go func() {
		status, _ := x.post(t.Context(), "/update_flattened_params/", "first")
		push <- status
	}()
	x.said.until("that are under way: 1")
	// One whose trainer goes away while it waits leaves the other in force.
	gone, cancel := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() { _, _ = x.post(gone, "/update_flattened_params/", "given up"); close(left) }()
	cancel()
	<-left
	go func() { results <- x.rows(row("young")) }()
	x.said.until("new trajectories wait")
	select {
	case status := <-push:
		t.Fatalf("weights were pushed under a trajectory: %d", status)
	default:
	}
	close(goOn)
	if status := <-push; status != http.StatusOK {
		t.Fatal(status)
	}
	if old := (<-results)["old"]; old["policy_version"] != 0. {
		t.Errorf("the one under way: version %v", old["policy_version"])
	}
	for _, path := range []string{"/update_flattened_params/", "/process_weights_after_loading/", "/reset_prefix_cache/"} {
		if status, answer := x.post(t.Context(), path, "more"); status != http.StatusOK {
			t.Fatal(status, answer)
		}
	}
	if young := (<-results)["young"]; young["policy_version"] != 1. || young["termination"] != "answered" {
		t.Errorf("the one after it: version %v, %v", young["policy_version"], young["termination"])
	}
	if status, _ := x.post(t.Context(), "/reset_prefix_cache/", ""); status != http.StatusOK {
		t.Error(status)
	}
	if r := x.rows(row("last"))["last"]; r["policy_version"] != 1. { // nothing was pushed
		t.Errorf("after another reset: version %v", r["policy_version"])
	}
	var order []string
	for _, line := range p.log() {
		fields := strings.Fields(line)
		order = append(order, fields[0]+" "+fields[len(fields)-1])
	}
	const want = "[sampled old POST first POST more POST more POST more sampled young POST /reset_prefix_cache/ sampled last]"
	if fmt.Sprint(order) != want {
		t.Errorf("%v, want %s", order, want)
	}
}

// TestSwiftRolloutSamples: it has no other endpoint for that than /infer/.
func TestSwiftRolloutSamples(t *testing.T) {
	p := startPushed(t, llmtest.Options{Swift: true}, func(r *llmtest.Request) llmtest.Reply {
		one := seven()
		one.Content = "I am sure it is 7"
		if len(r.Messages) == 1 {
			one.Content = "7, or 8"
		}
		return one
	})
	x := through(t, p, func(o *Options) { o.Scheduler, o.MaxTurns, o.Reward = "math_tip_trick_multi_turn", 3, "math" })
	rows := x.rows(map[string]any{"id": "a", "question": "What?", "answer": "9"}, map[string]any{"id": "b", "question": "Who?", "answer": "9"})
	for id, r := range rows {
		if r["turns"] != 2. || r["termination"] != "answered" || !strings.Contains(fmt.Sprint(r["sequences"]), "token_ids:[1 2 3 4 5") {
			t.Errorf("%s: %v", id, r)
		}
	}
	if status, answer := x.post(t.Context(), "/get_engine_type/", ""); status != 200 || !strings.Contains(answer, `"enable_lora":true`) {
		t.Errorf("/get_engine_type/: %d %s", status, answer)
	}
}

func TestServersThatCannotTakeWeightsAreRefused(t *testing.T) {
	empty := httptest.NewServer(http.NotFoundHandler())
	defer empty.Close()
	closed := remotetest.Nobody(t)
	for name, change := range map[string]func(*Options){
		"another scheme":    func(o *Options) { o.SyncThrough = "ftp://127.0.0.1:1" },
		"another, a key":    func(o *Options) { o.SyncThrough = "ftp://me:secret123@127.0.0.1:1" },
		"no scheme":         func(o *Options) { o.SyncThrough = "127.0.0.1:8000" },
		"no host":           func(o *Options) { o.SyncThrough = "http://" },
		"a query":           func(o *Options) { o.SyncThrough = "http://127.0.0.1:1?key=secret123" },
		"nothing to sample": func(o *Options) { o.SyncThrough = empty.URL },
		"nobody there":      func(o *Options) { o.SyncThrough = closed },
		"no server of ours": func(o *Options) { o.SyncThrough, o.Serve = empty.URL, "" },
	} {
		o := options(t.TempDir(), "")
		change(&o)
		s := console.Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}
		err := Run(t.Context(), o, s)
		if err == nil || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "secret123") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAServerThatIsGoneIsToldToTheTrainer: in one sentence; what is sampled elsewhere goes on.
func TestAServerThatIsGoneIsToldToTheTrainer(t *testing.T) {
	closed := remotetest.Nobody(t)
	x := serve(t, filepath.Join(t.TempDir(), "run"), func(*llmtest.Request) llmtest.Reply { return seven() },
		func(o *Options) { o.SyncThrough, o.Model.APIKey = closed, "of-the-model" })
	for range 2 {
		status, answer := x.post(t.Context(), "/update_named_param/", "{}")
		if status != http.StatusBadGateway || !strings.Contains(answer, errUpstream.Error()) {
			t.Errorf("%d %s", status, answer)
		}
	}
	if r := x.rows(row("1"))["1"]; r["termination"] != "answered" || r["policy_version"] != 0. {
		t.Errorf("%v", r)
	}
}
