// Package serve answers requests to a local model over HTTP: `agentcli serve`.
//
//	server.go       what is served where, who may ask, how it begins and ends
//	fields.go       the fields of requests
//	chat.go         POST /v1/chat/completions
//	completions.go  POST /v1/completions
//	draw.go         one reply: from the engine's tokens to text, ids and log-probs
//	experts.go      which experts were chosen: vLLM's and SGLang's forms
//	ids.go          /tokenize, /detokenize, and replies to ids: vLLM's and SGLang's
//	trl.go          replies to prompts and conversations, and log-probs, for TRL's client
//	admin.go        pauses and new weights
//	adapters.go     LoRA adapters as models beside the model
//	metrics.go      GET /metrics
package serve

import (
	"cmp"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"agentcli/app/console"
	"agentcli/app/models"
	"agentcli/internal/exit"
	"agentcli/internal/safego"
	"agentcli/internal/setting"
	"agentcli/internal/text"
	"agentcli/internal/version"
	"agentcli/model/chat"
	"agentcli/policy"
	"agentcli/traj"
)

// Options say what is served, and where.
type Options struct {
	Path      string // of the model
	Model     models.LocalOptions
	Backend   models.Backend
	Listen    string   // HOST:PORT
	Name      string   // of the model in requests; "": the last part of its path
	Key       string   // that requests carry as a bearer token; "": none
	AdminKey  string   // that requests to the paths of admin.go carry; "": Key
	Admin     bool     // those paths are there
	AllowPath []string // folders that requests may name files in
	Adapters  []string // NAME=FOLDER of LoRA adapters that requests may name as models

	Grace time.Duration // what replies under way have after ^C; 0: 30 s
}

const (
	maxBody    = 64 << 20    // bytes of a request
	maxHeaders = 64 << 10    // bytes of its headers
	bodyTime   = time.Minute // that a request may take to come

	usualGrace  = 30 * time.Second
	lastAnswers = 5 * time.Second // to be written, once all replies are over or cut off
)

// Run serves until ^C.
func Run(ctx context.Context, o Options, s console.Streams) error {
	host, _, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return exit.Usagef("%s %q is no address; write it as 127.0.0.1:8000", setting.Name("Listen"), o.Listen)
	}
	if o.Key == "" && !text.IsLoopback(host) {
		return exit.Usagef("%s %s can be reached from other machines: set AGENTCLI_API_KEY, which requests then carry",
			setting.Name("Listen"), o.Listen)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return exit.Usagef("%s: %w", setting.Name("Listen"), err)
	}
	defer l.Close()
	engine, source, err := o.Backend.OpenEngine(o.Path, o.Model)
	if err != nil {
		return err
	}
	defer engine.Close()
	for _, note := range source.Notes {
		s.Say(note)
	}
	h := newServer(engine, source, o, s)
	if err := loadAdapters(h); err != nil {
		return err
	}
	own, cut := context.WithCancel(context.WithoutCancel(ctx)) // of the requests
	defer cut()
	web := &http.Server{Handler: h.handler(), ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: maxHeaders,
		BaseContext: func(net.Listener) context.Context { return own }, ErrorLog: nil}
	ended := make(chan error, 1)
	var serving sync.WaitGroup
	serving.Go(func() {
		defer safego.Catch(func(err error) { ended <- err })
		ended <- web.Serve(l)
	})
	s.Say(fmt.Sprintf("%s at http://%s/v1; ^C ends it", h.name, l.Addr()))
	select {
	case <-ctx.Done():
		h.draining.Store(true)
		if n := h.underWay.Load(); n > 0 {
			s.Say(fmt.Sprintf("ending: %s under way, for %v at most", text.Plural(int(n), "request"), cmp.Or(o.Grace, usualGrace)))
		}
		h.drain(cmp.Or(o.Grace, usualGrace))
		cut()
		h.drain(lastAnswers) // those that were cut off are told so
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastAnswers)
		defer cancel()
		if web.Shutdown(last) != nil {
			_ = web.Close()
		}
		err = nil
	case err = <-ended:
	}
	cut()
	serving.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// kindOf is what JSON has for a type of Go.
func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return kindOf(t.Elem())
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint32, reflect.Uint64:
		return "a whole number"
	}
	return "a number"
}

// drain waits until no request is under way, or for so long. Those that come meanwhile are refused.
func (s *server) drain(most time.Duration) {
	over := time.NewTimer(most)
	defer over.Stop()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for s.underWay.Load() > 0 {
		select {
		case <-over.C:
			return
		case <-look.C:
		}
	}
}

type server struct {
	engine  models.Engine
	facts   policy.Facts
	exact   chat.Exact
	noChat  error // why the model has no chat format
	source  models.Source
	o       Options
	s       console.Streams
	name    string
	started time.Time
	metrics *metrics
	forms
	draining atomic.Bool
	underWay atomic.Int64 // requests that were admitted
	requests atomic.Int64

	mu     sync.Mutex
	byName map[*namedRequest]bool // requests that can be ended by name
	paused bool
}

func newServer(engine models.Engine, source models.Source, o Options, s console.Streams) *server {
	h := &server{engine: engine, facts: engine.Facts(), source: source, o: o, s: s, name: o.Name, started: time.Now(),
		metrics: newMetrics(engine),
		byName:  map[*namedRequest]bool{}}
	if h.name == "" {
		h.name = filepath.Base(filepath.Clean(source.Name))
	}
	h.exact, h.noChat = engine.Exact()
	return h
}

// An access is who may ask for something.
type access int

const (
	anybody access = iota
	keyed
	admin
)

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	at := func(pattern string, who access, h func(http.ResponseWriter, *http.Request) error) {
		if who == admin && !s.o.Admin {
			h = func(http.ResponseWriter, *http.Request) error {
				return refuse(http.StatusForbidden, "", "this server was started without %s", setting.Name("Admin"))
			}
		}
		mux.HandleFunc(pattern, s.guarded(who, h))
	}
	ok := func(v any) func(http.ResponseWriter, *http.Request) error {
		return func(w http.ResponseWriter, _ *http.Request) error { return answer(w, v) }
	}
	at("GET /health", anybody, s.health)
	at("GET /ping", anybody, s.health)
	at("GET /version", anybody, ok(map[string]string{"version": version.String()}))
	at("GET /metrics", anybody, s.metrics.serve)
	open, ids, change := &openAI{s}, &idsAPI{s}, &administration{s}
	at("GET /tokenizer_info", keyed, ids.tokenizerInfo)
	at("GET /v1/models", keyed, func(w http.ResponseWriter, _ *http.Request) error { return listModels(s, w) })
	at("POST /v1/chat/completions", keyed, open.chat)
	at("POST /v1/completions", keyed, open.completions)
	at("POST /tokenize", keyed, ids.tokenize)
	at("POST /detokenize", keyed, ids.detokenize)
	at("POST /inference/v1/generate", keyed, ids.inference)
	at("POST /generate", keyed, ids.sglang)
	at("POST /abort_request", keyed, ids.abort)
	trl := &trlAPI{open}
	at("GET /health/{$}", anybody, s.health)
	at("GET /get_world_size/{$}", keyed, ok(map[string]int{"world_size": 1}))
	at("POST /generate/{$}", keyed, trl.generate)
	at("POST /chat/{$}", keyed, trl.chat)
	at("POST /get_sequence_logprobs/{$}", keyed, trl.score)
	at("POST /reset_prefix_cache/{$}", admin, change.resetCache)
	for _, path := range []string{"/init_communicator/", "/update_named_param/", "/close_communicator/"} {
		at("POST "+path+"{$}", admin, func(http.ResponseWriter, *http.Request) error {
			return refuse(http.StatusNotImplemented, "", "weights come over HTTP, not NCCL: POST them to /update_weights, or the folder of a saved "+
				"model to /update_weights_from_disk")
		})
	}
	at("GET /get_model_info", keyed, ids.modelInfo)
	at("GET /model_info", keyed, ids.modelInfo)
	at("POST /pause", admin, change.pause)
	at("POST /resume", admin, change.resume)
	at("GET /is_paused", admin, change.isPaused)
	at("POST /reset_prefix_cache", admin, change.resetCache)
	at("POST /update_weights", admin, change.updateWeights)
	at("POST /update_weights_from_disk", admin, change.updateFromDisk)
	at("GET /server_info", admin, change.serverInfo)
	at("GET /get_world_size", admin, ok(map[string]int{"world_size": 1}))
	for _, under := range []string{"/v1", ""} {
		at("POST "+under+"/load_lora_adapter", admin, change.load)
		at("POST "+under+"/unload_lora_adapter", admin, change.unload)
	}
	at("/", keyed, func(_ http.ResponseWriter, r *http.Request) error {
		return refuse(http.StatusNotFound, "", "there is no %s %s here", r.Method, r.URL.Path)
	})
	return mux
}

// problem is an error of a request, in OpenAI's form.
type problem struct {
	status         int
	param, message string
}

func (p *problem) Error() string { return p.message }

// refuse makes one; param is the field that is wrong, if it is one.
func refuse(status int, param, format string, args ...any) error {
	return &problem{status, param, fmt.Sprintf(format, args...)}
}

func bad(param, format string, args ...any) error {
	return refuse(http.StatusBadRequest, param, format, args...)
}

var kinds = map[int]string{http.StatusUnauthorized: "AuthenticationError", http.StatusForbidden: "PermissionDeniedError",
	http.StatusNotFound: "NotFoundError", http.StatusNotImplemented: "NotImplementedError",
	http.StatusServiceUnavailable: "ServiceUnavailableError", http.StatusInternalServerError: "InternalServerError"}

// problemOf is what a client is told of an error.
func problemOf(err error) *problem {
	var p *problem
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, policy.ErrNoAdapter): // it was there when the request came
		return &problem{http.StatusNotFound, "model", err.Error()}
	case errors.Is(err, traj.ErrPromptTooLong):
		return &problem{http.StatusBadRequest, "prompt", "maximum context length: " + err.Error()}
	case errors.Is(err, context.Canceled):
		return &problem{http.StatusServiceUnavailable, "", "the request was given up"}
	case errors.Is(err, traj.ErrFatal):
		return &problem{http.StatusInternalServerError, "", err.Error()}
	}
	return &problem{http.StatusBadRequest, "", err.Error()}
}

func (p *problem) body() map[string]any {
	kind := kinds[p.status]
	if kind == "" {
		kind = "BadRequestError"
	}
	var param any
	if p.param != "" {
		param = p.param
	}
	return map[string]any{"error": map[string]any{"message": p.message, "type": kind, "param": param, "code": p.status}}
}

// answer writes a reply in one piece.
func answer(w http.ResponseWriter, v any) error {
	if m, ok := v.(map[string]any); ok && m["policy_version"] != nil {
		w.Header().Set("X-Policy-Version", fmt.Sprint(m["policy_version"]))
	}
	b, err := json.Marshal(v)
	if err != nil {
		return refuse(http.StatusInternalServerError, "", "the answer is no JSON: %v", err)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(b, '\n')) // who went away needs none
	return nil
}

// guarded asks for the key, turns errors and panics into answers, and writes the access line.
// Without a key it refuses web pages: one that the user visits could ask here otherwise.
func (s *server) guarded(who access, h func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		begin, seen := time.Now(), &counted{ResponseWriter: w}
		s.underWay.Add(1)
		defer s.underWay.Add(-1)
		err := s.admit(who, r)
		if err == nil {
			limit := int64(maxBody)
			if who == admin && ofWeights(r) {
				limit = maxWeights
			}
			r.Body = http.MaxBytesReader(w, r.Body, limit)
			err = safego.Do(func() error { return h(seen, r) })
		}
		if err != nil && seen.status == 0 {
			p := problemOf(err)
			w.Header().Set("Content-Type", "application/json")
			if p.status == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", "Bearer")
			}
			seen.WriteHeader(p.status)
			_ = json.NewEncoder(seen).Encode(p.body())
		}
		if who != anybody {
			ms := time.Since(begin).Milliseconds()
			s.s.Log().Info(fmt.Sprintf("%s %s: %d, %d ms, %d + %d tokens", r.Method, r.URL.Path, seen.status, ms, seen.prompt, seen.drawn),
				"method", r.Method, "path", r.URL.Path, "status", seen.status, "ms", ms, "prompt_tokens", seen.prompt,
				"completion_tokens", seen.drawn)
		}
	}
}

// health says whether requests are taken, to those who send them here or elsewhere.
func (s *server) health(w http.ResponseWriter, _ *http.Request) error {
	if s.draining.Load() {
		return refuse(http.StatusServiceUnavailable, "", "the server is ending")
	}
	return answer(w, map[string]string{"status": "ok"})
}

func (s *server) admit(who access, r *http.Request) error {
	if who == anybody {
		return nil
	}
	if s.draining.Load() {
		return refuse(http.StatusServiceUnavailable, "", "the server is ending")
	}
	key := s.o.Key
	if who == admin && s.o.AdminKey != "" {
		key = s.o.AdminKey
	}
	if key == "" {
		if r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "" {
			return refuse(http.StatusForbidden, "", "the request is a web page's; without a key this server answers programs alone")
		}
		return nil
	}
	given, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if subtle.ConstantTimeCompare([]byte(given), []byte(key)) != 1 {
		return refuse(http.StatusUnauthorized, "", "the request carries another key than the server's, or none")
	}
	return nil
}

// counted remembers what the access line says.
type counted struct {
	http.ResponseWriter
	status, prompt, drawn int
}

// WriteHeader implements http.ResponseWriter.
func (c *counted) WriteHeader(status int) {
	c.status = status
	c.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (c *counted) Write(b []byte) (int, error) {
	if c.status == 0 {
		c.status = http.StatusOK
	}
	return c.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (c *counted) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// read decodes a request's body. It is read to its end: before that the server does not notice
// that a client goes away.
func read(w http.ResponseWriter, r *http.Request, into any) error {
	slow := http.NewResponseController(w)
	_ = slow.SetReadDeadline(time.Now().Add(bodyTime))
	raw, err := io.ReadAll(r.Body)
	_ = slow.SetReadDeadline(time.Time{}) // else it would end the reply
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long):
		return refuse(http.StatusRequestEntityTooLarge, "", "the request is longer than %d MiB", maxBody>>20)
	case err != nil:
		return bad("", "the request ended early: %v", err)
	}
	err = json.Unmarshal(raw, into)
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &kind):
		field := strings.TrimPrefix(kind.Field, "drawing.")
		return bad(field, "%s is a JSON %s, and should be %s", field, kind.Value, kindOf(kind.Type))
	case err != nil:
		return bad("", "the request is no JSON: %v", err)
	}
	return nil
}

// namedRequest is one that can be ended by its name, which others may have too.
type namedRequest struct {
	name string
	end  context.CancelFunc
}

// entitled gives a request a name by which it can be ended.
func (s *server) entitled(ctx context.Context, name string) (context.Context, func()) {
	s.requests.Add(1)
	if name == "" {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	own := &namedRequest{name, cancel}
	s.mu.Lock()
	s.byName[own] = true
	s.mu.Unlock()
	return ctx, func() {
		s.mu.Lock()
		delete(s.byName, own)
		s.mu.Unlock()
		cancel()
	}
}
