//go:build libtorch

package serve

import (
	"encoding/base64"
	"net/http"
	"slices"
	"testing"

	"agentcli/app/models/modelstest"
	"agentcli/internal/npy"
	"agentcli/llm"
	"agentcli/policy"
	"agentcli/traj"
)

// What a reply says of its experts is what the engine chose, over each protocol, in one piece or
// in many.
func TestRepliesSayWhichExpertsWereChosen(t *testing.T) {
	x := start(t, func(o *Options) { o.Path, o.Model.RouterReplay = modelstest.Experts(t, tiny), true })
	prompt := []int32{5, 9, 22, 30, 31}
	want, err := x.engine.Ask(t.Context(), &policy.Request{Prompt: policy.Sequence{IDs: prompt}, Seed: 3,
		Sampling: traj.Sampling{MaxTokens: 20}})
	if err != nil || want.Experts.Tokens() != len(prompt)+len(want.IDs)-1 {
		t.Fatalf("experts of %d tokens, %v", want.Experts.Tokens(), err)
	}
	for _, way := range []struct{ stream, sglang bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
		c, err := llm.New(llm.Config{BaseURL: x.url + "/v1", Model: "tiny", WantIDs: true, WantExperts: true, Stream: way.stream,
			FullSeeds: true})
		if err != nil {
			t.Fatal(err)
		}
		llm.SetFacts(c, llm.ModelFacts{ActiveExperts: 2})
		got, err := (&llm.Tokens{Client: c, SGLang: way.sglang}).Sample(t.Context(), prompt, traj.Sampling{MaxTokens: 20}, 3)
		if err != nil {
			t.Fatalf("%+v: %v", way, err)
		}
		if e := got.Experts; !slices.Equal(got.IDs, want.IDs) || e.Layers != 2 || e.Active != 2 || !slices.Equal(e.IDs, want.Experts.IDs) {
			t.Errorf("%+v: ids %v, want %v; experts %v, want %v", way, got.IDs, want.IDs, e, want.Experts)
		}
		resp, err := c.Generate(t.Context(), &traj.Request{Messages: []traj.Message{{Role: traj.RoleUser, Content: "hi"}}, Seed: 3,
			Sampling: traj.Sampling{MaxTokens: 8}})
		if err != nil || resp.Experts.Tokens() != len(resp.PromptIDs)+len(resp.SampledIDs)-1 {
			t.Errorf("%+v: a chat has experts of %d tokens, %v", way, resp.Experts.Tokens(), err)
		}
	}
	type answer struct {
		Choices []struct {
			IDs     []int32 `json:"token_ids"`
			Experts string  `json:"routed_experts"`
		} `json:"choices"`
	}
	var r, without answer
	x.ask("/inference/v1/generate", map[string]any{"token_ids": prompt,
		"sampling_params": map[string]any{"max_tokens": 20, "seed": 3, "n": 2}}, &r)
	for k, c := range r.Choices {
		file, err := base64.StdEncoding.DecodeString(c.Experts)
		if err != nil {
			t.Fatal(err)
		}
		if shape, _, err := npy.Decode(file); err != nil || !slices.Equal(shape, []int{len(prompt) + len(c.IDs) - 1, 2, 2}) {
			t.Errorf("choice %d has experts of shape %v, %v", k, shape, err)
		}
	}
	x.ask("/v1/completions", map[string]any{"prompt": prompt, "max_tokens": 2, "return_routed_experts": false}, &without)
	if without.Choices[0].Experts != "" {
		t.Error("experts are sent that the request does not want")
	}
}

func TestExpertsThatAreNotKeptAreRefused(t *testing.T) {
	x := start(t, nil)
	for path, body := range map[string]map[string]any{
		"/v1/completions":        {"prompt": []int32{5}, "return_routed_experts": true},
		"/v1/chat/completions":   hello(map[string]any{"return_routed_experts": true}),
		"/inference/v1/generate": {"token_ids": []int32{5}, "return_routed_experts": true, "sampling_params": map[string]any{}},
		"/generate":              {"input_ids": []int32{5}, "return_routed_experts": true, "sampling_params": map[string]any{}},
	} {
		if status, raw := x.post(path, body); status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", path, status, raw)
		}
	}
}
