package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentcli/engine"
	"agentcli/env"
	"agentcli/llm"
	"agentcli/traj"

	"go.uber.org/goleak"
)

// scrape is what Prometheus reads.
func scrape(t *testing.T, addr string) string {
	t.Helper()
	resp, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") {
		t.Fatal(resp.Status, resp.Header, err)
	}
	http.DefaultClient.CloseIdleConnections()
	return string(b)
}

func TestMetricsCountWhatHappens(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	s, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := NewMetrics([]traj.ToolSpec{{Name: "calculator"}})
	s.Serve(m)
	defer s.Close()
	// Before anything happened the series are there, at 0.
	if got := scrape(t, s.Addr()); !strings.Contains(got, "agentcli_trajectories_total{termination=\"model_error\"} 0\n") ||
		!strings.Contains(got, "agentcli_tool_calls_total{outcome=\"timeout\",tool=\"calculator\"} 0\n") ||
		!strings.Contains(got, "agentcli_model_retries_total{reason=\"rate_limit\"} 0\n") {
		t.Errorf("at the start:\n%s", got)
	}
	var all []engine.Watcher
	for i := range 4 {
		all = append(all, m.Observe(&traj.Trajectory{ID: fmt.Sprint(i)}))
	}
	at := time.Now()
	reply := &traj.Response{PromptTokens: 100, OutputTokens: 20}
	all[0].Event(at, engine.ModelEnd{Response: reply, Took: 3 * time.Second})
	all[0].Event(at, engine.ToolEnd{Call: traj.ToolCall{Name: "calculator"}, Outcome: env.OutcomeOK, Took: 2 * time.Millisecond})
	all[0].Event(at, engine.ToolEnd{Call: traj.ToolCall{Name: "whatever the model likes"}, Err: errors.New("no"), Outcome: env.OutcomeRefused})
	all[0].Event(at, engine.ModelEnd{Response: &traj.Response{PromptTokens: 200, OutputTokens: 30, CallErrors: make([]traj.CallError, 2)},
		Took: time.Second})
	all[0].Event(at, engine.Observed{ImageTokens: []int{18, 66}})
	all[1].Event(at, engine.ModelEnd{Err: errors.New("reset"), Took: time.Minute})
	plus, minus := 1.0, -0.25
	all[0].Event(at, engine.TrajectoryEnd{Trajectory: &traj.Trajectory{Termination: traj.Answered, Reward: &plus}})
	all[1].Event(at, engine.TrajectoryEnd{Trajectory: &traj.Trajectory{Termination: traj.ModelFailed}})
	all[2].Event(at, engine.TrajectoryEnd{Trajectory: &traj.Trajectory{Termination: traj.Answered, Reward: &minus}})
	m.Retry(llm.ReasonRateLimit)
	got := scrape(t, s.Addr())
	for _, want := range []string{
		`agentcli_trajectories_total{termination="answered"} 2`,
		`agentcli_trajectories_total{termination="model_error"} 1`,
		`agentcli_trajectories_running 1`,
		`agentcli_model_calls_total{outcome="ok"} 2`,
		`agentcli_model_calls_total{outcome="error"} 1`,
		`agentcli_model_call_duration_seconds_bucket{le="1"} 1`,
		`agentcli_model_call_duration_seconds_bucket{le="5"} 2`,
		`agentcli_model_call_duration_seconds_sum 64`,
		`agentcli_images_total 2`,
		`agentcli_image_tokens_total 84`,
		`agentcli_prompt_tokens_total 300`,
		`agentcli_completion_tokens_total 50`,
		`agentcli_tool_calls_total{outcome="ok",tool="calculator"} 1`,
		`agentcli_tool_calls_total{outcome="refused",tool="(unknown)"} 1`,
		`agentcli_tool_calls_total{outcome="unreadable",tool="(unknown)"} 2`,
		`agentcli_tool_call_duration_seconds_bucket{tool="calculator",le="0.0025"} 1`,
		`agentcli_model_retries_total{reason="rate_limit"} 1`,
		`agentcli_reward_sum 0.75`,
		`agentcli_reward_count 2`,
		`go_goroutines `,
	} {
		if !strings.Contains(got, "\n"+want) {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(got, "whatever") {
		t.Error("a model's words have become a label")
	}
}

func TestListenSaysWhatIsWrong(t *testing.T) {
	s, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for addr, inUse := range map[string]bool{s.Addr(): true, "9090": false, "127.0.0.1:99999": false, "": false} {
		got, err := Listen(context.Background(), addr)
		if addr == "" { // any free port of any address, as net has it
			got.Close()
			continue
		}
		var refused *AddressError
		if !errors.As(err, &refused) || refused.Addr != addr || errors.Is(err, syscall.EADDRINUSE) != inUse || strings.Contains(err.Error(),
			"\n") {
			t.Errorf("%q: %v", addr, err)
		}
	}
}

func TestJoin(t *testing.T) {
	var got []string
	see := func(name string, wants bool) Observe {
		return func(*traj.Trajectory) engine.Watcher {
			if !wants {
				return nil
			}
			return note(func() { got = append(got, name) })
		}
	}
	if Join() != nil || Join(nil, nil) != nil {
		t.Error("nobody asks, and the engine is asked to make events")
	}
	if w := Join(see("a", false), see("b", false))(&traj.Trajectory{}); w != nil {
		t.Error("nobody wants to see it, and the engine makes events")
	}
	for _, o := range []Observe{Join(nil, see("a", true)), Join(see("a", true), see("b", false)), Join(see("a", true), nil, see("b", true))} {
		o(&traj.Trajectory{}).Event(time.Time{}, engine.TurnStart{})
	}
	if s := strings.Join(got, ""); s != "aaab" {
		t.Error(s)
	}
}

type note func()

func (n note) Event(time.Time, engine.Event) { n() }
