package llm

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"agentcli/internal/remote/remotetest"
	"agentcli/internal/setting"
	"agentcli/internal/setting/settingtest"
	"agentcli/llm/llmtest"
	"agentcli/model/chat"
	"agentcli/traj"

	"github.com/google/go-cmp/cmp"
)

func ptr[T any](v T) *T { return &v }

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// rig is a client whose pauses are recorded and take no time.
type rig struct {
	*Client
	slept   []time.Duration
	notices []string
}

func newRig(t *testing.T, url string, mend func(*Config)) *rig {
	t.Helper()
	r := &rig{}
	c := Config{BaseURL: url, APIKey: "sk-secret", Model: "mock", WantIDs: true,
		Sleep: func(ctx context.Context, d time.Duration) error {
			r.slept = append(r.slept, d)
			return ctx.Err()
		},
		Now:    func() time.Time { return now },
		Random: func() float64 { return 0.5 },
		Notice: func(s string) { r.notices = append(r.notices, s) },
	}
	if mend != nil {
		mend(&c)
	}
	var err error
	if r.Client, err = New(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func ask() *traj.Request {
	return &traj.Request{
		Messages: []traj.Message{{Role: "user", Content: "q"}},
		Tools:    []traj.ToolSpec{{Name: "calculator"}},
		Seed:     7,
	}
}

func TestGenerateVLLM(t *testing.T) {
	s := llmtest.New(t, llmtest.Sequence(llmtest.Reply{Content: "84", Reasoning: "think", PromptIDs: []int32{1, 2, 3},
		IDs: []int32{4, 5}, Logprobs: []float64{-0.5, -0.25}}))
	c := newRig(t, s.BaseURL(), nil)
	req := ask()
	req.Sampling = traj.Sampling{Temperature: ptr(0.0), TopK: 5, MinP: 0.1, TopP: 0.9, MaxTokens: 64, Stop: []string{"x"}, StopIDs: []int32{9}}
	req.Messages = append(req.Messages,
		traj.Message{Role: "assistant", ToolCalls: []traj.ToolCall{{ID: "call_0", Name: "calculator", Arguments: "{broken"}}},
		traj.Message{Role: "tool", ToolCallID: "call_0"})
	got, err := c.Generate(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	want := &traj.Response{Message: traj.Message{Role: "assistant", Content: "84", Reasoning: "think"}, Raw: "84", Apart: true,
		PromptIDs:  []int32{1, 2, 3},
		SampledIDs: []int32{4, 5}, Logprobs: []traj.Logprob{-0.5, -0.25}, FinishReason: "stop", PromptTokens: 3, OutputTokens: 2, Policy: "mock"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
	sent := s.Requests()[0]
	for field, want := range map[string]string{
		"temperature": "0", "top_k": "5", "min_p": "0.1", "top_p": "0.9", "max_tokens": "64", "stop": `["x"]`, "stop_token_ids": "[9]",
		"seed": "7", "return_token_ids": "true", "logprobs": "true", "model": `"mock"`, "stream": "",
		"messages": `[{"role":"user","content":"q"},{"role":"assistant","content":"","tool_calls":[{"id":"call_0","type":"function",` +
			`"function":{"name":"calculator","arguments":"\"{broken\""}}]},{"role":"tool","content":"","tool_call_id":"call_0"}]`,
	} {
		if string(sent.Fields[field]) != want {
			t.Errorf("%s = %s, want %s", field, sent.Fields[field], want)
		}
	}
	if sent.Header.Get("Authorization") != "Bearer sk-secret" {
		t.Error("the key is not sent")
	}
}

func TestGenerateShapes(t *testing.T) {
	call := llmtest.NewCall("x", "calculator", `{"expression":"1"}`)
	for _, c := range []struct {
		name  string
		reply llmtest.Reply
		check func(*traj.Response) bool
	}{
		{"plain", llmtest.Text("hi"), func(r *traj.Response) bool {
			return r.Message.Content == "hi" && r.SampledIDs == nil && r.PromptTokens == 10 && r.OutputTokens == 5
		}},
		{"native calls", llmtest.Reply{Calls: []llmtest.Call{call}}, func(r *traj.Response) bool {
			return len(r.Message.ToolCalls) == 1 && r.Message.ToolCalls[0].Arguments == `{"expression":"1"}` && r.FinishReason == "tool_calls"
		}},
		{"calls in the text", llmtest.Text("<tool_call>"), func(r *traj.Response) bool {
			return len(r.Message.ToolCalls) == 1 && r.FinishReason == "tool_calls"
		}},
		{"reasoning_content", llmtest.Reply{Content: "a", ReasoningContent: "b"},
			func(r *traj.Response) bool { return r.Message.Reasoning == "b" }},
		{"one number less than tokens, of which nobody knows",
			llmtest.Reply{Content: "a", PromptIDs: []int32{1}, IDs: []int32{2, 3}, Logprobs: []float64{-1}},
			func(r *traj.Response) bool { return len(r.Logprobs) == 0 && len(r.SampledIDs) == 2 }},
		{"numbers that do not fit", llmtest.Reply{Content: "a", PromptIDs: []int32{1}, IDs: []int32{2}, Logprobs: []float64{-1, -2, -3}},
			func(r *traj.Response) bool { return len(r.Logprobs) == 0 && len(r.SampledIDs) == 1 }},
		{"length", llmtest.Reply{Content: "a", Finish: "length"}, func(r *traj.Response) bool { return r.FinishReason == "length" }},
		{"null content", llmtest.Reply{Raw: ptr(`{"choices":[{"message":{"role":"assistant","content":null},"finish_reason":"stop"}]}`)},
			func(r *traj.Response) bool { return r.Message.Content == "" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := llmtest.New(t, llmtest.Sequence(c.reply))
			r, err := newRig(t, s.BaseURL(), func(c *Config) {
				c.Parse = func(text string, _ []traj.ToolSpec) (traj.Message, []traj.CallError) {
					if strings.Contains(text, "<tool_call>") {
						return traj.Message{ToolCalls: []traj.ToolCall{{Name: "calculator"}}}, nil
					}
					return traj.Message{Content: text}, nil
				}
			}).Generate(t.Context(), ask())
			if err != nil || !c.check(r) {
				t.Fatalf("%+v, %v", r, err)
			}
		})
	}
}

// failingServer is a server by what it replies, one after the other, and what becomes of a
// request to it.
type failingServer struct {
	name    string
	replies []llmtest.Reply
	status  int     // of the error; 0: not looked at
	is      []error // nil, and status 0: success
	tries   int
	slept   []time.Duration
}

func (c failingServer) ask(t *testing.T) {
	s := llmtest.New(t, llmtest.Sequence(c.replies...))
	r := newRig(t, s.BaseURL(), func(c *Config) { c.Retries = 2 })
	_, err := r.Generate(t.Context(), ask())
	switch {
	case c.status == 0 && c.is == nil:
		if err != nil {
			t.Fatal(err)
		}
	case err == nil || strings.ContainsAny(err.Error(), "\n") || !strings.Contains(err.Error(), s.BaseURL()):
		t.Fatalf("want one line with the address of the server: %v", err)
	case strings.Contains(err.Error(), "sk-secret"):
		t.Fatalf("the key is shown: %v", err)
	}
	for _, kind := range c.is {
		if !errors.Is(err, kind) {
			t.Fatalf("%v is not %v", err, kind)
		}
	}
	for _, kind := range []error{traj.ErrFatal, traj.ErrPromptTooLong} {
		if err != nil && errors.Is(err, kind) != slices.Contains(c.is, kind) {
			t.Fatalf("wrongly typed: %v", err)
		}
	}
	var answered *ServerError
	if c.status != 0 && (!errors.As(err, &answered) || answered.Status != c.status || answered.Server != s.BaseURL()) {
		t.Fatalf("%v is not of status %d of %s", err, c.status, s.BaseURL())
	}
	if n := len(s.Requests()); n != c.tries {
		t.Errorf("%d requests, want %d", n, c.tries)
	}
	if c.slept != nil {
		if diff := cmp.Diff(c.slept, r.slept); diff != "" {
			t.Error(diff)
		}
	}
}

func TestGenerateFaults(t *testing.T) {
	ok := llmtest.Text("ok")
	status := func(n int, text string) llmtest.Reply { return llmtest.Reply{Status: n, Error: text} }
	header := func(r llmtest.Reply, k, v string) llmtest.Reply {
		r.Header = http.Header{k: {v}}
		return r
	}
	for _, c := range []failingServer{
		{"500 then well", []llmtest.Reply{status(500, "x"), ok}, 0, nil, 2, []time.Duration{375 * time.Millisecond}},
		{"429 in seconds", []llmtest.Reply{header(status(429, "slow"), "Retry-After", "7"), ok}, 0, nil,
			2, []time.Duration{7350 * time.Millisecond}},
		{"429 as a date", []llmtest.Reply{header(status(429, "slow"), "Retry-After", now.Add(20*time.Second).Format(http.TimeFormat)), ok},
			0, nil, 2, []time.Duration{21 * time.Second}},
		{"429 for an hour", []llmtest.Reply{header(status(429, "slow"), "Retry-After", "3600")}, 429, []error{ErrWait}, 1, nil},
		{"429 for ever", []llmtest.Reply{status(429, "slow")}, 429, nil,
			3, []time.Duration{375 * time.Millisecond, 750 * time.Millisecond}},
		{"quota", []llmtest.Reply{status(429, "insufficient_quota")}, 429, []error{traj.ErrFatal, ErrNoCredit}, 1, nil},
		{"401", []llmtest.Reply{status(401, "Incorrect API key provided: sk-secret")},
			401, []error{traj.ErrFatal, ErrKey}, 1, nil},
		{"404 model", []llmtest.Reply{status(404, "The model `mock` does not exist.")}, 404, []error{traj.ErrFatal, ErrNoModel}, 1, nil},
		{"400", []llmtest.Reply{status(400, "bad\nthing")}, 400, nil, 1, nil},
		{"web page", []llmtest.Reply{{Raw: ptr("<html>hello</html>")}}, 200, []error{traj.ErrFatal, errWebPage}, 3, nil},
		{"web page then well", []llmtest.Reply{{Raw: ptr("<html>hello</html>")}, ok}, 0, nil, 2, nil},
		{"garbage", []llmtest.Reply{{Raw: ptr("{]")}, ok}, 0, nil, 2, nil},
		{"empty body", []llmtest.Reply{{Raw: ptr("")}}, 200, []error{errEmptyBody}, 3, nil},
		{"empty choices", []llmtest.Reply{{Raw: ptr(`{"choices":[]}`)}}, 0, []error{errNoChoices}, 3, nil},
		{"cut", []llmtest.Reply{{Content: "hello", Cut: 20}}, 200, []error{errCutOff}, 3, nil},
		{"cut then well", []llmtest.Reply{{Content: "hello", Cut: 20}, ok}, 0, nil, 2, nil},
		{"reset then well", []llmtest.Reply{{Reset: true}, ok}, 0, nil, 2, nil},
		{"OpenAI context", []llmtest.Reply{
			status(400, "This model's maximum context length is 4097 tokens. However, your messages resulted in 5000 tokens. "+
				"Please reduce the length of the messages.")}, 0, []error{traj.ErrPromptTooLong}, 1, nil},
		{"vLLM context", []llmtest.Reply{{Status: 400, Raw: ptr(
			`{"object":"error","message":"This model's maximum context length is 4096 tokens. However,` +
				` you requested 5100 tokens (5000 in the messages, 100 in the completion). Please reduce the length of the messages or ` +
				`completion.","type":"BadRequestError","code":400}`)}}, 0, []error{traj.ErrPromptTooLong}, 1, nil},
		{"vLLM decoder", []llmtest.Reply{
			status(400, "The decoder prompt (length 5000) is longer than the maximum model length of 4096. "+
				"Make sure that `max_model_len` is no smaller")}, 0, []error{traj.ErrPromptTooLong}, 1, nil},
		{"SGLang context", []llmtest.Reply{status(400, "The input (5000 tokens) is longer than the model's context length (4096 tokens).")},
			0, []error{traj.ErrPromptTooLong}, 1, nil},
		{"SGLang total", []llmtest.Reply{
			status(400, "Requested token count exceeds the model's maximum context length of 4096 tokens. "+
				"You requested a total of 9000 tokens: 5000 tokens from the input messages and 4000 tokens for the completion.")},
			0, []error{traj.ErrPromptTooLong}, 1, nil},
		{"vLLM context, counted", []llmtest.Reply{
			status(400, "You passed 4097 input tokens and requested 0 output tokens. However, the model's context length is only 4096 tokens, "+
				"resulting in a maximum input length of 4096 tokens. Please reduce the length of the input prompt. "+
				"(parameter=input_tokens, value=4097)")}, 0, []error{traj.ErrPromptTooLong}, 1, nil},
		{"llama.cpp context, typed", []llmtest.Reply{{Status: 400, Raw: ptr(
			`{"error":{"code":400,"message":"request (9412 tokens) exceeds the available context size (8192 tokens), try increasing it",` +
				`"type":"exceed_context_size_error","n_prompt_tokens":9412,"n_ctx":8192}}`)}}, 0, []error{traj.ErrPromptTooLong}, 1, nil},
		{"Ollama context", []llmtest.Reply{{Status: 400, Raw: ptr(`{"error":"prompt too long; exceeded max context length by 42 tokens"}`)}},
			0, []error{traj.ErrPromptTooLong}, 1, nil},
		{"OpenAI context, typed", []llmtest.Reply{{Status: 400, Raw: ptr(
			`{"error":{"message":"Input tokens exceed the configured limit of 272000 tokens.","type":"invalid_request_error",` +
				`"param":"messages","code":"context_length_exceeded"}}`)}}, 0, []error{traj.ErrPromptTooLong}, 1, nil},
		{"context as 500", []llmtest.Reply{status(500, "the request exceeds the available context size")}, 0, []error{traj.ErrPromptTooLong}, 1,
			nil},
		{"403", []llmtest.Reply{status(403, "no access")}, 403,
			[]error{traj.ErrFatal, ErrKey}, 1, nil},
		{"503 as a date", []llmtest.Reply{header(status(503, "loading"), "Retry-After", now.Add(20*time.Second).Format(http.TimeFormat)), ok},
			0, nil, 2, []time.Duration{21 * time.Second}},
		{"429 until a moment that is over", []llmtest.Reply{header(status(429, "slow"), "Retry-After",
			now.Add(-time.Hour).Format(http.TimeFormat)), ok}, 0, nil, 2, []time.Duration{375 * time.Millisecond}},
		{"502 from a proxy", []llmtest.Reply{{Status: 502, Raw: ptr("<html><h1>Bad Gateway</h1></html>")}, ok}, 0, nil, 2, nil},
		{"llama.cpp context", []llmtest.Reply{status(400, "the request exceeds the available context size, try increasing it")},
			0, []error{traj.ErrPromptTooLong}, 1, nil},
	} {
		t.Run(c.name, c.ask)
	}
}

func TestGenerateMendsTheRequest(t *testing.T) {
	refuse := func(field, text string) func(*llmtest.Request) llmtest.Reply {
		return func(r *llmtest.Request) llmtest.Reply {
			if r.Has(field) {
				return llmtest.Reply{Status: 400, Error: text}
			}
			return llmtest.Text("ok")
		}
	}
	for _, c := range []struct {
		name, field, text, notice string
		left                      setting.Name // the setting that an error names; "": none
		then                      string       // a field that is sent instead
	}{
		{"named", "return_token_ids", "Unrecognized request argument supplied: return_token_ids", "cannot be trained on", "", ""},
		{"unnamed", "return_token_ids", "Extra inputs are not permitted", "cannot be trained on", "", ""},
		{"logprobs", "logprobs", "logprobs is not supported with this model", "no log-probs", "", ""},
		{"max_tokens", "max_tokens", "Unsupported parameter: 'max_tokens' is not supported with this model. " +
			"Use 'max_completion_tokens' instead.", "", "", "max_completion_tokens"},
		{"asked for", "top_k", "Unrecognized request argument supplied: top_k", "", "TopK", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := llmtest.New(t, refuse(c.field, c.text))
			r := newRig(t, s.BaseURL(), nil)
			req := ask()
			req.Sampling = traj.Sampling{MaxTokens: 10, TopK: 3}
			for range 2 {
				_, err := r.Generate(t.Context(), req)
				if c.left != "" {
					if !settingtest.Names(err, c.left) || !errors.Is(err, ErrField) || !errors.Is(err, traj.ErrFatal) {
						t.Fatal(err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			all := s.Requests()
			if len(all) != 3 { // it is remembered
				t.Errorf("%d requests, want 3", len(all))
			}
			if c.then != "" && !all[2].Has(c.then) {
				t.Errorf("%s is not sent", c.then)
			}
			if c.notice != "" && (len(r.notices) != 1 || !strings.Contains(r.notices[0], c.notice)) {
				t.Errorf("notices: %q", r.notices)
			}
		})
	}
}

func TestGenerateClampsMaxTokens(t *testing.T) {
	s := llmtest.New(t, func(r *llmtest.Request) llmtest.Reply {
		if string(r.Fields["max_tokens"]) == "4000" {
			return llmtest.Reply{Status: 400, Error: "'max_tokens' or 'max_completion_tokens' is too large: " +
				"4000. This model's maximum context length is 2048 tokens and your request has 20 input tokens"}
		}
		return llmtest.Text("ok")
	})
	req := ask()
	req.Sampling.MaxTokens = 4000
	if _, err := newRig(t, s.BaseURL(), nil).Generate(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if got := string(s.Requests()[1].Fields["max_tokens"]); got != "2028" {
		t.Fatalf("max_tokens = %s", got)
	}
}

// A newer vLLM does not say how long the prompt is where the reply has no room; the
// reply is bounded by the window then, and a prompt that fits is not lost.
func TestGenerateLeavesMaxTokensOutWhereTheWindowIsSmaller(t *testing.T) {
	s := llmtest.New(t, func(r *llmtest.Request) llmtest.Reply {
		if r.Has("max_tokens") {
			return llmtest.Reply{Status: 400, Error: "You passed 99073 input tokens and requested 32000 output tokens. " +
				"However, the model's context length is only 131072 tokens, resulting in a maximum input length of 99072 tokens."}
		}
		return llmtest.Text("ok")
	})
	req := ask()
	req.Sampling.MaxTokens = 32000
	if _, err := newRig(t, s.BaseURL(), nil).Generate(t.Context(), req); err != nil || len(s.Requests()) != 2 {
		t.Fatal(err, len(s.Requests()))
	}
}

// However the dice fall, a pause is not shorter than the server asked for, differs
// from one client to the next, and stays bounded.
func TestPausesAreJitteredAndNeverSoonerThanTold(t *testing.T) {
	for _, after := range []time.Duration{0, time.Millisecond, 3 * time.Second, time.Minute, maxRetryAfter} {
		for n := range 40 {
			low, high := Config{Random: func() float64 { return 0 }}, Config{Random: func() float64 { return 0.999 }}
			a, b := low.wait(n, after), high.wait(n, after)
			if a < after || a <= 0 || b <= a || b > max(maxBackoff, after+after/10) {
				t.Errorf("after %v, try %d: pauses from %v to %v", after, n, a, b)
			}
		}
	}
}

func TestGenerateMaxPrompt(t *testing.T) {
	s := llmtest.New(t, llmtest.Sequence(llmtest.Text("x")))
	req := ask()
	req.MaxPrompt = 9
	if _, err := newRig(t, s.BaseURL(), nil).Generate(t.Context(), req); !errors.Is(err, traj.ErrPromptTooLong) {
		t.Fatal(err)
	}
}

func TestGenerateClosedPort(t *testing.T) {
	url := remotetest.Nobody(t) + "/v1"
	r := newRig(t, url, nil)
	_, err := r.Generate(t.Context(), ask())
	if !errors.Is(err, traj.ErrFatal) || !errors.Is(err, syscall.ECONNREFUSED) || !strings.Contains(err.Error(), url) ||
		len(r.slept) != silentRetries {
		t.Fatalf("%v after %v", err, r.slept)
	}
}

func TestGenerateTimesOut(t *testing.T) {
	s := llmtest.New(t, func(r *llmtest.Request) llmtest.Reply {
		if r.N == 0 {
			return llmtest.Reply{Delay: time.Minute}
		}
		return llmtest.Text("ok")
	})
	r := newRig(t, s.BaseURL(), func(c *Config) { c.Timeout = 200 * time.Millisecond })
	if _, err := r.Generate(t.Context(), ask()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	slow := llmtest.New(t, llmtest.Sequence(llmtest.Reply{Delay: time.Minute}))
	if _, err := newRig(t, slow.BaseURL(), nil).Generate(ctx, ask()); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
}

func TestModels(t *testing.T) {
	s := llmtest.New(t, llmtest.Sequence(llmtest.Text("x")))
	got, err := newRig(t, s.BaseURL(), nil).Models(t.Context())
	if err != nil || len(got) != 1 || got[0] != "mock" {
		t.Fatal(got, err)
	}
}

func TestNewRefuses(t *testing.T) {
	if _, err := New(Config{BaseURL: "localhost:8000"}); err == nil {
		t.Fatal("an address without http:// must be refused")
	}
}

func FuzzErrorBody(f *testing.F) {
	for _, s := range []string{`{"error":{"message":"x"}}`, `{"error":"x"}`, `{"detail":"x"}`, `<html>`,
		``, `{"message":"maximum context length is 5, 3 in the messages"}`} {
		f.Add(400, s)
	}
	srv := newServer(Config{}, new(atomic.Bool))
	srv.c.Now, srv.c.Notice = time.Now, func(string) {}
	f.Fuzz(func(t *testing.T, status int, s string) {
		got := classify(srv, errors.New("x"), &exchange{status: status, body: []byte(s), header: http.Header{"Retry-After": {s}}}, &body{})
		if strings.ContainsAny(got.err.Error(), "\n\r") {
			t.Fatalf("several lines: %q", got.err)
		}
	})
}

// TestGenerateNeutral: the fields that keep a server's defaults out are sent,
// and left out, for good, where a server does not know them.
func TestGenerateNeutral(t *testing.T) {
	strict := func(text string, known ...string) func(*llmtest.Request) llmtest.Reply {
		return func(r *llmtest.Request) llmtest.Reply {
			var unknown []string
			for _, f := range []string{"min_p", "repetition_penalty", "top_k", "return_token_ids"} {
				if r.Has(f) && !slices.Contains(known, f) {
					unknown = append(unknown, f)
				}
			}
			if len(unknown) > 0 {
				return llmtest.Reply{Status: 400, Error: strings.ReplaceAll(text, "FIELDS", strings.Join(unknown, ", "))}
			}
			return llmtest.Text("ok")
		}
	}
	for _, c := range []struct {
		name     string
		script   func(*llmtest.Request) llmtest.Reply
		requests int // for two replies
		sent     string
	}{
		{"vLLM", llmtest.Sequence(llmtest.Text("ok")), 2, "min_p=0 repetition_penalty=1 top_k=-1 top_p=1 temperature=1"},
		{"OpenAI", strict("Unrecognized request arguments supplied: FIELDS"), 4, "top_p=1 temperature=1"},
		{"knows some", strict("Unrecognized request argument supplied: FIELDS", "top_k", "min_p", "return_token_ids"),
			3, "min_p=0 top_k=-1 top_p=1 temperature=1"},
		{"names none", strict("Extra inputs are not permitted", "return_token_ids"), 3, "top_p=1 temperature=1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := llmtest.New(t, c.script)
			r := newRig(t, s.BaseURL(), nil)
			req := ask()
			req.Sampling = traj.Sampling{Temperature: ptr(1.0), TopP: 1, TopK: -1, Neutral: true}
			for range 2 {
				if _, err := r.Generate(t.Context(), req); err != nil {
					t.Fatal(err)
				}
			}
			all := s.Requests()
			var sent []string
			for _, f := range []string{"min_p", "repetition_penalty", "top_k", "top_p", "temperature"} {
				if v, ok := all[len(all)-1].Fields[f]; ok {
					sent = append(sent, f+"="+string(v))
				}
			}
			if len(all) != c.requests || strings.Join(sent, " ") != c.sent || len(r.slept) > 0 {
				t.Errorf("%d requests, the last with %v, pauses %v", len(all), sent, r.slept)
			}
		})
	}
	// What the user asked for is not left out in silence.
	s := llmtest.New(t, strict("Unrecognized request argument supplied: FIELDS", "return_token_ids", "repetition_penalty", "top_k"))
	req := ask()
	req.Sampling = traj.Sampling{MinP: 0.1, Neutral: true}
	if _, err := newRig(t, s.BaseURL(), nil).Generate(t.Context(), req); !settingtest.Names(err, "MinP") {
		t.Fatal(err)
	}
}

// TestWithoutToolParser: a server that takes no tools gets them in the text,
// after one refusal for the whole client, and one notice.
func TestWithoutToolParser(t *testing.T) {
	call := "<tool_call>\n{\"name\": \"calculator\", \"arguments\": {\"expression\": \"1\"}}\n</tool_call>"
	s := llmtest.New(t, llmtest.WithoutToolParser(func(r *llmtest.Request) llmtest.Reply {
		if strings.Contains(r.Messages[0].Text(), `"name": "calculator"`) && r.Messages[0].Role == "system" {
			return llmtest.Text(call)
		}
		return llmtest.Text("no tools were shown")
	}))
	c := newRig(t, s.BaseURL(), func(c *Config) {
		c.Parse = func(text string, _ []traj.ToolSpec) (traj.Message, []traj.CallError) {
			return chat.ParseReply("hermes", text)
		}
		c.InText = chat.InText
	})
	for range 2 {
		r, err := c.Generate(t.Context(), ask())
		if err != nil || len(r.Message.ToolCalls) != 1 || r.FinishReason != traj.FinishToolCalls {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	if n := len(s.Requests()); n != 3 || len(c.notices) != 1 || !strings.Contains(c.notices[0], "does not take tools") || len(c.slept) != 0 {
		t.Fatalf("%d requests, notices %q, pauses %v", n, c.notices, c.slept)
	}
	if s.Requests()[2].Has("tools") || s.Requests()[2].Has("tool_choice") {
		t.Error("the second request must know")
	}
	// Without a way to read calls out of the text the refusal is final.
	c = newRig(t, s.BaseURL(), nil)
	if _, err := c.Generate(t.Context(), ask()); !errors.Is(err, traj.ErrFatal) || !settingtest.Names(err, "InText") {
		t.Fatal(err)
	}
	// As Ollama, llama.cpp and routers say it.
	for status, text := range map[int]string{400: "registry.ollama.ai/library/gemma:2b does not support tools",
		500: "tools param requires --jinja flag", 404: "No endpoints found that support tool use."} {
		s := llmtest.New(t, func(r *llmtest.Request) llmtest.Reply {
			if r.Has("tools") {
				return llmtest.Reply{Status: status, Error: text}
			}
			return llmtest.Text("ok")
		})
		c := newRig(t, s.BaseURL(), func(c *Config) { c.InText = chat.InText })
		if _, err := c.Generate(t.Context(), ask()); err != nil || len(c.slept) != 0 {
			t.Errorf("%s: %v, pauses %v", text, err, c.slept)
		}
	}
}

// Half a minute of retries must not pass in silence, nor fill the screen.
func TestTheUserHearsWhatIsWaitedFor(t *testing.T) {
	s := llmtest.New(t, llmtest.Sequence(llmtest.Reply{Status: 503, Error: "loading"}))
	var said []string
	r := newRig(t, s.BaseURL(), func(c *Config) { c.Retries = 5; c.Notice = func(s string) { said = append(said, s) } })
	if _, err := r.Generate(t.Context(), ask()); err == nil {
		t.Fatal("want an error")
	}
	if len(said) != 1 || !strings.Contains(said[0], "503: loading; trying again in ") {
		t.Errorf("%q", said)
	}
}

func TestTLSOnAPlainPortIsSaidSo(t *testing.T) {
	s := llmtest.New(t, llmtest.Sequence(llmtest.Text("ok")))
	r := newRig(t, strings.Replace(s.BaseURL(), "http://", "https://", 1), nil)
	_, err := r.Generate(t.Context(), ask())
	if !errors.Is(err, traj.ErrFatal) || !errors.Is(err, ErrNoTLS) {
		t.Fatal(err)
	}
}
