package llm

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// completionFields is a request to /v1/completions, as vLLM reads it.
func (w *requestWriter) completionFields(b *body, prompt []int32) map[string]json.RawMessage {
	f := w.fields(b)
	f["prompt"] = encodeIDs(prompt)
	f["model"] = w.model
	if _, ok := f["logprobs"]; ok {
		f["logprobs"] = json.RawMessage("0") // of the sampled token alone
	}
	if w.has("return_tokens_as_token_ids") {
		f["return_tokens_as_token_ids"] = rawTrue // ids from a vLLM that does not know return_token_ids
	}
	if w.has("skip_special_tokens") {
		f["skip_special_tokens"] = rawFalse // stop strings may have special tokens in them
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
			routedExperts
		} `json:"choices"`
		Usage *usage `json:"usage"`
		Model string `json:"model"`
		versionFields
		sglangExtension
	}
	if err := json.Unmarshal(rest, &chunk); err != nil {
		return fmt.Errorf("not the API's JSON: %w: %s", err, excerpt(data))
	}
	if u := chunk.Usage; u != nil {
		p.s.promptN, p.s.n = u.Prompt, u.Completion
	}
	p.s.saw(chunk.Version)
	p.s.model = cmp.Or(chunk.Model, p.s.model)
	p.s.experts = cmp.Or(chunk.Extension.Routed, p.s.experts)
	if ids.prompt != nil {
		p.s.prompt = ids.prompt
	}
	for i := range chunk.Choices {
		ch := &chunk.Choices[i]
		if ch.Index != 0 {
			continue
		}
		p.s.text += ch.Text
		p.s.experts = cmp.Or(ch.Routed, p.s.experts)
		sampled := ids.sampled
		if l := ch.Logprobs; l != nil {
			p.s.logprobs = append(p.s.logprobs, l.TokenLogprobs...)
			if sampled == nil {
				sampled = namedIDs(l.Tokens)
			}
		}
		p.s.ids = append(p.s.ids, sampled...)
		p.s.versions.add(chunk.versionFields, len(sampled))
		if ch.FinishReason != "" {
			p.s.finish, p.s.stop = ch.FinishReason, slices.Clone(ch.what())
		}
	}
	return nil
}

func (p *completionPieces) done() bool           { return p.s.finish != "" }
func (p *completionPieces) repeats() bool        { return false }
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
