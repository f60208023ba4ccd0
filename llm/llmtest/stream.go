package llmtest

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

func chatLogprobs(list []float64) any {
	content := []any{}
	for _, p := range list {
		content = append(content, map[string]any{"token": "t", "logprob": p, "bytes": []int{116}, "top_logprobs": []any{}})
	}
	return map[string]any{"content": content}
}

func (r *Reply) finish() string {
	switch {
	case r.Finish != "":
		return r.Finish
	case len(r.Calls) > 0:
		return "tool_calls"
	}
	return "stop"
}

func (r *Reply) usage(req *Request) map[string]int {
	prompt, n := r.PromptTokens, r.OutputTokens
	if req.Path != Chat {
		prompt, n = len(req.Prompt), len(r.IDs)
	}
	return map[string]int{"prompt_tokens": prompt, "completion_tokens": n, "total_tokens": prompt + n}
}

// part is the share of a list that belongs to piece i of n: the pieces together
// are the whole, whatever the two lengths.
func part[T any](list []T, i, n int) []T {
	return list[len(list)*i/n : len(list)*(i+1)/n]
}

func (r *Reply) pieces() []string {
	if r.Pieces != nil {
		return r.Pieces
	}
	var out []string
	for _, c := range r.Content {
		out = append(out, string(c))
	}
	return out
}

// stream writes the reply as server-sent events.
func (s *Server) stream(w http.ResponseWriter, req *Request, r Reply) {
	var events []any
	switch req.Path {
	case Chat:
		events = r.chatEvents(req)
	case Completions:
		events = r.idEvents(req)
	default:
		for i := range r.IDs {
			events = append(events, r.generated(i+1, s.o.Incremental, i == len(r.IDs)-1, req))
		}
	}
	var body bytes.Buffer
	body.WriteString(": ping\n\n")
	if r.NoDone {
		events = events[:len(events)-2]
	}
	for _, e := range events {
		fmt.Fprintf(&body, "data: %s\n\n", marshal(e))
	}
	if !r.NoDone {
		body.WriteString("data: [DONE]\n\n")
	}
	all := body.Bytes()
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	cut := r.Cut > 0 && r.Cut < len(all)
	if cut {
		all = all[:r.Cut]
	}
	borders := slices.Clone(r.Borders)
	slices.Sort(borders)
	at := 0
	flusher, _ := w.(http.Flusher)
	for _, b := range append(borders, len(all)) {
		if b = min(b, len(all)); b <= at {
			continue
		}
		_, _ = w.Write(all[at:b])
		at = b
		if flusher != nil {
			flusher.Flush()
		}
	}
	if cut {
		panic(http.ErrAbortHandler)
	}
}

func (r *Reply) chatEvents(req *Request) []any {
	event := func(delta map[string]any) (map[string]any, map[string]any) {
		choice := map[string]any{"index": 0, "delta": delta, "finish_reason": nil}
		return map[string]any{"id": fmt.Sprint("chatcmpl-", req.N), "object": "chat.completion.chunk",
			"model": req.Model, "choices": []any{choice}}, choice
	}
	withIDs := req.Has("return_token_ids") && r.IDs != nil
	first, _ := event(map[string]any{"role": "assistant", "content": ""})
	if withIDs {
		first["prompt_token_ids"] = r.PromptIDs
	}
	out := []any{first}
	if r.Reasoning != "" {
		e, _ := event(map[string]any{"reasoning": r.Reasoning})
		out = append(out, e)
	}
	pieces := r.pieces()
	if len(pieces) == 0 {
		pieces = []string{""}
	}
	for i, p := range pieces {
		e, choice := event(map[string]any{"content": p})
		if withIDs {
			choice["token_ids"] = part(r.IDs, i, len(pieces))
		}
		if req.Has("logprobs") && r.Logprobs != nil {
			choice["logprobs"] = chatLogprobs(part(r.Logprobs, i, len(pieces)))
		}
		out = append(out, e)
	}
	for i, c := range r.Calls { // the name first, the arguments in two pieces
		args := c.Function.Arguments
		for k, f := range []map[string]any{{"name": c.Function.Name, "arguments": ""}, {"arguments": args[:len(args)/2]},
			{"arguments": args[len(args)/2:]}} {
			call := map[string]any{"index": i, "function": f}
			if k == 0 {
				call["id"], call["type"] = c.ID, c.Type
			}
			e, _ := event(map[string]any{"tool_calls": []any{call}})
			out = append(out, e)
		}
	}
	last, choice := event(map[string]any{})
	choice["finish_reason"], choice["stop_reason"] = r.finish(), r.Stop
	out = append(out, last)
	return append(out, r.usageEvent(req)...)
}

func (r *Reply) usageEvent(req *Request) []any {
	if !strings.Contains(string(req.Fields["stream_options"]), `"include_usage":true`) {
		return nil
	}
	return []any{map[string]any{"id": "usage", "choices": []any{}, "usage": r.usage(req)}}
}

func idLogprobs(list []float64) any {
	tokens := make([]string, len(list))
	return map[string]any{"token_logprobs": list, "tokens": tokens, "text_offset": []int{}}
}

// inIDs is a whole reply of Completions.
func (r *Reply) inIDs(req *Request) any {
	choice := map[string]any{"index": 0, "text": r.Content, "finish_reason": r.finish(), "stop_reason": r.Stop}
	r.addIDs(choice, req, 0, 1)
	r.addExperts(choice, req)
	if req.Has("prompt_logprobs") && r.Scores != nil {
		choice["prompt_logprobs"] = r.scored(req.Prompt)
	}
	return map[string]any{"id": fmt.Sprint("cmpl-", req.N), "object": "text_completion", "model": req.Model,
		"choices": []any{choice}, "usage": r.usage(req)}
}

// scored is vLLM's prompt_logprobs.
func (r *Reply) scored(prompt []int32) []any {
	out := make([]any, len(r.Scores))
	for i, lp := range r.Scores {
		if i > 0 && i < len(prompt) {
			text := fmt.Sprint("t", prompt[i])
			if r.Texts != nil {
				text = r.Texts[i]
			}
			out[i] = map[string]any{fmt.Sprint(prompt[i]): map[string]any{"logprob": lp, "rank": 1, "decoded_token": text}}
		}
	}
	return out
}

func (r *Reply) addIDs(choice map[string]any, req *Request, i, n int) {
	if req.Has("return_token_ids") && r.IDs != nil {
		choice["token_ids"] = part(r.IDs, i, n)
		if i == 0 {
			choice["prompt_token_ids"] = req.Prompt
			if r.PromptIDs != nil {
				choice["prompt_token_ids"] = r.PromptIDs
			}
		}
	}
	if req.Has("logprobs") && r.Logprobs != nil {
		choice["logprobs"] = idLogprobs(part(r.Logprobs, i, n))
	}
}

func (r *Reply) idEvents(req *Request) (out []any) {
	pieces := r.pieces()
	if r.Pieces == nil {
		pieces = make([]string, max(len(r.IDs), 1))
		pieces[0] = r.Content
	}
	for i, p := range pieces {
		choice := map[string]any{"index": 0, "text": p, "finish_reason": nil}
		r.addIDs(choice, req, i, len(pieces))
		if i == len(pieces)-1 {
			choice["finish_reason"], choice["stop_reason"] = r.finish(), r.Stop
		}
		out = append(out, map[string]any{"object": "text_completion", "choices": []any{choice}})
	}
	return append(out, r.usageEvent(req)...)
}

// generated is SGLang's reply after n tokens.
func (r *Reply) generated(n int, incremental, last bool, req *Request) any {
	from := 0
	if incremental {
		from = n - 1
	}
	rows := []any{}
	for i := from; i < n; i++ {
		var lp any
		if i < len(r.Logprobs) {
			lp = r.Logprobs[i]
		}
		rows = append(rows, []any{lp, r.IDs[i], nil})
	}
	meta := map[string]any{"id": fmt.Sprint(req.N), "prompt_tokens": len(req.Prompt), "completion_tokens": n,
		"output_token_logprobs": rows, "finish_reason": nil}
	if r.Scores != nil && string(req.Fields["logprob_start_len"]) == "0" {
		input := make([]any, len(r.Scores))
		for i, lp := range r.Scores {
			input[i] = []any{lp, req.Prompt[i], nil}
			if i == 0 {
				input[i] = []any{nil, req.Prompt[i], nil}
			}
		}
		meta["input_token_logprobs"] = input
	}
	if last {
		f := map[string]any{"type": r.finish()}
		if r.finish() == "stop" {
			f["matched"] = r.Stop
		}
		meta["finish_reason"] = f
		r.addExperts(meta, req)
	}
	return map[string]any{"text": r.Content, "output_ids": r.IDs[from:n], "meta_info": meta}
}
