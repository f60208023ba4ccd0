//go:build libtorch

package serve

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"agentcli/app/console"
	"agentcli/app/models"
)

// TestAServerThatEndsAnswersWhoIsLate: while a reply is under way others are refused with 503, and
// one that takes longer than it may is told so too, in an answer that arrives.
func TestAServerThatEndsAnswersWhoIsLate(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	said := make(chan string, 9)
	over := make(chan error, 1)
	o := Options{Path: tiny, Backend: models.NewBackend(), Name: "tiny", Listen: "127.0.0.1:0", Admin: true, Grace: 3 * time.Second,
		Model: models.LocalOptions{DType: "float32", Device: "cpu", Temperature: 1}}
	go func() { over <- Run(ctx, o, console.Streams{Out: io.Discard, Err: lines(said)}) }()
	address := regexp.MustCompile(`http://\S+/v1`).FindString(<-said)
	ask := func(path string) int {
		resp, err := http.Post(strings.TrimSuffix(address, "/v1")+path, "application/json",
			strings.NewReader(`{"prompt": [5, 9], "max_tokens": 4, "messages": [{"role": "user", "content": "a"}]}`))
		if err != nil {
			t.Error(path, err)
			return 0
		}
		defer resp.Body.Close()
		if _, err := io.ReadAll(resp.Body); err != nil {
			t.Error(path, err)
		}
		return resp.StatusCode
	}
	if status := ask("/pause?mode=keep"); status != http.StatusOK {
		t.Fatal(status)
	}
	late := make(chan int, 3)
	for range cap(late) {
		go func() { late <- ask("/v1/completions") }()
	}
	for !strings.Contains(metricsOf(t, address), "\nvllm:num_requests_waiting 3\n") {
		time.Sleep(time.Millisecond)
	}
	end()
	for !strings.HasPrefix(strings.TrimPrefix(<-said, "agentcli: "), "ending") { // access lines come, too
	}
	if status := ask("/v1/completions"); status != http.StatusServiceUnavailable {
		t.Errorf("a new request is answered %d", status)
	}
	if resp, err := http.Get(strings.TrimSuffix(address, "/v1") + "/health"); err != nil {
		t.Error(err)
	} else if resp.Body.Close(); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("it is as healthy as %d", resp.StatusCode)
	}
	for range cap(late) {
		if status := <-late; status != http.StatusServiceUnavailable {
			t.Errorf("a late reply is answered %d", status)
		}
	}
	if err := <-over; err != nil {
		t.Error(err)
	}
}

// lines gives each line that is written to it.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	for line := range strings.Lines(string(b)) {
		select {
		case l <- line:
		default:
		}
	}
	return len(b), nil
}

func metricsOf(t *testing.T, address string) string {
	t.Helper()
	resp, err := http.Get(strings.TrimSuffix(address, "/v1") + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
