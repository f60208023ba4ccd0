package rolloutserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"agentcli/llm/llmtest"
)

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

// TestTheEndOfAServerSaysHowToGoOn: as that of any rollout does.
func TestTheEndOfAServerSaysHowToGoOn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	for _, c := range []struct {
		played bool
		with   func(*Options)
		want   string // how to go on; "": it cannot
		spent  bool
	}{
		{false, nil, "Resume DIR\n", false},
		{true, func(o *Options) { o.Resume, o.Output, o.Token = dir, "", "secret" }, "Resume DIR Token TOKEN\n", false},
		{true, func(o *Options) { o.Output, o.File = "", filepath.Join(t.TempDir(), "f.parquet") }, "", false},
		{true, func(o *Options) { o.Output, o.Budget.Tokens = filepath.Join(t.TempDir(), "other"), 1 }, "", true},
	} {
		x := serve(t, dir, func(*llmtest.Request) llmtest.Reply { return seven() }, c.with)
		if c.played {
			x.rows(row("a"))
		}
		if c.spent { // which the next row finds
			x.post(t.Context(), "/v1/rollouts", map[string]any{"rows": []any{row("b")}})
		} else {
			if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
		}
		err := <-x.over
		x.over <- err
		said := strings.ReplaceAll(x.said.String(), dir, "DIR")
		if err != nil {
			said += err.Error()
		}
		if !strings.Contains(said, c.want) || c.want == "" && !c.spent && strings.Contains(said, "Resume") || (err != nil) != c.spent ||
			c.played && c.want != "" && !strings.Contains(said, "DIR/traj.parquet") {
			t.Errorf("want %q: %v\n%s", c.want, err, said)
		}
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
