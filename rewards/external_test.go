package rewards

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentcli/internal/child"
	"agentcli/internal/remote"
	"agentcli/traj"
)

func asked() *traj.Trajectory {
	return &traj.Trajectory{Termination: traj.Answered,
		Task: traj.Task{ID: "t/1", Question: "2+2?", Answers: []string{"4"},
			Messages: []traj.Message{{Role: traj.RoleSystem, Content: "Be brief."}, {Role: traj.RoleUser, Content: "2+2?"}}},
		Messages: []traj.Message{{Role: traj.RoleSystem, Content: "Be brief."}, {Role: traj.RoleUser, Content: "2+2?"},
			{Role: traj.RoleAssistant, Content: "4"}}}
}

// shell writes a program that answers each line by what the shell function says.
func shell(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "reward.sh")
	if err := os.WriteFile(path,
		[]byte("#!/bin/sh\nwhile read -r line; do id=$(printf '%s' \"$line\" | sed 's/.*\"id\":\\([0-9]*\\).*/\\1/')\n"+body+"\ndone\n"),
		0o700); err != nil {
		t.Fatal(err)
	}
	return "exec:" + path
}

func TestProgramsScore(t *testing.T) {
	r, err := New(shell(t, `case "$line" in *'"response":"4"'*'"task_id":"t/1"'*) x=0.75;; *) x=0;; esac
echo "{\"id\":$id,\"reward\":$x,\"parts\":{\"b\":2,\"a\":1},\"correct\":true,\"extracted\":\"four\"}"`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.(io.Closer).Close()
	s, err := r.Score(t.Context(), asked())
	if err != nil || *s.Value != .75 || !*s.Correct || *s.Extracted != "four" || fmt.Sprint(s.Parts) != "[{a 1} {b 2}]" {
		t.Errorf("%+v, %v", s, err)
	}
	failed := asked()
	failed.Termination = traj.ModelFailed
	if s, err := r.Score(t.Context(), failed); s.Value != nil || err != nil {
		t.Errorf("a failure of the infrastructure was scored: %+v, %v", s, err)
	}
}

func TestProgramsRewardSteps(t *testing.T) {
	r, err := New(shell(t, `case "$line" in *'"turns":2'*) x='[0.25,null]';; *) x='[1]';; esac
echo "{\"id\":$id,\"reward\":1,\"steps\":$x}"`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.(io.Closer).Close()
	a := asked()
	three := 3.
	a.Steps = []traj.Step{{}, {Reward: &three}}
	s := NewScorer(func(*traj.Trajectory) string { return "" }, Options{})
	s.made[""] = r
	if err := s.Score(t.Context(), a); err != nil || *a.Steps[0].Reward != .25 || a.Steps[1].Reward != nil {
		t.Errorf("%+v, %v", a.Steps, err)
	}
	for _, steps := range [][]traj.Step{nil, make([]traj.Step, 3)} {
		a.Steps = steps
		if err := s.Score(t.Context(), a); !errors.Is(err, ErrSteps) {
			t.Errorf("%d steps: %v", len(steps), err)
		}
	}
}

// Steps keep what their environment gave where a reward says nothing of them.
func TestRewardsWithoutStepsLeaveThem(t *testing.T) {
	a := attempt("84", "84")
	three := 3.
	a.Steps = []traj.Step{{Reward: &three}}
	s := NewScorer(func(*traj.Trajectory) string { return "exact" }, Options{})
	if err := s.Score(t.Context(), a); err != nil || a.Steps[0].Reward != &three {
		t.Errorf("%+v, %v", a.Steps, err)
	}
}

func TestProgramsThatFailGiveAnErrorNeverAZero(t *testing.T) {
	for name, x := range map[string]struct {
		body, words string // words of the program
		is          error
	}{
		"an error":       {`echo "{\"id\":$id,\"error\":\"no such task\"}"`, "no such task", nil},
		"no reward":      {`echo "{\"id\":$id}"`, "", errNoReward},
		"another type":   {`echo "{\"id\":$id,\"reward\":\"high\"}"`, "", errForm},
		"it ends":        {`echo oops >&2; exit 3`, "oops", child.ErrEnded},
		"it says nonsen": {`echo hello; exit 1`, "", child.ErrEnded},
	} {
		r, err := New(shell(t, x.body), Options{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := r.Score(t.Context(), asked())
		if err == nil || s.Value != nil || !strings.Contains(err.Error(), x.words) || x.is != nil && !errors.Is(err, x.is) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
		r.(io.Closer).Close()
	}
	r, err := New(shell(t, "sleep 1000"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.(io.Closer).Close()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if s, err := r.Score(ctx, asked()); s.Value != nil || !errors.Is(err, child.ErrSilent) {
		t.Errorf("silence: %+v, %v", s, err)
	}
	if _, err := New("exec: ", Options{}); err == nil {
		t.Error("no command was taken for one")
	}
	if _, err := New("exec:true", Options{Strict: true}); err == nil {
		t.Error("a grader's options were taken for a program")
	}
}

// remoteSoon is the reward of a server, with short waits.
func remoteSoon(t *testing.T, address string) Reward {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return remoteAt(address, remote.New(u, remote.Options{Tries: remoteTries, Wait: time.Microsecond, Longest: remoteBody}))
}

func TestRemoteRewardSpeaksOpenRLHFsProtocol(t *testing.T) {
	calls := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls++
		if calls < 3 { // it is tried again
			http.Error(w, "warming up", http.StatusServiceUnavailable)
			return
		}
		var q struct{ Query, Prompts, Labels []string }
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil || r.Method != http.MethodPost {
			t.Error(err)
		}
		if len(q.Query) != 1 || q.Query[0] != "Be brief.\n2+2?\n4" || q.Prompts[0] != "Be brief.\n2+2?" || q.Labels[0] != "4" {
			t.Errorf("asked %+v", q)
		}
		fmt.Fprint(w, `{"rewards":[1.5],"scores":[0.5],"extra_logs":{"length":[1],"note":["x"]}}`)
	}))
	defer server.Close()
	s, err := remoteSoon(t, server.URL).Score(t.Context(), asked())
	if err != nil || *s.Value != 1.5 || s.Correct != nil || fmt.Sprint(s.Parts) != "[{length 1} {score 0.5}]" || calls != 3 {
		t.Errorf("%+v, %v, %d calls", s, err, calls)
	}
}

// TestAProgramsRewardSeesTheInfos: and the columns, and the messages.
func TestAProgramsRewardSeesTheInfos(t *testing.T) {
	said := asked()
	said.Infos, said.Task.Meta = []traj.Info{traj.Info(`{"n":1}`), nil}, json.RawMessage(`{"level":3}`)
	r, err := New(`exec:python3 -c '
import json, sys
for line in sys.stdin:
    ask = json.loads(line)
    reward = ask["infos"][0]["n"] + 10 * ask["meta"]["level"] + 100 * len(ask["messages"])
    print(json.dumps({"id": ask["id"], "reward": reward}), flush=True)
'`, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.(io.Closer).Close()
	s, err := r.Score(t.Context(), said)
	if want := 31 + 100*float64(len(said.Messages)); err != nil || s.Value == nil || *s.Value != want {
		t.Errorf("%+v %v, want %v", s, err, want)
	}
}

// TestAServersRewardSeesTheInfos: one list a trajectory, null where it has none.
func TestAServersRewardSeesTheInfos(t *testing.T) {
	var bodies []map[string]json.RawMessage
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body map[string]json.RawMessage
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		bodies = append(bodies, body)
		_, _ = io.WriteString(w, `{"rewards":[1]}`)
	}))
	defer server.Close()
	said := asked()
	said.Infos = []traj.Info{traj.Info(`{"n":1}`), nil}
	for _, one := range []*traj.Trajectory{said, asked()} {
		if _, err := remoteSoon(t, server.URL).Score(t.Context(), one); err != nil {
			t.Fatal(err)
		}
	}
	if got := string(bodies[0]["infos"]); got != `[[{"n":1},null]]` {
		t.Errorf("infos %s", got)
	}
	if got, has := bodies[1]["infos"]; has {
		t.Errorf("without a scheduler: infos %s", got)
	}
}

func TestRemoteRewardGivesUpWithAnError(t *testing.T) {
	for name, x := range map[string]struct {
		status int
		body   string
		tries  int
		is     error
	}{
		"always busy": {503, "busy", remoteTries, nil}, "refused": {400, "bad query", 1, nil},
		"garbage": {200, "<html>", remoteTries, remote.ErrProtocol},
		"none":    {200, `{"rewards":[]}`, 1, remote.ErrProtocol}, "null": {200, `{"rewards":[null]}`, 1, remote.ErrProtocol},
		"a list": {200, `[1]`, 1, remote.ErrProtocol},
		"10 MB":  {200, `{"rewards":[1],"x":"` + strings.Repeat("x", 10<<20) + `"}`, 1, remote.ErrProtocol},
	} {
		calls := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			calls++
			w.WriteHeader(x.status)
			fmt.Fprint(w, x.body)
		}))
		s, err := remoteSoon(t, server.URL).Score(t.Context(), asked())
		var status *remote.StatusError
		if err == nil || s.Value != nil || calls != x.tries || !strings.Contains(err.Error(), server.URL) ||
			x.is != nil && !errors.Is(err, x.is) ||
			x.is == nil && (!errors.As(err, &status) || status.Status != x.status) {
			t.Errorf("%s: %+v, %v, %d tries", name, s, err, calls)
		}
		server.Close()
	}
	u, _ := url.Parse("http://127.0.0.1:1/")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	nobody := remoteAt(u.String(), remote.New(u, remote.Options{Wait: time.Hour}))
	if _, err := nobody.Score(ctx, asked()); !errors.Is(err, syscall.ECONNREFUSED) { // the cause, though the wait was cut short
		t.Errorf("no server, and the run ends in the wait: %v", err)
	}
	if _, err := New("http:///score", Options{}); err == nil {
		t.Error("an address without a host was taken for one")
	}
}

// docs/rewards.md shows the example as it is.
func TestThePageShowsTheExample(t *testing.T) {
	program, err := os.ReadFile("../examples/reward_python/units.py")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../docs/rewards.md")
	if err != nil || !strings.Contains(string(page), string(program)) {
		t.Errorf("docs/rewards.md does not show the example as it is: %v", err)
	}
}

// Each reward and each option has its row in docs/rewards.md.
func TestThePageHasEachRewardAndOption(t *testing.T) {
	b, err := os.ReadFile("../docs/rewards.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	for _, name := range Names() {
		if !strings.Contains(page, "`"+name+"`") {
			t.Errorf("docs/rewards.md has no reward %s", name)
		}
	}
	for name := range (Options{}).settings() {
		of := reflect.TypeFor[Options]().Field(keysOf(reflect.TypeFor[Options]())[name]).Type
		for option := range keysOf(of) {
			if !strings.Contains(page, "`"+name+"."+option+"`") {
				t.Errorf("docs/rewards.md has no option %s.%s", name, option)
			}
		}
	}
}
