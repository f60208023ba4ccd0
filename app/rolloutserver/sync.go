package rolloutserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"agentcli/app/models"
	"agentcli/internal/exit"
	"agentcli/internal/safego"
	"agentcli/internal/setting"
	"agentcli/internal/text"
)

// The endpoints by which trainers push weights to the server that samples: ms-swift's
// (swift/pipelines/infer/rollout.py), and vLLM's, as TRL's clients ask them (trl 1.16,
// trl/generation/vllm_client.py; update_named_param and init_communicator before 1.16).
var (
	// pushes change the weights. What is under way ends before the first of them.
	pushes = []string{"/update_named_param", "/update_flattened_params", "/update_adapter_param", "/update_adapter_flattened_param",
		"/process_weights_after_loading", "/start_weight_update", "/update_weights", "/finish_weight_update"}
	// endsOfPush follow the last of them. Both trainers reset the prefix cache then: what was
	// sampled before that would be continued with the old weights' keys and values. One that
	// has failed and begins anew asks for a communicator.
	endsOfPush = []string{prefixCache, "/init_communicator", "/init_weight_transfer_engine", "/close_communicator"}
	// asides change no weights.
	asides = []string{"/reset_encoder_cache", "/reset_mm_cache"}
	caches = []string{"prefix", "encoder", "mm"}
	// questions are asked by GET.
	questions = []string{"/get_world_size", "/get_model_state_keys", "/server_info", "/v1/models"}
)

const prefixCache = "/reset_prefix_cache"

// upstream is the server that samples, to which weights are pushed: Options.SyncThrough.
type upstream struct {
	root string // its address, without a slash at the end
	key  string // its own bearer token; "": none. Never the one of whoever asks here
	http *http.Client
}

// newUpstream reads the address of Options.SyncThrough.
func newUpstream(address, key string) (*upstream, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.ContainsAny(address, "?#") {
		shown := text.Address(address)
		if err == nil && u.User != nil { // of any scheme
			u.User = nil
			shown = text.Address(u.String())
		}
		return nil, exit.Usagef("%s %q is no address of a server; write it as http://127.0.0.1:8000", setting.Name("SyncThrough"), shown)
	}
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, IdleConnTimeout: time.Minute},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return &upstream{root: strings.TrimSuffix(strings.TrimRight(u.String(), "/"), "/v1"), key: key, http: client}, nil
}

// openUpstream is the server to which weights are pushed; nil: there is none. Where no model
// is named that server samples.
func (o *Options) openUpstream(ctx context.Context) (*upstream, error) {
	if o.SyncThrough == "" {
		return nil, nil
	}
	m := &o.Model
	key := m.APIKey
	if len(m.BaseURL) > 0 && !m.BaseFromEnv && !sameHost(m.BaseURL[0], o.SyncThrough) {
		key = "" // it is of another server
	}
	up, err := newUpstream(o.SyncThrough, key)
	if err != nil || len(m.BaseURL) > 0 && !m.BaseFromEnv {
		return up, err
	}
	m.BaseURL, m.BaseFromEnv = nil, false
	return up, up.model(ctx, m)
}

func sameHost(a, b string) bool {
	x, errX := url.Parse(a)
	y, errY := url.Parse(b)
	return errX == nil && errY == nil && x.Scheme == y.Scheme && x.Host == y.Host
}

// errUpstream is in the error of a server that gives no answer.
var errUpstream = errors.New("the server that samples cannot be reached")

// ask sends a request on: its method, path, query and body. There is no time limit: a push
// takes as long as the trainer takes to broadcast.
func (u *upstream) ask(ctx context.Context, method, path, contentType string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, u.root+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if u.key != "" {
		req.Header.Set("Authorization", "Bearer "+u.key)
	}
	resp, err := u.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w (%s): %w", errUpstream, text.Address(u.root), text.WithoutAddress(err))
	}
	return resp, nil
}

// model says how the server is sampled from where no other address is given: as one of the
// OpenAI API, or as a `swift rollout`.
func (u *upstream) model(ctx context.Context, o *models.Options) error {
	for _, x := range []struct {
		method, path string
		found        func()
	}{
		{http.MethodGet, "/v1/models", func() { o.BaseURL = models.ParseAddresses(u.root + "/v1") }},
		{http.MethodPost, "/get_engine_type/", func() { o.SwiftRollout = u.root }},
	} {
		own, cancel := context.WithTimeout(ctx, 30*time.Second)
		resp, err := u.ask(own, x.method, x.path, "", nil)
		cancel()
		if err != nil {
			return fmt.Errorf("%s: %w", setting.Name("SyncThrough"), err)
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			x.found()
			return nil
		}
	}
	return exit.Usagef("%s: %s answers neither /v1/models nor /get_engine_type/; name the server that samples with %s",
		setting.Name("SyncThrough"), text.Address(u.root), setting.Name("BaseURL"))
}

// adapters reports whether the server takes the weights of a LoRA adapter, as a `swift
// rollout` with --vllm_enable_lora does.
func (u *upstream) adapters(ctx context.Context) bool {
	if u == nil {
		return false
	}
	resp, err := u.ask(ctx, http.MethodPost, "/get_engine_type/", "", nil)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	var engine struct {
		LoRA bool `json:"enable_lora"`
	}
	return resp.StatusCode == http.StatusOK && json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&engine) == nil && engine.LoRA
}

// relay forwards what a trainer asks of the server that samples.
type relay struct {
	up        *upstream
	admission *admission
	adopt     func()        // is called when weights were pushed
	over      chan struct{} // closed when the run is
	limit     int64         // of a request, in bytes
}

// forward sends a request on as it is, and its answer back.
func (f *relay) forward(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimSuffix(r.URL.Path, "/")
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, f.limit)) // before that nobody notices that the client goes away
	if err != nil {
		fail(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the request cannot be read: %v", err))
		return
	}
	pushing, ends := slices.Contains(pushes, path), slices.Contains(endsOfPush, path)
	if !pushing && !ends {
		f.send(w, r, body)
		return
	}
	done := false
	defer func() { f.admission.release(pushing, ends, done, f.adopt) }()
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	go func() {
		defer safego.Catch(cancel)
		select {
		case <-f.over:
			cancel(errOver)
		case <-ctx.Done():
		}
	}()
	if err := f.admission.hold(ctx, pushing); err != nil {
		fail(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	done = f.send(w, r, body)
}

// send asks the server that samples, and reports whether it did what was asked.
func (f *relay) send(w http.ResponseWriter, r *http.Request, body []byte) bool {
	path := r.URL.Path
	if r.URL.RawQuery != "" {
		path += "?" + r.URL.RawQuery
	}
	resp, err := f.up.ask(r.Context(), r.Method, path, r.Header.Get("Content-Type"), body)
	if err != nil {
		fail(w, http.StatusBadGateway, text.Line(err))
		return false
	}
	defer resp.Body.Close()
	if c := resp.Header.Get("Content-Type"); c != "" {
		w.Header().Set("Content-Type", c)
	}
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body)
	return resp.StatusCode/100 == 2
}
