package serve

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"

	"agentcli/media"
	"agentcli/media/album"
	"agentcli/policy"
	"agentcli/traj"
)

// idsAPI answers requests of ids: vLLM's and SGLang's.
type idsAPI struct{ *server }

// tokenize answers POST /tokenize, as vLLM does: of a text or of a conversation.
func (s *idsAPI) tokenize(w http.ResponseWriter, r *http.Request) error {
	var c struct {
		chatRequest
		Prompt     *string `json:"prompt"`
		AddSpecial *bool   `json:"add_special_tokens"`
		Texts      bool    `json:"return_token_strs"`
	}
	if err := read(w, r, &c); err != nil {
		return err
	}
	var ids []int32
	switch {
	case c.Prompt != nil:
		ids = s.facts.Tokenizer.Encode(*c.Prompt, c.AddSpecial == nil || *c.AddSpecial)
	case s.noChat != nil:
		return bad("messages", "%v", s.noChat)
	default:
		req, err := c.conversation()
		if err != nil {
			return err
		}
		e := s.exact
		e.EnableThinking = c.Kwargs.Thinking
		if ids, _, err = e.Prompt(req); err != nil {
			return err
		}
	}
	if ids == nil {
		ids = []int32{}
	}
	out := map[string]any{"count": len(ids), "max_model_len": s.facts.MaxContext, "tokens": ids}
	if c.Texts {
		texts := make([]string, len(ids))
		for i, id := range ids {
			texts[i] = s.piece(id, false)
		}
		out["token_strs"] = texts
	}
	return answer(w, out)
}

// tokenizerInfo answers vLLM's GET /tokenizer_info.
func (s *idsAPI) tokenizerInfo(w http.ResponseWriter, _ *http.Request) error {
	t := s.facts.Tokenizer
	name := func(id int32) any {
		if id < 0 {
			return nil
		}
		return s.piece(id, false)
	}
	return answer(w, map[string]any{"tokenizer_class": "agentcli", "bos_token": name(t.BOS()), "eos_token": name(t.EOS()),
		"pad_token":     name(t.Pad()),
		"chat_template": t.ChatTemplate(), "model_max_length": s.facts.MaxContext})
}

// detokenize answers POST /detokenize.
func (s *idsAPI) detokenize(w http.ResponseWriter, r *http.Request) error {
	var c struct {
		Tokens []int32 `json:"tokens"`
	}
	if err := read(w, r, &c); err != nil {
		return err
	}
	for i, id := range c.Tokens {
		if id < 0 || int(id) >= s.facts.VocabSize {
			return bad("tokens", "token %d is %d; the vocabulary has %d", i, id, s.facts.VocabSize)
		}
	}
	return answer(w, map[string]string{"prompt": s.facts.Tokenizer.Decode(c.Tokens, false)})
}

// inference answers vLLM's POST /inference/v1/generate: ids and images in, ids out.
func (s *idsAPI) inference(w http.ResponseWriter, r *http.Request) error {
	var c struct {
		Model     string  `json:"model"`
		IDs       []int32 `json:"token_ids"`
		RequestID string  `json:"request_id"`
		ReturnIDs bool    `json:"return_token_ids"`
		Routed    *bool   `json:"return_routed_experts"`
		Sampling  struct {
			drawing
			Logprobs *int `json:"logprobs"`
		} `json:"sampling_params"`
		Parts []struct {
			Type string `json:"type"`
			URL  struct {
				URL string `json:"url"`
			} `json:"image_url"`
		} `json:"content_parts"`
	}
	if err := read(w, r, &c); err != nil {
		return err
	}
	d := &c.Sampling.drawing
	if d.MaxTokens != nil && *d.MaxTokens == 0 {
		return bad("max_tokens", "max_tokens is 0; there would be no reply")
	}
	if err := cmp.Or(named(s.server, c.Model, d), checkDrawing(s.server, d), checkExperts(s.server, c.Routed)); err != nil {
		return err
	}
	form, err := d.grammarOf()
	if err != nil {
		return err
	}
	top := 0
	if c.Sampling.Logprobs != nil {
		top = min(max(*c.Sampling.Logprobs, 0), maxTop)
	}
	ids, images, spans, err := s.expanded(c.IDs, func(yield func(uri string) error) error {
		for _, p := range c.Parts {
			if err := yield(p.URL.URL); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	placed, release, err := s.engine.Place(ids, images, spans)
	if err != nil {
		return err
	}
	defer release()
	ctx, free := s.entitled(r.Context(), c.RequestID)
	defer free()
	choices, replies := make([]map[string]any, d.choices()), make([]*policy.Reply, d.choices())
	err = inParallel(ctx, d.choices(), func(ctx context.Context, k int) (err error) {
		r := d.request(placed, k, top)
		r.Grammar = s.matcher(form)
		if replies[k], err = s.ask(ctx, r, nil); err != nil {
			return err
		}
		choices[k] = map[string]any{"index": k, "finish_reason": replies[k].FinishReason, "token_ids": replies[k].IDs, "logprobs": nil,
			"stop_reason": stopReason(&replies[k].Output, d)}
		addExperts(choices[k], c.Routed, replies[k].Experts)
		if c.Sampling.Logprobs != nil {
			choices[k]["logprobs"] = s.inferenceLogprobs(replies[k].Tokens)
		}
		return nil
	})
	if err != nil {
		return err
	}
	out := map[string]any{"request_id": "gen-" + random(), "choices": choices, "output_mode": "tokens", "prompt_logprobs": nil}
	if replies[0].Prompt != nil {
		out["prompt_logprobs"] = s.promptLogprobs(replies[0].Prompt)
	}
	if c.ReturnIDs {
		places := []any{}
		for _, span := range spans {
			places = append(places, map[string]int{"offset": span.Start, "length": span.Tokens})
		}
		out["prompt_token_ids"], out["mm_placeholders"] = ids, map[string]any{"image": places}
	}
	versions(out, replies[0].Tokens, versionOf(s.server, d))
	if n := seen(w); n != nil {
		n.prompt = len(ids)
		for _, reply := range replies {
			n.drawn += len(reply.IDs)
		}
	}
	return answer(w, out)
}

func (s *idsAPI) inferenceLogprobs(tokens []policy.Token) any {
	content := make([]any, len(tokens))
	for i, t := range tokens {
		best := make([]any, len(t.Top))
		for k, x := range t.Top {
			best[k] = map[string]any{"token": s.piece(x.ID, true), "token_id": x.ID, "logprob": logprob(x.Logprob)}
		}
		content[i] = map[string]any{"token": s.piece(t.ID, true), "token_id": t.ID, "logprob": logprob(t.Logprob), "top_logprobs": best}
	}
	return map[string]any{"content": content}
}

// expanded puts images in their places among ids: each at the next id that stands for one, which
// becomes as many as the image has tokens.
func (s *idsAPI) expanded(ids []int32, each func(func(uri string) error) error) (out []int32, images []traj.Image,
	spans []traj.ImageSpan, err error) {
	err = each(func(uri string) error {
		_, data, ok := strings.Cut(uri, ";base64,")
		if !ok || !strings.HasPrefix(uri, "data:") {
			return errFiles
		}
		file, err := base64.StdEncoding.DecodeString(data)
		if err != nil {
			return bad("content_parts", "image %d is no base64: %v", len(images)+1, err)
		}
		im, err := album.Open(file, "", media.Limits{})
		images = append(images, im)
		return err
	})
	if err != nil || len(images) == 0 {
		return ids, nil, nil, err
	}
	places := s.exact.Images
	if places == nil {
		return nil, nil, nil, bad("content_parts", "the model takes no images")
	}
	for _, id := range ids {
		if id != places.Token {
			out = append(out, id)
			continue
		}
		if len(spans) == len(images) {
			return nil, nil, nil, bad("token_ids", "there are more places of images than the %d images", len(images))
		}
		im := &images[len(spans)]
		grid, n, err := places.Grid(im.Width, im.Height)
		if err != nil {
			return nil, nil, nil, err
		}
		spans = append(spans, traj.ImageSpan{Image: len(spans), Start: len(out), Tokens: n, Grid: grid})
		for range n {
			out = append(out, places.Token)
		}
	}
	if len(spans) < len(images) {
		return nil, nil, nil, bad("token_ids", "there are %d places of images for %d images", len(spans), len(images))
	}
	return out, images, spans, nil
}

// sglangRequest is one to SGLang's /generate.
type sglangRequest struct {
	Text     *string `json:"text"`
	IDs      []int32 `json:"input_ids"`
	Sampling struct {
		drawing
		MaxNew *int    `json:"max_new_tokens"`
		Seed   *int64  `json:"sampling_seed"`
		Schema *string `json:"json_schema"`
		Regex  string  `json:"regex"`
	} `json:"sampling_params"`
	Logprobs bool   `json:"return_logprob"`
	From     *int   `json:"logprob_start_len"`
	Top      int    `json:"top_logprobs_num"`
	Stream   bool   `json:"stream"`
	Routed   bool   `json:"return_routed_experts"`
	RID      string `json:"rid"`
	Adapter  string `json:"lora_path"` // its name
}

// request is that to the engine.
func (c *sglangRequest) request(s *server) (*policy.Request, error) {
	d := &c.Sampling.drawing
	d.MaxTokens, d.Seed = c.Sampling.MaxNew, c.Sampling.Seed
	if d.MaxTokens == nil { // SGLang's default
		n := 128
		d.MaxTokens = &n
	}
	if d.Guided = c.Sampling.Regex; c.Sampling.Schema != nil {
		d.GuidedJSON = json.RawMessage(*c.Sampling.Schema)
	}
	if err := cmp.Or(named(s, c.Adapter, d), checkDrawing(s, d), checkExperts(s, &c.Routed)); err != nil {
		return nil, err
	}
	if d.choices() > 1 {
		return nil, bad("n", "n is %d; ask for each reply by itself", d.choices())
	}
	form, err := d.grammarOf()
	if err != nil {
		return nil, err
	}
	ids := c.IDs
	if c.Text != nil {
		ids = s.facts.Tokenizer.Encode(*c.Text, true)
	}
	r := d.request(policy.Sequence{IDs: ids}, 0, min(max(c.Top, 0), maxTop))
	r.PromptLogprobs, r.Grammar = c.Logprobs && c.From != nil && *c.From >= 0, s.matcher(form)
	return r, nil
}

// sglangAnswer is what there is of a reply.
type sglangAnswer struct {
	c              *sglangRequest
	read           int // tokens of the prompt
	prompt, tokens []policy.Token
	text           string
	experts        *traj.Experts // nil: not yet, or none
}

func (a *sglangAnswer) body(finish any, now int64) map[string]any {
	meta := map[string]any{"id": a.c.RID, "finish_reason": finish, "prompt_tokens": a.read, "completion_tokens": len(a.tokens),
		"weight_version": now}
	versions(meta, a.tokens, now)
	if a.c.Logprobs {
		meta["output_token_logprobs"], meta["input_token_logprobs"] = rowsOf(a.tokens, 0), rowsOf(a.prompt, 1)
	}
	if a.c.Routed && a.experts.Tokens() > 0 {
		meta["routed_experts"] = encodeNumbers(a.experts)
	}
	return map[string]any{"text": a.text, "output_ids": idsOf(a.tokens), "meta_info": meta}
}

// finished is why a reply ended.
func finished(r *policy.Reply) map[string]any {
	finish := map[string]any{"type": r.FinishReason}
	switch {
	case r.FinishReason == traj.FinishLength:
		finish["length"] = len(r.IDs)
	case r.StopString != "":
		finish["matched"] = r.StopString
	case r.Ended:
		finish["matched"] = r.IDs[len(r.IDs)-1]
	}
	return finish
}

// sglang answers SGLang's POST /generate, of one text or of one list of ids.
func (s *idsAPI) sglang(w http.ResponseWriter, r *http.Request) error {
	var c sglangRequest
	if err := read(w, r, &c); err != nil {
		return err
	}
	request, err := c.request(s.server)
	if err != nil {
		return err
	}
	ctx, release := s.entitled(r.Context(), c.RID)
	defer release()
	words := s.writing(&c.Sampling.drawing, c.Sampling.skips())
	a := &sglangAnswer{c: &c, read: len(request.Prompt.IDs)}
	var stream *events
	if c.Stream {
		stream = newEvents(w)
	}
	each := func(tokens []policy.Token) error {
		a.tokens = append(a.tokens, tokens...)
		for _, t := range tokens {
			a.text += words.add(t.ID)
		}
		if stream == nil {
			return nil
		}
		return stream.send(a.body(nil, versionOf(s.server, &c.Sampling.drawing)))
	}
	reply := &policy.Reply{Output: traj.Completion{FinishReason: traj.FinishLength}}
	if *c.Sampling.MaxTokens > 0 {
		reply, err = s.ask(ctx, request, each)
	} else { // the prompt alone is wanted
		reply.Prompt, err = s.engine.Score(ctx, request)
	}
	var last map[string]any
	if err == nil {
		a.text += words.rest()
		a.tokens, a.prompt, a.experts = reply.Tokens, reply.Prompt, reply.Experts
		last = a.body(finished(reply), versionOf(s.server, &c.Sampling.drawing))
		if n := seen(w); n != nil {
			n.prompt, n.drawn = a.read, len(a.tokens)
		}
	}
	if stream != nil {
		if err == nil {
			_ = stream.send(last)
		}
		return stream.end(err)
	}
	if err != nil {
		return err
	}
	return answer(w, last)
}

// rowsOf are tokens as SGLang writes them: log-prob, id, no text. The first `without` have no
// log-prob.
func rowsOf(tokens []policy.Token, without int) [][3]any {
	out := make([][3]any, len(tokens))
	for i, t := range tokens {
		out[i] = [3]any{logprob(t.Logprob), t.ID, nil}
		if i < without {
			out[i][0] = nil
		}
	}
	return out
}

// abort answers POST /abort_request.
func (s *idsAPI) abort(w http.ResponseWriter, r *http.Request) error {
	var c struct {
		RID string `json:"rid"`
		All bool   `json:"abort_all"`
	}
	if err := read(w, r, &c); err != nil {
		return err
	}
	s.mu.Lock()
	for r := range s.byName {
		if c.All || r.name == c.RID {
			r.end()
		}
	}
	s.mu.Unlock()
	return answer(w, map[string]bool{"success": true})
}

// modelInfo answers GET /get_model_info.
func (s *idsAPI) modelInfo(w http.ResponseWriter, _ *http.Request) error {
	return answer(w, map[string]any{"model_path": s.source.Name, "tokenizer_path": s.source.Name, "is_generation": true,
		"weight_version": s.engine.Version()})
}
