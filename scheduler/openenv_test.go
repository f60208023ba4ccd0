package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"agentcli/traj"

	"github.com/coder/websocket"
)

// openEnvServer is a server of OpenEnv for n sessions at a time. Its environment counts down
// from start: an action {"minus": k} gives the reward k.
type openEnvServer struct {
	*httptest.Server
	mu       sync.Mutex
	sessions int
	most     int
	refused  chan struct{} // closed when a session was refused
	closed   chan string   // how sessions ended
	raw      string        // is answered to every message; "": what belongs there
}

func newOpenEnvServer(t *testing.T, n int) *openEnvServer {
	t.Helper()
	s := &openEnvServer{refused: make(chan struct{}), closed: make(chan string, 100)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ws" {
			http.NotFound(w, r)
			return
		}
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer c.CloseNow()
		s.mu.Lock()
		full := s.sessions == n
		if !full {
			s.sessions++
			s.most = max(s.most, s.sessions)
		}
		s.mu.Unlock()
		if full {
			_ = c.Write(r.Context(), websocket.MessageText, []byte(`{"type":"error","data":{"message":"full","code":"CAPACITY_REACHED"}}`))
			select {
			case <-s.refused:
			default:
				close(s.refused)
			}
			return
		}
		end := s.session(r.Context(), c)
		s.mu.Lock()
		s.sessions--
		s.mu.Unlock()
		s.closed <- end
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *openEnvServer) session(ctx context.Context, c *websocket.Conn) (end string) {
	left := 0
	say := func(reward any) string {
		return fmt.Sprintf(`{"type":"observation","data":{"observation":{"left":%d,"say":"<é>"},"reward":%v,"done":%v}}`, left, reward, left <= 0)
	}
	for {
		_, b, err := c.Read(ctx)
		if err != nil {
			return "lost"
		}
		var ask struct {
			Type string
			Data map[string]any
		}
		_ = json.Unmarshal(b, &ask)
		answer := `{"type":"error","data":{"message":"no such action","code":"VALIDATION_ERROR","errors":["minus"]}}`
		switch k, ok := ask.Data["minus"].(float64); {
		case s.raw != "":
			answer = s.raw
		case ask.Type == "close":
			return "closed"
		case ask.Type == "reset":
			left = 3
			if start, ok := ask.Data["start"].(float64); ok {
				left = int(start)
			}
			answer = say("null")
		case ok:
			left -= int(k)
			answer = say(k)
		}
		if c.Write(ctx, websocket.MessageText, []byte(answer)) != nil {
			return "lost"
		}
	}
}

// playWith plays a task with these replies, one after the other.
func playWith(t *testing.T, set *Set, task traj.Task, replies ...string) *traj.Trajectory {
	t.Helper()
	return play(t, set, func(r *traj.Request) string {
		n := 0
		for _, m := range r.Messages {
			if m.Role == traj.RoleAssistant {
				n++
			}
		}
		return replies[min(n, len(replies)-1)]
	}, 8, task)[task.ID]
}

func TestAnOpenEnvServerIsPlayed(t *testing.T) {
	s := newOpenEnvServer(t, 8)
	task := traj.Task{ID: "t", Meta: json.RawMessage(`{"env_config":{"base_url":"` + s.URL + `/","system_message":"Count down.",` +
		`"reset_kwargs":{"start":4}}}`)}
	x := playWith(t, open(t, OpenEnvName, Options{Gym: s.URL}), task, "what now", "```json\n{\"minus\": 1}\n```", `{"minus": 3}`)
	if x.Termination != traj.EnvDone || len(x.Steps) != 3 {
		t.Fatalf("%s after %d turns: %s", x.Termination, len(x.Steps), x.Error)
	}
	var said []string
	for _, m := range x.Messages {
		if m.Role != traj.RoleAssistant {
			said = append(said, m.Role+": "+m.Content)
		}
	}
	want := []string{"system: Count down.", `user: {"left": 4, "say": "<é>"}`,
		`user: Error: no such action ["minus"]`, `user: {"left": 3, "say": "<é>"}`}
	if strings.Join(said, "\n") != strings.Join(want, "\n") {
		t.Errorf("%q", said)
	}
	if a, b, c := *x.Steps[0].Reward, *x.Steps[1].Reward, *x.Steps[2].Reward; a != 0 || b != 1 || c != 3 {
		t.Errorf("rewards %v %v %v", a, b, c)
	}
	if end := <-s.closed; end != "closed" {
		t.Errorf("the session was %s", end)
	}
}

// TestAFullOpenEnvServerIsWaitedFor: it has room for one session.
func TestAFullOpenEnvServerIsWaitedFor(t *testing.T) {
	s := newOpenEnvServer(t, 1)
	set := open(t, OpenEnvName, Options{Gym: s.URL})
	first, err := set.New(traj.Task{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.(*gym).env.Reset(t.Context(), GymReset{Config: json.RawMessage("{}")}); err != nil {
		t.Fatal(err)
	}
	done := make(chan *traj.Trajectory, 1)
	go func() { done <- playWith(t, set, traj.Task{ID: "t"}, `{"minus": 3}`) }()
	<-s.refused
	_ = first.(*gym).Close(traj.Answered)
	if x := <-done; x.Termination != traj.EnvDone || s.most != 1 {
		t.Errorf("%s %s, %d sessions at once", x.Termination, x.Error, s.most)
	}
}

func TestAnOpenEnvServerThatCannotBeUsedIsAnError(t *testing.T) {
	for name, address := range map[string]string{"none": "", "a name": "frozen_lake", "a program": "exec:cat", "a file": "file:///x"} {
		if _, err := Open(t.Context(), OpenEnvName, Options{Gym: address}); err == nil {
			t.Errorf("%s is taken for a server", name)
		}
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	defer gone.Close()
	s := newOpenEnvServer(t, 8)
	for name, x := range map[string]struct{ address, config, raw string }{
		"no socket":          {gone.URL, `{}`, ""},
		"another server":     {s.URL, `{"base_url":"http://169.254.169.254"}`, ""},
		"a type of its own":  {s.URL, `{}`, `{"type":"state","data":{}}`},
		"no JSON":            {s.URL, `{}`, `x`},
		"an error":           {s.URL, `{}`, `{"type":"error","data":{"message":"boom","code":"EXECUTION_ERROR"}}`},
		"a reward of text":   {s.URL, `{}`, `{"type":"observation","data":{"observation":{},"reward":"1"}}`},
		"kwargs of text":     {s.URL, `{"base_url":7}`, ""},
		"an unreadable data": {s.URL, `{}`, `{"type":"error","data":7}`},
	} {
		s.raw = x.raw
		task := traj.Task{ID: "t", Meta: json.RawMessage(`{"env_config":` + x.config + `}`)}
		if got := playWith(t, open(t, OpenEnvName, Options{Gym: x.address}), task, "hi"); got.Termination != traj.EnvFailed || got.Error == "" {
			t.Errorf("%s: %s %s", name, got.Termination, got.Error)
		}
	}
}

func TestWhatAReplyAsksOfOpenEnv(t *testing.T) {
	for reply, want := range map[string]string{
		` {"answer": "7"} `:            `{"answer": "7"}`,
		"```json\n{\"a\": 1}\n```":     `{"a": 1}`,
		"```\nls\n```":                 `{"message":"ls"}`,
		"hello\nthere":                 `{"message":"hello\nthere"}`,
		`"hello"`:                      `{"message":"hello"}`,
		`[1, 2]`:                       `{"message":"[1, 2]"}`,
		`{"a": `:                       `{"message":"{\"a\":"}`,
		"":                             `{"message":""}`,
		"```":                          "{\"message\":\"```\"}",
		`{"a": 1} and another {"b":2}`: `{"message":"{\"a\": 1} and another {\"b\":2}"}`,
	} {
		if got := string(openEnvAction(reply)); got != want {
			t.Errorf("%q asks %s, want %s", reply, got, want)
		}
	}
}
