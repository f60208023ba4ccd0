package telemetry

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"agentcli/agent"
	"agentcli/engine"
	"agentcli/env"
	"agentcli/internal/remote/remotetest"
	"agentcli/traj"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	wire "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// receiver is a collector that keeps the spans.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	spans    []*wire.Span
	resource map[string]string
	scope    *common.InstrumentationScope
	header   http.Header
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{resource: map[string]string{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		var x collector.ExportTraceServiceRequest
		if err != nil || req.Method != http.MethodPost || req.URL.Path != "/v1/traces" ||
			req.Header.Get("Content-Type") != "application/x-protobuf" || proto.Unmarshal(body, &x) != nil {
			t.Errorf("%s %s %v", req.Method, req.URL, err)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.header = req.Header
		for _, rs := range x.ResourceSpans {
			for k, v := range attributes(rs.Resource.Attributes) {
				r.resource[k] = v
			}
			for _, ss := range rs.ScopeSpans {
				r.scope = ss.Scope
				r.spans = append(r.spans, ss.Spans...)
			}
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
		out, _ := proto.Marshal(&collector.ExportTraceServiceResponse{})
		_, _ = w.Write(out)
	}))
	t.Cleanup(r.Close)
	return r
}

func attributes(list []*common.KeyValue) map[string]string {
	all := map[string]string{}
	for _, kv := range list {
		switch v := kv.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			all[kv.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			all[kv.Key] = fmt.Sprint(v.IntValue)
		case *common.AnyValue_DoubleValue:
			all[kv.Key] = fmt.Sprint(v.DoubleValue)
		case *common.AnyValue_ArrayValue:
			var parts []string
			for _, e := range v.ArrayValue.Values {
				parts = append(parts, e.GetStringValue())
			}
			all[kv.Key] = "[" + strings.Join(parts, " ") + "]"
		}
	}
	return all
}

type modelFunc func(ctx context.Context, req *traj.Request) (*traj.Response, error)

func (f modelFunc) Generate(ctx context.Context, req *traj.Request) (*traj.Response, error) {
	return f(ctx, req)
}

// play runs the engine over n tasks: a call of the calculator, then an answer;
// the second task's model fails.
func play(t *testing.T, n int, observe Observe) {
	t.Helper()
	tools := env.Config{Tools: []env.Tool{env.Calculator{}}}
	temperature := .5
	e, err := engine.New(engine.Config{
		Model: modelFunc(func(_ context.Context, req *traj.Request) (*traj.Response, error) {
			switch {
			case req.Messages[0].Content == "q1":
				return nil, errors.New("connection reset")
			case len(req.Messages) == 1:
				return &traj.Response{Message: traj.Message{ToolCalls: []traj.ToolCall{
					{ID: "call_0", Name: "calculator", Arguments: `{"expression":"6*7"}`}, {Name: "oracle", Arguments: `{"secret":"text"}`}}},
					FinishReason: "tool_calls", PromptTokens: 100, OutputTokens: 20, Policy: "served"}, nil
			}
			return &traj.Response{Message: traj.Message{Content: "42"}, FinishReason: "stop", PromptTokens: 150,
				OutputTokens: 5, Policy: "served"}, nil
		}),
		NewAgent: func(traj.Task) (agent.Agent, error) { return agent.New(tools.Specs()), nil },
		NewEnv:   func(traj.Task) (env.Environment, error) { return env.New(tools) },
		Reward: func(_ context.Context, x *traj.Trajectory) error {
			one := 1.0
			x.Reward = &one
			return nil
		},
		Sampling: traj.Sampling{Temperature: &temperature, TopP: .9, TopK: 40, MaxTokens: 64, Stop: []string{"END"}},
		Observe:  observe,
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.Run(t.Context(), func(yield func(traj.Task, error) bool) {
		for i := range n {
			q := fmt.Sprintf("q%d", i)
			if !yield(traj.Task{ID: "d/" + q, Dataset: "d", Messages: []traj.Message{{Role: "user", Content: q}}}, nil) {
				return
			}
		}
	}, func(*traj.Trajectory) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
}

func quiet(t *testing.T) func(string) {
	return func(s string) { t.Errorf("it says %q", s) }
}

func TestSpansFollowTheConventions(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	r := newReceiver(t)
	defer r.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", r.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer x")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
	if !WantSpans() {
		t.Fatal("the environment asks for spans")
	}
	s, err := OpenSpans(t.Context(), SpansConfig{Version: "v1", Model: "named", Servers: []string{"http://gpu:8000/v1"}, Notice: quiet(t)})
	if err != nil {
		t.Fatal(err)
	}
	play(t, 2, s.Observe)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if r.header.Get("Authorization") != "Bearer x" || r.resource["service.name"] != "agentcli" || r.resource["service.version"] != "v1" ||
		r.resource["deployment.environment.name"] != "test" || r.scope.Name != "agentcli" {
		t.Errorf("%v %v %v", r.header, r.resource, r.scope)
	}
	byID := map[string]*wire.Span{}
	for _, x := range r.spans {
		byID[hex.EncodeToString(x.SpanId)] = x
	}
	var tree []string
	for _, x := range r.spans {
		path := []string{x.Name}
		for p := byID[hex.EncodeToString(x.ParentSpanId)]; p != nil; p = byID[hex.EncodeToString(p.ParentSpanId)] {
			path = append(path, p.Name)
			if string(p.TraceId) != string(x.TraceId) || p.StartTimeUnixNano > x.StartTimeUnixNano || p.EndTimeUnixNano < x.EndTimeUnixNano {
				t.Errorf("%s is not within %s", x.Name, p.Name)
			}
		}
		slices.Reverse(path)
		tree = append(tree, strings.Join(path, " / "))
	}
	slices.Sort(tree)
	if diff := cmp.Diff([]string{
		"invoke_agent agentcli", "invoke_agent agentcli", "invoke_agent agentcli / turn 0", "invoke_agent agentcli / turn 0",
		"invoke_agent agentcli / turn 0 / chat named", "invoke_agent agentcli / turn 0 / chat named",
		"invoke_agent agentcli / turn 0 / execute_tool calculator", "invoke_agent agentcli / turn 0 / execute_tool oracle",
		"invoke_agent agentcli / turn 1", "invoke_agent agentcli / turn 1 / chat named"}, tree); diff != "" {
		t.Error(diff)
	}
	find := func(name string, want func(map[string]string) bool) (*wire.Span, map[string]string) {
		for _, x := range r.spans {
			if a := attributes(x.Attributes); x.Name == name && want(a) {
				return x, a
			}
		}
		t.Fatalf("no span %s", name)
		return nil, nil
	}
	x, a := find("chat named", func(a map[string]string) bool { return a["gen_ai.usage.output_tokens"] == "20" })
	seed := a["gen_ai.request.seed"]
	if seed == "" || seed == "0" {
		t.Errorf("seed %q", seed)
	}
	delete(a, "gen_ai.request.seed")
	if diff := cmp.Diff(map[string]string{
		"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "named", "gen_ai.response.model": "served",
		"gen_ai.request.temperature": "0.5", "gen_ai.request.top_p": "0.9", "gen_ai.request.top_k": "40", "gen_ai.request.max_tokens": "64",
		"gen_ai.request.stop_sequences": "[END]", "gen_ai.response.finish_reasons": "[tool_calls]",
		"gen_ai.usage.input_tokens": "100", "gen_ai.usage.output_tokens": "20", "server.address": "gpu", "server.port": "8000",
	}, a); diff != "" || x.Kind != wire.Span_SPAN_KIND_CLIENT {
		t.Error(x.Kind, diff)
	}
	_, a = find("execute_tool calculator", func(map[string]string) bool { return true })
	if diff := cmp.Diff(map[string]string{"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "calculator",
		"gen_ai.tool.call.id": "call_0", "gen_ai.tool.type": "function"}, a); diff != "" {
		t.Error(diff)
	}
	x, a = find("execute_tool oracle", func(map[string]string) bool { return true })
	if a["error.type"] != "refused" || x.Status.GetCode() != wire.Status_STATUS_CODE_ERROR {
		t.Error(a, x.Status)
	}
	x, a = find("chat named", func(a map[string]string) bool { return a["error.type"] != "" })
	if a["error.type"] != "model_error" || x.Status.GetMessage() != "connection reset" {
		t.Error(a, x.Status)
	}
	_, a = find("invoke_agent agentcli", func(a map[string]string) bool { return a["agentcli.termination"] == "answered" })
	for k, want := range map[string]string{"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "agentcli",
		"gen_ai.conversation.id": "d/q0#0",
		"agentcli.task.id":       "d/q0", "agentcli.dataset": "d", "agentcli.attempt": "0", "agentcli.reward": "1", "agentcli.turns": "2",
		"gen_ai.usage.input_tokens": "250", "gen_ai.usage.output_tokens": "25"} {
		if a[k] != want {
			t.Errorf("%s is %q, want %q", k, a[k], want)
		}
	}
	find("invoke_agent agentcli", func(a map[string]string) bool { return a["error.type"] == "model_error" && a["agentcli.reward"] == "" })
	for _, x := range r.spans { // texts stay at home
		for k, v := range attributes(x.Attributes) {
			if strings.Contains(v, "secret") || strings.Contains(v, "6*7") {
				t.Errorf("%s of %s is %q", k, x.Name, v)
			}
		}
	}
}

func TestFlagWinsOverEnvironment(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	for _, path := range []string{"", "/", "/v1/traces"} {
		r := newReceiver(t)
		s, err := OpenSpans(t.Context(), SpansConfig{Endpoint: r.URL + path, Model: "m", Notice: quiet(t)})
		if err != nil {
			t.Fatal(err)
		}
		play(t, 1, s.Observe)
		_ = s.Close()
		if len(r.spans) != 7 {
			t.Errorf("%q: %d spans", path, len(r.spans))
		}
		for _, x := range r.spans {
			if strings.HasPrefix(x.Name, "chat") && x.Kind != wire.Span_SPAN_KIND_INTERNAL {
				t.Error("a local model is asked within the process")
			}
		}
		r.Close()
	}
	for _, bad := range []string{"localhost:4318", "grpc://x", "http://", "://"} {
		if _, err := OpenSpans(t.Context(), SpansConfig{Endpoint: bad}); !errors.Is(err, ErrNoCollector) ||
			!strings.Contains(err.Error(), strconv.Quote(bad)) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestUnreachableCollectorIsOneNotice(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	refuse := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	defer refuse.Close()
	for name, url := range map[string]string{"nobody there": remotetest.Nobody(t), "refused": refuse.URL} {
		t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4") // many batches
		var said []string
		var mu sync.Mutex
		s, err := OpenSpans(t.Context(),
			SpansConfig{Endpoint: url, Model: "m", Notice: func(n string) { mu.Lock(); said = append(said, n); mu.Unlock() }})
		if err != nil {
			t.Fatal(err)
		}
		play(t, 20, s.Observe)
		_ = s.Close()
		if len(said) != 1 || !strings.Contains(said[0], "the collector does not take spans") || strings.Contains(said[0], "\n") {
			t.Errorf("%s: %q", name, said)
		}
	}
}

// TestDeafCollectorHoldsNobodyUp: one that takes a request and never answers.
func TestDeafCollectorHoldsNobodyUp(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	release := make(chan struct{})
	deaf := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer deaf.Close()
	defer close(release)
	said := make(chan string, 10)
	s, err := OpenSpans(t.Context(), SpansConfig{Endpoint: deaf.URL, Model: "m", Flush: 10 * time.Millisecond,
		Notice: func(n string) { said <- n }})
	if err != nil {
		t.Fatal(err)
	}
	play(t, 3, s.Observe)
	_ = s.Close() // the test hangs here if there is no bound
	if n := <-said; !strings.Contains(n, "collector") {
		t.Error(n)
	}
}

func TestSpansAreOffByDefault(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		want bool
	}{
		{nil, false},
		{map[string]string{"OTEL_SERVICE_NAME": "x"}, false},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, true},
		{map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x/v1/traces"}, true},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"}, false},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_EXPORTER": "none"}, false},
	} {
		t.Run(fmt.Sprint(c.env), func(t *testing.T) {
			for _, k := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
				"OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER"} {
				t.Setenv(k, c.env[k])
			}
			if WantSpans() != c.want {
				t.Errorf("want %v", c.want)
			}
		})
	}
}

func TestSampledOutTrajectoriesAreNotWatched(t *testing.T) {
	t.Setenv("OTEL_TRACES_SAMPLER", "always_off")
	r := newReceiver(t)
	s, err := OpenSpans(t.Context(), SpansConfig{Endpoint: r.URL, Model: "m", Notice: quiet(t)})
	if err != nil {
		t.Fatal(err)
	}
	if s.Observe(&traj.Trajectory{ID: "x"}) != nil {
		t.Error("the engine makes events that nobody sees")
	}
	_ = s.Close()
}

func TestASpanCountsTheImagesOfItsTrajectory(t *testing.T) {
	r := newReceiver(t)
	s, err := OpenSpans(t.Context(), SpansConfig{Endpoint: r.URL, Version: "v1", Model: "named", Notice: quiet(t)})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now()
	for id, shown := range map[string][][]int{"looks": {{18, 66}, {}, {4}}, "reads": {nil}} {
		x := &traj.Trajectory{ID: id, StartedAt: at, Termination: traj.Answered}
		w := s.Observe(x)
		for _, tokens := range shown {
			w.Event(at, engine.Observed{ImageTokens: tokens})
		}
		w.Event(at, engine.TrajectoryEnd{Trajectory: x})
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	got := map[string][2]string{}
	for _, x := range r.spans {
		a := attributes(x.Attributes)
		got[a["agentcli.trajectory.id"]] = [2]string{a["agentcli.images"], a["agentcli.image_tokens"]}
	}
	if diff := cmp.Diff(map[string][2]string{"looks": {"3", "88"}, "reads": {"", ""}}, got); diff != "" {
		t.Error(diff)
	}
}
