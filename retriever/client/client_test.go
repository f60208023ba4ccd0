package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"agentcli/internal/remote/remotetest"
	"agentcli/retriever"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const good = `{"result":[[{"document":{"id":"7","contents":"\"T\"\nx"},"score":1.5}]]}`

// start serves replies: each request takes the next, and the last stays.
func start(t *testing.T, replies ...http.HandlerFunc) (*Client, *atomic.Int32) {
	t.Helper()
	return startWith(t, Options{Wait: time.Microsecond, Timeout: 5 * time.Second}, replies...)
}

func startWith(t *testing.T, o Options, replies ...http.HandlerFunc) (*Client, *atomic.Int32) {
	t.Helper()
	var n atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		replies[min(int(n.Add(1)), len(replies))-1](w, r)
	}))
	c, err := New(s.URL, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); s.Close() })
	return c, &n
}

func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// TestAnswersOfOtherServersAreRead: documents without scores, as text (Search-R1's
// reranker), without id (its servers of web search).
func TestAnswersOfOtherServersAreRead(t *testing.T) {
	for body, want := range map[string]retriever.Hit{
		good: {Passage: retriever.Passage{ID: "7", Contents: "\"T\"\nx"}, Score: 1.5},
		`{"result":[[{"id":7,"contents":"\"T\"\nx"}]]}`:                 {Passage: retriever.Passage{ID: "7", Contents: "\"T\"\nx"}},
		`{"result":[[{"document":"\"T\"\nx","score":-2}]]}`:             {Passage: retriever.Passage{Contents: "\"T\"\nx"}, Score: -2},
		`{"result":[["\"T\"\nx"]]}`:                                     {Passage: retriever.Passage{Contents: "\"T\"\nx"}},
		`{"result":[[{"document":{"contents":"\"T\"\nx"}}]], "more":1}`: {Passage: retriever.Passage{Contents: "\"T\"\nx"}},
	} {
		c, _ := start(t, says(200, body))
		hits, err := c.Search(t.Context(), []string{"q"}, 1)
		if err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		if diff := cmp.Diff([][]retriever.Hit{{want}}, hits, cmpopts.IgnoreFields(retriever.Passage{}, "Row")); diff != "" {
			t.Errorf("%s: %s", body, diff)
		}
	}
}

func TestTheRequestIsTheProtocols(t *testing.T) {
	var got map[string]any
	c, _ := start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/retrieve" || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
			t.Error(r.Method, r.URL.Path, r.Header)
		}
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(w, good)
	})
	if _, err := c.Search(t.Context(), []string{"a \"b\""}, 5); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"queries": []any{"a \"b\""}, "topk": 5., "topk_rerank": 5., "return_scores": true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestGarbageIsAnErrorOfTheProtocol: and is not asked for again where it is JSON.
func TestGarbageIsAnErrorOfTheProtocol(t *testing.T) {
	for _, body := range []string{"", "<html>", "[]", "{}", `{"result":null}`, `{"result":[]}`, `{"result":[[],[]]}`, `{"result":[[1]]}`,
		`{"result":[[{"document":null}]]}`, `{"result":[[{"document":{"id":"1"}}]]}`, `{"result":[{"document":"x"}]}`, `{"result":[[null]]}`} {
		c, n := start(t, says(200, body))
		tries := int32(1)
		if !json.Valid([]byte(body)) {
			tries = 4
		}
		if hits, err := c.Search(t.Context(), []string{"q"}, 1); !errors.Is(err, ErrProtocol) || n.Load() != tries {
			t.Errorf("%q: %v %v after %d tries, want %d", body, hits, err, n.Load(), tries)
		}
	}
}

func TestAnErrorOfTheServerIsTriedAgain(t *testing.T) {
	c, n := start(t, says(500, "Internal Server Error"), says(503, ""), says(429, ""), says(200, good))
	if hits, err := c.Search(t.Context(), []string{"q"}, 1); err != nil || len(hits) != 1 || n.Load() != 4 {
		t.Errorf("%v %v after %d tries", hits, err, n.Load())
	}
	c, n = start(t, says(500, `{"detail":"no\nluck"}`))
	var status *StatusError
	if _, err := c.Search(t.Context(), []string{"q"}, 1); !errors.As(err, &status) || status.Status != 500 ||
		status.Detail != "no luck" || n.Load() != 4 {
		t.Errorf("%v after %d tries", err, n.Load())
	}
}

func TestARefusalIsNotTriedAgain(t *testing.T) {
	c, n := start(t, says(422, `{"detail":[{"msg":"Field required"}]}`))
	var status *StatusError
	if _, err := c.Search(t.Context(), []string{"q"}, 1); !errors.As(err, &status) || status.Status != 422 || n.Load() != 1 {
		t.Errorf("%v after %d tries", err, n.Load())
	}
}

func TestABrokenConnectionIsTriedAgain(t *testing.T) {
	cut := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, good)
		panic(http.ErrAbortHandler)
	}
	c, n := start(t, cut, says(200, good))
	if _, err := c.Search(t.Context(), []string{"q"}, 1); err != nil || n.Load() != 2 {
		t.Errorf("%v after %d tries", err, n.Load())
	}
	c, _ = start(t, cut)
	if _, err := c.Search(t.Context(), []string{"q"}, 1); !errors.Is(err, ErrUnreachable) {
		t.Error(err)
	}
}

func TestADeadServerIsUnreachable(t *testing.T) {
	c, err := New(remotetest.Nobody(t), Options{Wait: time.Microsecond, Tries: 2})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Search(t.Context(), []string{"q"}, 1); !errors.Is(err, ErrUnreachable) {
		t.Error(err)
	}
}

func TestASilentServerIsATimeout(t *testing.T) {
	release := make(chan struct{})
	c, n := startWith(t, Options{Timeout: 20 * time.Millisecond, Tries: 2, Wait: time.Microsecond},
		func(http.ResponseWriter, *http.Request) { <-release })
	_, err := c.Search(t.Context(), []string{"q"}, 1)
	close(release)
	if !errors.Is(err, ErrTimeout) || errors.Is(err, context.DeadlineExceeded) || n.Load() != 2 {
		t.Errorf("%v after %d tries", err, n.Load())
	}
}

func TestTheContextsEndIsTheContextsError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c, _ := start(t, func(http.ResponseWriter, *http.Request) { cancel() })
	if _, err := c.Search(ctx, []string{"q"}, 1); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestAddressesThatAreNone(t *testing.T) {
	for _, a := range []string{"", "localhost:8000", "ftp://x", "http://", "::"} {
		if _, err := New(a, Options{}); err == nil {
			t.Errorf("%q was taken", a)
		}
	}
}
