// Package rolloutserver plays the rows of requests, for trainers that are not of this
// program: `agentcli rollout --serve ADDR`.
//
//	server.go   what is served where, who may ask, and POST /update_weights_from_disk
//	native.go   POST /v1/rollouts: rows in, trajectories out as they end
//	swift.go    POST /infer/ and what else ms-swift's trainers ask (docs/rollout-server.md)
//	weights.go  a policy in its versions
//	sync.go     weights that are pushed to the server that samples
//	admission.go  no trajectory is sampled with two versions
//	fetch.go    images that rows name by an address
//	pool.go     requests become the tasks of a run, its trajectories their answers
//	turns.go    the ids of each reply
package rolloutserver

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"agentcli/agent"
	"agentcli/app/console"
	"agentcli/app/models"
	"agentcli/app/rollout"
	"agentcli/app/rundir"
	"agentcli/datasets"
	"agentcli/internal/exit"
	"agentcli/internal/safego"
	"agentcli/internal/setting"
	"agentcli/internal/text"
	"agentcli/scheduler"
	"agentcli/traj"
)

// Options say where is served, and what.
type Options struct {
	rollout.FileOptions
	Serve string // the address, as 127.0.0.1:8000
	Token string // that requests carry as a bearer token; "": none, of a loopback address alone
	// SyncThrough is the address of the server that samples and takes the weights that a
	// trainer pushes; "": none are taken.
	SyncThrough string
	// AllowMediaHosts are the hosts, as NAME or NAME:PORT, that images are fetched from.
	AllowMediaHosts []string
	AllowMediaPath  string // folder whose files rows may name as images; "": none
}

// OfServer is the first setting that has an effect on a server alone; "": none is given.
func (o *Options) OfServer() setting.Name {
	switch {
	case len(o.AllowMediaHosts) > 0:
		return setting.Name("AllowMediaHosts")
	case o.AllowMediaPath != "":
		return setting.Name("AllowMediaPath")
	case o.SyncThrough != "":
		return setting.Name("SyncThrough")
	case o.Token != "":
		return setting.Name("Token")
	}
	return ""
}

// ofDataset is the first setting that chooses rows of a dataset; "": none is given.
func (o *Options) ofDataset() setting.Name {
	for _, x := range []struct {
		name  setting.Name
		given bool
	}{
		{setting.Name("Dataset"), o.Dataset != ""}, {setting.Name("Split"), o.Split != ""}, {setting.Name("Limit"), o.Limit > 0},
		{setting.Name("Rows"), len(o.Select.Rows) > 0}, {setting.Name("IDs"), len(o.Select.IDs) > 0},
		{setting.Name("Shuffle"), o.Shuffle}, {setting.Name("FailedOf"), o.FailedOf != ""}, {setting.Name("Level"), o.Level != ""},
		{setting.Name("Shots"), o.Shots != nil},
	} {
		if x.given {
			return x.name
		}
	}
	return ""
}

// maxBody is how long a request may be, in bytes.
const maxBody = 256 << 20

// grace is what requests have after ^C to be answered.
const grace = 10 * time.Second

// Run serves until ^C.
func Run(ctx context.Context, o Options, s console.Streams) error {
	if o.Serve == "" {
		return exit.Usagef("%s is for a rollout server; add %s ADDR", o.OfServer(), setting.Name("Serve"))
	}
	if err := checkHosts(o.AllowMediaHosts); err != nil {
		return exit.UsageError{Err: err}
	}
	if st, err := os.Stat(o.AllowMediaPath); o.AllowMediaPath != "" && (err != nil || !st.IsDir()) {
		return exit.Usagef("%s %q is no folder", setting.Name("AllowMediaPath"), o.AllowMediaPath)
	}
	if name := o.ofDataset(); name != "" && o.Resume != "" {
		return exit.Usagef("%s %s: that run takes its rows from requests; leave %s out", setting.Name("Resume"), o.Resume, name)
	} else if name != "" {
		return exit.Usagef("%s takes its rows from requests; leave %s out", setting.Name("Serve"), name)
	}
	host, _, err := net.SplitHostPort(o.Serve)
	if err != nil {
		return exit.Usagef("%s %q is no address; write it as 127.0.0.1:8000", setting.Name("Serve"), o.Serve)
	}
	if o.Token == "" && !text.IsLoopback(host) {
		return exit.Usagef("%s %s can be reached from other machines, and whoever reaches it runs tools here: give %s, which requests then carry",
			setting.Name("Serve"), o.Serve, setting.Name("Token"))
	}
	up, err := o.openUpstream(ctx)
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Serve)
	if err != nil {
		return exit.Usagef("%s: %w", setting.Name("Serve"), err)
	}
	defer l.Close()
	h := &server{o: o, s: s, up: up, pool: newPool(), limit: maxBody, reported: map[string]bool{},
		fetcher: newFetcher(o.AllowMediaHosts, o.Images.MaxImageBytes)}
	var serving sync.WaitGroup
	defer serving.Wait()
	web := &http.Server{Handler: h.handler(), ReadHeaderTimeout: 10 * time.Second}
	defer func() {
		own, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		if web.Shutdown(own) != nil {
			_ = web.Close()
		}
	}()
	o.Feed = h.pool.feed(func(run rollout.FedRun) error {
		h.run = run
		h.pool.open(run.Journal)
		h.open()
		serving.Go(func() { defer safego.Catch(nil); _ = web.Serve(l) })
		s.Say(fmt.Sprintf("rollouts at http://%s; ^C ends it", l.Addr()))
		return nil
	})
	if o.Token != "" { // which is in no file
		o.Feed.Rest = fmt.Sprintf("%s TOKEN", setting.Name("Token"))
	}
	defer func() {
		if h.weights != nil {
			_ = h.weights.Close()
		}
	}()
	return rollout.Rollout(ctx, o.FileOptions, s)
}

// server answers requests.
type server struct {
	o       Options
	s       console.Streams
	pool    *pool
	run     rollout.FedRun
	weights *weights  // nil: the model is a server's, and nobody pushes weights to it
	up      *upstream // nil: nobody does
	fetcher *fetcher

	limit int64 // maxBody, but in tests

	mu       sync.Mutex
	reported map[string]bool // fields that mean nothing
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	status := func(v any) http.HandlerFunc { return func(w http.ResponseWriter, _ *http.Request) { answer(w, v) } }
	each := func(method string, paths []string, h http.HandlerFunc) {
		for _, path := range paths { // with and without the slash at the end, as clients write it
			mux.HandleFunc(method+" "+path, s.guarded(path, h))
			mux.HandleFunc(method+" "+path+"/{$}", s.guarded(path, h))
		}
	}
	each("POST", []string{"/v1/rollouts"}, s.rollouts)
	each("POST", []string{"/update_weights_from_disk"}, s.updateWeights)
	each("GET", []string{"/health"}, status(map[string]string{"status": "ok"}))
	each("POST", []string{"/infer"}, s.infer)
	each("POST", []string{"/get_engine_type"}, func(w http.ResponseWriter, r *http.Request) {
		answer(w, map[string]any{"engine_type": "AsyncLLMEngine", "enable_multi_turn": true,
			"use_gym_env": scheduler.Gymlike(s.o.Scheduler), "enable_lora": s.up.adapters(r.Context())})
	})
	if s.up != nil {
		relay := &relay{up: s.up, admission: &s.pool.admission, adopt: s.pushed, limit: s.limit, over: s.pool.over}
		each("POST", slices.Concat(pushes, endsOfPush, asides), relay.forward)
		each("GET", questions, relay.forward)
		return s.known(mux)
	}
	each("GET", []string{"/get_world_size"}, status(map[string]int{"world_size": 1}))
	for _, cache := range caches { // there is none to be reset: a new policy has new caches
		each("POST", []string{"/reset_" + cache + "_cache"},
			status(map[string]string{"message": "Request received, resetting " + cache + " cache status: True"}))
	}
	each("GET", []string{"/get_model_state_keys", "/server_info"}, s.noPush)
	each("POST", slices.DeleteFunc(slices.Concat(pushes, endsOfPush), func(path string) bool { return path == prefixCache }), s.noPush)
	return s.known(mux)
}

// known answers requests that the endpoints do not know as other errors are answered.
func (s *server) known(endpoints *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, pattern := endpoints.Handler(r)
		if pattern != "" {
			endpoints.ServeHTTP(w, r)
			return
		}
		s.guarded(r.URL.Path, func(w http.ResponseWriter, r *http.Request) {
			said := unsent{header: http.Header{}}
			if h.ServeHTTP(&said, r); said.status == http.StatusMethodNotAllowed {
				methods := said.header.Get("Allow")
				w.Header().Set("Allow", methods)
				fail(w, said.status, fmt.Sprintf("%s takes %s, not %s", r.URL.Path, methods, r.Method))
				return
			}
			fail(w, http.StatusNotFound, fmt.Sprintf("there is no %s %s here", r.Method, r.URL.Path))
		})(w, r)
	})
}

// unsent keeps what a handler answers.
type unsent struct {
	header http.Header
	status int
}

// Header implements http.ResponseWriter.
func (u *unsent) Header() http.Header { return u.header }

// WriteHeader implements http.ResponseWriter.
func (u *unsent) WriteHeader(status int) { u.status = status }

// Write implements http.ResponseWriter.
func (u *unsent) Write(b []byte) (int, error) { return len(b), nil }

// noPush answers what pushes weights from GPU to GPU.
func (s *server) noPush(w http.ResponseWriter, _ *http.Request) {
	fail(w, http.StatusNotImplemented, setting.Errorf("this server takes no weights over NCCL; forward them to the server that samples "+
		"with %s, or save the model and POST its folder to /update_weights_from_disk", setting.Name("SyncThrough")).Error())
}

// open puts the versions in the place of the run's model, where there can be several.
func (s *server) open() {
	if s.run.Source.Kind == "server" && s.up == nil {
		return
	}
	s.weights = &weights{newest: &version{model: s.run.Model}, of: map[string]*version{}}
	s.pool.ended = s.weights.ended
	s.pool.admission.waits = sync.OnceFunc(func() {
		s.s.Say("weights are being pushed; new trajectories wait until the trainer has posted " + prefixCache)
	})
	s.pool.admission.ending = func(n int) {
		s.s.Say(fmt.Sprintf("a trainer pushes weights; it waits for the trajectories that are under way: %d", n))
	}
	if _, exact := s.run.Model.(agent.TokenSplitter); exact {
		s.run.Run.Model = exactWeights{s.weights}
	} else {
		s.run.Run.Model = s.weights
	}
}

// pushed counts a version that was pushed to the server that samples.
func (s *server) pushed() {
	s.s.Say(fmt.Sprintf("version %d of the policy was pushed", s.weights.again()))
}

// updateWeights answers POST /update_weights_from_disk {"model_path": DIR}, as SGLang does.
func (s *server) updateWeights(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Path string `json:"model_path"`
	}
	if !s.read(w, r, &body, "model_path", "load_format", "flush_cache", "abort_all_requests", "weight_version") {
		return
	}
	if s.run.Source.Kind == "server" {
		fail(w, http.StatusNotImplemented, "the model is a server's; update its weights there")
		return
	}
	if body.Path == "" {
		fail(w, http.StatusUnprocessableEntity, `the request names no folder; want {"model_path": "DIR"}`)
		return
	}
	if _, err := os.Stat(body.Path); err != nil { // a name that is not here would be fetched
		fail(w, http.StatusUnprocessableEntity, notHere(body.Path, err))
		return
	}
	s.weights.updating.Lock()
	defer s.weights.updating.Unlock()
	o := s.run.Options.Model
	o.Model, o.BaseURL = body.Path, nil
	model, source, closer, err := models.Open(context.WithoutCancel(r.Context()), o, s.run.Notice)
	if err != nil {
		fail(w, http.StatusUnprocessableEntity, fmt.Sprintf("model_path %s: %v", body.Path, err))
		return
	}
	was := s.run.Source
	if source.TokenizerHash != was.TokenizerHash {
		_ = closer.Close()
		fail(w, http.StatusUnprocessableEntity,
			fmt.Sprintf("model_path %s has another tokenizer than %s: it is another model", body.Path, was.Name))
		return
	}
	if why := otherEyes(&was, &source); why != "" {
		_ = closer.Close()
		fail(w, http.StatusUnprocessableEntity, fmt.Sprintf("model_path %s %s", body.Path, why))
		return
	}
	if source.TemplateHash != was.TemplateHash {
		s.run.Notice(fmt.Sprintf("%s has another chat template than %s", body.Path, was.Name))
	}
	number := s.weights.adopt(model, closer)
	s.s.Say(fmt.Sprintf("version %d of the policy is %s", number, body.Path))
	answer(w, map[string]any{"success": true, "message": fmt.Sprintf("Succeeded to update model weights from %s.", body.Path),
		"weight_version": number})
}

// notHere says why a folder of weights cannot be opened.
func notHere(path string, err error) string {
	switch {
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("model_path %.200q: %v", path, rundir.StripPath(err))
	case models.IsHubName(path):
		return fmt.Sprintf("model_path %.200q: there is no such folder on this machine; if it is a name of the hub, download it first", path)
	}
	return fmt.Sprintf("model_path %.200q: there is no such folder on this machine", path)
}

// otherEyes says why images are not to two models what they are to one; "": they are.
func otherEyes(was, now *models.Source) string {
	switch {
	case was.Images == nil:
	case now.Images == nil:
		return fmt.Sprintf("takes no images, and %s does: it is another model", was.Name)
	case now.Images.Rule() != was.Images.Rule():
		return fmt.Sprintf("prepares images otherwise than %s: its preprocessor_config.json is another", was.Name)
	}
	return ""
}

// guarded asks for the token, but for /health. Without a token it refuses web pages: one
// that the user visits could otherwise have tools run here.
func (s *server) guarded(path string, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.o.Token == "" && (r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "") {
			fail(w, http.StatusForbidden, "the request is a web page's; without a token this server answers programs alone")
			return
		}
		given, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if s.o.Token != "" && path != "/health" && subtle.ConstantTimeCompare([]byte(given), []byte(s.o.Token)) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			fail(w, http.StatusUnauthorized, "the request carries another token than the server's, or none")
			return
		}
		err := safego.Do(func() error { h(w, r); return nil })
		if err != nil {
			fail(w, http.StatusInternalServerError, err.Error())
		}
	}
}

// read decodes a request's body, and says once which of its keys mean nothing here. The
// body is read to its end: before that the server does not notice that a client goes away.
func (s *server) read(w http.ResponseWriter, r *http.Request, into any, keys ...string) bool {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.limit))
	var long *http.MaxBytesError
	if errors.As(err, &long) {
		fail(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the request is longer than %d MiB; send fewer rows at a time", s.limit>>20))
		return false
	}
	var fields map[string]json.RawMessage
	if err == nil {
		err = json.Unmarshal(raw, &fields)
	}
	if err != nil || fields == nil {
		if kind := (*json.UnmarshalTypeError)(nil); errors.As(err, &kind) {
			err = fmt.Errorf("it is a JSON %s", kind.Value)
		}
		fail(w, http.StatusBadRequest, fmt.Sprintf("the request is no JSON object with %s: %v", keys[0], cmp.Or(err, errNull)))
		return false
	}
	if err := unmarshal(raw, into); err != nil {
		fail(w, http.StatusUnprocessableEntity, err.Error())
		return false
	}
	s.unknown(fields, "", keys)
	return true
}

var errNull = errors.New("it is null")

// unmarshal keeps numbers as they are written, as the reader of datasets does. Its errors
// name fields, and no types of Go.
func unmarshal(b []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	err := d.Decode(into)
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		return fmt.Errorf("%s is a JSON %s, and should be something else", cmp.Or(kind.Field, "the value"), kind.Value)
	}
	return err
}

// unknown says once of each key that is not known that it means nothing.
func (s *server) unknown(fields map[string]json.RawMessage, where string, keys []string) {
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(keys, key) {
			s.meansNothing(strings.TrimPrefix(where+"."+key, "."))
		}
	}
}

// meansNothing says so of a field, once, and of no more than maxReported.
func (s *server) meansNothing(field string) {
	s.mu.Lock()
	known := s.reported[field] || len(s.reported) >= maxReported
	if !known {
		s.reported[field] = true
	}
	s.mu.Unlock()
	if !known {
		s.s.Say(fmt.Sprintf("requests have the field %.60q, which means nothing here and is left out", field))
	}
}

// maxReported is how many fields are reported.
const maxReported = 100

// statusOf is the HTTP status of a trajectory that there is not.
func statusOf(err error) int {
	switch {
	case errors.Is(err, errOver):
		return http.StatusServiceUnavailable
	case errors.Is(err, errOtherRow):
		return http.StatusConflict
	case errors.Is(err, errTurns), errors.Is(err, errWords):
		return http.StatusUnprocessableEntity
	}
	return http.StatusInternalServerError
}

func answer(w http.ResponseWriter, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		fail(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b)
}

// fail answers as FastAPI does.
func fail(w http.ResponseWriter, status int, why string) {
	b, err := json.Marshal(map[string]string{"detail": why})
	if err != nil {
		b = []byte("{}")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b)
}

// textOf is a column as text: an id may be a number.
func textOf(row map[string]any, column string) (string, error) {
	switch v := row[column].(type) {
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	case nil:
		return "", nil
	}
	return "", fmt.Errorf("%q is neither text nor a number", column)
}

// task reads a row. Its images are in it, or are fetched.
func (s *server) task(ctx context.Context, row map[string]any, id string, from datasets.ImageSources) (traj.Task, error) {
	if err := textAndImages(row); err != nil {
		return traj.Task{}, err
	}
	t, err := s.run.Requests.Task(row, id, from)
	if err == nil {
		err = s.run.CheckAnswer(&t)
	}
	if err != nil || !hasImages(t.Messages) {
		return t, err
	}
	return t, s.takesImages(ctx)
}

// takesImages says why the model takes no images; nil: it does.
func (s *server) takesImages(ctx context.Context) error {
	if why := s.run.Source.TakesImages(ctx); why != nil {
		return fmt.Errorf("it has images, which are not taken: %s", strings.TrimPrefix(text.Line(why), "images: "))
	}
	return nil
}

// images are what the rows of a request may have their images from.
func (s *server) images(ctx context.Context) datasets.ImageSources {
	return datasets.ImageSources{Folder: s.o.AllowMediaPath, Fetch: s.fetcher.of(ctx, s.takesImages)}
}

func hasImages(messages []traj.Message) bool {
	return slices.ContainsFunc(messages, func(m traj.Message) bool { return len(m.Images) > 0 })
}

// textAndImages refuses a row whose messages are more than that, or are token ids.
func textAndImages(row map[string]any) error {
	for _, column := range []string{"videos", "audios"} {
		if list, ok := row[column].([]any); ok && len(list) > 0 {
			return fmt.Errorf("it has %s; this server plays text and images", column)
		}
	}
	for _, column := range []string{"messages", "prompt", "question"} {
		list, _ := row[column].([]any)
		for i := range list {
			m, _ := list[i].(map[string]any)
			parts, _ := m["content"].([]any)
			for _, part := range parts {
				if _, number := part.(json.Number); number {
					return fmt.Errorf("%s[%d] is token ids; send its text", column, i)
				}
				p, _ := part.(map[string]any)
				if kind, _ := p["type"].(string); kind != "text" && !strings.Contains(kind, "image") {
					return fmt.Errorf("%s[%d] has a part of type %.20q; this server plays text and images", column, i, kind)
				}
			}
		}
	}
	return nil
}

func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
