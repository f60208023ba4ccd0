package serve

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"sync"

	"agentcli/policy"
	"agentcli/traj"
)

// trlAPI answers the client of TRL before 1.11 (trl.generation.vllm_client.VLLMClient), in the place of
// `trl vllm-serve`.
type trlAPI struct{ *openAI }

// trlDrawing are the fields of TRL's requests that say how replies are drawn.
type trlDrawing struct {
	drawing
	Logprobs *int            `json:"logprobs"` // most probable ids beside the drawn one
	Regex    *string         `json:"structured_outputs_regex"`
	Kwargs   json.RawMessage `json:"generation_kwargs"` // fields of drawing, which win
}

// settle applies the fields that win, and holds all to what can be done.
func (d *trlDrawing) settle() error {
	if !isNull(d.Kwargs) {
		own := struct {
			*drawing
			Logprobs **int `json:"logprobs"`
		}{&d.drawing, &d.Logprobs}
		if json.Unmarshal(d.Kwargs, &own) != nil {
			return bad("generation_kwargs", "generation_kwargs are no sampling parameters: %.200s", d.Kwargs)
		}
	}
	if d.Regex != nil {
		d.Guided = *d.Regex
	}
	if d.MaxTokens == nil { // TRL's default
		n := 16
		d.MaxTokens = &n
	}
	switch {
	case *d.MaxTokens == 0:
		return bad("max_tokens", "max_tokens is 0; there would be no reply")
	case d.Logprobs != nil && (*d.Logprobs < 0 || *d.Logprobs > maxTop):
		return bad("logprobs", "logprobs is %d; it is between 0 and %d", *d.Logprobs, maxTop)
	}
	return d.check()
}

// trlPrompt is a prompt of several.
type trlPrompt struct {
	ids    []int32
	images []traj.Image
	spans  []traj.ImageSpan
}

// generate answers POST /generate/: prompts as texts or ids, with images where there are some.
func (s *trlAPI) generate(w http.ResponseWriter, r *http.Request) error {
	var c struct {
		trlDrawing
		Prompts json.RawMessage `json:"prompts"`
		Images  [][]string      `json:"images"` // of each prompt, as base64
	}
	if err := read(w, r, &c); err != nil {
		return err
	}
	if err := c.settle(); err != nil {
		return err
	}
	lists, err := s.prompts(c.Prompts, true)
	if err != nil {
		return err
	}
	if len(c.Images) > 0 && len(c.Images) != len(lists) {
		return bad("images", "there are images of %d prompts for %d prompts", len(c.Images), len(lists))
	}
	prompts := make([]trlPrompt, len(lists))
	for i, ids := range lists {
		prompts[i].ids = ids
		if len(c.Images) == 0 || len(c.Images[i]) == 0 {
			continue
		}
		p, ids := &prompts[i], &idsAPI{s.server}
		p.ids, p.images, p.spans, err = ids.expanded(p.ids, func(yield func(uri string) error) error {
			for _, file := range c.Images[i] {
				if err := yield(uriOf(file)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return s.draw(w, r, &c.trlDrawing, prompts)
}

// uriOf is a file in base64 as a data URI; what its format is, its first bytes say.
func uriOf(file string) string { return "data:image/png;base64," + file }

// chat answers POST /chat/: conversations.
func (s *trlAPI) chat(w http.ResponseWriter, r *http.Request) error {
	var c struct {
		trlDrawing
		Messages [][]wireMessage `json:"messages"`
		Tools    []wireTool      `json:"tools"`
		Template json.RawMessage `json:"chat_template_kwargs"`
	}
	if err := read(w, r, &c); err != nil {
		return err
	}
	if s.noChat != nil {
		return refuse(http.StatusBadRequest, "", "%v; POST /generate/ takes ids and texts", s.noChat)
	}
	if err := c.settle(); err != nil {
		return err
	}
	if n := len(c.Messages); n == 0 || n > maxPrompts {
		return bad("messages", "there are %d conversations; a request has 1 to %d", n, maxPrompts)
	}
	prompts := make([]trlPrompt, len(c.Messages))
	for i, messages := range c.Messages {
		one := chatRequest{Messages: messages, Tools: c.Tools}
		if !isNull(c.Template) && json.Unmarshal(c.Template, &one.Kwargs) != nil {
			return bad("chat_template_kwargs", "chat_template_kwargs is no object, or enable_thinking is neither true nor false")
		}
		for k := range one.Messages {
			one.Messages[k].Content = withoutPIL(one.Messages[k].Content)
		}
		req, err := one.conversation()
		if err != nil {
			return err
		}
		e, p := s.exact, &prompts[i]
		e.EnableThinking = one.Kwargs.Thinking
		if p.ids, p.spans, err = e.Prompt(req); err != nil {
			return err
		}
		for _, m := range req.Messages {
			p.images = append(p.images, m.Images...)
		}
	}
	return s.draw(w, r, &c.trlDrawing, prompts)
}

// withoutPIL writes the parts of type image_pil, which have a file in base64, as image_url.
func withoutPIL(content json.RawMessage) json.RawMessage {
	var parts []map[string]any
	if json.Unmarshal(content, &parts) != nil {
		return content
	}
	for i, p := range parts {
		if file, ok := p["image_pil"].(string); ok {
			parts[i] = map[string]any{"type": "image_url", "image_url": map[string]any{"url": uriOf(file)}}
		}
	}
	out, err := json.Marshal(parts)
	if err != nil {
		return content
	}
	return out
}

// draw answers with n replies to each prompt, one prompt behind the other.
func (s *trlAPI) draw(w http.ResponseWriter, r *http.Request, d *trlDrawing, prompts []trlPrompt) error {
	form, err := d.grammarOf()
	if err != nil {
		return err
	}
	top := 0
	if d.Logprobs != nil {
		top = *d.Logprobs
	}
	placed, read := make([]policy.Sequence, len(prompts)), 0
	for i, p := range prompts {
		seq, release, err := s.engine.Place(p.ids, p.images, p.spans)
		if err != nil {
			return bad("prompts", "prompt %d: %v", i+1, err)
		}
		defer release()
		placed[i], read = seq, read+len(p.ids)
	}
	n := d.choices()
	replies := make([]*policy.Reply, n*len(prompts))
	err = inParallel(r.Context(), len(replies), func(ctx context.Context, i int) (err error) {
		q := d.request(placed[i/n], i%n, top)
		q.Grammar = s.matcher(form)
		replies[i], err = s.ask(ctx, q, nil)
		return err
	})
	if err != nil {
		return err
	}
	out := trlAnswer{PromptIDs: make([][]int32, len(prompts)), CompletionIDs: make([][]int32, len(replies))}
	for i, p := range prompts {
		out.PromptIDs[i] = p.ids
	}
	drawn := 0
	for i, reply := range replies {
		out.CompletionIDs[i] = reply.IDs
		drawn += len(reply.IDs)
		if d.Logprobs != nil {
			lps, ids := ranked(reply.Tokens)
			out.Logprobs, out.LogprobIDs = append(out.Logprobs, lps), append(out.LogprobIDs, ids)
		}
	}
	if seen := seen(w); seen != nil {
		seen.prompt, seen.drawn = read, drawn
	}
	return answer(w, out)
}

type trlAnswer struct {
	PromptIDs     [][]int32     `json:"prompt_ids"`
	CompletionIDs [][]int32     `json:"completion_ids"`
	Logprobs      [][][]float64 `json:"logprobs"` // [replies][tokens][most probable first]
	LogprobIDs    [][][]int32   `json:"logprob_token_ids"`
}

// ranked are, for each token, the log-probs of the most probable ids and its own, the largest
// first, and their ids.
func ranked(tokens []policy.Token) (lps [][]float64, ids [][]int32) {
	lps, ids = make([][]float64, len(tokens)), make([][]int32, len(tokens))
	for i, t := range tokens {
		for _, x := range t.Top {
			lps[i], ids[i] = append(lps[i], logprob(x.Logprob)), append(ids[i], x.ID)
		}
		if !slices.Contains(ids[i], t.ID) {
			lps[i], ids[i] = append(lps[i], logprob(t.Logprob)), append(ids[i], t.ID)
		}
	}
	return lps, ids
}

// maxScored is how many sequences a request has scored at once.
const maxScored = 16

// score answers POST /get_sequence_logprobs/: log-probs of given texts, behind their prompts.
func (s *trlAPI) score(w http.ResponseWriter, r *http.Request) error {
	var c struct {
		Sequences   [][]int32 `json:"sequences"`
		Prompts     []int     `json:"prompt_lengths"`
		Top         *int      `json:"top_logprobs"`
		Temperature *float64  `json:"temperature"`
		Format      string    `json:"response_format"`
	}
	if err := read(w, r, &c); err != nil {
		return err
	}
	top := 100 // TRL's default
	if c.Top != nil {
		top = *c.Top
	}
	switch {
	case len(c.Sequences) != len(c.Prompts) || len(c.Sequences) == 0 || len(c.Sequences) > maxPrompts:
		return bad("sequences", "there are %d sequences and %d prompt_lengths; a request has 1 to %d of both", len(c.Sequences),
			len(c.Prompts), maxPrompts)
	case top < 1 || top > maxTop:
		return bad("top_logprobs", "top_logprobs is %d; it is between 1 and %d", top, maxTop)
	case c.Temperature != nil && *c.Temperature != 1:
		return bad("temperature", "temperature is %v; log-probs of given sequences are the model's, at temperature 1", *c.Temperature)
	case c.Format != "" && c.Format != "json" && c.Format != "binary":
		return bad("response_format", "response_format is %.20q; it is json or binary", c.Format)
	}
	for i, ids := range c.Sequences {
		if n := c.Prompts[i]; n < 0 || n > len(ids) {
			return bad("prompt_lengths", "prompt_lengths[%d] is %d, and the sequence has %d ids", i, n, len(ids))
		}
	}
	scored := make([][]policy.Token, len(c.Sequences))
	under := make(chan struct{}, maxScored)
	var mu sync.Mutex
	total := 0
	err := inParallel(r.Context(), len(scored), func(ctx context.Context, i int) error {
		under <- struct{}{}
		defer func() { <-under }()
		if len(c.Sequences[i]) == c.Prompts[i] {
			return ctx.Err()
		}
		tokens, err := s.engine.Score(ctx, &policy.Request{Prompt: policy.Sequence{IDs: c.Sequences[i]}, PromptTop: top})
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		total += len(c.Sequences[i])
		scored[i] = tokens[c.Prompts[i]:]
		if c.Prompts[i] == 0 { // nothing comes before the first id
			scored[i][0] = policy.Token{ID: -1}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if seen := seen(w); seen != nil {
		seen.prompt = total
	}
	if c.Format == "binary" {
		return answer(w, inArrays(scored, top))
	}
	out := trlAnswer{Logprobs: make([][][]float64, len(scored)), LogprobIDs: make([][][]int32, len(scored))}
	for i, tokens := range scored {
		out.Logprobs[i], out.LogprobIDs[i] = ranked(tokens)
		if len(tokens) > 0 && tokens[0].ID < 0 {
			out.Logprobs[i][0], out.LogprobIDs[i][0] = []float64{}, []int32{}
		}
	}
	return answer(w, map[string]any{"logprobs": out.Logprobs, "logprob_token_ids": out.LogprobIDs})
}

// inArrays are scored tokens as TRL's binary form has them: little-endian float32 and int32 of
// the shape [sequences, longest, top] and, of the sequences' own ids, [sequences, longest, 1].
// What is not there is −∞ and id 0.
func inArrays(scored [][]policy.Token, top int) map[string]any {
	longest, lengths := 0, make([]int, len(scored))
	for i, tokens := range scored {
		lengths[i] = len(tokens)
		longest = max(longest, len(tokens))
	}
	least := math.Float32bits(float32(math.Inf(-1)))
	array := func(each int, at func(t *policy.Token, k int) (uint32, bool), none uint32) string {
		b := make([]byte, 0, 4*len(scored)*longest*each)
		for _, tokens := range scored {
			for i := range longest {
				for k := range each {
					v := none
					if i < len(tokens) && tokens[i].ID >= 0 {
						if x, ok := at(&tokens[i], k); ok {
							v = x
						}
					}
					b = binary.LittleEndian.AppendUint32(b, v)
				}
			}
		}
		return base64.StdEncoding.EncodeToString(b)
	}
	return map[string]any{
		"logprobs_b64": array(top, func(t *policy.Token, k int) (uint32, bool) {
			if k >= len(t.Top) {
				return 0, false
			}
			return math.Float32bits(float32(t.Top[k].Logprob)), true
		}, least),
		"token_ids_b64": array(top, func(t *policy.Token, k int) (uint32, bool) {
			if k >= len(t.Top) {
				return 0, false
			}
			return uint32(t.Top[k].ID), true
		}, 0),
		"actual_logprobs_b64": array(1, func(t *policy.Token, _ int) (uint32, bool) {
			return math.Float32bits(float32(t.Logprob)), true
		}, least),
		"actual_token_ids_b64": array(1, func(t *policy.Token, _ int) (uint32, bool) { return uint32(t.ID), true }, 0),
		"shape":                []int{len(scored), longest, top}, "completion_lengths": lengths,
	}
}
