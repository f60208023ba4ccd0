//go:build libtorch

package serve

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"agentcli/app/console"
	"agentcli/internal/exit"
	"agentcli/llm"
	"agentcli/traj"
)

const tinyAdapter = "../../policy/testdata/lora-qwen3"

// adapters are the models that a server names beside its own, by their parents.
func (x *running) adapters() map[string]string {
	x.Helper()
	resp, err := http.Get(x.url + "/v1/models")
	if err != nil {
		x.Fatal(err)
	}
	defer resp.Body.Close()
	var list struct {
		Data []struct{ ID, Parent string }
	}
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		x.Fatal(err)
	}
	out := map[string]string{}
	for _, m := range list.Data {
		if m.Parent != "" {
			out[m.ID] = m.Parent
		}
	}
	return out
}

// An adapter is a model beside the one that is served: what it draws, over each protocol, and its log-probs of given texts are
// those of the merged model.
func TestAnAdapterAnswersAsTheMergedModelDoes(t *testing.T) {
	x := start(t, func(o *Options) { o.Adapters = []string{"mine=" + tinyAdapter} })
	merged := start(t, func(o *Options) { o.Path = tinyAdapter })
	if got := x.adapters(); len(got) != 1 || got["mine"] != "tiny" {
		t.Errorf("the models with parents are %v", got)
	}
	type reply struct {
		Model   string
		Choices []struct {
			IDs      []int32 `json:"token_ids"`
			Logprobs struct {
				Token []*float64 `json:"token_logprobs"`
			}
			Message struct{ Content string }
		}
	}
	body := func(model string) map[string]any {
		return map[string]any{"model": model, "prompt": []int32{5, 9, 22, 31, 7}, "max_tokens": 20, "seed": 3, "return_token_ids": true,
			"logprobs": 0, "echo": true}
	}
	var got, want, plain reply
	x.ask("/v1/completions", body("mine"), &got)
	merged.ask("/v1/completions", body("tiny"), &want)
	x.ask("/v1/completions", body("tiny"), &plain)
	if got.Model != "mine" || plain.Model != "tiny" {
		t.Errorf("answered by %s and %s", got.Model, plain.Model)
	}
	ids := want.Choices[0].IDs
	if !slices.Equal(got.Choices[0].IDs, ids) || slices.Equal(plain.Choices[0].IDs, ids) {
		t.Fatalf("the adapter draws %v, merged %v, the model itself %v", got.Choices[0].IDs, ids, plain.Choices[0].IDs)
	}
	for i, lp := range want.Choices[0].Logprobs.Token {
		if i > 0 && !(math.Abs(*lp-*got.Choices[0].Logprobs.Token[i]) <= 1e-4) {
			t.Errorf("log-prob %d is %v, merged %v", i, *got.Choices[0].Logprobs.Token[i], *lp)
		}
	}
	for _, way := range []struct {
		path string
		body map[string]any
	}{
		{"/inference/v1/generate", map[string]any{"model": "mine", "token_ids": []int32{5, 9, 22, 31, 7},
			"sampling_params": map[string]any{"max_tokens": 20, "seed": 3}}},
		{"/generate", map[string]any{"lora_path": "mine", "input_ids": []int32{5, 9, 22, 31, 7},
			"sampling_params": map[string]any{"max_new_tokens": 20, "sampling_seed": 3}}},
	} {
		var r struct {
			Output  []int32 `json:"output_ids"`
			Choices []struct {
				IDs []int32 `json:"token_ids"`
			}
		}
		x.ask(way.path, way.body, &r)
		if len(r.Choices) > 0 {
			r.Output = r.Choices[0].IDs
		}
		if !slices.Equal(r.Output, ids) {
			t.Errorf("%s draws %v, want %v", way.path, r.Output, ids)
		}
	}
	var chat, mergedChat reply
	talk := map[string]any{"model": "mine", "seed": 1, "max_tokens": 12, "return_token_ids": true}
	x.ask("/v1/chat/completions", hello(talk), &chat)
	delete(talk, "model")
	merged.ask("/v1/chat/completions", hello(talk), &mergedChat)
	if !slices.Equal(chat.Choices[0].IDs, mergedChat.Choices[0].IDs) || chat.Model != "mine" {
		t.Errorf("a conversation with %s: %v, merged %v", chat.Model, chat.Choices, mergedChat.Choices)
	}
}

// Our own client asks an adapter by its name.
func TestAClientNamesAnAdapterAsItsModel(t *testing.T) {
	x := start(t, func(o *Options) { o.Adapters = []string{"mine=" + tinyAdapter} })
	draw := func(model string) []int32 {
		c, err := llm.New(llm.Config{BaseURL: x.url + "/v1", Model: model, WantIDs: true, FullSeeds: true})
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.Generate(t.Context(), &traj.Request{Messages: []traj.Message{{Role: traj.RoleUser, Content: "Say hello."}},
			Sampling: traj.Sampling{MaxTokens: 12}, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		return r.SampledIDs
	}
	if slices.Equal(draw("mine"), draw("tiny")) {
		t.Error("the adapter draws what the model draws")
	}
}

// Adapters come and go while the server runs, where the user allows it, under names of their own.
func TestAdaptersAreLoadedExchangedAndUnloaded(t *testing.T) {
	dir := t.TempDir()
	folder, other := filepath.Join(dir, "adapter"), filepath.Join(dir, "other")
	for to, from := range map[string]string{folder: tinyAdapter, other: "../../policy/testdata/lora-llama"} {
		if err := os.CopyFS(to, os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
	}
	x := start(t, func(o *Options) { o.Admin = true; o.AllowPath = []string{dir} })
	for i, step := range []struct {
		path string
		body map[string]any
		want int
	}{
		{"/v1/load_lora_adapter", map[string]any{"lora_name": "a", "lora_path": folder}, http.StatusOK},
		{"/v1/load_lora_adapter", map[string]any{"lora_name": "a", "lora_path": folder}, http.StatusBadRequest}, // twice
		{"/v1/load_lora_adapter", map[string]any{"lora_name": "tiny", "lora_path": folder}, http.StatusBadRequest},
		{"/v1/load_lora_adapter", map[string]any{"lora_path": folder}, http.StatusBadRequest},
		{"/v1/load_lora_adapter", map[string]any{"lora_name": "b"}, http.StatusBadRequest},
		{"/v1/load_lora_adapter", map[string]any{"lora_name": "b", "lora_path": tinyAdapter}, http.StatusForbidden},
		{"/v1/load_lora_adapter", map[string]any{"lora_name": "b", "lora_path": filepath.Join(dir, "none")}, http.StatusBadRequest},
		{"/v1/load_lora_adapter", map[string]any{"lora_name": "b", "lora_path": dir}, http.StatusBadRequest},   // no adapter
		{"/v1/load_lora_adapter", map[string]any{"lora_name": "b", "lora_path": other}, http.StatusBadRequest}, // of another base
		{"/load_lora_adapter", map[string]any{"lora_name": "b", "lora_path": folder}, http.StatusOK},
		{"/unload_lora_adapter", map[string]any{"lora_name": "b"}, http.StatusOK},
		{"/v1/unload_lora_adapter", map[string]any{"lora_name": "b"}, http.StatusNotFound},
		{"/v1/unload_lora_adapter", map[string]any{}, http.StatusBadRequest},
		{"/v1/load_lora_adapter?version=x", map[string]any{"lora_name": "a", "lora_path": folder, "load_inplace": true}, http.StatusBadRequest},
		{"/v1/load_lora_adapter", map[string]any{"lora_name": "a", "lora_path": folder, "load_inplace": true}, http.StatusOK},
		{"/v1/completions", map[string]any{"model": "b", "prompt": []int32{5}}, http.StatusNotFound},
	} {
		if status, raw := x.post(step.path, step.body); status != step.want {
			t.Errorf("step %d, %s %v: %d %s", i, step.path, step.body, status, raw)
		}
	}
	if got := x.adapters(); len(got) != 1 || got["a"] == "" {
		t.Errorf("the adapters are %v", got)
	}
	var r struct {
		Version int64 `json:"policy_version"`
	}
	x.ask("/v1/completions", map[string]any{"model": "a", "prompt": []int32{5}, "max_tokens": 2}, &r)
	if r.Version != 1 || x.engine.Version() != 0 {
		t.Errorf("the exchanged adapter has version %d, the model %d", r.Version, x.engine.Version())
	}
	again := map[string]any{"lora_name": "a", "lora_path": folder, "load_inplace": true}
	if status, _ := x.post("/v1/load_lora_adapter?version=7", again); status != http.StatusOK {
		t.Fatal(status)
	}
	if x.ask("/v1/completions", map[string]any{"model": "a", "prompt": []int32{5}, "max_tokens": 2}, &r); r.Version != 7 {
		t.Errorf("its version is %d, given was 7", r.Version)
	}
	closed := start(t, nil)
	if status, _ := closed.post("/v1/load_lora_adapter", again); status != http.StatusForbidden {
		t.Errorf("a server without the paths of administrators answers %d", status)
	}
}

func TestAServerIsNotStartedWithAdaptersThatCannotBe(t *testing.T) {
	for _, given := range []string{"mine", "=x", "mine=", "tiny=" + tinyAdapter} {
		x := start(t, nil)
		h := newServer(x.engine, x.source, Options{Name: "tiny", Adapters: []string{given}}, console.Streams{})
		if err, usage := loadAdapters(h), (exit.UsageError{}); !errors.As(err, &usage) {
			t.Errorf("--adapter %s: %v", given, err)
		}
	}
}
