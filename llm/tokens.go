package llm

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"agentcli/traj"
)

// Tokens asks a server in ids and is answered in ids: vLLM's /v1/completions, or
// SGLang's own /generate. It satisfies chat.Sampler by shape, and is safe for
// concurrent use.
type Tokens struct {
	Client *Client
	SGLang bool    // ask /generate
	Window int     // tokens of prompt and reply; 0: not known
	Stops  []int32 // ids that end a reply in this model's chat format
}

// Sample draws one continuation of prompt, and retries what may pass.
func (t *Tokens) Sample(ctx context.Context, prompt []int32, s traj.Sampling, seed int64) (*traj.Completion, error) {
	c := t.Client
	if t.Window > 0 {
		room := t.Window - len(prompt)
		if room < 1 {
			return nil, fmt.Errorf("%w: %d tokens, the server's window is %d", traj.ErrPromptTooLong, len(prompt), t.Window)
		}
		if s.MaxTokens == 0 || room < s.MaxTokens {
			s.MaxTokens = room
		}
	}
	if s.MaxTokens == 0 {
		// Left open it would be 16 with vLLM and 128 with SGLang.
		return nil, traj.Mark(fmt.Errorf("%s does not say how long its window is; give the longest reply by --max-tokens N", c.c.BaseURL), traj.ErrFatal)
	}
	for _, id := range t.Stops {
		if !slices.Contains(s.StopIDs, id) {
			s.StopIDs = append(s.StopIDs[:len(s.StopIDs):len(s.StopIDs)], id)
		}
	}
	b := &body{sampling: s, seed: seed}
	var out *traj.Completion
	err := c.retry(ctx, func(ctx context.Context) *failure {
		p, f := t.once(ctx, b, prompt)
		if f == nil {
			out, f = t.completion(p, b, prompt)
		}
		return f
	})
	return out, err
}

// pieces puts a reply in ids together, of one piece or of many.
type pieces interface {
	add(data []byte) error
	done() bool
	take() *sampledPieces
}

// sampledPieces is what a reply in ids consists of.
type sampledPieces struct {
	ids        []int32
	logprobs   []*float64
	prompt     []int32 // as the server saw it; nil: it does not say
	promptN, n int     // tokens, as the server counts; 0: it does not
	text       string
	finish     string
	stop       json.RawMessage
	message    string // why it was broken off
	brokenOff  int    // the status that goes with it
}

func (t *Tokens) once(ctx context.Context, b *body, prompt []int32) (*sampledPieces, *failure) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := t.Client
	x := &exchange{stream: c.streams(), wanted: "completions", whole: true}
	url, fields, s := c.c.BaseURL+"/completions", t.completionFields(b, prompt), pieces(&completionPieces{})
	if t.SGLang {
		x.wanted = "/generate"
		url, s = c.root()+"/generate", &sglangPieces{}
		fields, x.nested = t.generateFields(b, prompt)
	}
	resp, err := c.send(ctx, url, fields, x)
	if err != nil {
		return nil, c.classify(err, x, b)
	}
	if !x.stream {
		if err := s.add(x.body); err != nil {
			return nil, c.classify(err, x, b)
		}
		return s.take(), nil
	}
	if f := c.streamed(resp.Body, x, b, s.add, s.done); f != nil {
		return nil, f
	}
	return s.take(), nil
}

// root is the server's address without the API's version.
func (c *Client) root() string { return strings.TrimSuffix(c.c.BaseURL, "/v1") }

// completion makes sure that what came back is what was asked for.
func (t *Tokens) completion(p *sampledPieces, b *body, prompt []int32) (*traj.Completion, *failure) {
	c := t.Client
	base := c.c.BaseURL
	if p.finish == "abort" && p.brokenOff >= 400 {
		x := &exchange{status: p.brokenOff, body: []byte(p.message)}
		return nil, c.classify(fmt.Errorf("aborted"), x, b)
	}
	if f := c.brokenOff(p.finish); f != nil {
		return nil, f
	}
	fatal := func(format string, args ...any) (*traj.Completion, *failure) {
		return nil, &failure{err: traj.Mark(fmt.Errorf(format, args...), traj.ErrFatal)}
	}
	if len(p.ids) == 0 && (p.n > 0 || p.text != "") {
		return fatal("%s returns no token ids (vLLM since 0.10.2 and SGLang do); leave --token-mode completions out", base)
	}
	if p.prompt != nil && !slices.Equal(p.prompt, prompt) || p.prompt == nil && p.promptN > 0 && p.promptN != len(prompt) {
		n := p.promptN
		if p.prompt != nil {
			n = len(p.prompt)
		}
		return fatal("%s was given a prompt of %d ids and used another, of %d: its replies do not belong to what was asked", base, len(prompt), n)
	}
	if p.n > 0 && p.n != len(p.ids) {
		return nil, &failure{err: traj.Mark(fmt.Errorf("%s sampled %d tokens and sent the ids of %d", base, p.n, len(p.ids)), errNoReply), retry: true}
	}
	out := &traj.Completion{IDs: p.ids, Text: p.text, FinishReason: p.finish}
	out.Logprobs = c.aligned(p.logprobs, len(p.ids))
	if n := len(p.ids); n > 0 && p.finish == traj.FinishStop {
		var id int32
		switch {
		case json.Unmarshal(p.stop, &out.StopString) == nil && out.StopString != "":
		case json.Unmarshal(p.stop, &id) == nil && id == p.ids[n-1]:
			out.Ended = true
		default:
			out.Ended = slices.Contains(b.sampling.StopIDs, p.ids[n-1]) || len(b.sampling.Stop) == 0
		}
	}
	return out, nil
}

// encodeIDs is ids as a JSON array.
func encodeIDs(ids []int32) json.RawMessage {
	out := make([]byte, 0, 6*len(ids)+2)
	out = append(out, '[')
	for i, id := range ids {
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendInt(out, int64(id), 10)
	}
	return append(out, ']')
}

// completionFields is a request to /v1/completions, as vLLM reads it.
func (t *Tokens) completionFields(b *body, prompt []int32) map[string]json.RawMessage {
	c := t.Client
	f := c.fields(b)
	f["prompt"] = encodeIDs(prompt)
	f["model"], _ = json.Marshal(c.c.Model) //nolint:errchkjson // a string
	if _, ok := f["logprobs"]; ok {
		f["logprobs"] = json.RawMessage("0") // of the sampled token alone
	}
	if c.has("return_tokens_as_token_ids") {
		f["return_tokens_as_token_ids"] = json.RawMessage("true") // ids from a vLLM that does not know return_token_ids
	}
	if c.has("skip_special_tokens") {
		f["skip_special_tokens"] = json.RawMessage("false") // stop strings may have special tokens in them
	}
	return f
}

// completionPieces reads vLLM's replies.
type completionPieces struct{ s sampledPieces }

func (p *completionPieces) add(data []byte) error {
	rest, ids := takeIDs(data)
	var chunk struct {
		Choices []struct {
			Index    int    `json:"index"`
			Text     string `json:"text"`
			Logprobs *struct {
				Tokens        []string   `json:"tokens"`
				TokenLogprobs []*float64 `json:"token_logprobs"`
			} `json:"logprobs"`
			FinishReason string `json:"finish_reason"`
			ended
		} `json:"choices"`
		Usage *usage `json:"usage"`
	}
	if err := json.Unmarshal(rest, &chunk); err != nil {
		return fmt.Errorf("not the API's JSON: %w: %s", err, excerpt(data))
	}
	if u := chunk.Usage; u != nil {
		p.s.promptN, p.s.n = u.Prompt, u.Completion
	}
	if ids.prompt != nil {
		p.s.prompt = ids.prompt
	}
	for i := range chunk.Choices {
		ch := &chunk.Choices[i]
		if ch.Index != 0 {
			continue
		}
		p.s.text += ch.Text
		sampled := ids.sampled
		if l := ch.Logprobs; l != nil {
			p.s.logprobs = append(p.s.logprobs, l.TokenLogprobs...)
			if sampled == nil {
				sampled = namedIDs(l.Tokens)
			}
		}
		p.s.ids = append(p.s.ids, sampled...)
		if ch.FinishReason != "" {
			p.s.finish, p.s.stop = ch.FinishReason, slices.Clone(ch.what())
		}
	}
	return nil
}

func (p *completionPieces) done() bool           { return p.s.finish != "" }
func (p *completionPieces) take() *sampledPieces { return &p.s }

// namedIDs reads tokens of the form token_id:17, as vLLM writes them on request.
func namedIDs(tokens []string) []int32 {
	out := make([]int32, 0, len(tokens))
	for _, t := range tokens {
		digits, ok := strings.CutPrefix(t, "token_id:")
		id, err := strconv.ParseInt(digits, 10, 32)
		if !ok || err != nil || id < 0 {
			return nil
		}
		out = append(out, int32(id))
	}
	return out
}

// generateFields is a request to SGLang's /generate; the second are the fields
// within sampling_params.
func (t *Tokens) generateFields(b *body, prompt []int32) (f, params map[string]json.RawMessage) {
	c := t.Client
	all := c.fields(b)
	params = map[string]json.RawMessage{"skip_special_tokens": json.RawMessage("false")}
	for to, from := range map[string]string{"max_new_tokens": "max_tokens", "temperature": "temperature", "top_p": "top_p", "top_k": "top_k",
		"min_p": "min_p", "repetition_penalty": "repetition_penalty", "stop": "stop", "stop_token_ids": "stop_token_ids"} {
		if v, ok := all[from]; ok {
			params[to] = v
		}
	}
	if c.has("sampling_seed") {
		params["sampling_seed"] = json.RawMessage(strconv.FormatInt((b.seed^b.seed>>32)&math.MaxInt32, 10))
	}
	list := append([]byte(nil), '{')
	for i, k := range slices.Sorted(maps.Keys(params)) {
		if i > 0 {
			list = append(list, ',')
		}
		list = append(strconv.AppendQuote(list, k), ':')
		list = append(list, params[k]...)
	}
	f = map[string]json.RawMessage{"input_ids": encodeIDs(prompt), "sampling_params": append(list, '}'),
		"return_logprob": json.RawMessage("true"), "logprob_start_len": json.RawMessage("-1")}
	if c.streams() {
		f["stream"] = json.RawMessage("true")
	}
	return f, params
}

// sglangPieces reads SGLang's replies. Pieces of a stream hold all so far, or,
// from a server with --incremental-streaming-output, what is new.
type sglangPieces struct{ s sampledPieces }

func (p *sglangPieces) add(data []byte) error {
	var chunk struct {
		Text      string  `json:"text"`
		OutputIDs []int32 `json:"output_ids"`
		Meta      *struct {
			Prompt int                 `json:"prompt_tokens"`
			N      int                 `json:"completion_tokens"`
			Raw    [][]json.RawMessage `json:"output_token_logprobs"`
			Finish *struct {
				Type    string          `json:"type"`
				Matched json.RawMessage `json:"matched"`
				Message string          `json:"message"`
				Status  int             `json:"status_code"`
			} `json:"finish_reason"`
		} `json:"meta_info"`
	}
	if err := json.Unmarshal(data, &chunk); err != nil {
		return fmt.Errorf("not the API's JSON: %w: %s", err, excerpt(data))
	}
	m := chunk.Meta
	if m == nil {
		return fmt.Errorf("a reply without meta_info: %s", excerpt(data))
	}
	ids, lps := make([]int32, 0, len(m.Raw)), make([]*float64, 0, len(m.Raw))
	for _, row := range m.Raw { // [log-prob, id, text or null]
		var id int32
		var lp *float64
		if len(row) < 2 || json.Unmarshal(row[1], &id) != nil || json.Unmarshal(row[0], &lp) != nil {
			return fmt.Errorf("output_token_logprobs is no list of log-probs and ids: %s", excerpt(data))
		}
		ids, lps = append(ids, id), append(lps, lp)
	}
	if len(ids) == 0 { // asked for without log-probs
		ids, lps = chunk.OutputIDs, nil
	}
	if len(ids) == m.N {
		p.s.ids, p.s.logprobs, p.s.text = ids, lps, chunk.Text
	} else {
		p.s.ids, p.s.logprobs, p.s.text = append(p.s.ids, ids...), append(p.s.logprobs, lps...), p.s.text+chunk.Text
	}
	p.s.promptN, p.s.n = m.Prompt, m.N
	if f := m.Finish; f != nil {
		p.s.finish, p.s.stop, p.s.message, p.s.brokenOff = f.Type, slices.Clone(f.Matched), f.Message, f.Status
	}
	return nil
}

func (p *sglangPieces) done() bool           { return p.s.finish != "" }
func (p *sglangPieces) take() *sampledPieces { return &p.s }
