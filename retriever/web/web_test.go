package web

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentcli/internal/remote"
	"agentcli/internal/remote/remotetest"
	"agentcli/retriever"
	"agentcli/retriever/client"
	"agentcli/retriever/server"
)

const secret = "s3cret-key-of-a-user"

// fake answers as the service does, with the recorded shape of testdata.
func fake(t *testing.T, service string) *httptest.Server {
	t.Helper()
	body, err := os.ReadFile(filepath.Join("testdata", service+".json"))
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		key := map[string]string{serpapi: q.Get("api_key"), google: q.Get("key"), brave: r.Header.Get("X-Subscription-Token"),
			searxng: secret}[service]
		switch {
		case key != secret:
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, "the key "+key+" is wrong")
		case q.Get("q") == "nothing":
			_, _ = io.WriteString(w, "{}")
		case q.Get("q") == "garbage":
			_, _ = io.WriteString(w, "<html>")
		case q.Get("q") != "Who wrote Faust" || service == google && q.Get("cx") != "cx1" || service == searxng && q.Get("format") != "json":
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, r.URL.RawQuery)
		default:
			_, _ = w.Write(body)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func engine(t *testing.T, service, address, key string) *Engine {
	t.Helper()
	e, err := New(Options{Service: service, Address: address, Key: key, CSE: "cx1", Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// What a service finds is answered by Search-R1's protocol, and read by its client's rules.
func TestPagesOfTheWebAreAnsweredAsPassages(t *testing.T) {
	for service, want := range map[string][]string{
		serpapi: {"\"Faust\"\nJohann Wolfgang von Goethe", "\"Faust - Wikipedia\"\nFaust is a play in two parts.",
			"\"No title.\"\nA tragedy & more <b>"},
		google:  {"\"Faust | play by Goethe\"\nFaust, two-part dramatic work by Johann Goethe", "\"Other\"\nNo snippet available."},
		brave:   {"\"Goethe's Faust\"\nA tragic play.", "\"Faust\"\nOpera by Gounod."},
		searxng: {"\"Goethe's Faust\"\nA tragic play.", "\"Faust\"\nNo snippet available."},
	} {
		e := engine(t, service, fake(t, service).URL, secret)
		h := httptest.NewServer(&server.Handler{Index: e, TopK: 3})
		defer h.Close()
		c, err := client.New(h.URL, client.Options{Tries: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		hits, err := c.Search(t.Context(), []string{"Who wrote \"Faust\"?", "nothing", " ?! "}, 3)
		if err != nil {
			t.Fatalf("%s: %v", service, err)
		}
		for i, w := range want {
			if i >= len(hits[0]) || hits[0][i].Passage.Contents != w {
				t.Errorf("%s: %d is not %q: %+v", service, i, w, hits[0])
			}
		}
		if len(hits[0]) != len(want) || len(hits[1])+len(hits[2]) != 0 || hits[0][1].Score != .5 {
			t.Errorf("%s: %+v", service, hits)
		}
		resp, err := http.Post(h.URL+"/retrieve", "application/json", strings.NewReader(`{"queries": ["Who wrote Faust"], "topk": 1}`))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		quoted, _ := json.Marshal(want[0])
		if string(body) != `{"result":[[{"contents":`+string(quoted)+`}]]}` {
			t.Errorf("%s: %s", service, body)
		}
	}
}

// No error has the key, whoever says it: the address, or a server that repeats it.
func TestNoErrorHasTheKey(t *testing.T) {
	hung := make(chan struct{})
	defer close(hung)
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hung }))
	gone := remotetest.Nobody(t)
	for _, service := range []string{serpapi, google, brave} {
		working := fake(t, service).URL
		var refused *remote.StatusError
		for name, tc := range map[string]struct {
			address, key, query string
			is                  func(error) bool
		}{
			"a wrong key": {working, "another-" + secret, "x", func(err error) bool { return errors.As(err, &refused) && refused.Status == 401 }},
			"a bad query": {working, secret, "x", func(err error) bool { return errors.As(err, &refused) && refused.Status == 400 }},
			"garbage":     {working, secret, "garbage", func(err error) bool { return errors.Is(err, remote.ErrProtocol) }},
			"gone":        {gone, secret, "x", func(err error) bool { return errors.Is(err, remote.ErrUnreachable) }},
			"slow":        {slow.URL, secret, "x", func(err error) bool { return errors.Is(err, remote.ErrTimeout) }},
		} {
			e := engine(t, service, tc.address, tc.key)
			e.http.Timeout = 5 * time.Second
			if name == "slow" {
				e.http.Timeout = 20 * time.Millisecond
			}
			_, err := e.Search(t.Context(), []string{tc.query}, 3)
			if !tc.is(err) {
				t.Errorf("%s, %s: %v", service, name, err)
			}
			if err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("%s, %s: the key is in %v", service, name, err)
			}
		}
	}
}

func TestWhatAServiceNeeds(t *testing.T) {
	for name, o := range map[string]Options{
		"no such service":     {Service: "serp"},
		"no key":              {Service: serpapi},
		"no search engine":    {Service: google, Key: secret},
		"no address":          {Service: searxng},
		"no address, a path":  {Service: searxng, Address: "/search"},
		"no address of a web": {Service: searxng, Address: "ftp://x/search"},
	} {
		if _, err := New(o); !errors.Is(err, ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var _ retriever.Index = (*Engine)(nil)
}
