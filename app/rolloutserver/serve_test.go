package rolloutserver

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	"agentcli/app/console"
	"agentcli/llm/llmtest"
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

// A line comes when its trajectory has ended, whatever the others do.
// A client that goes away stops its trajectory: the same id, asked for again, waits until

// that one has ended and is played anew. The first reply would take an hour.
// Who waits for a trajectory keeps it when another who waits for it goes away.

// A web page that somebody visits reaches loopback addresses too.
// Trajectories under way finish with the weights that they began with; new ones have the

// new weights and their number.
// heldScheduler is a scheduler that says by a pipe that the first turn is over, and waits

// at another one before it goes on.
// Who waits when the run ends is told so. After ^C what is under way is played to its end.

// A server that is killed loses no trajectory that has ended: the next one on the same run
// gives it as it was, and plays the others.
