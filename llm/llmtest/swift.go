package llmtest

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// swift answers as ms-swift 4.6's `swift rollout` without a scheduler does
// (swift/pipelines/infer/rollout.py): a list of RolloutOutput, in the order of the requests.
// The script is asked once for each of them, as a request with the config as its fields.
func (s *Server) swift(w http.ResponseWriter, hr *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch hr.URL.Path {
	case Infer:
	case "/get_engine_type/":
		_, _ = w.Write(marshal(map[string]any{"engine_type": "AsyncLLMEngine", "enable_multi_turn": false, "use_gym_env": false,
			"enable_lora": true}))
		return
	default:
		http.Error(w, `{"detail":"Not Found"}`, http.StatusNotFound)
		return
	}
	var body struct {
		Requests []struct {
			Messages []Message `json:"messages"`
		} `json:"infer_requests"`
		Config map[string]json.RawMessage `json:"request_config"`
	}
	d := json.NewDecoder(hr.Body)
	d.DisallowUnknownFields()
	if hr.Method != http.MethodPost || d.Decode(&struct {
		Requests any   `json:"infer_requests"`
		Config   any   `json:"request_config"`
		Tqdm     *bool `json:"use_tqdm"`
	}{&body.Requests, &body.Config, nil}) != nil || len(body.Requests) == 0 {
		http.Error(w, `{"detail":"no body of /infer/"}`, http.StatusUnprocessableEntity)
		return
	}
	out := make([]any, len(body.Requests))
	for i, q := range body.Requests {
		req := Request{Header: hr.Header, Path: Infer, Messages: q.Messages, Fields: body.Config}
		s.mu.Lock()
		req.N = len(s.requests)
		s.requests = append(s.requests, req)
		s.mu.Unlock()
		r := s.script(&req)
		if r.Status != 0 && r.Status != http.StatusOK || r.Raw != nil {
			s.write(w, hr, &req, r)
			return
		}
		out[i] = map[string]any{"response": r.inferred(&req), "messages": nil, "response_token_ids": []any{}, "response_loss_mask": []any{},
			"rollout_infos": map[string]any{}, "rollout_logprobs": []any{}, "prompt_logprobs": nil}
	}
	_, _ = w.Write(marshal(out))
}

// inferred is a ChatCompletionResponse of ms-swift.
func (r *Reply) inferred(req *Request) any {
	choice := map[string]any{"index": 0, "message": map[string]any{"role": "assistant", "content": r.Content, "tool_calls": nil,
		"reasoning_content": nil}, "finish_reason": r.finish(), "logprobs": nil, "token_ids": nil, "routed_experts": nil}
	out := map[string]any{"model": "m", "choices": []any{choice}, "usage": r.usage(&Request{Path: Chat}), "id": fmt.Sprint(req.N),
		"object": "chat.completion", "created": 1, "prompt_token_ids": nil, "images_size": []any{}}
	if string(req.Fields["return_details"]) == "true" {
		choice["token_ids"], out["prompt_token_ids"] = r.IDs, r.PromptIDs
	}
	if string(req.Fields["logprobs"]) == "true" && r.Logprobs != nil {
		choice["logprobs"] = chatLogprobs(r.Logprobs)
	}
	return out
}
