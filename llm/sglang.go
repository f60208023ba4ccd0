package llm

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// generateFields is a request to SGLang's /generate; the second are the fields
// within sampling_params.
func (w *requestWriter) generateFields(b *body, prompt []int32) (f, params map[string]json.RawMessage) {
	all := w.fields(b)
	params = map[string]json.RawMessage{"skip_special_tokens": rawFalse}
	for to, from := range map[string]string{"max_new_tokens": "max_tokens", "temperature": "temperature", "top_p": "top_p", "top_k": "top_k",
		"min_p": "min_p", "repetition_penalty": "repetition_penalty", "stop": "stop", "stop_token_ids": "stop_token_ids",
		"logit_bias": "logit_bias"} {
		if v, ok := all[from]; ok {
			params[to] = v
		}
	}
	if g := b.sampling.Grammar; g != nil && b.grammarRefusal == "" {
		maps.Copy(params, sglangGrammar(g))
	}
	if w.has("sampling_seed") {
		params["sampling_seed"] = json.RawMessage(strconv.FormatInt(b.seedFor(w.server), 10))
	}
	inner, err := json.Marshal(params)
	if err != nil { // raw JSON of our own making
		inner = json.RawMessage("{}")
	}
	f = map[string]json.RawMessage{"input_ids": encodeIDs(prompt), "sampling_params": inner,
		"return_logprob": rawTrue, "logprob_start_len": json.RawMessage("-1")}
	if w.c.WantExperts {
		f["return_routed_experts"] = rawTrue
	}
	if w.streams() {
		f["stream"] = rawTrue
	}
	return f, params
}

// sglangPieces reads SGLang's replies. Pieces of a stream hold all so far, or,
// from a server with --incremental-streaming-output, what is new.
type sglangPieces struct {
	s     sampledPieces
	n     int  // pieces so far
	again bool // one repeated what came before
}

func (p *sglangPieces) add(data []byte) error {
	var chunk struct {
		Text      string  `json:"text"`
		OutputIDs []int32 `json:"output_ids"`
		Meta      *struct {
			Prompt int                 `json:"prompt_tokens"`
			N      int                 `json:"completion_tokens"`
			Raw    [][]json.RawMessage `json:"output_token_logprobs"`
			Weight json.RawMessage     `json:"weight_version"`
			versionFields
			routedExperts
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
	if p.n++; p.n > 1 && m.N == 0 && len(ids) > 0 {
		return fmt.Errorf("a piece without completion_tokens, so that it may hold all so far or what is new: %s", excerpt(data))
	}
	if len(ids) == m.N {
		p.again = p.again || len(p.s.ids) > 0
		p.s.versions = tokenVersions{}
		p.s.ids, p.s.logprobs, p.s.text = ids, lps, chunk.Text
	} else {
		p.s.ids, p.s.logprobs, p.s.text = append(p.s.ids, ids...), append(p.s.logprobs, lps...), p.s.text+chunk.Text
	}
	p.s.amiss = p.s.amiss || m.N > 0 && len(p.s.ids) != m.N
	p.s.promptN, p.s.n = m.Prompt, m.N
	if m.Version == nil {
		m.Version = m.Weight
	}
	p.s.saw(m.Version)
	p.s.experts = cmp.Or(m.Routed, p.s.experts)
	p.s.versions.add(m.versionFields, len(ids))
	if f := m.Finish; f != nil {
		p.s.finish, p.s.stop, p.s.message, p.s.brokenOff = f.Type, slices.Clone(f.Matched), f.Message, f.Status
	}
	return nil
}

func (p *sglangPieces) done() bool           { return p.s.finish != "" }
func (p *sglangPieces) repeats() bool        { return p.again }
func (p *sglangPieces) take() *sampledPieces { return &p.s }

// findSGLang asks whether the server is SGLang, and for its model.
func (c *caller) findSGLang(ctx context.Context) (model string) {
	var info struct {
		ModelPath string `json:"model_path"`
	}
	for _, path := range []string{"/model_info", "/get_model_info"} { // the second is the older name
		one, cancel := context.WithTimeout(ctx, c.c.Timeout)
		x := &exchange{whole: true}
		err := c.get(one, c.root()+path, x)
		cancel()
		if err == nil && json.Unmarshal(x.body, &info) == nil && info.ModelPath != "" {
			c.sglang.Store(true)
			return info.ModelPath
		}
	}
	return ""
}
