package llm

import (
	"context"
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

	"agentcli/traj"
)

// adminOf is that of a server that answers by h.
func adminOf(t *testing.T, key string, h http.HandlerFunc) *Admin {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	c, err := New(Config{BaseURL: s.URL + "/v1", APIKey: "asking", Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return Admins(c, key)[0]
}

// Two kinds of servers exchange weights: ours, which counts, and SGLang, which takes any name.
func TestWeightsOfServersAreExchanged(t *testing.T) {
	file := filepath.Join(t.TempDir(), "model.safetensors")
	if err := os.WriteFile(file, []byte("tensors"), 0o600); err != nil {
		t.Fatal(err)
	}
	var sent []string
	record := func(r *http.Request) map[string]any {
		body, _ := io.ReadAll(r.Body)
		sent = append(sent, r.URL.RequestURI()+" "+r.Header.Get("Authorization")+" "+string(body))
		fields := map[string]any{}
		_ = json.Unmarshal(body, &fields)
		return fields
	}
	answer := func(w http.ResponseWriter, text string) { _, _ = io.WriteString(w, text) }

	version := "0"
	ours := adminOf(t, "admin", func(w http.ResponseWriter, r *http.Request) {
		fields := record(r)
		switch r.URL.Path {
		case "/server_info":
			answer(w, `{"policy_version": `+version+`, "dtype": "bfloat16"}`)
		case "/update_weights_from_disk":
			version, _ = fields["weight_version"].(string)
			answer(w, `{"success": true}`)
		case "/update_weights":
			version = r.URL.Query().Get("version")
			answer(w, `{"success": true}`)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	})
	name := "default"
	sglang := adminOf(t, "", func(w http.ResponseWriter, r *http.Request) {
		fields := record(r)
		switch r.URL.Path {
		case "/server_info":
			answer(w, `{"model_path": "m", "dtype": "auto", "version": "0.5.4"}`)
		case "/get_model_info":
			answer(w, `{"model_path": "m", "weight_version": "`+name+`"}`)
		case "/update_weights_from_disk":
			name, _ = fields["weight_version"].(string)
			answer(w, `{"success": true, "message": "Succeeded", "num_paused_requests": 0}`)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	})
	has := func(a *Admin, want Weights) {
		t.Helper()
		if got, err := a.Weights(t.Context()); err != nil || got != want {
			t.Errorf("%+v (%v), want %+v", got, err, want)
		}
	}
	has(ours, Weights{"0", true, "bfloat16", true})
	has(sglang, Weights{firstSGLang, true, "auto", false})
	for _, a := range []*Admin{ours, sglang} {
		if err := a.Load(t.Context(), "/models/new", "3", false); err != nil {
			t.Error(err)
		}
	}
	has(ours, Weights{"3", false, "bfloat16", true})
	has(sglang, Weights{"3", false, "auto", false})
	if err := ours.Send(t.Context(), file, "4", true); err != nil {
		t.Error(err)
	}
	has(ours, Weights{"4", false, "bfloat16", true})
	if err := sglang.Send(t.Context(), file, "4", false); !errors.Is(err, ErrNoAdmin) || !strings.Contains(err.Error(), "/update_weights") {
		t.Errorf("SGLang takes no tensors in a request: %v", err)
	}
	all := strings.Join(sent, "\n")
	for _, want := range []string{"/update_weights?mode=abort&version=4 Bearer admin tensors",
		`/update_weights_from_disk Bearer admin {"abort_all_requests":false,"model_path":"/models/new","weight_version":"3"}`,
		"/get_model_info Bearer asking"} {
		if !strings.Contains(all, want) {
			t.Errorf("no request %q in\n%s", want, all)
		}
	}
}

// What a server refuses has a kind, and its words lose the key.
func TestRefusedExchangesOfWeights(t *testing.T) {
	const key = "canary-admin-key"
	for name, x := range map[string]struct {
		status  int
		body    string
		kind    error
		passing bool
	}{
		"key":         {401, `{"error":{"message":"not ` + key + `"}}`, ErrKey, false},
		"no --admin":  {403, `{"error":{"message":"started without --admin"}}`, ErrNoAdmin, false},
		"folder":      {403, `{"error":{"message":"not below a folder","param":"model_path"}}`, ErrNoFolder, false},
		"shape":       {400, `{"error":{"message":"another shape"}}`, ErrWeights, false},
		"SGLang's no": {200, `{"success":false,"message":"no memory"}`, ErrWeights, false},
		"nothing":     {404, `{"detail":"Not Found"}`, ErrNoAdmin, false},
		"no JSON":     {200, `<html>` + key, ErrNoAdmin, false},
		"ending":      {503, `{"error":{"message":"the server is ending"}}`, nil, true},
		"a proxy's":   {502, `bad gateway ` + key, nil, true},
	} {
		a := adminOf(t, key, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(x.status)
			_, _ = io.WriteString(w, x.body)
		})
		err := a.Load(t.Context(), "/m", "1", false)
		if err == nil || x.kind != nil && !errors.Is(err, x.kind) || Passing(err) != x.passing || strings.Contains(err.Error(), "canary") ||
			!strings.Contains(err.Error(), a.Name()) {
			t.Errorf("%s: %v; it may pass: %v", name, err, Passing(err))
		}
	}
	gone := adminOf(t, key, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	if _, err := gone.Weights(t.Context()); !Passing(err) {
		t.Errorf("a connection that is cut may pass: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := gone.Weights(ctx); !errors.Is(err, context.Canceled) || Passing(err) {
		t.Errorf("interrupted: %v", err)
	}
	silent := adminOf(t, key, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"model_path":"m"}`) })
	if _, err := silent.Weights(t.Context()); !errors.Is(err, ErrNoAdmin) {
		t.Errorf("a server that names no version: %v", err)
	}
}

// A reply counts only if the weights that drew it are accepted; ErrStale has it drawn again at once.
func TestRepliesOfOtherWeightsAreDrawnAgain(t *testing.T) {
	for name, x := range map[string]struct {
		sglang bool
		reply  string
	}{
		"vLLM's form": {false, `{"choices":[{"index":0,"text":"a","token_ids":[4],"prompt_token_ids":[1,2],"finish_reason":"length"}],
			"policy_version":VERSION}`},
		"SGLang's form": {true, `{"text":"a","output_ids":[4],"meta_info":{"prompt_tokens":2,"completion_tokens":1,
			"finish_reason":{"type":"length"},"weight_version":"VERSION"}}`},
		"ours": {true, `{"text":"a","output_ids":[4],"meta_info":{"prompt_tokens":2,"completion_tokens":1,
			"finish_reason":{"type":"length"},"weight_version":9,"policy_version":VERSION}}`},
	} {
		version, asked := "1", 0
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked++
			_, _ = io.WriteString(w, strings.ReplaceAll(x.reply, "VERSION", version))
		}))
		t.Cleanup(s.Close)
		c, err := New(Config{BaseURL: s.URL + "/v1", Retries: -1, WantIDs: true})
		if err != nil {
			t.Fatal(err)
		}
		tokens := &Tokens{Client: c, SGLang: x.sglang, Window: 100}
		var seen []string
		tokens.Accept = func(_ context.Context, _, v string) error {
			if seen = append(seen, v); v == "2" {
				return nil
			}
			version = "2"
			return ErrStale
		}
		if _, err := tokens.Sample(t.Context(), []int32{1, 2}, traj.Sampling{MaxTokens: 1}, 1); err != nil || strings.Join(seen, " ") != "1 2" {
			t.Errorf("%s: versions %v, %v", name, seen, err)
		}
		tokens.Accept = func(context.Context, string, string) error {
			return traj.Mark(errors.New("another trainer"), traj.ErrFatal)
		}
		before := asked
		if _, err := tokens.Sample(t.Context(), []int32{1, 2}, traj.Sampling{MaxTokens: 1}, 1); !errors.Is(err, traj.ErrFatal) {
			t.Errorf("%s: %v", name, err)
		}
		if asked != before+1 {
			t.Errorf("%s: asked %d times", name, asked-before)
		}
		c.Close()
	}
}

// What servers answer of adapters: vLLM's words are no JSON, SGLang has the paths without /v1, and a server that has not
// what it is to forget has forgotten it.
func TestAdaptersOfServers(t *testing.T) {
	const notFound = `{"detail":"Not Found"}`
	said := func(message string) string {
		return `{"error":{"message":"` + message + `","type":"NotFoundError","code":404}}`
	}
	type answer struct {
		status int
		body   string
	}
	for name, x := range map[string]struct {
		answers map[string]answer // by path; others: as FastAPI has it
		want    error
		asked   string
	}{
		"vLLM": {map[string]answer{"/v1/load_lora_adapter": {200, "Success: LoRA adapter 'a' added successfully."},
			"/v1/unload_lora_adapter": {404, said("The lora adapter 'a' cannot be found.")}}, nil, "/v1/unload_lora_adapter /v1/load_lora_adapter"},
		"vLLM without the folder": {map[string]answer{"/v1/load_lora_adapter": {404, said("Loading lora a failed: No adapter found for /x")},
			"/v1/unload_lora_adapter": {404, said("The lora adapter 'a' cannot be found.")}}, ErrNoFolder,
			"/v1/unload_lora_adapter /v1/load_lora_adapter"},
		"a rank that is too large": {map[string]answer{"/v1/load_lora_adapter": {400, said("rank 32 is greater than max_lora_rank 16")},
			"/v1/unload_lora_adapter": {200, "Success"}}, ErrWeights, "/v1/unload_lora_adapter /v1/load_lora_adapter"},
		"SGLang": {map[string]answer{"/load_lora_adapter": {200, `{"success": true}`}, "/unload_lora_adapter": {400, `{"success": false}`}}, nil,
			"/v1/unload_lora_adapter /unload_lora_adapter /v1/load_lora_adapter /load_lora_adapter"},
		"agentcli serve": {map[string]answer{"/v1/load_lora_adapter": {403, `{"error":{"message":"no","param":"lora_path"}}`},
			"/v1/unload_lora_adapter": {200, `{"success": true}`}}, ErrNoFolder, "/v1/unload_lora_adapter /v1/load_lora_adapter"},
		"without --enable-lora": {nil, errNoAdapters, "/v1/unload_lora_adapter /unload_lora_adapter"},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []string
			admin := adminOf(t, "", func(w http.ResponseWriter, r *http.Request) {
				asked = append(asked, r.URL.Path)
				a, ok := x.answers[r.URL.Path]
				if !ok {
					a = answer{404, notFound}
				}
				w.WriteHeader(a.status)
				_, _ = io.WriteString(w, a.body)
			})
			err := admin.LoadAdapter(t.Context(), "a", "/x")
			if x.want == nil && err != nil || x.want != nil && !errors.Is(err, x.want) {
				t.Errorf("%v, want %v", err, x.want)
			}
			if got := strings.Join(asked, " "); got != x.asked {
				t.Errorf("asked at %s", got)
			}
		})
	}
}
