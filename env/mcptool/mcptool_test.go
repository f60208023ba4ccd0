package mcptool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"agentcli/env"
	"agentcli/internal/child"
	"agentcli/traj"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const asServer = "AGENTCLI_TEST_MCP"

func TestMain(m *testing.M) {
	if os.Getenv(asServer) != "" {
		if os.Getenv(asServer) == "prints" {
			fmt.Println("Loading the model…")
		}
		if err := testServer(nil).Run(context.Background(), &mcp.StdioTransport{}); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		return
	}
	os.Exit(m.Run())
}

type noArgs struct{}

type number struct {
	N int `json:"n" jsonschema:"a whole number"`
}

// testServer has tools of every kind, good and bad.
func testServer(more func(*mcp.Server)) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "files", Version: "1.2"}, nil)
	add := func(name string, do func(context.Context) (*mcp.CallToolResult, error)) {
		mcp.AddTool(s, &mcp.Tool{Name: name, Description: "about " + name},
			func(ctx context.Context, _ *mcp.CallToolRequest, _ noArgs) (*mcp.CallToolResult, any, error) {
				r, err := do(ctx)
				return r, nil, err
			})
	}
	content := func(c ...mcp.Content) func(context.Context) (*mcp.CallToolResult, error) {
		return func(context.Context) (*mcp.CallToolResult, error) { return &mcp.CallToolResult{Content: c}, nil }
	}
	mcp.AddTool(s, &mcp.Tool{Name: "square", Description: "Square a number."},
		func(_ context.Context, _ *mcp.CallToolRequest, in number) (*mcp.CallToolResult, struct {
			Square int `json:"square"`
		}, error) {
			return nil, struct {
				Square int `json:"square"`
			}{in.N * in.N}, nil
		})
	add("text", content(&mcp.TextContent{Text: "two"}, &mcp.TextContent{Text: "lines"}))
	add("fails", func(context.Context) (*mcp.CallToolResult, error) { return nil, errors.New("no luck") })
	add("fails.silently", func(context.Context) (*mcp.CallToolResult, error) { return &mcp.CallToolResult{IsError: true}, nil })
	add("photo", content(&mcp.TextContent{Text: "a \uFFFC"}, &mcp.ImageContent{MIMEType: "image/png", Data: photo(40, 30)},
		&mcp.TextContent{Text: "b"}, &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "file:///p", Blob: photo(50, 60),
			MIMEType: "image/png"}}))
	add("no photo", content(&mcp.ImageContent{MIMEType: "image/png", Data: []byte("123")}))
	add("fails with a photo", func(context.Context) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: "no luck"},
			&mcp.ImageContent{MIMEType: "image/png", Data: []byte("123")}}}, nil
	})
	add("media", content(&mcp.AudioContent{MIMEType: "audio/wav", Data: []byte("1")},
		&mcp.ResourceLink{URI: "file:///a", Name: "a"},
		&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "file:///b", Text: "b's text"}},
		&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "file:///c", Blob: []byte("12"), MIMEType: "x/y"}}))
	add("hangs", func(ctx context.Context) (*mcp.CallToolResult, error) { <-ctx.Done(); return nil, ctx.Err() })
	add("stuck", func(ctx context.Context) (*mcp.CallToolResult, error) { select {} })
	add("panics", func(context.Context) (*mcp.CallToolResult, error) { panic("out of cheese") })
	add("exits", func(context.Context) (*mcp.CallToolResult, error) {
		fmt.Fprintln(os.Stderr, "out of cheese")
		os.Exit(3)
		return nil, nil
	})
	add("pid", func(context.Context) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: strconv.Itoa(os.Getpid())}}}, nil
	})
	add("huge", content(&mcp.TextContent{Text: strings.Repeat("é", 2<<20)}))
	add("garbage", func(context.Context) (*mcp.CallToolResult, error) {
		os.Stdout.WriteString(`{"jsonrpc":"2.0","id":3,"result":NaN}` + "\n")
		select {}
	})
	add("utf8", func(context.Context) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "a\xffb"}}}, nil
	})
	if more != nil {
		more(s)
	}
	return s
}

// overHTTP is a streamable HTTP server whose handler can be taken for a new one,
// as when it is started again.
func overHTTP(t *testing.T, s func() *mcp.Server) (address string, restart func()) {
	t.Helper()
	var now atomic.Pointer[mcp.StreamableHTTPHandler]
	restart = func() {
		one := s()
		now.Store(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return one }, nil))
	}
	restart()
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { now.Load().ServeHTTP(w, r) }))
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	return h.URL, restart
}

func overStdio(t *testing.T, mode string) Server {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Server{Command: child.Command{Args: []string{exe}, Env: []string{asServer + "=" + mode}}}
}

func open(t *testing.T, c Config) *Set {
	t.Helper()
	s, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func call(t *testing.T, s *Set, name, args string) (string, int) {
	t.Helper()
	e, err := env.New(env.Config{Tools: s.Tools(), ToolTimeout: time.Hour, MaxObservation: 200})
	if err != nil {
		t.Fatal(err)
	}
	r, err := e.Step(t.Context(), traj.Action{ToolCalls: []traj.ToolCall{{ID: "c", Name: name, Arguments: args}}})
	if err != nil {
		t.Fatal(err)
	}
	return r.Observation.Messages[0].Content, r.ToolErrors
}

func TestResultsAndFaultsAreData(t *testing.T) {
	address, _ := overHTTP(t, func() *mcp.Server { return testServer(nil) })
	for name, where := range map[string]Server{
		"http": {URL: address}, "stdio": overStdio(t, "1"), "stdio with prints": overStdio(t, "prints"),
	} {
		t.Run(name, func(t *testing.T) {
			var notices []string
			s := open(t, Config{Servers: []Server{where}, Timeout: time.Minute, Notice: func(s string) { notices = append(notices, s) }})
			for _, c := range []struct {
				name, args, want string
				errors           int
			}{
				{"square", `{"n": 12}`, `{"square":144}`, 0},
				{"square", `{"n": "x"}`, `error: wrong arguments: "n" must be an integer, not a string`, 1},
				{"text", `{}`, "two\nlines", 0},
				{"fails", `{}`, "error: no luck", 1},
				{"fails_silently", `{}`, "error: the tool says that it failed, and not why", 1},
				{"no_photo", `{}`, "error: image 0 of the result cannot be shown: it is no PNG, JPEG, GIF, WebP or BMP file", 1},
				{"fails_with_a_photo", `{}`, "error: no luck\n[an image, image/png, 3 bytes]", 1},
				{"media", `{}`, "[sound, audio/wav, 1 bytes]\n[a resource, a: " +
					"file:///a]\nfile:///b:\nb's text\n[a resource, file:///c, x/y, 2 bytes]", 0},
				{"utf8", `{}`, "a\uFFFDb", 0},
				{"huge", `{}`, strings.Repeat("é", 133) + "\n… [2096952 characters left out] …\n" + strings.Repeat("é", 67), 0},
			} {
				if got, n := call(t, s, c.name, c.args); got != c.want || n != c.errors {
					t.Errorf("%s(%s) = %q with %d errors, want %q", c.name, c.args, got, n, c.want)
				}
			}
			if said := strings.Join(notices, "\n"); strings.Contains(name, "prints") != strings.Contains(said,
				`writes "Loading the model…" on stdout`) {
				t.Errorf("%q", said)
			}
			spec := s.Tools()[len(s.Tools())-1].Spec()
			for _, x := range s.Tools() {
				if x.Spec().Name == "square" {
					spec = x.Spec()
				}
			}
			if spec.Description != "Square a number." || !strings.Contains(string(spec.Parameters), `"a whole number"`) {
				t.Errorf("%+v", spec)
			}
		})
	}
}

// photo is a black image as a file.
func photo(w, h int) []byte {
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, w, h))); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func TestAModelIsShownTheImagesOfAServersTools(t *testing.T) {
	s := open(t, Config{Servers: []Server{overStdio(t, "1")}, Timeout: time.Minute})
	for _, c := range []struct {
		textAlone bool
		content   string
		sizes     []int
	}{
		{false, "a \uFFFD\n" + traj.ImageMark + "\nb\n" + traj.ImageMark, []int{40, 30, 50, 60}},
		{true, fmt.Sprintf("a \uFFFD\n[an image, image/png, %d bytes]\nb\n[an image, image/png, %d bytes]", len(photo(40, 30)),
			len(photo(50, 60))), nil},
	} {
		e, err := env.New(env.Config{Tools: s.Tools(), ToolTimeout: time.Hour, Images: env.ImageConfig{TextAlone: c.textAlone}})
		if err != nil {
			t.Fatal(err)
		}
		r, err := e.Step(t.Context(), traj.Action{ToolCalls: []traj.ToolCall{{ID: "c", Name: "photo", Arguments: "{}"}}})
		if err != nil {
			t.Fatal(err)
		}
		m := r.Observation.Messages[0]
		var sizes []int
		for _, im := range m.Images {
			sizes = append(sizes, im.Width, im.Height)
		}
		if m.Content != c.content || !slices.Equal(sizes, c.sizes) || r.ToolErrors != 0 {
			t.Errorf("text alone %v: %q with %v, want %q with %v", c.textAlone, m.Content, sizes, c.content, c.sizes)
		}
	}
}

func TestAServerThatEndsIsStartedAgain(t *testing.T) {
	said := make(chan string, 10)
	s := open(t, Config{Servers: []Server{overStdio(t, "1")}, Timeout: time.Minute, Notice: func(s string) { said <- s }})
	first, _ := call(t, s, "pid", "{}")
	got, n := call(t, s, "exits", "{}")
	if told := <-said; !strings.Contains(told, "out of cheese; the next call starts or opens it again") {
		t.Error(told)
	}
	if n != 1 || !strings.Contains(got, "failed: ") || !strings.Contains(got, "its last words: out of cheese") {
		t.Error(got)
	}
	if second, n := call(t, s, "pid", "{}"); second == first || n != 0 {
		t.Errorf("%s after %s", second, first)
	}
	if got, n := call(t, s, "panics", "{}"); n != 1 {
		t.Error(got)
	}
	if got, n := call(t, s, "garbage", "{}"); n != 1 || !strings.Contains(got, "failed: ") {
		t.Error(got)
	}
	if third, n := call(t, s, "pid", "{}"); third == first || n != 0 {
		t.Error(third)
	}
}

func TestAServerThatForgotItsSessionIsAskedAgain(t *testing.T) {
	address, restart := overHTTP(t, func() *mcp.Server { return testServer(nil) })
	s := open(t, Config{Servers: []Server{{URL: address}}, Timeout: time.Minute})
	for range 3 {
		if got, n := call(t, s, "text", "{}"); n != 0 {
			t.Error(got)
		}
		restart()
	}
}

func TestAServerThatHangsIsStopped(t *testing.T) {
	s := open(t, Config{Servers: []Server{overStdio(t, "1")}, Timeout: 50 * time.Millisecond})
	for range child.MaxLost {
		for _, name := range []string{"hangs", "stuck"} {
			if got, n := call(t, s, name, "{}"); n != 1 || got != "error: "+name+" took longer than 50ms and was stopped" {
				t.Fatal(got)
			}
		}
	}
}

func TestAServerThatIsGoneBreaksTheTool(t *testing.T) {
	now := time.Unix(0, 0)
	h := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return testServer(nil) }, nil))
	s := open(t, Config{Servers: []Server{{URL: h.URL}}, Timeout: time.Minute, Now: func() time.Time { return now }})
	h.CloseClientConnections()
	h.Config.Close()
	var err error
	for i := range 100 {
		if _, err = s.Tools()[0].Call(t.Context(), json.RawMessage(`{}`)); errors.Is(err, env.ErrBroken) {
			break
		} else if i == 0 && (!errors.Is(err, syscall.ECONNREFUSED)) {
			t.Error(err)
		}
	}
	if !errors.Is(err, env.ErrBroken) {
		t.Error(err)
	}
}

func TestCallsRunAtOnce(t *testing.T) {
	var inside sync.WaitGroup
	inside.Add(2)
	address, _ := overHTTP(t, func() *mcp.Server {
		return testServer(func(s *mcp.Server) {
			mcp.AddTool(s, &mcp.Tool{Name: "both"}, func(context.Context, *mcp.CallToolRequest, noArgs) (*mcp.CallToolResult, any, error) {
				inside.Done()
				inside.Wait()
				return &mcp.CallToolResult{}, nil, nil
			})
		})
	})
	s := open(t, Config{Servers: []Server{{URL: address}}, Timeout: time.Minute})
	e, err := env.New(env.Config{Tools: s.Tools(), ToolTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	r, err := e.Step(t.Context(), traj.Action{ToolCalls: []traj.ToolCall{{Name: "both", Arguments: "{}"}, {Name: "both", Arguments: "{}"}}})
	if err != nil || r.ToolErrors != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestAChangedListIsToldOnce(t *testing.T) {
	said := make(chan string, 10)
	var server *mcp.Server
	address, _ := overHTTP(t, func() *mcp.Server { server = testServer(nil); return server })
	s := open(t, Config{Servers: []Server{{URL: address}}, Timeout: time.Minute, Notice: func(s string) { said <- s }})
	n := len(s.Tools())
	mcp.AddTool(server, &mcp.Tool{Name: "new"}, func(context.Context, *mcp.CallToolRequest, noArgs) (*mcp.CallToolResult, any, error) {
		return nil, nil, nil
	})
	if got := <-said; !strings.Contains(got, "its tools have changed; this run goes on with those that it began with") || len(s.Tools()) != n {
		t.Error(got)
	}
}

func TestHeadersGoWithEveryRequest(t *testing.T) {
	h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return testServer(nil) }, nil)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer x" {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { web.CloseClientConnections(); web.Close() })
	s := open(t, Config{Servers: []Server{{URL: web.URL, Headers: map[string]string{"Authorization": "Bearer x"}}}})
	if got, n := call(t, s, "text", "{}"); n != 0 {
		t.Error(got)
	}
	var unusable *env.UnusableError
	if _, err := Open(t.Context(), Config{Servers: []Server{{Name: "docs", URL: web.URL}}}); !errors.As(err, &unusable) ||
		!strings.HasSuffix(unusable.What, " docs") {
		t.Error(err)
	}
}

// A server that sends us elsewhere does not get its key carried there.
func TestHeadersGoToNoOtherHost(t *testing.T) {
	got := make(chan string, 100)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header.Get("X-Key")
		http.Error(w, "no", http.StatusNotFound)
	}))
	t.Cleanup(other.Close)
	first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Key") != "secret" {
			t.Error("the server itself did not get its header")
		}
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	}))
	t.Cleanup(first.Close)
	if s, err := Open(t.Context(), Config{Servers: []Server{{URL: first.URL, Headers: map[string]string{"X-Key": "secret"}}}}); err == nil {
		s.Close()
		t.Error("nobody answered")
	}
	if len(got) == 0 {
		t.Fatal("the other host was never asked")
	}
	for range len(got) {
		if key := <-got; key != "" {
			t.Errorf("another host got the key %q", key)
		}
	}
}

// A server that does not answer any more does not hold the end of a run up.
func TestCloseDoesNotWaitForADeadServer(t *testing.T) {
	h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return testServer(nil) }, nil)
	deleted, release := make(chan struct{}, 10), make(chan struct{})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			deleted <- struct{}{}
			<-release
			return
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { close(release); web.CloseClientConnections(); web.Close() })
	s, err := Open(t.Context(), Config{Servers: []Server{{URL: web.URL}}, closeGrace: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil { // without the limit it would be here for ever
		t.Error(err)
	}
	<-deleted
}

func TestServersThatAreNotThereSayWhy(t *testing.T) {
	for command, want := range map[string]string{
		"no-such-program-here":   "no-such-program-here", // as the shell says
		"echo hello >&2; exit 3": "hello",
	} {
		_, err := Open(t.Context(), Config{Servers: []Server{Parse(command)}})
		var unusable *env.UnusableError
		var last *serverWords
		if !errors.As(err, &unusable) || !strings.HasSuffix(unusable.What, " "+command) || !errors.As(err, &last) ||
			!strings.Contains(last.words, want) {
			t.Errorf("%s: %v", command, err)
		}
	}
	if _, err := Open(t.Context(), Config{Servers: []Server{Parse("http://127.0.0.1:1/mcp")}}); err == nil {
		t.Error("nobody is there")
	}
}

func TestNamesAreUniqueAndPrefixedOnlyWhereTwoClash(t *testing.T) {
	a, b, c := &server{title: "files"}, &server{title: "git hub"}, &server{title: "git hub"}
	long := strings.Repeat("x", 70)
	all := []*tool{{x: a, original: "read"}, {x: a, original: "a.b/c"}, {x: b, original: "read"},
		{x: b, original: "only"}, {x: c, original: "read"},
		{x: a, original: "python"}, {x: a, original: long}, {x: b, original: long}, {x: c, original: long}, {x: a, original: "git_hub_read"}}
	unique(all, []string{"python", "calculator"})
	seen := map[string]bool{}
	for i, want := range []string{"files_read", "a_b_c", "git_hub_read_2", "only", "git_hub_read_3", "files_python",
		"files_" + long[:58], "git_hub_" + long[:56], "git_hub_" + long[:54] + "_2", "git_hub_read"} {
		if all[i].name != want || len(want) > 64 || seen[want] || !env.ToolName.MatchString(want) {
			t.Errorf("%s of %s is %q, want %q", all[i].original, all[i].x.title, all[i].name, want)
		}
		seen[want] = true
	}
}

// BenchmarkStdio is a call of a server of the Go SDK that does nothing.
func BenchmarkStdio(b *testing.B) {
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	s, err := Open(b.Context(), Config{Servers: []Server{{Command: child.Command{Args: []string{exe}, Env: []string{asServer + "=1"}}}}})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for _, t := range s.Tools() {
		if t.Spec().Name == "text" {
			for b.Loop() {
				if _, err := t.Call(b.Context(), json.RawMessage("{}")); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
}

// TestNoSecretOfAServersAddressReachesAnybody: not the model by a call's result,
// nor people by a notice or an error, while the server is away or answers badly.
func TestNoSecretOfAServersAddressReachesAnybody(t *testing.T) {
	where, _ := overHTTP(t, func() *mcp.Server { return testServer(nil) })
	target, err := url.Parse(where)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.URL.Path, r.Out.URL.RawQuery = "", "" }}
	var mode atomic.Value
	mode.Store("")
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch mode.Load() {
		case "away":
			panic(http.ErrAbortHandler)
		case "echoes":
			http.Error(w, "refused: "+r.URL.String()+" "+r.Header.Get("Authorization"), http.StatusInternalServerError)
		default:
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() { front.CloseClientConnections(); front.Close() })
	var mu sync.Mutex
	var said strings.Builder
	hear := func(s string) { mu.Lock(); defer mu.Unlock(); said.WriteString(s + "\n") }
	server := Server{URL: strings.Replace(front.URL, "http://", "http://canary-user:canary-word@", 1) + "/mcp?apiKey=canary-query",
		Headers: map[string]string{"Authorization": "Bearer canary-header"}}
	hear(server.String())
	for _, m := range []string{"away", "echoes"} {
		mode.Store(m)
		if _, err := Open(t.Context(), Config{Servers: []Server{server}, Notice: hear, closeGrace: time.Millisecond}); err == nil {
			t.Error("it opens, which shows nothing")
		} else {
			hear(err.Error())
		}
		mode.Store("")
		s := open(t, Config{Servers: []Server{server}, Notice: hear, closeGrace: time.Millisecond})
		mode.Store(m)
		for _, tool := range s.Tools() {
			if tool.Spec().Name == "text" {
				for range 3 {
					out, err := tool.Call(t.Context(), json.RawMessage("{}"))
					if err == nil {
						t.Error("the call succeeds, which shows nothing")
					}
					hear(fmt.Sprint(out, err))
				}
			}
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if strings.Contains(said.String(), "canary") {
		t.Error(said.String())
	}
}
