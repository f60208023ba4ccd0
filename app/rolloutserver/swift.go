package rolloutserver

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"agentcli/datasets"
	"agentcli/internal/safego"
	"agentcli/internal/wire"
	"agentcli/media/album"
	"agentcli/traj"
)

// inferRequest is a RolloutInferRequest of ms-swift (swift/infer_engine/protocol.py).
type inferRequest struct {
	Messages []map[string]any  `json:"messages"`
	Images   []any             `json:"images"`
	Audios   []json.RawMessage `json:"audios"`
	Videos   []json.RawMessage `json:"videos"`
	Tools    any               `json:"tools"`
	Data     map[string]any    `json:"data_dict"`
	UUID     string            `json:"uuid"`
}

// inferKeys are those that are read, or that have nothing to say here.
var inferKeys = []string{"messages", "images", "audios", "videos", "tools", "data_dict", "uuid", "objects", "chat_template_kwargs",
	"add_eos"}

// samplingKeys are those of a RequestConfig that a trajectory is sampled with.
var samplingKeys = []string{"max_tokens", "temperature", "top_k", "top_p", "min_p", "stop"}

// neutralConfig are its keys that change nothing at these values; nil: at any. At another
// value they are reported once. A trajectory's seed is from its id.
var neutralConfig = map[string][]string{"n": nil, "seed": nil, "logprobs": nil, "return_details": nil, "top_logprobs": {"0", "1"},
	"prompt_logprobs": {}, "repetition_penalty": {"1", "1.0"}, "num_beams": {"1"}, "stream": {"false"}, "best_of": {"1"},
	"presence_penalty": {"0", "0.0"}, "frequency_penalty": {"0", "0.0"}, "length_penalty": {"1", "1.0"}, "structured_outputs_regex": {}}

// infer answers POST /infer/ of ms-swift's trainers: a trajectory for each request, in
// their order.
func (s *server) infer(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Requests []json.RawMessage          `json:"infer_requests"`
		Config   map[string]json.RawMessage `json:"request_config"`
		Adapter  json.RawMessage            `json:"adapter_request"`
	}
	if !s.read(w, r, &body, "infer_requests", "request_config", "use_tqdm", "metrics", "adapter_request") {
		return
	}
	if len(body.Adapter) > 0 && string(body.Adapter) != "null" {
		fail(w, http.StatusUnprocessableEntity, "adapter_request: this server has one model, and no adapters")
		return
	}
	sampling, err := s.requestConfig(body.Config)
	if err != nil {
		fail(w, http.StatusUnprocessableEntity, err.Error())
		return
	}
	if body.Requests == nil {
		fail(w, http.StatusUnprocessableEntity, `the request has no infer_requests; want {"infer_requests": [{"messages": […]}, …]}`)
		return
	}
	jobs, from := make([]*job, len(body.Requests)), s.images(r.Context())
	for i, raw := range body.Requests {
		task, err := s.inferTask(r.Context(), raw, from)
		if err != nil {
			fail(w, http.StatusUnprocessableEntity, fmt.Sprintf("infer_requests[%d]: %v", i, err))
			return
		}
		jobs[i] = &job{task: task, group: groupOf(&task), sampling: sampling}
	}
	out, failed := make([]any, len(jobs)), make([]error, len(jobs))
	var all sync.WaitGroup
	for i, j := range jobs {
		all.Go(func() {
			defer safego.Into(&failed[i])
			t, err := s.pool.play(r.Context(), j)
			if err == nil {
				out[i], err = rolloutOutput(t)
			}
			failed[i] = err
		})
	}
	all.Wait()
	for i, err := range failed {
		if err != nil {
			fail(w, statusOf(err), fmt.Sprintf("infer_requests[%d]: %v", i, err))
			return
		}
	}
	answer(w, out)
}

// requestConfig reads a RequestConfig; what means nothing here is reported once.
func (s *server) requestConfig(c map[string]json.RawMessage) (func(traj.Sampling) traj.Sampling, error) {
	for _, key := range slices.Sorted(maps.Keys(c)) {
		neutral, known := neutralConfig[key]
		if v := string(c[key]); !slices.Contains(samplingKeys, key) && v != "null" && (!known || neutral != nil && !slices.Contains(neutral, v)) {
			s.meansNothing("request_config." + key)
		}
	}
	if n, ok := c["n"]; ok && string(n) != "1" && string(n) != "null" {
		return nil, fmt.Errorf("request_config: n is %s; each request is one trajectory: send it as often as you want attempts", n)
	}
	own := map[string]json.RawMessage{}
	for _, key := range samplingKeys {
		if v, ok := c[key]; ok && string(v) != "null" && string(v) != "[]" {
			own[key] = v
		}
	}
	raw, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	return wire.Sampling(raw)
}

// inferTask makes a task of a request: its data_dict are the columns.
func (s *server) inferTask(ctx context.Context, raw json.RawMessage, from datasets.ImageSources) (task traj.Task, err error) {
	var q inferRequest
	var keys map[string]json.RawMessage
	if json.Unmarshal(raw, &keys) != nil || keys == nil {
		return task, fmt.Errorf("it is no object")
	}
	if err := unmarshal(raw, &q); err != nil {
		return task, fmt.Errorf("it is no RolloutInferRequest: %w", err)
	}
	s.unknown(keys, "infer_requests", inferKeys)
	if len(q.Audios)+len(q.Videos) > 0 {
		return task, fmt.Errorf("it has audio or video; this server plays text and images")
	}
	if n := len(q.Messages); n == 0 || q.Messages[n-1]["role"] == traj.RoleAssistant {
		return task, fmt.Errorf("it has no messages, or the last one is a reply; want the prompt alone")
	}
	row := map[string]any{}
	for k, v := range q.Data {
		row[k] = v
	}
	if q.Tools != nil {
		row["tools"] = q.Tools
	}
	list := make([]any, len(q.Messages))
	for i := range q.Messages {
		list[i] = q.Messages[i]
	}
	row["messages"] = list
	for _, own := range []string{"id", "image", "images"} { // the request has fields for them
		delete(row, own)
	}
	if len(q.Images) > 0 {
		row["images"] = q.Images
	}
	if q.UUID == "" {
		q.UUID = newID()
	}
	return s.task(ctx, row, q.UUID, from)
}

// groupOf names the requests that ask the same: a trainer sends each prompt several times.
func groupOf(t *traj.Task) string {
	b, err := json.Marshal([]any{t.Messages, t.Answers})
	if err != nil {
		return t.ID
	}
	sum := sha256.Sum256(b)
	return datasets.RequestsName + "/" + hex.EncodeToString(sum[:8])
}

// rolloutOutput is a RolloutOutput of ms-swift.
func rolloutOutput(p *played) (any, error) {
	t := p.Trajectory
	if t.Termination.Infrastructure() {
		return nil, fmt.Errorf("the trajectory failed (%s): %s", t.Termination, t.Error)
	}
	var replies []reply
	if len(t.Sequences) > 0 { // else the server gave no ids, and the trainer makes its own
		var err error
		if replies, err = p.replies(); err != nil {
			return nil, err
		}
	}
	ids, masks, logprobs := [][]int32{}, [][]int{}, [][]float64{}
	known := true
	for _, r := range replies {
		ids, masks = append(ids, r.ids), append(masks, r.mask)
		for _, lp := range r.logprobs {
			known = known && traj.Finite(lp)
		}
		if r.logprobs == nil {
			r.logprobs = []float64{}
		}
		logprobs = append(logprobs, r.logprobs)
	}
	if !known { // of some tokens the server gave none: a list with holes would be of another length
		logprobs = [][]float64{}
	}
	var last []int32
	if len(ids) > 0 {
		last = ids[len(ids)-1]
	}
	finish := traj.FinishStop
	if n := len(t.Steps); n > 0 && t.Steps[n-1].FinishReason == traj.FinishLength {
		finish = traj.FinishLength
	}
	final := map[string]any{"role": traj.RoleAssistant, "content": "", "tool_calls": nil}
	messages := t.Messages
	for len(messages) > 0 && messages[len(messages)-1].Role != traj.RoleAssistant {
		messages = messages[:len(messages)-1] // the model has not answered to them
	}
	if n := len(messages); n > 0 {
		final["content"] = messages[n-1].WithoutImages(imageWord)
	}
	images, err := swiftImages(messages)
	if err != nil {
		return nil, err
	}
	infos := map[string]any{"num_turns": len(t.Steps), "trajectory": t.ID, "termination": t.Termination, "images": images}
	if t.Infos != nil {
		infos["turn_infos"] = t.Infos
	}
	if t.Reward != nil {
		infos["reward"] = *t.Reward
	}
	total, given := 0.0, []float64{}
	for _, step := range t.Steps {
		if step.Reward != nil {
			total, given = total+*step.Reward, append(given, *step.Reward)
		}
	}
	infos["total_reward"], infos["step_rewards"] = total, given
	return map[string]any{
		"response": map[string]any{"model": t.Policy, "id": "chatcmpl-" + t.ID, "object": "chat.completion", "created": time.Now().Unix(),
			"choices": []any{map[string]any{"index": 0, "message": final, "finish_reason": finish, "logprobs": nil, "token_ids": last}},
			"usage": map[string]int{"prompt_tokens": t.PromptTokens, "completion_tokens": t.CompletionTokens,
				"total_tokens": t.PromptTokens + t.CompletionTokens}},
		"messages": wireMessages(messages), "response_token_ids": ids, "response_loss_mask": masks, "rollout_logprobs": logprobs,
		"rollout_infos": infos, "prompt_logprobs": nil,
	}, nil
}

// imageWord stands in a message's text where an image is.
const imageWord = "<image>"

// errWords is in the error of a trajectory whose images cannot be told from words.
var errWords = errors.New("a text has the word " + imageWord + " beside images, and ms-swift's form cannot tell it from one")

// swiftImages are the images of messages in their order, as base64 of their files. A trainer
// takes them in place of the row's.
func swiftImages(messages []traj.Message) ([]string, error) {
	files := []string{}
	if !hasImages(messages) {
		return files, nil
	}
	for i := range messages {
		m := &messages[i]
		if strings.Contains(m.Content, imageWord) {
			return nil, fmt.Errorf("message %d: %w", i, errWords)
		}
		for k := range m.Images {
			b, err := album.File(&m.Images[k])
			if err != nil {
				return nil, fmt.Errorf("message %d: %w", i, err)
			}
			files = append(files, base64.StdEncoding.EncodeToString(b))
		}
	}
	return files, nil
}

// wireMessages are messages in OpenAI's shape.
func wireMessages(ms []traj.Message) []any {
	out := make([]any, len(ms))
	for i, m := range ms {
		w := map[string]any{"role": m.Role, "content": m.WithoutImages(imageWord)}
		if m.Reasoning != "" {
			w["reasoning_content"] = m.Reasoning
		}
		if m.Name != "" {
			w["name"] = m.Name
		}
		if m.ToolCallID != "" {
			w["tool_call_id"] = m.ToolCallID
		}
		var calls []any
		for _, c := range m.ToolCalls {
			calls = append(calls, map[string]any{"id": c.ID, "type": "function",
				"function": map[string]any{"name": c.Name, "arguments": c.Arguments}})
		}
		if calls != nil {
			w["tool_calls"] = calls
		}
		out[i] = w
	}
	return out
}
