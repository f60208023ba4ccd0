package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"agentcli/llm/llmtest"
	"agentcli/traj"

	"github.com/google/go-cmp/cmp"
)

func swiftRollout(t *testing.T, script func(*llmtest.Request) llmtest.Reply) *SwiftRollout {
	t.Helper()
	s := llmtest.NewWith(t, llmtest.Options{Swift: true}, script)
	client, err := New(Config{BaseURL: s.URL, Model: "m", WantIDs: true, Retries: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return &SwiftRollout{Client: client}
}

func TestSwiftRolloutGivesIDsAndLogprobs(t *testing.T) {
	var asked llmtest.Request
	s := swiftRollout(t, func(r *llmtest.Request) llmtest.Reply {
		asked = *r
		return llmtest.Reply{Content: "84", PromptIDs: []int32{1, 2, 3}, IDs: []int32{4, 5}, Logprobs: []float64{-.5, -.25},
			PromptTokens: 3, OutputTokens: 2}
	})
	got, err := s.Generate(t.Context(), &traj.Request{Seed: 7, Continue: true,
		Messages: []traj.Message{{Role: "user", Content: "q"}, {Role: "assistant", Content: "so"}},
		Sampling: traj.Sampling{Temperature: ptr(0.5), TopK: -1, TopP: .9, MaxTokens: 64, Stop: []string{"x"}, Neutral: true}})
	if err != nil {
		t.Fatal(err)
	}
	want := &traj.Response{Message: traj.Message{Role: "assistant", Content: "84"}, Raw: "84", PromptIDs: []int32{1, 2, 3},
		SampledIDs: []int32{4, 5}, Logprobs: []traj.Logprob{-0.5, -0.25}, FinishReason: "stop", PromptTokens: 3, OutputTokens: 2, Policy: "m"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if n := len(asked.Messages); n != 2 || asked.Last() != "so" { // the reply goes on where the last message is the model's
		t.Errorf("asked with %+v", asked.Messages)
	}
	config, _ := json.Marshal(asked.Fields)
	const fields = `{"logprobs":true,"max_tokens":64,"min_p":0,"n":1,"repetition_penalty":1,"return_details":true,"stop":["x"],` +
		`"temperature":0.5,"top_k":-1,"top_p":0.9}`
	if string(config) != fields { // without a seed, which would be that of every reply of the request
		t.Errorf("sampled with %s", config)
	}
}

// TestSwiftRolloutIsShownToolsInTheText: it is sent no tools, and its replies' text has the calls.
func TestSwiftRolloutIsShownToolsInTheText(t *testing.T) {
	s := swiftRollout(t, func(r *llmtest.Request) llmtest.Reply { return llmtest.Text("call for " + r.Last()) })
	s.Client.c.InText = func(messages []traj.Message, tools []traj.ToolSpec) []traj.Message {
		return append(messages[:len(messages):len(messages)], traj.Message{Role: traj.RoleUser, Content: tools[0].Name})
	}
	s.Client.c.Parse = func(text string, offered []traj.ToolSpec) (traj.Message, []traj.CallError) {
		return traj.Message{ToolCalls: []traj.ToolCall{{Name: offered[0].Name, Arguments: text}}}, nil
	}
	r, err := s.Generate(t.Context(), &traj.Request{Messages: []traj.Message{{Role: traj.RoleUser, Content: "q"}},
		Tools: []traj.ToolSpec{{Name: "f"}}})
	if err != nil || len(r.Message.ToolCalls) != 1 || r.Message.ToolCalls[0].Arguments != "call for f" ||
		r.FinishReason != traj.FinishToolCalls {
		t.Errorf("%+v %v", r, err)
	}
}

// TestSwiftRolloutIsAskedForManyAtOnce: it answers one request after the other.
func TestSwiftRolloutIsAskedForManyAtOnce(t *testing.T) {
	var mu sync.Mutex
	batches := map[string]int{} // replies, by the request's header
	begun, gate := make(chan struct{}), make(chan struct{})
	s := swiftRollout(t, func(r *llmtest.Request) llmtest.Reply {
		if r.Last() == "first" {
			close(begun)
			<-gate
		}
		mu.Lock()
		batches[fmt.Sprintf("%p %s", r.Header, r.Fields["temperature"])]++
		mu.Unlock()
		return llmtest.Reply{Content: "to " + r.Last()}
	})
	var all sync.WaitGroup
	ask := func(ctx context.Context, q string, temperature float64) error {
		r, err := s.Generate(ctx, &traj.Request{Messages: []traj.Message{{Role: "user", Content: q}},
			Sampling: traj.Sampling{Temperature: &temperature}})
		if err == nil && r.Message.Content != "to "+q {
			err = fmt.Errorf("%q is the answer to %q", r.Message.Content, q)
		}
		return err
	}
	all.Go(func() {
		if err := ask(t.Context(), "first", 1); err != nil {
			t.Error(err)
		}
	})
	queued := func(n int) {
		for {
			s.mu.Lock()
			have := len(s.waiting)
			s.mu.Unlock()
			if have == n {
				return
			}
			runtime.Gosched()
		}
	}
	<-begun
	for i := range 20 {
		all.Go(func() {
			if err := ask(t.Context(), fmt.Sprint(i), float64(1+i%2)); err != nil {
				t.Error(err)
			}
		})
	}
	queued(20)
	gone, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { left <- ask(gone, "nobody waits", 1) }()
	queued(21)
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(gate)
	all.Wait()
	var sizes []string
	for _, n := range batches {
		sizes = append(sizes, fmt.Sprint(n))
	}
	if len(batches) != 3 || strings.Count(strings.Join(sizes, " "), "10") != 2 {
		t.Errorf("requests for %v replies; want 1, and 10 of each temperature", sizes)
	}
}

func TestAnAnswerThatSwiftRolloutWouldNotGiveIsAnError(t *testing.T) {
	for name, x := range map[string]struct {
		raw    string
		status int
		want   error
	}{
		"no list":          {`{"response":null}`, 0, errInferred},
		"another number":   {`[]`, 0, errInferred},
		"no response":      {`[{"response":null}]`, 0, errInferred},
		"no choice":        {`[{"response":{"choices":[]}}]`, 0, errInferred},
		"an unended reply": {`[{"response":{"choices":[{"message":{"content":"x"},"finish_reason":null}]}}]`, 0, errInferred},
		"no JSON":          {`x`, 0, errInferred},
		"broken off":       {`[{"response":{"choices":[{"message":{"content":"x"},"finish_reason":"abort"}]}}]`, 0, errBrokenOff},
	} {
		s := swiftRollout(t, func(*llmtest.Request) llmtest.Reply { return llmtest.Reply{Raw: &x.raw, Status: x.status} })
		if r, err := s.Generate(t.Context(), &traj.Request{Messages: []traj.Message{{Role: "user", Content: "q"}}}); !errors.Is(err, x.want) {
			t.Errorf("%s: %v %v", name, r, err)
		}
	}
	s := swiftRollout(t, func(*llmtest.Request) llmtest.Reply { return llmtest.Text("x") })
	stopIDs := &traj.Request{Messages: []traj.Message{{Role: "user"}}, Sampling: traj.Sampling{StopIDs: []int32{1}}}
	if _, err := s.Generate(t.Context(), stopIDs); !errors.Is(err, traj.ErrFatal) {
		t.Errorf("stop ids: %v", err)
	}
}
