package rolloutserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentcli/app/console"
	"agentcli/app/rollout"
	"agentcli/datasets"
	"agentcli/internal/exit"
	"agentcli/internal/setting"
	"agentcli/internal/setting/settingtest"
	"agentcli/llm/llmtest"
)

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

// TestARowThatCannotBeScoredIsRefused: before anything of its request is played, as a file's row is
// before its run.
func TestARowThatCannotBeScoredIsRefused(t *testing.T) {
	asked := false
	x := serve(t, filepath.Join(t.TempDir(), "run"), func(*llmtest.Request) llmtest.Reply { asked = true; return seven() },
		func(o *Options) { o.Reward = "math" })
	for path, body := range map[string]string{
		"/v1/rollouts": `{"rows":[{"id":"a","question":"x","answer":"7"},{"id":"b","question":"y"}]}`,
		"/infer/":      `{"infer_requests":[{"uuid":"a","messages":[{"role":"user","content":"x"}]}]}`,
	} {
		if status, answer := x.post(t.Context(), path, body); status != http.StatusUnprocessableEntity || asked {
			t.Errorf("%s: %d %s, asked %v", path, status, answer, asked)
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
		{"/infer/", `{}`, 422},
		{"/infer/", `{"infer_requests":[` + request + `,"images":"x"}]}`, 422},
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
		if detail := (struct{ Detail string }{}); json.Unmarshal([]byte(answer), &detail) != nil || detail.Detail == "" {
			t.Errorf("%s %s: the answer gives no reason: %s", c.path, c.body, answer)
		}
	}
	if asked {
		t.Error("something was played")
	}
}

// TestUnknownEndpointsAreAnsweredInTheFormOfErrors: and by who has the token.
func TestUnknownEndpointsAreAnsweredInTheFormOfErrors(t *testing.T) {
	for _, c := range []struct {
		method, path, token string
		up                  *upstream
		status              int
		detail              string
	}{
		{"GET", "/v1/nothing", "x", nil, 404, "there is no GET /v1/nothing here"},
		{"GET", "/v1/nothing", "x", &upstream{}, 404, "there is no GET /v1/nothing here"},
		{"GET", "/v1/rollouts", "x", nil, 405, "/v1/rollouts takes POST, not GET"},
		{"DELETE", "/health/", "x", nil, 405, "/health/ takes GET, HEAD, not DELETE"},
		{"GET", "/v1/nothing", "y", nil, 401, "the request carries another token than the server's, or none"},
	} {
		s := &server{o: Options{Token: "x"}, limit: 1 << 10, up: c.up, pool: newPool(), reported: map[string]bool{}}
		w := newRecorder()
		r, _ := http.NewRequest(c.method, c.path, http.NoBody)
		r.Header.Set("Authorization", "Bearer "+c.token)
		s.handler().ServeHTTP(w, r)
		want := fmt.Sprintf(`{"detail":%q}`, c.detail)
		if w.Code != c.status || w.Body.String() != want || w.Header().Get("Content-Type") != "application/json" ||
			(w.Header().Get("Allow") != "") != (c.status == 405) {
			t.Errorf("%s %s: %d %v %s, want %d %s", c.method, c.path, w.Code, w.Header(), w.Body, c.status, want)
		}
	}
}

func TestABodyThatIsTooLongIsRefused(t *testing.T) {
	s := &server{limit: 1 << 10, reported: map[string]bool{}}
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

// TestSettingsThatChooseRowsAreRefused: they would have no effect.
func TestSettingsThatChooseRowsAreRefused(t *testing.T) {
	shots := 0
	for name, o := range map[string]rollout.Options{"Dataset": {Dataset: "arith"}, "Split": {Split: "x"},
		"Limit": {Limit: 1}, "Shuffle": {Shuffle: true},
		"Rows": {Select: datasets.Selection{Rows: []datasets.RowRange{{}}}}, "IDs": {Select: datasets.Selection{IDs: []string{"a"}}},
		"FailedOf": {FailedOf: "x"}, "Level": {Level: "2"}, "Shots": {Shots: &shots}} {
		err := Run(t.Context(), Options{FileOptions: rollout.FileOptions{Options: o}, Serve: "127.0.0.1:0"}, console.Streams{})
		var usage exit.UsageError
		if !errors.As(err, &usage) || !settingtest.Names(err, setting.Name(name)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
