package llm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"agentcli/internal/setting"
	"agentcli/internal/text"
	"agentcli/traj"
)

// Admin exchanges the weights of one server: `agentcli serve --admin`, or SGLang. It is safe for
// concurrent use.
type Admin struct {
	at  *caller
	key string
}

// Admins are one for each server, in the order of the configuration. key is what their requests
// carry; "": the client's own.
func Admins(c *Client, key string) []*Admin {
	if key == "" {
		key = c.c.APIKey
	}
	var out []*Admin
	for _, at := range c.pool.all {
		out = append(out, &Admin{at, key})
	}
	return out
}

// Name is the server's address, as messages have it.
func (a *Admin) Name() string { return a.at.name }

// Only gives a context whose requests go to this server alone.
func (a *Admin) Only(ctx context.Context) context.Context { return pinned(ctx, a.at) }

// Loopback reports whether the server is on this machine.
func (a *Admin) Loopback() bool {
	u, err := url.Parse(a.at.c.BaseURL)
	return err == nil && text.IsLoopback(u.Hostname())
}

// Weights are those that a server has.
type Weights struct {
	Version string // as the server counts them, and as its replies say
	First   bool   // they are those that it was started with
	DType   string // in which it computes; "": it does not say
	Tensors bool   // it takes tensors in a request
}

// What may be wrong where weights are exchanged.
var (
	// ErrNoAdmin: the server lets nobody change its weights, or has no requests for it.
	ErrNoAdmin = errors.New("the server's weights cannot be exchanged")
	// ErrNoFolder: the server does not open the folder.
	ErrNoFolder = errors.New("the server does not open the folder")
	// ErrWeights: the server does not take the weights.
	ErrWeights = errors.New("the server does not take the weights")

	errNoAdapters = errors.New("the server loads no adapters")
	errNoPath     = errors.New("the server has no such path")
)

// firstSGLang is the version of what an SGLang server was started with.
const firstSGLang = "default"

// Weights asks which weights the server has.
func (a *Admin) Weights(ctx context.Context) (Weights, error) {
	var ours struct {
		Version *int64 `json:"policy_version"`
		DType   string `json:"dtype"`
	}
	err := a.ask(ctx, http.MethodGet, "/server_info", "", nil, &ours)
	switch {
	case err == nil && ours.Version != nil:
		return Weights{fmt.Sprint(*ours.Version), *ours.Version == 0, ours.DType, true}, nil
	case err != nil && !errors.Is(err, ErrNoAPI):
		return Weights{}, err
	}
	for _, path := range []string{"/model_info", "/get_model_info"} { // the second is the older name
		var sglang struct {
			Version string `json:"weight_version"`
		}
		switch err = a.ask(ctx, http.MethodGet, path, "", nil, &sglang); {
		case err == nil && sglang.Version != "":
			return Weights{sglang.Version, sglang.Version == firstSGLang, ours.DType, false}, nil
		case err != nil && !errors.Is(err, ErrNoAPI):
			return Weights{}, err
		}
	}
	return Weights{}, traj.Mark(setting.Errorf("%s says nothing of its weights' version at /server_info or /model_info; "+
		"start agentcli serve %s or SGLang there; vLLM takes the adapters of %s alone", a.at.name, setting.Name("Admin"),
		setting.Name("LoRA.Rank")), ErrNoAdmin)
}

// Load has the server open a model's folder, whose weights get a version. abort ends what the
// server is drawing; else that ends first. It fails with ErrNoFolder where the server does not
// open that folder.
func (a *Admin) Load(ctx context.Context, folder, version string, abort bool) error {
	body, err := json.Marshal(map[string]any{"model_path": folder, "weight_version": version, "abort_all_requests": abort})
	if err != nil {
		return err
	}
	return a.exchange(ctx, "/update_weights_from_disk", "application/json", bytes.NewReader(body))
}

// Send sends the server the tensors of a safetensors file, which get a version. abort is as in
// Load.
func (a *Admin) Send(ctx context.Context, file, version string, abort bool) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	q := url.Values{"version": {version}}
	if abort {
		q.Set("mode", "abort")
	}
	return a.exchange(ctx, "/update_weights?"+q.Encode(), "application/octet-stream", f)
}

// Models are the names of the models that the server has, its adapters among them.
func (a *Admin) Models(ctx context.Context) (names []string, err error) {
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	path, _ := strings.CutPrefix(a.at.c.BaseURL+"/models", a.at.root())
	if err := a.ask(ctx, http.MethodGet, path, "", nil, &list); err != nil {
		return nil, err
	}
	for _, m := range list.Data {
		names = append(names, m.ID)
	}
	return names, nil
}

// LoadAdapter has the server open a LoRA adapter's folder, which requests name as their model then: vLLM, SGLang,
// or agentcli serve. One of that name is exchanged. It fails with ErrNoFolder where the server does not open the folder.
func (a *Admin) LoadAdapter(ctx context.Context, name, folder string) error {
	if err := a.DropAdapter(ctx, name); err != nil {
		return err
	}
	body, err := json.Marshal(map[string]string{"lora_name": name, "lora_path": folder})
	if err != nil {
		return err
	}
	err = a.ofAdapters(ctx, "/load_lora_adapter", body)
	var s *ServerError
	if errors.As(err, &s) && s.Status == http.StatusNotFound && !errors.Is(err, errNoAdapters) { // as vLLM says of a folder
		err = traj.Mark(err, ErrNoFolder)
	}
	return err
}

// DropAdapter has the server forget an adapter, if it has it.
func (a *Admin) DropAdapter(ctx context.Context, name string) error {
	body, err := json.Marshal(map[string]string{"lora_name": name})
	if err != nil {
		return err
	}
	err = a.ofAdapters(ctx, "/unload_lora_adapter", body)
	if errors.Is(err, ErrWeights) || errors.Is(err, ErrNoAPI) && !errors.Is(err, errNoAdapters) {
		return nil // it has none of that name
	}
	return err
}

// ofAdapters sends a request to where vLLM and agentcli serve have it, or where SGLang does.
func (a *Admin) ofAdapters(ctx context.Context, path string, body []byte) (err error) {
	for _, under := range []string{"/v1", ""} {
		err = a.ask(ctx, http.MethodPost, under+path, "application/json", bytes.NewReader(body), nil)
		if !errors.Is(err, errNoPath) {
			return err
		}
	}
	return traj.Mark(fmt.Errorf("%s has no %s; start agentcli serve %s there, SGLang with --enable-lora, or vLLM with --enable-lora "+
		"and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 (%w)", a.at.name, path, setting.Name("Admin"), err), errNoAdapters)
}

func (a *Admin) exchange(ctx context.Context, path, kind string, body io.Reader) error {
	var done struct {
		Success *bool  `json:"success"`
		Message string `json:"message"`
	}
	err := a.ask(ctx, http.MethodPost, path, kind, body, &done)
	switch {
	case errors.Is(err, ErrNoAPI):
		path, _, _ = strings.Cut(path, "?")
		return traj.Mark(fmt.Errorf("%s has no %s", a.at.name, path), ErrNoAdmin)
	case err == nil && (done.Success == nil || !*done.Success):
		return traj.Mark(fmt.Errorf("%s does not take the weights: %s", a.at.name, a.clean(done.Message)), ErrWeights)
	}
	return err
}

// clean makes a server's words fit for a line, and takes the keys out of them.
func (a *Admin) clean(words string) string { return a.at.clean(withoutKey(words, a.key)) }

// ask sends a request and reads its answer, a JSON object, or whatever it is where into is nil. An error is a
// *ServerError.
func (a *Admin) ask(ctx context.Context, method, path, kind string, body io.Reader, into any) (err error) {
	status := 0
	defer func() {
		if err != nil && !errors.Is(err, context.Canceled) {
			err = &ServerError{Server: a.at.name, Status: status, err: keyless(err, a.key)}
		}
	}()
	one, cancel := context.WithTimeout(ctx, a.at.c.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(one, method, a.at.root()+path, body)
	if err != nil {
		return err
	}
	if f, ok := body.(*os.File); ok {
		info, err := f.Stat()
		if err != nil {
			return err
		}
		req.ContentLength = info.Size()
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	if a.key != "" {
		req.Header.Set("Authorization", "Bearer "+a.key)
	}
	resp, err := a.at.http.Do(req)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case one.Err() != nil:
		return fmt.Errorf("%s gave no answer within %v", a.at.name, a.at.c.Timeout)
	case err != nil:
		return fmt.Errorf("%s: %s", a.at.name, trimURL(err))
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("%s: the answer was cut off: %w", a.at.name, err)
	}
	status = resp.StatusCode
	return a.answer(status, raw, into)
}

const maxAnswer = 1 << 20 // bytes of an answer

// answer reads an answer, or says what is wrong with it.
func (a *Admin) answer(status int, raw []byte, into any) error {
	said := a.clean(message(raw))
	switch {
	case status/100 == 2 && into == nil:
		return nil
	case status/100 == 2:
		if err := json.Unmarshal(raw, into); err != nil {
			return traj.Mark(fmt.Errorf("%s: the answer is not the API's JSON: %s", a.at.name, a.clean(excerpt(raw))), ErrNoAPI)
		}
		return nil
	case status == http.StatusNotFound, status == http.StatusMethodNotAllowed:
		err := traj.Mark(fmt.Errorf("%s answered %d: %s", a.at.name, status, said), ErrNoAPI)
		var other struct {
			Detail string `json:"detail"` // of FastAPI
		}
		if json.Unmarshal(raw, &other) != nil || other.Detail != "" || strings.HasPrefix(said, "there is no ") {
			err = traj.Mark(err, errNoPath)
		}
		return err
	case status == http.StatusUnauthorized:
		return traj.Mark(setting.Errorf("%s refuses the key of requests that exchange its weights (%s); give the server's own by "+
			"AGENTCLI_ADMIN_KEY or %s", a.at.name, said, setting.Name("AdminKey")), ErrKey)
	case status == http.StatusForbidden && named(raw) != "":
		return traj.Mark(fmt.Errorf("%s: %s", a.at.name, said), ErrNoFolder)
	case status == http.StatusForbidden:
		return traj.Mark(setting.Errorf("%s lets nobody exchange its weights (%s); start it with %s", a.at.name, said, setting.Name("Admin")),
			ErrNoAdmin)
	case status/100 == 4 && status != http.StatusTooManyRequests && status != http.StatusRequestTimeout:
		return traj.Mark(fmt.Errorf("%s answered %d: %s", a.at.name, status, said), ErrWeights)
	}
	return fmt.Errorf("%s answered %d: %s", a.at.name, status, said)
}

// named is the field that an error of OpenAI's form is about; "": none.
func named(raw []byte) string {
	var e struct {
		Error struct {
			Param string `json:"param"`
		} `json:"error"`
	}
	if json.Unmarshal(raw, &e) != nil {
		return ""
	}
	return e.Error.Param
}

// Passing reports whether an error of Admin may pass: nothing answered, or the server says that
// it is not ready.
func Passing(err error) bool {
	var s *ServerError
	return errors.As(err, &s) && (s.Status == 0 || s.Status >= http.StatusInternalServerError || s.Status == http.StatusTooManyRequests ||
		s.Status == http.StatusRequestTimeout)
}
