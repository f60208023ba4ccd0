package llm

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"agentcli/traj"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

const fine = `{"choices":[{"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,` +
	`"completion_tokens":1}}`

func TestRetriesAreCountedByReason(t *testing.T) {
	for _, c := range []struct {
		name string
		bad  http.HandlerFunc
		want string
	}{
		{"429", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) }, ReasonRateLimit},
		{"503", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }, ReasonServer},
		{"reset", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, ReasonConnection},
		{"no JSON", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{")) }, ReasonReply},
		{"no choices", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"choices":[]}`)) }, ReasonReply},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			var n atomic.Int64 // a request may come before the one that was cut off has ended here
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if n.Add(1) <= 2 {
					c.bad(w, r)
					return
				}
				_, _ = w.Write([]byte(fine))
			}))
			defer s.Close()
			var got []string
			client, err := New(Config{BaseURL: s.URL + "/v1", Model: "m", OnRetry: func(reason string) { got = append(got, reason) },
				Sleep: func(context.Context, time.Duration) error { return nil }})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			r, err := client.Generate(t.Context(), &traj.Request{Messages: []traj.Message{{Role: "user", Content: "hi"}}})
			if err != nil || r.Message.Content != "hi" {
				t.Fatal(r, err)
			}
			if diff := cmp.Diff([]string{c.want, c.want}, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// silent answers the second request.
type silent struct{ asked int }

func (s *silent) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.asked++; s.asked == 1 {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(fine)), Request: r}, nil
}

func TestRetryAfterTimeoutIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		client, err := New(
			Config{BaseURL: "http://x/v1", Model: "m", Transport: &silent{}, OnRetry: func(reason string) { got = append(got, reason) }})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Generate(t.Context(), &traj.Request{Messages: []traj.Message{{Role: "user", Content: "hi"}}}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{ReasonTimeout}, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestNothingIsLeftAfterClose(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(fine)) }))
	defer s.Close()
	client, err := New(Config{BaseURL: s.URL + "/v1", Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	for range 16 { // idle connections, each with goroutines of its own
		go func() {
			_, err := client.Generate(context.Background(), &traj.Request{Messages: []traj.Message{{Role: "user", Content: "hi"}}})
			done <- err
		}()
	}
	for range 16 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
}
