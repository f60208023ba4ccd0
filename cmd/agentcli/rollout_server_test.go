package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"agentcli/app/console"
	"agentcli/llm/llmtest"
)

// saidBy takes what a server says while a test reads it.
type saidBy struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (s *saidBy) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *saidBy) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

var rolloutsAt = regexp.MustCompile(`rollouts at (http://\S+);`)

// askServer starts agentcli with the arguments, asks for the trajectory of one row, and ends it.
func askServer(t *testing.T, args ...string) string {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	log, done := &saidBy{}, make(chan int, 1)
	go func() {
		done <- executeWith(ctx, append([]string{"agentcli"}, args...), console.Streams{In: strings.NewReader(""), Out: io.Discard, Err: log},
			testBackend)
	}()
	for rolloutsAt.FindString(log.String()) == "" {
		select {
		case code := <-done:
			t.Fatalf("agentcli %s: exit %d: %s", args, code, log)
		case <-time.After(5 * time.Millisecond):
		}
	}
	resp, err := http.Post(rolloutsAt.FindStringSubmatch(log.String())[1]+"/v1/rollouts", "application/json",
		strings.NewReader(`{"rows": [{"id": "a", "question": "x", "answer": "7"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %s %v", resp.StatusCode, b, err)
	}
	stop()
	<-done
	return string(b)
}

// TestAServersRunGoesOnAsAServer: its folder has the address, so that --resume is enough.
func TestAServersRunGoesOnAsAServer(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	model := llmtest.New(t, func(*llmtest.Request) llmtest.Reply { return llmtest.Text("7") })
	start := []string{"rollout", "--base-url", model.BaseURL(), "--model", "m", "--tools", "none", "--reward", "exact"}
	first := askServer(t, append(start, "--serve", "127.0.0.1:0", "--allow-media-path", ".", "--output", "run")...)
	if again := askServer(t, "rollout", "--resume", "run"); again != first || len(model.Requests()) != 1 {
		t.Errorf("%d calls of the model; was %s, is %s", len(model.Requests()), first, again)
	}
	if again := askServer(t, "rollout", "--resume", "run", "--serve", "localhost:0"); again != first {
		t.Errorf("was %s, is %s", first, again)
	}
	config, err := os.ReadFile(filepath.Join("run", "config.yaml"))
	if err != nil || !strings.Contains(string(config), "serve: localhost:0\n") ||
		!strings.Contains(string(config), "allow-media-path: /") { // also from another folder
		t.Errorf("%s %v", config, err)
	}
	if _, log, code := run(t, append(start, "-d", "arith", "--limit", "1", "-n", "1", "--output", "other")...); code != 0 {
		t.Fatal(log)
	}
	for args, want := range map[string]string{
		"rollout --resume run -d arith":              "--resume run: --dataset",
		"rollout --resume other --serve 127.0.0.1:0": "--resume other: --serve",
	} {
		begin, left, _ := strings.Cut(want, ": ")
		_, log, code := run(t, strings.Fields(args)...)
		if code != exitUsage || !strings.Contains(log, begin+": ") || !strings.Contains(log, left) {
			t.Errorf("%s: exit %d: %s", args, code, log)
		}
	}
}
