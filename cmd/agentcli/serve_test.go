//go:build libtorch

package main

import (
	"bytes"
	"context"
	"io"
	"math"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentcli/app/console"
	"agentcli/app/rundir"
	"agentcli/traj"
)

// lockedBuffer takes what a server says while others read it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

var served = regexp.MustCompile(`at (http://\S+)/v1`)

// serveModel runs `agentcli serve` until the test ends, and gives its address.
func serveModel(t *testing.T, args ...string) string {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	said := &lockedBuffer{}
	done := make(chan int, 1)
	go func() {
		done <- executeWith(ctx, append([]string{"agentcli", "serve", "--listen", "127.0.0.1:0", "--device", "cpu"}, args...),
			console.Streams{In: strings.NewReader(""), Out: io.Discard, Err: said}, testBackend)
	}()
	t.Cleanup(func() {
		stop()
		if code := <-done; code != exitDone {
			t.Errorf("serve ended with %d:\n%s", code, said)
		}
	})
	for {
		if m := served.FindStringSubmatch(said.String()); m != nil {
			return m[1]
		}
		select {
		case code := <-done:
			done <- code
			t.Fatalf("serve ended with %d:\n%s", code, said)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// apart is the greatest distance of the log-probs of two trajectories' tokens; +Inf where the
// tokens themselves are others.
func apart(a, b []traj.Sequence) float64 {
	if len(a) != len(b) {
		return math.Inf(1)
	}
	most := 0.
	for i := range a {
		if !slices.Equal(a[i].TokenIDs, b[i].TokenIDs) || !slices.Equal(a[i].LossMask, b[i].LossMask) ||
			len(a[i].Logprobs) != len(b[i].Logprobs) {
			return math.Inf(1)
		}
		for j, x := range a[i].Logprobs {
			y := b[i].Logprobs[j]
			if x.Known() != y.Known() {
				return math.Inf(1)
			}
			if x.Known() {
				most = max(most, math.Abs(float64(x-y)))
			}
		}
	}
	return most
}

// mostApart is how far the log-probs of one token may be apart: requests that come at other times
// are computed beside others, and libtorch's products of several rows depend on their number.
const mostApart = 1e-4

// What is rolled out through a server of our own is what the model gives here: the same ids with
// the same log-probs.
func TestRolloutsThroughServeAreThoseOfTheModelHere(t *testing.T) {
	url := serveModel(t, "--model", tinyQwen3, "--dtype", "float32")
	data := writeProducts(t, 4)
	rollout := func(tools string, args ...string) []*traj.Trajectory {
		out := filepath.Join(t.TempDir(), "run")
		_, log, code := run(t, append([]string{"rollout", "-d", data, "--reward", "exact", "-n", "2", "--tools", tools, "--seed", "5",
			"--max-tokens", "24", "--max-turns", "3", "--ordered", "--output", out}, args...)...)
		if code != exitDone {
			t.Fatal(log)
		}
		rows, _ := rowsOf(t, filepath.Join(out, rundir.TrajectoriesFile))
		return rows
	}
	want := map[string][]*traj.Trajectory{}
	for _, tools := range []string{"calculator", "none"} {
		want[tools] = rollout(tools, "--model", tinyQwen3, "--dtype", "float32", "--device", "cpu")
	}
	for name, args := range map[string][]string{
		"ids":           {"--token-mode", "completions", "--tokenizer", tinyQwen3},
		"ids, streamed": {"--token-mode", "completions", "--tokenizer", tinyQwen3, "--stream"},
		"auto":          {"--token-mode", "auto", "--tokenizer", tinyQwen3},
		"chat":          {"--token-mode", "chat"},
		"chat streamed": {"--token-mode", "chat", "--stream"},
	} {
		tools := "calculator"
		if strings.HasPrefix(name, "chat") { // the tiny model's window is too small for tools in the messages
			tools = "none"
		}
		got := rollout(tools, append(args, "--base-url", url+"/v1")...)
		if len(got) != len(want[tools]) {
			t.Fatalf("%s: %d rows, want %d", name, len(got), len(want[tools]))
		}
		for i, w := range want[tools] {
			g := got[i]
			if d := apart(g.Sequences, w.Sequences); d > mostApart {
				t.Errorf("%s, row %d: log-probs are up to %v apart", name, i, d)
			}
			if g.Termination != w.Termination || !reflect.DeepEqual(g.Reward, w.Reward) || g.ID != w.ID {
				t.Errorf("%s, row %d: %s %v, want %s %v", name, i, g.Termination, g.Reward, w.Termination, w.Reward)
			}
			if strings.HasPrefix(name, "ids") && !reflect.DeepEqual(g.Messages, w.Messages) {
				t.Errorf("%s, row %d: other messages", name, i)
			}
		}
	}
}
