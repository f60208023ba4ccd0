package rolloutserver

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"agentcli/llm/llmtest"
)

func TestEndpointsOfMsSwift(t *testing.T) {
	x := serve(t, filepath.Join(t.TempDir(), "run"), func(*llmtest.Request) llmtest.Reply { return seven() }, nil)
	for path, want := range map[string]string{
		"/health/": `{"status":"ok"}`, "/get_world_size/": `{"world_size":1}`,
	} {
		for _, p := range []string{path, strings.TrimSuffix(path, "/")} {
			resp, err := http.Get(x.url + p)
			if err != nil {
				t.Fatal(err)
			}
			b, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if string(b) != want {
				t.Errorf("%s: %s", p, b)
			}
		}
	}
	resp, err := http.Get(x.url + "/get_model_state_keys/")
	if err != nil || resp.StatusCode != http.StatusNotImplemented {
		t.Errorf("/get_model_state_keys/: %v %v", resp, err)
	}
	for _, path := range []string{"/reset_prefix_cache/", "/reset_encoder_cache/", "/reset_mm_cache/"} {
		if status, answer := x.post(t.Context(), path, ""); status != http.StatusOK || !strings.Contains(answer, "message") {
			t.Errorf("%s: %d %s", path, status, answer)
		}
	}
	status, answer := x.post(t.Context(), "/get_engine_type/", "")
	const want = `{"enable_lora":false,"enable_multi_turn":true,"engine_type":"AsyncLLMEngine","use_gym_env":false}`
	if status != 200 || answer != want {
		t.Errorf("/get_engine_type/: %d %s", status, answer)
	}
	status, answer = x.post(t.Context(), "/infer/", `{"infer_requests":[
		{"messages":[{"role":"user","content":"x"}],"data_dict":{"level":3,"solution":"7"}},
		{"messages":[{"role":"user","content":"y"}]}],"request_config":null}`)
	var out []struct {
		Messages         []map[string]any
		ResponseTokenIDs [][]int32 `json:"response_token_ids"`
		Mask             [][]int   `json:"response_loss_mask"`
		Logprobs         [][]float64
		Infos            map[string]any `json:"rollout_infos"`
	}
	if err := json.Unmarshal([]byte(answer), &out); status != 200 || err != nil || len(out) != 2 {
		t.Fatalf("%d %s %v", status, answer, err)
	}
	if out[0].Messages[0]["content"] != "x" || out[1].Messages[0]["content"] != "y" || fmt.Sprint(out[0].ResponseTokenIDs) != "[[4 5]]" ||
		fmt.Sprint(out[0].Mask) != "[[1 1]]" || out[0].Infos["num_turns"] != 1. || out[0].Infos["total_reward"] != 0. {
		t.Errorf("%s", answer)
	}
	if status, answer := x.post(t.Context(), "/infer/", `{"infer_requests":[]}`); status != 200 || answer != "[]" {
		t.Errorf("no requests: %d %s", status, answer)
	}
}

// TestARequestsToolsReachTheModel: beside those of the run.
func TestARequestsToolsReachTheModel(t *testing.T) {
	var offered atomic.Bool
	x := serve(t, filepath.Join(t.TempDir(), "run"), func(r *llmtest.Request) llmtest.Reply {
		if strings.Contains(string(r.Fields["tools"]), "find_it") { // other requests find out about the server
			offered.Store(true)
		}
		return seven()
	}, nil)
	status, text := x.post(t.Context(), "/infer/", map[string]any{"infer_requests": []any{map[string]any{"uuid": "a",
		"messages": []any{map[string]any{"role": "user", "content": "q"}},
		"tools": []any{map[string]any{"type": "function", "function": map[string]any{"name": "find_it",
			"parameters": map[string]any{"type": "object", "properties": map[string]any{}}}}}}}})
	if status != http.StatusOK || !offered.Load() {
		t.Errorf("%d %s: the model was not offered the request's tool", status, text)
	}
}
